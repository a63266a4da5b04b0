"""The generators of a trial: they share the load, start at one instant, and make one summary.

Several generators measure one window: it opens with the first of them, and closes with the last.
Where they can wait, their requests wait for the connections of all: each says when its own are up,
and is then given the instant at which all begin. So their windows are one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from plimsoll_lab.hosts.host import Host, HostProcess, Process
from plimsoll_lab.store.program_output import LoadSummary, read_output
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite.placement import SERVER
from plimsoll_lab.trial.events import events, held_until, last_event, unix_s
from plimsoll_lab.trial.generator_plan import Generator, IdleUntil
from plimsoll_lab.trial.incomplete import incomplete_record, says_incomplete
from plimsoll_lab.trial.link_monitor import LinkMonitor
from plimsoll_lab.trial.live import LiveEvents
from plimsoll_lab.trial.observation import causes_alone
from plimsoll_lab.trial.patience import Patience
from plimsoll_lab.trial.sampling import Sampler
from plimsoll_lab.trial.starved import Starved, Wait, begin_wait, end_wait, outside_cause
from plimsoll_lab.trial.stuck import got_so_far, last_said, states_of
from plimsoll_lab.trial.testbed import Testbed
from plimsoll_lab.trial.validity import ending
from plimsoll_lab.trial.window import Window

AFTER_DEATH_S = 2.0
"""How long a generator may go on after its server has died: its requests can only fail."""
START_EACH_S = 0.05
"""From sending an instant to the generators until that instant, for each generator: a message to
another machine takes less."""
BEGIN_S = 0.1
"""The same, whatever their number."""
STOP_S = 5.0
"""A generator that is asked to stop writes its summary within this."""
WINDOW = ("window_opened", "window_closed")
"""The events at the ends of a generator's window."""
TOO_LATE = "that instant has passed"
"""What a generator says that was started after the instant it was to start at."""
BARRIER = "--barrier"


class TrialFailure(Exception):  # noqa: N818 - an outcome, not an error
    """The trial ended early; the reason is the record's."""


class LateStart(Exception):  # noqa: N818 - an outcome, not an error
    """A generator was started after the instant at which all were to start."""

    def __init__(self, generator: str) -> None:
        super().__init__(generator)
        self.generator = generator


@dataclass(frozen=True, kw_only=True, slots=True)
class Monitors:
    """The monitors that read while the generators run."""

    links: LinkMonitor
    """The emulator."""
    sampler: Sampler
    """The hosts."""
    server_host: Host
    """Where the server runs, and the window's clock is read."""
    live: LiveEvents
    """Events of the trial."""


def run_loads(
    testbed: Testbed,
    server: Process,
    others: Mapping[str, Process],
    generators: Sequence[Generator],
    timeout_s: float,
    window: Window,
    monitors: Monitors,
) -> None:
    """Run the generators until every measured one has ended, reading usage at the window's ends and
    in between.
    """
    patience = Patience(timeout_s)
    with contextlib.ExitStack() as stack:
        _foresee("start", generators, server, others, window, monitors)
        begun = begin_wait(monitors.server_host, server, others)
        _start(stack, generators, testbed.start_in_s)
        metered = {**others, **{each.name: _process(each) for each in generators if not each.measured}}
        while True:
            now = time.monotonic()
            server.take_lines()  # a foreign server may print; a full pipe would stop it
            for process in others.values():
                if process is not monitors.links.emulator:
                    process.take_lines()
            monitors.links.listen()
            process_events(generators, server, metered, window, monitors)
            monitors.live.poll(window, now)
            if all(each.ended for each in generators if each.measured):
                break
            if server.exit_code() is not None:
                patience.shorten_to(AFTER_DEATH_S)
            left_s = patience.left_s()
            if left_s < 0:
                started = {each.name: _process(each) for each in generators if not each.ended}
                wait = end_wait(begun, monitors.server_host, server, others, started)
                _stop_overdue(generators, {SERVER: server, **others}, timeout_s, wait)
                break
            if window.open:
                left_s = min(
                    left_s,
                    window.sample(monitors.server_host, server, now),
                    monitors.sampler.poll({"server": server, **metered}, now),
                )
            patience.wait(partial(testbed.wait, _awaited(server, others, generators, monitors.links)), left_s)
        _stop_unmeasured(generators)
        _count_under_way(generators, window)
        monitors.live.end(window)


def _count_under_way(generators: Sequence[Generator], window: Window) -> None:
    told = [
        read_output(LoadSummary, each.summary, each.name).requests
        for each in generators
        if each.measured and each.summary is not None
    ]
    window.answered_after(sum(each.in_flight for each in told), sum(each.completed for each in told))


def _start(stack: contextlib.ExitStack, generators: Sequence[Generator], start_in_s: float) -> None:
    start_at = time.time() + start_in_s + START_EACH_S * len(generators)
    measured = [each for each in generators if each.measured]
    together = len(measured) > 1 and all(each.may_wait for each in measured)
    for each in generators:
        command = [*each.command, "--start-at", _there(start_at, each.host)] if len(generators) > 1 else each.command
        each.awaits_start = together and each.measured
        if each.awaits_start:
            command = [*command, *(() if BARRIER in command else (BARRIER,)), "--await-start"]
        if each.stays_up:
            command = [*command, "--await-end"]
        each.record["command"] = command
        takes_lines = each.awaits_start or each.stays_up
        started = each.host.start(
            command, role=each.name, metered=not each.measured, takes_lines=takes_lines, cpus=each.cpus
        )
        each.process = stack.enter_context(started)


def _there(at_unix_s: float, host: Host) -> str:
    """An instant of the lab's clock by that of a host, as generators get it."""
    return f"{at_unix_s + host.clock_offset_s:.6f}"


def _foresee(
    moment: IdleUntil,
    generators: Sequence[Generator],
    server: Process,
    others: Mapping[str, Process],
    window: Window,
    monitors: Monitors,
) -> None:
    """Read what the window begins with beforehand, where nobody asks for anything from this moment
    until it opens. What a generator says of its opening comes later, by tens of milliseconds from
    another machine: work of the first instants was in no figure.
    """
    if all(each.idle_until == moment for each in generators):
        window.foresee(monitors.server_host, server, others)
        monitors.sampler.foresee()


def all_wait(generators: Sequence[Generator]) -> bool:
    """Whether the connections of each generator that awaits a start are up. One that has ended is
    not waited for, or the others would not end before the trial's deadline.
    """
    waiting = [each for each in generators if each.awaits_start and not each.ended]
    return bool(waiting) and all(each.is_up for each in waiting)


def give_start(generators: Sequence[Generator], now_unix_s: float) -> None:
    """Give the generators that await a start one instant, once all wait."""
    waiting = [each for each in generators if each.awaits_start and not each.ended]
    if not all_wait(generators):
        return
    begin_at = now_unix_s + BEGIN_S + START_EACH_S * len(waiting)
    for each in waiting:
        _process(each).tell(_there(begin_at, each.host))
        each.awaits_start = False


def _process(generator: Generator) -> HostProcess:
    if generator.process is None:
        raise AssertionError(f"{generator.name} has not been started")
    return generator.process


def process_events(
    generators: Sequence[Generator], server: Process, metered: Mapping[str, Process], window: Window, monitors: Monitors
) -> None:
    """Process the events of each generator; complete the record of one that has ended.

    The window lasts from the first to open to the last to close, as that of the merged summary:
    what the server used is divided by the requests of all.
    """
    for each in generators:
        if each.ended:
            continue
        process = _process(each)
        code = process.exit_code()
        for event in events(process.take_lines()):
            kind = str(event.get("event"))
            _note(each, kind, event)
            if each.measured and kind in WINDOW:
                at_unix_s = each.window[kind] = each.host.own_time(unix_s(event))
                each.holds_until = held_until(at_unix_s, event)
        if code is not None:
            _end(each, code)
    _follow_window(generators, server, metered, window, monitors)
    if all_wait(generators):
        _foresee("begin", generators, server, metered, window, monitors)
    give_start(generators, time.time())


def _follow_window(
    generators: Sequence[Generator], server: Process, metered: Mapping[str, Process], window: Window, monitors: Monitors
) -> None:
    """Begin and end the common window by the generators' events until now, in whatever order they
    came. A generator that ended without a window is not waited for.

    Connections stay up until the lab has read what the window ends with: what a server does as they
    close is no cost of a request.
    """
    measured = [each for each in generators if each.measured]
    opened, closed = ([each.window[kind] for each in measured if kind in each.window] for kind in WINDOW)
    if opened and window.first is None:
        monitors.links.begin()
        window.begin(monitors.server_host, server, metered, min(opened))
        monitors.sampler.begin({"server": server, **metered})
    elif opened:
        window.opened_by(min(opened))
    if not closed or not all(WINDOW[1] in each.window or each.ended for each in measured):
        return
    if window.open:
        window.end(monitors.server_host, server, metered, max(closed), rests_until=_rests_until(generators))
        monitors.sampler.end({"server": server, **metered})
    for each in measured:
        if each.stays_up and not each.ended:
            _process(each).tell("")
        each.stays_up = False


def _rests_until(generators: Sequence[Generator]) -> float | None:
    """Until when no connection closes after the windows of all; None where one may have closed, as
    those of a generator do that has ended.
    """
    held = [each.holds_until for each in generators if each.stays_up and not each.ended]
    known = [until for until in held if until is not None]
    return min(known) if len(known) == len(generators) else None


def _note(generator: Generator, kind: str, event: Json) -> None:
    generator.last_event, generator.last_event_at = kind, time.monotonic()
    if kind == "summary":
        generator.summary = event
    elif kind == "connection":
        generator.connections.append(event)
    elif kind == "all_up":
        generator.is_up = True


def _end(generator: Generator, code: int) -> None:
    process = _process(generator)
    generator.ended = True
    stderr = process.stderr_tail()
    generator.record.update(exit_code=code, summary=generator.summary, stderr_tail=stderr)
    if process.lacked_memory():
        generator.record["lacked_memory"] = True
    if code and says_incomplete(stderr):
        raise incomplete_record(generator.name, generator.host, stderr)
    if TOO_LATE in stderr:
        raise LateStart(generator.name)


def _stop_overdue(
    generators: Sequence[Generator], parts: Mapping[str, Process], timeout_s: float, wait: Wait | None
) -> None:
    overdue = [each for each in generators if not each.ended]
    now = time.monotonic()
    told = [last_said(each.name, each.last_event, now - each.last_event_at) for each in generators]
    told.append(states_of({**{each.name: _process(each) for each in overdue}, **parts}))
    for each in overdue:
        process = _process(each)
        code = process.stop(grace_s=1.0)
        # It may say how far it had come; that is no result.
        summary = last_event(process.take_lines(), "summary")
        if summary is not None:
            told.append(got_so_far(each.name, read_output(LoadSummary, summary, each.name)))
        each.summary = None
        _end(each, code)
    if parts[SERVER].exit_code() is None:
        reason = f"the generator did not end within {timeout_s:.0f} s; it was killed. Until then: {'; '.join(told)}"
        if (cause := outside_cause(wait)) is not None:
            raise Starved(reason, cause)
        raise TrialFailure(reason)


def _stop_unmeasured(generators: Sequence[Generator]) -> None:
    """Stop the generators that are not measured."""
    for each in generators:
        if not each.ended:
            process = _process(each)
            each.was_stopped = True
            code = process.stop(grace_s=STOP_S)
            each.summary = last_event(process.take_lines(), "summary")
            _end(each, code)


def failed_beside(generators: Sequence[Generator]) -> str | None:
    """Why a load that is not measured was none at all: it fell over, or could not connect. None
    where each was one. The measured ones would have had the server for themselves.
    """
    for each in generators:
        if each.measured:
            continue
        if each.summary is None:
            code = each.record.get("exit_code")
            if isinstance(code, int) and code and not each.was_stopped:
                no_memory = bool(each.record.get("lacked_memory"))
                how = ending(code, str(each.record.get("stderr_tail", "")), lacked_memory=no_memory)
                return f"the role {each.name} ended during the trial: {how}"
            continue
        told = read_output(LoadSummary, each.summary, each.name)
        if told.connections.established == 0 and any(told.errors.values()):
            return f"the role {each.name} had no connection: {causes_alone(told)}"
    return None


def _awaited(
    server: Process, others: Mapping[str, Process], generators: Sequence[Generator], links: LinkMonitor
) -> list[Process]:
    """The processes to wait for. An ended process would wake the loop without end."""
    running = [_process(each) for each in generators if not each.ended]
    alive = [each for each in (server, *others.values()) if each is not links.emulator and each.exit_code() is None]
    return running + alive
