"""Where a series of figures changes its level. Pure.

Binary segmentation: the best split of a series into two levels has the largest standardised
difference of means of all splits (the CUSUM statistic, Page 1954). A permutation of the series has
no change point, so a split counts where few permutations reach its statistic (Taylor 2000). Each
part is then searched alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

SIGNIFICANCE = 0.01
"""Of a series without a change, at most this part shows one at its first split."""
PERMUTATIONS = 1999
"""Enough to distinguish 0.01 from 0.02; with the series itself, two thousand."""
LEAST_VALUES = 10
"""Below this, no split of a series can be rare enough: ten values have 252 halves, nine 126."""
LEAST_PART = 2
"""Values on each side of a change: one alone is an outlier."""


def change_points(values: Sequence[float], *, seed: int) -> list[int]:
    """The places at which a new level begins, in order; each is an index into `values`."""
    found = _split(np.asarray(values, dtype=float), 0, np.random.default_rng(seed))
    return sorted(found)


def _split(values: np.ndarray, start: int, rng: np.random.Generator) -> list[int]:
    if len(values) < LEAST_VALUES:
        return []
    statistic, place = _best(values[np.newaxis, :])
    if not math.isfinite(statistic[0]) or statistic[0] <= 0:
        return []
    shuffled = rng.permuted(np.tile(values, (PERMUTATIONS, 1)), axis=1)
    # A permutation may have the very same split: rounding must not make it the smaller one.
    as_large = int((_best(shuffled)[0] >= statistic[0] * (1 - 1e-9)).sum())
    if (as_large + 1) / (PERMUTATIONS + 1) >= SIGNIFICANCE:
        return []
    here = int(place[0])
    return [start + here, *_split(values[:here], start, rng), *_split(values[here:], start + here, rng)]


def _best(series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each row its largest statistic, and the index at which its second part begins."""
    count = series.shape[1]
    sizes = np.arange(1, count)
    sums = np.cumsum(series - series.mean(axis=1, keepdims=True), axis=1)[:, :-1]
    statistics = np.abs(sums) / np.sqrt(sizes * (count - sizes) / count)
    statistics[:, : LEAST_PART - 1] = -1
    statistics[:, count - LEAST_PART :] = -1
    best = statistics.argmax(axis=1)
    return statistics[np.arange(len(series)), best], best + 1
