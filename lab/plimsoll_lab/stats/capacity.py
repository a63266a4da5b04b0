"""The highest load that meets its limits, searched for and then confirmed. Pure: the measurement is
an argument.

1. A gentle trial at the lowest load. Then the load rises, to at most four times the last load that
   passed, until one fails. Bisection on a logarithmic scale follows.
2. Trials are made longer until one of them can distinguish loads that differ by the width asked
   for. In a short trial a growing queue has not grown yet, and a percentile is a matter of luck.
   Where trials as long as those of 3 pass at the load that failed, the search rises again from it,
   with trials twice as long.
3. Fresh trials at the answer, never the search's own: seven of eight have to pass, and then two
   longer ones, or three of four, which show whether the load lasts. Else the answer goes down, and
   as many new ones are made. The short ones come first, as two of them refuse a load that is too
   high; where a load failed the long ones, these do. A load that there is no time to confirm is not
   begun once one is confirmed; where trials are too short to tell and there is no time for longer
   ones, a lower load is confirmed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from plimsoll_lab.stats.readings import WARM_UP, Measure, Readings

RISE = 4.0
"""No load is tried beyond this many times the highest that passed."""
CONFIRMATIONS = 8
"""Fresh trials at an answer."""
HOLDS = 2
"""The long trials that show that a load lasts; one more for each that fails."""
FAILURES_TOLERATED = 1
"""Of the confirming trials, and of the long ones: a moment that is not the server's doing."""
STEP = 0.25
"""How far the answer first goes down where it is not confirmed, in widths; then twice as far each
time."""
NOISE_TOLERATED = 0.4
"""The standard deviation of one trial's verdict, in widths. Seven of eight trials pass 1.15
deviations below the capacity, and at a width above it one in three thousand sets of eight does."""
LENGTHEN = 4.0
"""Trials get at most this many times as long at once: the noise of short ones is a poor guide."""
LENGTHEN_LEAST = 1.5
"""Less is not worth a new search."""
LENGTHEN_BLINDLY = 2.0
"""Where the readings do not show how long trials have to be, or short ones misled."""
LOADS_AGAIN, LOADS_REFUSED = 6, 3
"""How many loads a search with longer trials decides about, and how many are then not confirmed, as
a rule: what there is no time for is not begun."""


Held = tuple[int, int, float, float]
"""A load that is confirmed, the trials that passed there, how many seconds these lasted together,
and each of the eight."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What is searched for, where, and how finely."""

    lowest: int
    """The floor: a load that every server should complete."""
    highest: int
    """The highest load that is tried."""
    width: float
    """Relative distance of the bounds at which the search ends."""
    trials: int
    """The most trials that decide about a load; more than half of them agree."""
    first_s: float = 1.0
    """Seconds of the search's first trials."""
    least_s: float = 5.0
    """Seconds of the shortest confirming trials."""
    most_s: float = 150.0
    """Seconds of the longest trials."""
    hold_s: float = 0.0
    """Seconds of the long trials that show whether the load lasts; 0 for none."""
    patience_s: float = math.inf
    """Seconds for all trials together, whose end `measure` tells: trials become no longer than that
    it lasts for a search with them, and for their confirmation."""
    shift: float = 0.0
    """From 0 to 1: where on the scale the search's loads lie, so that repeated searches try other
    ones."""


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
        self._good: int | None = None
        self._bad: int | None = None
        self._carried: list[int] = []
        self._shorter_good: int | None = None
        """The highest load that shorter trials passed."""
        self._failed: dict[int, float] = {}
        """Loads that failed, and the seconds of the trials that did."""
        self._length_s = goal.first_s
        self._shortest_s = max(goal.first_s, goal.least_s)
        """Seconds of the shortest trials that confirm an answer."""
        self._hold_s = goal.hold_s
        """Seconds of the long trials, which become longer where they cannot tell."""
        self._to_hold = HOLDS
        """The long trials that are still to pass at the load that is being confirmed."""
        self._candidate: int | None = None
        """The load that is being confirmed."""
        self._confirmed = 0
        self._held_s = 0.0
        self._held: Held | None = None
        self._unconfirmed: list[int] = []
        self._untold: int | None = None
        """A load about which the trials that there is time for are too short to tell."""
        self._slackens = False
        """Whether a load failed the long trials that had passed the short ones."""

    def run(self) -> Bounds:
        """Measure until the bounds are near enough and confirmed, or `measure` raises
        OutOfPatience.
        """
        finished = True
        try:
            if self._carries_lowest():
                self._rise()
                self._lengthen()
                while self._passes_after_all():
                    self._lengthen()
                finished = self._settle()
        except OutOfPatience:
            finished = self._held is not None and self._bad is not None and self._is_near(self._held[0], self._bad)
        return self.bounds(finished=finished)

    def bounds(self, *, finished: bool = False) -> Bounds:
        """What the trials made until now have decided."""
        lower, confirmed, held_s, trial_s = self._answer()
        noise = self._readings.noise(trial_s)
        if lower is None and self._bad is not None:
            # Longer trials have refuted the load to go on from, and shorter ones passed below it.
            lower = max((load for load in self._carried if load < self._bad), default=None)
        lower, upper = (self._shorter_good, None) if lower is None and self._bad is None else (lower, self._bad)
        if upper is None:
            # Longer trials have not come yet to where shorter ones failed, or have passed there.
            passed = max(lower or 0, self._good or 0)
            upper = min((load for load in self._failed if load > passed), default=None)
        return Bounds(
            lower=lower,
            upper=upper,
            finished=finished,
            upper_s=self._failed.get(upper or 0, 0.0),
            confirmed=confirmed,
            unconfirmed=tuple(self._unconfirmed),
            trial_s=trial_s,
            held_s=held_s,
            precision=None if noise is None else noise / NOISE_TOLERATED,
        )

    def _answer(self) -> tuple[int | None, int, float, float]:
        """The highest load that is confirmed; until one is, the one that is being confirmed, or the
        highest below it, at which a trial has passed. Where nothing failed above that one, and
        nothing confirms it yet, the load at which the search came here. With the trials that
        confirm it, and how long these lasted.
        """
        if self._held is not None:
            return self._held
        nothing_failed = self._untold is not None and (self._bad is None or self._untold < self._bad)
        if self._candidate is None or (nothing_failed and not self._confirmed):
            return self._good, 0, 0.0, self._length_s
        lower = max(load for load in self._carried if load <= self._candidate)
        return lower, self._confirmed, self._held_s, self._length_s

    def left_s(self) -> float | None:
        """About how many seconds of trials are still to come; None while nothing has failed yet."""
        lower = self._candidate if self._candidate is not None else self._good
        bounds = self.bounds()
        lower, upper = lower or bounds.lower, bounds.upper
        if lower is None or upper is None:
            return None
        halvings = max(0, math.ceil(math.log2(max(1.0, _apart(lower, upper, self._goal.width / 2)))))
        searching_s = halvings * (self._goal.trials // 2 + 1) * self._length_s
        confirming_s = (CONFIRMATIONS - self._confirmed) * max(self._length_s, self._goal.least_s)
        holding_s = self._to_hold * self._hold_s if self._hold_s > self._length_s else 0.0
        patience_s = max(0.0, self._goal.patience_s - self._readings.spent_s) / (1 + WARM_UP)
        return min(patience_s, searching_s + confirming_s + holding_s)

    def _lengthen(self) -> None:
        """Search with trials that become longer until they are long enough."""
        while (longer_s := self._longer_s()) is not None:
            self._search_again(longer_s)

    def _carries_lowest(self) -> bool:
        """Whether the lowest load passes, or does so with trials as long as those that confirm."""
        if self._decide(self._goal.lowest):
            return True
        return self._failed[self._goal.lowest] < self._goal.least_s and self._is_overruled(self._goal.lowest)

    def _passes_after_all(self) -> bool:
        """Whether the load that failed passes trials as long as those that confirm an answer, and
        the search went on from there: what shorter ones fell to was a moment's, or comes of their
        being short, and they become twice as long. Neither is done where the patience lasts for no
        more than an answer.
        """
        load, least_s = self._bad, self._goal.least_s
        if load is None or self._failed[load] >= least_s:
            return False
        if not self._has_time_for(1, beside_s=self._goal.trials * self._readings.takes_s(least_s)):
            return False
        if not self._is_overruled(load):
            return False
        longer_s = min(least_s, LENGTHEN_BLINDLY * self._length_s)
        searching_s = LOADS_AGAIN * (self._goal.trials // 2 + 1) * self._readings.takes_s(longer_s)
        if not self._has_time_for(1, beside_s=searching_s):
            return False
        self._length_s = longer_s
        self._go_on(load, self._goal.width, carried=True)
        return True

    def _is_overruled(self, load: int) -> bool:
        """Whether a load that has failed passes more than half of its trials that are as long as
        those that confirm. What shorter ones failed is no matter then. Some tell nothing.
        """
        needed, length_s = self._goal.trials // 2 + 1, self._goal.least_s
        passed = failed = untold = 0
        while max(passed, failed + untold) < needed:
            met = self._readings.read(load, length_s).met
            passed, failed, untold = passed + (met is True), failed + (met is False), untold + (met is None)
        if passed == needed:
            self._good, self._bad = load, None
            self._carried.append(load)
            self._failed.clear()
        elif failed:
            self._fail(load)
        return passed == needed

    def _rise(self) -> None:
        goal = self._goal
        first = RISE ** (1 - goal.shift / 2)
        while self._bad is None and self._last_good() < goal.highest:
            factor = first if self._last_good() == goal.lowest else RISE
            self._decide(min(goal.highest, math.floor(self._last_good() * factor)))
        # The shift of a range that is narrower than the first rise.
        self._bisect(goal.width, 0.5 + goal.shift / 6)

    def _bisect(self, width: float, part: float = 0.5) -> None:
        while self._bad is not None and self._bad > self._last_good() * (1 + width):
            middle = _between(self._last_good(), self._bad, part)
            if middle is None:
                return
            self._decide(middle)
            part = 0.5

    def _search_again(self, length_s: float) -> None:
        """Find the bounds with longer trials, from where the shorter ones have ended."""
        noise = self._readings.noise(self._length_s) or 0.0
        start = self._last_good()
        self._length_s = length_s
        self._shorter_good = self._good
        self._good = self._bad = None
        self._go_on(start, max(self._goal.width, 2 * min(noise, 0.25)), carried=self._decide(start))

    def _go_on(self, start: int, step: float, *, carried: bool) -> None:
        """Find the bounds from a load that is carried, or is not, by steps that double."""
        while (self._bad if carried else self._good) is None:
            nearest = (self._good if carried else self._bad) or start
            load = math.floor(nearest * (1 + step)) + 1 if carried else math.floor(nearest / (1 + step))
            load = min(self._goal.highest, max(self._goal.lowest, load), math.floor(nearest * RISE))
            if load == nearest:
                return  # the range ends here
            self._decide(load)
            step = min(2 * step, RISE - 1)
        self._bisect(self._goal.width / 2)

    def _last_good(self) -> int:
        return self._good if self._good is not None else self._goal.lowest

    def _decide(self, load: int) -> bool:
        """Decide about a load: more than half of its trials."""
        needed = self._goal.trials // 2 + 1
        met = missed = 0
        while max(met, missed) < needed:
            # A trial too short to show that the load lasts guides the search all the same.
            if self._readings.read(load, self._length_s).met is False:
                missed += 1
            else:
                met += 1
        if met > missed:
            self._good = load
            self._carried.append(load)
        else:
            self._fail(load)
        return met > missed

    def _fail(self, load: int) -> None:
        """The last trial was one of those that failed at a load."""
        self._bad = load
        self._failed[load] = self._readings.last_s

    def _longer_s(self) -> float | None:
        """How long trials have to be; None where they are long enough, or as long as they may
        be.
        """
        noise = self._readings.noise(self._length_s)
        if noise is None or self._bad is None or self._length_s >= self._goal.most_s:
            return None
        # The error of a mean falls with the root of its length.
        times = (noise / (NOISE_TOLERATED * self._goal.width)) ** 2
        if times <= 1:
            return None
        times = LENGTHEN_BLINDLY if math.isinf(times) else min(LENGTHEN, max(LENGTHEN_LEAST, times))
        affordable_s = self._affordable_s()
        if affordable_s < LENGTHEN_LEAST * self._length_s:
            return None
        return min(self._goal.most_s, affordable_s, self._length_s * times)

    def _affordable_s(self) -> float:
        """How long trials may be so that the patience lasts for a search with them, and for the
        confirmation of its answer, whose trials are at least `least_s` long.
        """
        goal, longer = self._goal, 1 + WARM_UP
        searching = LOADS_AGAIN * (goal.trials // 2 + 1)
        confirming = LOADS_REFUSED * (FAILURES_TOLERATED + 1) + CONFIRMATIONS
        beside_s = self._readings.beside_s()
        left_s = goal.patience_s - self._readings.spent_s - HOLDS * self._readings.takes_s(goal.hold_s)
        length_s = (left_s / (searching + confirming) - beside_s) / longer
        if length_s >= goal.least_s:
            return length_s
        # And for a look at what failed with trials as long as those that confirm.
        left_s -= (confirming + goal.trials) * (beside_s + longer * goal.least_s)
        return (left_s / searching - beside_s) / longer

    def _settle(self) -> bool:
        """Confirm the answer, or find a lower one that is confirmed; whether the bounds are as near
        then as was asked.
        """
        self._lengthen_to(self._goal.least_s)
        self._shortest_s = self._length_s
        candidate, step = self._good, STEP * self._goal.width
        while candidate is not None:
            self._candidate, self._confirmed, self._held_s, self._to_hold = candidate, 0, 0.0, HOLDS
            carried = self._confirm(candidate)
            if carried:
                self._held = (candidate, self._confirmed, self._held_s, self._length_s)
            elif carried is None:
                # Nothing failed there: the answer may lie near.
                self._untold, step = candidate, self._goal.width / 2
            else:
                self._refute(candidate)
            if self._held is not None:
                candidate = self._above(self._held[0])
                if candidate is not None and not self._has_time_for(1):
                    break
            else:
                if not self._has_time_for(1):
                    self._length_s, self._hold_s = self._shortest_s, self._goal.hold_s
                candidate = self._below(candidate, step) if self._has_time_for(2) else self._far_below(candidate, step)
                step *= 2
        if self._held is None:
            self._candidate = None
            # Where the lowest load failed, those above it that told nothing are no matter.
            return self._untold is None or self._bad == self._goal.lowest
        if self._bad is None:
            return self._held[0] == self._goal.highest
        return self._is_near(self._held[0], self._bad)

    def _is_near(self, lower: int, upper: int) -> bool:
        """Whether bounds are as near as was asked, or as whole loads are."""
        return upper <= lower * (1 + self._goal.width) or _between(lower, upper) is None

    def _refute(self, load: int) -> None:
        if self._held is None:
            self._unconfirmed.append(load)
        self._fail(load)
        self._good = max((each for each in self._carried if each < load), default=None)

    def _below(self, load: int, step: float) -> int | None:
        """The next load to confirm below one that was not; None below the lowest."""
        lower = max(self._goal.lowest, min(load - 1, math.floor(load / (1 + step))))
        return lower if lower < load else None

    def _far_below(self, load: int, step: float) -> int | None:
        """The same where there is time for no second one: at least the width below, and no further
        than that from it if that is enough.
        """
        if step > self._goal.width:
            return self._below(load, step)
        within = math.ceil(load / (1 + self._goal.width))
        return within if self._goal.lowest <= within < load else self._below(load, self._goal.width)

    def _above(self, held: int) -> int | None:
        """The next load to confirm above one that is; None where that is near enough to one that is
        not.
        """
        above = self._nearest_above()
        return _between(held, round(above)) if held * (1 + self._goal.width / 2) < above < math.inf else None

    def _nearest_above(self) -> float:
        """The lowest load that is not confirmed; infinite where there is none."""
        return min((each for each in (self._bad, self._untold) if each is not None), default=math.inf)

    def _has_time_for(self, confirmations: int, beside_s: float = 0.0) -> bool:
        """Whether the patience lasts for so many more loads that are confirmed, and for this."""
        one_s = self._confirming_s(max(self._length_s, self._goal.least_s), self._hold_s)
        return self._readings.spent_s + beside_s + confirmations * one_s <= self._goal.patience_s

    def _confirming_s(self, length_s: float, hold_s: float) -> float:
        """What it takes to confirm a load by trials of these lengths."""
        return CONFIRMATIONS * self._readings.takes_s(length_s) + self._holding_s(length_s, hold_s)

    def _holding_s(self, length_s: float, hold_s: float) -> float:
        """What the long trials take at a load that passes; none are made where all are as long."""
        return HOLDS * self._readings.takes_s(hold_s) if hold_s > length_s else 0.0

    def _longer_s_of_eight(self) -> float | None:
        """How long the eight trials may become; None where they may not."""
        goal, length_s = self._goal, self._length_s
        left_s = goal.patience_s - self._readings.spent_s - self._holding_s(length_s, self._hold_s)
        affordable_s = (left_s / CONFIRMATIONS - self._readings.beside_s()) / (1 + WARM_UP)
        if affordable_s < min(goal.most_s, LENGTHEN_LEAST * length_s) or length_s >= goal.most_s:
            return None
        return min(goal.most_s, affordable_s, 2 * length_s)

    def _lengthen_to(self, length_s: float) -> None:
        self._length_s = max(self._length_s, length_s)

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
            self._length_s, self._confirmed, self._held_s = longer_s, 0, held_s
        return carried

    def _passes(self, load: int) -> bool | None:
        missed = untold = 0
        while missed <= FAILURES_TOLERATED:
            if self._confirmed + missed == CONFIRMATIONS:
                return True
            met = self._readings.read(load, self._length_s).met
            if met:
                self._confirmed += 1
                self._held_s += self._length_s
                self._carried.append(load)
            else:
                missed += 1
                untold += met is None
        return None if untold else False

    def _lasts(self, load: int) -> bool | None:
        """Whether two long trials pass, or three of four: one may have met a moment that is not the
        server's doing. They become longer where they are too short to tell.
        """
        if self._hold_s <= self._length_s:
            return True
        confirmed, held_s = self._confirmed, self._held_s
        while (carried := self._holds(load)) is None:
            longer_s = min(self._goal.most_s, 2 * self._hold_s)
            left_s = self._goal.patience_s - self._readings.spent_s
            if longer_s <= self._hold_s or left_s < HOLDS * self._readings.takes_s(longer_s):
                return None
            self._hold_s, self._to_hold = longer_s, HOLDS
            self._confirmed, self._held_s = confirmed, held_s
        self._slackens = self._slackens or not carried
        return carried

    def _holds(self, load: int) -> bool | None:
        confirmed, held_s = self._confirmed, self._held_s
        passed = missed = untold = 0
        while missed <= FAILURES_TOLERATED:
            if passed == HOLDS + missed:
                return True
            met = self._readings.read(load, self._hold_s).met
            if met:
                passed += 1
                self._carried.append(load)
            else:
                missed += 1
                untold += met is None
            self._to_hold = HOLDS + missed - passed
            # After one that failed, nothing is confirmed until enough of them pass.
            shown = missed == 0 or passed == HOLDS + missed
            self._confirmed, self._held_s = (confirmed, held_s + passed * self._hold_s) if shown else (0, 0.0)
        return None if untold else False


def search(measure: Measure, goal: Goal) -> Bounds:
    """Find the bounds."""
    return Search(goal, measure).run()


def _between(low: int, high: int, part: float = 0.5) -> int | None:
    """The load that is this part of the way, on a logarithmic scale; None where whole loads lie no
    nearer.
    """
    middle = max(low + 1, math.floor(low * (high / low) ** part))
    return middle if middle < high else None


def _apart(low: int, high: int, width: float) -> float:
    return math.log(high / low) / math.log1p(width)
