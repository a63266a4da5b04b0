"""What may be said of each figure at each setting: who is best, how much worse the others are, and
why no more.

The comparisons are one family, stated before the run. Everything here follows from the comparison
with the best.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plimsoll_lab.stats.best import FigureComparison, Interval, Pair, RankedContender, Ranking, compare_with_best
from plimsoll_lab.stats.compare import control_floor, shared_of
from plimsoll_lab.stats.reasons import percent, reasons_once
from plimsoll_lab.stats.results import Call


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The outcome of one comparison."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    at: Mapping[str, object]
    """The setting of the other axes."""
    contenders: Sequence[str]
    """Contenders that were compared, the best estimate first."""
    best: Sequence[str]
    """Contenders that cannot be distinguished from the best."""
    best_within: float | None
    """How many times worse than the best any of these may be; None where nothing bounds it."""
    others: Sequence[RankedContender]
    """The contenders that are worse, and how many times."""
    unranked: Mapping[str, str]
    """Those with results that could not be compared, and why."""
    winner: str | None
    """The contender with the best estimate."""
    runner_up: str | None
    """The one that comes nearest to it."""
    ratio: float | None
    """The winner's figure over the runner-up's: the ratio of their geometric means over the blocks
    both have."""
    ratio_ci95: Interval | None
    """Its interval, simultaneous over the family; None where an end has no bound."""
    p_adjusted: float | None
    """That these two are alike, adjusted over the family; below 0.05 exactly where the interval
    excludes 1."""
    noise_floor: float | None
    """How far the A/A control lies from itself: a ratio minus 1; None without a control."""
    blocks: int
    """Blocks in which both were measured."""
    call: Call
    """What may be said of winner and runner-up."""
    level: Sequence[str]
    """Contenders whose interval against the winner lies within the margin."""
    reason: str
    """Why no more, or no less, may be said."""


def decide(family: Sequence[FigureComparison], *, margin: float, seed: int) -> list[Verdict]:
    """Answer a whole family. The same numbers and seed give the same answers."""
    return verdicts(rank(family, seed=seed), margin=margin, seed=seed)


def rank(family: Sequence[FigureComparison], *, seed: int) -> list[Ranking]:
    """The comparison with the best behind every answer."""
    return compare_with_best(family, np.random.default_rng([seed, 0]))


def verdicts(rankings: Sequence[Ranking], *, margin: float, seed: int) -> list[Verdict]:
    """The answers that follow from rankings."""
    return [_verdict(each, margin, np.random.default_rng([seed, 1, at])) for at, each in enumerate(rankings)]


def _verdict(ranking: Ranking, margin: float, rng: np.random.Generator) -> Verdict:
    comparison = ranking.comparison
    winner, runner_up, pair = _leaders(ranking)
    floor = _control(comparison, rng)
    within = _within_floor(ranking, winner, floor)
    best = [place for place in ranking.places if place.may_be_best or place.name in within]
    call, reason = _call(ranking, pair, margin, floor, [place.name for place in best])
    reaches = [place.at_most for place in best]
    level = [
        place.name
        for place in ranking.places[1:]
        if winner is not None and _within(ranking.pairs[place.name, winner], margin)
    ]
    sign = -1 if comparison.better == "lower" else 1
    return Verdict(
        figure=comparison.figure,
        better=comparison.better,
        at=comparison.at,
        contenders=[place.name for place in ranking.places]
        or [name for name, each in comparison.contenders.items() if each],
        best=[place.name for place in best],
        best_within=max(reaches) if reaches and math.isfinite(max(reaches)) else None,
        others=[place for place in ranking.others if place.name not in within],
        unranked=ranking.unranked,
        winner=winner,
        runner_up=runner_up,
        ratio=None if pair is None or not pair.is_estimated else math.exp(sign * pair.estimate),
        ratio_ci95=None if pair is None else _interval(pair, sign),
        p_adjusted=None if pair is None else pair.p_adjusted,
        noise_floor=floor,
        blocks=0 if pair is None else pair.blocks,
        call=call,
        level=level,
        reason=reason,
    )


def _leaders(ranking: Ranking) -> tuple[str | None, str | None, Pair | None]:
    """The best estimate, the nearest to it, and how much worse that is than the best."""
    if not ranking.places:
        return None, None, None
    winner = ranking.places[0].name
    rivals = {place.name: ranking.pairs[place.name, winner] for place in ranking.places[1:]}
    if not rivals:
        return winner, None, None
    runner_up = min(rivals, key=lambda name: rivals[name].estimate)
    if rivals[runner_up].estimate < 0:
        # Different pairs have different blocks, so that each contender may have one that is ahead
        # of it.
        return None, None, None
    return winner, runner_up, rivals[runner_up]


def _interval(pair: Pair, sign: int) -> Interval | None:
    return (pair if sign > 0 else pair.reversed()).ratio_bounds


def _within(pair: Pair, margin: float) -> bool:
    return -math.log1p(margin) <= pair.low and pair.high <= math.log1p(margin)


def _control(comparison: FigureComparison, rng: np.random.Generator) -> float | None:
    """How far apart the A/A control finds two that are one."""
    if comparison.control is None:
        return None
    one, again = shared_of(comparison.control)
    return control_floor(one.values(), again.values(), rng)


def _within_floor(ranking: Ranking, winner: str | None, floor: float | None) -> list[str]:
    """The contenders that are shown to be worse, by no more than one contender differs from itself:
    they cannot be distinguished from the best either.
    """
    if winner is None or floor is None:
        return []
    nearest = math.log1p(floor)
    return [place.name for place in ranking.others if ranking.pairs[place.name, winner].estimate <= nearest]


def _call(
    ranking: Ranking, pair: Pair | None, margin: float, floor: float | None, best: Sequence[str]
) -> tuple[Call, str]:
    if pair is None:
        return _no_pair(ranking)
    if pair.low > 0 and len(ranking.best) == 1:
        if floor is not None and pair.estimate <= math.log1p(floor):
            return "not shown", f"the difference is within the control's noise floor of {percent(floor)}"
        return "better", f"every other contender's interval against {ranking.best[0]} excludes 1"
    alike = [ranking.pairs[one, other] for one, other in itertools.combinations(best, 2)]
    if all(_within(each, margin) for each in (pair, *alike)):
        return "equivalent", f"the interval lies within {margin * 100:g} %"
    if len(best) == 1:
        return "not shown", "the one contender that may be best cannot be distinguished from the next one"
    return "not shown", f"{len(best)} contenders may be best, and cannot be distinguished"


def _no_pair(ranking: Ranking) -> tuple[Call, str]:
    comparison = ranking.comparison
    if comparison.obstacle is not None:
        return "not shown", comparison.obstacle
    if len(ranking.places) > 1:
        return "not shown", "no contender is ahead of every other in the blocks that both have"
    short = reasons_once(ranking.unranked)
    if ranking.places:
        without = [name for name in comparison.absent if name not in comparison.untold]
        absent = f"{', '.join(without)}: no result" if without else ""
        others = "; ".join(each for each in (absent, short) if each)
        return "not shown", "no other contender could be compared here" + (f": {others}" if others else "")
    if any(comparison.contenders.values()):
        return "not shown", short
    return "invalid", "no contender has a valid result here"
