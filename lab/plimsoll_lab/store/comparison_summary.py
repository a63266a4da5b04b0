"""The answer of `lab compare --json`: stored runs beside stored runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from plimsoll_lab.stats.results import Difference
from plimsoll_lab.store.form import Record
from plimsoll_lab.store.records import SCHEMA_VERSION, Outcome, WarningRecord
from plimsoll_lab.store.summary_record import PointSummary
from plimsoll_lab.suite.settings import Settings


class LostPoint(Record):
    """A point that A's server completed and B's did not."""

    point: Settings
    """Where."""
    outcome: Outcome | None
    """How B ended there."""
    reason: str | None
    """In words."""


class ComparisonSummary(Record):
    """Stored runs of B beside stored runs of A: the answer of `lab compare --json`."""

    event: Literal["summary"] = "summary"
    """What this line is."""
    schema_version: Literal[1] = SCHEMA_VERSION
    """Of this record's form."""
    baseline: str
    """The first run of A."""
    baselines: Sequence[str]
    """Every run of A."""
    run: str
    """The first run of B."""
    runs: Sequence[str]
    """Every run of B."""
    report: str
    """The page of the first run of B."""
    comparable: bool
    """Whether the runs were made in environments that are alike."""
    not_comparable: Sequence[str]
    """Why they are not."""
    valid: bool
    """Whether every comparison could be made."""
    worse: bool
    """Whether B is shown to be worse in a figure, or lost a point."""
    lost: Sequence[LostPoint]
    """Points that A completed and B did not."""
    points: Sequence[PointSummary]
    """The points of the first run of B."""
    verdicts: Sequence[Difference]
    """Every figure at every point that all runs have."""
    warnings: Sequence[WarningRecord]
    """Reasons to mistrust it."""
