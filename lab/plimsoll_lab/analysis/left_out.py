"""Which measurements no figure rests on, with their reasons."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.summary_record import DiscardedRecord, LeftOutRecord


def left_out(trials: Sequence[TrialRecord]) -> list[LeftOutRecord]:
    """Every measurement that is no result, and every trial that was made more than once."""
    return [
        LeftOutRecord(
            trial=trial.number,
            point=trial.setting,
            outcome=trial.outcome,
            reason=trial.reason,
            discarded=[DiscardedRecord(outcome=each.outcome, reason=each.reason) for each in trial.attempts],
        )
        for trial in trials
        if trial.outcome != "ok" or trial.attempts
    ]
