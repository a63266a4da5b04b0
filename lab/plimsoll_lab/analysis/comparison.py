"""Run B held against run A: the environments first, then every figure at every point both measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import cast

from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.stats.two_runs import Pair, blocks_alternate, hold_against
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import SCHEMA_VERSION, Json, TrialRecord

SAME = (
    "system",
    "machine",
    "cpu",
    "cpus",
    "memory",
    "hypervisor",
    "metering",
    "open_files_limit",
    "cpu_governor",
    "clocksource",
    "tcp_congestion_control",
    "transparent_hugepage",
    "somaxconn",
    "io_uring_disabled",
)
"""What has to be the same on both sides, or a difference may be the machine's."""
MEMORY_TOLERATED = 0.02
"""A kernel reserves a little more or less of the same memory from boot to boot."""
CARRIED = {"ok"}
LOST = {"hard_limit", "failed"}


def compare_runs(a: RunFolder, b: RunFolder) -> Json:
    """Everything there is to say about B beside A."""
    run_a, run_b = a.read_run(), b.read_run()
    sum_a, sum_b = summarise_run(a), summarise_run(b)
    reasons = environment_differences(cast("Json", run_a["environment"]), cast("Json", run_b["environment"]))
    pairs, lost, warnings = _pairs(run_a, run_b, (sum_a, sum_b), (a.read_trials(), b.read_trials()), reasons)
    if not pairs and not lost:
        reasons = [*reasons, "the two runs have no point in common"]
    differences = hold_against(
        pairs, margin=cast("float", cast("Json", run_b["family"])["margin"]), seed=cast("int", run_b["seed"])
    )
    if run_a["versions"] != run_b["versions"]:
        message = f"A was measured with {_versions(run_a)}, B with {_versions(run_b)}"
        remedy = "if the generator changed with it, measure A again with B's generator"
        warnings.append({"code": "versions_differ", "message": message, "remedy": remedy})
    verdicts = [asdict(each) for each in differences]
    worse = [each for each in verdicts if each["call"] == "better" and each["winner"] == "A"]
    return {
        "event": "summary",
        "schema_version": SCHEMA_VERSION,
        "baseline": str(a.path),
        "run": str(b.path),
        "report": str(b.report),
        "comparable": not reasons,
        "not_comparable": reasons,
        "valid": not reasons and any(each["call"] != "invalid" for each in verdicts),
        "worse": not reasons and bool(worse or lost),
        "lost": [] if reasons else lost,
        "points": sum_b["points"],
        "verdicts": verdicts,
        "warnings": warnings,
    }


def environment_differences(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """Why results of these two environments cannot be told apart from their environments; empty where they can."""
    return [
        f"{name.replace('_', ' ')}: {_shown(a.get(name))} in A, {_shown(b.get(name))} in B"
        for name in SAME
        if not _alike(name, a.get(name), b.get(name))
    ]


def _alike(name: str, a: object, b: object) -> bool:
    if name == "memory" and isinstance(a, str) and isinstance(b, str):
        sizes = [int(match[0]) for text in (a, b) if (match := re.match(r"\d+", text))]
        return len(sizes) == 2 and abs(sizes[0] - sizes[1]) <= MEMORY_TOLERATED * max(sizes)  # noqa: PLR2004
    return a == b


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return "not known" if value is None else str(value)


def _versions(run: Json) -> str:
    return ", ".join(f"{name} {version}" for name, version in cast("Json", run["versions"]).items())


def _pairs(
    run_a: Json,
    run_b: Json,
    summaries: tuple[Json, Json],
    trials: tuple[Sequence[TrialRecord], Sequence[TrialRecord]],
    reasons: Sequence[str],
) -> tuple[list[Pair], list[Json], list[Json]]:
    """Every figure of the family at every point that both runs have; points B lost; and doubts."""
    outcomes_a, outcomes_b = _by_place(run_a, summaries[0]), _by_place(run_b, summaries[1])
    warm_up = [cast("Json", run["settings"])["warm_up"] for run in (run_a, run_b)]
    paired = blocks_alternate(_spans(trials[0]), _spans(trials[1]))
    better = {cast("str", each["name"]): each["better"] for each in cast("list[Json]", run_b["figures"])}
    obstacle = f"the environments differ ({reasons[0]})" if reasons else None
    if obstacle is None and warm_up[0] != warm_up[1]:
        obstacle = f"the warm-up was {warm_up[0] or 'none'} in A, {warm_up[1] or 'none'} in B"
    pairs, lost = [], []
    shared = [place for place in outcomes_a if place in outcomes_b]
    for place in shared:
        (point_a, seen_a), (point_b, seen_b) = outcomes_a[place], outcomes_b[place]
        at = cast("Json", point_b["setting"])
        if seen_a["outcome"] in CARRIED and seen_b["outcome"] in LOST:
            lost.append({"point": at, "outcome": seen_b["outcome"], "reason": seen_b["reason"]})
        for figure in cast("list[str]", cast("Json", run_b["family"])["figures"]):
            a, b = _values(trials[0], point_a, seen_a, figure), _values(trials[1], point_b, seen_b, figure)
            pairs.append(
                Pair(figure=figure, better=better[figure], at=at, a=a, b=b, paired=paired, obstacle=obstacle)  # type: ignore[arg-type]
            )
    alone = len(outcomes_a) + len(outcomes_b) - 2 * len(shared)
    warnings: list[Json] = []
    if alone:
        message = f"{alone} points were measured in one run only, or under another load, and were left out"
        warnings.append({"code": "unmatched_points", "message": message, "remedy": "measure the same suite twice"})
    return pairs, lost, warnings


def _by_place(run: Json, summary: Json) -> dict[str, tuple[Json, Json]]:
    """Points by what was asked of the server: its setting and the whole load. The server itself may have changed."""
    seen = {point["number"]: point for point in cast("list[Json]", summary["points"])}
    return {
        repr((sorted(cast("Json", point["setting"]).items()), sorted(cast("Json", point["load"]).items()))): (
            point,
            seen[point["number"]],
        )
        for point in cast("list[Json]", run["points"])
    }


def _spans(trials: Sequence[TrialRecord]) -> dict[int, tuple[float, float]]:
    spans: dict[int, tuple[float, float]] = {}
    for trial in trials:
        begin, end = spans.get(trial.block, (trial.started_unix_s, 0.0))
        spans[trial.block] = (min(begin, trial.started_unix_s), max(end, trial.started_unix_s + trial.elapsed_s))
    return spans


def _values(trials: Sequence[TrialRecord], point: Json, seen: Json, figure: str) -> dict[int, float]:
    if seen["outcome"] not in CARRIED:
        return {}
    return {
        trial.block: trial.figures[figure]
        for trial in trials
        if trial.point == point["number"] and trial.outcome == "ok" and figure in trial.figures
    }
