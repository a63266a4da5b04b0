"""Whether a run ends, or ended, before its last trial, as nothing works. It loads no numpy: the
program asks it while it has to be of one thread.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord

LEAST_FAILURES = 3
"""Failures that end a run of one point: what passes may spoil two trials in a row."""


def nothing_worked(run: RunRecord, trials: Sequence[TrialRecord]) -> bool:
    """Whether a run of stated loads ended early, as every trial at every point failed."""
    early = run.status == "failed" and run.search is None and len(trials) < len(run.trials)
    return early and nothing_works(trials, {point.number for point in run.points})


def nothing_works(trials: Sequence[TrialRecord], points: Collection[int]) -> bool:
    """Whether each of these points was tried, and every trial failed: a server that does not start
    at any point does not start in the next block either.
    """
    enough = len(points) > 1 or len(trials) >= LEAST_FAILURES
    failed = all(trial.outcome == "failed" for trial in trials)
    return enough and failed and {trial.point for trial in trials} == set(points)
