"""What happened over the time of a trial: rates, connections, CPU, memory, retransmissions and
errors on one time axis, which begins at 0 where the window opens.

A point is shown by one trial: of its valid trials the one with the median completed rate.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.records import TrialRecord, untold_figures
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.timelines import read_timeline

SHORTEST_S = 0.2
"""Of a second that a window cuts off, a shorter part gives no rate and no percentiles: chance
decides them."""
CPU_STEP_S = 0.5
"""Ten samples a second of a clock with ticks of 10 ms would draw the ticks."""
CLOSING_S = 0.05
"""Connections are counted as a window closes, while the generator closes them: a count so near the
end is no longer of the window."""
BANDS = ("min", "p50", "p75", "p90", "p99", "max")
"""Between two neighbours lies a known share of a second's requests."""
CAUSES = ("connect", "read", "write", "timeout", "mismatch", "closed", "status")
"""Causes of errors, by the generator's names."""
SHARES = (50, 25, 15, 9, 1)
"""That share, in percent."""

RATE = "completed_rate"
"""The figure by which a trial stands for its point."""

Dots = list[tuple[float, float]]
"""Seconds since the window opened, and a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Band:
    """The response times of one second between two percentiles."""

    at_s: float
    """Where the second begins."""
    to_s: float
    """Where it ends."""
    low_us: float
    """The lower percentile."""
    high_us: float
    """The higher one."""
    share: int
    """Percent of the second's requests that lie between them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """The course of one trial."""

    trial: int
    """Its number."""
    contender: str
    """Whose it is; `all` where nothing competes."""
    series: Mapping[str, Dots]
    """By quantity; without those that were not recorded."""
    bands: Sequence[Band]
    """Response times over time."""
    starts_s: float
    """Where the warm-up begins: 0 or less."""
    ends_s: float
    """Where the window closes."""
    generators: int = 1
    """How many measured; of several the percentiles of a second cannot be put together."""
    untold: AbstractSet[str] = frozenset()
    """Figures that are the generator's own lateness by half or more."""


def courses(run: RunRecord, path: Path, trials: Sequence[TrialRecord]) -> dict[str, list[Course]]:
    """By the setting of the other axes, one course a contender; empty where no timeline is
    stored.
    """
    found: dict[str, list[Course]] = {}
    servers = {point.number: point.place.server for point in run.points}
    for level, contender, trial in typical_trials(run, trials):
        course = _course(path, trial, contender, servers[trial.point])
        if course is not None:
            found.setdefault(level, []).append(course)
    return found


def typical_trials(run: RunRecord, trials: Sequence[TrialRecord]) -> Iterator[tuple[str, str, TrialRecord]]:
    """Of each point that has a valid trial: the setting of the other axes, the contender, and the
    trial that stands for the point.
    """
    compare = run.family.compare
    for point in (each for each in run.points if not each.control):
        valid = [trial for trial in trials if trial.point == point.number and trial.outcome == "ok"]
        if not valid:
            continue
        # A trial whose moments were cut may have no rate: it is no slow one.
        valid = [trial for trial in valid if RATE in trial.figures] or valid
        valid.sort(key=lambda trial: trial.figures.get(RATE, 0.0))
        contender = formatting.contender(point.setting, compare) if compare else "all"
        level = formatting.setting({key: value for key, value in point.setting.items() if key != compare})
        yield level, contender, valid[(len(valid) - 1) // 2]


def _course(path: Path, trial: TrialRecord, contender: str, server: str | None) -> Course | None:
    by_figure: dict[tuple[str, str], Dots] = defaultdict(list)
    for _, at_s, part, figure, value in read_timeline(path, trial.number):
        by_figure[part, figure].append((at_s, value))
    if not by_figure:
        return None
    ends_s = trial.machine.get("window_s") or max(at for dots in by_figure.values() for at, _ in dots)
    loads = [each["name"] for each in trial.load.get("generators") or ()] or ["load"]
    warm = [at for part in loads for at, _ in by_figure.get((part, "warm_up.completed"), ())]
    # The last connects may be answered some milliseconds before the window: that is no warm-up.
    starts_s = min([0.0, *(at for at in warm if at <= -SHORTEST_S)])
    series = _rates(by_figure, loads, ends_s)
    intended = (trial.load.get("summary") or {}).get("intended_rate")
    if isinstance(intended, int | float) and "completed" in series:
        series["intended"] = [(0.0, float(intended)), (ends_s, float(intended))]
    cpu = _per_second(by_figure.get(("server", "cpu_s"), []), CPU_STEP_S)
    series |= {"cpu": cpu} if cpu else {}
    memory = by_figure.get(("server", "memory_bytes"), [])
    series |= {"memory": memory} if len(memory) > 1 else {}
    hosts = {part for part, figure in by_figure if figure == "established"}
    # Of an older run of several hosts the record does not say which one is the server's.
    host = next((each for each in hosts if len(hosts) == 1 or each == f"host {server}"), None)
    if host is not None:
        series["connections"] = [dot for dot in by_figure[host, "established"] if dot[0] < ends_s - CLOSING_S]
        lost = _per_second(by_figure.get((host, "retransmitted_segments"), []), CPU_STEP_S)
        series |= {"retransmissions": lost} if lost else {}
    bands = _bands(by_figure, ends_s) if len(loads) == 1 else []
    return Course(
        trial=trial.number,
        contender=contender,
        series=series,
        bands=bands,
        starts_s=starts_s,
        ends_s=ends_s,
        generators=len(loads),
        untold=untold_figures(trial),
    )


def _rates(by_figure: Mapping[tuple[str, str], Dots], loads: Sequence[str], ends_s: float) -> dict[str, Dots]:
    """Requests per second that were completed, and that failed, by cause where the generator told
    causes by the second; of several generators together.
    """
    series: dict[str, Dots] = {}
    told = any(figure.startswith("errors.") for part, figure in by_figure if part in loads)
    errors = [f"errors.{each}" for each in CAUSES] if told else ["failed", "timed_out"]
    for name in ("completed", *errors):
        phases = ((f"warm_up.{name}", -math.inf, 0.0), (name, 0.0, ends_s))
        dots = [dot for figure, begin, end in phases for dot in _clipped(by_figure, loads, figure, begin, end)]
        series |= {name: dots} if dots else {}
    return series


def _clipped(
    by_figure: Mapping[tuple[str, str], Dots], loads: Sequence[str], figure: str, begin: float, end: float
) -> Dots:
    """A count of each second as a rate over the part of that second which lies in a phase.

    The seconds of several generators need not begin together: of a second of another each part has
    its share of the count.
    """
    counted = sorted(
        (low, high, count)
        for part in loads
        for at_s, count in by_figure.get((part, figure), ())
        if (low := max(at_s, begin)) < (high := min(at_s + 1, end))
    )
    dots = []
    for low, high in _cover(counted):
        if high - low >= SHORTEST_S:
            near = counted[bisect_left(counted, (low - 1,)) : bisect_left(counted, (high,))]
            counts = (count * max(0.0, min(high, to) - max(low, since)) / (to - since) for since, to, count in near)
            dots.append(((low + high) / 2, math.fsum(counts) / (high - low)))
    return dots


def _cover(counted: Sequence[tuple[float, float, float]]) -> Iterator[tuple[float, float]]:
    """All the time that seconds in order count, once: each step lasts as long as the last of those
    that have begun.
    """
    place, reached = 0, -math.inf
    while place < len(counted):
        low = max(reached, counted[place][0])
        while place < len(counted) and counted[place][0] <= low:
            reached = max(reached, counted[place][1])
            place += 1
        if low < reached:
            yield low, reached


def _per_second(dots: Dots, step_s: float) -> Dots:
    """The growth per second of a count, over steps of at least this length."""
    found = []
    last = dots[0] if dots else (0.0, 0.0)
    for at_s, value in dots[1:]:
        if at_s - last[0] >= step_s:
            found.append(((at_s + last[0]) / 2, (value - last[1]) / (at_s - last[0])))
            last = (at_s, value)
    return found


def _bands(by_figure: Mapping[tuple[str, str], Dots], ends_s: float) -> list[Band]:
    times = {name: dict(by_figure.get(("load", f"response_time_us.{name}"), ())) for name in BANDS}
    counts = dict(by_figure.get(("load", "response_time_us.count"), ()))
    found = []
    for at_s, low in times["min"].items():
        start, end = max(at_s, 0.0), min(at_s + 1, ends_s)
        if not counts.get(at_s) or end - start < SHORTEST_S:
            continue
        below = low
        for name, share in zip(BANDS[1:], SHARES, strict=True):
            above = times[name].get(at_s, below)
            found.append(Band(at_s=start, to_s=end, low_us=below, high_us=above, share=share))
            below = above
    return found
