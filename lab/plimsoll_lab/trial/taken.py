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
    closed: bool,
    counted: bool = False,
    lost: int = 0,
) -> TakenRecord | None:
    """What is known of a trial with these moments, which are in seconds since its window opened.

    `seconds` has each generator's rows. Of a `closed` loop the moments suppressed requests, and a
    `counted` one lasted the longer for them. `lost` more requests were too slow, as packets were
    lost. None without moments or rows, and where they are most of the window: such a machine is
    that of all trials, and no moment's.
    """
    parts = [_Part.of([row for row in _rows(each, opened_unix_s) if row.end > row.start], moments) for each in seconds]
    told = [each for each in parts if each is not None]
    if not moments or not told or len(told) < len(parts):
        return None
    share = max(each.share for each in told)
    requests = lost + sum(each.delayed + (each.suppressed if closed else 0) for each in told)
    if share > RATE_CUT or requests == lost or 2 * requests >= load.response_time_us.count:
        return None
    bounds = _times(load, requests) | _rates(load, sum(each.rate for each in told), closed=closed, counted=counted)
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

    share: float
    """The part of its window that they took."""
    delayed: int
    """Requests that were answered in it."""
    rate: float
    """Requests answered a second in the rest."""
    suppressed: int
    """Requests that a closed loop would have made besides."""

    @staticmethod
    def of(rows: Sequence[_Row], moments: Sequence[Span]) -> _Part | None:
        """None where a generator tells nothing of its seconds, or nothing of them is left."""
        touched = _touched(rows, moments)
        taken = [row for row, is_touched in zip(rows, touched, strict=True) if is_touched]
        rest = [row for row, is_touched in zip(rows, touched, strict=True) if not is_touched]
        rest_s, taken_s = (math.fsum(row.end - row.start for row in each) for each in (rest, taken))
        if not rest_s:
            return None
        delayed, rate = sum(row.answered for row in taken), sum(row.answered for row in rest) / rest_s
        suppressed = max(0, math.ceil(rate * taken_s) - delayed)
        return _Part(share=taken_s / (taken_s + rest_s), delayed=delayed, rate=rate, suppressed=suppressed)


def _touched(rows: Sequence[_Row], moments: Sequence[Span]) -> list[bool]:
    """Which seconds have answers that a moment may have delayed: those that it meets, those whose
    slowest answer may be to a request from before its end, and those that follow such a second
    until the backlog is back.
    """
    met = [
        any(row.start < end and row.end > start for start, end in moments)
        or any(end <= row.start < end + row.slowest_s for _, end in moments)
        for row in rows
    ]
    first = met.index(True) if True in met else len(met)
    usual = statistics.median([row.backlog for row in rows[:first]] or [0.0])
    touched = list(met)
    for place in range(1, len(rows)):
        touched[place] |= touched[place - 1] and rows[place].backlog > BACK * usual
    return touched


def _times(load: LoadSummary, requests: int) -> dict[str, tuple[float, float]]:
    """The percentiles and the mean of each time between that without so many of the slowest and as
    it was measured.
    """
    found = {}
    for kind in BOUNDED:
        shift = shift_of(load, kind, requests)
        for name in NAMES if shift is not None else ():
            value = getattr(getattr(load, kind), name)
            if value is not None and shift is not None and shift.factors[name] > 0:
                found[f"{kind}.{name}"] = (value * shift.factors[name], value)
    return found


def _rates(load: LoadSummary, rate: float, *, closed: bool, counted: bool) -> dict[str, tuple[float, float]]:
    """Rates between that of the whole window and that of the seconds without moments, if they were
    higher; the time that a number of requests took, likewise.
    """
    if not load.completed_rate:
        return {}
    factor = max(1.0, rate / load.completed_rate)
    # What was due in an open loop was due with the moments, too.
    told = {name: getattr(load, name) for name in RATES if closed or name != "offered_rate"}
    found = {name: (value, value * factor) for name, value in told.items() if value is not None}
    return found | ({"elapsed_s": (load.elapsed_s / factor, load.elapsed_s)} if counted else {})
