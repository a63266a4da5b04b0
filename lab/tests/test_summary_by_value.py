"""What a run amounts to: the sentences of its answer, and which searches make it no result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import MEDIAN, RATE, searched
from made_records import calibration_record, stored_run

from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.store.records import MachineRecord, Outcome, ServerRecord

BOTH = {RATE: 1000.0, MEDIAN: 200.0}


@pytest.mark.parametrize(
    ("count", "last"),
    [
        (1, "model epoll carries 100 requests/s and not 105, with response_time.p99 < 5ms"),
        (3, "model select carries 100 requests/s and not 105, with response_time.p99 < 5ms"),
        (4, "2 more settings are in the table of capacities."),
    ],
)
def test_an_answer_of_capacities_has_three_sentences_at_most(tmp_path: Path, count: int, last: str) -> None:
    same: dict[str, object] = {}
    summary = summarise_run(searched(tmp_path / "0001", *[same] * count))
    assert len(summary.capacities) == count
    assert (len(summary.answer), summary.answer[-1]) == (min(count, 3), last)


def test_a_capacity_over_another_network_is_no_valid_one(tmp_path: Path) -> None:
    folder = searched(tmp_path / "0001", {})
    assert summarise_run(folder).valid
    run = folder.read_run()
    run.calibrations = [calibration_record([0])]
    folder.write_run(run)
    summary = summarise_run(folder)
    assert ([each.doubtful for each in summary.points], summary.valid) == ([True], False)


@pytest.mark.parametrize(
    ("search", "status", "valid"),
    [
        ({"lower": None}, "complete", True),
        ({"lower": None, "upper": None}, "complete", False),
        ({"state": "failed", "reason": "it ended", "limited_by": None}, "complete", False),
    ],
)
def test_a_search_is_valid_where_one_of_its_bounds_is_the_servers(
    tmp_path: Path, search: dict[str, object], status: str, *, valid: bool
) -> None:
    summary = summarise_run(searched(tmp_path / "0001", search))
    assert (summary.status, summary.valid) == (status, valid)


def test_the_most_connections_that_were_held_are_those_of_trials_at_the_limit(tmp_path: Path) -> None:
    """A server that went on held more, and so did one that failed."""
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=5)
    ends: tuple[tuple[Outcome, object], ...] = (
        ("hard_limit", 7), ("hard_limit", 9), ("ok", 90), ("hard_limit", "many"), ("failed", 80),
    )  # fmt: skip
    for trial in folder.read_trials():
        if trial.point == 1:
            outcome, peak = ends[trial.block - 1]
            server: ServerRecord = {"summary": {"peak_connections": peak}}
            folder.write_trial(replace(trial, outcome=outcome, reason=f"it {outcome}", server=server))
    limit, failed = summarise_run(folder).stops
    assert (limit.outcome, limit.held, limit.reason, limit.trials) == ("hard_limit", 9, "it hard_limit", (3, 5))
    assert (failed.outcome, failed.held, failed.reason, failed.trials) == ("failed", None, "it failed", (1, 5))


def test_a_run_took_as_long_as_all_of_its_trials(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", repeat=3)
    machine: MachineRecord = {"window_s": 0.5}
    for trial in folder.read_trials():
        folder.write_trial(replace(trial, elapsed_s=float(trial.number), machine=machine))
    summary = summarise_run(folder)
    assert (summary.elapsed_s, summary.trials.valid, summary.verdicts, summary.gate) == (6.0, 3, [], None)
