"""Records as short as they may be, for tests that are about one of their fields."""

from __future__ import annotations

from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.store.records import Outcome
from plimsoll_lab.store.run_record import (
    DescriptorLimits,
    EnvironmentRecord,
    FamilyRecord,
    RequestRecord,
    RunRecord,
    SuiteRecord,
)
from plimsoll_lab.store.summary_record import FigureSummary, PointSummary
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import RunSettings

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
