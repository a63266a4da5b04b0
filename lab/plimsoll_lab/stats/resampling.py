"""The distribution of a family's smallest p under no difference, by the signs of whole blocks: the
critical value that all pairs of contenders share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from plimsoll_lab.stats.signs import drawn_signs, sign_patterns

Array = NDArray[np.float64]
SIGNIFICANCE = 0.05
EXACT_UP_TO = 13
"""Blocks up to which every pattern of signs is tried: 4,096 of them, as a pattern and its mirror
give the same."""
RESAMPLES = 9_999
"""Patterns drawn for more blocks: they put the error of a 95 % quantile near 0.2 % of
probability."""
LEAST_BLOCKS = 6
"""Five blocks have 16 patterns of signs, so that no outcome is rarer than 5 %; six have 32."""
SAME = 1e-12
"""Log ratios closer than this differ by rounding alone."""
RESOLUTION = 1e-3
"""The least standard deviation of log ratios that differ: histograms keep three digits, and a count
of requests differs by one. Of two neighbouring values, each in half of six blocks, one pattern of
signs leaves no deviation, and its t would leave no bound to any pair of the family."""
LARGEST_LOG = 700.0
"""A ratio beyond this overflows, and says no more than that nothing is known."""
CHUNK = 256
"""Pairs resampled at once: 9,999 patterns of them take 20 MB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairLogs:
    """The log ratios of one pair over all blocks of the family, as far as they are bounded; 0 in a
    block it misses.
    """

    names: tuple[str, str]
    shared: NDArray[np.bool_]
    low: Array | None
    """Lower bounds of the log ratios; None where some block has none."""
    high: Array | None
    """Upper bounds; the same object as `low` where every value is a number."""
    middle: Array | None = None
    """Between the middles of both values, of one that is open its bound; None where every value is
    a number."""

    @property
    def blocks(self) -> int:
        """Blocks in which both were measured."""
        return int(self.shared.sum())

    def bounded(self) -> list[Array]:
        """Each series once."""
        return [each for each in ((self.low,) if self.low is self.high else (self.low, self.high)) if each is not None]


def smallest_p(pairs: Sequence[PairLogs], blocks: int, rng: np.random.Generator) -> Array:
    """Of each pattern of signs, the smallest p over all pairs, sorted: the family's distribution
    under no difference.

    Missing blocks are filled with the pair's own deviations, for the critical value belongs to the
    experiment as it was planned: what one contender misses must not widen the bounds between two
    others. A pair pays for its own missing blocks, by its standard error and its degrees of
    freedom.
    """
    series = [_filled(one, each.shared) for each in pairs if each.blocks >= LEAST_BLOCKS for one in each.bounded()]
    return np.sort(p_of(_largest_t(_signs(blocks, rng), np.array(series)), blocks)) if series else np.ones(1)


def _filled(series: Array, shared: NDArray[np.bool_]) -> Array:
    """A series' deviations from its mean, of the blocks that it has, in all blocks."""
    deviations = centred_of(series, shared)
    filled = deviations.copy()
    filled[~shared] = np.resize(deviations[shared], int((~shared).sum()))
    return np.asarray(filled - filled.mean())


def p_of(t: Array | float, blocks: int) -> Array:
    """Two-sided p of Student's t; scipy.special is a hundred times as fast as scipy.stats for
    single values.
    """
    return np.asarray(2 * special.stdtr(blocks - 1, -np.asarray(t)))


def _signs(blocks: int, rng: np.random.Generator) -> Array:
    if blocks <= EXACT_UP_TO:
        return sign_patterns(2 ** (blocks - 1), blocks)
    return drawn_signs(RESAMPLES, blocks, rng)


def standard_error(logs: Array) -> float:
    """Of the mean of log ratios; 0 where all are alike."""
    spread = float(logs.std(ddof=1))
    return max(spread, RESOLUTION) / math.sqrt(len(logs)) if spread > SAME else 0.0


def centred_of(series: Array, shared: NDArray[np.bool_]) -> Array:
    """A series less its mean, 0 in blocks that it misses, and everywhere where it is constant."""
    centred = np.where(shared, series - series[shared].mean(), 0.0)
    return centred if np.abs(centred).max() > SAME else np.zeros_like(centred)


def _largest_t(signs: Array, series: Array) -> Array:
    """Of each pattern, the largest |t| over the series, each of mean 0."""
    blocks = series.shape[1]
    squares = (series**2).sum(axis=1)
    series, squares = series[squares > 0], squares[squares > 0]
    largest = np.zeros(len(signs))
    for at in range(0, len(series), CHUNK):
        means = signs @ series[at : at + CHUNK].T / blocks
        # Signs leave the sum of squares as it is, so that the spread follows from the mean.
        variances = (squares[at : at + CHUNK] - blocks * means**2) / (blocks - 1)
        t = np.abs(means) * math.sqrt(blocks) / np.sqrt(np.maximum(variances, RESOLUTION**2))
        largest = np.maximum(largest, t.max(axis=1))
    return largest


def critical_p_of(smallest: Array) -> float:
    """The p below which a pair is shown to differ; 0 where there are too few patterns."""
    rank = math.floor(SIGNIFICANCE * len(smallest))
    return float(smallest[rank - 1]) if rank else 0.0


def critical_t_of(blocks: int, critical_p: float) -> float:
    """The |t| above which a pair is shown to differ; inf where none is."""
    return -float(special.stdtrit(blocks - 1, critical_p / 2)) if critical_p > 0 else math.inf
