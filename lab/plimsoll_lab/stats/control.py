"""The A/A controls of a run: one contender measured twice, which must not differ from itself.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plimsoll_lab.stats.best import FigureComparison
from plimsoll_lab.stats.compare import control_floor, holm, permutation_p, ratio_interval, ratio_of_medians
from plimsoll_lab.stats.resampling import LEAST_BLOCKS, SIGNIFICANCE
from plimsoll_lab.stats.results import Control


def control_verdicts(family: Sequence[FigureComparison], *, seed: int) -> list[Control]:
    """Every control of the family."""
    measured = [
        (comparison, _series(comparison), np.random.default_rng([seed, place, 3]))
        for place, comparison in enumerate(family)
        if comparison.control is not None
    ]
    p_values = [permutation_p(*series, rng) for _, series, rng in measured]
    adjusted = holm(p_values)
    return [
        _control(comparison, series, rng, p) for (comparison, series, rng), p in zip(measured, adjusted, strict=True)
    ]


def _series(comparison: FigureComparison) -> tuple[list[float], list[float]]:
    one, again = comparison.control or ({}, {})
    shared = sorted(block for block in one.keys() & again.keys() if one[block] > 0 and again[block] > 0)
    return [one[block] for block in shared], [again[block] for block in shared]


def _control(
    comparison: FigureComparison, series: tuple[list[float], list[float]], rng: np.random.Generator, p: float
) -> Control:
    first, second = series
    return Control(
        figure=comparison.figure,
        at=comparison.at,
        blocks=len(first),
        ratio=ratio_of_medians(first, second) if first else None,
        ratio_ci95=ratio_interval(first, second, rng) if len(first) >= LEAST_BLOCKS else None,
        p_adjusted=p if first else None,
        floor=control_floor(first, second, rng),
        differs=p < SIGNIFICANCE,
    )
