"""What is written to disk. Plain data: what it means is said in the schemas beside this file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, cast

SCHEMA_VERSION = 1

Json = dict[str, object]
Outcome = Literal["ok", "hard_limit", "failed", "generator_limited", "invalid"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubt:
    """A reason to mistrust a result: data, carried to every output."""

    code: str
    """What kind of doubt, for scripts: `generator_limited`."""
    message: str
    """What was seen, with the evidence."""
    remedy: str
    """What to do about it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """The server's tree at one moment."""

    at_s: float
    """Seconds since the window opened."""
    cpu_s: float
    """CPU seconds of the tree since it began."""
    memory_bytes: int | None
    """Memory of the tree; None where the meter would have disturbed the trial."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A measurement that was no result through no fault of the server, and was made again."""

    outcome: Outcome
    """Why it was no result."""
    reason: str | None
    """The same in words."""
    started_unix_s: float
    """When it began."""
    elapsed_s: float
    """How long it took."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialRecord:
    """One trial, whole."""

    number: int
    """Position in the run, from 1."""
    block: int
    """Its block, from 1."""
    point: int
    """The number of its point."""
    setting: Mapping[str, object]
    """The matrix's settings of that point."""
    outcome: Outcome
    """`ok`, or why this is no result."""
    reason: str | None
    """In words, where the outcome is not `ok`."""
    warnings: Sequence[Doubt]
    """Doubts about this trial."""
    figures: Mapping[str, float]
    """Every figure by name, in the unit its name carries; of an `ok` trial only these are results."""
    started_unix_s: float
    """When it began."""
    elapsed_s: float
    """How long it took, from the server's start to its end."""
    server: Mapping[str, object]
    """Command, readiness, summary and end of the server."""
    load: Mapping[str, object]
    """Command, summary and end of the generator."""
    machine: Mapping[str, object]
    """What the rest of the machine did during the window."""
    samples: Sequence[Sample] = ()
    """The server's tree over the window."""
    attempts: Sequence[Attempt] = ()
    """Earlier measurements of this trial that were discarded."""
    roles: Sequence[Mapping[str, object]] = ()
    """Further parts: what each was, and what it cost."""
    hosts: Mapping[str, object] = field(default_factory=dict)
    """What was read on every host over the window: counters of TCP and of interfaces, connections, the machine."""
    network: Mapping[str, object] | None = None
    """What the emulated links did over the window; None without a network."""
    schema_version: int = field(default=SCHEMA_VERSION)
    """Of this record's form."""

    def to_json(self) -> Json:
        """As it is written."""
        return asdict(self)

    @staticmethod
    def from_json(record: Json) -> TrialRecord:
        """As it was written."""
        fields = dict(record)
        fields["warnings"] = tuple(Doubt(**each) for each in cast("list[dict[str, str]]", record["warnings"]))
        fields["samples"] = tuple(Sample(**each) for each in cast("list[dict[str, float]]", record["samples"]))  # type: ignore[arg-type]
        fields["attempts"] = tuple(Attempt(**each) for each in cast("list[dict[str, float]]", record["attempts"]))  # type: ignore[arg-type]
        return TrialRecord(**fields)  # type: ignore[arg-type]
