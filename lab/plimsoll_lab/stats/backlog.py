"""Whether the backlog of an open loop grows. Pure.

A server that is offered more than it completes has no steady response time: its queue grows, and
with it every response time that is still to come. A short trial does not show that. Here the mean
backlog of each interval of a trial is grouped into batches, and a line is fitted to them: its slope
is the growth, with an interval by Student's t. Means of batches longer than the correlation of the
backlog are nearly independent (Law and Kelton, Simulation Modeling and Analysis, 9.5.3).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

GROWTH_TOLERATED = 0.005
"""The part of the offered rate by which a backlog may grow: a queue that grows has no response time
to hold."""
CONFIDENCE = 0.95
"""Of each bound alone."""
BATCHES = 8
"""Few and long: eight leave six degrees of freedom, and each spans an eighth of the trial."""
STUDENT = 1.9431802805153042
"""The quantile of Student's t at CONFIDENCE with BATCHES - 2 degrees of freedom; a trial would load
scipy for this number."""
CORRELATED = 0.5
"""Neighbouring batches whose correlation is beyond this are shorter than the correlation itself."""
HIDDEN = 2.0
"""Chance hides at most so much of a growth, as a multiple of how far the batches lie apart."""
BIAS = 0.25
"""By so much a fitted line makes the correlation of eight independent batches look negative."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """By which part of the offered rate the backlog grew; infinite where nothing can be said."""

    low: float
    """Lower bound."""
    high: float
    """Upper bound."""

    @property
    def shown(self) -> bool:
        """Whether the backlog is shown to grow."""
        return self.low > GROWTH_TOLERATED

    @property
    def refuted(self) -> bool:
        """Whether the backlog is shown not to grow; too short a trial shows neither."""
        return self.high < GROWTH_TOLERATED


UNKNOWN = Growth(low=-math.inf, high=math.inf)


def batch_growth(backlog: Sequence[float], *, interval_s: float, offered_rate: float) -> Growth:
    """Bounds of the growth, from the mean backlog in each interval of a trial."""
    each = len(backlog) // BATCHES
    if not each or offered_rate <= 0:
        return UNKNOWN
    # What does not fill a batch is left out at the start, where the backlog may still settle.
    kept = backlog[-each * BATCHES :]
    means = [fmean(kept[at : at + each]) for at in range(0, len(kept), each)]
    at_s = [(place - (BATCHES - 1) / 2) * each * interval_s for place in range(BATCHES)]
    # However they are correlated: a growth moves them, and chance would have to move them back.
    moved = HIDDEN * (max(means) - min(means)) / (at_s[-1] - at_s[0]) / offered_rate
    if moved < GROWTH_TOLERATED:
        return Growth(low=-moved, high=moved)
    spread = _dot(at_s, at_s)
    slope = _dot(at_s, means) / spread
    middle = fmean(means)
    residuals = [mean - middle - slope * at for at, mean in zip(at_s, means, strict=True)]
    squares = _dot(residuals, residuals)
    if squares <= 0:
        return Growth(low=slope / offered_rate, high=slope / offered_rate)
    correlation = max(0.0, _dot(residuals[1:], residuals[:-1]) / squares + BIAS)
    if correlation > CORRELATED:
        return UNKNOWN
    # Positive correlation makes a mean vary more than independent batches would (an AR(1) process).
    inflation = (1 + correlation) / (1 - correlation)
    error = math.sqrt(squares / (BATCHES - 2) * inflation / spread)
    beyond = STUDENT * error
    return Growth(low=(slope - beyond) / offered_rate, high=(slope + beyond) / offered_rate)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))


LUCK = 2.0
"""Standard deviations by which a backlog that does not grow may end above its mean."""


def backlog_growth(*, in_flight: float, completed_rate: float, mean_response_s: float, scheduled: float) -> float:
    """By which part of the offered rate the backlog grew, from its end alone; 0 where luck explains
    it.

    By Little's law the mean backlog is rate x mean response time. A backlog that grows steadily
    ends at twice its mean, so that half of its growth shows in the difference; one that is steady
    ends within a few square roots of its mean.
    """
    mean = completed_rate * mean_response_s
    beyond = in_flight - mean - LUCK * math.sqrt(max(mean, 1.0))
    return max(0.0, 2 * beyond / scheduled) if scheduled > 0 else 0.0
