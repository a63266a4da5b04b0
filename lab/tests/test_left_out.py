"""Which measurements of a run no figure rests on."""

from __future__ import annotations

from dataclasses import replace

from plimsoll_lab.analysis.left_out import left_out
from plimsoll_lab.store.records import Attempt, Outcome, TrialRecord
from plimsoll_lab.store.summary_record import DiscardedRecord, LeftOutRecord


def trial(number: int, outcome: Outcome, reason: str | None = None) -> TrialRecord:
    return TrialRecord(
        number=number, block=1, point=0, setting={"load.connections": number}, outcome=outcome, reason=reason,
        warnings=(), figures={}, started_unix_s=0, elapsed_s=1, server={}, load={}, machine={},
    )  # fmt: skip


def test_trials_without_a_result_and_those_made_again_are_listed_with_every_attempt() -> None:
    steal = Attempt(outcome="ok", reason="others had the CPU", started_unix_s=0.0, elapsed_s=1.0)
    late = Attempt(outcome="invalid", reason="it was late", started_unix_s=0.0, elapsed_s=1.0)
    trials = [
        trial(1, "ok"),
        trial(2, "failed", "it fell over"),
        replace(trial(3, "ok"), attempts=(steal, late)),
        replace(trial(4, "invalid", "still late"), attempts=(late,)),
    ]
    discarded = {
        "steal": DiscardedRecord(outcome="ok", reason="others had the CPU"),
        "late": DiscardedRecord(outcome="invalid", reason="it was late"),
    }
    assert left_out(trials) == [
        LeftOutRecord(trial=2, point={"load.connections": 2}, outcome="failed", reason="it fell over", discarded=[]),
        LeftOutRecord(
            trial=3,
            point={"load.connections": 3},
            outcome="ok",
            reason=None,
            discarded=[discarded["steal"], discarded["late"]],
        ),
        LeftOutRecord(
            trial=4,
            point={"load.connections": 4},
            outcome="invalid",
            reason="still late",
            discarded=[discarded["late"]],
        ),
    ]
