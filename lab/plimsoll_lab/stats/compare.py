"""Compares two series that were measured in the same blocks.

Everything works on ratios, for a figure's noise grows with the figure; and everything is paired by
block, for a machine that changes its speed between blocks changes it for both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

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
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    drawn = rng.integers(0, len(a), size=(RESAMPLES, len(a)))
    ratios = _medians(a[drawn]) / _medians(b[drawn])
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return (float(low), float(high))


def _medians(rows: Array) -> Array:
    """The median of each row; a partition finds it three times as fast as np.median."""
    middle = rows.shape[1] // 2
    if rows.shape[1] % 2:
        return np.asarray(np.partition(rows, middle, axis=1)[:, middle])
    return np.asarray(np.partition(rows, (middle - 1, middle), axis=1)[:, middle - 1 : middle + 1].mean(axis=1))


def permutation_p(first: Sequence[float], second: Sequence[float], rng: np.random.Generator) -> float:
    """Two-sided sign-flip test over blocks: of two that are alike, a block's log ratio may as well
    be its negative.
    """
    logs = np.log(np.asarray(first, dtype=float)) - np.log(np.asarray(second, dtype=float))
    n = len(logs)
    if n <= EXACT_UP_TO:
        signs = _every_sign(n)
        extra = 0
    else:
        signs = rng.choice(np.array([-1.0, 1.0]), size=(RESAMPLES, n))
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
    adjusted = [0.0] * size
    highest = 0.0
    for rank, index in enumerate(sorted(range(size), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (size - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def control_floor(first: Sequence[float], second: Sequence[float], rng: np.random.Generator) -> float | None:
    """How far two that are alike lie apart, from one measured twice in the same blocks: an A/A
    control.

    Which of the two a block's value belongs to is chance, so it is dealt out anew, again and again;
    95 % of the ratios of medians stay below the floor (a ratio minus 1). None where there are too
    few blocks to deal.
    """
    logs = np.log(np.stack([np.asarray(first, dtype=float), np.asarray(second, dtype=float)]))
    blocks = logs.shape[1]
    if blocks < LEAST_FOR_SPLIT:
        return None
    swap = rng.integers(0, 2, size=(CONTROL_DEALS, blocks)).astype(bool)
    left, right = np.where(swap, logs[0], logs[1]), np.where(swap, logs[1], logs[0])
    apart = np.abs(_medians(left) - _medians(right))
    return float(np.expm1(np.quantile(apart, CONFIDENCE)))


def _every_sign(n: int) -> Array:
    patterns = np.arange(2**n, dtype=np.uint32)[:, None]
    bits = (patterns >> np.arange(n, dtype=np.uint32)) & 1
    return np.where(bits == 1, 1.0, -1.0)
