"""Who wins, by how much, and whether the data can say so.

A family of questions is stated before the run: one for each figure at each setting of the other axes. Each compares the
winner with the runner-up. *Better* needs three things at once: the interval of the ratio excludes 1, p adjusted over
the whole family is below 0.05, and the difference is larger than the noise floor.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from plimsoll_lab.stats.compare import (
    control_floor,
    holm,
    noise_floor,
    permutation_p,
    ratio_interval,
    ratio_of_medians,
    smallest_p,
)
from plimsoll_lab.stats.summary import Interval

SIGNIFICANCE = 0.05
LEAST_BLOCKS = 6
"""A bootstrap of fewer is narrower than the truth; below six no interval of a median reaches 95 % either."""

Call = Literal["better", "equivalent", "not shown", "invalid"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One comparison of the family."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    at: Mapping[str, object]
    """The setting of the other axes."""
    contenders: Mapping[str, Mapping[int, float]]
    """Of each contender that was measured here, the figure by block."""
    absent: Sequence[str] = ()
    """Contenders without a result here: stopped, failed, or not valid."""
    control: tuple[Mapping[int, float], Mapping[int, float]] | None = None
    """One contender measured twice, by block: the A/A control; None where the suite has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """The answer to one question."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    at: Mapping[str, object]
    """The setting of the other axes."""
    contenders: Sequence[str]
    """Those with a result here, the best median first."""
    winner: str | None
    """The contender with the best median."""
    runner_up: str | None
    """The one with the second best."""
    ratio: float | None
    """Median of the winner over median of the runner-up."""
    ratio_ci95: Interval | None
    """Block-paired bootstrap interval of that ratio."""
    p_adjusted: float | None
    """Permutation test over blocks, Holm-adjusted over the family."""
    noise_floor: float | None
    """Relative difference that the same contender shows against itself."""
    blocks: int
    """Blocks in which both were measured."""
    call: Call
    """What may be said."""
    level: Sequence[str]
    """Contenders whose own interval against the winner lies within the margin; a description, not a test."""
    reason: str
    """Why no more, or no less, may be said."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Measured:
    """A question with its numbers, before the family has been adjusted for."""

    question: Question
    ranked: Sequence[str] = ()
    winner: str | None = None
    runner_up: str | None = None
    ratio: float | None = None
    interval: Interval | None = None
    p: float = 1.0
    floor: float | None = None
    blocks: int = 0
    level: Sequence[str] = ()
    obstacle: str | None = None


def can_say_better(*, blocks: int, family: int) -> bool:
    """Whether so many blocks could ever tell a winner, were every block to agree."""
    return family * smallest_p(blocks) < SIGNIFICANCE


def blocks_needed(family: int) -> int:
    """The fewest blocks with which a family of this size can tell a winner."""
    return next(blocks for blocks in range(1, 64) if can_say_better(blocks=blocks, family=family))


def decide(family: Sequence[Question], *, margin: float, seed: int) -> list[Verdict]:
    """Answer a whole family. The same numbers and seed give the same answers."""
    measured = [_measure(question, margin, np.random.default_rng([seed, at])) for at, question in enumerate(family)]
    adjusted = holm([each.p for each in measured])
    return [_answer(each, p, margin, len(family)) for each, p in zip(measured, adjusted, strict=True)]


def _measure(question: Question, margin: float, rng: np.random.Generator) -> _Measured:
    values = {name: by_block for name, by_block in question.contenders.items() if by_block}
    if not values:
        return _Measured(question=question, obstacle="no contender has a valid result here")
    if any(value <= 0 for by_block in values.values() for value in by_block.values()):
        return _Measured(question=question, obstacle="a value of zero has no ratio to another")
    sign = -1 if question.better == "higher" else 1
    ranked = sorted(values, key=lambda name: sign * statistics.median(values[name].values()))
    if len(ranked) == 1:
        others = f": {', '.join(question.absent)} stopped before" if question.absent else ""
        return _Measured(
            question=question, ranked=ranked, winner=ranked[0], obstacle=f"nobody else was measured here{others}"
        )
    winner, runner_up = ranked[:2]
    shared = sorted(values[winner].keys() & values[runner_up].keys())
    if not shared:
        return _Measured(
            question=question,
            ranked=ranked,
            winner=winner,
            runner_up=runner_up,
            obstacle="no block holds a valid trial of both",
        )
    first = [values[winner][block] for block in shared]
    second = [values[runner_up][block] for block in shared]
    common = sorted(set.intersection(*(set(by_block) for by_block in values.values())))
    halves = noise_floor({name: [by_block[block] for block in common] for name, by_block in values.items()}, rng)
    floor = max((each for each in (halves, _control(question, rng)) if each is not None), default=None)
    interval = ratio_interval(first, second, rng) if len(shared) >= LEAST_BLOCKS else None
    alike = interval is not None and _within(interval, margin)
    level = [name for name in ranked[2:] if alike and _within(_against(values[winner], values[name], rng), margin)]
    return _Measured(
        question=question,
        ranked=ranked,
        winner=winner,
        runner_up=runner_up,
        ratio=ratio_of_medians(first, second),
        interval=interval,
        p=permutation_p(first, second, rng),
        floor=floor,
        blocks=len(shared),
        level=(runner_up, *level) if alike else (),
    )


def _control(question: Question, rng: np.random.Generator) -> float | None:
    """What the A/A control says of the noise; it can only raise the floor."""
    if question.control is None:
        return None
    one, again = question.control
    shared = sorted(one.keys() & again.keys())
    if not shared or min(*(one[block] for block in shared), *(again[block] for block in shared)) <= 0:
        return None
    return control_floor([one[block] for block in shared], [again[block] for block in shared], rng)


def _against(winner: Mapping[int, float], other: Mapping[int, float], rng: np.random.Generator) -> Interval:
    shared = sorted(winner.keys() & other.keys())
    if len(shared) < LEAST_BLOCKS:
        return (0.0, math.inf)
    return ratio_interval([winner[block] for block in shared], [other[block] for block in shared], rng)


def _answer(measured: _Measured, p_adjusted: float, margin: float, family: int) -> Verdict:
    call, reason = _call(measured, p_adjusted, margin, family)
    question = measured.question
    return Verdict(
        figure=question.figure,
        better=question.better,
        at=question.at,
        contenders=measured.ranked,
        winner=measured.winner,
        runner_up=measured.runner_up,
        ratio=measured.ratio,
        ratio_ci95=measured.interval,
        p_adjusted=None if measured.ratio is None else p_adjusted,
        noise_floor=measured.floor,
        blocks=measured.blocks,
        call=call,
        level=measured.level,
        reason=reason,
    )


def _within(interval: Interval, margin: float) -> bool:
    return 1 / (1 + margin) <= interval[0] and interval[1] <= 1 + margin


def _call(measured: _Measured, p_adjusted: float, margin: float, family: int) -> tuple[Call, str]:
    ratio, interval = measured.ratio, measured.interval
    if ratio is None or interval is None:
        call: Call = "invalid" if measured.winner is None else "not shown"
        return call, measured.obstacle or f"{measured.blocks} blocks are too few for an interval"
    low, high = interval
    doubts = []
    if low <= 1 <= high:
        doubts.append("the interval of the ratio holds 1")
    if p_adjusted >= SIGNIFICANCE:
        if can_say_better(blocks=measured.blocks, family=family):
            doubts.append(f"p is {p_adjusted:.2g} over the family of {family}")
        else:
            doubts.append(f"{measured.blocks} blocks are too few for a family of {family}")
    if measured.floor is None:
        doubts.append("too few blocks to know the noise floor")
    elif abs(math.log(ratio)) <= math.log1p(measured.floor):
        doubts.append(f"the difference is within the noise floor of {measured.floor:.1%}")
    if not doubts:
        return "better", f"interval excludes 1, p {p_adjusted:.2g}, noise floor {measured.floor:.1%}"
    if _within(interval, margin):
        return "equivalent", f"the interval lies within {margin:.0%}"
    return "not shown", "; ".join(doubts)
