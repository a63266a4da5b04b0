"""What a handful of trials says about one figure. The unit is a trial with a fresh server
process.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95

Interval = tuple[float, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """One figure over the repetitions of one point."""

    n: int
    """Trials that count."""
    mean: float
    """Arithmetic mean."""
    stdev: float | None
    """Standard deviation of the sample; None for a single trial."""
    mean_ci95: Interval | None
    """Student-t interval of the mean; None for a single trial."""
    median: float
    """Median."""
    median_ci95: Interval | None
    """Order-statistic interval of the median; None below six trials, where none reaches 95 %."""
    least: float
    """Smallest value."""
    greatest: float
    """Largest value."""


def summarise(values: Sequence[float]) -> Summary:
    """Summarise at least one value."""
    ordered = sorted(values)
    n = len(ordered)
    mean = statistics.fmean(ordered)
    stdev = statistics.stdev(ordered) if n > 1 else None
    return Summary(
        n=n,
        mean=mean,
        stdev=stdev,
        mean_ci95=None if stdev is None else _student(mean, stdev, n),
        median=statistics.median(ordered),
        median_ci95=median_interval(ordered),
        least=ordered[0],
        greatest=ordered[-1],
    )


def median_interval(values: Sequence[float]) -> Interval | None:
    """The narrowest symmetric pair of order statistics that holds the median with 95 %, whatever
    the distribution.

    The number of values below the median is binomial(n, 1/2), so the pair (k-th smallest, k-th
    largest) misses it with probability 2 P(X < k) (Conover, Practical Nonparametric Statistics,
    3.2).
    """
    ordered = sorted(values)
    n = len(ordered)
    missed = itertools.accumulate(2 * math.comb(n, below) / 2**n for below in range(n))
    k = sum(each <= 1 - CONFIDENCE for each in missed)
    return (ordered[k - 1], ordered[n - k]) if k else None


def median_bounds(values: Sequence[float], untold: int = 0) -> Interval:
    """The same interval where further values are not known and may be anything; an end that may be
    anything too is infinite.
    """
    least = median_interval([*values, *[-math.inf] * untold])
    most = median_interval([*values, *[math.inf] * untold])
    return (-math.inf if least is None else least[0], math.inf if most is None else most[1])


def _student(mean: float, stdev: float, n: int) -> Interval:
    from scipy import special  # noqa: PLC0415 - 0.3 s that only a report has to spend

    half = float(special.stdtrit(n - 1, (1 + CONFIDENCE) / 2)) * stdev / math.sqrt(n)
    return (mean - half, mean + half)
