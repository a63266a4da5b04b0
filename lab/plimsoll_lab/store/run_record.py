"""run.json: what a run is about, written before its first trial, and how far it has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import ConfigDict, Field

from plimsoll_lab.store.form import Record, UnixSeconds
from plimsoll_lab.store.network_record import CalibrationRecord
from plimsoll_lab.store.records import SCHEMA_VERSION
from plimsoll_lab.store.search_record import SearchRecord, SearchSettingsRecord
from plimsoll_lab.suite.documents import Claim, Reference
from plimsoll_lab.suite.figures import BY_NAME, Figure
from plimsoll_lab.suite.settings import Settings, Value
from plimsoll_lab.suite.spec import Axis, Limit, Placement, PlannedTrial, Role, RunSettings

NOT_TOLD = "not told"
"""A setting of an imported point that its file lacks, where files of other points have it."""
Status = Literal["running", "complete", "interrupted", "failed"]


class SuiteRecord(Record):
    """The suite of a run."""

    name: str
    """Its name."""
    question: str
    """What it asks."""
    source: str
    """The file it was read from."""
    directory: str
    """The folder that replaces `{dir}`."""
    text: str
    """The file, verbatim but for secrets."""


class RequestRecord(Record):
    """What a person asked for besides the suite."""

    suite: str
    """The suite as it was named."""
    changes: Mapping[str, Value]
    """Settings that win over the suite's, by dotted path."""
    only: Mapping[str, Sequence[str]]
    """The points to keep, by dotted path."""
    fast: bool = False
    """Whether `--fast` was given."""
    hosts: str | None = None
    """The cluster: `ray:HEAD:PORT`; null on one machine."""


class DescriptorLimits(Record):
    """How many descriptors a process may have open (RLIMIT_NOFILE)."""

    soft: int
    """The limit in force."""
    hard: int
    """As far as a process may raise it."""


class EnvironmentRecord(Record):
    """What a result depends on besides the question; null where it cannot be read."""

    system: str | None = None
    """The kernel and its release."""
    machine: str | None = None
    """The processor's architecture."""
    cpu: str | None = None
    """The processor's model."""
    cpus: int | None = None
    """CPUs that the lab may use."""
    cpus_online: int | None = None
    """CPUs of the machine; null in an earlier record."""
    memory: str | None = None
    """MemTotal of /proc/meminfo."""
    hypervisor: str | None = None
    """Whether the processor shows one."""
    open_files_limit: DescriptorLimits | None = None
    """Descriptors of a process."""
    metering: str | None = None
    """Where the cost of a server is read from."""
    python: str | None = None
    """The version that runs the lab."""
    tcp_congestion_control: str | None = None
    """net.ipv4.tcp_congestion_control."""
    ip_local_port_range: str | None = None
    """net.ipv4.ip_local_port_range."""
    somaxconn: str | None = None
    """net.core.somaxconn."""
    tcp_max_syn_backlog: str | None = None
    """net.ipv4.tcp_max_syn_backlog."""
    pid_max: str | None = None
    """kernel.pid_max."""
    io_uring_disabled: str | None = None
    """kernel.io_uring_disabled."""
    transparent_hugepage: str | None = None
    """The setting of transparent huge pages."""
    cpu_governor: str | None = None
    """The frequency governor of the first CPU."""
    clocksource: str | None = None
    """The kernel's clock source."""
    load_average: str | None = None
    """/proc/loadavg as the run began."""

    def known(self) -> dict[str, object]:
        """What could be read of the machine."""
        return {name: value for name, value in self.to_json().items() if value is not None}


class PointRecord(Record):
    """One point of the matrix."""

    number: int
    """By which trials name it."""
    setting: Settings
    """The matrix's settings there, by dotted path."""
    server: Settings
    """The [server] table there."""
    load: Settings
    """The [load] table there."""
    control: bool = False
    """Whether it is another point once more, as an A/A control."""
    network: Mapping[str, object] | None = None
    """Hosts, switches and links; null without a network."""
    addresses: int = 1
    """On a cluster: how many of a host's addresses its generator rotates through."""
    place: Placement = Placement()
    """The hosts of the server and of the generators."""
    roles: Sequence[Role] = ()
    """Further parts."""


class FamilyRecord(Record):
    """The comparisons, stated before the run."""

    compare: str | None
    """The axis whose values compete."""
    figures: Sequence[str]
    """The figures on which they compete."""
    margin: float
    """Within this ratio they are equivalent."""
    baseline: str | None = None
    """The contender that a gate compares every other one with."""
    tolerance: float = 0.0
    """The loss that a gate tolerates."""


class HostRecord(Record):
    """A host of a run on a cluster, and what it is. Where one was lost, the one that took its name
    is another record.
    """

    name: str
    """By which the suite names it."""
    address: str
    """The address of its node."""
    called: Sequence[str]
    """Other names of that node."""
    labels: Mapping[str, str]
    """What the cluster says of it."""
    machine: str
    """Identifies the machine."""
    versions: Mapping[str, str]
    """Of its programs."""
    environment: Mapping[str, object]
    """What could be read of the machine."""


class ImportedFile(Record):
    """A file of another load generator, as it was imported."""

    trial: int
    """The number of its trial."""
    name: str
    """Its name, without its folder."""
    tool: str
    """What wrote it."""
    target: str
    """The address that was loaded, without credentials; empty where the file lacks it."""
    sha256: str
    """The digest of its content."""
    started_unix_s: UnixSeconds | None
    """When the measurement began; null where the file lacks it."""


class ImportRecord(Record):
    """Where the trials of an imported run come from."""

    unix_s: UnixSeconds
    """When they were imported."""
    files: Sequence[ImportedFile]
    """Each file, in order."""

    @property
    def tools(self) -> list[str]:
        """The tools that wrote them, each once."""
        return list(dict.fromkeys(each.tool for each in self.files))


class RunRecord(Record):
    """What a run is about, written before its first trial: run.json."""

    model_config = ConfigDict(frozen=False, validate_assignment=True)  # it grows with its run

    schema_version: Literal[1] = SCHEMA_VERSION
    """Of this record's form."""
    run: str
    """The number of its folder."""
    status: Status
    """How it ended; `running` while a lab works on it, and after that lab was killed."""
    suite: SuiteRecord
    """Its suite."""
    request: RequestRecord
    """What was asked for besides."""
    command: str
    """Makes the same run again, seed included."""
    seed: int
    """Where all its randomness comes from."""
    started_unix_s: UnixSeconds
    """When it began."""
    finished_unix_s: UnixSeconds | None
    """When it ended; null while it runs."""
    versions: Mapping[str, str]
    """Of the binary, its file's digest, and of the lab."""
    programs: Mapping[str, str] | None = None
    """The SHA-256 of each program that the suite names, and of its script, by path; on a cluster
    `HOST:PATH`. Null in a run of an earlier version."""
    environment: EnvironmentRecord
    """Listed facts about the machine, never the whole environment."""
    axes: Sequence[Axis]
    """The axes of its matrix."""
    points: Sequence[PointRecord]
    """Every point."""
    trials: Sequence[PlannedTrial]
    """Every trial that is to be made, in order."""
    settings: RunSettings
    """The [run] table, defaults included."""
    limits: Sequence[Limit]
    """What points have to meet."""
    family: FamilyRecord
    """What is compared with what."""
    figures: Sequence[Figure]
    """Every figure that its trials yield."""
    search: SearchSettingsRecord | None = None
    """Of a run that searches: what is searched for."""
    searches: Sequence[SearchRecord] = ()
    """Of a run that searches: each search, in the order they were made."""
    calibrations: Sequence[CalibrationRecord] = ()
    """Each distinct emulated network, as measured at the run's start and at each resume."""
    hosts: Sequence[HostRecord] = ()
    """On a cluster: the name of each host, the node that has it, and what that is."""
    quantities: Mapping[str, Mapping[str, tuple[float, str]]] = Field(default_factory=dict)
    """Settings that are numbers, by path and by value as text: the number and its unit (s, B, bit/s
    or none)."""
    drawn: Sequence[tuple[str, str]] = ()
    """Charts that the suite asks for: a figure, and the path or the product of two that it is drawn
    over."""
    references: Sequence[Reference] = ()
    """Figures of documents, in the figure's own unit."""
    claims: Sequence[Claim] = ()
    """Conclusions of documents, as the suite states them before the run."""
    mixed: Sequence[str] = ()
    """What measured otherwise once the run was resumed with `--anyway`, in words."""
    imported: ImportRecord | None = None
    """Of a run that another load generator made: its files. Nobody checked its trials, and no
    verdict follows from their order."""

    def figure(self, name: str) -> Figure:
        """A figure of this run by its name. Raises `KeyError` where there is none."""
        return self.figures_by_name[name]

    @property
    def figures_by_name(self) -> dict[str, Figure]:
        """Every figure by its name, also those of every run that this one does not list."""
        return BY_NAME | {each.name: each for each in self.figures}
