"""The A/A controls of a run: one contender measured twice, which must not differ from itself.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plimsoll_lab.stats.best import LEAST_BLOCKS, SIGNIFICANCE, Question
from plimsoll_lab.stats.compare import control_floor, holm, permutation_p, ratio_interval, ratio_of_medians
from plimsoll_lab.stats.results import Control


def control_verdicts(family: Sequence[Question], *, seed: int) -> list[Control]:
    """Every control of the family."""
    measured = [
        (question, _series(question), np.random.default_rng([seed, place, 3]))
        for place, question in enumerate(family)
        if question.control is not None
    ]
    p_values = [permutation_p(*series, rng) if series[0] else 1.0 for _, series, rng in measured]
    adjusted = holm(p_values)
    return [_control(question, series, rng, p) for (question, series, rng), p in zip(measured, adjusted, strict=True)]


def _series(question: Question) -> tuple[list[float], list[float]]:
    one, again = question.control or ({}, {})
    shared = sorted(block for block in one.keys() & again.keys() if one[block] > 0 and again[block] > 0)
    return [one[block] for block in shared], [again[block] for block in shared]


def _control(
    question: Question, series: tuple[list[float], list[float]], rng: np.random.Generator, p: float
) -> Control:
    first, second = series
    return Control(
        figure=question.figure,
        at=question.at,
        blocks=len(first),
        ratio=ratio_of_medians(first, second) if first else None,
        ratio_ci95=ratio_interval(first, second, rng) if len(first) >= LEAST_BLOCKS else None,
        p_adjusted=p if first else None,
        floor=control_floor(first, second, rng) if first else None,
        differs=p < SIGNIFICANCE,
    )
