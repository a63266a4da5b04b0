"""What a question is, once it has been read: frozen records, and nothing invalid among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from plimsoll_lab.suite.documents import Claim, Reference
from plimsoll_lab.suite.expect import Expectation
from plimsoll_lab.suite.lines import Lines
from plimsoll_lab.suite.settings import Settings, Value
from plimsoll_lab.suite.topology import Topology


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One line of the matrix."""

    path: str
    """Dotted path of the setting that varies, such as `server.model`."""
    values: tuple[Value, ...]
    """What it is set to, in the order of the file, which is the order of every table and legend."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """A condition that a point has to meet to pass."""

    figure: str
    """The figure's name, as in the records: `response_time_us.p99`."""
    operator: str
    """One of `<`, `<=`, `>`, `>=`, `==`, `!=`."""
    value: float
    """The bound, in the figure's own unit."""
    text: str
    """The condition as the person wrote it, for messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSettings:
    """How often and in which order the points are measured."""

    repeat: int = 5
    """Repetitions of each point, each with a fresh server process."""
    warm_up: str | None = None
    """Time after the connections are up that does not count; a duration such as `3s`."""
    order: str = "blocks"
    """`blocks`: every point once a block, shuffled anew within each block."""
    seed: int | None = None
    """Where all randomness of the run comes from; drawn, and recorded, when the suite does not give
    one."""
    ready_timeout: float = 10.0
    """Seconds a server may take until it can be connected to."""
    trial_timeout: float | None = None
    """Seconds one generator may run; without it, a generous bound follows from the load asked
    for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VerdictSettings:
    """The family of comparisons, stated before the run."""

    compare: str | None = None
    """The axis whose values compete; by default the first axis, when it varies the server."""
    figures: tuple[str, ...] = (
        "completed_rate",
        "response_time_us.p99",
        "server.cpu_us_per_request",
        "server.memory_bytes",
    )
    """The figures on which they compete."""
    margin: float = 0.05
    """A ratio that lies wholly within 1 / (1 + margin) and 1 + margin is called equivalent."""
    baseline: str | None = None
    """The contender that every other one is compared with: the suite is then a gate."""
    tolerance: float = 0.05
    """The loss that a gate tolerates, as a part of the baseline's figure."""
    control: bool = False
    """Whether the first contender is measured twice in every block, as if it were two: an A/A
    control."""


HOLD_TIMES = 5
"""A confirming trial is at least this many times as long as the first ones: a growing queue
then shows five times as much."""
RATE_LEAST_S = 10.0
"""Over a rate it lasts at least this long: the generator reports its backlog second by second, and
eight whole seconds are the fewest that show whether it grows."""
LONGEST = 24
"""A trial lasts at most this part of the search's patience. A search takes about this many of the
longest trials, whose warm-up adds half of their length."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSettings:
    """A capacity to be searched for at each point of the matrix; a repetition is then a whole
    search.
    """

    over: str
    """What is varied: `load.connections` or `load.rate`."""
    lowest: int
    """The floor: a load that every server should complete."""
    highest: int
    """The highest load that is tried."""
    width: float = 0.05
    """Relative distance of the bounds at which a search ends."""
    trials: int = 5
    """The most trials that decide about a load; more than half of them agree."""
    patience_s: float = 3600.0
    """Seconds of trials after which a search ends with the bounds it has."""
    lasting_s: float = 60.0
    """Seconds of each trial that shows whether the load lasts; 0 for none."""

    @property
    def key(self) -> str:
        """The setting of the load that is varied."""
        return self.over.partition(".")[2]

    def least_s(self, first_s: float) -> float:
        """How long a confirming trial lasts at least: a queue that grows slowly stays below a limit
        in a shorter one.
        """
        return max(HOLD_TIMES * first_s, RATE_LEAST_S if self.key == "rate" else 0.0)

    def most_s(self, first_s: float) -> float:
        """How long a trial lasts at most, however near to each other the bounds have to be."""
        return max(self.least_s(first_s), self.patience_s / LONGEST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where the server and the generators run, and on which CPUs each part does."""

    server: str | None = None
    """The server's host."""
    load: tuple[str, ...] = ()
    """The generators' hosts, one each; they share the connections."""
    load_count: int = 0
    """Of a suite that counts them: how many hosts the generators have, never the server's."""
    load_label: str = ""
    """`KEY=VALUE`: the label that each of these has on a cluster; empty for any host."""
    cpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By a part's name: the CPUs of its host that its processes keep to; none for all of them."""

    @property
    def server_host(self) -> str:
        """The server's host in a point. Raises TypeError in a suite that leaves it open."""
        if self.server is None:
            raise TypeError("the server has no host yet")
        return self.server


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A further part of a trial."""

    name: str
    """By which others name it: `role:NAME`."""
    kind: str
    """`load`, `server`, `forward` or `command`."""
    on: str | None
    """Its host."""
    measured: bool
    """Of a load, whether its requests are part of the figures."""
    settings: Settings
    """Its own keys, as in [server] and [load]."""

    @property
    def host(self) -> str:
        """Its host in a point. Raises TypeError in a suite that leaves it open."""
        if self.on is None:
            raise TypeError(f"role {self.name} has no host yet")
        return self.on

    def on_host(self, host: str) -> Role:
        """The same on a host."""
        return replace(self, on=host)

    def with_setting(self, key: str, value: Value) -> Role:
        """The same with one more setting."""
        return replace(self, settings={**self.settings, key: value})


@dataclass(frozen=True, kw_only=True, slots=True)
class Suite:
    """A question, typed and checked."""

    name: str
    """Short name; letters, digits and dashes."""
    question: str
    """What the run is to answer, in a person's words."""
    source: str
    """Where it was read from, for messages."""
    directory: str
    """Folder of the file; `{dir}` in a command."""
    text: str
    """The file, verbatim."""
    server: Settings
    """The server under test: our flags with `_`, or `command` and `ready`."""
    load: Settings
    """The load generator: its long flags with `_`."""
    matrix: tuple[Axis, ...] = ()
    """What varies."""
    run: RunSettings = field(default_factory=RunSettings)
    """Repetitions, order and seed."""
    limits: tuple[Limit, ...] = ()
    """What makes a point pass."""
    verdict: VerdictSettings = field(default_factory=VerdictSettings)
    """What is compared with what."""
    search: SearchSettings | None = None
    """A load to be searched for, in place of an axis."""
    network: Mapping[str, object] | None = None
    """The network between hosts, before the matrix has been applied; None for the local host
    alone."""
    place: Placement = field(default_factory=Placement)
    """Where server and generators run, as far as the suite says."""
    roles: tuple[Role, ...] = ()
    """Further parts."""
    capture: bool = False
    """Whether the packets of the server's host are captured."""
    processes: bool = False
    """Whether each process of the server is listed with its CPU."""
    contenders: Mapping[str, Settings] = field(default_factory=dict)
    """What competes, by name: each table is laid over [server]."""
    excluded: tuple[Settings, ...] = ()
    """Cells of the matrix that are left out."""
    single_points: tuple[Settings, ...] = ()
    """Points beside the matrix, each by its settings."""
    expectations: tuple[Expectation, ...] = ()
    """What has to hold in every trial."""
    references: tuple[Reference, ...] = ()
    """Figures of documents."""
    claims: tuple[Claim, ...] = ()
    """Conclusions of documents that the run puts to the test."""
    drawn: tuple[tuple[str, str], ...] = ()
    """Charts asked for: a figure, and the path, or the product of two, that it is drawn over."""
    lines: Lines = field(default_factory=Lines, compare=False, repr=False)
    """Where its tables and keys stand in the file, for messages."""

    @property
    def axes(self) -> tuple[Axis, ...]:
        """Whatever varies: the contenders, then the matrix."""
        named = (Axis(path="contender", values=tuple(self.contenders)),) if self.contenders else ()
        return (*named, *self.matrix)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One cell of the matrix."""

    number: int
    """Position among all cells of the matrix, from 0, first axis slowest, and then among the single
    points."""
    setting: Settings
    """What varies, by dotted path; a contender's name under `contender`, a point's under
    `point`."""
    server: Settings
    """The whole server table of this point."""
    load: Settings
    """The whole load table of this point."""
    control: bool = False
    """Whether this repeats another point, to be compared with that point alone."""
    network: Topology | None = None
    """The emulated network of this point; None on a cluster, whose network is what it is."""
    addresses: int = 1
    """On a cluster: how many of a host's addresses its generator rotates through."""
    place: Placement = field(default_factory=Placement)
    """Where server and generators run."""
    roles: tuple[Role, ...] = ()
    """Further parts, each with its host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedTrial:
    """One timed measurement that is to be made."""

    number: int
    """Position in the run, from 1."""
    block: int
    """The block it belongs to, from 1; a block holds every point once."""
    point: int
    """The number of its point."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A suite expanded: what will be measured, in which order."""

    suite: Suite
    """The question."""
    seed: int
    """The seed the order was drawn from."""
    points: tuple[Point, ...]
    """Every cell of the matrix that was not filtered out."""
    trials: tuple[PlannedTrial, ...]
    """Every measurement, in order."""
