"""A run: from a plan to a folder. Each trial is on disk before the next one starts, so that
`resume` loses nothing.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, replace

from plimsoll_lab.analysis.environments import changes_of_machine
from plimsoll_lab.analysis.failures import nothing_works
from plimsoll_lab.experiment.events import Events, trial_event
from plimsoll_lab.experiment.plan import RunRequest, reproducing_command
from plimsoll_lab.experiment.programs import programs_of
from plimsoll_lab.hosts.binary import build_of
from plimsoll_lab.hosts.ray_cluster import RayCluster
from plimsoll_lab.hosts.samplers.environment import read_environment
from plimsoll_lab.problem import ENVIRONMENT, Interrupted, LabError, NoHost
from plimsoll_lab.stats.growth import last_over_line
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Attempt, Json, TrialRecord, untold_figures
from plimsoll_lab.store.run_record import (
    EnvironmentRecord,
    FamilyRecord,
    HostRecord,
    PointRecord,
    RequestRecord,
    RunRecord,
    Status,
    SuiteRecord,
)
from plimsoll_lab.store.search_record import SearchSettingsRecord
from plimsoll_lab.store.timelines import read_by_connections, write_timelines
from plimsoll_lab.suite.drawn import Quantity, quantity
from plimsoll_lab.suite.expand import contender_path
from plimsoll_lab.suite.figures import CAPACITY, LAST_OVER_LINE, capacity_figure, figures_of
from plimsoll_lab.suite.prediction import trial_s
from plimsoll_lab.suite.spec import Plan, PlannedTrial, Point
from plimsoll_lab.trial.calibration import calibrate, refuse_far_off
from plimsoll_lab.trial.disturbance import is_told
from plimsoll_lab.trial.lifecycle import Outputs, run_trial
from plimsoll_lab.trial.retry import has_lost_a_host, passing_cause, retry_reason
from plimsoll_lab.trial.testbed import Machines, Testbed, open_testbeds

ATTEMPTS = 2
"""Times a suspect trial is made again: a passing disturbance is over by then, a machine too small
is not."""
COMING = 3
"""Trials to come that an event names."""
REPEAT_BUDGET = 0.25
"""Trials that may be made again, as a part of the run: a run takes a quarter longer at most."""
MEAN = "response_time_us.mean"
"""The figure whose requests the growth with the connections is of."""


def begin(folder: RunFolder, plan: Plan, request: RunRequest, binary: str, metering: str) -> RunRecord:
    """Write the run's own record, before the first trial. The folder hides the plan's secrets."""
    suite, search = plan.suite, plan.suite.search
    figures, judged = figures_of(suite, plan.points), suite.verdict.figures
    record = RunRecord(
        run=folder.path.name,
        status="running",
        suite=SuiteRecord(
            name=suite.name,
            question=suite.question,
            source=suite.source,
            directory=suite.directory,
            text=suite.text,
        ),
        request=RequestRecord(
            suite=request.suite,
            changes=request.changes,
            only=request.only,
            fast=request.fast,
            hosts=request.hosts or None,
        ),
        command=reproducing_command(request, plan.seed),
        seed=plan.seed,
        started_unix_s=time.time(),
        finished_unix_s=None,
        versions=build_of(binary),
        environment=EnvironmentRecord.model_validate(read_environment(metering)),
        axes=suite.axes,
        points=[point_record(point) for point in plan.points],
        trials=plan.trials,
        settings=suite.run,
        limits=suite.limits,
        family=FamilyRecord(
            compare=contender_path(plan),
            figures=judged if search is None else (CAPACITY,),
            margin=suite.verdict.margin,
            baseline=suite.verdict.baseline,
            tolerance=suite.verdict.tolerance,
        ),
        figures=figures if search is None else (capacity_figure(search), *figures),
        search=None if search is None else SearchSettingsRecord(**asdict(search)),
        quantities=quantities_of(plan),
        drawn=suite.drawn,
        references=suite.references,
        claims=suite.claims,
    )
    folder.write_run(record)
    return record


def point_record(point: Point) -> PointRecord:
    """A point as it is written."""
    return PointRecord.model_validate(asdict(point))


def changed_since(record: RunRecord, binary: str) -> list[str]:
    """What measures otherwise than when the run was begun, each in words: the build, the kernel and
    the machine. Of a cluster the lab's own machine measures nothing.
    """
    before, now = record.versions, build_of(binary)
    changed = [
        f"{name.replace('_', ' ')} was {before.get(name, 'not recorded')} and is {value}"
        for name, value in now.items()
        if before.get(name) != value
    ]
    if record.request.hosts:
        return changed
    return changed + changes_of_machine(record.environment, EnvironmentRecord.model_validate(read_environment("")))


def quantities_of(plan: Plan) -> dict[str, dict[str, Quantity]]:
    """The settings that are numbers, by path and by value as text."""
    quantities: dict[str, dict[str, Quantity]] = {}
    for point in plan.points:
        root = str(point.server["root"]).replace("{dir}", plan.suite.directory) if "root" in point.server else None
        for path, value in point.setting.items():
            found = quantity(path, value, root)
            if found is not None:
                quantities.setdefault(path, {})[str(value)] = found
    return quantities


def with_discarded_attempt(discarded: TrialRecord, trial: TrialRecord) -> TrialRecord:
    """A trial that was made again, with what it replaces: its outcome and figures stay as they
    were.
    """
    attempt = Attempt(
        outcome=discarded.outcome,
        reason=retry_reason(discarded),
        started_unix_s=discarded.started_unix_s,
        elapsed_s=discarded.elapsed_s,
        figures=dict(discarded.figures),
        cause=passing_cause(discarded),
        warnings=list(discarded.warnings),
        cut=discarded.cut,
        late_figures=dict(discarded.late_figures),
        taken=discarded.taken,
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


def _may_pass(trial: TrialRecord, lasting: AbstractSet[tuple[int, str]]) -> bool:
    """Whether repeating a trial may help."""
    cause = passing_cause(trial)
    return cause is not None and (trial.point, cause) not in lasting and len(trial.attempts) < ATTEMPTS


def _halfway(before: Sequence[TrialRecord], budget: int) -> TrialRecord | None:
    """The last trial of a run that was ended while it was to be made again: it is made again now,
    as it would have been.
    """
    last = max(before, key=lambda trial: (trial.started_unix_s, trial.number), default=None)
    if last is None or budget <= 0:
        return None
    return last if _may_pass(last, lasting_causes(trial for trial in before if trial is not last)) else None


@contextlib.contextmanager
def calibrated_testbeds(
    folder: RunFolder, record: RunRecord, plan: Plan, machines: Machines, binary: str, events: Events
) -> Iterator[Mapping[int, Testbed]]:
    """The testbed of each point, once the paths of every network have been measured. Raises
    LabError where one is far from what was asked for.
    """
    with open_testbeds(machines, binary, plan) as testbeds:
        if isinstance(machines, RayCluster):
            _note_metering(record, machines.metering)
            note_hosts(folder, record, machines)
        if record.programs is None and not folder.count_trials():
            record.programs = programs_of(plan, machines)
            folder.write_run(record)
        if any(testbed.network is not None for testbed in testbeds.values()):
            events.publish({"event": "paths"})
        measured = calibrate(plan, testbeds)
        if measured:
            record.calibrations = [*record.calibrations, *measured]
            folder.write_run(record)
            refuse_far_off(measured, plan.points)
        yield testbeds


def _note_metering(record: RunRecord, metering: str) -> None:
    """What the cost is read from on a cluster is known once its hosts are. Two kinds are not
    comparable.
    """
    before = record.environment.metering
    if record.hosts and before != metering:
        raise LabError(
            f"the run reads CPU and memory by {before}, and its hosts would now read them by {metering}: the figures "
            "would not be comparable; begin a new run"
        )
    record.environment = record.environment.model_copy(update={"metering": metering})


def note_hosts(folder: RunFolder, record: RunRecord, machines: Machines) -> None:
    """Add records of the hosts of a cluster. A host that took the name of a lost one is a further
    record.
    """
    if not isinstance(machines, RayCluster):
        return
    noted = {(each.name, each.address): each for each in record.hosts}
    now = {(each.name, each.address): each for each in _describe_hosts(machines)}
    if noted | now != noted:
        record.hosts = list((noted | now).values())
        folder.write_run(record)


def _describe_hosts(cluster: RayCluster) -> list[HostRecord]:
    return [
        HostRecord(
            name=name,
            address=placed.node.address,
            called=sorted(placed.node.names - {placed.node.address}),
            labels=placed.node.labels,
            machine=placed.host.machine,
            versions=placed.inspection.versions,
            environment=placed.inspection.environment,
        )
        for name, placed in cluster.hosts.items()
    ]


def _measure(
    folder: RunFolder, testbed: Testbed, binary: str, plan: Plan, point: Point, planned: PlannedTrial, events: Events
) -> TrialRecord:
    """Make one measurement, and keep its files and its timeline."""
    records = folder.records(planned.number)
    captures = folder.captures() if plan.suite.capture else None
    outputs = Outputs(captures=captures, records=records, notify=events.publish)
    trial = run_trial(testbed, binary, plan.suite, point, planned, outputs)
    write_timelines(folder.path, records, trial)
    return with_growth(folder, trial)


def with_growth(folder: RunFolder, trial: TrialRecord) -> TrialRecord:
    """The figure that is told of the table of requests, where its response times are the
    server's: neither of moments that the emulator disturbed, nor by half of a late generator.
    """
    if not is_told(LAST_OVER_LINE, trial.cut, ()) or MEAN in untold_figures(trial):
        return trial
    steps = read_by_connections(folder.path, trial)
    ratio = last_over_line([(each.connections, each.response_time_us) for each in steps])
    return trial if ratio is None else replace(trial, figures={**trial.figures, LAST_OVER_LINE: ratio})


def is_whole(folder: RunFolder, record: RunRecord) -> bool:
    """Whether nothing is left to be measured."""
    trials = folder.read_trials()
    lost = record.search is None and any(has_lost_a_host(trial) for trial in trials)
    return record.status == "complete" and len(trials) >= len(record.trials) and not lost


def carry_out(
    folder: RunFolder,
    record: RunRecord,
    plan: Plan,
    machines: Machines,
    binary: str,
    events: Events,
) -> Interrupted | None:
    """Measure whatever the folder does not hold yet, and again what lost a host there or was to be
    made again as the run ended. The status on disk says how it ends.

    Over a network, its paths are measured first, and where one is not what was asked for nothing
    else is.
    """
    before = folder.read_trials()
    budget = round(REPEAT_BUDGET * len(plan.trials)) - sum(len(trial.attempts) for trial in before)
    halfway = _halfway(before, budget) if record.status != "complete" else None
    again = {trial.number: trial for trial in before if has_lost_a_host(trial) or trial is halfway}
    made = [trial for trial in before if trial.number not in again]
    done, kept = {trial.number for trial in made}, len(made)
    points = {point.number: point for point in plan.points}
    interrupted = None
    postponed: list[tuple[int, NoHost]] = []
    status: Status = "failed"
    try:
        left = [planned for planned in plan.trials if planned.number not in done]
        with contextlib.ExitStack() as stack:
            # A run with nothing left to measure needs no network.
            testbeds = (
                stack.enter_context(calibrated_testbeds(folder, record, plan, machines, binary, events)) if left else {}
            )
            for place, planned in enumerate(left):
                point, testbed = points[planned.point], testbeds[planned.point]
                coming: list[Json] = [dict(points[each.point].setting) for each in left[place + 1 : place + 1 + COMING]]
                started = _started(plan, planned, point, coming)
                trial = stored = again.get(planned.number)
                lasting = lasting_causes(made)
                try:
                    if trial is None:
                        events.publish(started)
                        trial = _measure(folder, testbed, binary, plan, point, planned, events)
                        folder.write_trial(trial)
                    while trial is stored or (budget > 0 and _may_pass(trial, lasting)):
                        budget -= trial is not stored or trial is halfway
                        events.publish(started | {"again": retry_reason(trial)})
                        folder.keep_attempt(trial)
                        trial = with_discarded_attempt(
                            trial, _measure(folder, testbed, binary, plan, point, planned, events)
                        )
                        folder.write_trial(trial)
                except NoHost as lacking:
                    postponed.append((planned.number, lacking))
                    if trial is None:
                        continue
                note_hosts(folder, record, machines)
                made.append(trial)
                events.publish(trial_event(trial, len(plan.trials)))
                # Of the trials since the start or the resume.
                if nothing_works(made[kept:], points) and place + 1 < len(left):
                    return None
        if postponed:
            raise NoHost(
                f"trials {', '.join(str(number) for number, _ in postponed)} could not be made: {postponed[-1][1]}",
                exit_code=ENVIRONMENT,
            )
        status = "complete"
    except Interrupted as signal:
        interrupted = signal
        status = "interrupted"
    finally:
        record.status, record.finished_unix_s = status, time.time()
        folder.write_run(record)
        events.publish({"event": "end", "status": status})
    return interrupted


def _started(plan: Plan, planned: PlannedTrial, point: Point, coming: list[Json]) -> Json:
    """A trial that begins, and which come after it."""
    about = {"number": planned.number, "of": len(plan.trials), "block": planned.block, "point": dict(point.setting)}
    return {"event": "trial_started", **about, "predicted_s": trial_s(plan.suite, point), "next": coming}
