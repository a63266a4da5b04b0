"""Comparison with the best: who may be best, and for every other contender at least how much worse
it is.

Each pair of contenders is compared by its log ratios within blocks. The intervals of all pairs,
figures and settings hold together with 95 %: they are studentised means with a common critical
value from resampling. A resample gives each block one random sign, shared by all pairs, figures and
settings, so that their dependence is kept.

From the pairs' bounds L and U follow the bounds of a contender's ratio to the best, whichever that
is: the largest of its L and the largest of its U over all others (Edwards and Hsu 1983). No
contender is chosen as the winner first, for a winner chosen from the same data looks better than it
is.

A value may be an interval: a capacity lies between two loads, and a rate that the generator limited
is a lower bound.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from plimsoll_lab.stats.resampling import (
    LARGEST_LOG,
    LEAST_BLOCKS,
    SAME,
    Array,
    PairLogs,
    critical_p_of,
    critical_t_of,
    p_of,
    smallest_p,
    standard_error,
)

Interval = tuple[float, float]
Value = float | Interval
"""A figure in one block: a number, or the interval it lies in; an end may be 0 or infinite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureComparison:
    """One figure at one setting, and the contenders measured there."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    at: Mapping[str, object]
    """The setting of the other axes."""
    contenders: Mapping[str, Mapping[int, Value]]
    """Of each contender that was measured here, the figure by block."""
    absent: Sequence[str] = ()
    """Contenders without a result here: stopped, failed, or not valid."""
    untold: Mapping[str, str] = field(default_factory=dict)
    """Why some of these have no result of this figure although they did not stop."""
    estimates: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Of each contender, the figure by block where moments were cut out and it lies between two
    bounds."""
    obstacle: str | None = None
    """Why the contenders may not be compared, where the reason is known beforehand."""
    control: tuple[Mapping[int, float], Mapping[int, float]] | None = None
    """One contender measured twice, by block: the A/A control; None where the suite has none."""
    beside: Mapping[tuple[str, str], Mapping[int, Value]] = field(default_factory=dict)
    """Of a contender, beside another: values by block that count between these two alone, as one of
    them tells the figure in fewer blocks."""

    def values_of(self, name: str, other: str) -> Mapping[int, Value]:
        """What a contender measured, beside another one."""
        return {**self.contenders[name], **self.beside.get((name, other), {})}

    def every_value_of(self, name: str) -> Mapping[int, Value]:
        """What a contender measured, beside whichever other."""
        further = [values for (one, _), values in self.beside.items() if one == name]
        return {block: value for values in (self.contenders[name], *further) for block, value in values.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """How much worse one contender is than another; logarithms of a ratio, 0 where they are
    equal.
    """

    blocks: int
    """Blocks in which both were measured."""
    estimate: float
    """Mean log ratio over these blocks; 0 where nothing is known of it."""
    low: float
    """Lower simultaneous bound; -inf where nothing can be said."""
    high: float
    """Upper simultaneous bound; inf where nothing can be said."""
    p_adjusted: float
    """Over the whole family; below 0.05 exactly where the interval excludes 0."""
    is_estimated: bool = True
    """Whether anything is known of the ratio: not of two that share no block, or that are both
    known by a lower bound alone."""

    @property
    def ratio_bounds(self) -> Interval | None:
        """What the ratio lies between; None where an end has no bound."""
        within = max(abs(self.low), abs(self.high)) < LARGEST_LOG
        return (math.exp(self.low), math.exp(self.high)) if within else None

    def reversed(self) -> Pair:
        """The same with the contenders swapped."""
        return Pair(
            blocks=self.blocks,
            estimate=-self.estimate,
            low=-self.high,
            high=-self.low,
            p_adjusted=self.p_adjusted,
            is_estimated=self.is_estimated,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RankedContender:
    """How many times worse than the best a contender is; 1 or more whichever direction is
    better.
    """

    name: str
    """The contender."""
    ratio: float
    """The estimate."""
    at_least: float
    """Lower simultaneous bound; 1 where the contender may be the best."""
    at_most: float
    """Upper simultaneous bound; inf where nothing can be said."""

    @property
    def may_be_best(self) -> bool:
        """Whether the contender cannot be distinguished from the best."""
        return self.at_least <= 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The outcome of one comparison."""

    comparison: FigureComparison
    """What was asked."""
    places: Sequence[RankedContender]
    """Contenders that could be compared, the best estimate first."""
    unranked: Mapping[str, str]
    """Contenders that could not be compared, and why."""
    pairs: Mapping[tuple[str, str], Pair] = field(default_factory=dict)
    """Every ordered pair of those compared."""

    @property
    def best(self) -> list[str]:
        """The contenders that cannot be distinguished from the best."""
        return [place.name for place in self.places if place.may_be_best]

    @property
    def others(self) -> list[RankedContender]:
        """The contenders that are worse than the best."""
        return [place for place in self.places if not place.may_be_best]


def can_say_anything(blocks: int) -> bool:
    """Whether this many blocks could ever show a difference, in a family of any size."""
    return blocks >= LEAST_BLOCKS


def compare_with_best(family: Sequence[FigureComparison], rng: np.random.Generator) -> list[Ranking]:
    """Rank the contenders of every comparison; the intervals of all answers hold together with 95
    %.
    """
    blocks = sorted({block for each in family for name in each.contenders for block in each.every_value_of(name)})
    ranked = [_rankable(each) for each in family]
    logs = [
        [_logs(each, one, other, blocks) for one, other in itertools.combinations(names, 2)]
        for each, (names, _) in zip(family, ranked, strict=True)
    ]
    smallest = smallest_p([each for comparison in logs for each in comparison], len(blocks), rng)
    return [
        _ranking(comparison, names, unranked, [_pair(each, smallest) for each in pairs])
        for comparison, (names, unranked), pairs in zip(family, ranked, logs, strict=True)
    ]


def detectable_ratio(*, blocks: int, comparisons: int, noise: float, rng: np.random.Generator) -> float:
    """The ratio that is shown in four of five experiments; inf where nothing can be.

    `comparisons` counts the pairs of contenders over all figures and settings; `noise` is the
    relative standard deviation of one contender's figure between blocks.
    """
    if not can_say_anything(blocks):
        return math.inf
    draws = []
    for _ in range(DETECTION_DRAWS):
        logs = [
            PairLogs(names=("a", "b"), shared=np.ones(blocks, dtype=bool), low=row, high=row)
            for row in rng.normal(size=(comparisons, blocks))
        ]
        draws.append(critical_t_of(blocks, critical_p_of(smallest_p(logs, blocks, rng))))
    critical = statistics.median(draws)
    # In four of five experiments the estimate is at most 0.84 standard errors below the truth.
    standard_error = math.log1p(noise) * math.sqrt(2 / blocks)
    return _exp(standard_error * (critical + float(special.ndtri(DETECTION_POWER))))


DETECTION_DRAWS = 9
"""Families drawn for `detectable_ratio`: its critical value varies by a few percent between
them."""
DETECTION_POWER = 0.8


def _rankable(comparison: FigureComparison) -> tuple[list[str], dict[str, str]]:
    """The contenders that can be compared with each other, and why the rest cannot."""
    unranked = dict(comparison.untold)
    for name in comparison.contenders:
        values = comparison.every_value_of(name)
        if comparison.obstacle is not None:
            unranked[name] = comparison.obstacle
        elif not values:
            unranked[name] = "no valid result"
        elif any(ends(value)[1] <= 0 for value in values.values()):
            unranked[name] = "a value of zero has no ratio to another"
        elif len(values) < LEAST_BLOCKS:
            blocks = "1 valid block" if len(values) == 1 else f"{len(values)} valid blocks"
            unranked[name] = f"{blocks}, at least {LEAST_BLOCKS} are needed"
    names = [name for name in comparison.contenders if name not in unranked]
    while (shortest := _least_shared(comparison, names)) is not None:
        unranked[shortest] = f"fewer than {LEAST_BLOCKS} valid blocks in common with the others"
        names.remove(shortest)
    return names, unranked


def _least_shared(comparison: FigureComparison, names: Sequence[str]) -> str | None:
    """A contender that has too few blocks in common with each of the others, and fewer than they
    have, if there is one. Of one that can be compared with somebody the other pairs have no bounds,
    and it changes nothing between the others.
    """

    def short(name: str) -> int:
        return sum(len(blocks[name] & blocks[other]) < LEAST_BLOCKS for other in names if other != name)

    blocks = {name: comparison.every_value_of(name).keys() for name in names}
    ordered = sorted(names, key=lambda name: (-short(name), len(blocks[name])))
    if len(ordered) < 2 or short(ordered[0]) < len(ordered) - 1:  # noqa: PLR2004 - nobody to compare it with
        return None
    first, second = ordered[:2]
    alike = short(first) == short(second) and len(blocks[first]) == len(blocks[second])
    return None if alike else first


def ends(value: Value) -> Interval:
    """What a value lies between: a number between itself and itself."""
    return value if isinstance(value, tuple) else (value, value)


def middle_of(value: Value) -> float:
    """The middle of what a value lies between, by the logarithm; of one that is open to a side, its
    bound.
    """
    low, high = ends(value)
    if math.isinf(high):
        return low
    return low * math.sqrt(high / low) if low > 0 else high


def _logs(comparison: FigureComparison, one: str, other: str, blocks: Sequence[int]) -> PairLogs:
    """How much worse `one` is than `other`, block by block."""
    first, second = comparison.values_of(one, other), comparison.values_of(other, one)
    if comparison.better == "higher":
        first, second = second, first  # the ratio of two rates says how much worse its divisor is
    shared = np.array([block in first and block in second for block in blocks])
    ratios = [
        (_log_ratio(ends(first[block])[0], ends(second[block])[1]),
         _log_ratio(ends(first[block])[1], ends(second[block])[0]))
        if here else (0.0, 0.0)
        for block, here in zip(blocks, shared, strict=True)
    ]  # fmt: skip
    low, high = (np.array([each[end] for each in ratios]) for end in (0, 1))
    if np.array_equal(low, high):
        return PairLogs(names=(one, other), shared=shared, low=low, high=low)
    middle = [
        _log_ratio(middle_of(first[block]), middle_of(second[block])) if here else 0.0
        for block, here in zip(blocks, shared, strict=True)
    ]
    return PairLogs(
        names=(one, other),
        shared=shared,
        low=low if np.isfinite(low).all() else None,
        high=high if np.isfinite(high).all() else None,
        middle=np.array(middle),
    )


def _log_ratio(dividend: float, divisor: float) -> float:
    if dividend == 0 or math.isinf(divisor):
        return -math.inf
    if divisor == 0 or math.isinf(dividend):
        return math.inf
    return math.log(dividend) - math.log(divisor)


def _pair(logs: PairLogs, smallest: Array) -> tuple[tuple[str, str], Pair]:
    series = logs.bounded() if logs.blocks else []
    # Not the mean of the bounds: where a single value is open, one of them alone is left.
    middle = logs.low if logs.middle is None else logs.middle
    estimate = float(middle[logs.shared].mean()) if series and middle is not None else 0.0
    if logs.blocks < LEAST_BLOCKS:
        return logs.names, Pair(
            blocks=logs.blocks,
            estimate=estimate,
            low=-math.inf,
            high=math.inf,
            p_adjusted=1.0,
            is_estimated=bool(series),
        )
    critical = critical_t_of(logs.blocks, critical_p_of(smallest))
    low, p_low = _bound(logs.low, logs.shared, critical, side=-1)
    high, p_high = _bound(logs.high, logs.shared, critical, side=1)
    rarer = int(np.searchsorted(smallest, min(p_low, p_high), side="right"))
    return logs.names, Pair(
        blocks=logs.blocks,
        estimate=estimate,
        low=low,
        high=high,
        p_adjusted=min(1.0, (rarer + 1) / len(smallest)),
        is_estimated=bool(series),
    )


def _bound(
    series: Array | None, shared: NDArray[np.bool_], critical: float, *, side: Literal[-1, 1]
) -> tuple[float, float]:
    """The lower end of a pair's interval or the upper one, and the p of the mean where it shows
    that this end excludes 0: 1 where the mean lies on 0's other side.
    """
    if series is None:
        return side * math.inf, 1.0
    values = series[shared]
    mean, error = float(values.mean()), standard_error(values)
    beyond = max(0.0, -side * mean)
    if not error:
        return mean, 0.0 if beyond > SAME else 1.0
    return mean + side * critical * error, float(p_of(beyond / error, len(values)))


def _ranking(
    comparison: FigureComparison,
    names: Sequence[str],
    unranked: Mapping[str, str],
    found: Sequence[tuple[tuple[str, str], Pair]],
) -> Ranking:
    pairs = dict(found)
    pairs |= {(other, one): pair.reversed() for (one, other), pair in found}
    places = [_place(name, [pairs[name, other] for other in names if other != name]) for name in names]
    # Equal estimates: two that no other is better than. The one with less to lose comes first.
    places.sort(key=lambda place: (place.ratio, place.at_most))
    return Ranking(comparison=comparison, places=places, unranked=unranked, pairs=pairs)


def _place(name: str, against: Sequence[Pair]) -> RankedContender:
    return RankedContender(
        name=name,
        ratio=_exp(max((0.0, *(pair.estimate for pair in against)))),
        at_least=_exp(max((0.0, *(pair.low for pair in against)))),
        at_most=_exp(max((0.0, *(pair.high for pair in against)))),
    )


def _exp(log: float) -> float:
    return math.exp(log) if log < LARGEST_LOG else math.inf
