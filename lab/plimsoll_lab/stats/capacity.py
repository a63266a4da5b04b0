"""The highest load that meets its limits, searched for and then confirmed. Pure: the measurement is
an argument.

1. A gentle trial at the lowest load. Then the load rises, to at most four times the last load that
   passed, until one fails. Bisection on a logarithmic scale follows.
2. Trials are made longer until one of them can distinguish loads that differ by the width asked
   for. In a short trial a growing queue has not grown yet, and a percentile is a matter of luck.
3. Fresh trials at the answer, never the search's own: seven of eight have to pass, and then a
   longer one that shows whether the load lasts. Else the answer goes down, and eight new ones are
   made. The short ones come first, as two of them refuse a load that is too high.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

RISE = 4.0
"""No load is tried beyond this many times the highest that passed."""
CONFIRMATIONS = 8
FAILURES_TOLERATED = 1
"""Of the confirming trials; each allows for a moment that is not the server's doing."""
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
"""Where the readings do not show how long trials have to be."""
SHORTER = 16.0
"""Trials at most this many times shorter say something of the present ones."""
NEAR = 1.0
"""Readings within this distance of the limit, in logarithms, lie on a line."""
READINGS = 6
"""Fewer readings near the limit show no noise."""
WARM_UP = 0.5
"""How long a trial that is longer than the first ones warms up, as a part of its window: a backlog
takes time to become what it stays, and some servers slow down after a while."""
LOADS_AGAIN, LOADS_REFUSED = 6, 3
"""How many loads a search with longer trials decides about, and how many are then not confirmed, as
a rule: what there is no time for is not begun."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one trial says."""

    met: bool | None
    """Whether every limit was met; None where they were, but the trial is too short to show whether
    the load lasts, or lacks the figure of one of them."""
    excess: float | None = None
    """The logarithm of the figure that is nearest to its limit, or the furthest beyond, over the
    limit."""
    took_s: float = 0.0
    """How long the trial took with all that belongs to it, in seconds."""


Held = tuple[int, int, float]
"""A load that is confirmed, the trials that passed there, and how many seconds these lasted."""
NearReading = tuple[int, float, float]
"""A load, the seconds of its trial, and its excess."""
Measure = Callable[[int, float], Reading]
"""`measure(load, seconds)`: one trial of that length."""


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
    """Seconds of the one trial that shows whether the load lasts; 0 for none."""
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
    unconfirmed: tuple[int, ...] = ()
    """Loads that the search had found good and confirming trials did not."""
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
        self._measure = measure
        self._good: int | None = None
        self._bad: int | None = None
        self._carried: list[int] = []
        self._shorter: tuple[int | None, int | None] = (None, None)
        """The bounds that shorter trials found."""
        self._length_s = goal.first_s
        self._candidate: int | None = None
        """The load that is being confirmed."""
        self._confirmed = 0
        self._held_s = 0.0
        self._held: Held | None = None
        self._unconfirmed: list[int] = []
        self._spent_s = 0.0
        self._beside_s: list[float] = []
        """Of each trial: what it took beside its window and its warm-up, as a server starts and
        ends."""
        self._readings: list[NearReading] = []

    def run(self) -> Bounds:
        """Measure until the bounds are near enough and confirmed, or `measure` raises
        OutOfPatience.
        """
        try:
            if self._decide(self._goal.lowest):
                self._rise()
                while (longer_s := self._longer_s()) is not None:
                    self._search_again(longer_s)
                self._settle()
        except OutOfPatience:
            return self.bounds(finished=False)
        return self.bounds(finished=True)

    def bounds(self, *, finished: bool = False) -> Bounds:
        """What the trials made until now have decided."""
        noise = self._noise()
        lower, confirmed, held_s = self._answer()
        if lower is None and self._bad is not None:
            # Longer trials have refuted the load to go on from, and shorter ones passed below it.
            lower = max((load for load in self._carried if load < self._bad), default=None)
        nothing = lower is None and self._bad is None
        return Bounds(
            lower=self._shorter[0] if nothing else lower,
            upper=self._shorter[1] if nothing else self._bad,
            finished=finished,
            confirmed=confirmed,
            unconfirmed=tuple(self._unconfirmed),
            trial_s=self._length_s,
            held_s=held_s,
            precision=None if noise is None else noise / NOISE_TOLERATED,
        )

    def _answer(self) -> tuple[int | None, int, float]:
        """The highest load that is confirmed; until one is, the one that is being confirmed, or the
        highest below it, at which a trial has passed. With the trials that confirm it, and how long
        these lasted.
        """
        if self._held is not None:
            return self._held
        if self._candidate is None:
            return self._good, 0, 0.0
        return max(load for load in self._carried if load <= self._candidate), self._confirmed, self._held_s

    def left_s(self) -> float | None:
        """About how many seconds of trials are still to come; None while nothing has failed yet."""
        lower = self._candidate if self._candidate is not None else self._good
        if lower is None or self._bad is None:
            return None
        halvings = max(0, math.ceil(math.log2(max(1.0, _apart(lower, self._bad, self._goal.width / 2)))))
        searching_s = halvings * (self._goal.trials // 2 + 1) * self._length_s
        confirming_s = (CONFIRMATIONS - self._confirmed) * max(self._length_s, self._goal.least_s)
        holding_s = self._goal.hold_s if self._goal.hold_s > self._length_s else 0.0
        return searching_s + confirming_s + holding_s

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
        noise = self._noise() or 0.0
        start = self._last_good()
        self._length_s = length_s
        self._shorter = (self._good, self._bad)
        self._good = self._bad = None
        step = max(self._goal.width, 2 * min(noise, 0.25))
        carried = self._decide(start)
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

    def _read(self, load: int, length_s: float) -> Reading:
        reading = self._measure(load, length_s)
        self._spent_s += reading.took_s
        self._beside_s.append(reading.took_s - (1 + WARM_UP) * length_s)
        if reading.excess is not None and abs(reading.excess) <= NEAR:
            self._readings.append((load, length_s, reading.excess))
        return reading

    def _decide(self, load: int) -> bool:
        """Decide about a load: more than half of its trials."""
        needed = self._goal.trials // 2 + 1
        met = missed = 0
        while max(met, missed) < needed:
            # A trial too short to show that the load lasts guides the search all the same.
            if self._read(load, self._length_s).met is False:
                missed += 1
            else:
                met += 1
        if met > missed:
            self._good = load
            self._carried.append(load)
        else:
            self._bad = load
        return met > missed

    def _noise(self) -> float | None:
        """The largest difference of loads that one trial of the present length cannot
        distinguish.
        """
        return load_noise([each for each in self._readings if each[1] * SHORTER >= self._length_s], self._length_s)

    def _longer_s(self) -> float | None:
        """How long trials have to be; None where they are long enough, or as long as they may
        be.
        """
        noise = self._noise()
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
        beside_s = max(0.0, statistics.fmean(self._beside_s))
        left_s = goal.patience_s - self._spent_s - (beside_s + longer * goal.hold_s)
        length_s = (left_s / (searching + confirming) - beside_s) / longer
        if length_s >= goal.least_s:
            return length_s
        left_s -= confirming * (beside_s + longer * goal.least_s)
        return (left_s / searching - beside_s) / longer

    def _settle(self) -> None:
        """Confirm the answer, or find a lower one that is confirmed."""
        goal = self._goal
        self._lengthen_to(goal.least_s)
        candidate, step = self._good, STEP * goal.width
        while candidate is not None:
            self._candidate, self._confirmed, self._held_s = candidate, 0, 0.0
            passed = self._confirm(candidate)
            if passed is None:
                self._lengthen_to(min(goal.most_s, 2 * self._length_s))
                continue
            if passed:
                self._held = (candidate, self._confirmed, self._held_s)
                if self._bad is None or self._bad <= candidate * (1 + goal.width / 2):
                    return
                candidate = _between(candidate, self._bad)
                if candidate is None:
                    return
                continue
            if self._held is None:
                self._unconfirmed.append(candidate)
            self._bad = candidate
            self._good = max((load for load in self._carried if load < candidate), default=None)
            candidate, step = self._below(candidate, self._held[0] if self._held else None, step)
            if self._held and candidate == self._held[0]:
                return
        self._good = self._candidate = None

    def _below(self, load: int, held: int | None, step: float) -> tuple[int | None, float]:
        """The next load to confirm below one that was not, and the step after it."""
        if held is not None:
            near = load <= held * (1 + self._goal.width / 2)
            return (held if near else _between(held, load) or held), step
        lower = max(self._goal.lowest, min(load - 1, math.floor(load / (1 + step))))
        return (lower if lower < load else None), 2 * step

    def _lengthen_to(self, length_s: float) -> None:
        self._length_s = max(self._length_s, length_s)

    def _confirm(self, load: int) -> bool | None:
        """Fresh trials at the answer; None where they are too short to show that the load lasts."""
        missed = 0
        while self._confirmed + missed < CONFIRMATIONS:
            met = self._read(load, self._length_s).met
            if met is None and self._length_s < self._goal.most_s:
                return None
            if met:
                self._confirmed += 1
                self._held_s += self._length_s
                self._carried.append(load)
            else:
                missed += 1
            if missed > FAILURES_TOLERATED:
                return False
        if self._goal.hold_s <= self._length_s:
            return True
        lasts = self._lasts(load)
        if not lasts:
            # Trials that do not see what comes later confirm nothing.
            self._lengthen_to(min(self._goal.hold_s, self._goal.most_s))
        return lasts

    def _lasts(self, load: int) -> bool | None:
        """Whether one of two long trials passes: one may have met a moment that is not the server's
        doing. None where one is too short to show it, and longer ones may be made.
        """
        met: list[bool | None] = []
        confirmed, held_s = self._confirmed, self._held_s
        for _ in range(2):
            met.append(self._read(load, self._goal.hold_s).met)
            if met[-1]:
                self._confirmed, self._held_s = confirmed, held_s + self._goal.hold_s
                return True
            # Until one passes, the short trials have confirmed nothing.
            self._confirmed, self._held_s = 0, 0.0
        return None if None in met and self._goal.hold_s < self._goal.most_s else False


def search(measure: Measure, goal: Goal) -> Bounds:
    """Find the bounds."""
    return Search(goal, measure).run()


def load_noise(readings: Sequence[NearReading], length_s: float) -> float | None:
    """The standard deviation of one trial of this length as a part of the load; None where there
    are too few readings.

    A line through the excess over the logarithm of the load says how far the excess moves with the
    load; the residuals say how far it moves without. A trial weighs as much as it is long, as the
    variance of a mean falls with its length. Infinite where the slope may be zero.
    """
    if len(readings) < READINGS or len({load for load, _, _ in readings}) < 2:  # noqa: PLR2004 - a line needs two
        return None
    loads, lengths_s, excess = np.array(readings).T
    weights = lengths_s / length_s
    loads = np.log(loads) - np.average(np.log(loads), weights=weights)
    excess -= np.average(excess, weights=weights)
    spread = float(weights @ loads**2)
    slope = float((weights * loads) @ excess) / spread
    deviation = math.sqrt(float(weights @ (excess - slope * loads) ** 2) / (len(readings) - 2))
    if slope <= 2 * deviation / math.sqrt(spread):
        return math.inf
    return deviation / slope


def _between(low: int, high: int, part: float = 0.5) -> int | None:
    """The load that is this part of the way, on a logarithmic scale; None where whole loads lie no
    nearer.
    """
    middle = max(low + 1, math.floor(low * (high / low) ** part))
    return middle if middle < high else None


def _apart(low: int, high: int, width: float) -> float:
    return math.log(high / low) / math.log1p(width)
