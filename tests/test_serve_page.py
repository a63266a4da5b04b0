"""The local web page in a browser: it lists runs and can be used by keyboard, follows a run to its
end, and says when it was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from made_records import stored_run
from playwright.sync_api import Browser, Page, expect

from browser import (
    HANGS_MS,
    NARROW,
    OF_COLOUR_AND_WIDTH,
    WIDE,
    Opened,
    chromium,
    draw_all,
    grave,
    needs_chromium,
    opened,
    scrolls_sideways,
    tab_through,
    tab_to,
)
from laboratory import environment, lab_command
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.export import export
from plimsoll_lab.report.page import write_page

pytestmark = needs_chromium

SUITE = """
name = "served"
question = "Who <b>is</b> cheaper?"
[server]
[load]
duration = "{duration}"
think = "5ms"
threads = 1
[matrix]
"server.model" = ["epoll", "poll"]
"load.connections" = [5]
[run]
repeat = {repeat}
seed = 1
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """A folder of runs, and where `lab serve` shows it."""

    folder: Path
    address: str

    def next_run(self) -> Path:
        """Where the next run will be."""
        made = len(list((self.folder / "runs").iterdir()))
        return self.folder / "runs" / f"{made + 1:04}"

    def page_of(self, run: Path) -> str:
        """The address of a run."""
        return f"{self.address}/runs/{int(run.name)}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two runs of one suite, and room for those that tests make."""
    folder = tmp_path_factory.mktemp("served")
    for number in (1, 2):
        stored_run(folder / f"runs/{number:04}", ("epoll", "poll"), repeat=6)
    command = lab_command("serve", "--listen", "127.0.0.1:0", "--json")
    with subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield Served(folder=folder, address="http://" + json.loads(server.stdout.readline())["addresses"][0])
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=HANGS_MS / 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


def visited(browser: Browser, served: Served, address: str, *, width: int = NARROW) -> Opened:
    """A page of the server, which may ask for nothing elsewhere."""
    return opened(browser, address, width=width, own=served.address)


def run(served: Served, *, repeat: int, duration: str) -> subprocess.Popen[bytes]:
    suite = SUITE.replace("{repeat}", str(repeat)).replace("{duration}", duration)
    (served.folder / "suite.toml").write_text(suite)
    return subprocess.Popen(
        lab_command("run", "suite.toml", "--quiet"), cwd=served.folder, env=environment(), stdout=subprocess.DEVNULL
    )


def unseen(page: Page) -> list[object]:
    """The stops of Tab that cannot be seen."""
    return [each["name"] for each in tab_through(page) if not (each["outlined"] and each["seen"])]


def test_the_list_is_used_by_keyboard_alone(browser: Browser, served: Served) -> None:
    found = visited(browser, served, served.address, width=WIDE)
    page, press = found.page, found.page.keyboard.press
    assert grave(page) == []
    assert unseen(page) == []
    page.set_viewport_size({"width": NARROW, "height": 900})
    page.emulate_media(color_scheme="dark")
    assert not scrolls_sideways(page)
    assert grave(page, *OF_COLOUR_AND_WIDTH) == []
    rows = page.locator("tbody tr")
    for words, left in (("no such words", 0), ("WELL", 2)):
        tab_to(page, page.get_by_label("Words"))
        page.keyboard.press("Control+A")
        page.keyboard.type(words)
        press("Enter")
        expect(rows).to_have_count(left)
    tab_to(page, page.get_by_label("Status"))
    press("ArrowDown")
    tab_to(page, page.get_by_role("button", name="Show"))
    press("Enter")
    expect(page).to_have_url(re.compile("status=complete"))
    for side in ("run 1 is of side A", "run 2 is of side B"):
        page.locator(".skip").focus()
        tab_to(page, page.get_by_label(side))
        press("Space")
    tab_to(page, page.get_by_role("button", name="Compare A with B"))
    press("Enter")
    page.get_by_role("heading", name="Is B worse than A?").wait_for()
    assert sorted(page.url.partition("?")[2].split("&")) == ["a=1", "b=2"]
    assert not scrolls_sideways(page)
    assert unseen(page) == []
    tab_to(page, page.get_by_role("link", name="All runs"))
    press("Enter")
    tab_to(page, page.get_by_role("link", name="it", exact=True))
    press("Enter")
    page.get_by_role("heading", name="How have the figures of it changed?").wait_for()
    assert not scrolls_sideways(page)
    assert found.complaints == []


def test_the_live_page_follows_a_run_to_its_end(browser: Browser, served: Served) -> None:
    folder = served.next_run()
    with run(served, repeat=2, duration="200ms") as under_way:
        while not (folder / "events.jsonl").is_file():
            assert under_way.poll() is None
        found = visited(browser, served, served.page_of(folder))
        page = found.page
        assert page.url == served.page_of(folder) + "/live"
        expect(page.locator("#trials tr")).to_have_count(4, timeout=HANGS_MS)
        page.get_by_role("link", name="Open the report").wait_for()
    assert page.locator("#status").inner_text() == "complete"
    assert page.locator("h1").inner_text() == "Who <b>is</b> cheaper?"
    assert "4 of 4 trials" in page.locator("#progress").inner_text()
    assert not scrolls_sideways(page)
    assert unseen(page) == []
    tab_to(page, page.get_by_role("link", name="Open the report"))
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Data to download").wait_for()
    assert page.url == served.page_of(folder)
    draw_all(page)
    assert not scrolls_sideways(page)
    assert found.complaints == []


def test_the_live_page_shows_the_trial_under_way_and_survives_the_run_s_death(browser: Browser, served: Served) -> None:
    folder = served.next_run()
    with run(served, repeat=10_000, duration="8s") as under_way:
        while not (folder / "trials/0001.json").is_file():
            assert under_way.poll() is None
        found = visited(browser, served, served.page_of(folder))
        page = found.page
        page.locator("#rate-chart circle").first.wait_for()
        expect(page.locator("#cpu")).to_contain_text("cores", timeout=HANGS_MS)
        expect(page.locator("#next")).to_contain_text("Next: ", timeout=HANGS_MS)
        os.kill(under_way.pid, signal.SIGKILL)
    expect(page.locator("#status")).to_have_text("killed", timeout=HANGS_MS)
    assert f"plimsoll lab resume runs/{folder.name}" in page.locator("#ending").inner_text()
    assert "left" not in page.locator("#progress").inner_text()
    assert found.complaints == []
    assert grave(page) == []
    page.goto(served.address)
    assert page.locator(".badge.killed").inner_text() == "killed"
    assert grave(page) == []


THEIRS = """<!doctype html>
<title>asks</title>
<script>
fetch("/runs/1").then((answer) => answer.text()).then(() => "read", () => "refused").then((outcome) => {
  document.title = outcome;
});
</script>
"""
"""A report whose script asks for another run."""


def test_the_report_of_a_copied_run_cannot_read_another_run(browser: Browser, served: Served) -> None:
    folder = served.next_run()
    stored_run(folder)
    (folder / "report.html").write_text(THEIRS)
    page = visited(browser, served, served.page_of(folder)).page
    expect(page).to_have_title("refused", timeout=HANGS_MS)


def test_a_report_offers_its_files_and_its_charts_from_the_server_too(browser: Browser, served: Served) -> None:
    run = stored_run(served.next_run(), ("epoll", "poll"), repeat=6)
    write_page(run, summarise_run(run))
    page = visited(browser, served, served.page_of(run.path)).page
    draw_all(page)
    for path in export(run, ["csv"]):
        with page.expect_download() as started:
            page.locator(f"a[download='{path.name}']").click()
        assert started.value.path().read_bytes() == path.read_bytes()
    page.locator(".vega-embed summary").first.click()
    for kind, begins in (("svg", b"<svg"), ("png", b"\x89PNG")):
        link = page.locator(f".vega-embed a[download$='.{kind}']").first
        link.dispatch_event("mousedown")  # the picture is made, and its address then is the link's
        expect(link).to_have_attribute("href", re.compile("^(blob|data):"), timeout=HANGS_MS)
        with page.expect_download() as started:
            link.click()
        assert started.value.path().read_bytes().startswith(begins)


@contextlib.contextmanager
def under_way(served: Served, *told: dict[str, object]) -> Iterator[str]:
    """The live page of a run under way, as far as anybody can see: its lock is held, and things
    have happened.
    """
    folder = served.next_run()
    stored_run(folder)
    (folder / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in told))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield served.page_of(folder) + "/live"
    finally:
        os.close(descriptor)


LETTERS = """() => [...document.querySelectorAll(".live-charts text")].map((each) => {
  const letters = each.getBoundingClientRect(), chart = each.ownerSVGElement.getBoundingClientRect();
  const whole = letters.left >= chart.left && letters.right <= chart.right && letters.bottom <= chart.bottom;
  return [each.textContent, letters.height, whole, chart.right - letters.right];
})"""


def drawn_anew(page: Page) -> list[tuple[str, float, bool, float]]:
    """The letters, once the last of them stand at the right end of their chart."""
    for _ in range(HANGS_MS // 50):
        letters: list[tuple[str, float, bool, float]] = page.evaluate(LETTERS)
        if letters and letters[-1][3] < 8:
            return letters
        page.wait_for_timeout(50)
    raise AssertionError(letters)


def test_the_letters_of_live_charts_are_whole_and_can_be_read(browser: Browser, served: Served) -> None:
    begun = {"event": "trial_started", "number": 2, "of": 3, "point": {}, "next": []}
    second = {"event": "second", "part": "load", "phase": "window", "failed": 0, "p50_us": 80.0, "p99_us": 2_345_678.0}
    seconds = [second | {"at_s": at_s, "completed": 1_234_567} for at_s in range(100)]
    cost = {"event": "cost", "server_cpu_cores": 1.5, "server_memory_bytes": 1}
    costs = [cost | {"at_s": at_s} for at_s in (0, 99)]
    with under_way(served, {"event": "run", "done": 1, "trials": 3}, begun, *seconds, *costs) as address:
        found = visited(browser, served, address)
        page = found.page
        for width in (NARROW, WIDE):  # the same page, turned: it is drawn anew
            page.set_viewport_size({"width": width, "height": 900})
            letters = drawn_anew(page)
            heights = [text for text, *_ in letters if not text.endswith(" s")]
            assert heights == ["0", "1,230,000", "0", "2,350", "0", "1.5"]
            assert [text for text, *_ in letters if text.endswith(" s")] == ["0 s", "99 s"] * 3
            assert all(height >= 13 and whole for _, height, whole, _ in letters), (width, letters)
            assert not scrolls_sideways(page)
        assert grave(page) == []
        assert unseen(page) == []
        page.emulate_media(color_scheme="dark")
        assert grave(page, *OF_COLOUR_AND_WIDTH) == []
        assert found.complaints == []


def test_the_figures_of_a_short_trial_stay_until_there_are_some_of_the_next(browser: Browser, served: Served) -> None:
    run: dict[str, object] = {"event": "run", "done": 0, "trials": 3}
    begun: list[dict[str, object]] = [
        {"event": "trial_started", "number": number, "of": 3, "point": {}, "next": []} for number in (1, 2)
    ]
    again = begun[0] | {"again": "the machine was busy"}
    second: dict[str, object] = {"event": "second", "part": "load", "phase": "window", "at_s": 0, "completed": 4321}
    second |= {"failed": 0, "p50_us": 80.0, "p99_us": 200.0}
    cost: dict[str, object] = {"event": "cost", "at_s": 1, "server_cpu_cores": 1.5, "server_memory_bytes": 1}
    with under_way(served, run, begun[0]) as address:
        page = visited(browser, served, address).page
        assert page.locator(".live-charts text").all_text_contents() == ["Nothing is known yet."] * 3
    with under_way(served, run, begun[0], second, begun[1]) as address:
        page = visited(browser, served, address).page
        assert page.locator("#rate").inner_text() == "4,321"
        assert page.locator("#earlier").inner_text() == "Until there are figures of it, those of trial 1 are shown."
        assert page.locator("#rate-chart circle").count() == 1
    with under_way(served, run, begun[0], second, begun[1], cost) as address:
        page = visited(browser, served, address).page
        assert (page.locator("#rate").inner_text(), page.locator("#cpu").inner_text()) == ("-", "1.5 cores")
        assert page.locator("#earlier").inner_text() == ""
        assert page.locator("#rate-chart circle").count() == 0
    before = "Until there are figures of it, those of its previous measurement are shown."
    for events in ((second, again), (second, again, second, again)):
        with under_way(served, run, begun[0], *events) as address:
            assert visited(browser, served, address).page.locator("#earlier").inner_text() == before
    with under_way(served, run, begun[0], second, again, cost) as address:
        page = visited(browser, served, address).page
        assert (page.locator("#rate").inner_text(), page.locator("#cpu").inner_text()) == ("-", "1.5 cores")
        assert page.locator("#earlier").inner_text() == ""
    with under_way(served, run, begun[0], begun[1]) as address:
        page = visited(browser, served, address).page
        assert page.locator("#earlier").inner_text() == "", "trial 1 was over before there were any"


def test_a_long_reason_leaves_the_figures_of_the_live_table_in_sight(browser: Browser, served: Served) -> None:
    ended = {"event": "trial", "number": 1, "outcome": "hard_limit", "left_s": 9.0, "figures": {"completed_rate": 5e4}}
    ended |= {"point": {"server.model": "select", "load.connections": 2000}, "reason": "it refused connections: " * 20}
    with under_way(served, {"event": "run", "done": 0, "trials": 3}, ended) as address:
        found = visited(browser, served, address, width=WIDE)
        page = found.page
        row = page.locator("#trials tr").first
        assert row.locator("td").first.inner_text() == "model select, 2,000 connections"
        table = page.locator(".scroll").first
        assert table.evaluate("(each) => each.scrollWidth") <= table.evaluate("(each) => each.clientWidth")
        assert found.complaints == []
