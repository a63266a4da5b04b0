"""Records as short as they may be, for tests that are about one of their fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.network_record import (
    CalibrationRecord,
    PathDeviationRecord,
    PathMeasurementRecord,
    PathRecord,
    PathTargetRecord,
)
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.run_record import (
    DescriptorLimits,
    EnvironmentRecord,
    FamilyRecord,
    PointRecord,
    RequestRecord,
    RunRecord,
    SuiteRecord,
)
from plimsoll_lab.store.summary_record import FigureSummary, PointSummary
from plimsoll_lab.store.timelines import write_timelines
from plimsoll_lab.suite.figures import FIGURES
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Axis, PlannedTrial, RunSettings

ENVIRONMENT = EnvironmentRecord(
    system="Linux 6.1",
    machine="x86_64",
    cpus=2,
    memory="8000000 kB",
    hypervisor="yes",
    open_files_limit=DescriptorLimits(soft=1024, hard=20_000),
    metering="cgroup v2",
    python="3.11.7",
    cpu_governor="performance",
)


def calibration_record(points: Sequence[int], *, within: bool = False, off: float = 0.09) -> CalibrationRecord:
    """The calibration of these points by one path: its 10 ms of round trip are that part longer."""
    path = PathRecord(
        start="h1",
        end="h2",
        asked=PathTargetRecord(one_way_us=5e3, round_trip_delay_us=1e4, round_trip_us=1e4, goodput_bits_per_s=None),
        measured=PathMeasurementRecord(round_trip_us={"p50": 1e4 * (1 + off)}, goodput_bits_per_s=None),
        off=PathDeviationRecord(round_trip=off, goodput=None),
        within=within,
        attempts=3,
    )
    return CalibrationRecord(unix_s=0.0, points=points, backend="tap", large_segments=None, priority=None, paths=[path])


def run_record() -> RunRecord:
    """A run of nothing; a test assigns what it is about."""
    return RunRecord(
        run="0001",
        status="complete",
        suite=SuiteRecord(name="it", question="Well?", source="it.toml", directory="/here", text=""),
        request=RequestRecord(suite="it.toml", changes={}, only={}),
        command="plimsoll lab run it.toml --seed 1",
        seed=1,
        started_unix_s=0.0,
        finished_unix_s=1.0,
        versions={"plimsoll": "1"},
        environment=ENVIRONMENT,
        axes=(),
        points=(),
        trials=(),
        settings=RunSettings(),
        limits=(),
        family=FamilyRecord(compare=None, figures=(), margin=0.05),
        figures=(),
    )


def changed(folder: RunFolder, **fields: object) -> RunFolder:
    """A stored run with these fields of its record changed."""
    run = folder.read_run()
    for name, value in fields.items():
        setattr(run, name, value)
    folder.write_run(run)
    return folder


def stored_run(
    path: Path, models: Sequence[str] = ("epoll",), repeat: int = 1, outcome: Outcome = "ok", window_s: float = 1.0
) -> RunFolder:
    """A run on disk: models in blocks, each trial a little apart from the last."""
    (path / "trials").mkdir(parents=True)
    folder = RunFolder(path=path)
    order = [(block, number) for block in range(1, repeat + 1) for number in range(len(models))]
    compare = "server.model" if len(models) > 1 else None
    names = ("completed_rate", "response_time_us.p50")
    run = run_record()
    run.points = tuple(
        PointRecord(number=number, setting={"server.model": model}, server={"model": model}, load={"connections": 10})
        for number, model in enumerate(models)
    )
    run.axes = (Axis(path="server.model", values=tuple(models)),)
    run.trials = tuple(
        PlannedTrial(number=place, block=block, point=number) for place, (block, number) in enumerate(order, 1)
    )
    run.family = FamilyRecord(compare=compare, figures=names if compare else (), margin=0.05)
    run.figures = FIGURES
    folder.write_run(run)
    for place, (block, number) in enumerate(order, 1):
        figures = {"completed_rate": 1000.0 + 100 * number + block % 7, "response_time_us.p50": 200.0 + block % 5}
        folder.write_trial(
            TrialRecord(
                number=place,
                block=block,
                point=number,
                setting={"server.model": models[number]},
                outcome=outcome,
                reason=None if outcome == "ok" else "the server <ended> with code 1",
                warnings=(),
                figures=figures if outcome == "ok" else {},
                started_unix_s=float(place),
                elapsed_s=window_s,
                server={},
                load={"summary": {"intended_rate": None}},
                machine={"window_s": window_s},
            )
        )
    return folder


def write_seconds(folder: RunFolder, seconds: int) -> None:
    """The timeline of every trial, a second alike the next, and the percentiles of all of them."""
    times = {"count": 100, "min": 50.0, "p50": 100.0, "p75": 150.0, "p90": 200.0, "p99": 400.0, "max": 900.0}
    lines = [{"second": second, "completed": 100, "response_time_us": times} for second in range(seconds)]
    for trial in folder.read_trials():
        records = folder.records(trial.number)
        (records / "load.timeseries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        write_timelines(folder.path, records, trial)
        folder.write_trial(replace(trial, load={"summary": {"response_time_us": times | {"count": 10_000}}}))


def point_summary(
    setting: Settings, number: int = 0, outcome: Outcome = "ok", reason: str | None = None, **figures: float
) -> PointSummary:
    """A point with one trial; in a figure's name `__` stands for a dot."""
    return PointSummary(
        point=setting,
        number=number,
        n=1,
        valid_n=int(outcome == "ok"),
        outcome=outcome,
        reason=reason,
        figures={name.replace("__", "."): figure_summary(value) for name, value in figures.items()},
        limits=(),
    )


def figure_summary(value: float) -> FigureSummary:
    """A figure of one trial."""
    found = summarise([value])
    return FigureSummary(
        n=found.n,
        mean=found.mean,
        stdev=found.stdev,
        mean_ci95=found.mean_ci95,
        median=found.median,
        median_ci95=found.median_ci95,
        least=found.least,
        greatest=found.greatest,
        cv=None,
    )
