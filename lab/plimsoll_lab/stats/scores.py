"""The matrix of contenders and figures: each cell with its interval and its ratio to the best; no
composite.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from plimsoll_lab.stats.best import Interval, Ranking, Value, ends
from plimsoll_lab.stats.results import Score
from plimsoll_lab.stats.summary import median_interval


def score(rankings: Sequence[Ranking], *, margin: float) -> list[Score]:
    """Every cell of every comparison, in the order of the family."""
    return [
        _cell(ranking, name, margin)
        for ranking in rankings
        for name in dict.fromkeys((*ranking.comparison.contenders, *ranking.comparison.absent))
    ]


def _cell(ranking: Ranking, name: str, margin: float) -> Score:
    comparison = ranking.comparison
    values = comparison.every_value_of(name) if name in comparison.contenders else {}
    estimates = comparison.estimates.get(name, {})
    open_ended = [value for block, value in values.items() if block not in estimates]
    at_most = comparison.better == "lower" and any(map(_has_a_most_alone, open_ended))
    shown = [estimates.get(block, _shown(value, at_most=at_most)) for block, value in values.items()]
    is_bound = any(isinstance(value, tuple) for value in open_ended)
    # Of an even number of bounds one that was measured, on the side that holds: their mean is none.
    median = statistics.median if not is_bound else statistics.median_high if at_most else statistics.median_low
    place = next((each for each in ranking.places if each.name == name), None)
    bounded = place is not None and math.isfinite(place.at_most)
    pairs = [pair for (one, _), pair in ranking.pairs.items() if one == name]
    compared = place is not None and (not pairs or any(pair.is_estimated for pair in pairs))
    return Score(
        at=comparison.at,
        contender=name,
        figure=comparison.figure,
        n=len(shown),
        median=median(shown) if shown else None,
        median_ci95=_interval(values),
        best=place is not None and place.may_be_best,
        margin=place.ratio if place is not None and compared else None,
        margin_ci95=(place.at_least, place.at_most) if place is not None and bounded else None,
        censored=not at_most and is_bound,
        at_most=at_most,
        level=place is not None and place.at_most <= 1 + margin,
    )


def _interval(values: Mapping[int, Value]) -> Interval | None:
    """Of the median, from that of the lower bounds to that of the upper ones; None where one of
    them has no end.
    """
    bounds = [ends(value) for value in values.values()]
    low, high = (median_interval([each[side] for each in bounds]) for side in (0, 1))
    found = None if low is None or high is None else (low[0], high[1])
    return found if found is not None and all(map(math.isfinite, found)) else None


def _has_a_most_alone(value: Value) -> bool:
    """Whether only an upper bound of a value is known."""
    return isinstance(value, tuple) and value[0] <= 0 and math.isfinite(value[1])


def _shown(value: Value, *, at_most: bool) -> float:
    """A number to show for an interval: the end that was really measured."""
    return value[at_most] if isinstance(value, tuple) else value
