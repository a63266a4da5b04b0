"""The matrix of contenders and figures: each cell with its interval and its ratio to the best; no
composite.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from plimsoll_lab.stats.best import Ranking, Value
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
    ordered = [_middle(value) for value in (comparison.contenders.get(name) or {}).values()]
    place = next((each for each in ranking.places if each.name == name), None)
    bounded = place is not None and math.isfinite(place.at_most)
    pairs = [pair for (one, _), pair in ranking.pairs.items() if one == name]
    compared = place is not None and (not pairs or any(pair.is_estimated for pair in pairs))
    return Score(
        at=comparison.at,
        contender=name,
        figure=comparison.figure,
        n=len(ordered),
        median=statistics.median(ordered) if ordered else None,
        median_ci95=median_interval(ordered),
        best=place is not None and place.may_be_best,
        margin=place.ratio if place is not None and compared else None,
        margin_ci95=(place.at_least, place.at_most) if place is not None and bounded else None,
        censored=any(isinstance(each, tuple) for each in (comparison.contenders.get(name) or {}).values()),
        level=place is not None and place.at_most <= 1 + margin,
    )


def _middle(value: Value) -> float:
    """A number to show for an interval: its lower end, which was really measured."""
    return value[0] if isinstance(value, tuple) else value
