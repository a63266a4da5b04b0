"""The percentile curve of a point: which percentiles it has, and of which trials."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from made_records import point_summary

from plimsoll_lab.analysis.percentiles import Curve, curves
from plimsoll_lab.store.records import CutRecord, MeasuredLoadRecord, Outcome, TrialRecord
from plimsoll_lab.store.summary_record import PointSummary

TIMES = {"p50": 1.0, "p75": 2.0, "p90": 3.0, "p95": 4.0, "p99": 5.0, "p99_9": 6.0, "p99_99": 7.0}
QUANTILES = [(0.5, 1.0), (0.75, 2.0), (0.9, 3.0), (0.95, 4.0), (0.99, 5.0), (0.999, 6.0), (0.9999, 7.0)]
SETTING = {"load.connections": 10}
POINTS = [point_summary(SETTING, number=3)]
CUT = CutRecord(
    moments=1, share=0.1, requests=100, touched=0, completed_rate=None, bounds={}, estimates={}, doubted=()
)  # fmt: skip


def trial(count: float, times: dict[str, float] = TIMES, outcome: Outcome = "ok", *doubted: str) -> TrialRecord:
    summary = {"response_time_us": {"count": count, **times}, "doubted": doubted}
    return TrialRecord(
        number=1, block=1, point=3, setting=SETTING, outcome=outcome, reason=None, warnings=(), figures={},
        started_unix_s=0, elapsed_s=1, server={}, load=cast("MeasuredLoadRecord", {"summary": summary}), machine={},
    )  # fmt: skip


def drawn(*trials: TrialRecord, points: list[PointSummary] = POINTS) -> list[Curve]:
    return curves(points, trials)


def test_a_percentile_is_drawn_where_the_smallest_trial_has_ten_requests_beyond_it() -> None:
    for count, known in (
        (100_000, 7),
        (99_999, 6),
        (10_000, 6),
        (9_999, 5),
        (1000, 5),
        (200, 4),
        (100, 3),
        (40, 2),
        (20, 1),
    ):
        assert drawn(trial(count), trial(10 * count)) == [Curve(point=SETTING, quantiles=QUANTILES[:known])]
    assert drawn(trial(19), trial(1000)) == []


def test_a_curve_is_of_the_medians_of_the_valid_trials_of_its_point() -> None:
    def of(factor: float, outcome: Outcome = "ok") -> TrialRecord:
        return trial(40, {name: value * factor for name, value in TIMES.items()}, outcome)

    elsewhere = replace(of(1000), point=4)
    spoilt = of(1000, "invalid")
    none = replace(of(1000), load={})
    silent = trial(0, dict.fromkeys(TIMES, 1000.0))
    found = drawn(of(1), of(3), of(8), elsewhere, spoilt, none, silent)
    assert found == [Curve(point=SETTING, quantiles=[(0.5, 3.0), (0.75, 6.0)])]
    assert drawn(of(1), points=[point_summary(SETTING, 3, "hard_limit"), point_summary(SETTING, 4)]) == []
    assert drawn(none) == []


def test_a_percentile_that_a_trial_lacks_or_that_is_the_generators_lateness_is_left_out() -> None:
    two_thirds = [(quantile, time) for quantile, time in QUANTILES[:3] if quantile != 0.75]
    lacking = trial(100, {name: value for name, value in TIMES.items() if name != "p75"})
    assert drawn(trial(100), lacking) == [Curve(point=SETTING, quantiles=two_thirds)]
    late = trial(100, TIMES, "ok", "response_time_us.p75")
    assert drawn(late) == [Curve(point=SETTING, quantiles=two_thirds)]
    text = replace(late, load=cast("MeasuredLoadRecord", {"summary": {"response_time_us": "none"}}))
    assert drawn(text) == []
    null = trial(100, cast("dict[str, float]", {**TIMES, "p75": None}))
    assert drawn(null) == [Curve(point=SETTING, quantiles=two_thirds)]


def test_of_a_trial_with_disturbed_moments_the_percentiles_are_of_the_kept_requests() -> None:
    """120 requests, of which 100 were cut: of 20 only the median has ten beyond it."""
    figures = {"response_time_us.p50": 11.0, "response_time_us.p75": 12.0, "response_time_us.mean": 13.0}
    cut = replace(trial(120), cut=CUT, figures=figures)
    assert drawn(cut) == [Curve(point=SETTING, quantiles=[(0.5, 11.0)])]
    more = replace(trial(140), cut=CUT, figures=figures)
    assert drawn(more) == [Curve(point=SETTING, quantiles=[(0.5, 11.0), (0.75, 12.0)])]
    unknown = replace(trial(40), cut=replace(CUT, requests=None), figures=figures)
    assert drawn(unknown) == [Curve(point=SETTING, quantiles=[(0.5, 11.0), (0.75, 12.0)])]
    uncounted = replace(cut, load=cast("MeasuredLoadRecord", {"summary": {"response_time_us": {}}}))
    assert drawn(uncounted) == []
