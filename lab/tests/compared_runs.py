"""Runs on disk that a comparison of stored runs takes: one trial of one server each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from made_records import stored_run

from plimsoll_lab.store.comparison_summary import ComparisonSummary
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Attempt, CutRecord, Outcome
from plimsoll_lab.store.run_record import FamilyRecord
from plimsoll_lab.store.search_record import SearchRecord, SearchSettingsRecord
from plimsoll_lab.suite.figures import read_limit

RATE, MEDIAN = "completed_rate", "response_time_us.p50"
DAYS = (1.0, 1.012, 0.991, 1.004, 0.996)
"""How five runs of one server differ."""


def stored(
    path: Path,
    figures: Mapping[str, float],
    *,
    models: Sequence[str] = ("epoll",),
    outcome: Outcome = "ok",
    cut: CutRecord | None = None,
    **changed: object,
) -> RunFolder:
    """A run of one trial of each server, which ended so, with these figures and these fields of its
    record.
    """
    folder = stored_run(path, models, outcome=outcome)
    run = folder.read_run()
    run.family = FamilyRecord(compare=None, figures=(RATE, MEDIAN), margin=0.05)
    for name, value in changed.items():
        setattr(run, name, value)
    folder.write_run(run)
    for trial in folder.read_trials():
        folder.write_trial(replace(trial, figures=figures, cut=cut))
    return folder


def several(path: Path, side: str, rates: Sequence[float], median: float = 200.0) -> list[RunFolder]:
    """A run of each rate."""
    return [stored(path / f"{side}{place}", {RATE: rate, MEDIAN: median}) for place, rate in enumerate(rates)]


def ended(path: Path, side: str, outcomes: Sequence[Outcome]) -> list[RunFolder]:
    """A run of each outcome; all complete the same."""
    figures = {RATE: 1000.0, MEDIAN: 200.0}
    return [stored(path / f"{side}{place}", figures, outcome=outcome) for place, outcome in enumerate(outcomes)]


def made_again(folder: RunFolder, first: Mapping[str, float]) -> None:
    """The trial of a run was made again, and had measured this before."""
    [trial] = folder.read_trials()
    attempt = Attempt(
        outcome="ok", reason="others used the CPU", started_unix_s=0.0, elapsed_s=1.0, figures=first, cause="steal"
    )
    folder.write_trial(replace(trial, attempts=(attempt,)))


def messages(found: ComparisonSummary) -> dict[str, str]:
    return {each.code: each.message for each in found.warnings}


SERVERS = ("epoll", "poll", "select", "fork", "threads")
"""In the order of their searches."""


def searched(path: Path, *searches: dict[str, object]) -> RunFolder:
    """A run of one search of each of some servers; the trial of the run is of the first."""
    folder = stored(path, {RATE: 1000.0, MEDIAN: 200.0})
    run = folder.read_run()
    run.search = SearchSettingsRecord(over="load.rate", lowest=1, highest=10_000)
    base = {"block": 1, "state": "complete", "lower": 100, "upper": 105, "limited_by": "server", "is_held": True}
    run.searches = [
        SearchRecord.model_validate(
            {"number": place + 1, "point": place, "setting": {"server.model": name}, **base, **each}
        )
        for place, (name, each) in enumerate(zip(SERVERS, searches, strict=False))
    ]
    run.limits = [read_limit("response_time.p99", "< 5ms", source="it.toml")]
    folder.write_run(run)
    return folder
