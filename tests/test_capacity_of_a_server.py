"""The capacity of a real server that is slow on purpose: the server is the limit, and the answer
says so.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from laboratory import BINARY, run_lab


@pytest.mark.parametrize("over", ["connections", pytest.param("rate", marks=pytest.mark.measures)])
def test_a_server_slow_on_purpose_is_the_limit(tmp_path: Path, over: str) -> None:
    server = [BINARY, "serve", "echo", "--workers", "1", "--work", "5ms", "--json"]
    with subprocess.Popen([*server, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["addresses"][0]
        search = [
            "--range",
            "1:500" if over == "connections" else "20:2000",
            "--width",
            "30%",
            "--trials",
            "1",
            "--hold",
            "2s",
            "--patience",
            "3m",
        ]
        load = ["--over", over, "--duration", "400ms", "--warm-up", "50ms", "--limit", "response_time.p50 < 100ms"]
        done = run_lab(tmp_path, "capacity", "echo", address, *search, *load, "--json")
        process.terminate()
    assert done.stdout, done.stderr
    summary = json.loads(done.stdout)
    if not summary["finished"]:
        # A busy machine may take all of the patience.
        assert ((summary["lower"] or 0) <= 290, done.returncode in {1, 4}) == (True, True), summary["answer"]
        return
    if summary["limited_by"] != "server":
        # Of a machine that did other things meanwhile, the answer says so.
        assert (summary["limited_by"] in {"generator", "environment"}, done.returncode) == (True, 4), summary["answer"]
        return
    # 5 ms of one core for each reply: 200 a second, so 20 at once take 100 ms; a busy machine makes
    # them fewer, and none where nothing tells its other programs from a server that was there
    # before. At a higher rate the queue needs a while to grow: with r requests a second, half of
    # those in the window have waited (r / 200 - 1) x 250 ms or less.
    lower = summary["lower"] or 0
    assert lower < summary["upper"]
    assert lower <= (22 if over == "connections" else 290)
    assert done.returncode == (0 if lower else 3), summary["answer"]
