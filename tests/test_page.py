"""The report in a browser: no request, no error, readable with scripts off, usable by keyboard and
screen reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_records import stored_run
from made_standard_run import made_run
from playwright.sync_api import Browser, Page

from browser import (
    NARROW,
    OF_COLOUR_AND_WIDTH,
    Opened,
    chromium,
    draw_all,
    empty_sections,
    grave,
    needs_chromium,
    opened,
    scrolls_sideways,
    tab_through,
    tab_to,
    too_wide,
    unfold,
)
from laboratory import run_lab
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.export import export
from plimsoll_lab.report.page import render_page, write_page
from plimsoll_lab.store.folder import RunFolder

pytestmark = needs_chromium

QUESTION = f"Which of two models <b>is</b> cheaper at {'long' * 20}?"
SUITE = f"""
name = "page"
question = "{QUESTION}"
[server]
[load]
duration = "6s"
per_connection = true
[matrix]
"server.model" = ["epoll", "threads"]
"load.connections" = [5, 10, 20, 40]
[run]
repeat = 2
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run with charts of many kinds. It is made of records: the page is under test here, and not
    what this machine measures.
    """
    folder = made_run(tmp_path_factory.mktemp("page") / "runs/0001", SUITE, Path("page.toml"))
    write_page(folder, summarise_run(folder))
    return folder


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def screen(browser: Browser, run: RunFolder) -> Opened:
    """The page on a wide screen, every chart drawn."""
    found = opened(browser, run.report.as_uri())
    draw_all(found.page)
    return found


@pytest.fixture
def wide(screen: Opened) -> Iterator[Page]:
    """The same for one test, which finds it at its top and folded."""
    page = screen.page
    page.evaluate("scrollTo(0, 0)")
    yield page
    page.emulate_media(media="screen")
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = false; })")


@pytest.fixture(scope="module")
def phone(browser: Browser, run: RunFolder) -> Opened:
    """The page on a phone in the dark, every chart drawn and every fold open."""
    found = opened(browser, run.report.as_uri(), width=NARROW, dark=True)
    draw_all(found.page)
    unfold(found.page)
    return found


@pytest.fixture(scope="module")
def still(browser: Browser, run: RunFolder) -> Opened:
    """The page on a phone where no script may run."""
    return opened(browser, run.report.as_uri(), width=NARROW, scripts=False)


def test_every_chart_is_drawn_and_nothing_is_asked_for(screen: Opened, wide: Page) -> None:
    charts = wide.locator("[data-chart]")
    assert charts.count() >= 8
    assert wide.locator("[data-chart] .vega-embed svg.marks").count() == charts.count()
    for name in ("timelines", "heat"):
        assert wide.locator(f"[data-chart^='{name}'] .vega-embed svg.marks").count() == 3
    assert empty_sections(wide) == []
    assert screen.complaints == []


def test_with_scripts_off_every_chart_is_a_still_picture(still: Opened) -> None:
    page = still.page
    assert page.locator("[data-chart] > svg").count() == page.locator("[data-chart]").count() >= 8
    assert page.locator("h1").inner_text() == QUESTION
    assert page.locator(".answer").first.is_visible()
    assert not scrolls_sideways(page)
    assert still.complaints == []


def test_nothing_is_wider_than_a_screen_or_a_phone(wide: Page, phone: Opened) -> None:
    unfold(wide)
    for page in (wide, phone.page):
        assert not scrolls_sideways(page)
        assert too_wide(page) == []
    assert phone.complaints == []


def test_panels_below_each_other_have_their_own_names_and_unit(phone: Opened) -> None:
    names = phone.page.locator("[data-chart='clients-0'] svg.marks text", has_text="threads")
    assert names.count() == 3, "connect time, exchange time and failures"
    units = phone.page.locator("[data-chart='completed_rate-contenders'] svg.marks text", has_text="requests/s")
    assert units.count() == 4, "one a load"


def test_panels_beside_each_other_stand_below_each_other_on_a_phone(wide: Page, phone: Opened) -> None:
    panels = "[data-chart='completed_rate-contenders'] svg.marks"
    sizes = [page.locator(panels).bounding_box() for page in (wide, phone.page)]
    on_screen, on_phone = ((each["width"], each["height"]) for each in sizes if each is not None)
    assert on_screen[0] > on_phone[0]
    assert on_phone[0] < NARROW
    assert on_phone[1] > 1.5 * on_screen[1]


def test_axe_finds_nothing_serious_in_the_light_or_in_the_dark(wide: Page, phone: Opened) -> None:
    unfold(wide)
    assert grave(wide) == []
    assert grave(phone.page, *OF_COLOUR_AND_WIDTH) == []


def test_every_reason_is_a_text_and_none_a_title_under_a_pointer(wide: Page) -> None:
    """A phone, paper and a keyboard have no pointer to hold over a word."""
    titled = "document.querySelectorAll('body [title]:not(.vega-embed *), body svg title').length"
    assert wide.evaluate(titled) == 0


def test_tab_stops_wherever_something_can_be_used_and_shows_where_it_is(wide: Page) -> None:
    stops = tab_through(wide)
    assert len(stops) > 50
    assert [each["name"] for each in stops if not (each["outlined"] and each["seen"])] == []


def test_contents_folds_and_columns_work_by_the_keyboard(wide: Page) -> None:
    press = wide.keyboard.press
    wide.locator(".skip").focus()
    press("Enter")
    assert wide.evaluate("location.hash") == "#answer"
    wide.locator(".skip").focus()
    for link in wide.locator("nav a").all():
        assert wide.locator(str(link.get_attribute("href"))).count() == 1
    tab_to(wide, wide.locator("nav a[href='#trials']"))
    press("Enter")
    heading = wide.locator("#trials h2").bounding_box()
    assert heading is not None
    assert 0 <= heading["y"] < 900
    fold = wide.locator("#trials details", has_text="All 16 trials")
    tab_to(wide, fold.locator("summary").first)
    press("Enter")
    assert fold.evaluate("(each) => each.open")
    column = fold.get_by_role("button", name="trial", exact=True)
    tab_to(wide, column)
    for key, direction in (("Enter", "ascending"), ("Space", "descending")):
        press(key)
        assert fold.locator("thead [aria-sort]").get_attribute("aria-sort") == direction
        numbers = [int(text) for text in fold.locator("tbody th").all_inner_texts()]
        assert numbers == sorted(numbers, reverse=direction == "descending")
        assert len(numbers) == 16
        assert column.evaluate("(each) => each === document.activeElement")


def test_a_column_of_several_units_sorts_by_what_they_are_worth(browser: Browser, tmp_path: Path) -> None:
    cells = ("900 Mbit/s", "2 Gbit/s", "70 kbit/s", "1.5 Mbit/s", "3 ms")
    rows = "".join(f"<tr><td>{each}</td></tr>" for each in cells)
    table = f'<table id="units"><thead><tr><th>goodput</th></tr></thead><tbody>{rows}</tbody></table></main>'
    folder = stored_run(tmp_path / "0001", outcome="failed")  # a page without charts
    (tmp_path / "page.html").write_text(render_page(folder, summarise_run(folder)).replace("</main>", table))
    page = opened(browser, (tmp_path / "page.html").as_uri()).page
    page.locator("#units button").click()
    assert page.locator("#units td").all_inner_texts() == ["3 ms", "70 kbit/s", "1.5 Mbit/s", "900 Mbit/s", "2 Gbit/s"]


def test_paper_keeps_a_heading_with_what_follows_and_lets_long_tables_go_on(wide: Page) -> None:
    """A chart and its numbers that went to the next page whole left a heading alone on this one."""
    wide.emulate_media(media="print")
    style = "(each) => { const found = getComputedStyle(each); return [found.breakInside, found.breakAfter]; }"
    found = {name: wide.locator(name).first.evaluate(style) for name in ("figure", ".chart", "tr", "h2", "summary")}
    assert [name for name, (inside, _) in found.items() if inside == "avoid"] == [".chart", "tr"]
    assert [name for name, (_, after) in found.items() if after == "avoid"] == ["h2", "summary"]


def test_paper_shows_what_is_folded(wide: Page) -> None:
    wide.emulate_media(media="print")
    wide.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert wide.locator("details:not([open])").count() == 0


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without"])
def test_the_downloads_are_the_exports(wide: Page, still: Opened, run: RunFolder, *, scripts: bool) -> None:
    page = wide if scripts else still.page
    written = export(run, ["csv"])
    assert [path.name for path in written] == ["points.csv", "trials.csv"]
    for path in written:
        with page.expect_download() as started:
            page.locator(f"a[download='{path.name}']").click()
        assert started.value.path().read_bytes() == path.read_bytes()


def test_the_page_is_the_same_in_any_time_zone(run: RunFolder) -> None:
    before = run.report.read_bytes()
    run.report.unlink()
    done = run_lab(run.path, "report", str(run.path), TZ="Pacific/Auckland")
    assert done.returncode in {0, 4}, done.stderr
    assert run.report.read_bytes() == before
    assert len(before) <= 2.5 * 2**20
    assert re.search(rb"\d\d:\d\d UTC", before)
