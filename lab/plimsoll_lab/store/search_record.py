"""Searches of a run, in run.json: settings, the loads tried, the bounds, what broke first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, Field

from plimsoll_lab.store.form import Record
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import SearchSettings

LimitedBy = Literal["server", "generator", "environment"]


SearchState = Literal["planned", "interrupted", "out of patience", "complete", "failed"]


ShortOf = Literal["descriptors", "listen_overflow", "errors", "cpu", "memory"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchSettingsRecord(SearchSettings):
    """What is searched for: the [search] table, and whose capacity it is."""

    subject: str | None = None
    """Whose capacity it is, in words; null for the points of a matrix."""


class CauseRecord(Record):
    """What a server was short of."""

    code: ShortOf
    """For scripts."""
    text: str
    """In words."""


class BreakRecord(Record):
    """What was missed at the upper bound, and what the server was short of."""

    missed: str
    """The limit that was missed."""
    causes: Sequence[CauseRecord]
    """What the server was short of."""
    near_ceiling: str | None = None
    """Where the generator was near its own limit: how near."""


class LoadRecord(Record):
    """One load that a search tried."""

    load: int
    """Connections, or requests a second."""
    trials: int
    """How often it was tried."""
    good: int
    """How often every limit was met."""
    medians: Mapping[str, float]
    """The median of each figure."""


class SearchRecord(Record):
    """One search: a whole one a repetition of each point of the matrix."""

    model_config = ConfigDict(frozen=False, validate_assignment=True)  # it grows with its trials

    number: int
    """Its position, from 1."""
    block: int
    """Its block, from 1."""
    point: int
    """The number of its point."""
    state: SearchState
    """How far it came."""
    trials: int = 0
    """How many trials it took."""
    setting: Settings = Field(default_factory=dict)
    """The matrix's settings at its point."""
    lower: int | None = None
    """The highest load that met every limit."""
    upper: int | None = None
    """The lowest load that did not."""
    limited_by: LimitedBy | None = None
    """Who stopped the rise."""
    broke: BreakRecord | None = None
    """What broke first."""
    generator_ceiling_per_s: float | None = None
    """What the generator gets from a null server."""
    held_s: float = 0.0
    """How long the confirming trials at `lower` lasted, in seconds."""
    trial_s: float = 0.0
    """Seconds of each confirming trial."""
    precision: float | None = None
    """Relative distance of loads that trials of this length tell apart; null where few lay near the
    limit."""
    confirmed: int = 0
    """How many of the confirming trials at `lower` passed."""
    is_held: bool | None = None
    """Whether all that are asked for there have passed, the long ones too; null in the records of
    earlier versions."""
    unconfirmed: Sequence[int] = ()
    """Loads that the search had found good, and whose confirming trials did not pass."""
    loads: Sequence[LoadRecord] = ()
    """Every load that was tried."""
    reason: str | None = None
    """Of a search whose server did not start, listen or answer: what it said."""
