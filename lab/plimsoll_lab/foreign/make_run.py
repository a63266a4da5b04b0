"""Makes a run of the results of other tools: a file a trial, a contender at a load a point."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from plimsoll_lab import __version__
from plimsoll_lab.foreign.read import read_result
from plimsoll_lab.foreign.result import Options, Result
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.folder import RunFolder, new_run
from plimsoll_lab.store.program_output import pick
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import (
    NOT_TOLD,
    EnvironmentRecord,
    FamilyRecord,
    ImportedFile,
    ImportRecord,
    PointRecord,
    RequestRecord,
    RunRecord,
    SuiteRecord,
)
from plimsoll_lab.store.timelines import write_timelines
from plimsoll_lab.suite.figures import FIGURES
from plimsoll_lab.suite.secrets import redact, secrets_in
from plimsoll_lab.suite.settings import Settings, Value
from plimsoll_lab.suite.spec import Axis, PlannedTrial, RunSettings

CONTENDER = "contender"
TAILS = ("response_time_us.p99", "response_time_us.p90", "response_time_us.p50", "response_time_us.mean")
"""The first of these that every file has is compared."""
MARGIN = 0.05
"""Within this ratio two sides are equivalent, as in a suite that does not say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportSource:
    """A file to import."""

    path: Path
    """Where it is."""
    name: str | None
    """The contender that it is of; None where none was named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImportRequest:
    """What a person says about the files."""

    options: Options
    """What the files lack."""
    load: Settings
    """Settings of the load that the files lack."""
    suite: str | None
    """A name for the run's suite; None: the names of the tools."""
    question: str | None
    """Its question; None: one about the tools."""
    command: str
    """The command line, to import them again."""
    now_unix_s: float
    """The time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _PlacedResult:
    """A result at its point."""

    source: ImportSource
    result: Result
    point: int
    block: int


def import_run(out: Path, sources: Sequence[ImportSource], asked: ImportRequest) -> RunFolder:
    """Import the files as one run below `out`. Nothing is written where one of them is refused."""
    if len({each.name is None for each in sources}) > 1:
        raise LabError("import: name every file, as in NAME=FILE, or none", exit_code=USAGE)
    results = [read_result(each.path, asked.options) for each in sources]
    _refuse_twice(sources)
    loads = [_load(source, result, asked.load) for source, result in zip(sources, results, strict=True)]
    varied = [key for key in dict.fromkeys(key for each in loads for key in each) if _varies(key, loads)]
    settings = [_setting(source, load, varied) for source, load in zip(sources, loads, strict=True)]
    places = list(dict.fromkeys(json.dumps(each) for each in settings))
    placed: list[_PlacedResult] = []
    for source, result, setting in zip(sources, results, settings, strict=True):
        point = places.index(json.dumps(setting))
        block = 1 + sum(each.point == point for each in placed)
        placed.append(_PlacedResult(source=source, result=result, point=point, block=block))
    first = {each.point: place for place, each in reversed(list(enumerate(placed)))}
    points = [
        PointRecord(number=number, setting=settings[place], server={}, load=loads[place])
        for number, place in sorted(first.items())
    ]
    trials = [_trial(number, each, points[each.point].setting) for number, each in enumerate(placed, 1)]
    said = [asked.load, asked.command, asked.suite, asked.question]
    folder = new_run(out, hide=partial(redact, secrets=secrets_in(said, "import")))
    record = _run(folder, points, placed, trials, asked)
    with folder.lock():
        folder.write_run(record)
        for trial, each in zip(trials, placed, strict=True):
            folder.write_trial(trial)
            if each.result.seconds:
                _write_seconds(folder, trial, each.result)
        record.status, record.finished_unix_s = "complete", asked.now_unix_s
        folder.write_run(record)
    return folder


def _refuse_twice(sources: Sequence[ImportSource]) -> None:
    """A measurement that is among them twice would be taken for two, and for one without noise."""
    first: dict[str, Path] = {}
    for path in (each.path for each in sources):
        if (before := first.setdefault(_digest(path), path)) is not path:
            raise LabError(f"{path}: holds the same measurement as {before}; name it once", exit_code=USAGE)


def _load(source: ImportSource, result: Result, asked: Settings) -> dict[str, Value]:
    """The load of a file, with what a person says of it; refused where the two contradict."""
    for key, value in asked.items():
        if result.load.get(key, value) != value:
            raise LabError(
                f"{source.path}: it has load.{key} = {result.load[key]}, and --set says {value}; "
                "leave this --set out: it is for settings that no file has",
                exit_code=USAGE,
            )
    return {**result.load, **asked}


def _digest(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _varies(key: str, loads: Sequence[Settings]) -> bool:
    return len({json.dumps(each.get(key)) for each in loads}) > 1


def _setting(source: ImportSource, load: Settings, varied: Sequence[str]) -> dict[str, Value]:
    """What distinguishes a point from the others."""
    named: dict[str, Value] = {} if source.name is None else {CONTENDER: source.name}
    return named | {f"load.{key}": load.get(key, NOT_TOLD) for key in varied}


def _trial(number: int, placed: _PlacedResult, setting: Settings) -> TrialRecord:
    result = placed.result
    figures = pick(result.summary, (each.name for each in FIGURES))
    completed = figures.get("requests.completed", 0)
    return TrialRecord(
        number=number,
        block=placed.block,
        point=placed.point,
        setting=setting,
        outcome="ok" if completed else "failed",
        reason=None if completed else "no request was completed",
        warnings=tuple(result.warnings),
        figures=figures if completed else {},
        started_unix_s=result.started_unix_s or 0.0,
        elapsed_s=result.elapsed_s or 0.0,
        server={},
        load={"summary": result.summary},
        machine={} if result.elapsed_s is None else {"window_s": result.elapsed_s},
    )


def _run(
    folder: RunFolder,
    points: Sequence[PointRecord],
    placed: Sequence[_PlacedResult],
    trials: Sequence[TrialRecord],
    asked: ImportRequest,
) -> RunRecord:
    tools = list(dict.fromkeys(each.result.tool for each in placed))
    paths = dict.fromkeys(path for each in points for path in each.setting)
    axes = tuple(Axis(path=path, values=tuple(dict.fromkeys(each.setting[path] for each in points))) for path in paths)
    several = any(each.path == CONTENDER and len(each.values) > 1 for each in axes)
    known = [trial.figures for trial in trials if trial.outcome == "ok"]
    judged = [name for name in ("completed_rate", _tail(known)) if name and all(name in each for each in known)]
    versions = {each.result.tool: each.result.version or "not recorded" for each in placed}
    return RunRecord(
        run=folder.path.name,
        status="running",
        suite=SuiteRecord(
            name=asked.suite or "-".join(tools),
            question=asked.question or f"What did {' and '.join(tools)} measure?",
            source="",
            directory="",
            text="",
        ),
        request=RequestRecord(suite="", changes={}, only={}),
        command=asked.command,
        seed=0,
        started_unix_s=asked.now_unix_s,
        finished_unix_s=None,
        versions=versions | {"lab": __version__},
        environment=EnvironmentRecord(),
        axes=axes,
        points=points,
        trials=[PlannedTrial(number=each.number, block=each.block, point=each.point) for each in trials],
        settings=RunSettings(repeat=max(each.block for each in placed)),
        limits=(),
        family=FamilyRecord(compare=CONTENDER if several else None, figures=judged, margin=MARGIN),
        figures=FIGURES,
        imported=ImportRecord(
            unix_s=asked.now_unix_s, files=[_file(number, each) for number, each in enumerate(placed, 1)]
        ),
    )


def _tail(known: Sequence[Mapping[str, float]]) -> str | None:
    """The response time that is compared: as far in the tail as every file goes."""
    return next((name for name in TAILS if known and all(name in each for each in known)), None)


def _file(number: int, placed: _PlacedResult) -> ImportedFile:
    return ImportedFile(
        trial=number,
        name=placed.source.path.name,
        tool=placed.result.tool,
        target=placed.result.target,
        sha256=_digest(placed.source.path),
        started_unix_s=placed.result.started_unix_s,
    )


def _write_seconds(folder: RunFolder, trial: TrialRecord, result: Result) -> None:
    """The timeline, through the lines that a generator of ours writes."""
    records = folder.records(trial.number)
    lines = (
        {
            "phase": "window",
            "second": each.second,
            "completed": each.completed,
            "failed": each.failed,
            "response_time_us": dict(each.response_time_us),
        }
        for each in result.seconds
    )
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (records / "load.timeseries.jsonl").write_text(text, encoding="utf-8")
    write_timelines(folder.path, records, trial)
