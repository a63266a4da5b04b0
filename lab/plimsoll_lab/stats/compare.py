"""What several kinds of comparison share: the ends of a bootstrap's interval, the adjustment of a
family of p-values, and the floor that a control measures.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from plimsoll_lab.stats.summary import CONFIDENCE

Array = NDArray[np.float64]

CONTROL_DEALS = 2000
"""Puts the error of a 95 % quantile near half a percent of probability."""
LEAST_FOR_SPLIT = 4
"""Blocks below which halves are too small to say anything."""


def ends_of(resamples: Array) -> Array:
    """The ends of a bootstrap's interval, the lower one first: 95 % of the resamples, which are
    those along the first axis, lie between them.
    """
    tail = (1 - CONFIDENCE) / 2
    return np.asarray(np.quantile(resamples, [tail, 1 - tail], axis=0))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment over one family (Holm 1979); keeps the order of its input."""
    size = len(p_values)
    adjusted: dict[int, float] = {}
    highest = 0.0
    for rank, index in enumerate(sorted(range(size), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (size - rank) * p_values[index]))
        adjusted[index] = highest
    return [adjusted[index] for index in range(size)]


def shared_of(control: tuple[Mapping[int, float], Mapping[int, float]]) -> tuple[dict[int, float], dict[int, float]]:
    """Both measurements, by the blocks that have both, and a ratio of them."""
    one, again = control
    shared = sorted(block for block in one.keys() & again.keys() if one[block] > 0 and again[block] > 0)
    return {block: one[block] for block in shared}, {block: again[block] for block in shared}


def control_floor(first: Collection[float], second: Collection[float], rng: np.random.Generator) -> float | None:
    """How far two that are alike lie apart, from one measured twice in the same blocks: an A/A
    control.

    Which of the two a block's value belongs to is chance, so it is dealt out anew, again and again;
    95 % of the ratios of geometric means stay below the floor (a ratio minus 1). None where there
    are too few blocks to deal.
    """
    if len(first) < LEAST_FOR_SPLIT:
        return None
    one, other = np.log([*first]), np.log([*second])
    swap = rng.integers(2, size=(CONTROL_DEALS, len(one)))
    left, right = np.where(swap, one, other), np.where(swap, other, one)
    apart = np.abs(left.mean(axis=1) - right.mean(axis=1))
    return float(np.expm1(np.quantile(apart, CONFIDENCE)))
