"""The one summary: from the records on disk to what every output says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from plimsoll_lab.analysis import formatting, network
from plimsoll_lab.analysis.answer import Evidence, answer
from plimsoll_lab.analysis.claims import compare_references, judge_claims
from plimsoll_lab.analysis.family import control_of, figure_comparisons, without
from plimsoll_lab.analysis.gate import judge_gate
from plimsoll_lab.analysis.hosts import host_warnings
from plimsoll_lab.analysis.imported import answer_imported
from plimsoll_lab.analysis.knees import check_settings, find_knees
from plimsoll_lab.analysis.left_out import left_out
from plimsoll_lab.analysis.points import STOPPED, summarise_point
from plimsoll_lab.analysis.repeats import Outcomes, repeats_that_decide
from plimsoll_lab.analysis.run_warnings import control_warnings, run_warnings, warnings_by_code, warnings_of_trials
from plimsoll_lab.analysis.searches import describe_searches, failed_below, searches_without_capacity
from plimsoll_lab.analysis.severity import graded
from plimsoll_lab.analysis.stopping import Stop, stops
from plimsoll_lab.stats.best import FigureComparison, Ranking
from plimsoll_lab.stats.control import control_verdicts
from plimsoll_lab.stats.reasons import usual_reason
from plimsoll_lab.stats.results import Score
from plimsoll_lab.stats.scores import score
from plimsoll_lab.stats.verdict import Verdict, rank, verdicts
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import (
    CapacityRecord,
    GateRecord,
    PointSummary,
    RunSummary,
    StopRecord,
    TrialsSummary,
    VerdictRecord,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Judged:
    """What the trials of a run say."""

    points: Sequence[PointSummary]
    stops: Sequence[Stop]
    family: Sequence[FigureComparison]
    rankings: Sequence[Ranking]
    verdicts: Sequence[Verdict]


def _judge(run: RunRecord, trials: Sequence[TrialRecord]) -> _Judged:
    by_point: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        by_point.setdefault(trial.point, []).append(trial)
    limits = run.limits if run.search is None else ()
    every = [
        summarise_point(
            point,
            by_point.get(point.number, []),
            limits,
            paths_off=bool(network.paths_off(run, point.number, trials)),
            is_searched=run.search is not None,
        )
        for point in run.points
    ]
    controls = {point.number for point in run.points if point.control}
    points = [point for point in every if point.number not in controls]
    family = figure_comparisons(run, points, by_point)
    alike = [point for point in every if point.number in controls]
    family = [replace(each, control=control_of(run, each, points, alike, by_point)) for each in family]
    rankings = rank(family, seed=run.seed)
    found = verdicts(rankings, margin=run.family.margin, seed=run.seed)
    stopped = stops(points, alike, trials)
    return _Judged(points=points, stops=stopped, family=family, rankings=rankings, verdicts=found)


def _outcomes(run: RunRecord, trials: Sequence[TrialRecord]) -> Outcomes:
    judged = _judge(run, trials)
    gate = judge_gate(run, judged.family, judged.points, trials)
    claims = judge_claims(run, judged.points, trials)
    return Outcomes(verdicts=judged.verdicts, gate=gate, points=judged.points, claims=claims)


def points_of(run: RunRecord, trials: Sequence[TrialRecord]) -> Sequence[PointSummary]:
    """Every point of a run but the controls, from some trials."""
    return _judge(run, trials).points


def summarise_run(folder: RunFolder) -> RunSummary:
    """Everything there is to say about a run. Raises `LabError` where a record is damaged."""
    run = folder.read_run()
    trials = folder.read_trials()
    check_settings(folder, run, trials)
    judged = _judge(run, trials)
    points, family = judged.points, judged.family
    margin = run.family.margin
    held = control_verdicts(family, seed=run.seed)
    answered = [verdict_record(verdict) for verdict in judged.verdicts]
    scores = _as_judged(score(judged.rankings, margin=margin), judged.verdicts)
    capacities = describe_searches(run)
    complete, valid = _completeness(run, trials, judged, capacities)
    fails_below = failed_below(run, trials, capacities)
    valid = valid and not fails_below
    # A search goes past every limit on purpose.
    stopped = searches_without_capacity(run, capacities) if capacities else _stops(run, judged)
    evidence = Evidence(
        verdicts=answered, scores=scores, points=points, figures=run.figures_by_name, stops=stopped, margin=margin
    )
    gate, claims = judge_gate(run, family, points, trials), judge_claims(run, points, trials)
    # A search makes its trials as it goes: it has no first measurements to judge apart.
    now = Outcomes(verdicts=judged.verdicts, gate=gate, points=points, claims=claims)
    again = repeats_that_decide(trials, now, lambda made: _outcomes(run, made)) if run.search is None else []
    seen = warnings_by_code(run, trials)
    return RunSummary(
        run=str(folder.path),
        report=str(folder.report),
        suite=run.suite.name,
        question=run.suite.question,
        status="complete" if complete else "interrupted",
        valid=valid,
        trials=TrialsSummary(
            planned=len(run.trials), measured=len(trials), valid=sum(trial.outcome == "ok" for trial in trials)
        ),
        elapsed_s=sum(trial.took_s for trial in trials),
        command=run.command,
        seed=run.seed,
        points=points,
        answer=_answer(run, evidence, gate, capacities),
        capacities=capacities,
        gate=gate,
        verdicts=answered,
        controls=held,
        scores=scores,
        knees=find_knees(run, trials),
        network=network.paths(run),
        claims=claims,
        references=compare_references(run, points, trials),
        stops=stopped,
        limits_missed=[limit for point in points for limit in point.limits if limit.met is False],
        limits_undecided=[limit for point in points for limit in point.limits if limit.met is None],
        left_out=[] if capacities else left_out(trials),
        warnings=graded(
            [
                *run_warnings(run, points, judged.stops, trials, len(answered), folder.path),
                *fails_below,
                *warnings_of_trials(seen, trials),
                *control_warnings(held),
                *again,
                *host_warnings(run),
            ],
            {code: len({trial.number for trial, _ in found}) for code, found in seen.items()},
        ),
    )


def _as_judged(scores: Sequence[Score], verdicts: Sequence[Verdict]) -> list[Score]:
    """The cells of those that cannot be distinguished from the best, as the verdicts have them:
    these know the noise of the control.
    """
    best = {(verdict.figure, repr(verdict.at)): verdict.best for verdict in verdicts}
    return [replace(each, best=each.contender in best[each.figure, repr(each.at)]) for each in scores]


def _completeness(
    run: RunRecord,
    trials: Sequence[TrialRecord],
    judged: _Judged,
    capacities: Sequence[CapacityRecord],
) -> tuple[bool, bool]:
    """Whether every trial was measured, and whether every point has a result of its own."""
    if capacities:
        complete = all(each.ended == each.searches for each in capacities)
        decided = all(each.lower is not None or each.upper is not None for each in capacities)
        decided = decided and not any(point.doubtful for point in judged.points)
        return complete, decided and all(each.finished and each.limited_by in {None, "server"} for each in capacities)
    points = judged.points
    outcomes = {point.outcome for point in points}
    complete = len(trials) == len(run.trials)
    valid = complete and not any(point.doubtful for point in points)
    valid = valid and outcomes <= {"ok", *STOPPED} and "ok" in outcomes
    # What is seen where others failed is no answer by itself.
    valid = valid and not any(stop.outcome == "failed" and not stop.as_a_whole for stop in judged.stops)
    return complete, valid and run.imported is None


def _answer(
    run: RunRecord, evidence: Evidence, gate: GateRecord | None, capacities: Sequence[CapacityRecord]
) -> Sequence[str]:
    """One to three sentences: of a gate, of imported files, of verdicts, or of capacities."""
    if gate is not None:
        # Where every point failed, the sentences of the gate have every cause.
        if all(point.outcome == "failed" for point in evidence.points):
            return gate.sentences
        return [*gate.sentences, *answer(evidence)[: SENTENCES_MOST - len(gate.sentences)]]
    if run.imported is not None:
        return answer_imported(run, evidence)
    compared = any(each.contenders or each.unranked for each in evidence.verdicts)
    # Where no server was the limit there are lower bounds alone, and nothing to compare.
    if not capacities or (compared and any(each.limited_by == "server" for each in capacities)):
        return answer(evidence)
    told = [each.text for each in capacities]
    more = len(told) - SENTENCES_MOST + 1
    return told if more <= 1 else [*told[:-more], f"{more} more settings are in the table of capacities."]


SENTENCES_MOST = 3
"""Of an answer."""


def verdict_record(verdict: Verdict) -> VerdictRecord:
    """A verdict as it is printed: a bound that does not exist is null."""
    others = [
        {
            "name": place.name,
            "ratio": place.ratio,
            "at_least": place.at_least,
            "ci": (place.at_least, place.at_most if math.isfinite(place.at_most) else None),
        }
        for place in verdict.others
    ]
    return VerdictRecord.model_validate(asdict(verdict) | {"others": others})


def _stops(run: RunRecord, judged: _Judged) -> list[StopRecord]:
    """Where each contender was seen to stop, by its own limit or its own failure, as a whole or in
    some trials. Of a point without a result for another reason that says nothing.
    """
    compare = run.family.compare
    return [
        StopRecord(
            contender=formatting.contender(stop.point.point, compare) if compare else "",
            at=without(stop.point.point, compare),
            outcome=stop.outcome,
            reason=usual_reason([trial.reason for trial in stop.trials]),
            held=_held(stop.trials),
            trials=None if stop.as_a_whole else (len(stop.trials), stop.of),
        )
        for stop in judged.stops
        if stop.point.outcome in {"ok", *STOPPED}
    ]


def _held(trials: Sequence[TrialRecord]) -> int | None:
    """The most connections that a server at its limit held, by its own count; None where it has
    none.
    """
    found = [
        (trial.server.get("summary") or {}).get("peak_connections") for trial in trials if trial.outcome == "hard_limit"
    ]
    return max((each for each in found if isinstance(each, int)), default=None)
