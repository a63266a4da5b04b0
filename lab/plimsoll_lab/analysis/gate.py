"""The gate of a run: whether a contender is worse than the baseline by more than the tolerance, and
why it ends so.

- failed: the baseline or a contender failed, or never started.
- worse: a lower bound of a loss is beyond the tolerance, or a contender reaches a limit where the
  baseline does not, or misses one of the suite's.
- undecided: no loss is shown, and not every upper bound is below the tolerance; or results are
  missing, doubtful, or may not be compared; or a contender reached a limit or failed in some trials
  of a point only; or it cannot be told whether it meets a limit of the suite's.
- pass: every upper bound is below the tolerance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.searches import capacity_family
from plimsoll_lab.stats.best import FigureComparison, ends
from plimsoll_lab.stats.gate import BaselineComparison, Loss, decide_gate, losses
from plimsoll_lab.stats.reasons import counted, percent, usual_reason
from plimsoll_lab.stats.resampling import LEAST_BLOCKS
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import GateOutcome, GateRecord, LossRecord, PointSummary
from plimsoll_lab.suite.figures import CAPACITY

SEVERITY: tuple[GateOutcome, ...] = ("pass", "undecided", "worse", "failed")
"""Of several findings the last one here is the gate's."""


def judge_gate(
    run: RunRecord, family: Sequence[FigureComparison], points: Sequence[PointSummary], trials: Sequence[TrialRecord]
) -> GateRecord | None:
    """The gate's outcome with its evidence; None of a run without a baseline."""
    baseline, tolerance, compare = run.family.baseline, run.family.tolerance, run.family.compare
    if baseline is None or compare is None:
        return None
    if run.search is not None:
        # One that carries not even the lowest load has lost what the baseline carries beyond that.
        family = capacity_family(run, compare, with_none=True)
    # A suite names it by its value.
    named = {formatting.value(point.point[compare]): formatting.contender(point.point, compare) for point in points}
    baseline = named.get(baseline, baseline)
    found = losses(_comparisons(family, baseline), np.random.default_rng([run.seed, 5]))
    # The points of a search are the loads that it tried, some of them too much on purpose.
    ended = _searches(run, compare) if run.search is not None else _points(points, compare, baseline)
    reasons = [
        *_unfinished(run, trials),
        *ended,
        *(() if run.search is not None else _transient(points, trials, compare)),
        *_doubts(points, compare),
        *_zeros(run, family),
        *_obstacles(run, family),
    ]
    limits, shown = _limits(points, compare, baseline), decide_gate(found, tolerance)
    every = [*reasons, *limits]
    outcome = max([shown, *(outcome for outcome, _ in every)], key=SEVERITY.index)
    told = [text for severity, text in every if severity == outcome]
    if not told or outcome == shown == "worse":
        told = [*_words(run, found, outcome, tolerance), *told]
    # A limit may be missed without a loss.
    is_loss = shown == "worse" or any(severity == "worse" for severity, _ in reasons)
    verdict = VERDICTS[outcome] if outcome != "worse" or is_loss else LIMIT_MISSED
    sentences = _sentences(verdict, told)
    return GateRecord(
        baseline=baseline,
        tolerance=tolerance,
        outcome=outcome,
        losses=[_loss_record(each, tolerance) for each in found],
        reasons=[text for _, text in every],
        sentences=sentences,
        text=" ".join(sentences),
    )


def _sentences(verdict: str, told: Sequence[str]) -> list[str]:
    """The verdict, and the reasons in a sentence each; of many the first one, and how many more
    there are.
    """
    if len(told) > MOST_TOLD:
        told = [told[0], f"{len(told) - 1} more reasons are on the page"]
    return [f"{each.rstrip('.')}." for each in (verdict, *told)]


MOST_TOLD = 2
"""Reasons in a gate's answer, which has three sentences; the page and the files have all."""
MOST_PLACES = 3
"""Settings that a reason names, of many."""


VERDICTS: dict[GateOutcome, str] = {
    "pass": "The gate passes",
    "worse": "The gate finds a loss",
    "undecided": "The gate is undecided",
    "failed": "The gate failed",
}
LIMIT_MISSED = "The gate finds a limit that is missed"
"""In place of a loss."""


def _comparisons(family: Sequence[FigureComparison], baseline: str) -> list[BaselineComparison]:
    found = []
    for compared in family:
        zero = compared.contenders if compared.obstacle is not None else _with_zero(compared)
        kept = compared.contenders.keys() - set(zero)
        names = [name for name in (*compared.contenders, *compared.absent) if name != baseline]
        found += [
            BaselineComparison(
                figure=compared.figure,
                better=compared.better,
                at=compared.at,
                contender=name,
                baseline=compared.values_of(baseline, name) if baseline in kept else {},
                values=compared.values_of(name, baseline) if name in kept else {},
            )
            for name in names
        ]
    return found


def _unfinished(run: RunRecord, trials: Sequence[TrialRecord]) -> list[tuple[GateOutcome, str]]:
    """A gate that was ended early does not pass: it may have been ended at a lucky block."""
    if len(trials) >= len(run.trials):
        return []
    return [("undecided", f"{len(trials)} of {len(run.trials)} trials were measured")]


def _zeros(run: RunRecord, family: Sequence[FigureComparison]) -> list[tuple[GateOutcome, str]]:
    """Comparisons that cannot be made. The blocks without a zero do not represent the others."""
    return [
        ("undecided", f"{_what(name, compared.figure, compared.at, run)} was zero, which has no ratio to another value")
        for compared in family
        for name in _with_zero(compared)
    ]


def _obstacles(run: RunRecord, family: Sequence[FigureComparison]) -> list[tuple[GateOutcome, str]]:
    """Comparisons whose contenders may not be compared, as in the verdicts."""
    return [
        ("undecided", f"{run.figure(each.figure).label}{_where(each.at)} is not compared: {each.obstacle}")
        for each in family
        if each.obstacle is not None
    ]


def _searches(run: RunRecord, compare: str) -> list[tuple[GateOutcome, str]]:
    """The outcomes of searches that failed, were not finished, or found no load that passes."""
    found: list[tuple[GateOutcome, str]] = []
    for each in run.searches:
        name = formatting.contender(each.setting, compare)
        place = _where({path: value for path, value in each.setting.items() if path != compare})
        if each.state == "failed":
            found.append(("failed", f"{name} failed{place}: {str(each.reason).rstrip('.')}"))
        elif each.state != "complete":
            found.append(("undecided", f"{name}: search {each.block} was not finished{place}"))
        elif each.lower is None:
            found.append(("undecided", f"{name}: search {each.block} found no load that is carried{place}"))
    return list(dict.fromkeys(found))


def _with_zero(compared: FigureComparison) -> list[str]:
    """The contenders that had a value of zero, or below. A capacity that begins at 0 is below the
    lowest load, and not zero.
    """
    if compared.figure == CAPACITY:
        return []
    # What is bounded from above alone may be above zero.
    of_all = compared.contenders.items()
    return [name for name, values in of_all if any(ends(each)[1] <= 0 for each in values.values())]


def _points(points: Sequence[PointSummary], compare: str, baseline: str) -> list[tuple[GateOutcome, str]]:
    """What points without a result mean, each cause once with the points that it names."""
    places: dict[tuple[GateOutcome, Outcome | None, str | None], dict[str, list[str]]] = {}
    for point in points:
        if point.outcome == "ok":
            continue
        name = formatting.contender(point.point, compare)
        place = formatting.setting({path: value for path, value in point.point.items() if path != compare})
        some = formatting.in_part(point).strip()
        place += f" ({some})" if some else ""
        if point.outcome == "failed" or (point.outcome == "hard_limit" and name == baseline):
            outcome: GateOutcome = "failed"
        else:
            outcome = "worse" if point.outcome == "hard_limit" else "undecided"
        places.setdefault((outcome, point.outcome, point.reason), {}).setdefault(name, []).append(place)
    return [
        (outcome, f"{_at_places(names, *ENDED.get(each, NO_RESULT))}: {str(reason).rstrip('.')}")
        for (outcome, each, reason), names in places.items()
    ]


ENDED: Mapping[str | None, tuple[str, str]] = {
    "failed": ("failed", "failed"),
    "hard_limit": ("reached a limit", "reached a limit"),
}
"""What one contender, and what several did, by the outcome of their points."""
NO_RESULT = ("has no result", "have no result")


def _at_places(names: Mapping[str, Sequence[str]], one: str, several: str) -> str:
    """`base failed at 1 connection and 8 connections, new failed at 8 connections`."""
    alike = {tuple(each) for each in names.values()}
    if len(alike) == 1:
        verb = one if len(names) == 1 else several
        return f"{formatting.listed(list(names))} {verb} at {_listed_places(next(iter(alike)))}"
    return ", ".join(f"{name} {one} at {_listed_places(each)}" for name, each in names.items())


def _listed_places(places: Sequence[str]) -> str:
    if len(places) <= MOST_PLACES:
        return formatting.listed(places)
    return f"{places[0]} and {len(places) - 1} other settings"


def _transient(
    points: Sequence[PointSummary], trials: Sequence[TrialRecord], compare: str
) -> list[tuple[GateOutcome, str]]:
    """Limits and failures in some trials of a point that has results all the same."""
    found: list[tuple[GateOutcome, str]] = []
    for point in (each for each in points if each.outcome == "ok"):
        mine = [trial for trial in trials if trial.point == point.number]
        counts = Counter(trial.outcome for trial in mine if trial.outcome in {"hard_limit", "failed"})
        for outcome, count in counts.items():
            name = formatting.contender(point.point, compare)
            reason = usual_reason([trial.reason for trial in mine if trial.outcome == outcome])
            found.append(("undecided", f"{name}: {count} of {len(mine)} trials ended so: {reason}"))
    return found


def _limits(points: Sequence[PointSummary], compare: str, baseline: str) -> list[tuple[GateOutcome, str]]:
    """Limits of the suite that a contender misses, or that its trials do not decide."""
    found: list[tuple[GateOutcome, str]] = []
    for point in points:
        name = formatting.contender(point.point, compare)
        place = _where({path: value for path, value in point.point.items() if path != compare})
        for limit in point.limits if name != baseline else ():
            if limit.met is False:
                found.append(("worse", f"{name} misses the limit {limit.limit}{place}"))
            elif limit.met is None:
                found.append(("undecided", f"whether {name} meets the limit {limit.limit}{place} cannot be told"))
    return found


def _doubts(points: Sequence[PointSummary], compare: str) -> list[tuple[GateOutcome, str]]:
    """Contenders whose figures are doubtful: their network is not the one that was asked for."""
    names = dict.fromkeys(formatting.contender(point.point, compare) for point in points if point.doubtful)
    return [("undecided", f"figures of {formatting.listed(list(names))} are doubtful")] if names else []


def _loss_record(found: Loss, tolerance: float) -> LossRecord:
    return LossRecord.model_validate(
        {
            "figure": found.comparison.figure,
            "at": found.comparison.at,
            "contender": found.comparison.contender,
            "blocks": found.blocks,
            "loss": found.estimate,
            "at_least": found.at_least,
            "at_most": found.at_most,
            "outcome": decide_gate([found], tolerance),
        }
    )


def _words(run: RunRecord, found: Sequence[Loss], outcome: GateOutcome, tolerance: float) -> list[str]:
    """The evidence: what is shown to be worse; else what keeps the gate from passing; else how
    small every loss is.
    """
    if outcome == "worse":
        shown = [each for each in found if each.at_least is not None and each.at_least > tolerance]
        return [
            f"{_of_loss(each, run)} is at least {percent(formatting.part_at_least(each.at_least or 0.0))} worse"
            f"{_estimate(each)}"
            for each in shown
        ]
    if outcome == "undecided":
        opened = [_open(each, run) for each in found if each.at_most is None or each.at_most >= tolerance]
        return opened or ["there is nothing to compare with the baseline"]
    largest = max(found, key=lambda each: each.at_most or 0.0)
    most = formatting.part_at_most(max(largest.at_most or 0.0, 0.0))
    others = ", and no other comparison shows more" if len(found) > 1 else ""
    return [f"{_of_loss(largest, run)} is at most {percent(most)} worse{others}"]


def _estimate(each: Loss) -> str:
    return "" if each.estimate is None else f" (estimate {percent(each.estimate)})"


def _open(each: Loss, run: RunRecord) -> str:
    if each.at_least is None and each.at_most is None and each.blocks < LEAST_BLOCKS:
        return f"{_of_loss(each, run)} has {counted(each.blocks, 'block')} with both, which is too few"
    if (each.at_least is None or each.at_most is None) and each.comparison.figure == CAPACITY:
        return f"{_of_loss(each, run)} is bounded on one side alone by some of its searches"
    if each.at_least is None or each.at_most is None:
        told = [*each.comparison.baseline.values(), *each.comparison.values.values()]
        from_above = any(ends(value)[0] <= 0 for value in told)
        bound, why = (
            ("an upper", "the generator was late or others had the CPUs")
            if from_above
            else ("a lower", "the generator was the limit")
        )
        return f"{_of_loss(each, run)} has only {bound} bound in some blocks, where {why}"
    low, high = formatting.part_at_least(each.at_least), formatting.part_at_most(each.at_most)
    if each.at_least > 0:
        return f"{_of_loss(each, run)} is worse, by {percent(low)} to {percent(high)}; by how much cannot be told"
    return f"{_of_loss(each, run)} changes by {percent(abs(low))} better to {percent(high)} worse"


def _of_loss(each: Loss, run: RunRecord) -> str:
    return _what(each.comparison.contender, each.comparison.figure, each.comparison.at, run)


def _what(contender: str, figure: str, at: Mapping[str, object], run: RunRecord) -> str:
    return f"{contender}'s {run.figure(figure).label}{_where(at)}"


def _where(at: Mapping[str, object]) -> str:
    return f" at {formatting.setting(at)}" if at else ""
