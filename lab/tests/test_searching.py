"""A run of searches: a suite's, one that is given up, and one that is killed and goes on."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest
from conftest import FAKE, Lab, lab_environment, lab_here, summary_of
from made_records import run_record as record_of_nothing

from plimsoll_lab.experiment.events import Events
from plimsoll_lab.experiment.search_run import SearchRun
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text

pytestmark = pytest.mark.long

SCHEMAS = Path(__file__).parent.parent / "plimsoll_lab" / "store"
SUITE = """
name = "most"
question = "Which one carries most?"
[server]
[load]
duration = "20ms"
think = "50ms"
[matrix]
"server.model" = ["epoll", "uring"]
[run]
repeat = 2
seed = 3
[limits]
completed_rate = "<1010"
[search]
over = "load.connections"
range = [1, 200]
width = "10%"
trials = 1
hold = "0s"
"""
"""The fake completes 20 requests a second on each connection, a think time of 50 ms: its capacity
is 50 connections, and noise of 0.4 % cannot carry 50 past the limit nor 51 below it."""


def run_record(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "run.json").read_text())
    jsonschema.validate(record, json.loads((SCHEMAS / "run.schema.json").read_text()))
    return record


def test_a_suite_may_search_at_each_point_of_its_matrix(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "most.toml").write_text(SUITE)
    # A busy machine lets the lab read a window of 20 ms when it is over, and would be the limit.
    done = lab("run", "most.toml", "--json", FAKE_WINDOW_S="0.15")
    # The fake generator gets no more from the null server, so it is the limit, and no winner may be
    # told: each capacity is a lower bound.
    assert done.returncode == 4, done.stderr
    summary = summary_of(done.stdout)
    jsonschema.validate(summary, json.loads((SCHEMAS / "summary.schema.json").read_text()))
    assert [each["point"] for each in summary["capacities"]] == [
        {"server.model": "epoll"},
        {"server.model": "uring"},
    ]
    for each in summary["capacities"]:
        assert each["searches"] == each["ended"] == 2
        assert 40 <= each["lower"] < each["upper"] <= 60
        assert each["limited_by"] == "generator"
        assert "the generator was the limit" in each["text"]
    assert {verdict["call"] for verdict in summary["verdicts"]} == {"not shown"}
    assert summary["valid"] is False
    record = run_record(tmp_path / summary["run"])
    assert len(record["searches"]) == 4
    assert {each["state"] for each in record["searches"]} == {"complete"}
    page = (tmp_path / summary["report"]).read_text()
    assert "every load that was tried" in page
    assert summary["answer"] == [each["text"] for each in summary["capacities"]], "it said that nothing was measured"
    assert "the generator or the machine, and not the server, was the limit at 2 of 2 settings" in page
    first = page[page.index('data-chart="headline"') : page.index('<section id="warnings"')]
    assert "The dashed line is the limit, completed_rate &lt; 1010" in first
    assert all(f">{each['lower']:,}<" in first for each in summary["capacities"]), "the line at each capacity"
    assert "most" in lab("plan", "most.toml", "--json").stdout
    path = tmp_path / summary["run"] / "run.json"
    path.write_text(json.dumps(record | {"suite": record["suite"] | {"name": "capacity"}}))
    again = lab_here(tmp_path, "report", summary["run"], "--json")
    # A suite that is called as the command is has the answer of a suite: it was that of one server.
    assert summary_of(again.stdout) == summary | {"suite": "capacity"}


def test_a_search_that_has_not_begun_has_its_setting(tmp_path: Path) -> None:
    """Without it, the loads of every search were taken for those of the first that had not ended:
    they were marked by the paths of another network.
    """
    (tmp_path / "trials").mkdir()
    plan = expand(read_text(SUITE, source="most.toml", directory="."), seed=3)
    events = Events(RunFolder(path=tmp_path))
    run = SearchRun(RunFolder(path=tmp_path), record_of_nothing(), plan, cast("LocalHost", None), "", events)
    assert len(run.searches) == 4
    assert {(each.point, each.setting["server.model"]) for each in run.searches} == {(0, "epoll"), (1, "uring")}


def test_a_server_that_never_starts_is_not_tried_again_in_later_blocks(lab: Lab, tmp_path: Path) -> None:
    dying = f'command = ["{sys.executable}", "-c", "import sys; sys.exit(\'no such option\')"]\nready = "tcp:{{port}}"'
    text = SUITE.replace("[server]", f"[server]\n{dying}").replace("repeat = 2", "repeat = 3")
    (tmp_path / "most.toml").write_text(text.replace('[matrix]\n"server.model" = ["epoll", "uring"]\n', ""))
    done = lab("run", "most.toml", "--json")
    assert done.returncode == 1, done.stderr
    summary = summary_of(done.stdout)
    assert "no such option" in summary["answer"][0]
    record = run_record(tmp_path / summary["run"])
    assert [each["state"] for each in record["searches"]] == ["failed"] * 3
    assert all("no such option" in each["reason"] for each in record["searches"])
    assert len(record["trials"]) == 2, "two gentle trials in the first block, and none in the next two"


def test_a_server_that_starts_slowly_once_is_started_again(lab: Lab, tmp_path: Path) -> None:
    """Caches are cold the first time. It was given up after one start."""
    script = tmp_path / "server.py"
    script.write_text(
        "import os, pathlib, sys, time\n"
        f"seen = pathlib.Path({str(tmp_path / 'seen')!r})\n"
        "if not seen.exists():\n"
        "    seen.touch()\n"
        "    time.sleep(600)\n"
        f"os.execv(sys.executable, [sys.executable, {str(FAKE)!r}, 'serve', 'echo', '--port', sys.argv[1]])\n"
    )
    slow = f'command = ["{sys.executable}", "{script}", "{{port}}"]\nready = "tcp:{{port}}"'
    text = SUITE.replace("[server]", f"[server]\n{slow}").replace("seed = 3", 'seed = 3\nready_timeout = "10s"')
    text = text.replace('[matrix]\n"server.model" = ["epoll", "uring"]\n', "").replace("repeat = 2", "repeat = 1")
    (tmp_path / "most.toml").write_text(text)
    done = lab("run", "most.toml", "--json")
    assert done.returncode == 4, done.stderr
    [search] = run_record(tmp_path / summary_of(done.stdout)["run"])["searches"]
    assert search["state"] == "complete"


def test_an_address_at_which_nothing_listens_is_waited_for_once(lab: Lab, tmp_path: Path) -> None:
    """Four times the patience for a server went by: two trials, and a load before each."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and never listens
        address = "{}:{}".format(*taken.getsockname())
        suite = SUITE.replace("[server]", f'[server]\naddress = "{address}"').replace(
            "seed = 3", 'seed = 3\nready_timeout = "200ms"'
        )
        (tmp_path / "most.toml").write_text(suite.replace('[matrix]\n"server.model" = ["epoll", "uring"]\n', ""))
        done = lab("run", "most.toml", "--json")
    assert done.returncode == 1, done.stderr
    summary = summary_of(done.stdout)
    assert f"nothing accepts connections at {address}" in summary["answer"][0]
    assert len(run_record(tmp_path / summary["run"])["trials"]) == 1


@contextlib.contextmanager
def running_server() -> Iterator[str]:
    """The address of a server that somebody else runs."""
    with subprocess.Popen([sys.executable, str(FAKE), "serve", "echo"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["addresses"][0]
        finally:
            process.terminate()


def test_a_server_that_somebody_else_runs_ends_the_search_as_it_ends(tmp_path: Path) -> None:
    """Every later trial failed, down to the floor, and the server was said to carry less than
    that.
    """
    with running_server() as address:
        suite = SUITE.replace("[server]", f'[server]\naddress = "{address}"').replace(
            "seed = 3", 'seed = 3\nready_timeout = "500ms"'
        )
        (tmp_path / "most.toml").write_text(suite.replace('[matrix]\n"server.model" = ["epoll", "uring"]\n', ""))
        started = subprocess.Popen(
            [sys.executable, "-m", "plimsoll_lab", "run", "most.toml", "--json"],
            cwd=tmp_path,
            env=lab_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        while len(list(tmp_path.glob("runs/*/trials/*.json"))) < 3:
            assert started.poll() is None, "the search ended before its server"
            time.sleep(0.005)
    told, _ = started.communicate(timeout=600)
    assert started.returncode == 1
    answer = summary_of(told)["answer"][0]
    assert "was not measured to the end" in answer
    assert f"nothing accepts connections at {address}" in answer


QUESTION = (
    "--limit",
    "completed_rate < 1010",
    "--range",
    "1:200",
    "--duration",
    "20ms",
    "--think",
    "50ms",
    "--width",
    "10%",
    "--hold",
    "0s",
    "--warm-up",
    "0ms",
)


def test_a_search_out_of_patience_reports_the_bounds_it_has(lab: Lab, tmp_path: Path) -> None:
    with running_server() as address:
        done = lab("capacity", "echo", address, *QUESTION, "--patience", "1us", "--json")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["finished"], summary["valid"]) == (1, False, False)
    assert (summary["lower"], summary["upper"]) == (None, None)
    assert "not decided" in summary["answer"][0]
    assert run_record(tmp_path / summary["run"])["searches"][0]["state"] == "out of patience"


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_is_stopped_goes_on_with_the_trials_it_has(lab: Lab, tmp_path: Path, by: signal.Signals) -> None:
    with running_server() as address:
        started = subprocess.Popen(
            [sys.executable, "-m", "plimsoll_lab", "capacity", "echo", address, *QUESTION, "--json"],
            cwd=tmp_path,
            env=lab_environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        trials = tmp_path / "runs/0001/trials"
        deadline = time.monotonic() + 300
        while len(list(trials.glob("*.json"))) < 3:
            assert time.monotonic() < deadline, "no trial appeared"
            time.sleep(0.005)
        started.send_signal(by)
        said, _ = started.communicate(timeout=300)
        assert started.returncode in {130, -by}
        if by == signal.SIGINT:
            summary = json.loads(said)
            assert summary["status"] == "interrupted"
            assert "interrupted" in summary["answer"][0]
        stored = {path.name: path.read_bytes() for path in trials.glob("*.json")}
        # One that the machine spoilt may have waited to be made again.
        kept = {name: text for name, text in stored.items() if json.loads(text)["outcome"] == "ok"}
        # A report can be made of what is there, however the run was stopped.
        assert lab_here(tmp_path, "report", "runs/0001", "--json").returncode in {1, 4}
        resumed = lab("resume", "runs/0001", "--json")
    assert resumed.returncode == 4, resumed.stdout + resumed.stderr
    summary = json.loads(resumed.stdout)
    assert (summary["status"], summary["finished"]) == ("complete", True)
    assert 40 <= summary["lower"] < summary["upper"] <= 60
    assert {name: (trials / name).read_bytes() for name in kept} == kept
    assert run_record(tmp_path / "runs/0001")["status"] == "complete"
