"""What is known of a window that was disturbed for some moments. Pure.

Time is cut out, and not requests: a span begins a fixed lead before a moment, and ends once the
backlog is back at its usual level. A request is cut by its intended start, whatever became of it,
so that slow ones are not chosen. The cut time leaves the rate's denominator too.

How long the m requests that were due in the cut time would have taken is unknown. So a percentile q
of all N lies between the kept order statistics at ranks qN - m and qN. A kept request that was
still in flight in a moment was delayed at most: it may have been faster. A request without an
answer counts at its age, where that is at least the median of the answered ones.
"""

from __future__ import annotations

import bisect
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Span = tuple[float, float]

LEAD_S = 0.01
"""A request that is due so shortly before a moment is in flight when it begins."""
QUANTILES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99, "p99_9": 0.999}
"""The percentiles that trials have as figures."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bounded:
    """A percentile without the disturbed time, in seconds."""

    low: float
    """Lower bound; 0 where nothing bounds it."""
    estimate: float
    """That of the kept requests."""
    high: float
    """Upper bound; infinite where nothing bounds it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """A window without its disturbed time."""

    spans: Sequence[Span]
    """What is cut out, in seconds; in order, apart from each other."""
    share: float
    """The part of the window that is cut out."""
    requests: int
    """Requests that were due in the cut time, and those that the disturbance suppressed."""
    touched: int
    """Kept requests that were in flight in a moment."""
    rate: float | None
    """Requests completed a second in the kept time; None where none is kept."""
    percentiles: Mapping[str, Bounded]
    """Each percentile; empty where no request is kept."""


def cut_out(
    starts: Sequence[float],
    times: Sequence[float],
    moments: Sequence[Span],
    window: Span,
    *,
    closed: bool,
    unanswered: Sequence[Span] = (),
    unseen: int = 0,
) -> Cut:
    """Cut the moments out of a window.

    `starts` are the requests' intended starts and `times` their response times, all in seconds.
    `closed` says that a connection waits for its answer: a disturbance suppresses requests then.
    `unanswered` are requests without an answer: from their intended starts to when they timed out,
    or the window closed. Of `unseen` more it is not known when they were due.
    """
    ends = [start + time for start, time in zip(starts, times, strict=True)]
    spans = cut_spans(
        [*starts, *(start for start, _ in unanswered)], [*ends, *(end for _, end in unanswered)], moments, window
    )
    cut_s = sum(end - start for start, end in spans)
    length_s = window[1] - window[0]
    kept_s = length_s - cut_s
    longest: list[float] = []
    surest: list[float] = []
    due = inside = completed = 0
    median = statistics.median(times) if times else 0.0
    seen = [(start, time, end, True) for start, time, end in zip(starts, times, ends, strict=True)]
    seen += [(start, end - start, end, False) for start, end in unanswered if end - start >= median]
    for start, time, end, answered in seen:
        here = window[0] <= start < window[1]
        # A span ends as an answer brings the backlog back: that answer is of the cut time.
        in_time = answered and window[0] <= end < window[1]
        completed += in_time and not any(first < end <= last for first, last in spans)
        if any(first <= start < last for first, last in spans):
            due += here
            continue
        inside += here
        longest.append(time)
        if not any(start < last and end > first for first, last in moments):
            surest.append(time)
    if closed and kept_s > 0:
        # A connection that waits sends nothing: so many would have been due.
        due = max(due, math.ceil(inside / kept_s * cut_s))
    return Cut(
        spans=spans,
        share=cut_s / length_s,
        requests=due,
        touched=len(longest) - len(surest),
        rate=completed / kept_s if kept_s > 0 else None,
        percentiles=_percentiles(sorted(longest), sorted(surest), due + unseen) if longest else {},
    )


def cut_spans(starts: Sequence[float], ends: Sequence[float], moments: Sequence[Span], window: Span) -> list[Span]:
    """The time to cut: each moment with the lead before it, until the backlog is back."""
    events = sorted([*((start, 1) for start in starts), *((end, -1) for end in ends)])
    at = [when for when, _ in events]
    in_flight = [0, *itertools.accumulate(step for _, step in events)]
    usual = _usual(sorted(starts), sorted(ends), moments)
    spans: list[Span] = []
    for start, end in sorted(moments):
        passed = bisect.bisect_right(at, end)
        back = end
        if in_flight[passed] > usual:
            left = zip(at[passed:], in_flight[passed + 1 :], strict=True)
            back = next(when for when, count in left if count <= usual)
        first, last = max(window[0], start - LEAD_S), min(window[1], back)
        if first >= last:
            continue
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def _usual(starts: Sequence[float], ends: Sequence[float], moments: Sequence[Span]) -> float:
    """The median number of requests in flight that one finds which is due outside of all moments,
    itself among them.
    """
    found = [
        bisect.bisect_right(starts, at) - bisect.bisect_right(ends, at)
        for at in starts
        if not any(first - LEAD_S <= at < last + LEAD_S for first, last in moments)
    ]
    return statistics.median(found) if found else 0.0


def _percentiles(longest: Sequence[float], surest: Sequence[float], due: int) -> dict[str, Bounded]:
    every, unsure = len(longest) + due, due + len(longest) - len(surest)
    found = {}
    for name, quantile in QUANTILES.items():
        rank = math.ceil(quantile * every)
        low = rank - unsure
        found[name] = Bounded(
            low=surest[low - 1] if low > 0 else 0.0,
            estimate=longest[math.ceil(quantile * len(longest)) - 1],
            high=longest[rank - 1] if rank <= len(longest) else math.inf,
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Shift:
    """What leaving out the slowest requests does to response times."""

    factors: Mapping[str, float]
    """How far it brings each percentile, the mean and the maximum down, as factors of 0 to 1."""
    left: float
    """The sum of the others' times."""
    slow: float
    """The sum of the times left out."""


def without_slowest(buckets: Sequence[tuple[float, int]], left_out: int) -> Shift | None:
    """Leave out the slowest requests; None where none is left.

    `buckets` are response times, in order, each with the number of requests that took it.
    `left_out` requests were slower than they would have been, and it is unknown which: a percentile
    q of all N was between ranks qN - m and qN.
    """
    total = sum(count for _, count in buckets)
    kept = total - left_out
    if kept <= 0:
        return None
    ends = list(itertools.accumulate(count for _, count in buckets))
    ranks = {name: math.ceil(quantile * total) for name, quantile in QUANTILES.items()} | {"max": total}

    def at(rank: int) -> float:
        return buckets[bisect.bisect_left(ends, rank)][0]

    factors = {name: at(rank - left_out) / at(rank) if rank > left_out else 0.0 for name, rank in ranks.items()}
    whole = sum(value * count for value, count in buckets)
    left = 0.0
    for (value, count), end in zip(buckets, ends, strict=True):
        left += value * max(0, min(count, kept - (end - count)))
    return Shift(factors=factors | {"mean": (left / kept) / (whole / total)}, left=left, slow=whole - left)
