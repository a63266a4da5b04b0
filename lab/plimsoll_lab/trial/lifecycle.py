"""The life of a trial: a fresh server, readiness, load, samples at the window's ends, drain, judgement.

One thread and one loop: it sleeps until a process prints or ends, or a sample is due.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from plimsoll_lab.hosts.attached import attached
from plimsoll_lab.hosts.host import Host, Process
from plimsoll_lab.samplers.machine import MachineUsage, read_machine
from plimsoll_lab.samplers.usage import Usage
from plimsoll_lab.store.records import Json, Sample, TrialRecord
from plimsoll_lab.suite.expand import trial_s
from plimsoll_lab.suite.figures import FIGURES
from plimsoll_lab.suite.flags import as_arguments
from plimsoll_lab.suite.spec import PlannedTrial, Point, Suite
from plimsoll_lab.suite.units import duration_s
from plimsoll_lab.trial.validity import Judgement, Observation, ending, judge

SAMPLE_EVERY_S = 0.1
"""Often enough to catch the peak of a window of a second; a sample costs half a millisecond of one core."""
DRAIN_S = 10.0
"""A server of ours drains for at most five seconds; twice that, and it hangs."""
AFTER_DEATH_S = 2.0
"""How long a generator may go on after its server has died: its requests can only fail."""
CONNECT_EVERY_S = 0.005
"""How often a foreign server's port is tried until it answers."""


class TrialFailure(Exception):  # noqa: N818 - an outcome, not an error
    """The trial ended early; the reason is the record's."""


@dataclass(kw_only=True, slots=True)
class Window:
    """The measured window, as it is seen."""

    opened_unix_s: float | None = None
    """When the generator opened it, by its own clock reading."""
    closed_unix_s: float | None = None
    """When the generator closed it."""
    opened_at: float = 0.0
    """When the lab read the server's usage for it, on the monotonic clock."""
    lag_s: float = 0.0
    """How late both ends were read, together."""
    first: Usage | None = None
    """The server's usage as it opened."""
    last: Usage | None = None
    """The server's usage as it closed."""
    length_s: float = 0.0
    """Between these two readings."""
    machine_first: MachineUsage | None = None
    """The machine as it opened."""
    machine_last: MachineUsage | None = None
    """The machine as it closed."""
    samples: list[Sample] = field(default_factory=list)
    """The server's tree over it."""

    @property
    def open(self) -> bool:
        """Whether it has opened and not yet closed."""
        return self.first is not None and self.last is None


def run_trial(host: Host, binary: str, suite: Suite, point: Point, planned: PlannedTrial) -> TrialRecord:
    """Make one measurement, whatever comes of it."""
    started_unix_s, started = time.time(), time.monotonic()
    server_seen: Json = {}
    load_seen: Json = {}
    window = Window()
    try:
        judgement = _measure(host, binary, suite, point, server_seen, load_seen, window)
    except TrialFailure as failure:
        judgement = Judgement(outcome="failed", reason=str(failure), warnings=())
    return TrialRecord(
        number=planned.number,
        block=planned.block,
        point=point.number,
        setting=dict(point.setting),
        outcome=judgement.outcome,
        reason=judgement.reason,
        warnings=judgement.warnings,
        figures=_figures(cast("Json", load_seen.get("summary") or {}), window, attached="address" in point.server),
        started_unix_s=started_unix_s,
        elapsed_s=time.monotonic() - started,
        server=server_seen,
        load=load_seen,
        machine=_machine(window),
        samples=tuple(window.samples),
    )


def server_command(host: Host, binary: str, suite: Suite, point: Point) -> tuple[list[str], str | None]:
    """The server's command, and the address to try where it prints no ready line."""
    if "address" in point.server:
        return [], str(point.server["address"])
    if "command" in point.server:
        port = host.free_port()
        words = cast("tuple[str, ...]", point.server["command"])
        command = [word.replace("{dir}", suite.directory).replace("{port}", str(port)) for word in words]
        ready = str(point.server["ready"]).replace("{port}", str(port))
        return command, "127.0.0.1:" + ready.removeprefix("tcp:")
    settings = dict(point.server)
    protocol = str(settings.pop("protocol", "echo"))
    return [binary, "serve", protocol, *as_arguments(settings), "--listen", "127.0.0.1:0", "--json"], None


def load_command(binary: str, suite: Suite, point: Point, address: str) -> list[str]:
    """The generator's command."""
    settings = dict(point.load)
    protocol = str(settings.pop("protocol", "echo"))
    path = str(settings.pop("path", "/"))
    plain = f"http://{address}{path}" if protocol == "http" else address
    target = str(settings.pop("target", plain))
    warm_up = ["--warm-up", suite.run.warm_up] if suite.run.warm_up else []
    return [binary, "load", protocol, target, *as_arguments(settings), *warm_up, "--json", "--quiet"]


def _measure(
    host: Host, binary: str, suite: Suite, point: Point, server_seen: Json, load_seen: Json, window: Window
) -> Judgement:
    command, probe = server_command(host, binary, suite, point)
    server_seen["command"] = command
    with host.start(command, role="server", metered=True) if command else attached() as server:
        server_seen["metering"] = server.meter_source
        address = _await_ready(host, server, probe, suite.run.ready_timeout, server_seen)
        _run_load(
            host, server, load_command(binary, suite, point, address), _timeout_s(suite, point), load_seen, window
        )
        died = server.exit_code()
        if died is None:
            server_seen["exit_code"] = server.stop(grace_s=DRAIN_S)
        else:
            server_seen["exit_code"] = died
        summary = _last_event(server.take_lines(), "summary")
        server_seen["summary"] = summary
        server_seen["stderr_tail"] = server.stderr_tail()
    rest = _machine(window)
    return judge(
        Observation(
            server_exit=died,
            server_stderr=cast("str", server_seen["stderr_tail"]),
            server_summary=summary,
            load_exit=cast("int", load_seen["exit_code"]),
            load_stderr=cast("str", load_seen["stderr_tail"]),
            load_summary=cast("Json | None", load_seen["summary"]),
            foreign_cores=_foreign_cores(rest, window, cast("Json", load_seen["summary"] or {})) if command else None,
            steal_cores=cast("float | None", rest.get("steal_cores")),
            window_s=window.length_s or None,
            lag_s=window.lag_s,
            think_s=_think_s(point),
            throttled_s=cast("float | None", rest.get("throttled_s")),
            samples=tuple(window.samples) if command and server_seen["metering"] != "proc" else (),
        )
    )


def _await_ready(host: Host, server: Process, probe: str | None, timeout_s: float, seen: Json) -> str:
    """The address the server can be connected to."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        if probe is not None and _accepts(probe):
            seen["ready"] = {"addresses": [probe]}
            return probe
        ready = _last_event(server.take_lines(), "ready")
        if ready is not None and probe is None:
            seen["ready"] = ready
            return str(cast("list[str]", ready["addresses"])[0])
        code = server.exit_code()
        if code is not None:
            raise TrialFailure(f"the server ended before it was ready: {ending(code, server.stderr_tail())}")
        host.wait([server], left_s if probe is None else min(left_s, CONNECT_EVERY_S))
    said = server.stderr_tail() or "nothing"
    raise TrialFailure(f"the server was not ready within {timeout_s:g} s; it said: {said.splitlines()[-1]}")


def _run_load(host: Host, server: Process, command: list[str], timeout_s: float, seen: Json, window: Window) -> None:
    """Run the generator to its end, reading the server's usage at the window's ends and in between."""
    seen["command"] = command
    deadline = time.monotonic() + timeout_s
    with host.start(command, role="load generator", metered=False) as load:
        summary: Json | None = None
        watched = [load, server]
        while True:
            code = load.exit_code()
            server.take_lines()  # a foreign server may talk; unread, its pipe would fill and stop it
            for event in _events(load.take_lines()):
                if event.get("event") == "summary":
                    summary = event
                _mark(window, server, event)
            now = time.monotonic()
            if code is not None:
                break
            if server.exit_code() is not None and server in watched:
                watched.remove(server)
                deadline = min(deadline, now + AFTER_DEATH_S)
            if now > deadline:
                seen.update(exit_code=load.stop(grace_s=1.0), summary=None, stderr_tail=load.stderr_tail())
                if server.exit_code() is not None:
                    return
                raise TrialFailure(f"the generator did not end within {timeout_s:.0f} s; it was killed")
            pause_s = deadline - now
            if window.open:
                pause_s = min(pause_s, _sample(window, server, now))
            host.wait(watched, pause_s)
        seen.update(exit_code=code, summary=summary, stderr_tail=load.stderr_tail())


def _mark(window: Window, server: Process, event: Json) -> None:
    if event.get("event") == "window_opened":
        _open(window, server, event)
    elif event.get("event") == "window_closed":
        _close(window, server, event)


def _open(window: Window, server: Process, event: Json) -> None:
    window.first = server.usage(thorough=True)
    window.opened_at = time.monotonic()
    window.machine_first = read_machine()
    window.opened_unix_s = _unix_s(event)
    window.lag_s += max(0.0, time.time() - window.opened_unix_s)
    window.samples.append(Sample(at_s=0.0, cpu_s=window.first.cpu_s, memory_bytes=window.first.memory_bytes))


def _close(window: Window, server: Process, event: Json) -> None:
    window.last = server.usage(thorough=True)
    window.length_s = time.monotonic() - window.opened_at
    window.machine_last = read_machine()
    window.closed_unix_s = _unix_s(event)
    window.lag_s += max(0.0, time.time() - window.closed_unix_s)
    window.samples.append(Sample(at_s=window.length_s, cpu_s=window.last.cpu_s, memory_bytes=window.last.memory_bytes))


def _sample(window: Window, server: Process, now: float) -> float:
    """Take a sample where one is due; seconds until the next."""
    due_s = window.samples[-1].at_s + SAMPLE_EVERY_S - (now - window.opened_at)
    if due_s > 0:
        return due_s
    if server.meter_source == "proc":
        # A walk over the processes in the middle of a window would disturb it: only its ends are read.
        return SAMPLE_EVERY_S
    usage = server.usage(thorough=False)
    window.samples.append(Sample(at_s=now - window.opened_at, cpu_s=usage.cpu_s, memory_bytes=usage.memory_bytes))
    return SAMPLE_EVERY_S


def _figures(summary: Json, window: Window, *, attached: bool) -> dict[str, float]:
    figures: dict[str, float] = {}
    for figure in FIGURES:
        value: object = summary
        for key in figure.name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            figures[figure.name] = value
    # Of a server that somebody else runs the cost is not known.
    if not attached and window.first is not None and window.last is not None and window.length_s > 0:
        cpu_s = window.last.cpu_s - window.first.cpu_s
        figures["server.cpu_cores"] = cpu_s / window.length_s
        completed = cast("Mapping[str, int]", summary.get("requests") or {}).get("completed")
        if completed:
            figures["server.cpu_us_per_request"] = cpu_s * 1e6 / completed
        memory = [sample.memory_bytes for sample in window.samples if sample.memory_bytes is not None]
        if memory:
            figures["server.memory_bytes"] = max(memory)
    return figures


def _machine(window: Window) -> Json:
    first, last = window.machine_first, window.machine_last
    if first is None or last is None or window.length_s <= 0:
        return {}
    throttled_s = None
    if last.throttled_s is not None and first.throttled_s is not None:
        throttled_s = last.throttled_s - first.throttled_s
    return {
        "window_s": window.length_s,
        "sample_lag_s": window.lag_s,
        "busy_cores": (last.busy_s - first.busy_s) / window.length_s,
        **({} if throttled_s is None else {"throttled_s": throttled_s}),
        "steal_cores": (last.steal_s - first.steal_s) / window.length_s,
    }


def _foreign_cores(machine: Json, window: Window, summary: Json) -> float | None:
    """CPU of the machine that was neither the server's nor the generator's."""
    generator = cast("Mapping[str, float]", summary.get("generator") or {})
    if not machine or window.first is None or window.last is None or "cpu_cores" not in generator:
        return None
    server_cores = (window.last.cpu_s - window.first.cpu_s) / window.length_s
    return max(0.0, cast("float", machine["busy_cores"]) - server_cores - generator["cpu_cores"])


def _think_s(point: Point) -> float | None:
    """Of a closed loop over a stated time; any other load has no steady number of connections to reason about."""
    if "rate" in point.load or "duration" not in point.load:
        return None
    return duration_s(str(point.load.get("think", "0")).removeprefix("exp:"))


def _timeout_s(suite: Suite, point: Point) -> float:
    """Generous: ten times the prediction and a minute, for a slow server is a result and a hung one is not."""
    return suite.run.trial_timeout or 60.0 + 10 * trial_s(point.load)


def _events(lines: list[str]) -> list[Json]:
    events = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            events.append(event)
    return events


def _last_event(lines: list[str], kind: str) -> Json | None:
    return next((event for event in reversed(_events(lines)) if event.get("event") == kind), None)


def _unix_s(event: Json) -> float:
    value = event.get("unix_s")
    return float(value) if isinstance(value, int | float) else time.time()


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=0.2):
            return True
    except OSError:
        return False
