"""What has to be the same for runs of two sides to be compared, and what of it is not."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

from plimsoll_lab.store.run_record import EnvironmentRecord, RunRecord

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
OF_MACHINE = (
    *("system", "machine", "cpu", "cpus", "memory", "hypervisor"),
    *("cpu_governor", "clocksource", "transparent_hugepage", "io_uring_disabled"),
)
"""Those of them that are alike in every namespace and process of a machine."""
CALLED = {"system": "kernel", "cpu": "CPU", "cpus": "number of CPUs", "cpu_governor": "CPU governor"}
"""What they are called in a sentence, where that is not their name."""
MEMORY_TOLERATED = 0.02
"""A kernel reserves a little more or less of the same memory from boot to boot."""
WARM_UP, CAPTURE = "warm-up", "capture of packets"
"""The settings of the runs that have to be the same, too."""
NAMED = 3
"""Runs of a side that have a value otherwise than the rest; more are counted."""


NamedRun = tuple[str, RunRecord]
"""A run, and its name for a person."""


def differences_between(sides: Sequence[Sequence[NamedRun]]) -> list[str]:
    """Why the runs of two sides cannot be told apart from their environments; empty where they can.
    Each property is told once, with the runs that have each of its values, and once what is not
    known of some runs.
    """
    found: dict[str, str] = {}
    unknown: dict[str, list[str]] = {}
    for name in (*SAME, WARM_UP, CAPTURE):
        told = [[(run, _property(name, record)) for run, record in side] for side in sides]
        groups = _alike_runs(name, told)
        if len(groups) > 1:
            where = [(value, _where(runs, [len(side) for side in sides])) for value, runs in groups]
            found[name] = ", ".join(f"{_shown(value)} in {runs}" for value, runs in where)
            if len(groups) == 2 and (lacking := [runs for value, runs in where if value is None]):  # noqa: PLR2004 - one that is known
                unknown.setdefault(lacking[0], []).append(name)
    several = {runs: names for runs, names in unknown.items() if len(names) > 1}
    merged = {name for names in several.values() for name in names}
    return [
        *(f"{_words([name])}: {told}" for name, told in found.items() if name not in merged),
        *(f"{_words(names)}: not known in {runs}" for runs, names in several.items()),
    ]


def asked_of_run(run: RunRecord) -> tuple[object, ...]:
    """What a run asked for at all of its points, and has to be the same where they are compared."""
    return tuple(_property(name, run) for name in (WARM_UP, CAPTURE))


def changes_of_machine(before: EnvironmentRecord, now: EnvironmentRecord) -> list[str]:
    """What of a machine is not as it was, each in words: `the number of CPUs was 2 and is 4`."""
    then, here = before.to_json(), now.to_json()
    return [
        f"the {CALLED.get(name, _words([name]))} was {_shown(then[name])} and is {_shown(here[name])}"
        for name in OF_MACHINE
        if then[name] is not None and not _alike(name, then[name], here[name])
    ]


def _property(name: str, run: RunRecord) -> object:
    if name == WARM_UP:
        return run.settings.warm_up or "none"
    if name == CAPTURE:
        return _captures(run)
    # Of a cluster the lab's own machine measures nothing.
    hosts = {host.name: host.environment.get(name) for host in run.hosts}
    if not hosts:
        return run.environment.to_json()[name]
    first = next(iter(hosts.values()))
    return first if all(_alike(name, first, each) for each in hosts.values()) else hosts


def _captures(run: RunRecord) -> str | None:
    """Whether packets were captured, by the run's suite; None where that cannot be read."""
    try:
        tables = tomllib.loads(run.suite.text)
    except ValueError:
        return None
    fast = tables.get("fast", {}) if run.request.fast else {}
    asked = {**tables, **fast, **run.request.changes}.get("capture", False)
    return "yes" if asked else "no"


def _alike_runs(name: str, sides: Sequence[Sequence[tuple[str, object]]]) -> list[tuple[object, list[list[str]]]]:
    """Each value of a property, with the runs of each side that have it."""
    groups: list[tuple[object, list[list[str]]]] = []
    for place, side in enumerate(sides):
        for run, value in side:
            own = next((each for each in groups if _alike(name, each[0], value)), None)
            if own is None:
                own = (value, [[] for _ in sides])
                groups.append(own)
            own[1][place].append(run)
    return groups


def _where(runs: Sequence[Sequence[str]], of: Sequence[int]) -> str:
    """`A`, or `A and 2 of 5 runs of B (0002, 0004)`."""
    parts = []
    for letter, own, count in zip("AB", runs, of, strict=True):
        more = f" and {len(own) - NAMED} more" if len(own) > NAMED else ""
        if own:
            named = f"{len(own)} of {count} runs of {letter} ({', '.join(own[:NAMED])}{more})"
            parts.append(letter if len(own) == count else named)
    return " and ".join(parts)


def _words(names: Sequence[str]) -> str:
    return ", ".join(name.replace("_", " ") for name in names)


def _alike(name: str, a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_alike(name, a[key], b[key]) for key in a)
    if name == "memory" and isinstance(a, str) and isinstance(b, str):
        sizes = [int(match[0]) for text in (a, b) if (match := re.match(r"\d+", text))]
        return len(sizes) == 2 and abs(sizes[0] - sizes[1]) <= MEMORY_TOLERATED * max(sizes)  # noqa: PLR2004 - a pair
    return a == b


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(each)}" for key, each in value.items())
    return "not known" if value is None else str(value)
