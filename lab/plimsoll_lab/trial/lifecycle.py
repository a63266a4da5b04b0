"""The life of a trial: a fresh server and whatever else takes part, readiness, load, samples,
drain, judgement.

One thread and one loop: it sleeps until a process prints or ends, or a sample is due.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_lab.hosts.host import Host
from plimsoll_lab.hosts.scratch import ScratchFolder
from plimsoll_lab.problem import HostLost
from plimsoll_lab.store.form import record_of
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary, ServerSummary, pick, read_output
from plimsoll_lab.store.records import (
    HostsRecord,
    Json,
    MachineRecord,
    MeasuredLoadRecord,
    ResultWarning,
    RoleRecord,
    ServerRecord,
    TrialRecord,
)
from plimsoll_lab.suite.figures import named_figures
from plimsoll_lab.suite.placement import CAPTURE, EMULATOR, LOCAL, SERVER
from plimsoll_lab.suite.prediction import trial_s
from plimsoll_lab.suite.spec import PlannedTrial, Point, Role, Suite
from plimsoll_lab.trial.capturing import capture_warnings, capturing
from plimsoll_lab.trial.disturbance import is_told, late_figures, without_cut, without_late
from plimsoll_lab.trial.events import in_own_time, seconds_of
from plimsoll_lab.trial.expectations import first_unmet, unjudged
from plimsoll_lab.trial.figures import FigureSources, is_read, late_of_parts, trial_figures
from plimsoll_lab.trial.generator_plan import Generator, plan_generators
from plimsoll_lab.trial.generator_records import apart_warnings, merge_summaries, windows_record
from plimsoll_lab.trial.generators import LateStart, Monitors, TrialFailure, failed_beside, run_loads
from plimsoll_lab.trial.limits import asks_at_most, judged_figures, missed_limits
from plimsoll_lab.trial.link_monitor import LinkMonitor
from plimsoll_lab.trial.live import LiveEvents, Notify
from plimsoll_lab.trial.moments import cut_of, is_closed, is_counted, steady_think_s, taken_of, with_bounds
from plimsoll_lab.trial.observation import Observation
from plimsoll_lab.trial.parts import DRAIN_S, PartialRecord, cost_of, ended_role, start_parts, stop_parts
from plimsoll_lab.trial.remote_hosts import RemoteHosts, refuse_missing_folder
from plimsoll_lab.trial.sampling import Sampler
from plimsoll_lab.trial.starved import Starved
from plimsoll_lab.trial.testbed import Testbed, as_testbed, place_point
from plimsoll_lab.trial.validity import Judgement, host_lost, judge, late_start, with_late_parts
from plimsoll_lab.trial.window import Window


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """What else comes out of a trial, beside its record."""

    captures: Path | None = None
    """A folder that packets are captured into; without it, none are."""
    records: Path | None = None
    """A folder for the files that the trial's parts write; without it, they are not kept."""
    notify: Notify | None = None
    """Takes an event for every second while the trial runs."""


def run_trial(
    place: Host | Testbed,
    binary: str,
    suite: Suite,
    point: Point,
    planned: PlannedTrial,
    outputs: Outputs | None = None,
) -> TrialRecord:
    """Make one measurement, whatever comes of it. Raises `NoHost` where a cluster lacks a host for
    it, and LabError where the emulator of its links has ended.
    """
    testbed = place_point(as_testbed(place), point)
    testbed.refuse_lost_links()
    outputs = outputs or Outputs()
    started_unix_s, started = time.time(), time.monotonic()
    with contextlib.ExitStack() as stack:
        records = outputs.records or stack.enter_context(_own_folder(testbed))
        unasked = {role.name for role in point.roles if role.kind == "command"}
        window = Window(lists_processes=suite.processes, unasked=unasked)
        partial = PartialRecord(records=records, window=window)
        try:
            file = outputs.captures / f"{planned.number:04d}.pcapng" if outputs.captures is not None else None
            if file is not None:
                file.unlink(missing_ok=True)  # of a measurement that this one takes the place of
            judgement = _measure(
                testbed, binary, suite, point, partial, file, LiveEvents(partial.records, outputs.notify)
            )
        except TrialFailure as failure:
            judgement = Judgement(outcome="failed", reason=str(failure), warnings=())
        except LateStart as late:
            judgement = late_start(late.generator)
        except Starved as starved:
            judgement = starved.judgement()
        except HostLost as lost:
            judgement = host_lost(lost.host, lost.reason)
    testbed.refuse_lost_links()
    sources = FigureSources(
        load=record_of(MeasuredLoadRecord, partial.load),
        connections=partial.connections,
        seconds=partial.seconds,
        server=record_of(ServerRecord, partial.server),
        roles=tuple(record_of(RoleRecord, each) for each in partial.roles),
        hosts=record_of(HostsRecord, partial.hosts | ({"captures": partial.captures} if partial.captures else {})),
        captures=partial.captures,
        window=partial.window,
        shares_machine=testbed.shares_machine(point.place.server),
        asked=named_figures(suite),
    )
    known = without_cut(trial_figures(sources, point), partial.cut)
    own = late_of_parts(sources.load, sources.roles)
    judgement = with_late_parts(
        judgement, own, limited=judged_figures(suite), missed=missed_limits(suite.limits, known)
    )
    figures = without_late(known, judgement.untold)
    if judgement.outcome == "ok":
        judgement = held_to_expectations(suite, point, judgement, figures, partial)
    return TrialRecord(
        number=planned.number,
        block=planned.block,
        point=point.number,
        setting=dict(point.setting),
        outcome=judgement.outcome,
        reason=judgement.reason,
        warnings=judgement.warnings,
        figures=figures,
        started_unix_s=started_unix_s,
        elapsed_s=time.monotonic() - started,
        server=sources.server,
        load=sources.load,
        machine=_machine(partial),
        samples=tuple(partial.window.samples),
        roles=sources.roles,
        network=partial.network or None,
        cut=partial.cut,
        # Where the network was disturbed too, the server's own may have been slower without that.
        late_figures={} if partial.cut is not None else late_figures(known, judgement.untold),
        hosts=sources.hosts,
        taken=partial.taken,
    )


@contextlib.contextmanager
def _own_folder(testbed: Testbed) -> Iterator[Path]:
    """A folder on this machine for the files of a trial that are not kept."""
    if testbed.cluster is None:
        with testbed.host(LOCAL).folder() as folder:
            yield folder
    else:
        with ScratchFolder() as scratch:
            yield Path(scratch.path)


def _measure(
    testbed: Testbed,
    binary: str,
    suite: Suite,
    point: Point,
    partial: PartialRecord,
    file: Path | None,
    live: LiveEvents,
) -> Judgement:
    warnings: list[ResultWarning] = []
    remote = RemoteHosts(testbed.hosts) if testbed.cluster is not None else None
    with contextlib.ExitStack() as stack:
        if remote is not None:
            refuse_missing_folder(testbed.hosts, point, suite.directory)
            stack.enter_context(remote.prepared(_longest_s(suite, point), partial.records, file))
        addresses: dict[str, str] = {}
        started = start_parts(stack, testbed, binary, suite, point, partial, addresses)
        parts = {part.name: part for part in started}
        server = parts[SERVER].process
        generators = plan_generators(testbed, binary, suite, point, addresses, partial.records)
        server_host = testbed.host(point.place.server)
        watched = {name: host for name, host in testbed.hosts.items() if testbed.network is None or name != LOCAL}
        monitors = Monitors(
            links=LinkMonitor(testbed.network),
            sampler=Sampler(watched, server_host, addresses[SERVER]),
            server_host=server_host,
            live=live,
        )
        capture = stack.enter_context(capturing(server_host, binary, file)) if file is not None else None
        others = {name: part.process for name, part in parts.items() if name != SERVER}
        if testbed.network is not None:
            others[EMULATOR] = testbed.network.emulator
        if capture is not None:
            others[CAPTURE] = capture.process
        run_loads(testbed, server, others, generators, _timeout_s(suite, point), partial.window, monitors)
        measured = [each for each in generators if each.measured]
        merged, unmerged = merge_summaries(binary, measured, partial.records)
        partial.load.update(merged)
        warnings += apart_warnings(generators)
        partial.connections += [each for one in measured for each in _save_connections(one, partial.records)]
        partial.roles += [
            _generator_record(each, each.role, partial.window) for each in generators if each.role is not None
        ]
        died = server.exit_code()
        if capture is not None:
            partial.captures.append(capture.stop())
            warnings += capture_warnings(partial.captures[-1])
        fallen = ended_role(parts) or failed_beside(generators)
        stop_parts(parts, partial.window)
        if suite.processes and partial.window.last is not None:
            partial.server["processes"] = partial.window.processes()
        partial.network.update(monitors.links.record(partial.window))
        partial.hosts.update(monitors.sampler.record(partial.window.length_s) | windows_record(generators))
        if remote is not None:
            warnings += remote.collect(partial.records, file)
            partial.hosts["clocks"], moved = remote.clocks()
            warnings += moved
        # The files of generators on other machines are here only now.
        partial.seconds += [
            [in_own_time(row, each.host) for row in seconds_of(each.name, partial.records)] for each in measured
        ]
        links = read_output(LinkWindow, partial.network, "the emulator") if partial.network else None
        partial.cut = cut_of(partial, point, links, [each.name for each in measured])
    if fallen is not None and died is None:
        raise TrialFailure(fallen)
    beside = _beside_server(testbed, point, generators)
    observed = _observation(
        partial,
        suite,
        point,
        server_exit=died,
        foreign_cores=_foreign_cores(testbed, point, beside, partial.window),
        links=links,
    )
    judgement = judge(
        replace(
            observed,
            generator_waited=_longest_wait(beside),
            withheld_s=monitors.sampler.withheld_s(),
            unmerged=unmerged,
            warnings=tuple(warnings),
        )
    )
    partial.taken = taken_of(partial, suite, point, judgement, beside, _elsewhere(testbed, point))
    return with_bounds(judgement, partial.taken if partial.cut is None else None)


def _machine(partial: PartialRecord) -> MachineRecord:
    """What the server's machine did over the window; of another one only how long that was."""
    record = partial.window.machine()
    if not partial.server.get("elsewhere"):
        return record
    return MachineRecord(window_s=record["window_s"], sample_lag_s=record["sample_lag_s"]) if record else {}


def held_to_expectations(
    suite: Suite, point: Point, judgement: Judgement, figures: Mapping[str, float], partial: PartialRecord
) -> Judgement:
    """What a result is worth beside what the suite expects of it."""
    summaries = {"load": partial.load.get("summary"), "server": partial.server.get("summary")}
    captured = {"capture": partial.captures[0].get("summary")} if partial.captures else {}

    def is_known(path: str) -> bool:
        if path in figures:
            return True
        was_read = not (partial.window.was_missed and is_read(path))
        return was_read and is_told(path, partial.cut, judgement.untold)

    unmet = first_unmet(suite, point, figures, summaries | captured, is_known)
    warnings = (*judgement.warnings, *unjudged(suite, is_known))
    return replace(judgement, outcome="ok" if unmet is None else "failed", reason=unmet, warnings=warnings)


def _observation(
    partial: PartialRecord,
    suite: Suite,
    point: Point,
    *,
    server_exit: int | None,
    foreign_cores: float | None,
    links: LinkWindow | None,
) -> Observation:
    """What a trial that ran to its end is judged by."""
    load, ended = record_of(MeasuredLoadRecord, partial.load), record_of(ServerRecord, partial.server)
    printed, totals = load["summary"], ended["summary"]
    machine = partial.window.machine()
    summary = None if printed is None else read_output(LoadSummary, printed, "the generator")
    # Nothing is read of a server that already ran, and a load without a connection has no window.
    has_window = "address" not in point.server and summary is not None and bool(summary.connections.established)
    return Observation(
        server_exit=server_exit,
        server_stderr=ended["stderr_tail"],
        server_summary=None if totals is None else read_output(ServerSummary, totals, "the server"),
        load_exit=load["exit_code"],
        load_stderr=load["stderr_tail"],
        load_summary=summary,
        server_lacked_memory=ended.get("lacked_memory", False),
        load_lacked_memory=load.get("lacked_memory", False),
        foreign_cores=foreign_cores,
        steal_cores=machine.get("steal_cores"),
        window_s=max(0.0, partial.window.length_s) or None,
        window_missed=has_window and partial.window.was_missed,
        lag_s=partial.window.lag_s,
        think_s=steady_think_s(point),
        throttled_s=machine.get("throttled_s"),
        busy_cores=machine.get("busy_cores"),
        server_cores=partial.window.server_cores(),
        server_waited_s=partial.window.server_waited_s(),
        samples=() if partial.server["metering"] == "proc" else tuple(partial.window.samples),
        network=links,
        closed=is_closed(point),
        counted=is_counted(point),
        at_most=asks_at_most(suite),
        limited=judged_figures(suite),
        missed=missed_limits(suite.limits, pick(printed or {}, (limit.figure for limit in suite.limits))),
    )


def _save_connections(generator: Generator, records: Path) -> list[Json]:
    """What became of each connection of a generator; a line each in the trial's folder too."""
    if generator.connections:
        lines = "".join(json.dumps(each) + "\n" for each in generator.connections)
        (records / f"{generator.name}.connections.jsonl").write_text(lines, encoding="utf-8")
    return generator.connections


def _generator_record(generator: Generator, role: Role, window: Window) -> Json:
    return {
        "name": generator.name,
        "kind": role.kind,
        "host": generator.host.name,
        "measured": generator.measured,
        **generator.record,
        **cost_of(generator.name, window),
    }


def _beside_server(testbed: Testbed, point: Point, generators: Sequence[Generator]) -> list[LoadSummary]:
    """What the measured generators on the server's machine say."""
    machine = testbed.host(point.place.server).machine
    return [
        read_output(LoadSummary, each.summary or {}, each.name)
        for each in generators
        if each.measured and each.host.machine == machine
    ]


def _longest_wait(generators: Sequence[LoadSummary]) -> float | None:
    """For which part of the window an event loop of these was ready and had no CPU."""
    return max((each.generator.run_queue_wait_ratio or 0.0 for each in generators), default=None)


def _foreign_cores(testbed: Testbed, point: Point, here: Sequence[LoadSummary], window: Window) -> float | None:
    """CPU of the server's machine that no part of the trial used; of the generators there, by their
    summaries. Not known of a server that already ran.
    """
    if "address" in point.server:
        return None
    return window.foreign_cores(here, _elsewhere(testbed, point))


def _elsewhere(testbed: Testbed, point: Point) -> set[str]:
    """Further parts that run on other machines than the server."""
    machine = testbed.host(point.place.server).machine
    return {role.name for role in point.roles if testbed.host(role.on).machine != machine}


def _longest_s(suite: Suite, point: Point) -> float:
    """No part of a trial runs longer than this."""
    parts = 1 + len(point.roles)
    return parts * (suite.run.ready_timeout + DRAIN_S) + _timeout_s(suite, point)


def _timeout_s(suite: Suite, point: Point) -> float:
    """Generous: ten times the prediction and a minute, for a slow server is a result and a hung one
    is not.
    """
    return suite.run.trial_timeout or 60.0 + 10 * trial_s(suite, point)
