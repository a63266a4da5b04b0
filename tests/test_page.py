"""The report in a browser: no request, no error, readable with scripts off, usable by keyboard and
screen reader.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from laboratory import environment, run_lab

CHROMIUM = shutil.which("chromium")
WIDE, NARROW = 1280, 375

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make peers")

QUESTION = f"Which of two models <b>is</b> cheaper at {'long' * 20}?"
SUITE = f"""
name = "page"
question = "{QUESTION}"
[server]
[load]
duration = "1300ms"
think = "5ms"
threads = 1
per_connection = true
[matrix]
"server.model" = ["epoll", "threads"]
"load.connections" = [5, 10, 20, 40]
[run]
repeat = 2
warm_up = "20ms"
seed = 1
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "suite.toml").write_text(SUITE)
    done = run_lab(folder, "run", "suite.toml", "--quiet")
    assert done.returncode in {0, 4}, done.stderr
    # The page is under test here, not whether this machine was quiet: every trial counts.
    for file in (folder / "runs/0001/trials").glob("*.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"outcome": "ok", "reason": None}))
    rebuilt = run_lab(folder, "report", "runs/0001")
    assert rebuilt.returncode in {0, 4}, rebuilt.stderr
    return folder / "runs/0001/report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def seen(browser: Browser, report: Path, *, width: int = WIDE, scripts: bool = True) -> tuple[Page, list[str]]:
    """The page, scrolled through once so that every chart is drawn, and whatever it complained of
    or asked for.
    """
    context = browser.new_context(viewport={"width": width, "height": 900}, java_script_enabled=scripts)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith("file:") else complaints.append(request.url))
    page.goto(report.as_uri())
    if scripts:
        for place in page.locator("[data-chart]").all():
            place.scroll_into_view_if_needed()
        page.wait_for_function("[...document.querySelectorAll('[data-chart]')].every((each) => each.dataset.drawn)")
    return page, complaints


def test_every_chart_is_drawn_and_nothing_is_asked_for(browser: Browser, report: Path) -> None:
    page, complaints = seen(browser, report)
    charts = page.locator("[data-chart]")
    assert charts.count() >= 8
    assert page.locator("[data-chart] .vega-embed svg.marks").count() == charts.count()
    for name in ("timelines", "heat"):
        assert page.locator(f"[data-chart^='{name}'] .vega-embed svg.marks").count() == 3
    assert complaints == []


def test_with_scripts_off_every_chart_is_a_still_picture(browser: Browser, report: Path) -> None:
    page, complaints = seen(browser, report, scripts=False)
    assert page.locator("[data-chart] > svg").count() == page.locator("[data-chart]").count() >= 8
    assert page.locator("h1").inner_text() == QUESTION
    assert page.locator(".answer").first.is_visible()
    assert complaints == []


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_page_does_not_scroll_sideways(browser: Browser, report: Path, width: int) -> None:
    page, _ = seen(browser, report, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_no_chart_is_wider_than_its_place(browser: Browser, report: Path, width: int) -> None:
    page, _ = seen(browser, report, width=width)
    wider = "[...document.querySelectorAll('[data-chart]')].filter((each) => each.scrollWidth > each.clientWidth)"
    assert page.evaluate(f"{wider}.map((each) => each.dataset.chart)") == []


def test_panels_below_each_other_have_their_own_names_and_unit(browser: Browser, report: Path) -> None:
    page, _ = seen(browser, report, width=NARROW)
    names = page.locator("[data-chart='clients-0'] svg.marks text", has_text="threads")
    assert names.count() == 3, "connect time, exchange time and failures"
    units = page.locator("[data-chart='completed_rate-contenders'] svg.marks text", has_text="requests/s")
    assert units.count() == 4, "one a load"


def test_panels_beside_each_other_stand_below_each_other_on_a_phone(browser: Browser, report: Path) -> None:
    panels = "[data-chart='completed_rate-contenders'] svg.marks"
    sizes = [seen(browser, report, width=width)[0].locator(panels).bounding_box() for width in (WIDE, NARROW)]
    wide, narrow = ((each["width"], each["height"]) for each in sizes if each is not None)
    assert wide[0] > narrow[0]
    assert narrow[0] < NARROW
    assert narrow[1] > 1.5 * wide[1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, report: Path, scheme: str) -> None:
    page, _ = seen(browser, report)
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = Axe().run(page).response["violations"]
    grave = [each for each in found if each["impact"] in {"serious", "critical"}]
    assert not grave, [(each["id"], each["nodes"][0]["html"][:200]) for each in grave]


def test_a_column_sorts_and_the_contents_lead_to_their_sections(browser: Browser, report: Path) -> None:
    page, _ = seen(browser, report)
    for link in page.locator("nav a").all():
        target = link.get_attribute("href")
        assert target is not None
        assert page.locator(target).count() == 1
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    table = page.locator("table", has=page.get_by_text("Every trial of run")).first
    table.get_by_role("button", name="trial", exact=True).click()
    table.get_by_role("button", name="trial", exact=True).click()
    numbers = [int(text) for text in table.locator("tbody th").all_inner_texts()]
    assert numbers == sorted(numbers, reverse=True)
    assert len(numbers) == 16


def test_a_column_of_several_units_sorts_by_what_they_are_worth(browser: Browser, report: Path, tmp_path: Path) -> None:
    cells = ("900 Mbit/s", "2 Gbit/s", "70 kbit/s", "1.5 Mbit/s", "3 ms")
    rows = "".join(f"<tr><td>{each}</td></tr>" for each in cells)
    table = f'<table id="units"><thead><tr><th>goodput</th></tr></thead><tbody>{rows}</tbody></table></main>'
    (tmp_path / "page.html").write_text(report.read_text().replace("</main>", table))
    page, _ = seen(browser, tmp_path / "page.html")
    page.locator("#units button").click()
    assert page.locator("#units td").all_inner_texts() == ["3 ms", "70 kbit/s", "1.5 Mbit/s", "900 Mbit/s", "2 Gbit/s"]


def test_paper_keeps_a_heading_with_what_follows_and_lets_long_tables_go_on(browser: Browser, report: Path) -> None:
    """A chart and its numbers that went to the next page whole left a heading alone on this one."""
    page, _ = seen(browser, report)
    page.emulate_media(media="print")
    style = "(each) => { const found = getComputedStyle(each); return [found.breakInside, found.breakAfter]; }"
    found = {name: page.locator(name).first.evaluate(style) for name in ("figure", ".chart", "tr", "h2", "summary")}
    assert [name for name, (inside, _) in found.items() if inside == "avoid"] == [".chart", "tr"]
    assert [name for name, (_, after) in found.items() if after == "avoid"] == ["h2", "summary"]


def test_paper_shows_what_is_folded(browser: Browser, report: Path) -> None:
    page, _ = seen(browser, report)
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_the_downloads_are_the_exports(browser: Browser, report: Path, *, scripts: bool) -> None:
    page, _ = seen(browser, report, scripts=scripts)
    done = run_lab(report.parent.parent.parent, "report", "runs/0001", "--export", "csv")
    assert done.returncode in {0, 4}, done.stderr
    for name in ("points.csv", "trials.csv"):
        with page.expect_download() as started:
            page.locator(f"a[download='{name}']").click()
        assert started.value.path().read_bytes() == (report.parent / name).read_bytes()


def test_the_page_is_the_same_in_any_time_zone(report: Path) -> None:
    before = report.read_bytes()
    subprocess.run(
        [sys.executable, "-m", "plimsoll_lab", "report", "runs/0001"],
        cwd=report.parent.parent.parent,
        env=environment(TZ="Pacific/Auckland"),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert report.read_bytes() == before
    assert len(before) <= 2.5 * 2**20
    assert re.search(rb"\d\d:\d\d UTC", before)
