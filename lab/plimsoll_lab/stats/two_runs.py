"""Stored runs of A against stored runs of B: is B worse, by more than runs of one side differ?
Pure.

The unit is a run. Trials of one run share the state of the machine on that day, so that any number
of them says nothing about how runs differ (Kalibera and Jones 2013). Estimate, interval and test
share one statistic: the difference between the mean logarithms of the runs' medians. Runs of
different days may have different spreads (Welch 1947).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy import special

from plimsoll_lab.stats.best import Value, ends
from plimsoll_lab.stats.compare import holm
from plimsoll_lab.stats.resampling import SAME, SIGNIFICANCE, Array
from plimsoll_lab.stats.results import Call, Difference
from plimsoll_lab.stats.summary import Interval

LEAST_RUNS = 5
"""Runs a side for a verdict: with fewer the spread between runs is hardly known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One figure at one point, in the runs of both sides."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    a: Sequence[Value]
    """The median of each run of A that has a result there, or what it lies between: a capacity is
    between two loads that were tried."""
    b: Sequence[Value]
    """The same of B."""
    at: dict[str, object] = field(default_factory=dict)
    """The point."""
    obstacle: str | None = None
    """Why nothing may be said, where the reason is known beforehand."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measured:
    """What one pair says, whatever the others say."""

    estimate: float | None = None
    """The logarithm of B's values over A's."""
    interval: Interval | None = None
    """Of the ratio; None below five runs a side."""
    p: float | None = None
    """Of Welch's test; None below five runs a side."""
    obstacle: str | None = None
    """Why there is no estimate."""


def compare_sides(pairs: Sequence[Pair], *, margin: float) -> list[Difference]:
    """Answer for every pair; the pairs are one family."""
    measured = [_measure(pair) for pair in pairs]
    adjusted = iter(holm([each.p for each in measured if each.p is not None]))
    return [
        _difference(pair, each, next(adjusted) if each.p is not None else None, margin)
        for pair, each in zip(pairs, measured, strict=True)
    ]


def _measure(pair: Pair) -> _Measured:
    if not pair.a or not pair.b:
        missing = " and ".join(name for name, values in (("A", pair.a), ("B", pair.b)) if not values)
        return _Measured(obstacle=f"no valid result in {missing}")
    (a_low, a_high), (b_low, b_high) = _log_ends(pair.a), _log_ends(pair.b)
    if not np.isfinite([*a_low, *b_low]).all():
        return _Measured(obstacle="a value of zero has no ratio to another")
    estimate = float((b_low + b_high).mean() - (a_low + a_high).mean()) / 2
    if min(len(a_low), len(b_low)) < LEAST_RUNS:
        return _Measured(estimate=estimate)
    # As little as B's values can be over A's, and as much.
    least, most = _welch(a_high, b_low), _welch(a_low, b_high)
    p = least.p if least.difference > 0 else most.p if most.difference < 0 else 1.0
    return _Measured(
        estimate=estimate,
        interval=(math.exp(least.difference - least.reach), math.exp(most.difference + most.reach)),
        p=p,
    )


def _log_ends(values: Sequence[Value]) -> tuple[Array, Array]:
    """The logarithms of the lower ends, and of the upper ones."""
    with np.errstate(divide="ignore", invalid="ignore"):  # of zero there is none
        low, high = np.log(np.array([ends(value) for value in values], dtype=np.float64)).T
    return low, high


@dataclass(frozen=True, slots=True)
class _Welch:
    """The difference of two means."""

    difference: float
    reach: float
    """On either side, with 95 %."""
    p: float


def _welch(a: Array, b: Array) -> _Welch:
    difference = float(b.mean() - a.mean())
    of_a, of_b = (float(each.var(ddof=1)) / len(each) for each in (a, b))
    error = math.sqrt(of_a + of_b)
    if error <= SAME:
        return _Welch(difference, 0.0, 0.0 if abs(difference) > SAME else 1.0)
    degrees = (of_a + of_b) ** 2 / (of_a**2 / (len(a) - 1) + of_b**2 / (len(b) - 1))
    reach = error * float(special.stdtrit(degrees, 1 - SIGNIFICANCE / 2))
    return _Welch(difference, reach, 2 * float(special.stdtr(degrees, -abs(difference) / error)))


def _difference(pair: Pair, measured: _Measured, p_adjusted: float | None, margin: float) -> Difference:
    estimate = measured.estimate
    winner: Literal["A", "B"] | None = None
    if estimate is not None and abs(estimate) > SAME:
        winner = "B" if (estimate > 0) == (pair.better == "higher") else "A"
    call, reason = _call(pair, measured, p_adjusted, margin)
    return Difference(
        figure=pair.figure,
        better=pair.better,
        at=pair.at,
        winner=winner,
        runner_up=None if winner is None else "A" if winner == "B" else "B",
        ratio=None if estimate is None else math.exp(estimate),
        ratio_ci95=measured.interval,
        p_adjusted=p_adjusted,
        n=(len(pair.a), len(pair.b)),
        call=call,
        reason=reason,
    )


def _call(pair: Pair, measured: _Measured, p_adjusted: float | None, margin: float) -> tuple[Call, str]:
    obstacle = pair.obstacle or measured.obstacle
    if obstacle is not None:
        return "invalid", obstacle
    if measured.interval is None or p_adjusted is None:
        runs = min(len(pair.a), len(pair.b))
        few = "1 run a side is too few" if runs == 1 else f"{runs} runs a side are too few"
        return "not shown", f"{few}; at least {LEAST_RUNS}, or `plimsoll lab gate` in one run"
    if p_adjusted < SIGNIFICANCE:
        # The pair's own p is no larger, so that the interval excludes 1.
        return "better", f"the interval excludes 1, p is {p_adjusted:.2g} after Holm's adjustment"
    low, high = measured.interval
    if 1 / (1 + margin) <= low and high <= 1 + margin:
        return "equivalent", f"the interval lies within {margin * 100:g} %"
    return "not shown", f"p is {p_adjusted:.2g} after Holm's adjustment"
