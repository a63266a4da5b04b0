"""Pages of runs at the edges, of a gate, a search, a comparison and a history, in a browser. Each
is as whole, offline and readable as the report of `test_page.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pytest
from made_records import stored_run, write_seconds
from playwright.sync_api import Browser

from browser import (
    NARROW,
    OF_COLOUR_AND_WIDTH,
    chromium,
    draw_all,
    empty_sections,
    grave,
    needs_chromium,
    opened,
    scrolls_sideways,
    tab_through,
    too_wide,
    turn_into_dark_phone,
    unfold,
)
from laboratory import environment
from plimsoll_lab.analysis.history import find_history
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.compare_page import render_compare_page
from plimsoll_lab.report.history_page import render_history_page
from plimsoll_lab.report.page import render_page
from plimsoll_lab.stats.change_points import LEAST_VALUES
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.search_record import BreakRecord, CauseRecord, LoadRecord, SearchRecord, SearchSettingsRecord
from plimsoll_lab.suite.figures import FIGURES, capacity_figure, read_limit
from plimsoll_lab.suite.spec import SearchSettings

pytestmark = needs_chromium

MOST_BYTES = int(2.5 * 2**20)
NO_CHART = re.compile(r"No chart: |[Nn]ot drawn: |is not drawn: ")


def report(folder: RunFolder) -> str:
    return render_page(folder, summarise_run(folder))


def one_second(path: Path) -> str:
    folder = stored_run(path, ("epoll", "threads"), repeat=2)
    write_seconds(folder, 1)
    return report(folder)


def one_trial(path: Path) -> str:
    folder = stored_run(path, window_s=10.0)
    write_seconds(folder, 10)
    return report(folder)


def all_failed(path: Path) -> str:
    return report(stored_run(path, ("epoll", "threads"), repeat=3, outcome="failed"))


def five_hundred_trials(path: Path) -> str:
    return report(stored_run(path, ("epoll", "threads", "poll", "select", "uring"), repeat=100))


def a_gate(path: Path) -> str:
    folder = stored_run(path, ("old", "new"), repeat=8)
    run = folder.read_run()
    run.family = run.family.model_copy(update={"baseline": "old", "tolerance": 0.05})
    folder.write_run(run)
    return report(folder)


def a_search(path: Path) -> str:
    folder = stored_run(path, ("epoll", "uring"))
    run, settings = folder.read_run(), SearchSettings(over="load.rate", lowest=1000, highest=100_000)
    run.search = SearchSettingsRecord(**asdict(settings))
    run.limits = (read_limit("response_time.p99", "<50ms", source="it.toml"),)
    run.family = run.family.model_copy(update={"figures": ("capacity",)})
    run.figures = (capacity_figure(settings), *FIGURES)
    run.searches = [searched(block, point.number, dict(point.setting)) for block in (1, 2) for point in run.points]
    folder.write_run(run)
    return report(folder)


def searched(block: int, point: int, setting: dict[str, object]) -> SearchRecord:
    """A search that ended between two loads, and why."""
    lower = 20_000 * (1 + point) + 100 * block
    loads = [1000, 4000, 16_000, lower, lower * 21 // 20, 64_000]
    return SearchRecord.model_validate(
        {
            "number": 2 * block + point,
            "block": block,
            "point": point,
            "state": "complete",
            "setting": setting,
            "lower": lower,
            "upper": lower * 21 // 20,
            "limited_by": "server",
            "broke": BreakRecord(
                missed="response time, p99 at 80.0 ms", causes=[CauseRecord(code="cpu", text="its CPU was used up")]
            ),
            "held_s": 60.0,
            "confirmed": 8,
            "loads": [
                LoadRecord(
                    load=load,
                    trials=2,
                    good=2 if load <= lower else 0,
                    medians={"completed_rate": min(load, lower), "response_time_us.p99": 1000 * 1.1 ** (load / 1000)},
                )
                for load in sorted(loads)
            ],
        }
    )


def runs_of_two_builds(path: Path) -> list[RunFolder]:
    """Runs of one suite; from the sixth on, of another build, epoll completes a quarter more."""
    folders = []
    for number in range(1, LEAST_VALUES + 1):
        folder = stored_run(path / f"{number:04}", ("epoll", "threads"), repeat=2)
        run, second = folder.read_run(), number > LEAST_VALUES // 2
        run.run = folder.path.name
        run.started_unix_s = 86_400.0 * number
        run.versions = {"plimsoll": "1", "plimsoll_sha256": ("b" if second else "a") * 64}
        folder.write_run(run)
        for trial in folder.read_trials():
            rate = trial.figures["completed_rate"] * (1.25 if second and trial.point == 0 else 1) + number % 3
            times = {"count": 10_000, "p50": 100.0, "p75": 150.0, "p90": 200.0, "p99": 400.0 + 10 * number}
            told = replace(trial, figures={**trial.figures, "completed_rate": rate})
            folder.write_trial(replace(told, load={"summary": {"response_time_us": times}}))
        folders.append(folder)
    return folders


def a_comparison(path: Path) -> str:
    runs = runs_of_two_builds(path)
    return render_compare_page(runs[: len(runs) // 2], runs[len(runs) // 2 :])


def a_history(path: Path) -> str:
    return render_history_page(find_history(runs_of_two_builds(path), "it"), [("/", "All runs")])


PAGES: dict[str, Callable[[Path], str]] = {
    "one second": one_second,
    "one trial": one_trial,
    "all failed": all_failed,
    "500 trials": five_hundred_trials,
    "a gate": a_gate,
    "a search": a_search,
    "a comparison": a_comparison,
    "a history": a_history,
}
PLAIN = ("a comparison", "a history")
"""Pages without scripts, whose charts are still pictures everywhere."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a page by the page's name. Each is made once, in the folder of its runs."""
    home = tmp_path_factory.mktemp("pages")

    @cache
    def file_of(name: str) -> Path:
        folder = home / name.replace(" ", "-")
        file = folder.with_suffix(".html")
        file.write_text(PAGES[name](folder))
        return file

    return file_of


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_on_a_screen_and_on_a_dark_phone(
    browser: Browser, made: Callable[[str], Path], name: str
) -> None:
    """It is offline, every chart is drawn or has a reason, and whoever cannot see or point can use
    it.
    """
    file = made(name)
    found = opened(browser, file.as_uri())
    page = found.page
    if name not in PLAIN:
        draw_all(page)
        for place in ("response", "timelines"):
            section = page.locator(f"#{place}")
            assert section.locator("[data-chart]").count() or NO_CHART.search(section.inner_text()), place
    assert empty_sections(page) == []
    assert [each["name"] for each in tab_through(page) if not (each["outlined"] and each["seen"])] == []
    unfold(page)
    assert grave(page) == []
    assert not scrolls_sideways(page)
    assert too_wide(page) == []
    turn_into_dark_phone(page)
    assert grave(page, *OF_COLOUR_AND_WIDTH) == []
    assert not scrolls_sideways(page)
    assert name in PLAIN or too_wide(page) == []
    assert found.complaints == []
    assert file.stat().st_size <= MOST_BYTES
    page.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_without_scripts(browser: Browser, made: Callable[[str], Path], name: str) -> None:
    found = opened(browser, made(name).as_uri(), width=NARROW, scripts=False)
    page = found.page
    assert page.locator("[data-chart] > svg").count() == page.locator("[data-chart]").count()
    assert page.locator(".answer").first.is_visible()
    assert page.locator("script:not([type])").count() == (0 if name in PLAIN else 1)
    assert page.locator("link[rel='icon'][href='data:,']").count() == 1, "served, it would ask for /favicon.ico"
    assert not scrolls_sideways(page)
    assert found.complaints == []
    page.context.close()


def test_charts_take_the_colours_of_the_reader_s_screen(browser: Browser, made: Callable[[str], Path]) -> None:
    page = opened(browser, made("a gate").as_uri()).page
    draw_all(page)
    soft = "getComputedStyle(document.documentElement).getPropertyValue('--soft')"
    light = page.evaluate(soft)
    assert page.locator(f"[data-chart='headline'] svg.marks text[fill='{light}']").count() > 0
    turn_into_dark_phone(page)
    dark = page.evaluate(soft)
    assert page.locator(f"[data-chart='headline'] svg.marks text[fill='{dark}']").count() > 0
    assert light != dark
    page.context.close()


WORDS = """(chart) => [...chart.querySelectorAll("svg.marks text[font-weight='600']")].map((each) => {
  const { left, right, top, bottom } = each.getBoundingClientRect();
  return [left, right, top, bottom];
})"""


def test_capacities_beside_each_other_can_be_read_on_a_phone(browser: Browser, made: Callable[[str], Path]) -> None:
    page = opened(browser, made("a search").as_uri(), width=NARROW).page
    draw_all(page)
    boxes = page.locator("[data-chart='headline']").evaluate(WORDS)
    assert len(boxes) == 2
    (left, right, top, bottom), other = boxes
    assert right <= other[0] or other[1] <= left or bottom <= other[2] or other[3] <= top
    page.context.close()


ELSEWHERE = """
import sys
from pathlib import Path
from plimsoll_lab.analysis.history import find_history
from plimsoll_lab.report.compare_page import render_compare_page
from plimsoll_lab.report.history_page import render_history_page
from plimsoll_lab.store.folder import list_runs

compared, told, out = map(Path, sys.argv[1:])
runs = list_runs(compared)
(out / "compared").write_text(render_compare_page(runs[: len(runs) // 2], runs[len(runs) // 2 :]))
(out / "history").write_text(render_history_page(find_history(list_runs(told), "it"), [("/", "All runs")]))
"""


def test_a_comparison_and_a_history_are_the_same_in_any_time_zone(made: Callable[[str], Path], tmp_path: Path) -> None:
    pages = [made(name) for name in PLAIN]
    folders = [str(each.with_suffix("")) for each in pages]
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *folders, str(tmp_path)],
        env=environment(TZ="Pacific/Auckland"),
        check=True,
        timeout=600,
    )
    for name, page in zip(("compared", "history"), pages, strict=True):
        assert (tmp_path / name).read_bytes() == page.read_bytes(), name
    assert re.search(r"\d\d:\d\d UTC", pages[1].read_text())
