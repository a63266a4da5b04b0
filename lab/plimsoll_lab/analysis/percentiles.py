"""The response time's percentile curve of each point: at every percentile, the median over its
valid trials.

Of a trial with disturbed moments the percentiles are of the kept time, as in every table.
Percentiles that are the generator's own lateness are left out.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.store.records import TrialRecord, untold_figures
from plimsoll_lab.store.summary_record import PointSummary
from plimsoll_lab.suite.settings import Settings

PERCENTILES = (
    *(("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)),
    *(("p99_9", 0.999), ("p99_99", 0.9999)),
)
"""The percentiles that are drawn where a generator's summary has them, with their quantiles."""
STEM = "response_time_us."
SAMPLES_BEYOND = 10
"""A percentile is drawn where the smallest trial has this many requests beyond it; otherwise one
request decides it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """The response times of one point."""

    point: Settings
    """Its setting."""
    quantiles: Sequence[tuple[float, float]]
    """Each quantile, and the time in us."""


def curves(points: Sequence[PointSummary], trials: Sequence[TrialRecord]) -> list[Curve]:
    """The curve of each point with a result."""
    found = []
    for point in (each for each in points if each.outcome == "ok"):
        times = [_times(trial) for trial in trials if trial.point == point.number and trial.outcome == "ok"]
        times = [each for each in times if each.get("count")]
        least = min((each["count"] for each in times), default=0)
        quantiles = [
            (quantile, statistics.median(each[key] for each in times))
            for key, quantile in PERCENTILES
            if times and all(key in each for each in times) and least - quantile * least >= SAMPLES_BEYOND
        ]
        if quantiles:
            found.append(Curve(point=point.point, quantiles=quantiles))
    return found


def _times(trial: TrialRecord) -> Mapping[str, float]:
    found = (trial.load.get("summary") or {}).get("response_time_us")
    if not isinstance(found, Mapping):
        return {}
    untold = untold_figures(trial)
    told = {str(key): value for key, value in found.items() if isinstance(value, int | float)}
    told = {key: value for key, value in told.items() if STEM + key not in untold}
    if trial.cut is None:
        return told
    kept = {"count": told.get("count", 0) - (trial.cut.requests or 0)}
    return kept | {key: trial.figures[name] for key, _ in PERCENTILES if (name := STEM + key) in trial.figures}
