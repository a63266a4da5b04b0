"""The highest load that meets its limits, searched for and then confirmed. Pure: the measurement is
an argument.

1. A gentle trial at the lowest load. Then the load rises, to at most four times what was last
carried, until one fails.
2. Bisection on a logarithmic scale, until the bounds are near enough. A load is decided by the
first of two votes to
   reach a majority of the trials, so that one bad trial never decides.
3. Fresh, longer trials at the answer, never the search's own: seven of eight have to pass, else the
answer goes one
   step down and eight new ones are made. A search alone overstates: it stops at the load where luck
   was best, and a
   queue that grows slowly stays below a limit for as long as a short trial lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Measure = Callable[[int, bool], bool]
"""`measure(load, confirming)`: whether every limit was met; a confirming trial is one of the longer
ones."""

RISE = 4.0
"""No load is tried beyond this many times the highest that was carried."""
CONFIRMATIONS = 8
FAILURES_TOLERATED = 1
"""Of the confirming trials; each stands for a moment that is not the server's doing."""
STEP = 0.5
"""How far the answer goes down where it is not confirmed, in widths."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What is searched for, where, and how finely."""

    lowest: int
    """The floor: a load every server should carry."""
    highest: int
    """The load beyond which nobody asks."""
    width: float
    """Relative distance of the bounds at which the search ends."""
    trials: int
    """The most trials that decide about a load; more than half of them agree."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Where the capacity lies."""

    lower: int | None
    """The highest load that met the limits; None where the floor failed, or where none has been
    decided yet."""
    upper: int | None
    """The lowest load that did not; None where it never saturated, or where none has been decided
    yet."""
    finished: bool = True
    """Whether the bounds are as near as was asked, or one of them does not exist, and the lower one
    is confirmed."""
    confirmed: int = 0
    """Confirming trials made at `lower` that passed."""
    unconfirmed: tuple[int, ...] = ()
    """Loads that the search had found good and confirming trials did not."""


class OutOfPatience(Exception):  # noqa: N818 - an outcome, not an error
    """Raised by a measurement that is not to be made any more; the search then ends with the bounds
    it has.
    """


class Search:
    """One search, whose bounds are known at any time: when it ends, when it is given up, when it is
    interrupted.
    """

    def __init__(self, goal: Goal) -> None:
        self._goal = goal
        self._good: int | None = None
        self._bad: int | None = None
        self._confirmed = 0
        self._unconfirmed: list[int] = []

    def run(self, measure: Measure) -> Bounds:
        """Measure until the bounds are near enough and confirmed, or `measure` raises
        OutOfPatience.
        """
        try:
            self._find(measure)
            while self._good is not None and not self._confirm(measure, self._good):
                self._step_down()
        except OutOfPatience:
            return self.bounds(finished=False)
        return self.bounds(finished=True)

    def bounds(self, *, finished: bool = False) -> Bounds:
        """What the trials made until now have decided."""
        return Bounds(
            lower=self._good,
            upper=self._bad,
            finished=finished,
            confirmed=self._confirmed,
            unconfirmed=tuple(self._unconfirmed),
        )

    def trials_left(self) -> int | None:
        """About how many trials are still to come, confirming ones included; None while nothing has
        failed yet.
        """
        if self._good is None or self._bad is None:
            return None
        apart = math.log(self._bad / self._good) / math.log1p(self._goal.width)
        halvings = max(0, math.ceil(math.log2(max(apart, 1.0))))
        return halvings * (self._goal.trials // 2 + 1) + CONFIRMATIONS - self._confirmed

    def _find(self, measure: Measure) -> None:
        goal = self._goal
        if not self._carries(measure, goal.lowest):
            return
        while self._bad is None and self._last_good() < goal.highest:
            self._carries(measure, min(goal.highest, math.floor(self._last_good() * RISE)))
        while self._bad is not None and self._bad > self._last_good() * (1 + goal.width):
            middle = math.floor(math.sqrt(self._last_good() * self._bad))
            if not self._last_good() < middle < self._bad:
                return  # whole loads lie no nearer
            self._carries(measure, middle)

    def _last_good(self) -> int:
        return self._good if self._good is not None else self._goal.lowest

    def _carries(self, measure: Measure, load: int) -> bool:
        """Decide about a load: more than half of its trials."""
        needed = self._goal.trials // 2 + 1
        met = missed = 0
        while max(met, missed) < needed:
            if measure(load, False):  # noqa: FBT003 - the search's own trial
                met += 1
            else:
                missed += 1
        if met > missed:
            self._good = load
        else:
            self._bad = load
        return met > missed

    def _confirm(self, measure: Measure, load: int) -> bool:
        """Fresh trials at the answer."""
        self._confirmed = missed = 0
        while self._confirmed + missed < CONFIRMATIONS:
            if measure(load, True):  # noqa: FBT003 - a confirming trial
                self._confirmed += 1
            else:
                missed += 1
            if missed > FAILURES_TOLERATED:
                return False
        return True

    def _step_down(self) -> None:
        load = self._last_good()
        self._unconfirmed.append(load)
        self._bad = min(load, self._bad or load)
        self._confirmed = 0
        lower = min(load - 1, math.floor(load / (1 + STEP * self._goal.width)))
        self._good = lower if lower >= self._goal.lowest else None


def search(measure: Measure, goal: Goal) -> Bounds:
    """Find the bounds."""
    return Search(goal).run(measure)


GROWTH_TOLERATED = 0.005
"""The part of the offered rate by which a backlog may grow: a queue that grows has no response time
to hold."""
LUCK = 2.0
"""Standard deviations by which a backlog that does not grow may end above its mean."""


def backlog_growth(*, in_flight: float, completed_rate: float, mean_response_s: float, scheduled: float) -> float:
    """By which part of the offered rate the backlog of an open loop grew over the window; 0 where
    luck explains it.

    By Little's law the mean backlog is rate x mean response time. A backlog that grows steadily
    ends at twice its mean, so that half of its growth shows in the difference; one that is steady
    ends within a few square roots of its mean.
    """
    mean = completed_rate * mean_response_s
    beyond = in_flight - mean - LUCK * math.sqrt(max(mean, 1.0))
    return max(0.0, 2 * beyond / scheduled) if scheduled > 0 else 0.0
