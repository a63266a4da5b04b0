"""Where a series of figures changes its level. Pure.

Binary segmentation: the best split of a series into two levels has the largest standardised
difference of means of all splits (the CUSUM statistic, Page 1954). A permutation of the series has
no change point, so a split counts where few permutations reach its statistic (Taylor 2000). Each
part is then searched alone.
"""

from __future__ import annotations

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
    return sorted(_split(np.asarray(values), 0, np.random.default_rng(seed)))


def _split(values: np.ndarray, start: int, rng: np.random.Generator) -> list[int]:
    if len(values) < LEAST_VALUES:
        return []
    deviations = values - values.mean()
    statistic, place = _best(deviations[np.newaxis, :])
    shuffled = rng.permuted(np.tile(deviations, (PERMUTATIONS, 1)), axis=1)
    # A permutation may have the very same split: rounding must not make it the smaller one.
    as_large = int((_best(shuffled)[0] >= statistic[0] * (1 - 1e-9)).sum())
    if (as_large + 1) / (PERMUTATIONS + 1) >= SIGNIFICANCE:
        return []
    here = int(place[0])
    return [start + here, *_split(values[:here], start, rng), *_split(values[here:], start + here, rng)]


def _best(series: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each row, whose mean is 0, its largest statistic, and the index at which its second part
    begins. A factor that all splits of such rows share is left out.
    """
    count = series.shape[1]
    places = np.arange(LEAST_PART, count - LEAST_PART + 1)
    sums = np.cumsum(series, axis=1)[:, places - 1]
    statistics = np.abs(sums) / np.sqrt(places * (count - places))
    return statistics.max(axis=1), places[statistics.argmax(axis=1)]
