"""What a plan would bring, before anything runs: the one line of `lab plan --json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from plimsoll_lab.store.form import Record
from plimsoll_lab.store.records import WarningRecord
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import PlannedTrial, SearchSettings


class PlannedPoint(Record):
    """One point of the matrix."""

    number: int
    """By which trials name it."""
    point: Settings
    """Its settings."""


class Detectable(Record):
    """The difference that a plan shows in four of five runs."""

    noise: float
    """The relative standard deviation between blocks that is supposed."""
    difference: float | None
    """A ratio minus 1; null where the plan can show none."""


class PlannedFamily(Record):
    """The comparisons that a plan makes."""

    compare: str | None
    """The axis whose values compete."""
    figures: Sequence[str]
    """The figures on which they compete."""
    comparisons: int
    """How many there are."""
    repetitions_needed: int | None
    """With fewer no difference can be shown; null where nothing is compared."""
    detectable: Detectable | None
    """What can be shown; null where nothing is compared."""


class PlanSummary(Record):
    """What a plan would bring."""

    event: Literal["plan"] = "plan"
    """What this line is."""
    suite: str
    """The suite's name."""
    question: str
    """What it asks."""
    seed: int
    """The seed that the order was drawn from."""
    search: SearchSettings | None
    """What is searched for; null in a run of trials alone."""
    repeat: int
    """Repetitions of each point."""
    predicted_s: float
    """About how long it takes, in seconds."""
    points: Sequence[PlannedPoint]
    """Every point."""
    trials: Sequence[PlannedTrial]
    """Every trial or search, in order."""
    family: PlannedFamily
    """The comparisons."""
    warnings: Sequence[WarningRecord]
    """What the plan cannot show, and what the machine lacks for it."""
