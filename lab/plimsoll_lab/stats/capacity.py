"""The highest load that meets its limits, by MLRsearch (RFC 9971). Pure: the measurement is an argument.

Plain bisection believes each trial, and one bad moment at a good load sends it below the truth for ever. Here a load is
good once at least half of its trials are, so that passing dips do not decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from MLRsearch import MeasurementResult

Measure = Callable[[float, int], float]
"""`measure(duration_s, load)`: the part of the load that was lost, 0 where every limit was met."""

COUNTED = 1_000_000
"""MLRsearch counts transactions; a lost part is given to it as so many of a million."""
EXCEED_RATIO = 0.5
"""The part of a load's trials that may be bad: more than a tenth of them dipping must not decide."""
PRECEDING_TARGETS = 2
"""Coarser searches before the final one."""
NEVER_S = 1e9
"""MLRsearch's own patience raises and loses the bounds, so it is never used up: ours is the measurement's to end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What is searched for, where, and how finely."""

    lowest: int
    """The floor: a load every server should carry."""
    highest: int
    """The load beyond which nobody asks."""
    width: float
    """Relative distance of the bounds at which the search ends."""
    trial_s: float
    """Length of a trial's window."""
    trials: int
    """Good trials' worth of time that decide about a load."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Where the capacity lies."""

    lower: int | None
    """The highest load that met the limits; None where the floor failed, or where none has been decided yet."""
    upper: int | None
    """The lowest load that did not; None where it never saturated, or where none has been decided yet."""
    finished: bool = True
    """Whether the bounds are as near as was asked, or one of them does not exist."""


class OutOfPatience(Exception):  # noqa: N818 - an outcome, not an error
    """Raised by a measurement that is not to be made any more; the search then ends with the bounds it has."""


class _Measurer:
    """What MLRsearch calls. Its loads lie on a logarithmic grid; ours are whole."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        """Make one trial."""
        from MLRsearch import MeasurementResult  # noqa: PLC0415 - see Search

        lost = self._measure(intended_duration, round(intended_load))
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=COUNTED,
            loss_count=round(lost * COUNTED),
            intended_count=COUNTED,
        )


class Search:
    """One search, whose bounds are known at any time: when it ends, when it is given up, when it is interrupted."""

    def __init__(self, goal: Goal) -> None:
        # Only a search has to load it: everything else of the lab reads this module's records alone.
        from MLRsearch import Config, MultipleLossRatioSearch, SearchGoal  # noqa: PLC0415

        self._wanted = SearchGoal(
            loss_ratio=0.0,
            exceed_ratio=EXCEED_RATIO,
            relative_width=goal.width,
            initial_trial_duration=goal.trial_s,
            final_trial_duration=goal.trial_s,
            duration_sum=goal.trial_s * goal.trials,
            preceding_targets=PRECEDING_TARGETS,
            fail_fast=False,
        )
        config = Config(
            goals=[self._wanted],
            min_load=goal.lowest,
            max_load=goal.highest,
            search_duration_max=NEVER_S,
            warmup_duration=None,
        )
        self._search = MultipleLossRatioSearch(config)

    def run(self, measure: Measure) -> Bounds:
        """Measure until the bounds are near enough, or `measure` raises OutOfPatience."""
        try:
            self._search.search(_Measurer(measure), debug=lambda _: None)
        except OutOfPatience:
            return self.bounds(finished=False)
        return self.bounds(finished=True)

    def bounds(self, *, finished: bool = False) -> Bounds:
        """What the trials made until now have decided."""
        database = getattr(self._search, "database", None)
        if database is None:
            return Bounds(lower=None, upper=None, finished=False)
        found = database.get_relevant_bounds(target=self._search.scaling.goal_to_final_target[self._wanted])
        return Bounds(
            lower=None if found.clo is None else round(float(found.clo)),
            upper=None if found.chi is None else round(float(found.chi)),
            finished=finished,
        )


def search(measure: Measure, goal: Goal) -> Bounds:
    """Find the bounds."""
    return Search(goal).run(measure)
