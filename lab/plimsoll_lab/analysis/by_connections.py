"""How response times grow with the connections up, of a run that logs its requests.

A point is shown by one trial, the one that its timeline is of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll_lab.analysis.over_time import typical_trials
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.timelines import Step, read_by_connections


@dataclass(frozen=True, kw_only=True, slots=True)
class Climb:
    """One trial."""

    contender: str
    """Whose it is; `all` where nothing competes."""
    steps: Sequence[Step]
    """Response times by the connections up, in order."""


Climbs = Mapping[str, Sequence[Climb]]
"""By the setting of the other axes, one a contender."""


def climbs(run: RunRecord, path: Path, trials: Sequence[TrialRecord]) -> Climbs:
    """Of each point with a log; none where fewer than two numbers of connections were ever up."""
    found: dict[str, list[Climb]] = {}
    for level, contender, trial in typical_trials(run, trials):
        steps = read_by_connections(path, trial)
        if len(steps) > 1:
            found.setdefault(level, []).append(Climb(contender=contender, steps=steps))
    return found
