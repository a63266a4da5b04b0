"""The A/A controls of a run: one contender measured twice, which must not differ from itself.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plimsoll_lab.stats.best import FigureComparison, Ranking, compare_with_best
from plimsoll_lab.stats.compare import control_floor, shared_of
from plimsoll_lab.stats.resampling import SIGNIFICANCE
from plimsoll_lab.stats.results import Control

ONE, AGAIN = "one", "again"
"""The two measurements of a control, as contenders of a comparison."""


def control_verdicts(family: Sequence[FigureComparison], *, seed: int) -> list[Control]:
    """Every control of the family: a family of its own, judged as contenders are."""
    measured = [(each, shared_of(each.control)) for each in family if each.control is not None]
    asked = [
        FigureComparison(
            figure=comparison.figure,
            better="lower",
            at=comparison.at,
            contenders={ONE: one, AGAIN: again},
        )
        for comparison, (one, again) in measured
    ]
    found = compare_with_best(asked, np.random.default_rng([seed, 3]))
    return [
        _control(ranking, [*one.values()], [*again.values()], np.random.default_rng([seed, place, 3]))
        for place, (ranking, (_, (one, again))) in enumerate(zip(found, measured, strict=True))
    ]


def _control(ranking: Ranking, one: Sequence[float], again: Sequence[float], rng: np.random.Generator) -> Control:
    comparison, pair = ranking.comparison, ranking.pairs.get((ONE, AGAIN))
    return Control(
        figure=comparison.figure,
        at=comparison.at,
        blocks=len(one),
        ratio=float(np.exp(np.mean(np.log(one) - np.log(again)))) if one else None,
        ratio_ci95=None if pair is None else pair.ratio_bounds,
        p_adjusted=None if pair is None else pair.p_adjusted,
        floor=control_floor(one, again, rng),
        differs=pair is not None and pair.p_adjusted < SIGNIFICANCE,
    )
