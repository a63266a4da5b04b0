"""When a run ends as nothing works: how many failures of which points it takes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from made_claims import trial
from made_records import run_record

from plimsoll_lab.analysis.failures import nothing_worked, nothing_works
from plimsoll_lab.store.records import Outcome
from plimsoll_lab.store.run_record import PointRecord, Status
from plimsoll_lab.suite.spec import PlannedTrial

Ended = tuple[int, Outcome]
"""The point of a trial, and its outcome."""


@pytest.mark.parametrize(
    ("points", "ended", "nothing"),
    [
        # Of one point three trials in a row.
        ((0,), [(0, "failed")] * 2, False),
        ((0,), [(0, "failed")] * 3, True),
        ((0,), [(0, "failed"), (0, "failed"), (0, "invalid")], False),
        ((0,), [(0, "failed"), (0, "failed"), (0, "failed"), (0, "ok")], False),
        # Of several each has to have been tried.
        ((0, 1), [(0, "failed"), (1, "failed")], True),
        ((0, 1), [(0, "failed")] * 5, False),
        ((0, 1), [(0, "failed"), (1, "hard_limit")], False),
        ((0, 1, 2), [(2, "failed"), (0, "failed"), (1, "failed")], True),
        ((0, 1), [], False),
        ((), [], False),
    ],
)
def test_nothing_works_where_every_point_was_tried_and_each_trial_failed(
    points: Sequence[int], ended: Sequence[Ended], *, nothing: bool
) -> None:
    trials = [trial(number, point, number, 0.0, outcome) for number, (point, outcome) in enumerate(ended, start=1)]
    assert nothing_works(trials, points) is nothing


@pytest.mark.parametrize(
    ("status", "planned", "nothing"), [("failed", 3, False), ("failed", 4, True), ("interrupted", 4, False)]
)
def test_a_run_of_one_point_ended_early_as_nothing_worked(status: Status, planned: int, *, nothing: bool) -> None:
    run = run_record()
    run.status = status
    run.points = [PointRecord(number=7, setting={}, server={}, load={})]
    run.trials = [PlannedTrial(number=number, block=number, point=7) for number in range(1, planned + 1)]
    failed = [trial(number, 7, number, 0.0, "failed") for number in (1, 2, 3)]
    assert nothing_worked(run, failed) is nothing
