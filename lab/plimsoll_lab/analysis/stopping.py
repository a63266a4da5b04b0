"""Where servers stop: trials that failed or reached a limit, as all of a setting did or in part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis.points import STOPPED
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.summary_record import PointSummary


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop:
    """Trials of one setting that ended alike, and have no figures."""

    point: PointSummary
    """Where: the point itself, where a control measures it again."""
    outcome: Outcome
    trials: Sequence[TrialRecord]
    of: int
    """How many trials that setting has."""
    as_a_whole: bool
    """Whether every trial there stopped, or was spoilt, and this is the outcome; of the control too
    where there is one."""


def stops(
    points: Sequence[PointSummary], controls: Sequence[PointSummary], trials: Sequence[TrialRecord]
) -> list[Stop]:
    """Every outcome without figures of every point, in the order of the points."""
    found = []
    for point in points:
        measured = [point, *(each for each in controls if each.point == point.point and each.n)]
        numbers = {each.number for each in measured}
        of = sum(each.n for each in measured)
        here = [trial for trial in trials if trial.point in numbers]
        none_went_on = all(trial.outcome in {*STOPPED, "invalid"} for trial in here)
        for outcome in STOPPED:
            mine = [trial for trial in here if trial.outcome == outcome]
            if mine:
                as_a_whole = none_went_on and all(each.outcome == outcome for each in measured)
                found.append(Stop(point=point, outcome=outcome, trials=mine, of=of, as_a_whole=as_a_whole))
    return found
