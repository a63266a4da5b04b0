"""What a host is asked and what it answers: plain data, so that a host may be another machine.

A process and a place have numbers, which mean something to their agent alone. No message holds a
descriptor or a socket; a process id is there to be listed, and nothing is done by it. Where the
answer is an error, the agent raises `LabError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from plimsoll_lab.hosts.samplers.machine import MachineUsage
from plimsoll_lab.hosts.samplers.threads import ThreadReading
from plimsoll_lab.hosts.samplers.usage import ProcessUsage, Usage

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Message(Generic[AnswerT]):
    """A question to an agent; its type says what the answer is."""


class Connection(Protocol):
    """How an agent is reached: in this process, or on another machine."""

    def ask(self, message: Message[AnswerT]) -> AnswerT:
        """Send a message and return the answer. Raises `LabError` where the agent cannot do what it
        is asked.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class Describe(Message["Description"]):
    """Asks what a place is; answered by `Description`."""

    place: int
    """Its number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Description:
    """A place where processes run."""

    name: str
    """As it appears in records and errors."""
    addresses: tuple[str, ...]
    """Where the others reach it, the first one first."""
    interface: str
    """The network interface that the others reach it by."""
    metering: str
    """Where the cost of a process tree is read from: `cgroup v1`, `cgroup v2` or `proc`."""
    machine: str
    """The machine's own mark, the same for all places on it: the boot's identifier
    (/proc/sys/kernel/random/boot_id, random(4))."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Start(Message["Started"]):
    """Starts a process; answered by `Started`."""

    place: int
    """Where."""
    argv: tuple[str, ...]
    """The program and its arguments."""
    role: str
    """What it is in the trial, for errors and the names of control groups."""
    metered: bool
    """Whether its cost will be asked for."""
    deadline_s: float | None = None
    """After this many seconds an agent with a process of its own ends it without being asked; None
    for never."""
    takes_lines: bool = False
    """Whether it gets lines on its standard input, which is empty otherwise."""
    cpus: tuple[int, ...] = ()
    """The CPUs that it keeps to, with all that it starts; none for all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Started:
    """A process runs."""

    process: int
    """Its number."""
    meter_source: str | None
    """Where its cost is read from; None for a process that is not metered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TellProcess(Message[None]):
    """Writes a line to the standard input of a process that takes lines; answered by None, also
    where the process has ended.
    """

    process: int
    """Its number."""
    line: str
    """The line, without its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Await(Message["tuple[Report, ...]"]):
    """Waits until a process prints or ends, or the time is over; answered by a `Report` of each
    process.
    """

    processes: tuple[int, ...]
    """Their numbers."""
    timeout_s: float
    """0 asks without waiting."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a process has printed since the last report, and whether it has ended."""

    process: int
    """Its number."""
    lines: tuple[str, ...]
    """Whole lines of stdout; of a process that has ended, all that were left."""
    stderr_tail: str
    """The end of its stderr."""
    exit_code: int | None
    """None while it runs; a negative number is the signal that ended it."""
    lacked_memory: bool = False
    """Whether the kernel ended it, or a process of its tree, for want of memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stop(Message["Report"]):
    """Asks a process to end, waits, and kills what is left of its tree; answered by its
    `Report`.
    """

    process: int
    """Its number."""
    grace_s: float
    """How long it may take before it is killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Discard(Message[None]):
    """Kills what is left of a process's tree, and forgets the process; answered by None."""

    process: int
    """Its number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadUsage(Message["UsageReading"]):
    """Asks what process trees have used; answered by `UsageReading`."""

    processes: tuple[int, ...]
    """Their numbers; the first one is read at the moment of the answer's clocks."""
    thorough: bool
    """Allows a walk over the processes, for the ends of a window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageReading:
    """What process trees and the machine have used."""

    at_unix_s: float
    """When the first tree was read, by the machine's own clock."""
    at_s: float
    """The same on its monotonic clock, which only the same machine's readings share."""
    usages: Mapping[int, Usage]
    """By the number of the process."""
    machine: MachineUsage
    """The whole machine."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ListProcesses(Message[tuple[ProcessUsage, ...]]):
    """Asks for every process of a process tree; answered by a `ProcessUsage` of each."""

    process: int
    """The number of the tree's first process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadThreads(Message[tuple[ThreadReading, ...]]):
    """Asks what the threads of a process tree are doing; answered by a `ThreadReading` of each."""

    process: int
    """The number of the tree's first process."""
    sleeps: bool
    """Whether it is read too where each sleeps."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TakeSample(Message["HostSample"]):
    """Asks what the samplers read on a machine; answered by `HostSample`."""

    places: tuple[int, ...]
    """The places whose connections are counted by state."""
    processes: tuple[int, ...]
    """The metered processes whose cost is read."""
    counters: bool = False
    """Whether the totals of TCP and of the interface are read too: for the ends of a window."""
    expensive: bool = False
    """Whether descriptors of the trees, and `tcp_info` of connections, are read too: their cost
    grows with them."""
    server_place: int | None = None
    """The place whose connections are sampled for `tcp_info`."""
    server_port: int | None = None
    """The local port of these connections."""
    server_families: tuple[int, ...] = ()
    """Address families (socket(2)) in which they are looked for; the first one that has any ends
    the search."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostSample:
    """What the samplers read on a machine, at one moment."""

    machine: Mapping[str, float | int | None]
    """CPU time, memory, open files and pressure of the machine, by name; the name has the unit."""
    states: Mapping[int, Mapping[str, int]]
    """Connections by state, of each place."""
    costs: Mapping[int, Usage]
    """Of each process that a control group meters; a walk over /proc would disturb the window."""
    counters: Mapping[int, Mapping[str, int]]
    """Totals since the network namespace began, of each place; empty where not asked for."""
    descriptors: Mapping[int, int | None]
    """Open descriptors of each tree; None where they cannot be read; empty where not asked for."""
    connections: Mapping[str, float] | None
    """A summary of the sampled `tcp_info`; None where the kernel has no sock_diag, or where not
    asked for."""
    connections_family: int | None
    """The address family the connections were found in."""
    expensive_s: float
    """CPU time that the expensive part of this sample took."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FindFreePort(Message[int]):
    """Asks for a TCP port of a place's first address without a listener; answered by its number."""

    place: int
    """Where."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TryConnect(Message[bool]):
    """Asks whether a connection from a place to an address is accepted; answered by a truth
    value.
    """

    place: int
    """Where it comes from."""
    address: str
    """`ADDRESS:PORT`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IsOwnAddress(Message[bool]):
    """Asks whether an address is a place's own, so that what listens there runs on its machine;
    answered by a truth value.
    """

    place: int
    """Its number."""
    address: str
    """`HOST:PORT`; a name is looked up there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureRoundTrips(Message[tuple[float, ...]]):
    """Sends ICMP echoes, one after another; answered by the seconds that each took, without those
    lost.
    """

    place: int
    """Where they come from."""
    address: str
    """Where they go to."""
    expected_s: float
    """The round trip asked of the network."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadCongestionControl(Message[str]):
    """Begins a connection, and asks what controls its congestion; answered by the kernel's name for
    it.
    """

    place: int
    """Where it comes from."""
    address: str
    """Where it goes to; nothing has to listen there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasureGoodput(Message[float]):
    """Sends more than a path's rate; answered by the payload bits a second that arrive."""

    source: int
    """The place that sends."""
    sink: int
    """The place that receives, of the same agent: the network between them is emulated on one
    machine."""
    round_trip_s: float
    """The round trip of the path."""
    rate_bits_per_s: float | None
    """The rate of its narrowest link, for UDP datagrams; None for four TCP connections."""
    lossy: bool = False
    """Whether chance decides how many datagrams arrive, so that more of them have to be counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadFile(Message[bytes]):
    """Asks for a part of a file on the agent's machine; answered by its bytes, none at its end."""

    path: str
    """Its path there."""
    offset: int
    """Where to begin, in bytes."""
    most_bytes: int
    """How many at most."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadClock(Message[float]):
    """Asks what time it is there; answered by seconds since 1970 by the machine's own clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspect(Message["Inspection"]):
    """Asks what a machine is and what is installed on it; answered by `Inspection`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inspection:
    """A machine, and what measures on it."""

    binary: str
    """The path of the binary there."""
    versions: Mapping[str, str]
    """Of the binary, its file and the lab."""
    environment: Mapping[str, object]
    """What a result depends on besides the question."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DigestProgram(Message[Mapping[str, str]]):
    """Asks for the SHA-256 of a command's programs and of its script there; answered by each digest
    by its file's path.
    """

    argv: tuple[str, ...]
    """The program and its arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MakeFolder(Message[str]):
    """Makes an empty folder for the files of a trial; answered by its path. It lasts until
    `RemoveFolder`, or the agent's end; where the whole machine ends with it, until the next
    folder is made there.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class ListFolder(Message[Mapping[str, int]]):
    """Asks for the files of a folder that `MakeFolder` made; answered by each file's size in bytes,
    by its name.
    """

    path: str
    """The folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoveFolder(Message[None]):
    """Removes a folder that `MakeFolder` made; answered by None."""

    path: str
    """The folder."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HasFolder(Message[bool]):
    """Asks whether a path is a folder there; answered by a truth value."""

    path: str
    """The path."""


CHANGE_NOTHING = (ReadClock, ReadUsage, ListProcesses, ReadThreads, TakeSample)
"""What changes no process, and is answered while news of processes is awaited."""
