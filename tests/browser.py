"""Pages in Debian's Chromium, as people see them. A browser is shared by a file of tests, and a
loaded page by many questions: starting and drawing take longer than asking.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

CHROMIUM = shutil.which("chromium")
WIDE, NARROW = 1280, 375
HANGS_MS = 300_000

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make peers")

OF_COLOUR_AND_WIDTH = ("color-contrast", "scrollable-region-focusable")
"""The rules of axe that may find something else in the dark or on a phone."""
TAKE_OUT = """() => {
  const alike = ".chart svg > *, tbody tr:nth-child(n + 13), .numbers tbody tr:nth-child(n + 5)";
  window.taken = [...document.querySelectorAll(alike)].map((each) => {
    const place = document.createComment("");
    each.replaceWith(place);
    return [place, each];
  });
}"""
PUT_BACK = "() => window.taken.forEach(([place, each]) => place.replaceWith(each))"
"""Shapes, which are hidden from screen readers, and all but the first rows of a table, which are
alike: axe needs a millisecond for each."""

DRAW = """async () => {
  const undrawn = [];
  for (const each of document.querySelectorAll("[data-chart]")) {
    each.scrollIntoView();
    for (let look = 0; !each.dataset.drawn && look < 30000; look += 1) {
      await new Promise((done) => setTimeout(done, 10));
    }
    if (!each.dataset.drawn) undrawn.push(each.dataset.chart);
  }
  scrollTo(0, 0);
  return undrawn;
}"""
EMPTY_SECTIONS = """() => [...document.querySelectorAll("section")].filter((each) => {
  const told = [...each.querySelectorAll("table, figure, p:not(.note), li, pre")];
  return !told.some((part) => part.textContent.trim() || part.querySelector("svg"));
}).map((each) => each.id)"""
TOO_WIDE = """() => [...document.querySelectorAll("[data-chart]")].filter(
  (each) => each.scrollWidth > each.clientWidth
).map((each) => each.dataset.chart)"""
STOP = """() => {
  const each = document.activeElement;
  window.stops ??= new Set();
  if (each === document.body || window.stops.has(each)) return null;
  window.stops.add(each);
  const box = each.getClientRects()[0], style = getComputedStyle(each);
  const middle = (from, to, most) => (Math.max(from, 0) + Math.min(to, most)) / 2;
  const at = [middle(box.left, box.right, innerWidth), middle(box.top, box.bottom, innerHeight)];
  const top = document.elementFromPoint(...at);
  return {
    name: `${each.tagName.toLowerCase()} ${each.getAttribute("aria-label") ?? each.textContent.trim()}`.slice(0, 80),
    outlined: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0,
    seen: each.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && top !== null
      && (each.contains(top) || top.contains(each)),
  };
}"""
LEFT_OUT = """() => [...document.querySelectorAll("a[href], button, summary, input, select, [tabindex='0']")].filter(
  (each) => each.checkVisibility() && !window.stops.has(each)
).map((each) => each.outerHTML.slice(0, 100))"""


@dataclass(frozen=True, slots=True)
class Opened:
    """A page, and what it complained of or asked for beyond its own place."""

    page: Page
    complaints: list[str] = field(default_factory=list)


@contextlib.contextmanager
def chromium() -> Iterator[Browser]:
    """The browser."""
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def opened(
    browser: Browser, address: str, *, width: int = WIDE, dark: bool = False, scripts: bool = True, own: str = "file:"
) -> Opened:
    """A page in a window of its own. What it asks for has to begin with `own`."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if dark else "light",
        java_script_enabled=scripts,
    )
    context.set_default_timeout(HANGS_MS)
    found = Opened(context.new_page())
    listen(context, found.complaints, own)
    found.page.goto(address)
    return found


def listen(context: BrowserContext, complaints: list[str], own: str) -> None:
    """Note what pages complain of, and what they ask for beyond `own`."""
    context.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    context.on("weberror", lambda found: complaints.append(str(found.error)))
    context.on("request", lambda asked: None if asked.url.startswith(own) else complaints.append(asked.url))


def draw_all(page: Page) -> None:
    """Scroll through the page once, so that every chart is drawn."""
    assert page.evaluate(DRAW) == [], "charts that were never drawn"


def turn_into_dark_phone(page: Page) -> None:
    """Make the window that of a phone in the dark, and wait until every chart is drawn anew."""
    page.set_viewport_size({"width": NARROW, "height": 900})
    page.evaluate("document.querySelectorAll('.vega-embed').forEach((each) => { each.dataset.before = 'yes'; })")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("[data-before]")).to_have_count(0, timeout=HANGS_MS)


def unfold(page: Page) -> None:
    """Open every fold."""
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")


def grave(page: Page, *rules: str) -> list[tuple[str, str]]:
    """What axe finds serious or critical with all its rules, or with some."""
    options: dict[str, object] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    page.evaluate(TAKE_OUT)
    found = page.evaluate("(options) => axe.run(options)", options)["violations"]
    page.evaluate(PUT_BACK)
    return [
        (each["id"], node["html"][:200])
        for each in found
        if each["impact"] in {"serious", "critical"}
        for node in each["nodes"][:3]
    ]


def scrolls_sideways(page: Page) -> bool:
    """Whether the page is wider than its window."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def too_wide(page: Page) -> list[str]:
    """The charts that are wider than their places."""
    found: list[str] = page.evaluate(TOO_WIDE)
    return found


def empty_sections(page: Page) -> list[str]:
    """The sections that neither show nor say anything."""
    found: list[str] = page.evaluate(EMPTY_SECTIONS)
    return found


def tab_through(page: Page) -> list[dict[str, object]]:
    """Every place that Tab stops at, from the top to the end: its name, whether it can be seen, and
    whether it is outlined while it has the focus.
    """
    page.locator(".skip").focus()
    page.evaluate("window.stops = new Set()")
    stops: list[dict[str, object]] = []
    while (stop := page.evaluate(STOP)) is not None:
        stops.append(stop)
        page.keyboard.press("Tab")
    assert page.evaluate(LEFT_OUT) == [], "Tab does not stop there"
    return stops


def tab_to(page: Page, place: Locator) -> None:
    """Press Tab until the place has the focus."""
    for _ in range(500):
        if place.evaluate("(each) => each === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(place)
