"""The highest load that meets its limits, searched for and then confirmed. Pure: the measurement is
an argument.

1. A gentle trial at the lowest load. Then the load rises, to at most four times the last load that
   passed, until one fails. Bisection on a logarithmic scale follows (`finding.py`).
2. Trials are made longer until one of them can distinguish loads that differ by the width asked
   for. In a short trial a growing queue has not grown yet, and a percentile is a matter of luck.
   Where trials as long as those of 3 pass at the load that failed, the search rises again from it,
   with trials twice as long.
3. Fresh trials at the answer, never the search's own: seven of eight have to pass, and then two
   longer ones. Else the answer goes down, and as many new ones are made (`confirming.py`).

What there is no time for is not begun (`budget.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from plimsoll_lab.stats.budget import Budget
from plimsoll_lab.stats.confirming import Confirming
from plimsoll_lab.stats.finding import NOISE_TOLERATED, Finding
from plimsoll_lab.stats.goal import Goal
from plimsoll_lab.stats.readings import WARM_UP, Measure, Readings


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
    is_held: bool = False
    """Whether all fresh trials that are asked for there have passed, the long ones too."""
    upper_s: float = 0.0
    """Seconds of the longest trials that failed at `upper`."""
    unconfirmed: tuple[int, ...] = ()
    """Loads that were tried as the answer, and failed confirming trials."""
    trial_s: float = 0.0
    """Seconds of each confirming trial."""
    held_s: float = 0.0
    """Seconds of the confirming trials at `lower` that passed, together."""
    precision: float | None = None
    """Relative distance of loads that trials of this length tell apart; None where too few lay near
    the limit, as they met or missed it clearly."""


class OutOfPatience(Exception):  # noqa: N818 - an outcome, not an error
    """Raised by a measurement that is not to be made any more; the search then ends with the bounds
    it has.
    """


class Search:
    """One search, whose bounds are known at any time: when it ends, when it is given up, when it is
    interrupted.
    """

    def __init__(self, goal: Goal, measure: Measure) -> None:
        self._goal = goal
        self._readings = Readings(measure)
        self._budget = Budget(goal, self._readings)
        self._found = Finding(goal, self._readings, self._budget)
        self._confirming = Confirming(goal, self._readings, self._budget, self._found)

    def run(self) -> Bounds:
        """Measure until the bounds are near enough and confirmed, or `measure` raises
        OutOfPatience.
        """
        try:
            finished = not self._found.run() or self._confirming.run()
        except OutOfPatience:
            held, bad = self._confirming.held, self._found.bad
            finished = held is not None and bad is not None and self._goal.is_near(held[0], bad)
        return self.bounds(finished=finished)

    def bounds(self, *, finished: bool = False) -> Bounds:
        """What the trials made until now have decided."""
        lower, confirmed, held_s, trial_s = self._confirming.answer()
        noise = self._readings.noise(trial_s)
        lower, upper = self._found.bounds(lower)
        return Bounds(
            lower=lower,
            upper=upper,
            finished=finished,
            upper_s=self._found.failed.get(upper or 0, 0.0),
            confirmed=confirmed,
            is_held=self._confirming.held is not None,
            unconfirmed=tuple(self._confirming.unconfirmed),
            trial_s=trial_s,
            held_s=held_s,
            precision=None if noise is None else noise / NOISE_TOLERATED,
        )

    def left_s(self) -> float | None:
        """About how many seconds of trials are still to come; None while nothing has failed yet."""
        now = self._confirming
        bounds = self.bounds()
        lower, upper = now.candidate or self._found.good or bounds.lower, bounds.upper
        if lower is None or upper is None:
            return None
        halvings = max(0, math.ceil(math.log2(max(1.0, _apart(lower, upper, self._goal.width / 2)))))
        searching_s = halvings * self._goal.majority * now.length_s
        confirming_s = now.to_pass * max(now.length_s, self._goal.least_s)
        holding_s = now.to_hold * now.hold_s if now.hold_s > now.length_s else 0.0
        patience_s = max(0.0, self._budget.left_s()) / (1 + WARM_UP)
        return min(patience_s, searching_s + confirming_s + holding_s)


def search(measure: Measure, goal: Goal) -> Bounds:
    """Find the bounds."""
    return Search(goal, measure).run()


def _apart(low: int, high: int, width: float) -> float:
    return math.log(high / low) / math.log1p(width)
