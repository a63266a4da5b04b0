"""The life of a trial: a fresh server and whatever else takes part, readiness, load, samples,
drain, judgement.

One thread and one loop: it sleeps until a process prints or ends, or a sample is due.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll_lab.hosts.external_server import external_server
from plimsoll_lab.hosts.host import Host, Process
from plimsoll_lab.problem import HostLost, StartError
from plimsoll_lab.store.form import record_of
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary, Ready, ServerSummary, read_output
from plimsoll_lab.store.records import (
    CutRecord,
    Doubt,
    HostsRecord,
    Json,
    MeasuredLoadRecord,
    RoleRecord,
    ServerRecord,
    TrialRecord,
)
from plimsoll_lab.suite.placement import LOCAL, SERVER, start_order
from plimsoll_lab.suite.prediction import trial_s
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import PlannedTrial, Point, Role, Suite
from plimsoll_lab.suite.units import duration_s
from plimsoll_lab.trial.capturing import NAME as CAPTURE
from plimsoll_lab.trial.capturing import capture_doubts, capturing
from plimsoll_lab.trial.commands import foreign_command, forward_command, in_records, server_command
from plimsoll_lab.trial.disturbance import cut_record, without_cut
from plimsoll_lab.trial.events import last_event, seconds_of, take_log
from plimsoll_lab.trial.expectations import first_unmet
from plimsoll_lab.trial.far_hosts import FarHosts, refuse_missing_folder
from plimsoll_lab.trial.figures import Told, trial_figures
from plimsoll_lab.trial.generators import (
    EMULATOR,
    Generator,
    LateStart,
    TrialFailure,
    Watch,
    merge_summaries,
    plan_generators,
    run_loads,
    windows_record,
)
from plimsoll_lab.trial.link_monitor import LinkMonitor
from plimsoll_lab.trial.live import Live, Tell
from plimsoll_lab.trial.sampling import Sampler
from plimsoll_lab.trial.stage import Stage, as_stage, place_point
from plimsoll_lab.trial.validity import Judgement, Observation, ending, host_lost, judge, late_start
from plimsoll_lab.trial.window import Window

DRAIN_S = 10.0
"""A server of ours drains for at most five seconds; twice that, and it hangs."""
CONNECT_EVERY_S = 0.005
"""How often a foreign server's port is tried until it answers."""


@dataclass(kw_only=True, slots=True)
class Seen:
    """What is seen of a trial as it goes on: it is recorded however the trial ends."""

    records: Path
    """Where its parts write their files."""
    server: Json = field(default_factory=dict)
    """Of the server under test."""
    load: Json = field(default_factory=dict)
    """Of the measured generators, together."""
    roles: list[Json] = field(default_factory=list)
    """Of each further part."""
    network: Json = field(default_factory=dict)
    """Of the emulator."""
    hosts: Json = field(default_factory=dict)
    """Of every host over the window."""
    captures: list[Json] = field(default_factory=list)
    """Of each capture."""
    cut: CutRecord | None = None
    """What the emulator's moments leave of the window."""
    connections: list[Json] = field(default_factory=list)
    """Of each connection of the measured generators, where the suite asks for that."""
    seconds: list[list[Json]] = field(default_factory=list)
    """Of each measured generator, what it completed in each second."""
    window: Window = field(default_factory=Window)
    """Of the window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """A part that is up."""

    name: str
    """Its name."""
    role: Role | None
    """None for the server under test."""
    process: Process
    """Its process."""
    seen: Json
    """Its record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outputs:
    """What else comes out of a trial, beside its record."""

    captures: Path | None = None
    """A folder that packets are captured into; without it, none are."""
    records: Path | None = None
    """A folder for the files that the trial's parts write; without it, they are not kept."""
    tell: Tell | None = None
    """Hears of every second while the trial runs."""


def run_trial(
    place: Host | Stage,
    binary: str,
    suite: Suite,
    point: Point,
    planned: PlannedTrial,
    outputs: Outputs | None = None,
) -> TrialRecord:
    """Make one measurement, whatever comes of it. Raises `NoHost` where a cluster lacks a host for
    it.
    """
    stage = place_point(as_stage(place), point)
    outputs = outputs or Outputs()
    started_unix_s, started = time.time(), time.monotonic()
    with contextlib.ExitStack() as stack:
        seen = Seen(
            records=outputs.records or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-trial-")))
        )
        try:
            file = outputs.captures / f"{planned.number:04d}.pcapng" if outputs.captures is not None else None
            judgement = _measure(stage, binary, suite, point, seen, file, Live(seen.records, outputs.tell))
        except TrialFailure as failure:
            judgement = Judgement(outcome="failed", reason=str(failure), warnings=())
        except LateStart as late:
            judgement = late_start(late.generator)
        except HostLost as lost:
            judgement = host_lost(lost.host, lost.reason)
    told = Told(
        load=record_of(MeasuredLoadRecord, seen.load),
        connections=seen.connections,
        seconds=seen.seconds,
        server=record_of(ServerRecord, seen.server),
        roles=tuple(record_of(RoleRecord, each) for each in seen.roles),
        hosts=record_of(HostsRecord, seen.hosts | ({"captures": seen.captures} if seen.captures else {})),
        captures=seen.captures,
        window=seen.window,
        asked=tuple(limit.figure for limit in suite.limits),
    )
    figures = without_cut(trial_figures(told, point), seen.cut)
    if judgement.outcome == "ok":
        summaries = {"load": seen.load.get("summary"), "server": seen.server.get("summary")}
        captured = {"capture": seen.captures[0].get("summary")} if seen.captures else {}
        unmet = first_unmet(suite, point, figures, summaries | captured)
        if unmet is not None:
            judgement = Judgement(outcome="failed", reason=unmet, warnings=judgement.warnings)
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
        server=told.server,
        load=told.load,
        machine=seen.window.machine(),
        samples=tuple(seen.window.samples),
        roles=told.roles,
        network=seen.network or None,
        cut=seen.cut,
        hosts=told.hosts,
    )


def _measure(
    stage: Stage, binary: str, suite: Suite, point: Point, seen: Seen, file: Path | None, live: Live
) -> Judgement:
    doubts: list[Doubt] = []
    far = FarHosts(stage.hosts) if stage.cluster is not None else None
    with contextlib.ExitStack() as stack:
        if far is not None:
            refuse_missing_folder(stage.hosts, point, suite.directory)
            stack.enter_context(far.prepared(_longest_s(suite, point)))
        addresses: dict[str, str] = {}
        parts: dict[str, Part] = {}
        for part in _start_parts(stack, stage, binary, suite, point, seen, addresses):
            parts[part.name] = part
        server = parts[SERVER].process
        generators = plan_generators(stage, binary, suite, point, addresses, seen.records)
        server_host = stage.host(point.place.server)
        watched = {name: host for name, host in stage.hosts.items() if stage.network is None or name != LOCAL}
        sampler = Sampler(watched, server_host, addresses[SERVER])
        watch = Watch(links=LinkMonitor(stage.network), sampler=sampler, server_host=server_host, live=live)
        capture = stack.enter_context(capturing(server_host, binary, file)) if file is not None else None
        others = {name: part.process for name, part in parts.items() if name != SERVER}
        if stage.network is not None:
            others[EMULATOR] = stage.network.emulator
        if capture is not None:
            others[CAPTURE] = capture.process
        run_loads(stage, server, others, generators, _timeout_s(suite, point), seen.window, watch)
        measured = [each for each in generators if each.measured]
        seen.load.update(merge_summaries(binary, measured))
        seen.connections += [each for one in measured for each in _told_connections(one, seen.records)]
        seen.roles += [_generator_record(each, each.role, seen.window) for each in generators if each.role is not None]
        died = server.exit_code()
        if capture is not None:
            seen.captures.append(capture.stop())
            doubts += capture_doubts(seen.captures[-1])
        fallen = _fallen(parts)
        _stop_parts(parts, seen.window)
        seen.network.update(watch.links.record(seen.window))
        seen.hosts.update(watch.sampler.record(seen.window.length_s) | windows_record(generators))
        if far is not None:
            doubts += far.collect(seen.records, file)
            seen.hosts["clocks"], moved = far.clocks()
            doubts += moved
        # The files of generators on other machines are here only now.
        seen.seconds += [seconds_of(each.name, seen.records) for each in measured]
        links = read_output(LinkWindow, seen.network, "the emulator") if seen.network else None
        if links is not None:
            log = take_log(seen.records, [each.name for each in measured], keep=bool(point.load.get("request_log")))
            window = (seen.window.opened_unix_s, seen.window.closed_unix_s)
            seen.cut = cut_record(links, window, log, closed="rate" not in point.load)
    if fallen is not None and died is None:
        raise TrialFailure(fallen)
    load, ended = record_of(MeasuredLoadRecord, seen.load), record_of(ServerRecord, seen.server)
    printed, totals = load["summary"], ended["summary"]
    machine = seen.window.machine()
    return judge(
        Observation(
            server_exit=died,
            server_stderr=ended["stderr_tail"],
            server_summary=None if totals is None else read_output(ServerSummary, totals, "the server"),
            load_exit=load["exit_code"],
            load_stderr=load["stderr_tail"],
            load_summary=None if printed is None else read_output(LoadSummary, printed, "the generator"),
            foreign_cores=None if "address" in point.server else _foreign_cores(stage, point, generators, seen.window),
            steal_cores=machine.get("steal_cores"),
            window_s=seen.window.length_s or None,
            lag_s=seen.window.lag_s,
            think_s=_think_s(point),
            throttled_s=machine.get("throttled_s"),
            samples=() if seen.server["metering"] == "proc" else tuple(seen.window.samples),
            network=links,
            doubts=tuple(doubts),
        )
    )


def _start_parts(
    stack: contextlib.ExitStack,
    stage: Stage,
    binary: str,
    suite: Suite,
    point: Point,
    seen: Seen,
    addresses: dict[str, str],
) -> Iterator[Part]:
    """Start every part but the generators, each once those that it names are ready."""
    roles = {role.name: role for role in point.roles}
    for name in start_order(point.server, point.roles, source=suite.source):
        role = roles.get(name)
        host = stage.host(point.place.server if role is None else role.on)
        settings = point.server if role is None else role.settings
        command, probe, must_be_ready = _command(host, binary, suite, role, settings, addresses)
        command = in_records(command, host, seen.records)
        record: Json = seen.server if role is None else {"name": name, "kind": role.kind, "host": host.name}
        record["command"] = command
        if role is not None:
            seen.roles.append(record)
        started: AbstractContextManager[Process] = (
            host.start(command, role=name, metered=True) if command else external_server()
        )
        try:
            process = stack.enter_context(started)
        except StartError as missing:
            # Ours are one file, which every trial needs; what a suite names is one contender's.
            if command[0] == host.program(binary):
                raise
            raise TrialFailure(str(missing)) from None
        record["metering"] = process.meter_source
        addresses[name] = host.addresses[0]
        if must_be_ready:
            who = "the server" if role is None else f"the role {name}"
            addresses[name] = _await_ready(host, process, probe, suite.run.ready_timeout, record, who)
        yield Part(name=name, role=role, process=process, seen=record)


def _command(
    host: Host, binary: str, suite: Suite, role: Role | None, settings: Settings, addresses: Mapping[str, str]
) -> tuple[list[str], str | None, bool]:
    """A part's command, the address to try until it answers, and whether it is waited for at
    all.
    """
    if role is not None and role.kind == "forward":
        return forward_command(host, binary, settings, addresses, role.name), None, True
    if role is not None and role.kind == "command":
        command, probe = foreign_command(host, suite, settings, addresses)
        return command, probe, probe is not None
    name = SERVER if role is None else role.name
    return (*server_command(host, binary, suite, settings, addresses, name), True)


def _await_ready(host: Host, process: Process, probe: str | None, timeout_s: float, seen: Json, who: str) -> str:
    """The address a part can be connected to."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        if probe is not None and host.accepts(probe):
            seen["ready"] = {"addresses": [probe]}
            return probe
        ready = last_event(process.take_lines(), "ready")
        if ready is not None and probe is None:
            seen["ready"] = ready
            return _reachable(read_output(Ready, ready, who).addresses[0], host)
        code = process.exit_code()
        if code is not None:
            raise TrialFailure(f"{who} ended before it was ready: {ending(code, process.stderr_tail())}")
        host.wait([process], left_s if probe is None else min(left_s, CONNECT_EVERY_S))
    said = process.stderr_tail() or "nothing"
    raise TrialFailure(f"{who} was not ready within {timeout_s:g} s; it said: {said.splitlines()[-1]}")


def _reachable(address: str, host: Host) -> str:
    """Where others reach a part that listens on all of its host's addresses."""
    name, _, port = address.rpartition(":")
    return f"{host.addresses[0]}:{port}" if name in {"0.0.0.0", "[::]", "*"} else address  # noqa: S104 - read, not bound


def _fallen(parts: Mapping[str, Part]) -> str | None:
    """Which role ended during the trial, where one did; a command may, if it ends well."""
    for name, part in parts.items():
        code = part.process.exit_code()
        if part.role is not None and code is not None and (part.role.kind != "command" or code != 0):
            return f"the role {name} ended during the trial: {ending(code, part.process.stderr_tail())}"
    return None


def _stop_parts(parts: Mapping[str, Part], window: Window) -> None:
    """End every part, the last one first, and complete its record."""
    for name, part in reversed(list(parts.items())):
        code = part.process.exit_code()
        lines = part.process.take_lines()
        if code is None:
            code = part.process.stop(grace_s=DRAIN_S)
        part.seen["exit_code"] = code
        part.seen["summary"] = last_event(lines + part.process.take_lines(), "summary")
        part.seen["stderr_tail"] = part.process.stderr_tail()
        if part.role is not None:
            part.seen.update(_cost(name, window))


def _told_connections(generator: Generator, records: Path) -> list[Json]:
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
        **generator.seen,
        **_cost(generator.name, window),
    }


def _cost(name: str, window: Window) -> Json:
    last = window.others_last.get(name)
    if last is None:
        return {}
    return {"cpu_cores": window.cpu_cores(name), "memory_bytes": last.memory_bytes}


def _foreign_cores(stage: Stage, point: Point, generators: Sequence[Generator], window: Window) -> float | None:
    """CPU of the server's machine that no part of the trial used."""
    machine = stage.host(point.place.server).machine
    here = [
        read_output(LoadSummary, each.summary or {}, each.name)
        for each in generators
        if each.measured and each.host.machine == machine
    ]
    homes = {role.name: stage.host(role.on) for role in point.roles}
    elsewhere = {name for name, host in homes.items() if host.machine != machine}
    return window.foreign_cores(here, elsewhere)


def _longest_s(suite: Suite, point: Point) -> float:
    """No part of a trial runs longer than this."""
    parts = 1 + len(point.roles)
    return parts * (suite.run.ready_timeout + DRAIN_S) + _timeout_s(suite, point)


def _think_s(point: Point) -> float | None:
    """Of a closed loop over a stated time; any other load has no steady number of connections to
    reason about.
    """
    if "rate" in point.load or "duration" not in point.load:
        return None
    return duration_s(str(point.load.get("think", "0")).removeprefix("exp:"))


def _timeout_s(suite: Suite, point: Point) -> float:
    """Generous: ten times the prediction and a minute, for a slow server is a result and a hung one
    is not.
    """
    return suite.run.trial_timeout or 60.0 + 10 * trial_s(point)
