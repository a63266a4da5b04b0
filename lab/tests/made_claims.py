"""A claim, and the trials and points that it is judged by."""

from __future__ import annotations

from made_records import point_summary, run_record

from plimsoll_lab.analysis.claims import judge_claims
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.summary_record import ClaimRecord, PointSummary
from plimsoll_lab.suite.documents import Claim


def trial(number: int, point: int, block: int, value: float, outcome: str = "ok") -> TrialRecord:
    return TrialRecord(
        number=number,
        block=block,
        point=point,
        setting={},
        outcome=outcome,  # type: ignore[arg-type]
        reason=None,
        warnings=(),
        figures={"response_time_us.mean": value},
        started_unix_s=0.0,
        elapsed_s=1.0,
        server={},
        load={},
        machine={},
    )


def made(values: dict[int, list[float]]) -> list[TrialRecord]:
    return [
        trial(10 * point + block, point, block, value)
        for point, series in values.items()
        for block, value in enumerate(series)
    ]


def points(outcome: Outcome = "ok") -> list[PointSummary]:
    return [
        point_summary({"load.connections": 10}, 0, outcome, "too few ports"),
        point_summary({"load.connections": 20}, 1, response_time_us__mean=100.0),
    ]


CLAIMED = Claim(
    name="twice",
    source="a document",
    figure="response_time_us.mean",
    at={"load.connections": 20},
    over={"load.connections": 10},
    against=None,
    expect="1.5 to 3",
    least=1.5,
    most=3.0,
    free="",
    portable=True,
)


def judged(claim: Claim, *, outcome: Outcome = "ok", values: dict[int, list[float]] | None = None) -> ClaimRecord:
    series = values if values is not None else {0: [10.0, 20.0, 40.0], 1: [20.0, 40.0, 80.0]}
    run = run_record()
    run.claims = [claim]
    return judge_claims(run, points(outcome), made(series))[0]
