"""Maxima as questions: the most connections that a server holds, the most requests in a stated
time.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laboratory import run_lab

FD_SETSIZE = 1024
"""Descriptors that select(2) can watch."""


@pytest.mark.measures
def test_the_most_connections_of_select_are_those_that_it_can_watch(tmp_path: Path) -> None:
    done = run_lab(tmp_path, "run", "most-connections", "--fast", "--repeat", "1", "--json")
    assert done.returncode in {0, 4}, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    (capacity,) = summary["capacities"]
    assert capacity["lower"] is not None, summary["answer"]
    assert 400 <= capacity["lower"] < FD_SETSIZE < 1.3 * capacity["upper"]
    run = json.loads((tmp_path / summary["run"] / "run.json").read_text())
    assert "FD_SETSIZE" in json.dumps(run["searches"]), capacity


def test_the_most_requests_in_a_stated_time_are_a_figure_to_judge(tmp_path: Path) -> None:
    # A busy machine may keep a server waiting for longer than the half second of the small form.
    longer = ("--set", "load.duration=3s")
    done = run_lab(tmp_path, "run", "most-requests", "--fast", "--repeat", "1", "--json", *longer)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode in {0, 4}, [each["reason"] for each in summary["points"]]
    assert {each["figure"] for each in summary["verdicts"]} <= {"requests.completed"}
    trials = [json.loads(file.read_text()) for file in sorted((tmp_path / summary["run"] / "trials").glob("*.json"))]
    assert len(trials) == 4
    for trial in trials:
        window = trial["load"]["summary"]["elapsed_s"]
        assert trial["figures"]["requests.completed"] == round(trial["figures"]["completed_rate"] * window) > 0
