"""The runs of one suite in the order they were made: each figure at each point, with its interval,
and where its level changed.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.comparison import asked_at
from plimsoll_lab.analysis.environments import asked_of_run
from plimsoll_lab.analysis.family import is_told_less, may_tell
from plimsoll_lab.analysis.points import point_outcome
from plimsoll_lab.stats.change_points import LEAST_VALUES, change_points
from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.store.folder import RunFolder, read_each
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.suite.figures import Figure, is_response_time

SEED = 1
"""Of the permutations: the same runs show the same changes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryRun:
    """A run of the suite."""

    run: str
    started_unix_s: float
    build: str
    """The version of plimsoll, and the beginning of its binary's SHA-256."""
    environment: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryValue:
    """A figure in one run: the median, and the ends of its 95 % interval where it has one."""

    order: int
    """The place of its run among `runs`."""
    median: float
    low: float | None
    high: float | None
    n: int
    told: float
    """The part of the point's trials that have the figure, of those that may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A run at which a new level begins."""

    order: int
    """The place of that run among `runs`."""
    before: float
    """The level before."""
    after: float
    """The new level."""

    @property
    def ratio(self) -> float | None:
        """The new level over the one before; None where that is zero."""
        return self.after / self.before if self.before else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """A figure at a point, over the runs that have it."""

    figure: Figure
    at: str
    values: Sequence[HistoryValue]
    missing: Sequence[int]
    """The places of the runs that should have it and do not."""
    changes: Sequence[Change]


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """The runs of a suite, the oldest first, and the series of its judged figures."""

    suite: str
    runs: Sequence[HistoryRun]
    series: Sequence[Series]
    least: int
    """Change points need this many runs with a result."""
    unread: Sequence[str] = ()
    """Why runs are left out that cannot be read, or are not complete."""


def find_history(folders: Sequence[RunFolder], suite: str) -> History:
    """The history of a suite. Runs that searched or are not complete, and control points, are left
    out.
    """
    runs: list[HistoryRun] = []
    unread: list[str] = []
    found: dict[tuple[str, str, str], tuple[Figure, dict[int, HistoryValue | None]]] = {}
    wanted = read_each(folders, lambda run: run.suite.name == suite and run.search is None, unread)
    whole = []
    for folder, record, trials in wanted:
        if record.status == "complete":
            whole.append((folder, record, trials))
        else:
            unread.append(f"{folder.path.name} is not complete")
    for order, (folder, record, trials) in enumerate(whole):
        runs.append(_run(folder, record))
        for figure, place, asked, value in _values(record, trials, order):
            found.setdefault((figure.name, place, asked), (figure, {}))[1][order] = value
    told = {
        key: (figure, values, asked)
        for key, (figure, asked) in found.items()
        if (values := _told_alike(figure, [each for each in asked.values() if each is not None]))
    }
    alike = Counter((name, place) for name, place, _ in told)
    series = [
        Series(
            figure=figure,
            # Of equal places under several loads, networks or warm-ups, each is named by its first
            # run.
            at=place if alike[name, place] == 1 else f"{place}, as in run {runs[values[0].order].run}",
            values=values,
            missing=sorted(asked.keys() - {each.order for each in values}),
            changes=_changes(values),
        )
        for (name, place, _), (figure, values, asked) in told.items()
    ]
    return History(suite=suite, runs=runs, series=series, least=LEAST_VALUES, unread=unread)


def _run(folder: RunFolder, record: RunRecord) -> HistoryRun:
    versions = record.versions
    return HistoryRun(
        run=folder.path.name,
        started_unix_s=record.started_unix_s,
        build=f"{versions.get('plimsoll', '')} {versions.get('plimsoll_sha256', '')[:8]}".strip(),
        environment=record.environment.to_json(),
    )


def _values(
    record: RunRecord, trials: Sequence[TrialRecord], order: int
) -> list[tuple[Figure, str, str, HistoryValue | None]]:
    """Each judged figure at each point: figure, point, what was asked there, and the value where
    there is one.
    """
    found = []
    of_run = asked_of_run(record)
    for point in record.points:
        if point.control:
            continue
        made = [each for each in trials if each.point == point.number]
        # As on the page of the run: a few trials of a point without a result are none either.
        valid = [each for each in made if each.outcome == "ok"] if point_outcome(made)[0] == "ok" else []
        for name in record.family.figures:
            values = [each.figures[name] for each in valid if name in each.figures]
            value = _value(values, order, of=len(may_tell(made))) if values else None
            asked = repr((asked_at(point), of_run))
            found.append((record.figure(name), formatting.setting(point.setting), asked, value))
    return found


def _told_alike(figure: Figure, values: Sequence[HistoryValue]) -> list[HistoryValue]:
    """Without the runs of which more trials leave a response time untold than of others: these may
    be its slowest.
    """
    if not values or not is_response_time(figure.name):
        return list(values)
    most = max(each.told for each in values)
    return [each for each in values if not is_told_less(each.told, most)]


def _value(values: Sequence[float], order: int, *, of: int) -> HistoryValue:
    summary = summarise(values)
    low, high = summary.median_ci95 or (None, None)
    told = summary.n / of
    return HistoryValue(order=order, median=summary.median, low=low, high=high, n=summary.n, told=told)


def _changes(values: Sequence[HistoryValue]) -> list[Change]:
    """Where a new level begins, and by how much; on a logarithmic scale, as figures differ by
    factors, and on a linear one where some are zero.
    """
    medians = [each.median for each in values]
    to_scale, back = (math.log, math.exp) if min(medians) > 0 else (float, float)
    scaled = [to_scale(each) for each in medians]
    places = change_points(scaled, seed=SEED)
    edges = [0, *places, len(medians)]
    levels = [back(math.fsum(scaled[start:end]) / (end - start)) for start, end in itertools.pairwise(edges)]
    return [
        Change(order=values[place].order, before=before, after=after)
        for place, before, after in zip(places, levels, levels[1:], strict=False)
    ]
