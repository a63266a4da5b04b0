"""Two runs held against each other: is B worse than A, beyond the noise? Pure: numbers in, verdicts out.

Trials of two runs were made at different times, so they are compared unpaired, unless their blocks alternated in time:
only then does a pair share what the machine was doing, and only then is a difference within a block worth more.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from plimsoll_lab.stats.best import LEAST_BLOCKS, SIGNIFICANCE
from plimsoll_lab.stats.compare import (
    LEAST_FOR_SPLIT,
    RESAMPLES,
    SPLITS,
    holm,
    permutation_p,
    ratio_interval,
)
from plimsoll_lab.stats.summary import CONFIDENCE, Interval

Array = NDArray[np.float64]
Call = Literal["better", "equivalent", "not shown", "invalid"]
EXACT_SPLITS = 20_000
"""Ways of dealing the trials out to two runs up to which every one is tried: eight trials a run have 12,870."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One figure at one point, in both runs."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    at: Mapping[str, object]
    """The point."""
    a: Mapping[int, float]
    """The figure by block in run A."""
    b: Mapping[int, float]
    """The same in run B."""
    paired: bool = False
    """Whether the blocks alternated in time."""
    obstacle: str | None = None
    """Why nothing may be said, where the reason is known beforehand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """What may be said about one figure at one point."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    at: Mapping[str, object]
    """The point."""
    winner: Literal["A", "B"] | None
    """The run with the better median."""
    runner_up: Literal["A", "B"] | None
    """The other one."""
    ratio: float | None
    """Median of B over median of A, whichever wins."""
    ratio_ci95: Interval | None
    """Bootstrap interval of that ratio."""
    p_adjusted: float | None
    """Permutation test, Holm-adjusted over every comparison of the two runs."""
    noise_floor: float | None
    """Relative difference between halves of one and the same run."""
    n: tuple[int, int]
    """Valid trials in A and in B."""
    paired: bool
    """Whether blocks were paired."""
    call: Call
    """What may be said; `better` is said of the winner."""
    reason: str
    """Why no more, or no less, may be said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measured:
    pair: Pair
    ratio: float | None = None
    interval: Interval | None = None
    p: float = 1.0
    floor: float | None = None
    n: tuple[int, int] = (0, 0)
    obstacle: str | None = None


def blocks_alternate(a: Mapping[int, tuple[float, float]], b: Mapping[int, tuple[float, float]]) -> bool:
    """Whether block after block of both runs was made side by side: (begin, end) of each block, in seconds."""
    if a.keys() != b.keys():
        return False
    together = [(min(a[block][0], b[block][0]), max(a[block][1], b[block][1])) for block in sorted(a)]
    return all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(together))


def hold_against(pairs: Sequence[Pair], *, margin: float, seed: int) -> list[Difference]:
    """Answer for every pair; the pairs are one family. The same numbers and seed give the same answers."""
    measured = [_measure(pair, np.random.default_rng([seed, at])) for at, pair in enumerate(pairs)]
    asked = [each for each in measured if each.ratio is not None]
    adjusted = dict(zip(map(id, asked), holm([each.p for each in asked]), strict=True))
    return [_answer(each, adjusted.get(id(each)), margin) for each in measured]


def unpaired_p(first: Sequence[float], second: Sequence[float], rng: np.random.Generator) -> float:
    """Two-sided permutation test: were both alike, any dealing out of the trials to the runs is as likely."""
    values = np.log(np.asarray([*first, *second], dtype=float))
    n, k = len(values), len(first)
    if math.comb(n, k) <= EXACT_SPLITS:
        chosen = np.array(list(itertools.combinations(range(n), k)))
        extra = 0
    else:
        chosen = np.argsort(rng.random((RESAMPLES, n)), axis=1)[:, :k]
        extra = 1  # the observed dealing is one of those possible, so p is never 0 (Phipson and Smyth 2010)
    sums = values[chosen].sum(axis=1)
    apart = np.abs(sums / k - (values.sum() - sums) / (n - k))
    observed = abs(float(values[:k].mean() - values[k:].mean()))
    # Equal means may differ in their last bits; a dealing as extreme as the observed one has to count.
    as_extreme = int(np.count_nonzero(apart >= observed * (1 - 1e-9) - 1e-15))
    return (as_extreme + extra) / (len(chosen) + extra)


def unpaired_interval(first: Sequence[float], second: Sequence[float], rng: np.random.Generator) -> Interval:
    """Bootstrap interval of median(first) / median(second); each run is drawn from by itself."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    top = np.median(a[rng.integers(0, len(a), size=(RESAMPLES, len(a)))], axis=1)
    bottom = np.median(b[rng.integers(0, len(b), size=(RESAMPLES, len(b)))], axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(top / bottom, [tail, 1 - tail])
    return (float(low), float(high))


def own_noise(values: Sequence[float], rng: np.random.Generator) -> float | None:
    """How far two halves of one run lie apart: a ratio minus 1 that 95 % of such A/A comparisons stay below."""
    if len(values) < LEAST_FOR_SPLIT:
        return None
    logs = np.log(np.asarray(values, dtype=float))
    half = len(logs) // 2
    orders = rng.permuted(np.tile(np.arange(len(logs)), (SPLITS, 1)), axis=1)
    left = np.median(logs[orders[:, :half]], axis=1)
    right = np.median(logs[orders[:, half : 2 * half]], axis=1)
    # Halves have half the trials, hence the square root of two.
    return float(np.expm1(np.quantile(np.abs(left - right) / math.sqrt(2), CONFIDENCE)))


def _measure(pair: Pair, rng: np.random.Generator) -> _Measured:
    shared = sorted(pair.a.keys() & pair.b.keys())
    a = [pair.a[block] for block in shared] if pair.paired else list(pair.a.values())
    b = [pair.b[block] for block in shared] if pair.paired else list(pair.b.values())
    n = (len(a), len(b))
    if not a or not b:
        missing = " and ".join(name for name, values in (("A", a), ("B", b)) if not values)
        return _Measured(pair=pair, n=n, obstacle=pair.obstacle or f"no valid result in {missing}")
    if min(*a, *b) <= 0:
        return _Measured(pair=pair, n=n, obstacle=pair.obstacle or "a value of zero has no ratio to another")
    enough = min(n) >= LEAST_BLOCKS
    floors = [floor for floor in (own_noise(a, rng), own_noise(b, rng)) if floor is not None]
    interval = (ratio_interval if pair.paired else unpaired_interval)(b, a, rng) if enough else None
    return _Measured(
        pair=pair,
        ratio=statistics.median(b) / statistics.median(a),
        interval=interval,
        p=(permutation_p if pair.paired else unpaired_p)(b, a, rng),
        floor=max(floors, default=None),  # the noisier run: the other cannot make up for it
        n=n,
        obstacle=pair.obstacle,
    )


def _answer(measured: _Measured, p_adjusted: float | None, margin: float) -> Difference:
    pair, ratio = measured.pair, measured.ratio
    winner: Literal["A", "B"] | None = None
    if ratio is not None and ratio != 1:
        winner = "B" if (ratio > 1) == (pair.better == "higher") else "A"
    call, reason = _call(measured, p_adjusted, margin)
    return Difference(
        figure=pair.figure,
        better=pair.better,
        at=pair.at,
        winner=winner,
        runner_up=None if winner is None else "A" if winner == "B" else "B",
        ratio=ratio,
        ratio_ci95=measured.interval,
        p_adjusted=p_adjusted,
        noise_floor=measured.floor,
        n=measured.n,
        paired=pair.paired,
        call=call,
        reason=reason,
    )


def _call(measured: _Measured, p_adjusted: float | None, margin: float) -> tuple[Call, str]:
    if measured.obstacle is not None or measured.ratio is None or p_adjusted is None:
        return "invalid", measured.obstacle or "nothing was measured"
    if measured.interval is None or measured.floor is None:
        return "not shown", f"{min(measured.n)} valid trials are too few; at least {LEAST_BLOCKS} in each run"
    low, high = measured.interval
    apart = max(measured.ratio, 1 / measured.ratio) - 1
    checks = (
        (not low <= 1 <= high, f"the interval {low:.3f} to {high:.3f} holds 1"),
        (p_adjusted < SIGNIFICANCE, f"p is {p_adjusted:.3f} after Holm's adjustment"),
        (apart > measured.floor, f"{apart:.1%} apart, where a run lies {measured.floor:.1%} from itself"),
    )
    missing = [words for met, words in checks if not met]
    if not missing:
        return "better", f"{apart:.1%} apart, p {p_adjusted:.3g}, a run lies {measured.floor:.1%} from itself"
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return "equivalent", f"the interval lies wholly within {margin:.0%}"
    return "not shown", "; ".join(missing)
