"""Compares two series that were measured in the same blocks.

Everything works on ratios, for a figure's noise grows with the figure; and everything is paired by
block, for a machine that changes its speed between blocks changes it for both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plimsoll_lab.stats.signs import drawn_signs, sign_patterns
from plimsoll_lab.stats.summary import CONFIDENCE, Interval

Array = NDArray[np.float64]

RESAMPLES = 10_000
"""Puts the error of a 2.5 % quantile near 0.15 % of probability."""
EXACT_UP_TO = 16
"""Blocks up to which every sign pattern is tried: 65,536 of them."""
CONTROL_DEALS = 2000
"""Puts the error of a 95 % quantile near half a percent of probability."""
LEAST_FOR_SPLIT = 4
"""Blocks below which halves are too small to say anything."""


def ratio_of_medians(first: Sequence[float], second: Sequence[float]) -> float:
    """Median of the first over the median of the second."""
    return float(np.median(first) / np.median(second))


def ratio_interval(first: Sequence[float], second: Sequence[float], rng: np.random.Generator) -> Interval:
    """Bootstrap interval of the ratio of medians; blocks are drawn, both values of a block
    together.
    """
    a, b = np.asarray(first), np.asarray(second)
    drawn = rng.integers(len(a), size=(RESAMPLES, len(a)))
    low, high = ends_of(row_medians(a[drawn]) / row_medians(b[drawn]))
    return (float(low), float(high))


def ends_of(resamples: Array) -> Array:
    """The ends of a bootstrap's interval, the lower one first: 95 % of the resamples, which are
    those along the first axis, lie between them.
    """
    tail = (1 - CONFIDENCE) / 2
    return np.asarray(np.quantile(resamples, [tail, 1 - tail], axis=0))


def row_medians(rows: Array) -> Array:
    """The median of each row; a partition finds it three times as fast as np.median."""
    middle = rows.shape[1] // 2
    if rows.shape[1] % 2:
        return np.asarray(np.partition(rows, middle)[:, middle])
    return np.asarray(np.partition(rows, (middle - 1, middle))[:, middle - 1 : middle + 1].mean(axis=1))


def permutation_p(first: Sequence[float], second: Sequence[float], rng: np.random.Generator) -> float:
    """Two-sided sign-flip test over blocks: of two that are alike, a block's log ratio may as well
    be its negative.
    """
    logs = np.log(first) - np.log(second)
    n = len(logs)
    if n <= EXACT_UP_TO:
        signs = sign_patterns(2**n, n)
        extra = 0
    else:
        signs = drawn_signs(RESAMPLES, n, rng)
        extra = 1  # the observed pattern is one of those possible, so p is never 0 (Phipson and Smyth 2010)
    flipped = np.abs(signs @ logs)
    observed = abs(float(logs.sum()))
    # Equal sums may differ in their last bits; a pattern as extreme as the observed one has to
    # count.
    as_extreme = int(np.count_nonzero(flipped >= observed * (1 - 1e-9)))
    return (as_extreme + extra) / (len(signs) + extra)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjustment over one family (Holm 1979); keeps the order of its input."""
    size = len(p_values)
    adjusted: dict[int, float] = {}
    highest = 0.0
    for rank, index in enumerate(sorted(range(size), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (size - rank) * p_values[index]))
        adjusted[index] = highest
    return [adjusted[index] for index in range(size)]


def control_floor(first: Sequence[float], second: Sequence[float], rng: np.random.Generator) -> float | None:
    """How far two that are alike lie apart, from one measured twice in the same blocks: an A/A
    control.

    Which of the two a block's value belongs to is chance, so it is dealt out anew, again and again;
    95 % of the ratios of medians stay below the floor (a ratio minus 1). None where there are too
    few blocks to deal.
    """
    if len(first) < LEAST_FOR_SPLIT:
        return None
    one, other = np.log(first), np.log(second)
    swap = rng.integers(2, size=(CONTROL_DEALS, len(one)))
    left, right = np.where(swap, one, other), np.where(swap, other, one)
    apart = np.abs(row_medians(left) - row_medians(right))
    return float(np.expm1(np.quantile(apart, CONFIDENCE)))
