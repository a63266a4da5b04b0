"""What the statistics answer with, as records hold it. Nothing is computed here, so that a command
which computes nothing starts without the libraries that do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from plimsoll_lab.stats.summary import Interval

Call = Literal["better", "equivalent", "not shown", "invalid"]
"""What may be said of two."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Control:
    """What one control shows."""

    figure: str
    """The figure compared."""
    at: Mapping[str, object]
    """The setting of the other axes."""
    blocks: int
    """Blocks in which both were measured."""
    ratio: float | None
    """Geometric mean of the one over that of the other; None where there is none."""
    ratio_ci95: Interval | None
    """Its interval, simultaneous over all controls; None where there are too few blocks."""
    p_adjusted: float | None
    """That they are alike, adjusted over all controls; below 0.05 exactly where the interval
    excludes 1. None where there are too few blocks."""
    floor: float | None
    """The noise floor it measures: a ratio minus 1."""
    differs: bool
    """Whether the two differ significantly: something other than the server then moves this
    figure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """The closed loop's asymptotes and where they meet."""

    most_rate: float
    """Xmax: the rate at the loads that are not told from the fastest, of trials that had no part in
    choosing these; with one trial a load, the highest rate."""
    idle_response_s: float
    """R0: the mean response time at the lowest load."""
    think_s: float
    """Z."""
    at: float
    """N*, in connections."""
    at_ci95: Interval | None
    """Student's t interval over trials; None with one trial a load."""
    reached: bool
    """Whether loads well beyond N* were measured: if not, Xmax is only what the highest load asked
    for."""
    lowest: float
    """The lowest load."""
    saturated: bool
    """Whether that may have been beyond N*: then X R0 is that load by Little's law, whatever N*
    is."""

    @property
    def is_shown(self) -> bool:
        """Whether the loads lie on both sides of N*."""
        return self.reached and not self.saturated


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The Universal Scalability Law through the medians."""

    alone: float
    """a: requests a second of one connection."""
    contention: float
    """s."""
    coherence: float
    """k."""
    peak_at: float | None
    """Connections of the highest rate, sqrt((1 - s) / k); None where the curve does not turn
    down."""
    peak_at_ci95: Interval | None
    """Bootstrap interval of the same; None where it turned down in too few resamples to say, or
    where a load has one trial."""
    contention_ci95: Interval | None
    """Bootstrap interval of s; None where a load has one trial."""
    coherence_ci95: Interval | None
    """Bootstrap interval of k; None likewise."""
    misfit: float
    """The largest relative distance from a median."""
    curve: Sequence[tuple[float, float, float | None, float | None]]
    """(load, rate, low, high), for drawing: the curve and its 95 % band, which is None likewise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Knee:
    """What may be said of one curve."""

    bound: Bound | None
    """None with fewer than two loads."""
    fit: Fit | None
    """None where it was refused."""
    refused: str | None
    """Why, where it was."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One cell."""

    at: Mapping[str, object]
    """The setting of the other axes."""
    contender: str
    """The row."""
    figure: str
    """The column."""
    n: int
    """Trials that are results."""
    median: float | None
    """None where the contender has no result here."""
    median_ci95: Interval | None
    """Order-statistic interval; None below six trials."""
    best: bool
    """Whether it cannot be distinguished from the best."""
    margin: float | None
    """How many times worse than the best it is, 1 or more; None where it could not be compared."""
    margin_ci95: Interval | None
    """The interval of that ratio, simultaneous over the family; None where it has no upper
    bound."""
    censored: bool
    """Whether the median is a lower bound of the truth."""
    at_most: bool = False
    """Whether it is an upper bound of the truth."""
    level: bool
    """Whether that interval lies within the suite's margin: as good as the best, for all that is
    asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """What may be said about one figure at one point."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    at: dict[str, object]
    """The point."""
    winner: Literal["A", "B"] | None
    """The side with the better estimate."""
    runner_up: Literal["A", "B"] | None
    """The other one."""
    ratio: float | None
    """B over A: the ratio of the geometric means of their runs' medians, whichever wins."""
    ratio_ci95: Interval | None
    """Welch's interval of that ratio; None below five runs a side."""
    p_adjusted: float | None
    """Welch's test, Holm-adjusted over every comparison; None below five runs a side."""
    n: tuple[int, int]
    """Runs with a result, of A and of B."""
    call: Call
    """What may be said."""
    reason: str
    """Why no more, or no less, may be said."""
