"""Verdicts, gates, limits and claims that rest on the trials that were made again: what they would
be without.

A trial is repeated for causes of the machine alone, but a cause may strike one contender more than
another. So the first measurement of each trial is judged too, and a difference is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.verdict import Verdict
from plimsoll_lab.store.records import ResultWarning, TrialRecord
from plimsoll_lab.store.summary_record import ClaimRecord, GateRecord, PointSummary

NOT_JUDGED = "not judged"
CODE = "repeats_decide"
MET: Mapping[bool | None, str] = {True: "met", False: "missed", None: "cannot be told"}
"""Of a limit, in words."""
REMEDY = "more repetitions, or a quieter machine, on which no trial has to be made again"


def as_first_measured(trial: TrialRecord) -> TrialRecord:
    """A trial as its first attempt left it."""
    if not trial.attempts:
        return trial
    first = trial.attempts[0]
    return replace(
        trial,
        outcome=first.outcome,
        reason=first.reason,
        figures=first.figures,
        warnings=first.warnings,
        cut=first.cut,
        late_figures=first.late_figures,
        taken=first.taken,
        attempts=(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """What a run comes to, by all of its trials or by the first measurement of each."""

    verdicts: Sequence[Verdict] = ()
    """In the order of the family."""
    gate: GateRecord | None = None
    """Of a run that is a gate."""
    points: Sequence[PointSummary] = ()
    """With their limits."""
    claims: Sequence[ClaimRecord] = ()
    """In the order of the suite."""


Judge = Callable[[Sequence[TrialRecord]], Outcomes]
"""The outcomes of a run, from its trials."""


def repeats_that_decide(trials: Sequence[TrialRecord], now: Outcomes, judge: Judge) -> list[ResultWarning]:
    """Warnings of what the first measurements alone would not say, one a kind."""
    repeated = sum(bool(trial.attempts) for trial in trials)
    if not repeated:
        return []
    without = judge([as_first_measured(trial) for trial in trials])
    limits, first_limits = _limits(now.points), _limits(without.points)
    every = dict.fromkeys((*limits, *first_limits))
    kinds: dict[str, list[tuple[str, str, str]]] = {
        f"{len(now.verdicts)} verdicts": [
            (f"{one.figure} at {formatting.setting(one.at)}", _said(one), _said(other))
            for one, other in zip(now.verdicts, without.verdicts, strict=True)
            if (one.call, set(one.best)) != (other.call, set(other.best))
        ],
        f"{len(every)} limits": [
            # A point that has no result, without the repeats or with them, has no judged limit.
            (f"'{limit}' at {place}", limits.get((place, limit), NOT_JUDGED), first)
            for place, limit in every
            if (first := first_limits.get((place, limit), NOT_JUDGED)) != limits.get((place, limit), NOT_JUDGED)
        ],
        f"{len(now.claims)} claims": [
            (f"'{one.name}'", one.outcome, other.outcome)
            for one, other in zip(now.claims, without.claims, strict=True)
            if one.outcome != other.outcome
        ],
    }
    changed = [
        f"{len(differing)} of {kind}: {'; '.join(_with_and_without(*each) for each in differing)}"
        for kind, differing in kinds.items()
        if differing
    ]
    if now.gate is not None and without.gate is not None and now.gate.outcome != without.gate.outcome:
        changed.append(_with_and_without("the gate", now.gate.outcome, without.gate.outcome))
    several = f"{repeated} trials that were made again change"
    made_again = "1 trial that was made again changes" if repeated == 1 else several
    return [ResultWarning(code=CODE, message=f"{made_again} {each}", remedy=REMEDY) for each in changed]


def _with_and_without(what: str, now: str, first: str) -> str:
    return f"{what}: {now} with them, {first} without"


def _limits(points: Sequence[PointSummary]) -> dict[tuple[str, str], str]:
    """Whether each limit is met, by its point and its words."""
    return {(formatting.setting(point.point), each.limit): MET[each.met] for point in points for each in point.limits}


def _said(verdict: Verdict) -> str:
    return f"{verdict.call} ({', '.join(verdict.best) or 'nobody'} best)"
