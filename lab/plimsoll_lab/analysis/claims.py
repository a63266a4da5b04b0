"""What documents claim, beside what a run found.

A claim is *confirmed* where the whole interval of what was measured lies in the claimed range,
*contradicted* where it lies wholly outside, and *cannot be told* where it does neither. Where one
of its points has no result it is *not reachable here*, with what stopped it. A figure itself, such
as a time, belongs to its hardware: inside the range it is *other hardware*, never confirmed. Where
the server itself was the limit, what it held at once is the result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from plimsoll_lab.analysis.family import OF_CONNECTIONS, SERVERS_OWN, value_of
from plimsoll_lab.stats.best import Value
from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import ClaimOutcome, ClaimRecord, PointSummary, ReferenceRecord
from plimsoll_lab.suite.claims import settings_of
from plimsoll_lab.suite.documents import Claim
from plimsoll_lab.suite.settings import Settings

CONFIRMED: ClaimOutcome = "confirmed"
CONTRADICTED: ClaimOutcome = "contradicted"
UNTOLD: ClaimOutcome = "cannot be told"
UNREACHED: ClaimOutcome = "not reachable here"
ELSEWHERE: ClaimOutcome = "other hardware"

Series = Mapping[int, float]
"""A figure by block."""

ONCE = "one repetition has no interval"
HELD = "server.peak_connections"
"""The one figure that a server's own limit decides, so that it counts where the limit was met."""


def judge_claims(run: RunRecord, points: Sequence[PointSummary], trials: Sequence[TrialRecord]) -> list[ClaimRecord]:
    """Every claim of a run's suite, with its outcome."""
    return [_judge(claim, points, trials) for claim in run.claims]


def hold_references(
    run: RunRecord, points: Sequence[PointSummary], trials: Sequence[TrialRecord]
) -> list[ReferenceRecord]:
    """Each figure of a document beside ours at that point, and ours as a multiple of theirs."""
    found = []
    for reference in run.references:
        here = _matching(points, reference.at)
        values = {} if _unreached(here, reference.figure) else _series(here[0], trials, reference.figure)
        ours = summarise(list(values.values())).mean if values else None
        ratio = ours / reference.value if ours is not None and reference.value else None
        found.append(ReferenceRecord(**asdict(reference), ours=ours, ratio=ratio))
    return found


def decide_claim(interval: tuple[float, float] | None, least: float, most: float, *, portable: bool) -> ClaimOutcome:
    """The outcome of a claim whose points all have results."""
    if interval is None:
        return UNTOLD
    # Ranges begin at zero. Student's interval may reach below, and a growth may lie there.
    low, high = max(0.0, interval[0]), max(0.0, interval[1])
    if high < least or low > most:
        return CONTRADICTED
    if low < least or high > most:
        return UNTOLD
    return CONFIRMED if portable else ELSEWHERE


def _judge(claim: Claim, points: Sequence[PointSummary], trials: Sequence[TrialRecord]) -> ClaimRecord:
    series = []
    for place in settings_of(claim):
        here = _matching(points, place)
        why = _unreached(here, claim.figure)
        values = {} if why else _series(here[0], trials, claim.figure)
        if not values:
            return _answer(claim, UNREACHED, None, None, why or "no trial of this point has the figure")
        series.append(values)
    value, interval, none = _value(series)
    most = math.inf if claim.most is None else claim.most
    outcome = decide_claim(interval, claim.least, most, portable=claim.portable)
    reasons = {
        CONFIRMED: "the whole interval lies in the claimed range",
        CONTRADICTED: "the whole interval lies outside the claimed range",
        ELSEWHERE: "it lies in the claimed range, and such a figure belongs to its hardware",
        UNTOLD: none or "the interval reaches beyond the claimed range",
    }
    return _answer(claim, outcome, value, interval, reasons[outcome])


def _value(series: Sequence[Series]) -> tuple[float | None, tuple[float, float] | None, str | None]:
    """The figure, or the ratio or ratio of ratios, with its interval of 95 % (Student's t; of
    ratios, over logarithms), and why it has no interval, where it has none.

    Blocks pair what is compared, so what disturbs a whole block cancels out. No block is left out
    for a value of zero: the others would not stand for it.
    """
    if len(series) == 1:
        summary = summarise(list(series[0].values()))
        return summary.mean, summary.mean_ci95, None if summary.mean_ci95 else ONCE
    common = sorted(set.intersection(*(set(each) for each in series)))
    if not common:
        return None, None, "no block has a result of every point"
    if any(each[block] <= 0 for each in series for block in common):
        return None, None, "a value of zero has no ratio to another"
    signs = (1, -1, -1, 1)
    logs = [sum(sign * math.log(each[block]) for sign, each in zip(signs, series, strict=False)) for block in common]
    summary = summarise(logs)
    interval = summary.mean_ci95
    if interval is None:
        return math.exp(summary.mean), None, ONCE
    return math.exp(summary.mean), (math.exp(interval[0]), math.exp(interval[1])), None


def _matching(points: Sequence[PointSummary], place: Settings) -> list[PointSummary]:
    return [point for point in points if all(point.point.get(path) == value for path, value in place.items())]


def _unreached(here: Sequence[PointSummary], figure: str) -> str | None:
    if not here:
        return "no such point was measured in this run"
    if len(here) > 1:
        return f"{len(here)} points of this run agree with it; the claim has to name one"
    if here[0].outcome not in _decisive(figure):
        return f"{(here[0].outcome or 'not measured').replace('_', ' ')}: {here[0].reason}"
    return None


def _decisive(figure: str) -> frozenset[Outcome | None]:
    """The outcomes of points that tell a figure."""
    also: set[Outcome] = {"hard_limit"} if figure == HELD else set()
    if figure in {*SERVERS_OWN, *OF_CONNECTIONS}:
        also.add("generator_limited")
    return frozenset({"ok", *also})


def _series(point: PointSummary, trials: Sequence[TrialRecord], figure: str) -> Series:
    """The figure by block, of the trials that tell it; a mere bound tells no claim anything."""
    told = {trial.block: _told(trial, figure) for trial in trials if trial.point == point.number}
    return {block: value for block, value in told.items() if value is not None and not isinstance(value, tuple)}


def _told(trial: TrialRecord, figure: str) -> Value | None:
    if trial.outcome == "hard_limit" and figure == HELD:
        return trial.figures.get(figure)
    return value_of(trial, figure)


def _answer(
    claim: Claim, outcome: ClaimOutcome, value: float | None, interval: tuple[float, float] | None, reason: str
) -> ClaimRecord:
    return ClaimRecord(
        name=claim.name,
        source=claim.source,
        figure=claim.figure,
        at=claim.at,
        over=claim.over,
        against=claim.against,
        expect=claim.expect,
        free=claim.free,
        outcome=outcome,
        value=value,
        interval=interval,
        reason=reason,
    )
