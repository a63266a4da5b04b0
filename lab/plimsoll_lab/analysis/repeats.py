"""Verdicts that rest on the trials that were made again: what they would be without.

A trial is repeated for causes of the machine alone, but a cause may strike one contender more than
another. So the first measurement of each trial is judged too, and a difference is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.verdict import Verdict
from plimsoll_lab.store.records import ResultWarning, TrialRecord

Judge = Callable[[Sequence[TrialRecord]], Sequence[Verdict]]
"""The verdicts of a run, from its trials."""
REMEDY = "more repetitions, or a quieter machine, on which no trial has to be made again"


def as_first_measured(trial: TrialRecord) -> TrialRecord:
    """A trial as its first attempt left it."""
    if not trial.attempts:
        return trial
    first = trial.attempts[0]
    return replace(
        trial,
        outcome=first.outcome,
        reason=first.reason,
        figures=first.figures,
        warnings=first.warnings,
        cut=first.cut,
        attempts=(),
    )


def repeats_that_decide(
    trials: Sequence[TrialRecord], verdicts: Sequence[Verdict], judge: Judge
) -> list[ResultWarning]:
    """A warning for the verdicts that the first measurements alone would not give."""
    repeated = sum(bool(trial.attempts) for trial in trials)
    if not repeated:
        return []
    without = judge([as_first_measured(trial) for trial in trials])
    differing = [
        f"{one.figure} at {formatting.setting(one.at)}: {_said(one)} with them, {_said(other)} without"
        for one, other in zip(verdicts, without, strict=True)
        if (one.call, set(one.best)) != (other.call, set(other.best))
    ]
    if not differing:
        return []
    several = f"{repeated} trials that were made again change"
    made_again = "1 trial that was made again changes" if repeated == 1 else several
    return [
        ResultWarning(
            code="repeats_decide",
            message=f"{made_again} {len(differing)} of {len(verdicts)} verdicts: {'; '.join(differing)}",
            remedy=REMEDY,
        )
    ]


def _said(verdict: Verdict) -> str:
    return f"{verdict.call} ({', '.join(verdict.best) or 'nobody'} best)"
