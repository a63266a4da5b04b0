"""What a run amounts to: the last line of `lab run --json`, and the source of the other outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from plimsoll_lab.stats.results import Call, Control, Knee, Score
from plimsoll_lab.stats.summary import Interval, Summary
from plimsoll_lab.store.form import Record
from plimsoll_lab.store.network_record import PathRecord
from plimsoll_lab.store.records import SCHEMA_VERSION, Outcome, WarningRecord
from plimsoll_lab.store.search_record import LimitedBy
from plimsoll_lab.suite.documents import Reference
from plimsoll_lab.suite.settings import Settings

ClaimOutcome = Literal["confirmed", "contradicted", "cannot be told", "not reachable here", "other hardware"]
GateOutcome = Literal["pass", "undecided", "worse", "failed"]
Better = Literal["higher", "lower"]
ScoreRecord = Score
"""One cell of the matrix of contenders and figures."""
ControlRecord = Control
"""One contender measured twice in the same blocks."""


class TrialsSummary(Record):
    """How many trials there are."""

    planned: int
    """To be made."""
    measured: int
    """On disk."""
    valid: int
    """With a result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureSummary(Summary):
    """A figure at a point, over its trials."""

    cv: float | None
    """Standard deviation over mean."""


class LimitSummary(Record):
    """A limit at a point."""

    point: Settings
    """Where."""
    limit: str
    """As it was written."""
    figure: str
    """The name of its figure."""
    median: float | None
    """The figure's median there."""
    median_ci95: tuple[float | None, float | None]
    """The median's interval; a trial that does not tell the figure may have any value, and null is
    an end that is not known. For `==` and `!=`, the least value and the greatest."""
    met: bool | None
    """Whether the whole interval meets it, or of `==` and `!=` every trial; false where none of the
    interval does, or a trial does not; null where it cannot be told."""


class PointSummary(Record):
    """A point, over its trials."""

    point: Settings
    """Its settings."""
    number: int
    """By which trials name it."""
    n: int
    """Trials measured."""
    valid_n: int
    """Trials with a result."""
    outcome: Outcome | None
    """What its trials say; null where there are none."""
    outcomes: Mapping[Outcome, int] = {}
    """How many trials ended how."""
    reason: str | None
    """In words, where it is not `ok`."""
    figures: Mapping[str, FigureSummary]
    """By name; the name has the unit."""
    doubtful: bool = False
    """Whether a path of the network is not what was asked for, or a limit's figure lies in time
    that the emulator disturbed; over a network stated in one line, also whether the figures are of
    trials that are no results."""
    limits: Sequence[LimitSummary]
    """Each limit that is judged there."""


class OtherRecord(Record):
    """How many times worse than the best a contender is; 1 or more whichever way is better."""

    name: str
    """The contender."""
    ratio: float
    """The estimate."""
    at_least: float
    """The lower end of `ci`, never below 1."""
    ci: tuple[float, float | None]
    """Simultaneous over all verdicts; null where there is no upper bound."""

    @property
    def at_most(self) -> float | None:
        """The upper end of `ci`; None where there is no bound."""
        return self.ci[1]


class VerdictRecord(Record):
    """Who is best in one figure at one setting."""

    figure: str
    """The figure's name."""
    better: Better
    """Which way is better."""
    at: Settings
    """The setting of the other axes."""
    contenders: Sequence[str]
    """Who was compared, the best estimate first."""
    winner: str | None
    """The best by estimate."""
    runner_up: str | None
    """The next."""
    ratio: float | None
    """Winner over runner-up."""
    ratio_ci95: Interval | None
    """Its interval, simultaneous over the family."""
    p_adjusted: float | None
    """Over the whole family."""
    noise_floor: float | None
    """How far the A/A control lies from itself: a ratio minus 1."""
    blocks: int
    """Blocks in which both were measured."""
    call: Call
    """What was shown of winner and runner-up."""
    level: Sequence[str]
    """Contenders that are equivalent to the winner."""
    reason: str
    """Why, in words."""
    best: Sequence[str]
    """Contenders that cannot be distinguished from the best."""
    best_within: float | None
    """How many times worse than the best any of these may be."""
    others: Sequence[OtherRecord]
    """How many times worse than the best every other contender is; simultaneous over all
    verdicts."""
    unranked: Mapping[str, str]
    """Contenders with results that could not be compared, and why."""


class StopRecord(Record):
    """Where a contender stopped, by its own limit or its own failure."""

    contender: str
    """Who; empty where nothing competes."""
    at: Settings
    """Where."""
    outcome: Outcome
    """How."""
    reason: str | None
    """In words."""
    held: int | None
    """The most connections that a server at its limit held."""
    trials: tuple[int, int] | None = None
    """In how many trials there, and of how many; null where it stopped there as a whole."""


class CapacityRecord(Record):
    """The capacity at a point of the matrix, over its repeated searches."""

    point: Settings
    """Where."""
    searches: int
    """How many there are to be."""
    ended: int
    """How many have ended."""
    failed: bool
    """Whether the server did not start, listen or answer."""
    finished: bool
    """Whether every one came as near as it was asked to."""
    lower: int | None
    """The highest load that met every limit."""
    upper: int | None
    """The lowest load that did not."""
    lowers: Sequence[int]
    """Of each search."""
    uppers: Sequence[int]
    """Of each search."""
    spread: float | None
    """Of the lower bounds, over their median."""
    held_s: float
    """How long the confirming trials at `lower` lasted, in seconds."""
    precision: float | None
    """Relative distance of loads that the confirming trials tell apart; null where few lay near the
    limit."""
    limited_by: LimitedBy | None
    """Who stopped the rise."""
    first_break: str | None
    """What broke first, in words."""
    causes: Sequence[str]
    """What the server was short of, for scripts."""
    generator_ceiling_per_s: float | None
    """What the generator gets from a null server."""
    text: str
    """The answer in a sentence."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KneeRecord(Knee):
    """Where a closed-loop curve over connections bends."""

    point: Settings
    """The setting of the other axes."""
    text: str
    """In a sentence."""


class DiscardedRecord(Record):
    """A measurement that was discarded."""

    outcome: Outcome
    """Why."""
    reason: str | None
    """In words."""


class LeftOutRecord(Record):
    """A trial without a result, or one that was measured again."""

    trial: int
    """Its number."""
    point: Settings
    """Where."""
    outcome: Outcome
    """Of the last attempt."""
    reason: str | None
    """In words."""
    discarded: Sequence[DiscardedRecord]
    """Earlier attempts."""


class NetworkPathRecord(PathRecord):
    """A path of an emulated network as last measured."""

    setting: Settings
    """What the points of this network have in common of its own settings."""
    backend: str
    """What emulates it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReferenceRecord(Reference):
    """A figure of a document beside ours."""

    ours: float | None
    """Our mean at that point; null without a result."""
    ratio: float | None
    """Ours over theirs."""
    reason: str | None = None
    """Why there is none of ours, or why it is doubtful."""


class ClaimRecord(Record):
    """A conclusion of a document, with its outcome."""

    name: str
    """What is claimed, in our words."""
    source: str
    """Where the document says so."""
    figure: str
    """The figure it is about."""
    at: Settings
    """The point."""
    over: Settings | None
    """The point it is divided by; without it, the figure itself is claimed."""
    against: Sequence[Settings] | None
    """Two points whose ratio that ratio is divided by."""
    difference: bool = False
    """Whether these divisions are subtractions."""
    expect: str
    """The claimed range as it was written."""
    free: str
    """Parameters that the document leaves open, and what was chosen."""
    outcome: ClaimOutcome
    """What the run says about it."""
    value: float | None
    """The figure, the ratio or the difference; null where there is none."""
    interval: Interval | None
    """Its interval of 95 %; null of one block, and where one end is open."""
    reason: str
    """Why it ends so."""


class LossRecord(Record):
    """How much worse than the baseline a contender is, as a part of the baseline's figure; below 0
    where it is better.
    """

    figure: str
    """The figure's name."""
    at: Settings
    """The setting of the other axes."""
    contender: str
    """Who is compared with the baseline."""
    blocks: int
    """Blocks in which both were measured."""
    loss: float | None
    """The estimate; null where no block has both, or a block leaves an end of either open."""
    at_least: float | None
    """The lower bound; null where too few blocks have both, or nothing bounds the loss below in
    one."""
    at_most: float | None
    """The upper bound; null where too few blocks have both, or nothing bounds the loss above in
    one."""
    outcome: GateOutcome
    """What it means for the gate."""


class GateRecord(Record):
    """Whether a contender is worse than the baseline beyond the tolerance."""

    baseline: str
    """The contender that every other one is compared with."""
    tolerance: float
    """The loss that is tolerated."""
    outcome: GateOutcome
    """How the gate ends."""
    losses: Sequence[LossRecord]
    """Every comparison."""
    reasons: Sequence[str]
    """What points without a result mean."""
    sentences: Sequence[str]
    """How it ends and why, in one to three sentences."""
    text: str
    """The same as one text."""


class RunSummary(Record):
    """What a run amounts to: the last line of `lab run --json`, and the source of the terminal, the
    page and the exports.
    """

    event: Literal["summary"] = "summary"
    """What this line is."""
    schema_version: Literal[1] = SCHEMA_VERSION
    """Of this record's form."""
    run: str
    """Its folder."""
    report: str
    """Its page."""
    suite: str
    """The suite's name."""
    question: str
    """What the suite asks."""
    status: Literal["complete", "interrupted"]
    """Whether every trial was measured."""
    valid: bool
    """Whether it is complete, and every point has a result of its own and no trial that failed
    beside it."""
    trials: TrialsSummary
    """Trials planned, measured and valid."""
    elapsed_s: float
    """How long all trials took."""
    command: str
    """Makes the same run again."""
    seed: int
    """Where its randomness came from."""
    points: Sequence[PointSummary]
    """Every point but the controls."""
    answer: Sequence[str]
    """One to three sentences."""
    capacities: Sequence[CapacityRecord]
    """Of a run that searches: one entry a point of the matrix, over its repeated searches."""
    gate: GateRecord | None
    """Whether a contender is worse than the baseline beyond the tolerance; null without a
    baseline."""
    verdicts: Sequence[VerdictRecord]
    """Who is best, in each figure at each setting."""
    controls: Sequence[ControlRecord]
    """A/A controls: one contender measured twice in the same blocks. It differs where a permutation
    test over blocks says so (Holm over all controls)."""
    scores: Sequence[ScoreRecord]
    """The matrix of contenders and figures; there is no composite."""
    knees: Sequence[KneeRecord]
    """Where each closed-loop curve over connections bends: the bound N* = Xmax (R0 + Z), and the
    Universal Scalability Law or why it was refused."""
    network: Sequence[NetworkPathRecord]
    """Each path of each emulated network; empty without one."""
    claims: Sequence[ClaimRecord]
    """Each claim with its outcome, the figure or ratio measured, its interval and the reason."""
    references: Sequence[ReferenceRecord]
    """Each figure of a document, ours at that point, and ours over theirs."""
    stops: Sequence[StopRecord]
    """Where contenders stopped."""
    limits_missed: Sequence[LimitSummary]
    """Every limit that was missed."""
    limits_undecided: Sequence[LimitSummary]
    """Every limit of which it cannot be told."""
    left_out: Sequence[LeftOutRecord]
    """Trials without a result, or measured again, with the reasons."""
    warnings: Sequence[WarningRecord]
    """Reasons to mistrust a result."""
