"""What is known of a trial although others had the CPUs of the server's machine at some moments of
it: another guest, another program, or a quota. Pure.

The machine is read once a second, and so are the answers counted. Nothing is cut out of the window:
its figures stay as they were measured, and some get bounds. A delay makes no request faster, and
none that was answered before it slower. So without the delays a percentile q of N requests, of
which m were answered in such seconds, was between those at ranks qN - m and qN. In a closed loop m
counts what the delays suppressed, too: such requests are taken to be no slower than the others.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from plimsoll_lab.stats.cut import Span
from plimsoll_lab.store.program_output import HostRow, LoadSummary, Second, read_output
from plimsoll_lab.store.records import Json, TakenRecord
from plimsoll_lab.trial.disturbance import RATE_CUT, RATES
from plimsoll_lab.trial.losses import KNOWN, shift_of
from plimsoll_lab.trial.observation import FOREIGN_CORES_TOLERATED, WITHHELD_TOLERATED

MUCH_WITHHELD = 0.1
"""A hypervisor that withholds this much of a core for a second stops somebody for milliseconds, on
machines of few CPUs. Less is what guests lose all the time."""
LEAST_WITHHELD_S = 0.025
"""More than two ticks of the kernel's clock, which may be rounding."""
BOUNDED = ("response_time_us", "service_time_us")
"""Times that each request has, with its moment: of others it is not known how many a moment met."""
NAMES = (*KNOWN, "max")
"""What of them has bounds."""
WHOLE_S = 0.9
"""Of a shorter row, the first of a window, the backlog is a matter of luck."""
BACK = 1.5
"""The backlog is back once a second has no more than so many times that of before."""


def is_much(withheld_s: float, long_s: float) -> bool:
    """Whether a hypervisor withheld much in a moment of this length."""
    return withheld_s > max(LEAST_WITHHELD_S, MUCH_WITHHELD * long_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Others:
    """How to tell what others used of the server's machine."""

    elsewhere: Collection[str]
    """Parts of the trial that ran on other machines."""
    generator_cores: float | None
    """What the measured generators on this machine used over the whole window, evenly; None where
    one does not tell, or its load grows."""
    were_busy: bool = False
    """Whether other programs used much of the machine, over the whole window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loops:
    """Whether a load waits for its answers."""

    closed: bool
    """Whether all of its loops do: its backlog does not outlast a moment."""
    suppress: bool
    """Whether some do: a moment keeps requests from being made."""
    counted: bool = False
    """Whether it ends with a number of requests, and lasts the longer for a moment."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """What a generator says of one second of its window."""

    start: float
    end: float
    answered: int
    slowest_s: float
    backlog: float
    """Requests under way, on average (Little's law)."""


def taken_moments(timeline: Sequence[Json], others: Others) -> list[Span]:
    """When others had the CPUs, in seconds since the first reading; in order, apart from each
    other. None at all where other programs were busy and it is not known when.
    """
    found: list[Span] = []
    for before, after in itertools.pairwise([read_output(HostRow, each, "a host") for each in timeline]):
        foreign_s = _foreign_s(before, after, others)
        if others.were_busy and foreign_s is None:
            return []
        if _is_taken(before, after, foreign_s or 0.0):
            start = found.pop()[0] if found and found[-1][1] == before.at_s else before.at_s
            found.append((start, after.at_s))
    return found


def _is_taken(before: HostRow, after: HostRow, foreign_s: float) -> bool:
    long_s = after.at_s - before.at_s
    steal_s, throttled_s = (_rise(before, after, name) or 0.0 for name in ("steal_s", "throttled_s"))
    tolerated = foreign_s <= FOREIGN_CORES_TOLERATED * long_s and throttled_s <= WITHHELD_TOLERATED * long_s
    return is_much(steal_s, long_s) or not tolerated


def _rise(before: HostRow, after: HostRow, name: str) -> float | None:
    first, last = before.machine.get(name), after.machine.get(name)
    return None if first is None or last is None else last - first


def _foreign_s(before: HostRow, after: HostRow, others: Others) -> float | None:
    """CPU seconds of programs that are no part of the trial; None where some part does not tell. Of
    generators the use of the whole window alone is known: it counts as even.
    """
    busy_s, softirq_s = _rise(before, after, "busy_s"), _rise(before, after, "softirq_threads_s")
    ours_s = others.generator_cores
    if busy_s is None or softirq_s is None or ours_s is None:
        return None
    ours_s *= after.at_s - before.at_s
    for name, cost in after.parts.items():
        if name in others.elsewhere:
            continue
        first, last = before.parts.get(name, {}).get("cpu_s"), cost.get("cpu_s")
        if first is None or last is None:
            return None
        ours_s += last - first
    return busy_s - softirq_s - ours_s


def taken_record(
    moments: Sequence[Span],
    seconds: Sequence[Sequence[Json]],
    load: LoadSummary,
    *,
    opened_unix_s: float,
    loops: Loops,
    lost: int = 0,
) -> TakenRecord | None:
    """What is known of a trial with these moments, which are in seconds since its window opened.

    `seconds` has each generator's rows. `lost` more requests were too slow, as packets were lost.
    None without moments or rows, and where they are most of the window: such a machine is that of
    all trials, and no moment's. Where the delays may have lasted for most of it, times have the
    measured value for their upper bound and no lower one.
    """
    parts = [
        _Part.of([row for row in _rows(each, opened_unix_s) if row.end > row.start], moments, closed=loops.closed)
        for each in seconds
    ]
    told = [each for each in parts if each is not None]
    if not told or len(told) < len(parts) or max(each.met for each in told) > RATE_CUT:
        return None
    delayed = sum(each.delayed + (each.suppressed if loops.suppress else 0) for each in told)
    if not delayed:
        return None
    share, requests = max(each.share for each in told), delayed + lost
    is_known = share <= RATE_CUT and 2 * requests < load.response_time_us.count
    bounds = _times(load, requests if is_known else None)
    if loops.counted:
        bounds |= _of_a_count(load, max(each.taken_s for each in told))
    else:
        bounds |= _rates(load, [each.rate for each in told], closed=loops.suppress)
    return TakenRecord(moments=len(moments), share=share, requests=requests, bounds=bounds)


def _rows(rows: Sequence[Json], opened_unix_s: float) -> Iterator[_Row]:
    for row in (read_output(Second, each, "the generator") for each in rows):
        if row.phase == "window":
            start, times = row.from_unix_s - opened_unix_s, row.response_time_us
            yield _Row(
                start=start,
                end=start + row.covers_s,
                answered=row.completed,
                slowest_s=(times.max or 0.0) / 1e6,
                backlog=times.count * (times.mean or 0.0) / 1e6 / row.covers_s if row.covers_s else 0.0,
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """What the moments did to one generator's window."""

    met: float
    """The part of its window that the seconds make up which they meet."""
    share: float
    """The same of all seconds in which they may have delayed answers."""
    taken_s: float
    """How long these are."""
    delayed: int
    """Requests that were answered in them."""
    rate: float | None
    """Requests answered a second in the rest; None where there is none."""
    suppressed: int
    """Requests that a closed loop would have made besides."""

    @staticmethod
    def of(rows: Sequence[_Row], moments: Sequence[Span], *, closed: bool) -> _Part | None:
        """None where a generator tells nothing of its seconds."""
        if not rows:
            return None
        met = _met(rows, moments)
        touched = _touched(rows, met, closed=closed)
        whole_s, met_s, taken_s = (_length_s(rows, each) for each in ([True] * len(rows), met, touched))
        delayed = sum(row.answered for row, is_touched in zip(rows, touched, strict=True) if is_touched)
        rate = None
        if taken_s < whole_s:
            rate = (sum(row.answered for row in rows) - delayed) / (whole_s - taken_s)
        return _Part(
            met=met_s / whole_s,
            share=taken_s / whole_s,
            taken_s=taken_s,
            delayed=delayed,
            rate=rate,
            suppressed=max(0, math.ceil((rate or 0.0) * taken_s) - delayed),
        )


def _length_s(rows: Sequence[_Row], which: Sequence[bool]) -> float:
    return math.fsum(row.end - row.start for row, is_one in zip(rows, which, strict=True) if is_one)


def _met(rows: Sequence[_Row], moments: Sequence[Span]) -> list[bool]:
    """Which seconds a moment meets, or have a slowest answer that may be to a request from before
    its end.
    """
    return [
        any(row.start < end and row.end > start for start, end in moments)
        or any(end <= row.start < end + row.slowest_s for _, end in moments)
        for row in rows
    ]


def _touched(rows: Sequence[_Row], met: Sequence[bool], *, closed: bool) -> list[bool]:
    """Which seconds have answers that a moment may have delayed: those of it, and those that follow
    until the backlog is what it was before the first. Where no whole second came before, that is
    unknown: the queue of an open loop may have lasted to the end, and that of a closed one is as
    long as its connections are many.
    """
    first = met.index(True) if True in met else len(met)
    before = [row.backlog for row in rows[:first] if row.end - row.start >= WHOLE_S]
    usual = statistics.median(before) if before else math.inf if closed else -math.inf
    touched = list(met)
    for place in range(1, len(rows)):
        touched[place] |= touched[place - 1] and rows[place].backlog > BACK * usual
    return touched


def _times(load: LoadSummary, requests: int | None) -> dict[str, tuple[float, float]]:
    """The percentiles, the mean and the maximum of each time between that without so many of the
    slowest and as it was measured; None where it is not known how many.
    """
    found = {}
    for kind in BOUNDED:
        shift = shift_of(load, kind, requests or 0)
        for name in NAMES if shift is not None else ():
            value = getattr(getattr(load, kind), name)
            if value is not None and shift is not None:
                found[f"{kind}.{name}"] = (0.0 if requests is None else value * shift.factors[name], value)
    return found


def _rates(load: LoadSummary, rates: Sequence[float | None], *, closed: bool) -> dict[str, tuple[float, float]]:
    """Rates between that of the whole window and that of the seconds without moments, if that was
    higher; those of an open loop no higher than what was due.
    """
    known = [each for each in rates if each is not None]
    highest = [sum(known)] if known and len(known) == len(rates) else []
    if not closed and load.requests.scheduled and load.elapsed_s:
        highest.append(load.requests.scheduled / load.elapsed_s)
    if not load.completed_rate or not highest:
        return {}
    factor = max(1.0, min(highest) / load.completed_rate)
    told = {name: value for name in RATES if (value := getattr(load, name)) is not None}
    return {name: (value, value * factor) for name, value in told.items()}


def _of_a_count(load: LoadSummary, taken_s: float) -> dict[str, tuple[float, float]]:
    """The time that a number of requests took, and its rates: at least that of the seconds without
    moments.
    """
    if taken_s >= load.elapsed_s:
        return {}
    factor = load.elapsed_s / (load.elapsed_s - taken_s)
    told = {name: value for name in RATES if (value := getattr(load, name)) is not None}
    return {name: (value, value * factor) for name, value in told.items()} | {
        "elapsed_s": (load.elapsed_s - taken_s, load.elapsed_s)
    }
