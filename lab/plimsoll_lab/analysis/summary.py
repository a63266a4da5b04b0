"""The one summary: from the records on disk to what every output says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import cast

from plimsoll_lab.analysis import formatting, network
from plimsoll_lab.analysis.answer import Evidence, answer
from plimsoll_lab.analysis.claims import hold_references, judge_claims
from plimsoll_lab.analysis.gate import judge_gate
from plimsoll_lab.analysis.hosts import host_warnings
from plimsoll_lab.analysis.knees import find_knees
from plimsoll_lab.analysis.left_out import left_out
from plimsoll_lab.analysis.searches import capacity_family, describe_searches
from plimsoll_lab.stats.best import LEAST_BLOCKS, Question, Value, can_say_anything
from plimsoll_lab.stats.control import Control, control_verdicts
from plimsoll_lab.stats.scores import score
from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.stats.verdict import Verdict, rank, verdicts
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import SCHEMA_VERSION, Doubt, Json, TrialRecord

CAPACITY = "capacity"
"""The figure of a run that searches."""
COMPARE = {"<": float.__lt__, "<=": float.__le__, ">": float.__gt__, ">=": float.__ge__}


def summarise_run(folder: RunFolder) -> Json:
    """Everything there is to say about a run."""
    run = folder.read_run()
    trials = folder.read_trials()
    by_point: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        by_point.setdefault(trial.point, []).append(trial)
    limits = cast("list[dict[str, object]]", run["limits"]) if not run.get("search") else []
    every = [
        _point(point, by_point.get(cast("int", point["number"]), []), limits)
        for point in cast("list[Json]", run["points"])
    ]
    controls = {cast("int", point["number"]) for point in cast("list[Json]", run["points"]) if point.get("control")}
    points = [point for point in every if point["number"] not in controls]
    margin, seed = cast("float", cast("Json", run["family"])["margin"]), cast("int", run["seed"])
    family = _family(run, points, by_point)
    alike = [point for point in every if point["number"] in controls]
    family = [replace(each, control=_control(run, each, points, alike, by_point)) for each in family]
    held = control_verdicts(family, seed=seed)
    rankings = rank(family, seed=seed)
    answered = [verdict_json(verdict) for verdict in verdicts(rankings, margin=margin, seed=seed)]
    scores = [asdict(cell) for cell in score(rankings, margin=margin)]
    figures = {cast("str", each["name"]): each for each in cast("list[Json]", run["figures"])}
    planned = len(cast("list[object]", run["trials"]))
    outcomes = {point["outcome"] for point in points}
    capacities = describe_searches(run)
    if capacities:
        complete = all(each["ended"] == each["searches"] for each in capacities)
        valid = all(each["finished"] and each["limited_by"] in {None, "server"} for each in capacities)
    else:
        complete = len(trials) == planned
        valid = complete and outcomes <= {"ok", "hard_limit", "failed"} and "ok" in outcomes
    # A search goes past every limit on purpose.
    stops = [] if capacities else _stops(run, points, by_point)
    evidence = Evidence(verdicts=answered, scores=scores, points=points, figures=figures, stops=stops, margin=margin)
    gate = judge_gate(run, family, points, trials, figures)
    return {
        "event": "summary",
        "schema_version": SCHEMA_VERSION,
        "run": str(folder.path),
        "report": str(folder.report),
        "suite": cast("Json", run["suite"])["name"],
        "question": cast("Json", run["suite"])["question"],
        "status": "complete" if complete else "interrupted",
        "valid": valid,
        "trials": {
            "planned": planned,
            "measured": len(trials),
            "valid": sum(trial.outcome == "ok" for trial in trials),
        },
        "elapsed_s": sum(trial.elapsed_s + sum(attempt.elapsed_s for attempt in trial.attempts) for trial in trials),
        "command": run["command"],
        "seed": run["seed"],
        "points": points,
        "answer": [str(gate["text"]), *answer(evidence)[:2]]
        if gate is not None
        else answer(evidence)
        if evidence.verdicts or not capacities
        else [str(each["text"]) for each in capacities],
        "capacities": capacities,
        "gate": gate,
        "verdicts": answered,
        "controls": [asdict(each) for each in held],
        "scores": scores,
        "knees": find_knees(run, trials),
        "network": network.paths(run),
        "claims": judge_claims(run, points, trials),
        "references": hold_references(run, points),
        "stops": stops,
        "limits_missed": [
            limit for point in points for limit in cast("list[Json]", point["limits"]) if not limit["met"]
        ],
        "left_out": [] if capacities else left_out(trials),
        "warnings": [*_warnings(run, points, trials, len(answered)), *_unlike(held), *host_warnings(run)],
    }


def _point(point: Json, trials: Sequence[TrialRecord], limits: Sequence[Mapping[str, object]]) -> Json:
    valid = [trial for trial in trials if trial.outcome == "ok"]
    outcome, reason = _point_outcome(trials, valid)
    names = dict.fromkeys(name for trial in valid for name in trial.figures)
    figures = {}
    for name in names:
        values = [trial.figures[name] for trial in valid if name in trial.figures]
        summary = asdict(summarise(values))
        summary["cv"] = summary["stdev"] / abs(summary["mean"]) if summary["stdev"] and summary["mean"] else None
        figures[name] = summary
    return {
        "point": point["setting"],
        "number": point["number"],
        "n": len(trials),
        "valid_n": len(valid),
        "outcome": outcome,
        "reason": reason,
        "figures": figures,
        "limits": [_limit(limit, figures, point) for limit in limits] if valid else [],
    }


def _point_outcome(trials: Sequence[TrialRecord], valid: Sequence[TrialRecord]) -> tuple[str | None, str | None]:
    """What most trials say; where as many have a result as have none, the results."""
    if not trials:
        return None, "not measured"
    if 2 * len(valid) >= len(trials):
        return "ok", None
    counts = Counter(trial.outcome for trial in trials if trial.outcome != "ok")
    outcome = max(counts, key=lambda each: counts[each])
    reason = next(trial.reason for trial in trials if trial.outcome == outcome)
    return outcome, reason


def _limit(limit: Mapping[str, object], figures: Mapping[str, Mapping[str, float]], point: Json) -> Json:
    name = cast("str", limit["figure"])
    median = figures[name]["median"] if name in figures else math.nan
    met = COMPARE[cast("str", limit["operator"])](float(median), float(cast("float", limit["value"])))
    return {
        "point": point["setting"],
        "limit": limit["text"],
        "figure": name,
        "median": None if math.isnan(median) else median,
        "met": met,
    }


def _family(run: Json, points: Sequence[Json], by_point: Mapping[int, Sequence[TrialRecord]]) -> list[Question]:
    family = cast("Json", run["family"])
    compare = family["compare"]
    if compare is None:
        return []
    if run.get("search"):
        return capacity_family(run, cast("str", compare))
    better = {cast("str", each["name"]): each["better"] for each in cast("list[Json]", run["figures"])}
    places: dict[str, list[Json]] = {}
    for point in points:
        setting = cast("Json", point["point"])
        places.setdefault(repr({path: value for path, value in setting.items() if path != compare}), []).append(point)
    questions = []
    for figure in cast("list[str]", family["figures"]):
        for here in places.values():
            at = {path: value for path, value in cast("Json", here[0]["point"]).items() if path != compare}
            contenders: dict[str, Mapping[int, Value]] = {}
            absent = []
            for point in here:
                label = formatting.value(cast("Json", point["point"])[cast("str", compare)])
                values = {
                    trial.block: value
                    for trial in by_point.get(cast("int", point["number"]), [])
                    if (value := _value(trial, figure)) is not None
                }
                if point["outcome"] in {"ok", "generator_limited"} and values:
                    contenders[label] = values
                else:
                    absent.append(label)
            questions.append(
                Question(figure=figure, better=better[figure], at=at, contenders=contenders, absent=tuple(absent))  # type: ignore[arg-type]
            )
    return questions


LOWER_BOUND = ("completed_rate", "goodput_bits_per_s")
"""Figures of which a generator at its own limit gives a lower bound."""
SERVERS_OWN = ("server.cpu_us_per_request", "server.memory_bytes")
"""Figures that a generator at its own limit does not spoil."""


def _value(trial: TrialRecord, figure: str) -> Value | None:
    """What a trial says of a figure; where the generator was at its limit, no response time."""
    found = trial.figures.get(figure)
    if found is None or trial.outcome == "ok":
        return found
    if trial.outcome != "generator_limited":
        return None
    if figure in LOWER_BOUND:
        return (found, math.inf)
    return found if figure in SERVERS_OWN else None


def _control(
    run: Json,
    question: Question,
    points: Sequence[Json],
    alike: Sequence[Json],
    by_point: Mapping[int, Sequence[TrialRecord]],
) -> tuple[Mapping[int, float], Mapping[int, float]] | None:
    """The two series of the A/A control at a question's setting."""
    compare = cast("str", cast("Json", run["family"])["compare"])

    def series(point: Json) -> dict[int, float]:
        return {
            trial.block: trial.figures[question.figure]
            for trial in by_point.get(cast("int", point["number"]), [])
            if trial.outcome == "ok" and question.figure in trial.figures
        }

    for again in alike:
        setting = cast("Json", again["point"])
        if {path: value for path, value in setting.items() if path != compare} == question.at:
            one = next((point for point in points if point["point"] == setting), None)
            return (series(one), series(again)) if one is not None else None
    return None


def verdict_json(verdict: Verdict) -> Json:
    """A verdict as it is printed: a bound that does not exist is null."""
    others = [
        {
            "name": place.name,
            "ratio": place.ratio,
            "at_least": place.at_least,
            "ci": [place.at_least, place.at_most if math.isfinite(place.at_most) else None],
        }
        for place in verdict.others
    ]
    return asdict(verdict) | {"others": others}


def _stops(run: Json, points: Sequence[Json], by_point: Mapping[int, Sequence[TrialRecord]]) -> list[Json]:
    """Where each contender was seen to stop, by its own limit or its own failure."""
    compare = cast("Json", run["family"])["compare"]
    stops = []
    for point in points:
        if point["outcome"] not in {"hard_limit", "failed"}:
            continue
        setting = dict(cast("Json", point["point"]))
        contender = formatting.value(setting.pop(cast("str", compare))) if compare else ""
        stops.append(
            {
                "contender": contender,
                "at": setting,
                "outcome": point["outcome"],
                "reason": point["reason"],
                "held": _held(by_point.get(cast("int", point["number"]), [])),
            }
        )
    return stops


def _held(trials: Sequence[TrialRecord]) -> int | None:
    """The most connections that a server at its limit held, by its own count; None where it has
    none.
    """
    found = [
        cast("Json", trial.server["summary"]).get("peak_connections")
        for trial in trials
        if trial.outcome == "hard_limit" and trial.server.get("summary")
    ]
    return max((each for each in found if isinstance(each, int)), default=None)


def _warnings(run: Json, points: Sequence[Json], trials: Sequence[TrialRecord], family: int) -> list[Json]:
    warnings = []
    planned = len(cast("list[object]", run["trials"]))
    if len(trials) < planned and not run.get("search"):
        warnings.append(
            _warning(
                "incomplete",
                f"{len(trials)} of {planned} trials were measured",
                f"plimsoll lab resume runs/{run['run']} measures the rest",
            )
        )
    repeat = cast("int", cast("Json", run["settings"])["repeat"])
    if family and not can_say_anything(repeat):
        warnings.append(too_few_repetitions(repeat))
    searching = bool(run.get("search"))
    few = [point for point in points if point["outcome"] == "ok" and cast("int", point["valid_n"]) < LEAST_BLOCKS]
    if few and not searching:
        least = min(cast("int", point["valid_n"]) for point in few)
        warnings.append(
            _warning(
                "too_few_trials",
                f"{len(few)} of {len(points)} points rest on fewer than {LEAST_BLOCKS} results, the least on {least}: "
                "no interval of their medians reaches 95 %",
                f"use at least {LEAST_BLOCKS} repetitions (--repeat)",
            )
        )
    if searching and run["status"] != "complete":
        warnings.append(
            _warning(
                "incomplete",
                f"the run was ended after {len(trials)} trials, before its searches had",
                f"plimsoll lab resume runs/{run['run']} goes on with them",
            )
        )
    warnings += [] if searching else _discarded(points, trials)
    seen: dict[str, list[tuple[TrialRecord, Doubt]]] = {}
    # Of a trial that is a finding about the server, the finding says all there is to say.
    # A search goes where there are no results on purpose.
    silent = {"hard_limit", "failed", *(("generator_limited", "invalid") if searching else ())}
    for trial in (each for each in trials if each.outcome not in silent):
        for doubt in trial.warnings:
            seen.setdefault(doubt.code, []).append((trial, doubt))
    for code, found in seen.items():
        # The middle one of them stands for all: neither the first nor the last.
        example, doubt = found[len(found) // 2]
        affected = len({each.number for each, _ in found})
        message = f"in {affected} of {len(trials)} trials; in trial {example.number}, {doubt.message}"
        warnings.append(_warning(code, message, doubt.remedy))
    return warnings


def _unlike(controls: Sequence[Control]) -> list[Json]:
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


def _discarded(points: Sequence[Json], trials: Sequence[TrialRecord]) -> list[Json]:
    """Trials left out of points that have results all the same."""
    valid = {point["number"] for point in points if point["outcome"] == "ok"}
    again = sum(len(trial.attempts) for trial in trials)
    warnings = []
    if again:
        message = f"{again} measurements were no results through no fault of the server, and were made again"
        warnings.append(_warning("repeated", message, "a quieter machine, or a lighter load, needs fewer"))
    spoilt = [point for point in points if point["outcome"] in {"generator_limited", "invalid"}]
    if spoilt:
        places = "; ".join(_words(cast("Json", point["point"])) for point in spoilt)
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


def too_few_repetitions(repeat: int) -> Json:
    """The doubt that a suite can never show a difference, however clear it is."""
    return _warning(
        "too_few_repetitions",
        f"{repeat} repetitions cannot show any difference, however large",
        f"use at least {LEAST_BLOCKS} repetitions (--repeat)",
    )


def _warning(code: str, message: str, remedy: str) -> Json:
    return {"code": code, "message": message, "remedy": remedy}


def _words(setting: Mapping[str, object]) -> str:
    return ", ".join(f"{path}={formatting.value(value)}" for path, value in setting.items())
