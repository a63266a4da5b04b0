"""Whether the answer of a search is confirmed, or which lower one is. Pure.

Fresh trials, never those that found the answer: seven of eight have to pass, and then two longer
ones, or three of four, which show whether the load lasts. Else the answer goes down, and as many
new ones are made. The short ones come first, as two of them refuse a load that is too high; where a
load failed the long ones, these do. A load that there is no time to confirm is not begun once one
is confirmed; where trials are too short to tell and there is no time for longer ones, a lower load
is confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from plimsoll_lab.stats.budget import Budget
from plimsoll_lab.stats.finding import LENGTHEN_LEAST, Finding
from plimsoll_lab.stats.goal import CONFIRMATIONS, FAILURES_TOLERATED, HOLDS, Goal, between
from plimsoll_lab.stats.readings import Readings

STEP = 0.25
"""How far the answer first goes down where it is not confirmed, in widths; then twice as far each
time."""

Held = tuple[int, int, float, float]
"""A load that is confirmed, the trials that passed there, how many seconds these lasted together,
and each of the eight."""


class Confirming:
    """The loads that are tried as the answer, from the bounds that were found."""

    def __init__(self, goal: Goal, readings: Readings, budget: Budget, found: Finding) -> None:
        self._goal = goal
        self._readings = readings
        self._budget = budget
        self._found = found
        self._eight_s = 0.0
        """Seconds of the shortest trials that confirm, 0 until they begin."""
        self.hold_s = goal.hold_s
        """Seconds of the long trials, which become longer where they cannot tell."""
        self.to_pass = CONFIRMATIONS
        """How many of the eight are still to be made at the load that is being confirmed."""
        self.to_hold = HOLDS
        """The long trials that are still to pass there."""
        self.candidate: int | None = None
        """The load that is being confirmed."""
        self.confirmed = 0
        """How many trials have passed there."""
        self.held: Held | None = None
        """The highest load that is confirmed."""
        self.unconfirmed: list[int] = []
        """Loads that were tried as the answer, and failed."""
        self._held_s = 0.0
        self._untold: int | None = None
        """A load about which the trials that there is time for are too short to tell."""
        self._slackens = False
        """Whether a load failed the long trials that had passed the short ones."""

    @property
    def length_s(self) -> float:
        """Seconds of each of the eight trials; those of the trials that find, until they begin."""
        return max(self._found.length_s, self._eight_s)

    def run(self) -> bool:
        """Confirm the answer, or find a lower one that is confirmed; whether the bounds are as near
        then as was asked.
        """
        self._eight_s = self._goal.least_s
        candidate, step = self._found.good, STEP * self._goal.width
        while candidate is not None:
            self.candidate, self.confirmed, self._held_s = candidate, 0, 0.0
            self.to_pass, self.to_hold = CONFIRMATIONS, HOLDS
            carried = self._confirm(candidate)
            if carried:
                self.held = (candidate, self.confirmed, self._held_s, self.length_s)
            elif carried is None:
                # Nothing failed there: the answer may lie near.
                self._untold, step = candidate, self._goal.width / 2
            else:
                self._refute(candidate)
            if self.held is not None:
                candidate = self._above(self.held[0])
                if candidate is not None and not self._has_time_for(1):
                    break
            else:
                if not self._has_time_for(1):
                    self._eight_s, self.hold_s = self._goal.least_s, self._goal.hold_s
                candidate = self._below(candidate, step) if self._has_time_for(2) else self._far_below(candidate, step)
                step *= 2
        bad = self._found.bad
        if self.held is None:
            self.candidate = None
            # Where the lowest load failed, those above it that told nothing are no matter.
            return self._untold is None or bad == self._goal.lowest
        if bad is None:
            return self.held[0] == self._goal.highest
        return self._goal.is_near(self.held[0], bad)

    def answer(self) -> tuple[int | None, int, float, float]:
        """The highest load that is confirmed; until one is, the one that is being confirmed, or the
        highest below it, at which a trial has passed. Where nothing failed above that one, and
        nothing confirms it yet, the load at which the search came here. With the trials that
        confirm it, and how long these lasted.
        """
        if self.held is not None:
            return self.held
        bad = self._found.bad
        nothing_failed = self._untold is not None and (bad is None or self._untold < bad)
        if self.candidate is None or (nothing_failed and not self.confirmed):
            return self._found.good, 0, 0.0, self.length_s
        lower = max(load for load in self._found.carried if load <= self.candidate)
        return lower, self.confirmed, self._held_s, self.length_s

    def _refute(self, load: int) -> None:
        if self.held is None:
            self.unconfirmed.append(load)
        self._found.refute(load)

    def _below(self, load: int, step: float, rounded: Callable[[float], int] = math.floor) -> int | None:
        """The next load to confirm below one that was not; None below the lowest."""
        lower = max(self._goal.lowest, min(load - 1, rounded(load / (1 + step))))
        return lower if lower < load else None

    def _far_below(self, load: int, step: float) -> int | None:
        """The same where there is time for no second one: at least the width below, and no further
        than that from it if that is enough.
        """
        width = self._goal.width
        return self._below(load, step) if step > width else self._below(load, width, math.ceil)

    def _above(self, held: int) -> int | None:
        """The next load to confirm above one that is; None where that is near enough to one that is
        not.
        """
        above = self._nearest_above()
        return between(held, round(above)) if held * (1 + self._goal.width / 2) < above < math.inf else None

    def _nearest_above(self) -> float:
        """The lowest load that is not confirmed; infinite where there is none."""
        return min((each for each in (self._found.bad, self._untold) if each is not None), default=math.inf)

    def _has_time_for(self, loads: int) -> bool:
        """Whether the patience lasts for so many more loads that are confirmed."""
        return self._budget.lasts_for(loads, self.length_s, self.hold_s)

    def _longer_s_of_eight(self) -> float | None:
        """How long the eight trials may become; None where they may not."""
        most_s, length_s = self._goal.most_s, self.length_s
        affordable_s = self._budget.length_of_eight_s(length_s, self.hold_s)
        if affordable_s < min(most_s, LENGTHEN_LEAST * length_s) or length_s >= most_s:
            return None
        return min(most_s, affordable_s, 2 * length_s)

    def _confirm(self, load: int) -> bool | None:
        """Fresh trials at the answer; None where they are too short to show that the load lasts.

        Where long trials refuted a load that short ones had passed, the long ones come first.
        """
        parts = (self._lasts, self._repeats) if self._slackens else (self._repeats, self._lasts)
        return parts[0](load) and parts[1](load)

    def _repeats(self, load: int) -> bool | None:
        """Whether seven of eight trials pass; longer ones where they are too short to tell."""
        held_s = self._held_s
        while (carried := self._passes(load)) is None and (longer_s := self._longer_s_of_eight()) is not None:
            self._eight_s, self.confirmed, self._held_s, self.to_pass = longer_s, 0, held_s, CONFIRMATIONS
        return carried

    def _passes(self, load: int) -> bool | None:
        missed = untold = 0
        while missed <= FAILURES_TOLERATED:
            if self.to_pass == 0:
                return True
            met = self._readings.read(load, self.length_s).met
            if met:
                self.confirmed += 1
                self._held_s += self.length_s
                self._found.carried.append(load)
            else:
                missed += 1
                untold += met is None
            self.to_pass = CONFIRMATIONS - self.confirmed - missed
        return None if untold else False

    def _lasts(self, load: int) -> bool | None:
        """Whether two long trials pass, or three of four: one may have met a moment that is not the
        server's doing. They become longer where they are too short to tell.
        """
        if self.hold_s <= self.length_s:
            return True
        confirmed, held_s = self.confirmed, self._held_s
        while (carried := self._holds(load)) is None:
            longer_s = min(self._goal.most_s, 2 * self.hold_s)
            if longer_s <= self.hold_s or not self._budget.lasts_for_long_ones(longer_s):
                return None
            self.hold_s, self.to_hold = longer_s, HOLDS
            self.confirmed, self._held_s = confirmed, held_s
        self._slackens = self._slackens or not carried
        return carried

    def _holds(self, load: int) -> bool | None:
        confirmed, held_s = self.confirmed, self._held_s
        passed = missed = untold = 0
        while missed <= FAILURES_TOLERATED:
            if passed == HOLDS + missed:
                return True
            met = self._readings.read(load, self.hold_s).met
            if met:
                passed += 1
                self._found.carried.append(load)
            else:
                missed += 1
                untold += met is None
            self.to_hold = HOLDS + missed - passed
            # After one that failed, nothing is confirmed until enough of them pass.
            shown = missed == 0 or passed == HOLDS + missed
            self.confirmed, self._held_s = (confirmed, held_s + passed * self.hold_s) if shown else (0, 0.0)
        return None if untold else False
