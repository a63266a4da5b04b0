"""The bounds of the highest load that meets its limits, before the answer is confirmed. Pure.

A gentle trial at the lowest load. Then the load rises, to at most four times the last load that
passed, until one fails, and bisection on a logarithmic scale follows. Trials are made longer until
one of them can distinguish loads that differ by the width asked for.
"""

from __future__ import annotations

import math

from plimsoll_lab.stats.budget import Budget
from plimsoll_lab.stats.goal import Goal, between
from plimsoll_lab.stats.readings import Readings

RISE = 4.0
"""No load is tried beyond this many times the highest that passed."""
NOISE_TOLERATED = 0.4
"""The standard deviation of one trial's verdict, in widths. Seven of eight trials pass 1.15
deviations below the capacity, and at a width above it one in three thousand sets of eight does."""
LENGTHEN = 4.0
"""Trials get at most this many times as long at once: the noise of short ones is a poor guide."""
LENGTHEN_LEAST = 1.5
"""Less is not worth a new search."""
LENGTHEN_BLINDLY = 2.0
"""Where the readings do not show how long trials have to be, or short ones misled."""


class Finding:
    """The loads that trials have decided about, by the longest trials of each."""

    def __init__(self, goal: Goal, readings: Readings, budget: Budget) -> None:
        self._goal = goal
        self._readings = readings
        self._budget = budget
        self.good: int | None = None
        """The highest load that passed; None where trials as long as the present ones have not
        decided yet."""
        self.bad: int | None = None
        """The lowest that failed; None likewise."""
        self.carried: list[int] = []
        """Loads that passed, by trials of any length."""
        self.shorter_good: int | None = None
        """The highest load that shorter trials passed."""
        self.failed: dict[int, float] = {}
        """Loads that failed, and the seconds of the trials that did."""
        self.length_s = goal.first_s
        """Seconds of the present trials."""

    def run(self) -> bool:
        """Measure until the bounds are as near as trials of such a length can tell; whether the
        lowest load passes.
        """
        if not self._carries_lowest():
            return False
        self._rise()
        self._lengthen()
        while self._passes_after_all():
            self._lengthen()
        return True

    def bounds(self, lower: int | None) -> tuple[int | None, int | None]:
        """The bounds, where the lower one is this. Without one it is what shorter trials say."""
        if lower is None and self.bad is not None:
            # Longer trials have refuted the load to go on from, and shorter ones passed below it.
            lower = self._highest_below(self.bad)
        lower, upper = (self.shorter_good, None) if lower is None and self.bad is None else (lower, self.bad)
        if upper is None:
            # Longer trials have not come yet to where shorter ones failed, or have passed there.
            passed = max(lower or 0, self.good or 0)
            upper = min((load for load in self.failed if load > passed), default=None)
        return lower, upper

    def fail(self, load: int) -> None:
        """The last trial was one of those that failed at a load."""
        self.bad = load
        self.failed[load] = self._readings.last_s

    def refute(self, load: int) -> None:
        """A load that had passed has failed; the next lower one that passed remains."""
        self.fail(load)
        self.good = self._highest_below(load)

    def _highest_below(self, load: int) -> int | None:
        return max((each for each in self.carried if each < load), default=None)

    def _lengthen(self) -> None:
        """Search with trials that become longer until they are long enough."""
        while (longer_s := self._longer_s()) is not None:
            self._search_again(longer_s)

    def _carries_lowest(self) -> bool:
        """Whether the lowest load passes, or does so with trials as long as those that confirm."""
        if self._decide(self._goal.lowest):
            return True
        return self.failed[self._goal.lowest] < self._goal.least_s and self._is_overruled(self._goal.lowest)

    def _passes_after_all(self) -> bool:
        """Whether the load that failed passes trials as long as those that confirm an answer, and
        the search went on from there: what shorter ones fell to was a moment's, or comes of their
        being short, and they become twice as long. Neither is done where the patience lasts for no
        more than an answer.
        """
        load, least_s = self.bad, self._goal.least_s
        if load is None or self.failed[load] >= least_s:
            return False
        if not self._has_time_beside_an_answer(self._budget.deciding_s(least_s)):
            return False
        if not self._is_overruled(load):
            return False
        longer_s = min(least_s, LENGTHEN_BLINDLY * self.length_s)
        if not self._has_time_beside_an_answer(self._budget.searching_s(longer_s)):
            return False
        self.length_s = longer_s
        self._go_on(load, self._goal.width, carried=True)
        return True

    def _has_time_beside_an_answer(self, seconds: float) -> bool:
        goal = self._goal
        return self._budget.lasts_for(1, max(self.length_s, goal.least_s), goal.hold_s, beside_s=seconds)

    def _is_overruled(self, load: int) -> bool:
        """Whether a load that has failed passes more than half of its trials that are as long as
        those that confirm. What shorter ones failed is no matter then. Some tell nothing.
        """
        needed, length_s = self._goal.majority, self._goal.least_s
        passed = failed = untold = 0
        while max(passed, failed + untold) < needed:
            met = self._readings.read(load, length_s).met
            passed, failed, untold = passed + (met is True), failed + (met is False), untold + (met is None)
        if passed == needed:
            self.good, self.bad = load, None
            self.carried.append(load)
            self.failed.clear()
        elif failed:
            self.fail(load)
        return passed == needed

    def _rise(self) -> None:
        goal = self._goal
        first = RISE ** (1 - goal.shift / 2)
        while self.bad is None and self._last_good() < goal.highest:
            factor = first if self._last_good() == goal.lowest else RISE
            self._decide(min(goal.highest, math.floor(self._last_good() * factor)))
        # The shift of a range that is narrower than the first rise.
        self._bisect(goal.width, 0.5 + goal.shift / 6)

    def _bisect(self, width: float, part: float = 0.5) -> None:
        while self.bad is not None and self.bad > self._last_good() * (1 + width):
            middle = between(self._last_good(), self.bad, part)
            if middle is None:
                return
            self._decide(middle)
            part = 0.5

    def _search_again(self, length_s: float) -> None:
        """Find the bounds with longer trials, from where the shorter ones have ended."""
        noise = self._readings.noise(self.length_s) or 0.0
        start = self._last_good()
        self.length_s = length_s
        self.shorter_good = self.good
        self.good = self.bad = None
        self._go_on(start, max(self._goal.width, 2 * min(noise, 0.25)), carried=self._decide(start))

    def _go_on(self, load: int, step: float, *, carried: bool) -> None:
        """Find the bounds from a load that is carried, or is not, by steps that double."""
        while (self.bad if carried else self.good) is None:
            further = math.floor(load * (1 + step)) + 1 if carried else math.floor(load / (1 + step))
            further = min(self._goal.highest, max(self._goal.lowest, further), math.floor(load * RISE))
            if further == load:
                return  # the range ends here
            load = further
            self._decide(load)
            step = min(2 * step, RISE - 1)
        self._bisect(self._goal.width / 2)

    def _last_good(self) -> int:
        return self.good if self.good is not None else self._goal.lowest

    def _decide(self, load: int) -> bool:
        """Decide about a load: more than half of its trials."""
        met = missed = 0
        while max(met, missed) < self._goal.majority:
            # A trial too short to show that the load lasts guides the search all the same.
            if self._readings.read(load, self.length_s).met is False:
                missed += 1
            else:
                met += 1
        if met > missed:
            self.good = load
            self.carried.append(load)
        else:
            self.fail(load)
        return met > missed

    def _longer_s(self) -> float | None:
        """How long trials have to be; None where they are long enough, or as long as they may
        be.
        """
        noise = self._readings.noise(self.length_s)
        if noise is None or self.bad is None or self.length_s >= self._goal.most_s:
            return None
        # The error of a mean falls with the root of its length.
        times = (noise / (NOISE_TOLERATED * self._goal.width)) ** 2
        if times <= 1:
            return None
        times = LENGTHEN_BLINDLY if math.isinf(times) else min(LENGTHEN, max(LENGTHEN_LEAST, times))
        affordable_s = self._budget.length_of_search_s()
        if affordable_s < LENGTHEN_LEAST * self.length_s:
            return None
        return min(self._goal.most_s, affordable_s, self.length_s * times)
