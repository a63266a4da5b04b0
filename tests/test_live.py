"""What `plimsoll load` shows while it runs: one line written over on a terminal, plain lines
elsewhere.
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from laboratory import wait_until

ROOT = Path(__file__).resolve().parent.parent
BINARY = str(os.environ.get("PLIMSOLL_BIN") or ROOT / "target" / "release" / "plimsoll")
REWRITE = "\r\x1b[K"
"""Back to the line's beginning, and erase the line."""
SHORTEST_INTERVAL_S = 0.24
"""Four a second, and a little sooner where the clock is late."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [BINARY, "serve", "echo", "--listen", "127.0.0.1:0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["addresses"][0]
        process.terminate()


def on_a_terminal(command: list[str]) -> tuple[str, str, float]:
    """Runs a command with a terminal for its standard error; what it wrote to either, and how long
    it took.
    """
    terminal, its_end = pty.openpty()
    begun = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=its_end, text=True) as process:
        os.close(its_end)
        shown = b""
        try:
            while more := os.read(terminal, 65536):
                shown += more
        except OSError:
            pass  # the last one who had it open as a terminal is gone (EIO)
        assert process.stdout is not None
        said = process.stdout.read()
    os.close(terminal)
    return shown.decode(), said, time.monotonic() - begun


def test_a_terminal_has_one_line_that_is_written_over_four_times_a_second(server: str) -> None:
    command = [BINARY, "load", "echo", server, "-d", "2s", "-c", "8", "-R", "500"]
    shown, said, elapsed_s = on_a_terminal(command)
    lines = shown.split(REWRITE)
    assert lines[0] == "", "nothing comes before the first rewriting"
    assert lines[-1] == "", "the line is erased at the end"
    status = lines[1:-1]
    assert 3 <= len(status) <= elapsed_s / SHORTEST_INTERVAL_S + 2, shown
    assert not any("\n" in line for line in status), "one line"
    in_window = [line for line in status if re.fullmatch(r"\d+\.\d of 2 s: [\d.k]+/s, 8 connections up", line)]
    assert len(in_window) >= 2, shown
    assert "\r" not in said
    assert "completed" in said


def test_a_terminal_that_is_not_to_be_written_on_is_left_alone(server: str) -> None:
    shown, said, _ = on_a_terminal([BINARY, "load", "echo", server, "-n", "100", "--quiet"])
    assert shown == ""
    assert "100 requests" in said


def test_elsewhere_plain_lines_say_that_the_run_lives(server: str) -> None:
    command = [BINARY, "load", "echo", server, "-d", "5500ms", "-c", "8", "-R", "500"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert re.fullmatch(r"(\d+\.\d of 5\.5 s: [\d.k]+/s, 8 connections up\n)+", done.stderr), done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert "\r" not in done.stderr + done.stdout


def test_seconds_are_on_disk_though_the_generator_is_killed(server: str, tmp_path: Path) -> None:
    """Lines were held back, and a generator that was killed left nothing."""
    path = tmp_path / "seconds.jsonl"
    command = [BINARY, "load", "echo", server, "-d", "10m", "-c", "8", "-R", "500", "--timeseries", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(
                lambda: process.poll() is not None or (path.exists() and path.read_text().count("\n") >= 2),
                "two seconds are on disk",
            )
            assert process.poll() is None
        finally:
            process.kill()
    lines = path.read_text().splitlines()[:2]
    assert [json.loads(line)["second"] for line in lines] == [0, 1]
    assert json.loads(lines[0])["completed"] > 0
