"""What became of each client of a trial: its connect time, its exchange time, and its failures.

A point is shown by one trial, the one that its timeline is of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll_lab.analysis.over_time import typical_trials
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.timelines import read_clients


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """The clients of one trial; times are of clients that succeeded."""

    trial: int
    """Its number."""
    contender: str
    """Whose it is; `all` where nothing competes."""
    connect_us: Sequence[float]
    """The connect times, in order of length."""
    exchange_us: Sequence[float]
    """The sums of each client's service times, in order of length."""
    failures: Mapping[int, int]
    """How many clients had this many failures."""


def strips(run: RunRecord, path: Path, trials: Sequence[TrialRecord]) -> dict[str, list[Strip]]:
    """By the setting of the other axes, one strip a contender; empty where no generator recorded
    its connections.
    """
    found: dict[str, list[Strip]] = {}
    for level, contender, trial in typical_trials(run, trials):
        clients = read_clients(path, trial.number)
        if clients:
            succeeded = [each for each in clients if each.success]
            strip = Strip(
                trial=trial.number,
                contender=contender,
                connect_us=sorted(each.connect_us for each in succeeded),
                exchange_us=sorted(each.exchange_us for each in succeeded),
                failures=Counter(each.failures for each in clients),
            )
            found.setdefault(level, []).append(strip)
    return found
