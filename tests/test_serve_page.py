"""The local web page in a browser: it follows a run to its end, and says when it was killed."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from laboratory import environment, lab_command, run_lab

CHROMIUM = shutil.which("chromium")
HANGS_MS = 300_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed: make peers")

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


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with subprocess.Popen(
        lab_command("serve", "--listen", "127.0.0.1:0", "--json"),
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as served:
        assert served.stdout is not None
        yield "http://" + json.loads(served.stdout.readline())["addresses"][0]
        served.send_signal(signal.SIGTERM)
        served.wait(timeout=HANGS_MS / 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


def run(folder: Path, *, repeat: int, duration: str) -> subprocess.Popen[bytes]:
    (folder / "suite.toml").write_text(SUITE.replace("{repeat}", str(repeat)).replace("{duration}", duration))
    return subprocess.Popen(
        lab_command("run", "suite.toml", "--quiet"), cwd=folder, env=environment(), stdout=subprocess.DEVNULL
    )


def opened(browser: Browser, address: str, path: str, *, width: int = 375) -> tuple[Page, list[str]]:
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    page.set_default_timeout(HANGS_MS)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address + path)
    return page, complaints


def test_the_live_page_follows_a_run_to_its_end(browser: Browser, address: str, tmp_path: Path) -> None:
    with run(tmp_path, repeat=2, duration="200ms") as under_way:
        while not (tmp_path / "runs/0001/events.jsonl").is_file():
            assert under_way.poll() is None
        page, complaints = opened(browser, address, "/runs/1")
        assert page.url.endswith("/runs/1/live")
        expect(page.locator("#trials tr")).to_have_count(4, timeout=HANGS_MS)
        page.get_by_role("link", name="Open the report").wait_for()
    assert page.locator("#status").inner_text() == "complete"
    assert page.locator("h1").inner_text() == "Who <b>is</b> cheaper?"
    assert "4 of 4 trials" in page.locator("#progress").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.get_by_role("link", name="Open the report").click()
    page.get_by_role("heading", name="Data to download").wait_for()
    assert page.url.endswith("/runs/1")
    assert complaints == []


def test_the_live_page_shows_the_trial_under_way_and_survives_the_run_s_death(
    browser: Browser, address: str, tmp_path: Path
) -> None:
    with run(tmp_path, repeat=10_000, duration="8s") as under_way:
        while not (tmp_path / "runs/0001/trials/0001.json").is_file():
            assert under_way.poll() is None
        page, complaints = opened(browser, address, "/runs/1")
        page.locator("#rate-chart circle").first.wait_for()
        expect(page.locator("#cpu")).to_contain_text("cores", timeout=HANGS_MS)
        expect(page.locator("#next")).to_contain_text("Next: ", timeout=HANGS_MS)
        os.kill(under_way.pid, signal.SIGKILL)
    expect(page.locator("#status")).to_have_text("killed", timeout=HANGS_MS)
    assert "plimsoll lab resume runs/0001" in page.locator("#ending").inner_text()
    assert "left" not in page.locator("#progress").inner_text()
    assert complaints == []
    grave = [each for each in Axe().run(page).response["violations"] if each["impact"] in {"serious", "critical"}]
    assert not grave, [(each["id"], each["nodes"][0]["html"][:200]) for each in grave]
    page.goto(address)
    assert page.locator(".badge.killed").inner_text() == "killed"
    grave = [each for each in Axe().run(page).response["violations"] if each["impact"] in {"serious", "critical"}]
    assert not grave, [(each["id"], each["nodes"][0]["html"][:200]) for each in grave]


@contextlib.contextmanager
def under_way(folder: Path, *told: dict[str, object]) -> Iterator[None]:
    """A run that has ended goes on, as far as anybody can see: its lock is held, and more has
    happened.
    """
    (folder / "suite.toml").write_text(SUITE.replace("{repeat}", "1").replace("{duration}", "20ms"))
    done = run_lab(folder, "run", "suite.toml", "--quiet")
    assert done.returncode in {0, 4}, done.stderr
    descriptor = os.open(folder / "runs/0001", os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with (folder / "runs/0001/events.jsonl").open("a") as events:
            events.writelines(json.dumps(each) + "\n" for each in told)
        yield
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


def test_the_letters_of_live_charts_are_whole_and_can_be_read(browser: Browser, address: str, tmp_path: Path) -> None:
    begun = {"event": "trial_started", "number": 2, "of": 3, "point": {}, "next": []}
    second = {"event": "second", "part": "load", "phase": "window", "failed": 0, "p50_us": 80.0, "p99_us": 2_345_678.0}
    seconds = [second | {"at_s": at_s, "completed": 1_234_567} for at_s in range(100)]
    with under_way(tmp_path, {"event": "run", "done": 1, "trials": 3}, begun, *seconds):
        page, complaints = opened(browser, address, "/runs/1/live")
        for width in (375, 1280):  # the same page, turned: it is drawn anew
            page.set_viewport_size({"width": width, "height": 900})
            letters = drawn_anew(page)
            assert [text for text, *_ in letters] == ["0", "1,230,000", "0 s", "99 s", "0", "2,350", "0 s", "99 s"]
            assert all(height >= 13 and whole for _, height, whole, _ in letters), (width, letters)
        assert complaints == []


def test_a_long_reason_leaves_the_figures_of_the_live_table_in_sight(
    browser: Browser, address: str, tmp_path: Path
) -> None:
    ended = {"event": "trial", "number": 1, "outcome": "hard_limit", "left_s": 9.0, "figures": {"completed_rate": 5e4}}
    ended |= {"point": {"server.model": "select", "load.connections": 2000}, "reason": "it refused connections: " * 20}
    with under_way(tmp_path, {"event": "run", "done": 0, "trials": 3}, ended):
        page, complaints = opened(browser, address, "/runs/1/live", width=1280)
        row = page.locator("#trials tr").first
        assert row.locator("td").first.inner_text() == "model select, 2,000 connections"
        table = page.locator(".scroll").first
        assert table.evaluate("(each) => each.scrollWidth") <= table.evaluate("(each) => each.clientWidth")
        assert complaints == []
