"""Stored runs of B against stored runs of A: the environments first, then every figure at every
point all measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

from plimsoll_lab.analysis.summary import CAPACITY, summarise_run
from plimsoll_lab.stats.two_runs import LEAST_RUNS, Pair, compare_sides
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import SCHEMA_VERSION, Json

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


def compare_runs(a: Sequence[RunFolder], b: Sequence[RunFolder]) -> Json:
    """Everything there is to say about the runs of B beside those of A."""
    sides = [[_Run(folder.read_run(), summarise_run(folder)) for folder in side] for side in (a, b)]
    first = sides[0][0].record
    every = [each for side in sides for each in side]
    reasons = [
        f"{each.record['run']}: {reason}" for each in every[1:] for reason in differences_between(first, each.record)
    ]
    pairs, lost, warnings = _pairs(sides, reasons[0] if reasons else None)
    if not pairs and not lost:
        reasons = [*reasons, "the runs have no point in common"]
    last = sides[1][0].record
    differences = compare_sides(pairs, margin=cast("float", cast("Json", last["family"])["margin"]))
    if any(each.record["versions"] != first["versions"] for each in every):
        told = "; ".join(dict.fromkeys(_versions(each.record) for each in every))
        remedy = "if the generator changed with it, measure A again with B's generator"
        warnings.append({"code": "versions_differ", "message": f"the runs were made with {told}", "remedy": remedy})
    verdicts = [asdict(each) for each in differences]
    worse = [each for each in verdicts if each["call"] == "better" and each["winner"] == "A"]
    enough = min(len(a), len(b)) >= LEAST_RUNS
    return {
        "event": "summary",
        "schema_version": SCHEMA_VERSION,
        "baseline": str(a[0].path),
        "baselines": [str(each.path) for each in a],
        "run": str(b[0].path),
        "runs": [str(each.path) for each in b],
        "report": str(b[0].report),
        "comparable": not reasons,
        "not_comparable": reasons,
        "valid": not reasons
        and enough
        and bool(verdicts)
        and not any(each["call"] == "invalid" for each in verdicts)
        and not any(each["code"] == "unmatched_points" for each in warnings),
        "worse": not reasons and enough and bool(worse or lost),
        "lost": [] if reasons else lost,
        "points": sides[1][0].summary["points"],
        "verdicts": verdicts,
        "warnings": warnings,
    }


@dataclass(frozen=True, slots=True)
class _Run:
    """A run's record and its summary."""

    record: Json
    summary: Json


def differences_between(one: Json, other: Json) -> list[str]:
    """Why two runs cannot be compared; empty where they can."""
    reasons = environment_differences(cast("Json", one["environment"]), cast("Json", other["environment"]))
    warm_up = [cast("Json", run["settings"])["warm_up"] for run in (one, other)]
    if warm_up[0] != warm_up[1]:
        reasons.append(f"warm-up: {warm_up[0] or 'none'} in A, {warm_up[1] or 'none'} in B")
    return reasons


def environment_differences(a: Mapping[str, object], b: Mapping[str, object]) -> list[str]:
    """Why results of these two environments cannot be told apart from their environments; empty
    where they can.
    """
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


def _pairs(sides: Sequence[Sequence[_Run]], obstacle: str | None) -> tuple[list[Pair], list[Json], list[Json]]:
    """Every figure of the family at every point that all runs have; points that B lost; and
    warnings.
    """
    places = [[_by_place(run) for run in side] for side in sides]
    every = [each for side in places for each in side]
    shared = [place for place in every[0] if all(place in each for each in every)]
    record = sides[1][0].record
    better = {cast("str", each["name"]): each["better"] for each in cast("list[Json]", record["figures"])}
    pairs, lost = [], []
    for place in shared:
        seen = [[each[place] for each in side] for side in places]
        at = cast("dict[str, object]", seen[1][0]["point"])
        if _mostly(seen[0], CARRIED) and _mostly(seen[1], LOST):
            reason = next(each["reason"] for each in seen[1] if each["outcome"] in LOST)
            lost.append({"point": at, "outcome": seen[1][0]["outcome"], "reason": reason})
        for figure in cast("list[str]", cast("Json", record["family"])["figures"]):
            a, b = ([value for each in side if (value := _median(each, figure)) is not None] for side in seen)
            pairs.append(Pair(figure=figure, better=better[figure], at=at, a=a, b=b, obstacle=obstacle))  # type: ignore[arg-type]
    alone = {place for each in every for place in each} - set(shared)
    warnings: list[Json] = []
    if alone:
        message = f"{len(alone)} points are not in every run, or have another load, and were left out"
        warnings.append({"code": "unmatched_points", "message": message, "remedy": "measure the same suite each time"})
    return pairs, lost, warnings


def _mostly(seen: Sequence[Json], outcomes: set[str]) -> bool:
    """Whether more than half of the runs ended so at a point: one transient limit decides
    nothing.
    """
    return 2 * sum(each["outcome"] in outcomes for each in seen) > len(seen)


def _by_place(run: _Run) -> dict[str, Json]:
    """Points by what was asked of the server: setting and whole load. The server itself may have
    changed.
    """
    if run.record.get("search"):
        return {repr(sorted(cast("Json", each["point"]).items())): _searched(each) for each in _capacities(run)}
    seen = {point["number"]: point for point in cast("list[Json]", run.summary["points"])}
    return {
        repr((sorted(cast("Json", point["setting"]).items()), sorted(cast("Json", point["load"]).items()))): seen[
            point["number"]
        ]
        for point in cast("list[Json]", run.record["points"])
        if point["number"] in seen
    }


def _capacities(run: _Run) -> list[Json]:
    return cast("list[Json]", run.summary["capacities"])


def _searched(capacity: Json) -> Json:
    """A capacity in the form of a point."""
    found = capacity["lower"]
    decided = found is not None and capacity["finished"] and capacity["limited_by"] in {None, "server"}
    return {
        "point": capacity["point"],
        "outcome": "ok" if decided else "invalid",
        "reason": capacity["text"],
        "figures": {CAPACITY: {"median": found}} if decided else {},
    }


def _median(point: Json, figure: str) -> float | None:
    if point["outcome"] not in CARRIED:
        return None
    found = cast("dict[str, Json]", point["figures"]).get(figure)
    return None if found is None else cast("float", found["median"])
