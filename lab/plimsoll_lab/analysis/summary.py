"""The one summary: from the records on disk to what every output says."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from plimsoll_lab.analysis import formatting, network
from plimsoll_lab.analysis.answer import Evidence, answer
from plimsoll_lab.analysis.claims import hold_references, judge_claims
from plimsoll_lab.analysis.family import control_of, questions_of, without
from plimsoll_lab.analysis.gate import judge_gate
from plimsoll_lab.analysis.hosts import host_warnings
from plimsoll_lab.analysis.imported import answer_imported
from plimsoll_lab.analysis.knees import find_knees
from plimsoll_lab.analysis.left_out import left_out
from plimsoll_lab.analysis.repeats import repeats_that_decide
from plimsoll_lab.analysis.searches import describe_searches
from plimsoll_lab.analysis.severity import graded
from plimsoll_lab.stats.best import LEAST_BLOCKS, Question, Ranking, can_say_anything
from plimsoll_lab.stats.control import control_verdicts
from plimsoll_lab.stats.results import Control
from plimsoll_lab.stats.scores import score
from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.stats.verdict import Verdict, rank, verdicts
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Doubt, Outcome, TrialRecord
from plimsoll_lab.store.run_record import PointRecord, RunRecord
from plimsoll_lab.store.summary_record import (
    FigureSummary,
    LimitSummary,
    PointSummary,
    RunSummary,
    StopRecord,
    TrialsSummary,
    VerdictRecord,
)
from plimsoll_lab.suite.conditions import EXACT, OPERATORS
from plimsoll_lab.suite.spec import Limit


@dataclass(frozen=True, kw_only=True, slots=True)
class _Judged:
    """What the trials of a run say."""

    by_point: Mapping[int, Sequence[TrialRecord]]
    points: Sequence[PointSummary]
    family: Sequence[Question]
    rankings: Sequence[Ranking]
    verdicts: Sequence[Verdict]


def _judge(run: RunRecord, trials: Sequence[TrialRecord]) -> _Judged:
    by_point: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        by_point.setdefault(trial.point, []).append(trial)
    limits = run.limits if run.search is None else ()
    untrue = {
        number for each in network.latest(run) if not all(path.within for path in each.paths) for number in each.points
    }
    every = [
        summarise_point(point, by_point.get(point.number, []), limits, untrue=point.number in untrue)
        for point in run.points
    ]
    controls = {point.number for point in run.points if point.control}
    points = [point for point in every if point.number not in controls]
    family = questions_of(run, points, by_point)
    alike = [point for point in every if point.number in controls]
    family = [replace(each, control=control_of(run, each, points, alike, by_point)) for each in family]
    rankings = rank(family, seed=run.seed)
    found = verdicts(rankings, margin=run.family.margin, seed=run.seed)
    return _Judged(by_point=by_point, points=points, family=family, rankings=rankings, verdicts=found)


def points_of(run: RunRecord, trials: Sequence[TrialRecord]) -> Sequence[PointSummary]:
    """Every point of a run but the controls, from some trials."""
    return _judge(run, trials).points


def summarise_run(folder: RunFolder) -> RunSummary:
    """Everything there is to say about a run."""
    run = folder.read_run()
    trials = folder.read_trials()
    judged = _judge(run, trials)
    by_point, points, family = judged.by_point, judged.points, judged.family
    margin = run.family.margin
    held = control_verdicts(family, seed=run.seed)
    answered = [verdict_record(verdict) for verdict in judged.verdicts]
    scores = score(judged.rankings, margin=margin)
    # A search makes its trials as it goes: it has no first measurements to judge apart.
    again = (
        repeats_that_decide(trials, judged.verdicts, lambda made: _judge(run, made).verdicts)
        if run.search is None
        else []
    )
    outcomes = {point.outcome for point in points}
    capacities = describe_searches(run)
    if capacities:
        complete = all(each.ended == each.searches for each in capacities)
        valid = all(each.finished and each.limited_by in {None, "server"} for each in capacities)
    else:
        complete = len(trials) == len(run.trials)
        valid = complete and not any(point.doubtful for point in points)
        valid = valid and outcomes <= {"ok", "hard_limit", "failed"} and "ok" in outcomes
        valid = valid and run.imported is None
    # A search goes past every limit on purpose.
    stops = [] if capacities else _stops(run, points, by_point)
    evidence = Evidence(
        verdicts=answered, scores=scores, points=points, figures=run.figures_by_name, stops=stops, margin=margin
    )
    gate = judge_gate(run, family, points, trials)
    if gate is not None:
        told = [gate.text, *answer(evidence)[:2]]
    elif run.imported is not None:
        told = answer_imported(run, evidence)
    elif answered or not capacities:
        told = answer(evidence)
    else:
        told = [each.text for each in capacities]
    seen = _seen(run, trials)
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
        elapsed_s=sum(trial.elapsed_s + sum(attempt.elapsed_s for attempt in trial.attempts) for trial in trials),
        command=run.command,
        seed=run.seed,
        points=points,
        answer=told,
        capacities=capacities,
        gate=gate,
        verdicts=answered,
        controls=held,
        scores=scores,
        knees=find_knees(run, trials),
        network=network.paths(run),
        claims=judge_claims(run, points, trials),
        references=hold_references(run, points, trials),
        stops=stops,
        limits_missed=[limit for point in points for limit in point.limits if not limit.met],
        left_out=[] if capacities else left_out(trials),
        warnings=graded(
            [
                *_warnings(run, points, trials, len(answered)),
                *_of_trials(seen, trials),
                *_unlike(held),
                *again,
                *host_warnings(run),
            ],
            {code: len({trial.number for trial, _ in found}) for code, found in seen.items()},
        ),
    )


SPOILT = ("invalid", "generator_limited")
"""Outcomes of a trial whose figures a network stated in one line shows all the same."""


def summarise_point(
    point: PointRecord, trials: Sequence[TrialRecord], limits: Sequence[Limit], *, untrue: bool
) -> PointSummary:
    """A point over its trials; `untrue` where a path that it uses is not what was asked for."""
    valid = [trial for trial in trials if trial.outcome == "ok"]
    outcome, reason = _point_outcome(trials, valid)
    shown = valid
    one_line = bool((point.network or {}).get("one_line"))
    spoilt = one_line and outcome in SPOILT
    if spoilt and not valid:
        shown = [trial for trial in trials if trial.outcome in SPOILT]
    names = dict.fromkeys(name for trial in shown for name in trial.figures)
    figures = {}
    for name in names:
        found = summarise([trial.figures[name] for trial in shown if name in trial.figures])
        cv = found.stdev / abs(found.mean) if found.stdev and found.mean else None
        figures[name] = FigureSummary(**asdict(found), cv=cv)
    judged = [limit for limit in limits if not _cut_away(limit, valid)]
    return PointSummary(
        point=point.setting,
        number=point.number,
        n=len(trials),
        valid_n=len(valid),
        outcome=outcome,
        reason=reason,
        figures=figures,
        doubtful=bool(figures) and (spoilt or untrue or len(judged) < len(limits)),
        limits=[_limit(limit, valid, point) for limit in judged] if valid else [],
    )


def _point_outcome(trials: Sequence[TrialRecord], valid: Sequence[TrialRecord]) -> tuple[Outcome | None, str | None]:
    """What most trials say; where as many have a result as have none, the results."""
    if not trials:
        return None, "not measured"
    if 2 * len(valid) >= len(trials):
        return "ok", None
    counts = Counter(trial.outcome for trial in trials if trial.outcome != "ok")
    outcome = max(counts, key=lambda each: counts[each])
    reason = next(trial.reason for trial in trials if trial.outcome == outcome)
    return outcome, reason


def _cut_away(limit: Limit, valid: Sequence[TrialRecord]) -> bool:
    """Whether a limit cannot be judged, as its figure lies in time that the emulator disturbed."""
    known = any(limit.figure in trial.figures for trial in valid)
    return not known and any(trial.cut is not None and limit.figure in trial.cut.doubted for trial in valid)


def _limit(limit: Limit, valid: Sequence[TrialRecord], point: PointRecord) -> LimitSummary:
    """Whether the median meets a limit; every trial has to meet `==` and `!=`, as a median passes
    over the one that does not.
    """
    values = [trial.figures[limit.figure] for trial in valid if limit.figure in trial.figures]
    median = statistics.median(values) if values else None
    judged = values if limit.operator in EXACT else [each for each in (median,) if each is not None]
    return LimitSummary(
        point=point.setting,
        limit=limit.text,
        figure=limit.figure,
        median=median,
        met=bool(judged) and all(OPERATORS[limit.operator](each, limit.value) for each in judged),
    )


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


def _stops(
    run: RunRecord, points: Sequence[PointSummary], by_point: Mapping[int, Sequence[TrialRecord]]
) -> list[StopRecord]:
    """Where each contender was seen to stop, by its own limit or its own failure."""
    compare = run.family.compare
    return [
        StopRecord(
            contender=formatting.value(point.point[compare]) if compare else "",
            at=without(point.point, compare),
            outcome=point.outcome,
            reason=point.reason,
            held=_held(by_point.get(point.number, [])),
        )
        for point in points
        if point.outcome in {"hard_limit", "failed"}
    ]


def _held(trials: Sequence[TrialRecord]) -> int | None:
    """The most connections that a server at its limit held, by its own count; None where it has
    none.
    """
    found = [
        (trial.server.get("summary") or {}).get("peak_connections") for trial in trials if trial.outcome == "hard_limit"
    ]
    return max((each for each in found if isinstance(each, int)), default=None)


def _warnings(
    run: RunRecord, points: Sequence[PointSummary], trials: Sequence[TrialRecord], family: int
) -> list[Doubt]:
    warnings = []
    planned, searching = len(run.trials), run.search is not None
    warnings += doubtful_figures(run, points)
    if len(trials) < planned and not searching:
        warnings.append(
            _warning(
                "incomplete",
                f"{len(trials)} of {planned} trials were measured",
                f"plimsoll lab resume runs/{run.run} measures the rest",
            )
        )
    if family and not can_say_anything(run.settings.repeat):
        warnings.append(too_few_repetitions(run.settings.repeat))
    few = [point for point in points if point.outcome == "ok" and point.valid_n < LEAST_BLOCKS]
    if few and not searching:
        least = min(point.valid_n for point in few)
        warnings.append(
            _warning(
                "too_few_trials",
                f"{len(few)} of {len(points)} points rest on fewer than {LEAST_BLOCKS} results, the least on {least}: "
                "no interval of their medians reaches 95 %",
                f"use at least {LEAST_BLOCKS} repetitions (--repeat)"
                if run.imported is None
                else f"import at least {LEAST_BLOCKS} files of each",
            )
        )
    if searching and run.status != "complete":
        warnings.append(
            _warning(
                "incomplete",
                f"the run was ended after {len(trials)} trials, before its searches had",
                f"plimsoll lab resume runs/{run.run} goes on with them",
            )
        )
    return warnings if searching else [*warnings, *_discarded(points, trials)]


def _seen(run: RunRecord, trials: Sequence[TrialRecord]) -> dict[str, list[tuple[TrialRecord, Doubt]]]:
    """The warnings of single trials, by their code."""
    seen: dict[str, list[tuple[TrialRecord, Doubt]]] = {}
    # Of a trial that is a finding about the server, the finding says all there is to say.
    # A search goes where there are no results on purpose.
    silent = {"hard_limit", "failed", *(("generator_limited", "invalid") if run.search is not None else ())}
    for trial in (each for each in trials if each.outcome not in silent):
        for doubt in trial.warnings:
            seen.setdefault(doubt.code, []).append((trial, doubt))
    return seen


def _of_trials(seen: Mapping[str, Sequence[tuple[TrialRecord, Doubt]]], trials: Sequence[TrialRecord]) -> list[Doubt]:
    """One warning of the run for all trials that have it."""
    warnings = []
    for code, found in seen.items():
        # The middle one of them stands for all: neither the first nor the last.
        example, doubt = found[len(found) // 2]
        affected = len({each.number for each, _ in found})
        message = f"in {affected} of {len(trials)} trials; in trial {example.number}, {doubt.message}"
        warnings.append(_warning(code, message, doubt.remedy))
    return warnings


def doubtful_figures(run: RunRecord, points: Sequence[PointSummary]) -> list[Doubt]:
    """Why figures over a network are marked as doubtful."""
    doubtful = [point for point in points if point.doubtful]
    if not doubtful:
        return []
    untrue = [path for record in network.latest(run) for path in record.paths if not path.within]
    causes = [f"from {path.start} to {path.end}, {path.in_words()}" for path in untrue[:1]]
    causes += [f"{_words(point.point) or 'the trials'}: {point.reason}" for point in doubtful if point.reason][:1]
    causes += [
        f"{_words(point.point) or 'the trials'}: '{limit.text}' cannot be judged, as the emulator disturbed that figure"
        for point in doubtful
        for limit in (run.limits if run.search is None else ())
        if point.valid_n and limit.text not in {each.limit for each in point.limits}
    ][:1]
    return [
        _warning(
            "doubtful_figures",
            f"the figures of {len(doubtful)} of {len(points)} points are doubtful, and marked by ?: "
            + "; ".join(causes),
            "use a quieter machine, or ask for a longer round trip or less load",
        )
    ]


def _unlike(controls: Sequence[Control]) -> list[Doubt]:
    """A control that differs from itself puts every verdict on its figure in doubt."""
    differing = [each for each in controls if each.differs and each.ratio is not None]
    if not differing:
        return []
    shown = "; ".join(
        f"{each.figure} at {formatting.setting(each.at)}: {each.ratio:.3f} times itself" for each in differing
    )
    return [
        _warning(
            "control_differs",
            f"one and the same server measured twice in each block was told from itself: {shown}",
            "something other than the server moves these figures: look for what differs between trials of a block",
        )
    ]


def _discarded(points: Sequence[PointSummary], trials: Sequence[TrialRecord]) -> list[Doubt]:
    """Trials left out of points that have results all the same."""
    valid = {point.number for point in points if point.outcome == "ok"}
    again = sum(len(trial.attempts) for trial in trials)
    warnings = []
    if again:
        message = f"{again} measurements were no results through no fault of the server, and were made again"
        warnings.append(_warning("repeated", message, "a quieter machine, or a lighter load, needs fewer"))
    spoilt = [point for point in points if point.outcome in {"generator_limited", "invalid"}]
    if spoilt:
        places = "; ".join(_words(point.point) for point in spoilt)
        message = (
            f"{len(spoilt)} of {len(points)} points have no result, for the generator or the machine was the limit"
        )
        warnings.append(_warning("no_result", f"{message}: {places}", "a quieter or larger machine, or a lighter load"))
    left_out = Counter(trial.outcome for trial in trials if trial.point in valid and trial.outcome != "ok")
    if not left_out:
        return warnings
    causes = ", ".join(f"{count} {outcome}" for outcome, count in left_out.items())
    message = f"{left_out.total()} of {len(trials)} trials are no results and were left out: {causes}"
    remedy = "the table says at which points, the trials' records say why"
    return [*warnings, _warning("discarded", message, remedy)]


def too_few_repetitions(repeat: int) -> Doubt:
    """The doubt that a suite can never show a difference, however clear it is."""
    return _warning(
        "too_few_repetitions",
        f"{repeat} repetitions cannot show any difference, however large",
        f"use at least {LEAST_BLOCKS} repetitions (--repeat)",
    )


def _warning(code: str, message: str, remedy: str) -> Doubt:
    return Doubt(code=code, message=message, remedy=remedy)


def _words(setting: Mapping[str, object]) -> str:
    return ", ".join(f"{path}={formatting.value(value)}" for path, value in setting.items())
