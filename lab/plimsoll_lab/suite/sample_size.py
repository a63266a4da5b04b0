"""What can be known of a suite's windows before anything runs: whether they hold requests enough
for its limits.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from plimsoll_lab.suite import units
from plimsoll_lab.suite.figures import figure_named
from plimsoll_lab.suite.prediction import connections, requests_per_s
from plimsoll_lab.suite.spec import Limit, Plan, Point

RULE_OF_THREE = 3.0
"""Without one failure in n requests the ratio is below 3 / n with 95 % (Hanley and Lippman-Hand,
JAMA 1983)."""
BEYOND_A_PERCENTILE = 10
"""Requests that have to lie beyond a percentile before it is more than the luck of a few."""

_PERCENTILE = re.compile(r"\.p(\d+)(?:_(\d+))?$")


def requests_needed(limit: Limit) -> int:
    """How many requests a window has to hold before this limit can be judged."""
    if limit.figure == "failed_ratio" and limit.value > 0:
        return math.ceil(round(RULE_OF_THREE / limit.value, 6))
    match = _PERCENTILE.search(limit.figure)
    figure = figure_named(limit.figure)
    if match and figure is not None and figure.unit == "us":
        quantile = float(f"{match[1]}.{match[2] or 0}") / 100
        return math.ceil(round(BEYOND_A_PERCENTILE / (1 - quantile), 6))
    return 0


def requests_expected(point: Point) -> float:
    """How many requests a window of this point will hold, roughly, from a server that keeps up."""
    load = point.load
    if "each" in load:
        return float(connections(load) * units.count(str(load["each"])))
    if "requests" in load:
        return float(units.count(str(load["requests"])))
    return units.duration_s(str(load.get("duration", "0"))) * requests_per_s(point)


def windows_too_short(plan: Plan) -> list[tuple[Limit, int, float]]:
    """Limits that some window is too short for: the limit, the requests it needs, and the fewest a
    window holds.
    """
    search = plan.suite.search
    points = [
        replace(point, load={**point.load, search.key: search.lowest}) if search else point for point in plan.points
    ]
    fewest = min((requests_expected(point) for point in points), default=0.0)
    return [(limit, needed, fewest) for limit in plan.suite.limits if (needed := requests_needed(limit)) > fewest]
