"""Servers that are known exactly, and every trial that a search makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from plimsoll_lab.stats.capacity import Bounds, Search, search
from plimsoll_lab.stats.goal import Goal
from plimsoll_lab.stats.readings import Measure, Reading

GOAL = Goal(lowest=10, highest=1000, width=0.5, trials=1)
"""One trial decides. Bounds are half as far again apart, a quarter once an answer is confirmed."""
Trial = tuple[int, float]
"""The load of a trial, and its seconds."""


def made(goal: Goal, measure: Measure) -> tuple[list[Trial], Bounds]:
    """The trials of a search, and what it found."""
    trials: list[Trial] = []

    def told(load: int, length_s: float) -> Reading:
        trials.append((load, length_s))
        return measure(load, length_s)

    return trials, search(told, goal)


def carries(most: Callable[[float], float]) -> Measure:
    """A server that carries so much in trials of a length."""
    return lambda load, length_s: Reading(met=load <= most(length_s))


RISING: list[Trial] = [(10, 1), (40, 1), (160, 1), (80, 1), (113, 1)]
"""Four times as much each time until 160 fails; then sqrt(40 x 160) = 80, and sqrt(80 x 160) = 113,
which is less than half as much again."""
SEARCHED: list[Trial] = [*RISING, (113, 5)]
"""And 113 once more, as long as what confirms an answer."""


BLIND = replace(GOAL, trials=3, least_s=1, most_s=4)


def blindly(most: Callable[[float], float]) -> Measure:
    """Readings that do not change with the load: nobody knows how long trials have to be."""
    return lambda load, length_s: Reading(met=load <= most(length_s), excess=-0.1)


def twice(*trials: Trial) -> list[Trial]:
    """Two of three trials decide."""
    return [each for each in trials for _ in range(2)]


def patient(patience_s: float, *, least_told_s: float = 0.0, most: Callable[[float], float]) -> tuple[Goal, Measure]:
    """A goal, and a server of which trials at 60 or more tell nothing unless they are so long. A
    trial takes half as long again as its window.
    """
    spent_s = 0.0

    def measure(load: int, length_s: float) -> Reading:
        nonlocal spent_s
        assert spent_s < patience_s
        spent_s += 1.5 * length_s
        met: bool | None = load <= most(length_s)
        if met and load >= 60 and 1 < length_s < least_told_s:
            met = None
        return Reading(met=met, took_s=1.5 * length_s)

    return replace(GOAL, patience_s=patience_s), measure


def left_at(goal: Goal, measure: Measure, trials: Sequence[int]) -> list[float | None]:
    """What a search says is left before these of its trials, the first one 0."""
    found: list[float | None] = []

    def told(load: int, length_s: float) -> Reading:
        found.append(hunt.left_s())
        return measure(load, length_s)

    hunt = Search(goal, told)
    hunt.run()
    return [found[each] for each in trials]
