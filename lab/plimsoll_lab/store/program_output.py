"""What programs and hosts report of a trial, as far as the laboratory reads it.

Records keep reports whole. These models give the parts that are read names and types; other parts
are ignored, as programs may report more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plimsoll_lab.problem import ENVIRONMENT, LabError
from plimsoll_lab.store.records import Counts

Number = int | float
"""As it was written: a whole number remains one."""


class Output(BaseModel):
    """A part of what a program printed. What it did not print has a default."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


OutputT = TypeVar("OutputT", bound=Output)


class Times(Output):
    """Percentiles of a time, in microseconds."""

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p75: float | None = None
    p90: float | None = None
    p99: float | None = None
    p99_9: float | None = None
    max: float | None = None


class Connections(Output):
    """Connections of a generator."""

    requested: int = 0
    established: int | None = None
    bytes_each: float = 0.0
    """Memory per connection."""


class Requests(Output):
    """Requests of a generator over its window."""

    scheduled: int = 0
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    in_flight: int = 0
    """Without an answer as the window closed."""
    unsent: int = 0

    @property
    def lost(self) -> int:
        """Requests that were sent and came to nothing; unsent ones are the generator's lateness."""
        return self.failed + self.timed_out


class GeneratorCost(Output):
    """What a generator used itself."""

    cpu_cores: float | None = None
    cpu_us_per_request: float | None = None
    run_queue_wait_ratio: float | None = None
    """The part of the window for which its busiest event loop was ready and had no CPU."""


class GeneratorWarning(Output):
    """A warning of the generator's own."""

    code: str = "generator"
    message: str = ""
    remedy: str = ""


class LoadSummary(Output):
    """The summary of `plimsoll load`."""

    valid: bool = True
    doubted: Sequence[str] = ()
    """Figures that are the generator's own lateness by half or more: `response_time_us.p99`."""
    warnings: Sequence[GeneratorWarning] = ()
    connections: Connections = Connections()
    requests: Requests = Requests()
    errors: Counts = Field(default_factory=dict)
    statuses: Counts = Field(default_factory=dict)
    elapsed_s: float = 0.0
    """Length of the window."""
    bytes_sent: int = 0
    bytes_received: int = 0
    completed_rate: float | None = None
    """Requests a second."""
    offered_rate: float | None = None
    goodput_bits_per_s: float | None = None
    intended_rate: float | None = None
    """Of an open loop alone."""
    response_time_us: Times = Times()
    service_time_us: Times = Times()
    schedule_lag_us: Times = Times()
    establishment_time_us: Times = Times()
    transmission_time_us: Times = Times()
    histograms: Mapping[str, str] = Field(default_factory=dict)
    """Times in nanoseconds, encoded as HdrHistogram does; `response_time_ns` and others."""
    generator: GeneratorCost = GeneratorCost()


class ServerSummary(Output):
    """The summary of `plimsoll serve`."""

    refused: int = 0
    peak_connections: int | None = None
    errors: Counts = Field(default_factory=dict)


class Ready(Output):
    """What a server or forwarder prints once it can be connected to."""

    addresses: Sequence[str] = Field(min_length=1)


class Second(Output):
    """A generator's line about one second."""

    phase: str
    second: int
    from_unix_s: float = 0.0
    """Where the part of the second begins that lies in the phase."""
    covers_s: float = 0.0
    """How long that part is."""
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    response_time_us: Times = Times()


class ConnectionResult(Output):
    """What became of one connection; times in microseconds."""

    success: bool
    failed_connects: int
    failed_sequences: int
    failed_requests: int
    establishment_time_us: float = 0.0
    service_time_total_us: float = 0.0


class CaptureInterval(Output):
    """One interval of a capture, with every figure that it has."""

    model_config = ConfigDict(extra="allow")

    packets: int = 0
    bytes: int | None = None
    """With their Ethernet headers."""
    flags: Counts = Field(default_factory=dict)
    """TCP segments with each flag."""
    retransmissions: int | None = None
    new_endpoints: int | None = None
    """Endpoints that were seen for the first time."""


class CaptureSummary(Output):
    """The summary of `plimsoll capture`."""

    interval_s: float | None = None
    interval: Sequence[CaptureInterval] = ()
    kernel_drops: int | None = None
    packets: int | None = None
    bytes: int | None = None
    """With their Ethernet headers."""
    endpoints: int | None = None
    """Pairs of address and port."""
    flags: Counts = Field(default_factory=dict)
    """TCP segments with each flag."""
    tcp: Counts = Field(default_factory=dict)
    """What went wrong with TCP."""


class LinkCounts(Output):
    """Packets of one direction of an emulated link since it began, or over a window."""

    start: str = Field(alias="from")
    end: str = Field(alias="to")
    delivered: int = 0
    released_late: int = 0
    dropped_by_fault: int = 0


class LinkTotal(Output):
    """All that the emulator has counted of one direction of a link."""

    model_config = ConfigDict(extra="allow")

    start: str = Field(alias="from")
    end: str = Field(alias="to")

    @property
    def counts(self) -> Counts:
        """Each count by its name."""
        return {key: value for key, value in (self.model_extra or {}).items() if isinstance(value, int)}


class LinkTotals(Output):
    """An event `counters` of `plimsoll link`."""

    links: Sequence[LinkTotal]


class Disturbance(Output):
    """A moment at which the emulator was late, or links lost packets."""

    from_unix_s: float = 0.0
    to_unix_s: float = 0.0
    late_frames: int = 0
    lost_frames: int = 0
    worst_us: float


class LinkWindow(Output):
    """What the emulated links did over a window."""

    silent: bool = False
    """Whether the emulator said nothing after the window."""
    links: Sequence[LinkCounts] = ()
    disturbances: Sequence[Disturbance] = ()
    lost_outside: int = 0
    """Packets lost by fault before the window opened or after it closed, as when all connections
    are closed at once: the counts hold them too."""
    late_outside: int = 0
    """Frames handed over late before the window opened or after it closed. The counts hold their
    packets too, of which a frame may have many."""
    drops_unknown: Sequence[str] = ()
    """Devices whose drops cannot be read."""


class HostRow(Output):
    """A row of a trial's timeline: the machine, each host's sockets, each part's cost."""

    at_s: float = 0.0
    machine: Mapping[str, Number | None] = Field(default_factory=dict)
    hosts: Mapping[str, Mapping[str, Number | None]] = Field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Number | None]] = Field(default_factory=dict)


def read_output(form: type[OutputT], told: object, who: str) -> OutputT:
    """A report, as a model. Raises `LabError` where a program reports something else."""
    try:
        return form.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"])
        raise LabError(
            f"cannot read what {who} printed: {where}: {first['msg']}; use plimsoll and plimsoll-lab of one version",
            exit_code=ENVIRONMENT,
        ) from None


def pick(record: Mapping[str, object], names: Iterable[str]) -> dict[str, float]:
    """The numbers of a record by their paths; none of times without a sample, which are printed as
    0.
    """
    found: dict[str, float] = {}
    for name in names:
        value: object = record
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
            if key.endswith("_us") and isinstance(value, dict) and value.get("count") == 0:
                value = None
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = value
    return found
