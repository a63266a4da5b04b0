"""The answer of `lab capacity --json`, and each search in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from plimsoll_lab.store.form import Record
from plimsoll_lab.store.records import SCHEMA_VERSION, WarningRecord
from plimsoll_lab.store.search_record import LimitedBy, LoadRecord, SearchState


class SearchSummary(Record):
    """One search in the answer of `lab capacity`."""

    block: int
    """Its block, from 1."""
    state: SearchState
    """How far it came."""
    lower: int | None
    """The highest load that met every limit."""
    upper: int | None
    """The lowest load that did not."""
    limited_by: LimitedBy | None
    """Who stopped the rise."""
    confirmed: int
    """How many of the confirming trials at `lower` passed."""
    unconfirmed: Sequence[int]
    """Loads that the search had found good, and whose confirming trials did not pass."""
    loads: Sequence[LoadRecord]
    """Every load that was tried."""


class CapacityAnswer(Record):
    """The answer of `lab capacity --json`: the capacity at its top."""

    event: Literal["summary"] = "summary"
    """What this line is."""
    schema_version: Literal[1] = SCHEMA_VERSION
    """Of this record's form."""
    run: str
    """Its folder."""
    report: str
    """Its page."""
    status: Literal["complete", "interrupted"]
    """Whether every search has ended."""
    over: str
    """What was varied: `connections` or `rate`."""
    lower: int | None
    """The highest load that met every limit."""
    upper: int | None
    """The lowest load that did not."""
    held_s: float
    """How long the confirming trials at `lower` lasted, in seconds."""
    precision: float | None
    """Relative distance of loads that the confirming trials tell apart; null where few lay near the
    limit."""
    finished: bool
    """Whether the bounds came as near as they were asked to."""
    limit: str
    """The limits in one line."""
    limited_by: LimitedBy | None
    """Who stopped the rise."""
    first_break: str | None
    """What broke first, in words."""
    causes: Sequence[str]
    """What the server was short of, for scripts."""
    answer: Sequence[str]
    """In a sentence, as a run's answer has up to three."""
    generator_ceiling_per_s: float | None
    """What the generator gets from a null server."""
    valid: bool
    """Whether the server was the limit and every search has ended."""
    trials: int
    """Trials measured."""
    searches: Sequence[SearchSummary]
    """Each search."""
    lowers: Sequence[int]
    """The lower bound of each search."""
    spread: float | None
    """Of the lower bounds, over their median."""
    command: str
    """Makes the same run again."""
    warnings: Sequence[WarningRecord]
    """Reasons to mistrust it."""
