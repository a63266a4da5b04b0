"""HdrHistogram: percentile distributions (.hgrm), and logs of interval histograms (.hlog).

Sources: AbstractHistogram.outputPercentileDistribution and HistogramLogWriter of
github.com/HdrHistogram/HdrHistogram. Neither says what unit its values have.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll_lab.foreign.result import ForeignFileError, Options, Result, Second, check_order, percentile_key, unjudged
from plimsoll_lab.store.histograms import decode
from plimsoll_lab.store.records import Json, ResultWarning

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

UNITS_US = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}
PERCENTS = (50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 99.99)
LONGEST_NS = 24 * 3_600_000_000_000
"""A day: HdrHistogram has to be given its highest value."""
DIGITS = 3
"""Significant digits of the histogram that is kept."""
_NUMBER = r"(\d+(?:\.\d*)?)"
ROW = re.compile(rf"\s*{_NUMBER}[\s,]+{_NUMBER}[\s,]+(\d+)(?:[\s,]+(?:[\d.]+|inf|Infinity))?\s*")
HEAD = re.compile(r'"?Value"?[\s,]+"?Percentile"?[\s,]+"?TotalCount"?')
MEAN = re.compile(rf"^#\[Mean\s+=\s*{_NUMBER}, StdDeviation\s+=\s*{_NUMBER}\]", re.MULTILINE)
OWN_UNIT = re.compile(r"^#\[.*response time in (ns|us|ms|s)\]", re.MULTILINE)
STARTED = re.compile(rf"#\[(StartTime|BaseTime): *{_NUMBER} ")
INTERVAL = re.compile(rf'(?:Tag=([^,]*),)?{_NUMBER},{_NUMBER},{_NUMBER},"?([A-Za-z0-9+/=]+)"?')
YEAR_S = 365 * 86_400
"""Intervals a year before the start of a log count from its start (HistogramLogReader)."""
SECOND = (0.9, 1.1)
"""Intervals of this length are drawn over time."""


def is_log(text: str) -> bool:
    """Whether a text is a log of interval histograms."""
    return "Histogram log format" in text or '"StartTimestamp","Interval_Length"' in text


def is_distribution(text: str) -> bool:
    """Whether a text is a percentile distribution."""
    return HEAD.search(text) is not None


def read_distribution(text: str, path: Path, options: Options) -> Result:
    """A .hgrm file. A percentile is the value of the first row that reaches it."""
    own = OWN_UNIT.search(text)
    # --unit is for files that do not tell theirs, and one import may have both.
    factor = _factor(own[1] if own else options.unit, path)
    rows = list(_rows(text, path))
    if not rows:
        raise ForeignFileError(path, "it has no row: value, percentile, total count")
    total = rows[-1][2]
    for (value, share, count), (above, more, counted) in itertools.pairwise(rows):
        if above < value or counted < count or more < share:
            raise ForeignFileError(path, f"its rows do not rise: {above:g} after {value:g}")
    if rows[-1][1] < 1:
        raise ForeignFileError(path, "it ends before its last row, whose percentile is 1")
    times: dict[str, float] = {"count": total}
    for percent in PERCENTS:
        reached = math.ceil(round(percent / 100 * total, 9))
        times[percentile_key(percent)] = next(value for value, _, count in rows if count >= reached) * factor
    times |= {"min": rows[0][0] * factor, "max": rows[-1][0] * factor}
    found = MEAN.search(text)
    if found:
        times |= {"mean": float(found[1]) * factor, "stdev": float(found[2]) * factor}
    check_order(times, path)
    summary: Json = {"requests": {"completed": total}, "response_time_us": times if total else {}}
    warnings = [unjudged("a histogram"), _ORIGIN, _ROWS]
    if options.duration_s:
        summary |= {"elapsed_s": options.duration_s, "completed_rate": total / options.duration_s}
    else:
        warnings.append(_NO_RATE)
    return Result(tool="hdrhistogram", elapsed_s=options.duration_s, summary=summary, warnings=warnings)


def _rows(text: str, path: Path) -> Iterator[tuple[float, float, int]]:
    """Value, share and total count of each row behind the head."""
    lines = enumerate(text.splitlines(), 1)
    # A head that is broken over lines has no row behind it.
    next((line for _, line in lines if HEAD.search(line)), None)
    for number, line in lines:
        if line.strip() and not line.lstrip().startswith("#"):
            found = ROW.fullmatch(line)
            if found is None:
                raise ForeignFileError(path, f"line {number} is no row: value, percentile, total count")
            yield float(found[1]), float(found[2]), int(found[3])


@dataclass(frozen=True, slots=True)
class _Interval:
    """What is kept of one line of a log: a histogram is hundreds of thousands of bytes."""

    start_s: float
    length_s: float
    response_time_us: Mapping[str, float]


def read_log(text: str, path: Path, options: Options) -> Result:
    """A .hlog file: its intervals together, and one by one where they are seconds."""
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415 - only these files need it

    factor = _factor(options.unit, path)
    tags: set[str] = set()
    intervals: list[_Interval] = []
    whole = HdrHistogram(1, LONGEST_NS, DIGITS)
    for tag, interval, histogram in _intervals(text, path, factor):
        tags.add(tag)
        if options.tag is None or tag == options.tag:
            intervals.append(interval)
            for item in histogram.get_recorded_iterator():
                nanoseconds = round(item.value_iterated_to * factor * 1e3)
                if not whole.record_value(max(1, nanoseconds), item.count_at_value_iterated_to):
                    raise ForeignFileError(path, f"a value of {nanoseconds / 1e9:g} s is longer than a day: see --unit")
    if options.tag is None and len(tags) > 1:
        named = ", ".join(each or "(none)" for each in sorted(tags))
        raise ForeignFileError(path, f"it holds histograms of several tags: {named}; choose one with --tag")
    if not intervals:
        raise ForeignFileError(path, f"it has no interval with the tag {options.tag}" if options.tag else "it is empty")
    elapsed_s = sum(each.length_s for each in intervals)
    total = whole.get_total_count()
    times = _statistics(whole, 1e-3)
    check_order(times, path)
    summary: Json = {
        "elapsed_s": elapsed_s,
        "requests": {"completed": total},
        "response_time_us": times,
        "histograms": {"response_time_ns": whole.encode().decode()},
    }
    if elapsed_s > 0:
        summary["completed_rate"] = total / elapsed_s
    return Result(
        tool="hdrhistogram",
        started_unix_s=_started(text, intervals),
        elapsed_s=elapsed_s,
        summary=summary,
        seconds=_seconds(intervals),
        warnings=[unjudged("a histogram"), _ORIGIN],
    )


def _factor(unit: str | None, path: Path) -> float:
    """Microseconds in the unit of a file."""
    if unit is None:
        raise ForeignFileError(path, "such a file does not name its unit: add --unit ns, us, ms or s")
    return UNITS_US[unit]


def _intervals(text: str, path: Path, factor: float) -> Iterator[tuple[str, _Interval, HdrHistogram]]:
    """Each line's tag, interval and histogram."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith(("#", '"StartTimestamp"')):
            continue
        found = INTERVAL.fullmatch(line.strip())
        if found is None:
            raise ForeignFileError(path, f"line {number} is no interval: start,length,maximum,histogram")
        try:
            histogram = decode(found[5])
        except ValueError as error:
            raise ForeignFileError(path, f"the histogram of line {number} cannot be decoded: {error}") from None
        times_us = _statistics(histogram, factor)
        yield found[1] or "", _Interval(float(found[2]), float(found[3]), times_us), histogram


def _started(text: str, intervals: Sequence[_Interval]) -> float | None:
    """When the first interval began; None where the log counts from nothing that it names."""
    told = {name: float(value) for name, value in STARTED.findall(text)}
    first = intervals[0].start_s
    if "BaseTime" in told:
        return told["BaseTime"] + first
    if "StartTime" in told:
        return told["StartTime"] + first if first < told["StartTime"] - YEAR_S else first
    return first if first > YEAR_S else None


def _seconds(intervals: Sequence[_Interval]) -> list[Second]:
    """Each interval as a second of the measurement; none where they have another length."""
    if not all(SECOND[0] <= each.length_s <= SECOND[1] for each in intervals[:-1]):
        return []
    first = intervals[0].start_s
    return [
        Second(
            second=round(each.start_s - first),
            completed=round(each.response_time_us.get("count", 0)),
            failed=0,
            response_time_us=each.response_time_us,
        )
        for each in intervals
    ]


def _statistics(histogram: HdrHistogram, factor: float) -> dict[str, float]:
    """Count, extremes, mean, deviation and percentiles in microseconds; empty without a value."""
    count = histogram.get_total_count()
    if not count:
        return {}
    found = histogram.get_percentile_to_value_dict(list(PERCENTS))
    own = {
        "min": histogram.get_min_value(),
        "mean": histogram.get_mean_value(),
        "stdev": histogram.get_stddev(),
        "max": histogram.get_max_value(),
        **{percentile_key(percent): value for percent, value in found.items()},
    }
    return {"count": count, **{name: value * factor for name, value in own.items()}}


_ORIGIN = ResultWarning(
    code="origin_unknown",
    message="a histogram does not say who measured it, at what load, from which instant a response time runs, "
    "or how many requests failed",
    remedy="state the load with --set; know the rest before comparing",
)
_ROWS = ResultWarning(
    code="percentiles_rounded_up",
    message="a percentile is the value of the first row of the distribution that reaches it",
    remedy="import the log of histograms (.hlog) for exact percentiles",
)
_NO_RATE = ResultWarning(
    code="rate_unknown",
    message="the file does not say how long the measurement lasted, so no rate can be computed",
    remedy="state it with --duration 30s",
)
