"""A run of a whole suite, as large as a real one: every point, block and figure, its timelines and
its clients. The numbers are drawn from a seed.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

from hdrh.histogram import HdrHistogram
from made_records import run_record

from plimsoll_lab.experiment.plan import RunRequest, make_plan
from plimsoll_lab.experiment.run import point_record
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Sample, TrialRecord
from plimsoll_lab.store.run_record import FamilyRecord, PointRecord, SuiteRecord
from plimsoll_lab.store.timelines import write_timelines
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.expand import contender_path
from plimsoll_lab.suite.figures import Figure, figures_of

WINDOW_S = 6.0
UNTOLD = ("capture.", "endpoints", "transmission_", "connection_and_", "backlog_", "goodput", "tcpbenchmark.")
PERCENTILES = {"min": 0.2, "p50": 1, "p75": 1.2, "p90": 1.5, "p95": 1.9, "p99": 3, "p99_9": 8, "p99_99": 20, "max": 40}


def standard_run(path: Path, name: str) -> RunFolder:
    """A run of a suite that ships."""
    source = shipped.find(name)
    return made_run(path, source.read_text(), source)


def made_run(path: Path, text: str, source: Path) -> RunFolder:
    """A suite's run on disk, every trial valid. Contenders differ by a tenth of one another."""
    (path / "trials").mkdir(parents=True)
    folder, request = RunFolder(path=path), RunRequest(suite=source.stem)
    plan = make_plan(text, source=str(source), directory=str(source.parent), request=request, seed=1)
    suite = plan.suite
    run = run_record()
    run.suite = SuiteRecord(
        name=suite.name, question=suite.question, source=suite.source, directory=suite.directory, text=suite.text
    )
    run.axes, run.trials = suite.axes, plan.trials
    run.points = tuple(point_record(point) for point in plan.points)
    run.family = FamilyRecord(compare=contender_path(plan), figures=suite.verdict.figures, margin=suite.verdict.margin)
    run.figures = figures_of(suite, plan.points)
    run.references, run.claims = suite.references, suite.claims
    folder.write_run(run)
    chance = random.Random(1)
    for planned in plan.trials:
        point = run.points[planned.point]
        worth = (1 + planned.point / 10) * chance.uniform(0.9, 1.1)
        trial = TrialRecord(
            number=planned.number,
            block=planned.block,
            point=planned.point,
            setting=point.setting,
            outcome="ok",
            reason=None,
            warnings=(),
            figures={each.name: _value(each, worth, chance) for each in run.figures if _is_told(each.name, point)},
            started_unix_s=1.7e9 + 10 * planned.number + chance.random(),
            elapsed_s=WINDOW_S + chance.random(),
            server={},
            load={
                "summary": {
                    "intended_rate": None,
                    "response_time_us": {"count": 100_000, **_times(chance, worth)},
                    "histograms": {"response_time_ns": _histogram(chance, worth)},
                }
            },
            machine={"window_s": WINDOW_S},
            samples=[
                Sample(at_s=at / 10, cpu_s=at * worth / 20, memory_bytes=round(2e6 * worth) + 4096 * at)
                for at in range(round(WINDOW_S * 10))
            ],
        )
        folder.write_trial(trial)
        clients = int(str(point.load["connections"])) if _tells_of_clients(point) else 0
        _write_parts(folder, trial, clients=clients, chance=chance)
    return folder


def _is_told(figure: str, point: PointRecord) -> bool:
    """Whether a trial of a point has a figure: some need a capture, or CSV."""
    if figure.startswith("role."):
        return figure.endswith(("cpu_cores", "memory_bytes"))
    return not figure.startswith(UNTOLD) or (figure.startswith("tcpbenchmark") and _tells_of_clients(point))


def _tells_of_clients(point: PointRecord) -> bool:
    return point.load.get("csv") == "tcpbenchmark" or point.load.get("per_connection") is True


def _value(figure: Figure, worth: float, chance: random.Random) -> float:
    """Nothing fails in a good run, and its machine has no other load."""
    value = worth * chance.uniform(100, 200)
    if figure.unit not in {"count", "number"}:
        return value
    return 0 if figure.better == "lower" else round(value)


def _times(chance: random.Random, worth: float) -> dict[str, float]:
    return {name: 100 * worth * each * chance.uniform(0.95, 1.05) for name, each in PERCENTILES.items()}


def _histogram(chance: random.Random, worth: float) -> str:
    """Response times around 0.1 ms, with some a hundred times as long."""
    found = HdrHistogram(1, 3_600_000_000_000, 3)
    for each in range(200):
        usual = 1e5 * worth * (100 if each % 50 == 0 else 1)
        found.record_value(round(chance.lognormvariate(math.log(usual), 0.5)), 500)
    return str(found.encode().decode())


def _write_parts(folder: RunFolder, trial: TrialRecord, *, clients: int, chance: random.Random) -> None:
    """The timeline and the clients of a trial."""
    records = folder.records(trial.number)
    seconds = (
        {"second": second, "completed": chance.randrange(9000, 11_000), "failed": chance.randrange(3)}
        | {"response_time_us": {"count": 10_000, **_times(chance, 1 + second / 10)}}
        for second in range(round(WINDOW_S))
    )
    told = (
        {"event": "connection", "connection": number, "success": True, "completed": 100}
        | {"failed_connects": chance.randrange(3), "failed_sequences": 0, "failed_requests": 0}
        | {"establishment_time_us": chance.uniform(50, 5000), "service_time_total_us": chance.uniform(1e4, 1e6)}
        for number in range(clients)
    )
    (records / "load.timeseries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in seconds))
    if clients:
        (records / "load.connections.jsonl").write_text("".join(json.dumps(each) + "\n" for each in told))
    write_timelines(folder.path, records, trial)
