"""The scripts that search servers of known capacity: the live server is the queue that theory is
about, the truth is known, and what was found is judged and kept.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import queues

from laboratory import BINARY, ROOT, environment, run_bench

sys.path.append(str(ROOT / "bench"))  # the last one: some of its modules are named as some of Python's

import held_capacity
import known_capacity
import searches
from known_server import Line


@pytest.mark.parametrize(
    "kind",
    [
        queues.Server(fixed=True),
        queues.Server(fixed=True, workers=4),
        queues.Server(fixed=True, pauses=True),
        queues.Server(fixed=True, degrades=True),
    ],
    ids=["one", "four workers", "pauses", "degrades"],
)
def test_the_live_server_answers_when_its_queue_does(kind: queues.Server) -> None:
    arrivals = np.cumsum(np.random.default_rng(1).exponential(1 / 950, 40_000))
    expected = queues.departures(kind, arrivals, np.random.default_rng(2))
    phase_s = np.random.default_rng(2).uniform(0, queues.PAUSE_EVERY_S) if kind.pauses else 0.0
    line = Line(kind, itertools.repeat(1.0), phase_s)
    assert [line.answer_at(each) for each in arrivals.tolist()] == pytest.approx(expected.tolist(), abs=1e-6)


def test_the_live_server_completes_no_more_than_it_can(tmp_path: Path) -> None:
    """1,000 requests a second, whatever the machine: a busy one only makes it fewer."""
    server = [sys.executable, str(ROOT / "bench" / "known_server.py"), "0", "--fixed"]
    with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        load = [BINARY, "load", "echo", address, "--connections", "8", "--requests", "200", "--json", "--quiet"]
        try:
            done = subprocess.run(load, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
        finally:
            process.terminate()
    summary: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert summary["requests"]["completed"] == 200, done.stderr
    assert summary["response_time_us"]["min"] >= 990
    assert summary["elapsed_s"] >= 0.19


def test_the_truths_are_those_of_theory(tmp_path: Path) -> None:
    done = run_bench(tmp_path, "known_capacity.py", "--list", "--only", "M/M/1, Poisson")
    truths = {line.split("p99 < ")[1].split()[0]: line.split()[-1] for line in done.stdout.splitlines()[1:]}
    assert truths == {"5": "79/s", "20": "770/s", "50": "908/s", "200": "977/s", "300": "985/s"}, done.stderr


def test_an_exact_simulation_agrees_with_theory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_capacity, "SIMULATED_S", 200.0)
    theory = queues.p99_capacity(0.05, queues.m_m_1)
    assert known_capacity.simulated(queues.Server(), 0.05, even=False) == pytest.approx(theory, rel=0.05)
    assert known_capacity.simulated(queues.Server(pauses=True), 0.05, even=False) == 0.0
    assert known_capacity.simulated(queues.Server(fixed=True), 0.05, even=True) == queues.RATE


@pytest.mark.parametrize(
    ("truth", "lower", "right"),
    [(908, 900, True), (908, 917, True), (908, 918, False), (908, 817, False), (908, None, False), (0, None, True)],
)
def test_an_answer_is_right_a_width_below_the_truth_and_a_percent_above(
    truth: float, lower: int | None, *, right: bool
) -> None:
    assert known_capacity.is_right({"truth": truth, "lower": lower, "width": 0.1}) is right


def test_a_minute_holds_within_the_limit_and_with_nearly_all_requests() -> None:
    def held(outcome: str, p99_us: float | None, rate: float | None, *taken: str) -> bool | None:
        figures = {"response_time_us.p99": p99_us, "completed_rate": rate}
        made = {"outcome": outcome, "figures": figures, "taken": taken}
        return held_capacity.holds({"lower": 1000, "minute": made})

    assert held("ok", 19_999.0, 991.0) is True
    assert held("ok", 20_000.0, 1000.0) is False
    assert held("ok", 100.0, 989.0) is False
    assert held("ok", None, 1000.0) is None
    assert held("ok", None, 989.0) is False
    assert held("failed", None, None) is False
    assert held("ok", 100.0, 1000.0, "steal") is held("ok", 20_000.0, 1000.0, "steal") is None
    # A late generator only lengthens response times.
    assert held("generator_limited", 19_999.0, 991.0) is True
    assert held("generator_limited", 20_000.0, 1000.0) is held("generator_limited", 100.0, 989.0) is None
    assert held("generator_limited", None, None) is held("invalid", 100.0, 1000.0) is None
    assert held_capacity.holds({"lower": None, "minute": None}) is None


def test_a_script_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(searches, "binary", lambda: "plimsoll 1.2.3")
    path = tmp_path / "log.jsonl"
    assert searches.Log(path).missing(["a", "b"], 2) == ["a", "b", "a", "b"]
    searches.Log(path).add({"name": "a"})
    assert searches.Log(path).missing(["a", "b"], 2) == ["b", "a", "b"]
    assert searches.binaries(searches.Log(path).made) == "Measured by plimsoll 1.2.3.\n"
