"""What the trials of a search say, and what they take. Pure.

A trial's excess says how far its figure lies from the limit. How it moves with the load, and how
far without, tells which loads a trial of some length can distinguish.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

SHORTER = 16.0
"""Trials at most this many times shorter say something of the present ones."""
NEAR = 1.0
"""Readings within this distance of the limit, in logarithms, lie on a line."""
READINGS = 6
"""Fewer readings near the limit show no noise."""
WARM_UP = 0.5
"""How long a trial that is longer than the first ones warms up, as a part of its window: a backlog
takes time to become what it stays, and some servers slow down after a while."""


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
    repeated_s: float = 0.0
    """How much of that went to measurements that were made again, as something was in the way."""


NearReading = tuple[int, float, float]
"""A load, the seconds of its trial, and its excess."""
Measure = Callable[[int, float], Reading]
"""`measure(load, seconds)`: one trial of that length."""


class Readings:
    """The trials that a search has made."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure
        self._near: list[NearReading] = []
        self._beside_s: list[float] = []
        """Of each trial: what it took beside its window and its warm-up, as a server starts and
        ends."""
        self.spent_s = 0.0
        self.last_s = 0.0
        """Seconds of the last trial."""

    def read(self, load: int, length_s: float) -> Reading:
        """Make one more trial."""
        reading = self._measure(load, length_s)
        self.spent_s += reading.took_s
        self.last_s = length_s
        self._beside_s.append(reading.took_s - reading.repeated_s - (1 + WARM_UP) * length_s)
        if reading.excess is not None and abs(reading.excess) <= NEAR:
            self._near.append((load, length_s, reading.excess))
        return reading

    def beside_s(self) -> float:
        """What a trial takes beside its window and its warm-up, in seconds."""
        return max(0.0, statistics.fmean(self._beside_s))

    def takes_s(self, length_s: float) -> float:
        """What a trial of this length takes with all that belongs to it, in seconds."""
        return self.beside_s() + (1 + WARM_UP) * length_s

    def noise(self, length_s: float) -> float | None:
        """The largest difference of loads that one trial of this length cannot distinguish, as a
        part of the load; None where too few readings lie near the limit.
        """
        return load_noise([each for each in self._near if each[1] * SHORTER >= length_s], length_s)


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
