"""The parts of a trial but its generators: started in the order that their references ask for, each
waited for until it can be connected to, and stopped in the reverse order.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll_lab.hosts.external_server import ExternalServer, external_server
from plimsoll_lab.hosts.host import Host, Process
from plimsoll_lab.hosts.printed import plain
from plimsoll_lab.problem import StartError
from plimsoll_lab.store.program_output import Ready, read_output
from plimsoll_lab.store.records import CutRecord, Json, TakenRecord
from plimsoll_lab.suite.placement import SERVER, start_order
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Point, Role, Suite
from plimsoll_lab.trial.commands import foreign_command, forward_command, in_records, server_command
from plimsoll_lab.trial.events import last_event
from plimsoll_lab.trial.generators import TrialFailure
from plimsoll_lab.trial.incomplete import incomplete_record, lacks_rows
from plimsoll_lab.trial.patience import Patience
from plimsoll_lab.trial.starved import Starved, begin_wait, end_wait, outside_cause
from plimsoll_lab.trial.stuck import states_of
from plimsoll_lab.trial.testbed import Testbed
from plimsoll_lab.trial.validity import ending
from plimsoll_lab.trial.window import Window

DRAIN_S = 10.0
"""A server of ours drains for at most five seconds; twice that, and it hangs."""
CONNECT_EVERY_S = 0.005
"""How often a foreign server's port is tried until it answers."""
FREED_S = 2.0
"""How long the port of a part may still be answered after the trial before."""
FREED_EVERY_S = 0.25
"""How often it is tried: connections that nobody takes fill a listen queue, which then refuses."""


@dataclass(kw_only=True, slots=True)
class PartialRecord:
    """What is known of a trial while it runs: it is recorded however the trial ends."""

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
    taken: TakenRecord | None = None
    """What is known of it where others had the CPUs at some moments."""
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
    host: Host
    """Where it runs."""
    process: Process
    """Its process."""
    record: Json
    """Its record."""


def start_parts(
    stack: contextlib.ExitStack,
    testbed: Testbed,
    binary: str,
    suite: Suite,
    point: Point,
    partial: PartialRecord,
    addresses: dict[str, str],
) -> Iterator[Part]:
    """Start every part but the generators, each once those that it names are ready."""
    roles = {role.name: role for role in point.roles}
    up: dict[str, Process] = {}
    for name in start_order(point.server, point.roles, source=suite.source):
        role = roles.get(name)
        host = testbed.host(point.place.server if role is None else role.on)
        settings = point.server if role is None else role.settings
        command, probe, must_be_ready = _command(host, binary, suite, role, settings, addresses)
        command = in_records(command, host, partial.records)
        record: Json = partial.server if role is None else {"name": name, "kind": role.kind, "host": host.name}
        record["command"] = command
        if role is not None:
            partial.roles.append(record)
        who = "the server" if role is None else f"the role {name}"
        if command and probe is not None:
            _refuse_stranger(host, probe, who)
        started: AbstractContextManager[Process] = (
            host.start(command, role=name, metered=True, cpus=point.place.cpus.get(name, ()))
            if command
            else external_server()
        )
        try:
            process = stack.enter_context(started)
        except StartError as missing:
            # Ours are one file, which every trial needs; what a suite names is one contender's.
            if command[0] == host.program(binary):
                raise
            raise TrialFailure(str(missing)) from None
        record["metering"] = process.meter_source
        if role is None and isinstance(process, ExternalServer):
            record["elsewhere"] = not host.is_own(str(settings["address"]))
        addresses[name] = host.addresses[0]
        if must_be_ready:
            wait = functools.partial(_await_ready, host, process, probe, suite.run.ready_timeout, record, who)
            addresses[name] = _unless_starved(wait, host, process, up)
        up[name] = process
        yield Part(name=name, role=role, host=host, process=process, record=record)


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


def _refuse_stranger(host: Host, address: str, who: str) -> None:
    """Raise `TrialFailure` where something listens at the address of a part that has not been
    started: the part would be ready at once, and the load would measure the stranger.
    """
    patience = Patience(FREED_S)
    while host.accepts(address):
        if patience.left_s() <= 0:
            raise TrialFailure(
                f"something else already listens at {address}, before {who} is started; end it, or give {who} another "
                "port: {port} in its command and in `ready` is a free one"
            )
        patience.wait(time.sleep, FREED_EVERY_S)


def _unless_starved(wait: Callable[[], str], host: Host, process: Process, others: Mapping[str, Process]) -> str:
    """The address that a part is waited for. Raises `Starved` where it is not ready, and other
    programs had the CPUs.
    """
    begun = begin_wait(host, process, others)
    try:
        return wait()
    except TrialFailure as late:
        has_ended = process.exit_code() is not None
        cause = None if has_ended else outside_cause(end_wait(begun, host, process, others, {}))
        if cause is None:
            raise
        raise Starved(str(late), cause) from None


def _await_ready(host: Host, process: Process, probe: str | None, timeout_s: float, record: Json, who: str) -> str:
    """The address a part can be connected to."""
    patience = Patience(timeout_s)
    printed = ""
    while True:
        if probe is not None and host.accepts(probe):
            record["ready"] = {"addresses": [probe]}
            return probe
        lines = process.take_lines()
        printed = lines[-1] if lines else printed
        ready = last_event(lines, "ready")
        if ready is not None and probe is None:
            record["ready"] = ready
            return _reachable(read_output(Ready, ready, who).addresses[0], host)
        code = process.exit_code()
        if code is not None:
            how = ending(code, process.stderr_tail(), lacked_memory=process.lacked_memory())
            raise TrialFailure(f"{who} ended before it was ready: {how}")
        # After each wait there is another look: a lab without a CPU may have slept past the end.
        if (left_s := patience.left_s()) <= 0:
            break
        wait = functools.partial(host.wait, [process])
        patience.wait(wait, left_s if probe is None else min(left_s, CONNECT_EVERY_S))
    late = f"{who} was not ready within {timeout_s:g} s"
    if probe is not None:
        late += f": nothing accepts connections at {probe}"
    if isinstance(process, ExternalServer):
        raise TrialFailure(f"{late}; start the server there, or correct its address")
    said = process.stderr_tail() or plain(printed) or "nothing"
    raise TrialFailure(f"{late}; it said: {said.splitlines()[-1]}; {states_of({'its state': process})}")


def _reachable(address: str, host: Host) -> str:
    """Where others reach a part that listens on all of its host's addresses."""
    name, _, port = address.rpartition(":")
    everywhere = {"0.0.0.0", "[::]", "*"}  # noqa: S104 - read, not bound
    return f"{host.addresses[0]}:{port}" if name in everywhere else address


def ended_role(parts: Mapping[str, Part]) -> str | None:
    """Which role ended during the trial, where one did; a command may, if it ends well."""
    for name, part in parts.items():
        process, code = part.process, part.process.exit_code()
        if part.role is not None and code is not None and (part.role.kind != "command" or code != 0):
            how = ending(code, process.stderr_tail(), lacked_memory=process.lacked_memory())
            return f"the role {name} ended during the trial: {how}"
    return None


def stop_parts(parts: Mapping[str, Part], window: Window) -> None:
    """End every part, the last one first, and complete its record. Raises LabError where a server's
    connection log is incomplete.
    """
    for name, part in reversed(list(parts.items())):
        code = part.process.exit_code()
        lines = part.process.take_lines()
        if code is None:
            code = part.process.stop(grace_s=DRAIN_S)
        part.record["exit_code"] = code
        if part.process.lacked_memory():
            part.record["lacked_memory"] = True
        summary = part.record["summary"] = last_event(lines + part.process.take_lines(), "summary")
        stderr = part.record["stderr_tail"] = part.process.stderr_tail()
        if lacks_rows(summary):
            raise incomplete_record(name, part.host, stderr)
        if part.role is not None:
            part.record.update(cost_of(name, window))


def cost_of(name: str, window: Window) -> Json:
    """What a part cost within the window; empty where it was not metered."""
    last = window.others_last.get(name)
    if last is None:
        return {}
    return {"cpu_cores": window.cpu_cores(name), "memory_bytes": last.memory_bytes}
