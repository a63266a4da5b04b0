"""A host as a trial sees it: messages to the agent there, behind the names of what they do.

Nothing here belongs to the machine the lab runs on: a process is a number, which its agent alone
can resolve.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from plimsoll_lab.hosts.clock import Exchange, Offset, estimate
from plimsoll_lab.hosts.messages import (
    Await,
    Connection,
    Describe,
    DigestProgram,
    Discard,
    FindFreePort,
    IsOwnAddress,
    ListProcesses,
    MakeFolder,
    MeasureGoodput,
    MeasureRoundTrips,
    ReadClock,
    ReadCongestionControl,
    ReadThreads,
    ReadUsage,
    RemoveFolder,
    Report,
    Start,
    Stop,
    TakeSample,
    TellProcess,
    TryConnect,
    UsageReading,
)
from plimsoll_lab.hosts.samplers.machine import MachineUsage
from plimsoll_lab.hosts.samplers.threads import ThreadReading
from plimsoll_lab.hosts.samplers.usage import ProcessUsage, Usage
from plimsoll_lab.problem import HostLost

EXCHANGES = 10
"""Exchanges that a clock is compared by; the shortest counts."""
SLICE_S = 0.01
"""Processes of several agents are awaited in turn, this many seconds each."""


class Process(Protocol):
    """A started process, and the tree below it."""

    meter_source: str | None
    """Where its cost is read from; None for a process that is not metered."""

    def take_lines(self) -> list[str]:
        """The whole lines it has printed to stdout since the last call."""

    def exit_code(self) -> int | None:
        """None while it runs; a negative number is the signal that ended it."""

    def lacked_memory(self) -> bool:
        """Whether the kernel ended it, or a process of its tree, for want of memory."""

    def stderr_tail(self) -> str:
        """The end of what it has printed to stderr."""

    def stop(self, *, grace_s: float) -> int:
        """Ask it to end, wait, and kill what is left of the tree; its exit code."""


@runtime_checkable
class NotifyingConnection(Connection, Protocol):
    """A connection to another machine, which reports what processes do there without being asked
    again.
    """

    def watch(self, processes: Sequence[int], deliver: Callable[[Sequence[Report]], None]) -> None:
        """Have news of these processes delivered, once."""

    def is_watched(self, process: int) -> bool:
        """Whether news of a process would be delivered; takes what has come meanwhile."""

    def wait_any(self, others: Sequence[NotifyingConnection], timeout_s: float) -> None:
        """Sleep until news has been delivered of one of several connections, or the time is
        over.
        """


class HostProcess:
    """A process that an agent has started."""

    def __init__(self, connection: Connection, number: int, meter_source: str | None) -> None:
        self.connection = connection
        """To its agent."""
        self.number = number
        """Its number there."""
        self.meter_source = meter_source
        self._lines: list[str] = []
        self._stderr = ""
        self._code: int | None = None
        self._lacked_memory = False

    def take_lines(self) -> list[str]:
        """The whole lines it has printed to stdout since the last call."""
        self._poll()
        lines, self._lines = self._lines, []
        return lines

    def exit_code(self) -> int | None:
        """None while it runs; a negative number is the signal that ended it."""
        self._poll()
        return self._code

    def lacked_memory(self) -> bool:
        """Whether the kernel ended it, or a process of its tree, for want of memory."""
        self._poll()
        return self._lacked_memory

    def stderr_tail(self) -> str:
        """The end of what it has printed to stderr."""
        self._poll()
        return self._stderr

    def stop(self, *, grace_s: float) -> int:
        """Ask it to end, wait, and kill what is left of the tree; its exit code."""
        report = self.connection.ask(Stop(process=self.number, grace_s=grace_s))
        self.take_report(report)
        if report.exit_code is None:
            raise AssertionError(f"process {self.number} was stopped and has not ended")
        return report.exit_code

    def tell(self, line: str) -> None:
        """Write a line to its standard input; nothing where it has ended. It must have been started
        to take lines.
        """
        self.connection.ask(TellProcess(process=self.number, line=line))

    def tree(self) -> tuple[ProcessUsage, ...]:
        """Every process of its tree."""
        return self.connection.ask(ListProcesses(process=self.number))

    def threads(self, *, sleeps: bool) -> tuple[ThreadReading, ...]:
        """What the threads of its tree are doing, and where they sleep."""
        return self.connection.ask(ReadThreads(process=self.number, sleeps=sleeps))

    def take_report(self, report: Report) -> None:
        """Keep what the agent has reported of it."""
        self._lines += report.lines
        self._stderr = report.stderr_tail
        self._code = report.exit_code
        self._lacked_memory = report.lacked_memory

    @property
    def has_news(self) -> bool:
        """Whether it has lines that were not taken, or has ended."""
        return bool(self._lines) or self._code is not None

    def _poll(self) -> None:
        # The report of its end holds every line that was left, so there is nothing more to ask for.
        if isinstance(self.connection, NotifyingConnection) and self.connection.is_watched(self.number):
            return
        if self._code is None:
            for report in self.connection.ask(Await(processes=(self.number,), timeout_s=0.0)):
                self.take_report(report)


class Host:
    """A place where processes run, which an agent serves."""

    def __init__(self, connection: Connection, place: int) -> None:
        described = connection.ask(Describe(place=place))
        self.connection = connection
        """To its agent."""
        self.place = place
        """Its number there."""
        self.name = described.name
        """As it appears in records and errors."""
        self.all_addresses = described.addresses
        """Every address of it."""
        self.addresses = described.addresses
        """Where the others reach it, the first one first."""
        self.interface = described.interface
        """The network interface that the others reach it by."""
        self.metering = described.metering
        """Where the cost of a process tree is read from."""
        self.machine = described.machine
        """The machine's mark, which places on it share."""
        self.binary: str | None = None
        """Where the binary is there; None where that is the lab's own machine."""
        self.records: str | None = None
        """The folder there for the files of the trial; None where that is the lab's own."""
        self.clock_offset_s = 0.0
        """Add it to the lab's time to get the time there."""
        self.deadline_s: float | None = None
        """How long a process may run there before its agent ends it."""

    @contextlib.contextmanager
    def start(
        self, argv: Sequence[str], *, role: str, metered: bool, takes_lines: bool = False, cpus: tuple[int, ...] = ()
    ) -> Iterator[HostProcess]:
        """Start a process; leaving the context ends its whole tree, however the context is left."""
        message = Start(
            place=self.place,
            argv=tuple(argv),
            role=role,
            metered=metered,
            deadline_s=self.deadline_s,
            takes_lines=takes_lines,
            cpus=cpus,
        )
        started = self.connection.ask(message)
        try:
            yield HostProcess(self.connection, started.process, started.meter_source)
        finally:
            # A lost host ends it without being asked: at its deadline, or with its agent.
            with contextlib.suppress(HostLost):
                self.connection.ask(Discard(process=started.process))

    @contextlib.contextmanager
    def folder(self) -> Iterator[Path]:
        """An empty folder there, which is removed with this context; by the agent's guard, where
        the lab is killed before.
        """
        path = self.connection.ask(MakeFolder())
        try:
            yield Path(path)
        finally:
            with contextlib.suppress(HostLost):
                self.connection.ask(RemoveFolder(path=path))

    def wait(self, processes: Sequence[Process], timeout_s: float) -> None:
        """Sleep until one of them prints or ends, or the time is over."""
        wait_for_any(processes, timeout_s)

    def program(self, binary: str) -> str:
        """The binary there, of which `binary` is the lab's own."""
        return self.binary or binary

    def program_digests(self, argv: Sequence[str]) -> Mapping[str, str]:
        """The SHA-256 of a command's programs and of its script there, by the file's path."""
        return self.connection.ask(DigestProgram(argv=tuple(argv)))

    def own_time(self, unix_s: float) -> float:
        """The lab's time of what happened there by that machine's clock."""
        return unix_s - self.clock_offset_s

    def compare_clock(self) -> Offset:
        """How far the clock there is from the lab's."""
        exchanges: list[Exchange] = []
        for _ in range(EXCHANGES):
            sent = time.time()
            there = self.connection.ask(ReadClock())
            exchanges.append((sent, there, time.time()))
        return estimate(exchanges)

    def counters(self) -> Mapping[str, int]:
        """Totals of TCP and of the interface since the host's network namespace began."""
        message = TakeSample(places=(self.place,), processes=(), counters=True)
        return self.connection.ask(message).counters[self.place]

    def free_port(self) -> int:
        """A TCP port of its first address on which nothing listens; another program may take it
        before it is used.
        """
        return self.connection.ask(FindFreePort(place=self.place))

    def accepts(self, address: str) -> bool:
        """Whether a connection from this host itself to `ADDRESS:PORT` is accepted."""
        return self.connection.ask(TryConnect(place=self.place, address=address))

    def is_own(self, address: str) -> bool:
        """Whether `HOST:PORT` is of this host itself."""
        return self.connection.ask(IsOwnAddress(place=self.place, address=address))

    def round_trips(self, there: Host, expected_s: float) -> tuple[float, ...]:
        """Seconds that each of many ICMP echoes took; those that were lost are left out."""
        message = MeasureRoundTrips(place=self.place, address=there.addresses[0], expected_s=expected_s)
        return self.connection.ask(message)

    def congestion_control(self, there: Host) -> str:
        """What controls the congestion of a connection to there, by the kernel's name for it."""
        return self.connection.ask(ReadCongestionControl(place=self.place, address=there.addresses[0]))

    def goodput(self, there: Host, *, round_trip_s: float, rate_bits_per_s: float | None, lossy: bool = False) -> float:
        """Payload bits a second that arrive there while more is sent than the path's rate; see
        `MeasureGoodput`.
        """
        message = MeasureGoodput(
            source=self.place,
            sink=there.place,
            round_trip_s=round_trip_s,
            rate_bits_per_s=rate_bits_per_s,
            lossy=lossy,
        )
        return self.connection.ask(message)


def wait_for_any(processes: Sequence[Process], timeout_s: float) -> None:
    """Sleep until one of them prints or ends, or the time is over; they may be of several
    agents.
    """
    ours = [each for each in processes if isinstance(each, HostProcess)]
    if any(each.has_news for each in ours):
        return
    by_agent: dict[int, list[HostProcess]] = {}
    for each in ours:
        by_agent.setdefault(id(each.connection), []).append(each)
    if not by_agent:
        time.sleep(max(0.0, timeout_s))
        return
    if _watch_all(by_agent.values(), timeout_s):
        return
    deadline = time.monotonic() + timeout_s
    while True:
        for group in by_agent.values():
            left_s = max(0.0, deadline - time.monotonic())
            pause_s = left_s if len(by_agent) == 1 else min(left_s, SLICE_S)
            numbers = tuple(each.number for each in group)
            reports = group[0].connection.ask(Await(processes=numbers, timeout_s=pause_s))
            for each, report in zip(group, reports, strict=True):
                each.take_report(report)
        if any(each.has_news for each in ours) or time.monotonic() >= deadline:
            return


def _watch_all(groups: Iterable[Sequence[HostProcess]], timeout_s: float) -> bool:
    """Wait for reports from other machines; whether all of these agents can send any."""
    far = [(group[0].connection, tuple(group)) for group in groups]
    watching = [connection for connection, _ in far if isinstance(connection, NotifyingConnection)]
    if len(watching) < len(far):
        return False
    for connection, (_, group) in zip(watching, far, strict=True):
        connection.watch([each.number for each in group], partial(_deliver, group))
    watching[0].wait_any(watching, timeout_s)
    return True


def _deliver(processes: Sequence[HostProcess], reports: Sequence[Report]) -> None:
    for each, report in zip(processes, reports, strict=True):
        each.take_report(report)


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageSnapshot:
    """What the parts of a trial and the server's machine have used, at one moment."""

    at_unix_s: float
    """When the server was read, by the lab's clock."""
    at_s: float
    """The same on that machine's monotonic clock."""
    server: Usage
    """The server's tree; zero for a server that already ran."""
    others: Mapping[str, Usage]
    """The tree of every other metered part."""
    machine: MachineUsage
    """The whole machine."""


def read_usage(host: Host, server: Process, others: Mapping[str, Process], *, thorough: bool) -> UsageSnapshot:
    """Read the server's tree first, then its machine and the other parts, with one message to each
    agent.
    """
    by_agent: dict[int, tuple[Connection, dict[int, str]]] = {id(host.connection): (host.connection, {})}
    own = server.number if isinstance(server, HostProcess) else None
    for name, process in others.items():
        if isinstance(process, HostProcess) and process.meter_source is not None:
            by_agent.setdefault(id(process.connection), (process.connection, {}))[1][process.number] = name
    found: dict[str, Usage] = {}
    first: UsageReading | None = None
    for connection, names in by_agent.values():
        numbers = tuple(names)
        if first is None and own is not None:
            numbers = (own, *numbers)
        reading = connection.ask(ReadUsage(processes=numbers, thorough=thorough))
        first = first or reading
        found |= {name: reading.usages[number] for number, name in names.items()}
    if first is None:
        raise AssertionError("the server's host has an agent")
    return UsageSnapshot(
        at_unix_s=first.at_unix_s - host.clock_offset_s,
        at_s=first.at_s,
        server=first.usages[own] if own is not None else Usage(cpu_s=0.0, memory_bytes=None),
        others=found,
        machine=first.machine,
    )
