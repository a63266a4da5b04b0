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
    patience_s: float
    """The search is given up after this long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounds:
    """Where the capacity lies."""

    lower: int | None
    """The highest load that met the limits; None where the floor failed."""
    upper: int | None
    """The lowest load that did not; None where it never saturated."""


class SearchTooLong(Exception):  # noqa: N818 - an outcome, not an error
    """Patience ended before the bounds were near enough."""


class _Measurer:
    """What MLRsearch calls. Its loads lie on a logarithmic grid; ours are whole."""

    def __init__(self, measure: Measure) -> None:
        self._measure = measure

    def measure(self, intended_duration: float, intended_load: float) -> MeasurementResult:
        """Make one trial."""
        from MLRsearch import MeasurementResult  # noqa: PLC0415 - see search()

        lost = self._measure(intended_duration, round(intended_load))
        return MeasurementResult(
            intended_duration=intended_duration,
            intended_load=intended_load,
            offered_count=COUNTED,
            loss_count=round(lost * COUNTED),
            intended_count=COUNTED,
        )


def search(measure: Measure, goal: Goal) -> Bounds:
    """Find the bounds."""
    # Only a search has to load it: everything else of the lab reads this module's records alone.
    from MLRsearch import Config, MultipleLossRatioSearch, SearchGoal  # noqa: PLC0415

    wanted = SearchGoal(
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
        goals=[wanted],
        min_load=goal.lowest,
        max_load=goal.highest,
        search_duration_max=goal.patience_s,
        warmup_duration=None,
    )
    try:
        found = MultipleLossRatioSearch(config).search(_Measurer(measure), debug=lambda _: None)[wanted]
    except RuntimeError as error:
        raise SearchTooLong(str(error)) from None
    lower, upper = found.relevant_lower_bound, found.relevant_upper_bound
    return Bounds(
        lower=None if lower is None else round(float(lower)),
        upper=None if upper is None else round(float(upper)),
    )
