"""The response time's percentile curve of each point: at every percentile, the median over its
valid trials.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import cast

from plimsoll_lab.store.records import Json, TrialRecord

PERCENTILES = (("p50", 0.5), ("p75", 0.75), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999), ("p99_99", 0.9999))
"""The percentiles that a generator's summary has, with their quantiles."""
SAMPLES_BEYOND = 10
"""A percentile is drawn where the smallest trial has so many requests beyond it; otherwise one
request decides it."""


def curves(summary: Json, trials: Sequence[TrialRecord]) -> list[Json]:
    """For each point with a result: its setting and `quantiles`, a list of quantile and time in
    us.
    """
    found: list[Json] = []
    for point in cast("list[Json]", summary["points"]):
        if point["outcome"] != "ok":
            continue
        times = [_times(trial) for trial in trials if trial.point == point["number"] and trial.outcome == "ok"]
        times = [each for each in times if each.get("count")]
        least = min((cast("int", each["count"]) for each in times), default=0)
        quantiles = [
            [quantile, statistics.median(cast("float", each[key]) for each in times)]
            for key, quantile in PERCENTILES
            if times and least * (1 - quantile) >= SAMPLES_BEYOND
        ]
        if quantiles:
            found.append({"point": point["point"], "quantiles": quantiles})
    return found


def _times(trial: TrialRecord) -> Json:
    summary = cast("Json", trial.load.get("summary") or {})
    return cast("Json", summary.get("response_time_us") or {})
