"""How a quantity grows along another: in a straight line, or faster at the end. Pure."""

from __future__ import annotations

from collections.abc import Sequence

LAST = 10
"""The last one of this many parts is held against the line through the others."""
LEAST_POINTS = 10
"""Fewer points show no line that the last ones could leave."""


def last_over_line(points: Sequence[tuple[float, float]]) -> float | None:
    """The mean of the last tenth of the points over what the least-squares line through the others
    comes to there: 1 where all grow alike, more where the last ones grow faster. None where the
    points are too few, or the line is not above zero there.
    """
    ordered = sorted(points)
    count = max(1, len(ordered) // LAST)
    first, last = ordered[:-count], ordered[-count:]
    if len(ordered) < LEAST_POINTS:
        return None
    middle = sum(x for x, _ in first) / len(first)
    height = sum(y for _, y in first) / len(first)
    spread = sum((x - middle) ** 2 for x, _ in first)
    slope = sum((x - middle) * y for x, y in first) / spread if spread else 0.0
    line = [height + slope * (x - middle) for x, _ in last]
    return sum(y for _, y in last) / sum(line) if sum(line) > 0 else None
