"""One trial, whole, as it is written to disk: trials/NNNN.json. The schemas are made of these
records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import ClassVar, Literal, NotRequired

from pydantic import ConfigDict
from typing_extensions import TypedDict

from plimsoll_lab.store.form import closed, documented, record_of
from plimsoll_lab.suite.settings import Settings

SCHEMA_VERSION: Literal[1] = 1

Json = dict[str, object]
Counts = Mapping[str, int]
"""How often each thing happened, by its name."""


def counts(summary: Mapping[str, object] | None, key: str) -> Counts:
    """The counts below a key of a program's summary, such as `errors`; empty where it has none."""
    found = (summary or {}).get(key)
    if not isinstance(found, Mapping):
        return {}
    return {str(name): count for name, count in found.items() if isinstance(count, int)}


Outcome = Literal["ok", "hard_limit", "failed", "generator_limited", "invalid"]
"""`ok`, or why this is no result: the server's own limit, its failure, the generator's limit,
or another warning."""

Severity = Literal["voids", "widens", "note"]
"""How much a warning matters: some results cannot be used, some are less certain than their
intervals say, or no result changes."""

_FORM = ConfigDict(extra="forbid", use_attribute_docstrings=True, json_schema_serialization_defaults_required=True)


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultWarning:
    """A reason to mistrust a result, which every output has."""

    __pydantic_config__: ClassVar[ConfigDict] = _FORM

    code: str
    """Its kind, for scripts: `generator_limited`."""
    message: str
    """What was seen, with the evidence."""
    remedy: str
    """What to do about it."""


GENERATOR_WARNINGS = ("generator_", "schedule_")
"""How the codes begin of warnings about the generator itself."""
MACHINE_WARNINGS = ("machine_busy", "steal")
"""Where one of these is given, it explains a warning about the generator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WarningRecord(ResultWarning):
    """A warning in a summary, with what it means for the results."""

    severity: Severity
    """`voids`: some results cannot be used; `widens`: some are less certain than their intervals
    say; `note`: no result changes."""
    trials: int | None
    """In how many trials it was seen; null where it is not about single trials."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The server's tree at one moment."""

    __pydantic_config__: ClassVar[ConfigDict] = _FORM

    at_s: float
    """Seconds since the window opened."""
    cpu_s: float
    """CPU seconds of the tree since it began."""
    memory_bytes: int | None
    """Memory of the tree; None where the meter would have disturbed the trial."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A measurement that was no result through no fault of the server, and was made again."""

    __pydantic_config__: ClassVar[ConfigDict] = _FORM

    outcome: Outcome
    """Why it was no result."""
    reason: str | None
    """The same in words."""
    started_unix_s: float
    """When it began."""
    elapsed_s: float
    """How long it took."""
    figures: Mapping[str, float] = field(default_factory=dict)
    """Every figure that it had."""
    cause: str | None = None
    """The code of what was in its way."""
    warnings: Sequence[ResultWarning] = ()
    """Warnings about it; none in a record of an earlier version."""
    cut: CutRecord | None = None
    """The disturbed time that was cut out of its window; None where there was none."""
    late_figures: Mapping[str, float] = field(default_factory=dict)
    """As in the record of a trial."""
    taken: TakenRecord | None = None
    """As in the record of a trial."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenRecord:
    """What is known of a trial's figures although others had the CPUs of the server's machine at
    some moments: another guest, another program, or a quota. Nothing is cut out.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _FORM

    moments: int
    """How many such moments the window had."""
    share: float
    """The part of the window that the seconds make up in which they may have delayed answers."""
    requests: int
    """Requests that were answered in those seconds, or of which the links lost a packet; of a
    closed loop with those that the moments suppressed."""
    bounds: Mapping[str, tuple[float, float]]
    """Between which values each figure lies without the delays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CutRecord:
    """The disturbed time that was cut out of a trial's window, and what is known without it.

    With no moments: what is known of a closed loop although its links lost packets.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _FORM

    moments: int
    """Moments at which the emulator of the links was late, or lost packets."""
    share: float
    """The part of the window that was cut out."""
    requests: int | None
    """Requests that were due in that time, or would have been; null without a request log."""
    touched: int | None
    """Kept requests that were in flight in a moment, or of which a packet was lost, at most; null
    without a request log."""
    completed_rate: float | None
    """Requests completed a second in the kept time; null where it is not known, or no time was
    cut."""
    bounds: Mapping[str, tuple[float, float]]
    """Between which values each figure lies, whatever the cut requests would have taken."""
    estimates: Mapping[str, float]
    """These percentiles of the kept requests; without moments, as they were measured."""
    doubted: Sequence[str]
    """Figures of which nothing is known without the cut requests."""


class EndRecord(TypedDict, total=False):
    """How a process was started and how it ended."""

    command: Sequence[str]
    """The program and its arguments; empty for a server that already ran."""
    exit_code: int
    """A negative number is the signal that ended it."""
    lacked_memory: bool
    """Whether the kernel ended it, or a process of its tree, for want of memory; absent where
    not."""
    summary: Json | None
    """Its own summary, whole."""
    stderr_tail: str
    """The end of what it has printed to stderr."""


@closed
class ProcessRecord(TypedDict):
    """One process of the server, as top(1) lists it."""

    pid: int
    """Its process id."""
    name: str
    """Its name."""
    cpu_cores: float
    """CPU time over the window's length, in steps of a clock tick; of its own threads alone. Of one
    that ended before the window closed, what it had used as it was seen last."""


@closed
class ServerRecord(EndRecord, total=False):
    """The server under test."""

    metering: Literal["cgroup v1", "cgroup v2", "proc"]
    """Where its cost was read from."""
    ready: Json
    """How it said that it could be connected to."""
    elsewhere: bool
    """Of a server that already ran: whether its address is of another machine, of which nothing is
    read. Older runs do not tell."""
    processes: Sequence[ProcessRecord]
    """Each that was seen in the window, the busiest first; where the suite asks for them."""


@closed
class GeneratorRecord(TypedDict):
    """One of several generators."""

    name: str
    """`load`, `load-2` and so on."""
    host: str
    """Where it ran."""
    command: Sequence[str]
    """The program and its arguments."""
    exit_code: int
    """A negative number is the signal that ended it."""
    stderr_tail: str
    """The end of what it has printed to stderr."""
    summary: Mapping[str, object] | None
    """Its own summary, whole; None where it printed none."""


@closed
class MeasuredLoadRecord(EndRecord, total=False):
    """The measured generators, as one."""

    generators: Sequence[GeneratorRecord]
    """Each of several; the summary is theirs together."""


@closed
class MachineRecord(TypedDict, total=False):
    """What the server's machine did during the window."""

    window_s: float
    """The length of the window."""
    sample_lag_s: float
    """How late its two ends were read, together."""
    busy_cores: float
    """CPU used by anything, in cores."""
    softirq_cores: float
    """The part of it that the kernel's threads for packets that arrive used, in cores."""
    steal_cores: float
    """CPU that the hypervisor withheld, in cores."""
    throttled_s: float
    """Seconds for which a CPU quota of this container held threads back."""
    listen_overflows: int
    """In a search: connections that found a full listen queue, anywhere on the server's host."""


@documented
class RoleRecord(TypedDict, total=False):
    """A further part of a trial: command, readiness, cost and end."""

    name: str
    """Its name."""
    kind: str
    """`load`, `server`, `forward` or `command`."""
    host: str
    """Where it ran."""
    measured: bool
    """Of a load, whether its requests are part of the figures."""
    cpu_cores: float | None
    """CPU of its tree over the window, in cores."""
    memory_bytes: int | None
    """Memory of its tree as the window closed."""


@closed
class OffsetRecord(TypedDict):
    """How far a clock was from the lab's."""

    offset_us: float
    """Add it to the lab's time to get the time there."""
    error_us: float
    """How far that may be wrong: half of the shortest round trip of a message."""


@closed
class ClockRecord(TypedDict):
    """The clock of a host on a cluster, before the trial and after it."""

    host: str
    """By which the suite names it."""
    address: NotRequired[str]
    """Of its node: another one has the name where the first was lost. Older runs do not tell."""
    before: OffsetRecord
    after: OffsetRecord


@closed
class HostsRecord(TypedDict, total=False):
    """What was read on every host over the window."""

    lab_cpu_cores: float
    """The lab's own CPU, in cores."""
    counters: Mapping[str, Mapping[str, int]]
    """What TCP and the interface of each host have counted over the window."""
    connections: Sequence[Json]
    """tcp_info of some connections, in a few figures."""
    timeline: Sequence[Json]
    """Once a second: the machine, connections by state, and each part's cost and descriptors."""
    captures: Sequence[Json]
    """Of each capture."""
    windows: Sequence[Json]
    """Of each of several generators: when its window opened and closed, by the lab's clock."""
    start_spread_s: float
    """Between the first of these openings and the last."""
    clocks: Sequence[ClockRecord]
    """On a cluster, of each host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One trial, whole."""

    __pydantic_config__: ClassVar[ConfigDict] = _FORM

    number: int
    """Position in the run, from 1."""
    block: int
    """Its block, from 1."""
    point: int
    """The number of its point."""
    setting: Settings
    """The matrix's settings of that point."""
    outcome: Outcome
    """`ok`, or why this is no result."""
    reason: str | None
    """In words, where the outcome is not `ok`."""
    warnings: Sequence[ResultWarning]
    """Warnings about this trial."""
    figures: Mapping[str, float]
    """Every figure by name, in the unit of its name; of an `ok` trial only these are
    results."""
    started_unix_s: float
    """When it began; 0 where an imported file lacks it."""
    elapsed_s: float
    """How long it took, from the server's start to its end; 0 where an imported file does not
    tell.
    """
    server: ServerRecord
    """Command, readiness, summary and end of the server."""
    load: MeasuredLoadRecord
    """Command, summary and end of the generator."""
    machine: MachineRecord
    """What the rest of the machine did during the window."""
    samples: Sequence[Sample] = ()
    """The server's tree over the window."""
    attempts: Sequence[Attempt] = ()
    """Earlier measurements of this trial that were discarded."""
    roles: Sequence[RoleRecord] = ()
    """Further parts: what each was, and what it cost."""
    hosts: HostsRecord = field(default_factory=HostsRecord)
    """What was read on every host over the window: counters of TCP and of interfaces, connections,
    the machine."""
    network: Mapping[str, object] | None = None
    """What the emulated links did over the window; None without a network."""
    cut: CutRecord | None = None
    """The disturbed time that was cut out of the window; None where there was none."""
    late_figures: Mapping[str, float] = field(default_factory=dict)
    """Response times that are no figures, as the generator's own lateness is half of each or more:
    as they were measured. The server's own are at most that."""
    taken: TakenRecord | None = None
    """Of moments at which others had the CPUs of the server's machine; None where there were none,
    or they were most of the window."""
    schema_version: Literal[1] = field(default=SCHEMA_VERSION)
    """Of this record's form."""

    @property
    def bounds(self) -> Mapping[str, tuple[float, float]]:
        """Between which values each figure lies without the moments that disturbed the trial."""
        if self.cut is None or self.taken is None:
            record = self.cut or self.taken
            return record.bounds if record is not None else {}
        # Where packets were lost too, each moved the figure as far from where it was measured.
        found = {**self.cut.bounds, **self.taken.bounds}
        for name in self.cut.bounds.keys() & self.taken.bounds.keys() & self.figures.keys():
            (low, high), (least, most), value = self.cut.bounds[name], self.taken.bounds[name], self.figures[name]
            found[name] = (low * least / value, high * most / value) if value else (min(low, least), max(high, most))
        return found

    @property
    def repeated_s(self) -> float:
        """How long the measurements took that were discarded."""
        return sum(attempt.elapsed_s for attempt in self.attempts)

    @property
    def took_s(self) -> float:
        """How long it took with all of its measurements."""
        return self.elapsed_s + self.repeated_s

    def to_json(self) -> Json:
        """As it is written."""
        return asdict(self)

    @staticmethod
    def from_json(record: Json) -> TrialRecord:
        """As it was written. Raises pydantic's `ValidationError` where it has another form."""
        return record_of(TrialRecord, record)


def untold_figures(trial: TrialRecord) -> frozenset[str]:
    """What the generator calls its own lateness, and the trial does not tell; its summary and its
    histograms hold it all the same.
    """
    doubted = (trial.load.get("summary") or {}).get("doubted")
    names = doubted if isinstance(doubted, list | tuple) else ()
    return frozenset(str(name) for name in names if name not in trial.figures)
