"""The agent of a machine: starts, meters, samples and stops processes there, and answers messages.

The lab asks an agent in its own process for the local host and for the namespaces of an emulated
network; an actor on another machine wraps the same class. An agent is used by the thread that made
it: a started process is killed with the thread that forked it (PR_SET_PDEATHSIG, prctl(2)).
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from plimsoll_lab.hosts import path
from plimsoll_lab.hosts.binary import build_of, find_binary, program_digests
from plimsoll_lab.hosts.messages import (
    AnswerT,
    Await,
    Describe,
    Description,
    DigestProgram,
    Discard,
    FindFreePort,
    HasFolder,
    HostSample,
    Inspect,
    Inspection,
    IsOwnAddress,
    ListFolder,
    ListProcesses,
    MakeFolder,
    MeasureGoodput,
    MeasureRoundTrips,
    Message,
    ReadClock,
    ReadCongestionControl,
    ReadFile,
    ReadThreads,
    ReadUsage,
    RemoveFolder,
    Report,
    Start,
    Started,
    Stop,
    TakeSample,
    TellProcess,
    TryConnect,
    UsageReading,
)
from plimsoll_lab.hosts.netns_socket import socket_inside
from plimsoll_lab.hosts.processes import Launcher, LocalProcess, wait_for
from plimsoll_lab.hosts.samplers.environment import read_environment
from plimsoll_lab.hosts.samplers.machine import (
    read_descriptors,
    read_load_average,
    read_machine,
    read_memory,
    read_open_files,
    read_pressure,
)
from plimsoll_lab.hosts.samplers.network import read_counters, read_states
from plimsoll_lab.hosts.samplers.sock_diag import NETLINK_SOCK_DIAG, sample_connections, summarise
from plimsoll_lab.hosts.scratch import ScratchFolder
from plimsoll_lab.problem import LabError

CONNECT_S = 0.2
"""How long a server that is not up yet may leave an attempt to connect without an answer."""
SOCK_DIAG_S = 1.0
"""Against hanging: the kernel fills the first piece of a dump at once."""
PORTS = range(20_000, 30_000)
"""Below the kernel's own choice of ports by default (net.ipv4.ip_local_port_range), so that no
connection takes one meanwhile."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


@dataclass(kw_only=True, slots=True)
class ServedHost:
    """A place of this machine where processes run: the machine itself, or a network namespace."""

    name: str
    """As it appears in records and errors."""
    addresses: tuple[str, ...]
    """Where the others reach it."""
    interface: str
    """The interface that the others reach it by."""
    namespace_pid: int | None = None
    """A process in the place's own network namespace; None where that is the agent's."""
    next_port: int = PORTS.start
    """Of a namespace: the port to try next."""

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """A socket of this place's network."""
        if self.namespace_pid is None:
            return socket.socket(family, kind, protocol)
        return socket_inside(Path(f"/proc/{self.namespace_pid}/ns/net"), family, kind, protocol)

    def command(self, argv: Sequence[str]) -> list[str]:
        """A command that runs here, and keeps its own process id."""
        return list(argv) if self.namespace_pid is None else enter(self.namespace_pid, argv)

    def free_port(self) -> int:
        """A port that no socket has; in a namespace another one each time."""
        if self.namespace_pid is None:
            with self.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.bind((self.addresses[0], 0))
                return int(probe.getsockname()[1])
        taken = self._taken()
        for _ in PORTS:
            port = self.next_port
            self.next_port = port + 1 if port + 1 in PORTS else PORTS.start
            if port not in taken:
                return port
        raise LabError(
            f"{self.name}: every port from {PORTS.start} to {PORTS.stop - 1} is in use; end some servers or connections"
        )

    def _taken(self) -> set[int]:
        """The ports of listeners and of connections, those in TIME_WAIT among them: a server may be
        refused each (bind(2), EADDRINUSE).
        """
        ports = set()
        for table in ("tcp", "tcp6"):
            with contextlib.suppress(FileNotFoundError):
                rows = Path(f"/proc/{self.namespace_pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]
                fields = [row.split() for row in rows]
                ports |= {int(each[1].rpartition(":")[2], 16) for each in fields}
        return ports


@dataclass(kw_only=True, slots=True)
class _Running:
    """A process, and how to end it."""

    process: LocalProcess
    stack: contextlib.ExitStack
    deadline: float | None
    """When it is ended whatever happens, by the monotonic clock."""


class Agent:
    """Answers messages about this machine. A context: leaving it ends every process it has
    started.
    """

    def __init__(self) -> None:
        self._launcher = Launcher()
        self._stack = contextlib.ExitStack()
        self._places: dict[int, ServedHost] = {}
        self._running: dict[int, _Running] = {}
        self._numbers = 0
        self._folders: dict[str, ScratchFolder] = {}

    def __enter__(self) -> Self:
        self._stack.enter_context(self._launcher)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for number in list(self._running):
                self._discard(Discard(process=number))
            for folder in list(self._folders):
                self._remove_folder(RemoveFolder(path=folder))
        finally:
            self._stack.__exit__(kind, error, trace)

    @property
    def metering(self) -> str:
        """Where the cost of a process tree is read from."""
        return self._launcher.metering

    def add(self, place: ServedHost) -> int:
        """Serve one more place, on this machine; its number."""
        self._numbers += 1
        self._places[self._numbers] = place
        return self._numbers

    def remove(self, place: int) -> None:
        """Serve a place no longer."""
        del self._places[place]

    def pid(self, process: int) -> int:
        """The process id, for what else is done on this machine."""
        return self._running[process].process.pid

    def watched(self, processes: Sequence[int]) -> list[int]:
        """The descriptors that become readable when one of them prints or ends."""
        known = [self._running[number].process for number in processes if number in self._running]
        return [number for process in known for number in process.watched()]

    def next_deadline(self) -> float | None:
        """When a process is due to be ended next, by the monotonic clock; None for never."""
        return min((each.deadline for each in self._running.values() if each.deadline is not None), default=None)

    def end_overdue(self, now: float) -> None:
        """End every process whose deadline has come."""
        for running in self._running.values():
            if running.deadline is not None and running.deadline <= now:
                running.deadline = None
                running.process.kill()

    def ask(self, message: Message[AnswerT]) -> AnswerT:
        """Answer a message."""
        answers: dict[type, Callable[[Any], Any]] = {
            Describe: self._describe,
            Start: self._start,
            TellProcess: lambda asked: self._running[asked.process].process.tell(asked.line),
            Await: self._await,
            Stop: self._stop,
            Discard: self._discard,
            ReadUsage: self._read_usage,
            ListProcesses: lambda asked: self._running[asked.process].process.tree(),
            ReadThreads: lambda asked: self._running[asked.process].process.threads(sleeps=asked.sleeps),
            TakeSample: self._take_sample,
            FindFreePort: lambda asked: self._places[asked.place].free_port(),
            TryConnect: self._try_connect,
            IsOwnAddress: self._is_own_address,
            MeasureRoundTrips: self._measure_round_trips,
            ReadCongestionControl: lambda asked: path.congestion_control(self._places[asked.place], asked.address),
            MeasureGoodput: self._measure_goodput,
            ReadFile: _read_file,
            ReadClock: lambda _: time.time(),
            Inspect: self._inspect,
            DigestProgram: lambda asked: program_digests(asked.argv),
            MakeFolder: self._make_folder,
            ListFolder: self._list_folder,
            RemoveFolder: self._remove_folder,
            HasFolder: lambda asked: Path(asked.path).is_dir(),
        }
        answer: AnswerT = answers[type(message)](message)
        return answer

    def _describe(self, asked: Describe) -> Description:
        place = self._places[asked.place]
        return Description(
            name=place.name,
            addresses=place.addresses,
            interface=place.interface,
            metering=self.metering,
            machine=BOOT.read_text(encoding="ascii").strip(),
        )

    def _start(self, asked: Start) -> Started:
        stack = contextlib.ExitStack()
        argv = self._places[asked.place].command(asked.argv)
        started = self._launcher.start(
            argv, role=asked.role, metered=asked.metered, takes_lines=asked.takes_lines, cpus=asked.cpus
        )
        process = stack.enter_context(started)
        self._numbers += 1
        deadline = None if asked.deadline_s is None else time.monotonic() + asked.deadline_s
        self._running[self._numbers] = _Running(process=process, stack=stack, deadline=deadline)
        return Started(process=self._numbers, meter_source=process.meter_source)

    def _await(self, asked: Await) -> tuple[Report, ...]:
        if asked.timeout_s > 0:
            wait_for([self._running[number].process for number in asked.processes], asked.timeout_s)
        return tuple(self._report(number) for number in asked.processes)

    def _report(self, number: int) -> Report:
        process = self._running[number].process
        # Whether it has ended is asked first: every line of a process that has is then there to be
        # read.
        code = process.exit_code()
        lines = tuple(process.take_lines())
        return Report(
            process=number,
            lines=lines,
            stderr_tail=process.stderr_tail(),
            exit_code=code,
            lacked_memory=code is not None and process.lacked_memory(),
        )

    def _stop(self, asked: Stop) -> Report:
        self._running[asked.process].process.stop(grace_s=asked.grace_s)
        return self._report(asked.process)

    def _discard(self, asked: Discard) -> None:
        running = self._running.pop(asked.process, None)
        if running is not None:
            running.stack.close()

    def _read_usage(self, asked: ReadUsage) -> UsageReading:
        first = {number: self._running[number].process.usage(thorough=asked.thorough) for number in asked.processes[:1]}
        at_unix_s, at_s = time.time(), time.monotonic()
        machine = read_machine()
        rest = {number: self._running[number].process.usage(thorough=asked.thorough) for number in asked.processes[1:]}
        return UsageReading(at_unix_s=at_unix_s, at_s=at_s, usages=first | rest, machine=machine)

    def _take_sample(self, asked: TakeSample) -> HostSample:
        machine = read_machine()
        places = {number: self._places[number] for number in asked.places}
        processes = {number: self._running[number].process for number in asked.processes}
        sampled: dict[str, float | int | None] = {"busy_s": machine.busy_s, "steal_s": machine.steal_s}
        sampled |= {"softirq_threads_s": machine.softirq_threads_s, "throttled_s": machine.throttled_s}
        sampled |= {"memory_available_bytes": read_memory(), "open_files": read_open_files(), **read_pressure()}
        sampled["load_average"] = read_load_average()
        counted = places if asked.counters else {}
        began_s = time.thread_time()
        descriptors, connections, family = {}, None, None
        if asked.expensive:
            descriptors = {number: read_descriptors(each.members()) for number, each in processes.items()}
            # A kernel without sock_diag has no sample: the record then says so by its absence.
            with contextlib.suppress(OSError):
                connections, family = self._sample_connections(asked)
        return HostSample(
            machine=sampled,
            states={number: read_states(place.namespace_pid) for number, place in places.items()},
            costs={
                number: each.usage(thorough=False)
                for number, each in processes.items()
                if each.meter_source not in {None, "proc"}
            },
            counters={number: read_counters(place.namespace_pid, place.interface) for number, place in counted.items()},
            descriptors=descriptors,
            connections=connections,
            connections_family=family,
            expensive_s=time.thread_time() - began_s,
        )

    def _sample_connections(self, asked: TakeSample) -> tuple[Mapping[str, float] | None, int | None]:
        if asked.server_port is None or asked.server_place is None:
            return None, None
        place = self._places[asked.server_place]
        for family in asked.server_families:
            with place.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as diag:
                diag.settimeout(SOCK_DIAG_S)
                infos = sample_connections(diag, socket.AddressFamily(family), asked.server_port)
            if infos:
                return summarise(infos), family
        return summarise([]), None

    def _try_connect(self, asked: TryConnect) -> bool:
        name, _, port = asked.address.rpartition(":")
        with contextlib.suppress(OSError, ValueError):
            # Of a name each address, as the generator does: a server may listen at one alone.
            found = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_STREAM)
            return any(self._accepts(asked.place, family, address) for family, _, _, _, address in found)
        return False

    def _accepts(self, place: int, family: int, address: tuple[Any, ...]) -> bool:
        with contextlib.suppress(OSError), self._places[place].socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_S)
            probe.connect(address)
            return not _met_itself(probe)
        return False

    def _is_own_address(self, asked: IsOwnAddress) -> bool:
        name, _, port = asked.address.rpartition(":")
        try:
            found = socket.getaddrinfo(name.strip("[]"), int(port), type=socket.SOCK_DGRAM)
            return all(self._has_address(asked.place, family, address) for family, _, _, _, address in found)
        except (OSError, ValueError):
            return False

    def _has_address(self, place: int, family: int, address: tuple[Any, ...]) -> bool:
        """Whether a socket there can have this address, which only one of its own allows (bind(2));
        under net.ipv4.ip_nonlocal_bind any does. Loopback's are its own, in use or not.
        """
        if ipaddress.ip_address(address[0].partition("%")[0]).is_loopback:
            return True
        with contextlib.suppress(OSError), self._places[place].socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((address[0], 0, *address[2:]))
            return True
        return False

    def _measure_round_trips(self, asked: MeasureRoundTrips) -> tuple[float, ...]:
        with self._places[asked.place].socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as pinger:
            return path.round_trips(pinger, asked.address, asked.expected_s)

    def _measure_goodput(self, asked: MeasureGoodput) -> float:
        source, sink = self._places[asked.source], self._places[asked.sink]
        if asked.rate_bits_per_s is None:
            return path.tcp_goodput(source, sink, asked.round_trip_s)
        return path.udp_goodput(source, sink, asked.rate_bits_per_s, asked.round_trip_s, lossy=asked.lossy)

    def _inspect(self, _: Inspect) -> Inspection:
        binary = find_binary()
        return Inspection(binary=binary, versions=build_of(binary), environment=read_environment(self.metering))

    def _make_folder(self, _: MakeFolder) -> str:
        folder = ScratchFolder()
        self._folders[folder.path] = folder
        self._launcher.remove_after(folder.path)
        return folder.path

    def _list_folder(self, asked: ListFolder) -> Mapping[str, int]:
        root = Path(asked.path)
        files = (each for each in root.rglob("*") if each.is_file() and not each.is_symlink())
        return {str(each.relative_to(root)): each.stat().st_size for each in sorted(files)}

    def _remove_folder(self, asked: RemoveFolder) -> None:
        folder = self._folders.pop(asked.path, None)
        if folder is not None:
            folder.remove()


def enter(pid: int, argv: Sequence[str]) -> list[str]:
    """A command that runs in the network namespace of a process, and keeps its own process id."""
    return ["nsenter", f"--net=/proc/{pid}/ns/net", "--", *argv]


def _met_itself(probe: socket.socket) -> bool:
    """Whether a socket is connected to itself, and nobody listens. For a connect to a port of this
    machine the kernel may choose that very port as the source (simultaneous open, RFC 9293, section
    3.5). The close of such a socket is then a reset: TIME_WAIT would keep the server from its port.
    """
    try:
        if probe.getsockname() != probe.getpeername():
            return False
    except OSError:
        return False  # the peer has reset it
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return True


def _read_file(asked: ReadFile) -> bytes:
    try:
        with Path(asked.path).open("rb") as file:
            file.seek(asked.offset)
            return file.read(asked.most_bytes)
    except OSError as error:
        raise LabError(f"cannot read {asked.path}: {error.strerror}") from None
