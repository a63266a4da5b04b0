"""A run: from a plan to a folder. Each trial is on disk before the next one starts, so that
`resume` loses nothing.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from typing import cast

from plimsoll_lab import __version__
from plimsoll_lab.experiment.events import Events, trial_event
from plimsoll_lab.experiment.plan import Request, reproducing_command
from plimsoll_lab.hosts.binary import binary_digest, binary_version
from plimsoll_lab.hosts.ray_cluster import RayCluster
from plimsoll_lab.hosts.samplers.environment import read_environment
from plimsoll_lab.problem import ENVIRONMENT, Interrupted, LabError, NoHost
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import SCHEMA_VERSION, Attempt, Json, TrialRecord
from plimsoll_lab.store.timelines import write_timelines
from plimsoll_lab.suite.drawn import quantity
from plimsoll_lab.suite.expand import contender_path, trial_s
from plimsoll_lab.suite.figures import CAPACITY, capacity_figure, figures_of
from plimsoll_lab.suite.spec import Plan, PlannedTrial, Point, SearchSettings
from plimsoll_lab.trial.calibration import calibrate, refuse_untrue
from plimsoll_lab.trial.lifecycle import Outputs, run_trial
from plimsoll_lab.trial.stage import Machines, Stage, open_stages
from plimsoll_lab.trial.suspicion import passing_cause, suspicion

ATTEMPTS = 2
"""Times a suspect trial is made again: a passing disturbance is over by then, a machine too small
is not."""
COMING = 3
"""Trials to come that an event names."""
REPEAT_BUDGET = 0.25
"""Trials that may be made again, as a part of the run: a run takes a quarter longer at most."""


def begin(folder: RunFolder, plan: Plan, request: Request, binary: str, metering: str) -> Json:
    """Write the run's own record, before the first trial. The folder is one that hides the plan's
    secrets.
    """
    record: Json = {
        "schema_version": SCHEMA_VERSION,
        "run": folder.path.name,
        "status": "running",
        "suite": {
            "name": plan.suite.name,
            "question": plan.suite.question,
            "source": plan.suite.source,
            "directory": plan.suite.directory,
            "text": plan.suite.text,
        },
        "request": {
            "suite": request.suite,
            "changes": dict(request.changes),
            "only": {path: list(values) for path, values in request.only.items()},
            "fast": request.fast,
            **({"hosts": request.hosts} if request.hosts else {}),
        },
        "command": reproducing_command(request, plan.seed),
        "seed": plan.seed,
        "started_unix_s": time.time(),
        "finished_unix_s": None,
        "versions": build_of(binary),
        "environment": read_environment(metering),
        "axes": [asdict(each) for each in plan.suite.axes],
        "points": [asdict(point) for point in plan.points],
        "trials": [asdict(trial) for trial in plan.trials],
        "settings": asdict(plan.suite.run),
        "limits": [asdict(limit) for limit in plan.suite.limits],
        "family": {
            "compare": contender_path(plan),
            "figures": list(plan.suite.verdict.figures),
            "margin": plan.suite.verdict.margin,
            "baseline": plan.suite.verdict.baseline,
            "tolerance": plan.suite.verdict.tolerance,
        },
        "figures": [asdict(figure) for figure in figures_of(plan.suite)],
        **documents(plan),
    }
    if plan.suite.search is not None:
        record |= searched(plan.suite.search)
        record["figures"] = [asdict(capacity_figure(plan.suite.search)), *cast("list[Json]", record["figures"])]
        record["family"] = cast("Json", record["family"]) | {"figures": [CAPACITY]}
    folder.write_run(record)
    return record


def build_of(binary: str) -> dict[str, str]:
    """What measures: the versions, and a digest of the binary, as two builds may have one
    version.
    """
    return {"plimsoll": binary_version(binary), "plimsoll_sha256": binary_digest(binary), "lab": __version__}


def changed_since(record: Json, binary: str) -> list[str]:
    """What measures otherwise than when the run was begun, each in words: the build, and the
    kernel.
    """
    before, now = cast("dict[str, str]", record["versions"]), build_of(binary)
    changed = [
        f"{name.replace('_', ' ')} was {before.get(name, 'not recorded')} and is {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]
    system = cast("Json", record["environment"]).get("system")
    here = read_environment("")["system"]
    return changed + ([f"the kernel was {system} and is {here}"] if system != here else [])


def documents(plan: Plan) -> Json:
    """What the suite holds from documents, and its settings as numbers where they are some."""
    suite = plan.suite
    quantities: dict[str, Json] = {}
    for point in plan.points:
        root = str(point.server["root"]).replace("{dir}", suite.directory) if "root" in point.server else None
        for path, value in point.setting.items():
            found = quantity(path, value, root)
            if found is not None:
                quantities.setdefault(path, {})[str(value)] = list(found)
    claims = [asdict(each) for each in suite.claims]
    return {
        "quantities": quantities,
        "drawn": [list(each) for each in suite.drawn],
        "references": [asdict(each) for each in suite.references],
        # JSON has no number above all others.
        "claims": [each | {"most": None if math.isinf(each["most"]) else each["most"]} for each in claims],
    }


def searched(search: SearchSettings) -> Json:
    """What a run that searches has beside."""
    return {"search": asdict(search), "searches": []}


def again(discarded: TrialRecord, trial: TrialRecord) -> TrialRecord:
    """A trial that was made again, with what it replaces: its outcome and figures stay as they
    were.
    """
    attempt = Attempt(
        outcome=discarded.outcome,
        reason=suspicion(discarded),
        started_unix_s=discarded.started_unix_s,
        elapsed_s=discarded.elapsed_s,
        figures=dict(discarded.figures),
        cause=passing_cause(discarded),
    )
    return replace(trial, attempts=(*discarded.attempts, attempt))


def lasting_causes(trials: Iterable[TrialRecord]) -> set[tuple[int, str]]:
    """Points and causes at which repeating did not help: the last of all attempts showed the cause
    too.
    """
    return {
        (trial.point, cause)
        for trial in trials
        if len(trial.attempts) >= ATTEMPTS and (cause := passing_cause(trial)) is not None
    }


@contextlib.contextmanager
def stages_of(
    folder: RunFolder, record: Json, plan: Plan, machines: Machines, binary: str
) -> Iterator[Mapping[int, Stage]]:
    """The stage of each point, once the paths of every network have been measured; none where one
    is untrue.
    """
    with open_stages(machines, binary, plan) as stages:
        if isinstance(machines, RayCluster):
            _note_metering(record, machines.metering)
            record["hosts"] = describe_hosts(machines)
            folder.write_run(record)
        measured = calibrate(plan, stages)
        if measured:
            record["calibrations"] = [*cast("list[Json]", record.get("calibrations", [])), *measured]
            folder.write_run(record)
            refuse_untrue(measured)
        yield stages


def _note_metering(record: Json, metering: str) -> None:
    """What the cost is read from on a cluster is known once its hosts are; two kinds do not mix."""
    environment = cast("Json", record["environment"])
    if "hosts" in record and environment["metering"] != metering:
        raise LabError(
            f"the run was metered by {environment['metering']}, which would now be {metering}; the two do not mix: "
            "begin a new run"
        )
    environment["metering"] = metering


def describe_hosts(cluster: RayCluster) -> list[Json]:
    """Every host of a run on a cluster, and what it is."""
    return [
        {
            "name": name,
            "address": placed.node.address,
            "called": sorted(placed.node.names - {placed.node.address}),
            "labels": dict(placed.node.labels),
            "machine": placed.host.machine,
            "versions": dict(placed.inspection.versions),
            "environment": dict(placed.inspection.environment),
        }
        for name, placed in cluster.hosts.items()
    ]


def _measure(
    folder: RunFolder, stage: Stage, binary: str, plan: Plan, point: Point, planned: PlannedTrial, events: Events
) -> TrialRecord:
    """Make one measurement, and keep its record, its files and its timeline."""
    records = folder.records(planned.number)
    captures = folder.captures() if plan.suite.capture else None
    outputs = Outputs(captures=captures, records=records, tell=events.tell)
    trial = run_trial(stage, binary, plan.suite, point, planned, outputs)
    write_timelines(folder.path, records, trial)
    folder.write_trial(trial)
    return trial


def carry_out(
    folder: RunFolder,
    record: Json,
    plan: Plan,
    machines: Machines,
    binary: str,
    events: Events,
) -> Interrupted | None:
    """Measure whatever the folder does not hold yet. The status on disk says how it ended.

    Over a network, its paths are measured first, and where one is not what was asked for nothing
    else is.
    """
    before = folder.read_trials()
    made = list(before)
    done = {trial.number for trial in before}
    budget = round(REPEAT_BUDGET * len(plan.trials)) - sum(len(trial.attempts) for trial in before)
    points = {point.number: point for point in plan.points}
    interrupted = None
    postponed: list[tuple[int, NoHost]] = []
    status = "failed"
    try:
        left = [planned for planned in plan.trials if planned.number not in done]
        with contextlib.ExitStack() as stack:
            # A run with nothing left to measure needs no network.
            stages = stack.enter_context(stages_of(folder, record, plan, machines, binary)) if left else {}
            for place, planned in enumerate(left):
                point, stage = points[planned.point], stages[planned.point]
                coming: list[Json] = [dict(points[each.point].setting) for each in left[place + 1 : place + 1 + COMING]]
                started = _started(planned, point, len(plan.trials), coming)
                events.tell(started)
                try:
                    trial = _measure(folder, stage, binary, plan, point, planned, events)
                except NoHost as lacking:
                    postponed.append((planned.number, lacking))
                    continue
                lasting = lasting_causes(made)
                while (
                    (cause := passing_cause(trial)) is not None
                    and (trial.point, cause) not in lasting
                    and len(trial.attempts) < ATTEMPTS
                    and budget > 0
                ):
                    budget -= 1
                    events.tell(started | {"again": cause})
                    try:
                        repeated = _measure(folder, stage, binary, plan, point, planned, events)
                    except NoHost:
                        break
                    trial = again(trial, repeated)
                    folder.write_trial(trial)
                made.append(trial)
                events.tell(trial_event(trial, len(plan.trials)))
        if postponed:
            numbers = ", ".join(str(number) for number, _ in postponed)
            raise NoHost(f"trials {numbers} could not be made: {postponed[-1][1]}", exit_code=ENVIRONMENT)
        status = "complete"
    except Interrupted as signal:
        interrupted = signal
        status = "interrupted"
    finally:
        folder.write_run(record | {"status": status, "finished_unix_s": time.time()})
        events.tell({"event": "end", "status": status})
    return interrupted


def _started(planned: PlannedTrial, point: Point, total: int, coming: list[Json]) -> Json:
    """A trial that begins, and which come after it."""
    about = {"number": planned.number, "of": total, "block": planned.block, "point": dict(point.setting)}
    return {"event": "trial_started", **about, "predicted_s": trial_s(point.load), "next": coming}
