"""k6: the summary of `--summary-export` and of `handleSummary()`, in each of its three forms, and
the lines of `--out json`.

Sources: grafana.com/docs/k6, "Custom summary" and "JSON"; the machine-readable summary since 1.5.
Times are in milliseconds.
"""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plimsoll_lab.foreign.result import (
    Amount,
    Foreign,
    ForeignFileError,
    Result,
    Second,
    actual_sends,
    check_order,
    failures_included,
    parse_json,
    percentile_key,
    read_form,
    unjudged,
)
from plimsoll_lab.store.records import Json, ResultWarning

TOOL = "k6"
US = 1000.0
"""Microseconds in a millisecond."""
READ = (
    "http_reqs",
    "http_req_failed",
    "http_req_duration",
    "http_req_duration{expected_response:true}",
    "dropped_iterations",
    "vus_max",
)
"""The metrics that are read."""
DURATION, EXPECTED = "http_req_duration", "http_req_duration{expected_response:true}"
PERCENTILE = re.compile(r"p\((\d+(?:\.\d+)?)\)")
PERCENTS = (50, 75, 90, 95, 99, 99.9, 99.99)
OF_A_SECOND = (50, 75, 90, 99)
DAY_S = 86_400
LONGEST_DAYS = 7
"""Each second of a test takes memory; with one wrong time a test of a minute lasts for years."""


class _Duration(Foreign):
    """The state or the configuration of a test."""

    testRunDurationMs: Amount | None = None  # noqa: N815 - k6's own name
    duration: Amount | None = None


class _Metadata(Foreign):
    k6Version: str = ""  # noqa: N815 - k6's own name


class _Metric(Foreign):
    """A metric of `handleSummary()`; the machine-readable summary also has its name inside."""

    name: str = ""
    values: Mapping[str, object]


class _Values(Foreign):
    """The numbers of one metric."""

    values: Mapping[str, Amount]


class _Results(Foreign):
    metrics: tuple[_Metric, ...]


class _MachineReadable(Foreign):
    config: _Duration = _Duration()
    metadata: _Metadata = _Metadata()
    results: _Results


class _Summary(Foreign):
    metrics: Mapping[str, Mapping[str, object]]
    state: _Duration = _Duration()


def is_summary(document: Mapping[str, object]) -> bool:
    """Whether a JSON document is a summary of k6."""
    results = document.get("results")
    return isinstance(document.get("metrics"), dict) or (isinstance(results, dict) and "metrics" in results)


def read_summary(document: Mapping[str, object], path: Path) -> Result:
    """A summary in any of its three forms."""
    version, elapsed_s = "", None
    if "results" in document:
        whole = read_form(_MachineReadable, document, path)
        told = {each.name: each.values for each in whole.results.metrics}
        version, elapsed_s = whole.metadata.k6Version, whole.config.duration
    else:
        summary = read_form(_Summary, document, path)
        told = {name: _plain(each, path) for name, each in summary.metrics.items()}
        if summary.state.testRunDurationMs is not None:
            elapsed_s = summary.state.testRunDurationMs / 1e3
    # Metrics of a script's own may be anything.
    metrics = {name: read_form(_Values, {"values": told[name]}, path).values for name in READ if name in told}
    requests = metrics.get("http_reqs", {})
    if "count" not in requests:
        raise ForeignFileError(path, "it has no metric http_reqs: only tests of HTTP can be imported")
    count, rate = int(requests["count"]), requests.get("rate")
    if elapsed_s is None and rate:
        elapsed_s = count / rate
    if not elapsed_s or not math.isfinite(elapsed_s):
        raise ForeignFileError(path, "it tells neither how long the test lasted nor a rate of requests")
    told_failed = _failed(metrics.get("http_req_failed"), count, path)
    failed = told_failed or 0
    apart = EXPECTED in metrics
    times = _times(metrics.get(EXPECTED if apart else DURATION, {}), count - failed if apart else count)
    check_order(times, path)
    warnings = [unjudged(TOOL), actual_sends(TOOL)]
    warnings += [_NO_FAILURES] if told_failed is None else []
    warnings += [failures_included(TOOL, failed)] if failed and not apart else []
    warnings += [] if "p99" in times else [_NEVER_P99 if "results" in document else _NO_P99]
    dropped = int(metrics.get("dropped_iterations", {}).get("count", 0))
    warnings += [_dropped(dropped)] if dropped else []
    users = metrics.get("vus_max", {})
    load = {"virtual_users": int(users["max"])} if "max" in users else {}
    return Result(
        tool=TOOL,
        version=version,
        load=load,
        elapsed_s=elapsed_s,
        summary=_summary(count - failed, told_failed, elapsed_s, times),
        warnings=warnings,
    )


def _plain(metric: Mapping[str, object], path: Path) -> Mapping[str, object]:
    """The numbers of a metric: below `values` in `handleSummary()`, beside the rest in
    `--summary-export`.
    """
    if "values" in metric:
        return read_form(_Metric, metric, path).values
    return {key: value for key, value in metric.items() if isinstance(value, int | float)}


def _failed(metric: Mapping[str, float] | None, count: int, path: Path) -> int | None:
    """A rate counts what is true as `passes`, and true is a request that failed; None before
    k6 0.31, which has no such metric.
    """
    if metric is None:
        return None
    failed = int(metric.get("passes", metric.get("matches", 0)))
    if failed > count:
        raise ForeignFileError(path, f"it counts {failed} failed requests of {count}")
    return failed


def _times(values: Mapping[str, float], count: int) -> dict[str, float]:
    """A trend's statistics in microseconds."""
    names = {"avg": "mean", "min": "min", "med": "p50", "max": "max"}
    times = {ours: values[theirs] * US for theirs, ours in names.items() if theirs in values}
    for name, value in values.items():
        found = PERCENTILE.fullmatch(name)
        if found:
            times[percentile_key(float(found[1]))] = value * US
    return {"count": count, **times} if times and count else {}


def _summary(completed: int, failed: int | None, elapsed_s: float, times: Mapping[str, float]) -> Json:
    summary: Json = {
        "elapsed_s": elapsed_s,
        "completed_rate": completed / elapsed_s,
        "requests": {"completed": completed},
        "response_time_us": dict(times),
    }
    if failed is not None:
        summary["requests"] = {"completed": completed, "failed": failed}
        summary["failed_ratio"] = failed / (completed + failed) if completed + failed else 0.0
    return summary


_NO_FAILURES = ResultWarning(
    code="failures_unknown",
    message="the file does not say how many requests failed",
    remedy="use a newer k6, which has the metric http_req_failed",
)
_NO_P99 = ResultWarning(
    code="percentiles_missing",
    message="the file has no p99: k6 writes p(90) and p(95) unless it is asked for more",
    remedy="run k6 with --summary-trend-stats 'min,avg,med,max,p(90),p(95),p(99),p(99.9)', or import --out json",
)


_NEVER_P99 = ResultWarning(
    code="percentiles_missing",
    message="the file has no p99: the machine-readable summary of k6 has p(90) and p(95) alone",
    remedy="import what --out json writes, or --summary-export with --summary-trend-stats 'med,p(90),p(95),p(99)'",
)


def _dropped(count: int) -> ResultWarning:
    return ResultWarning(
        code="dropped_iterations",
        message=f"k6 dropped {count:,} iterations for want of virtual users: the load was lighter than asked for",
        remedy="give k6 more preAllocatedVUs",
    )


class _Tags(Foreign):
    expected_response: str = ""
    status: str = ""

    @property
    def failed(self) -> bool:
        """k6 says so since 0.31; before that the status does, which is 0 without an answer."""
        if self.expected_response:
            return self.expected_response == "false"
        return self.status.isdigit() and not 200 <= int(self.status) < 400  # noqa: PLR2004 - RFC 9110, section 15


class _Sample(Foreign):
    time: datetime
    value: Amount
    tags: _Tags | None = None


class _Line(Foreign):
    type: str
    metric: str
    data: Mapping[str, object]


@dataclass(slots=True)
class _Points:
    """What was read from the lines of a file so far."""

    starts_s: float = math.inf
    times_us: array[float] = field(default_factory=lambda: array("d"))
    """Of each request that was completed."""
    ends_s: array[float] = field(default_factory=lambda: array("d"))
    """When each of these ended."""
    failures_s: array[float] = field(default_factory=lambda: array("d"))
    """When each failed request ended."""
    users: int = 0
    dropped: int = 0


def is_line(text: str) -> bool:
    """Whether a line is a document of its own, as those of `--out json` are."""
    return text.rstrip().endswith("}") and '"type"' in text and '"metric"' in text


def read_lines(lines: Iterable[str], path: Path) -> Result:
    """The lines of `--out json`: each request's time, exactly."""
    points = _Points()
    for number, text in enumerate(lines, 1):
        if text.strip():
            line = read_form(_Line, parse_json(text, path, f"line {number}"), path)
            if line.type == "Point":
                _take(points, line, path)
    failed = len(points.failures_s)
    if not points.times_us and not failed:
        raise ForeignFileError(path, f"it has no sample of {DURATION}: only tests of HTTP can be imported")
    elapsed_s = max(max(each, default=0.0) for each in (points.ends_s, points.failures_s)) - points.starts_s
    if elapsed_s <= 0:
        raise ForeignFileError(path, "its requests took no time")
    if elapsed_s > LONGEST_DAYS * DAY_S:
        raise ForeignFileError(
            path,
            f"its first and its last request lie {elapsed_s / DAY_S:.3g} days apart, and a test of at most "
            f"{LONGEST_DAYS} days can be read; leave out the lines whose time is wrong, or import a summary",
        )
    times = _exact(np.sort(points.times_us), PERCENTS)
    warnings = [unjudged(TOOL), actual_sends(TOOL)]
    warnings += [_dropped(points.dropped)] if points.dropped else []
    return Result(
        tool=TOOL,
        load={"virtual_users": points.users} if points.users else {},
        started_unix_s=points.starts_s,
        elapsed_s=elapsed_s,
        summary=_summary(len(points.times_us), failed, elapsed_s, times),
        seconds=_seconds(points),
        warnings=warnings,
    )


def _take(points: _Points, line: _Line, path: Path) -> None:
    if line.metric == "vus_max":
        points.users = max(points.users, int(read_form(_Sample, line.data, path).value))
    elif line.metric == "dropped_iterations":
        points.dropped += int(read_form(_Sample, line.data, path).value)
    elif line.metric == DURATION:
        sample = read_form(_Sample, line.data, path)
        if sample.time.tzinfo is None:
            raise ForeignFileError(path, f"the time {sample.time.isoformat()} has no time zone")
        at_s = sample.time.timestamp()
        # A sample's time is the end of its request.
        points.starts_s = min(points.starts_s, at_s - sample.value / 1e3)
        if sample.tags is not None and sample.tags.failed:
            points.failures_s.append(at_s)
        else:
            points.times_us.append(sample.value * US)
            points.ends_s.append(at_s)


def _exact(ordered: NDArray[np.float64], percents: Iterable[float]) -> dict[str, float]:
    """Statistics of times in rising order; empty without any."""
    if not len(ordered):
        return {}
    # The least value that such a share does not exceed; 0.999 x 1,000 may exceed 999 by rounding.
    ranks = {each: math.ceil(round(each / 100 * len(ordered), 9)) for each in percents}
    return {
        "count": len(ordered),
        "min": float(ordered[0]),
        "mean": float(ordered.mean()),
        "stdev": float(ordered.std()),
        "max": float(ordered[-1]),
        **{percentile_key(each): float(ordered[max(0, rank - 1)]) for each, rank in ranks.items()},
    }


def _seconds(points: _Points) -> list[Second]:
    """Seconds from the start of the first request; the last may be a part of one."""
    completed_at, failed_at = (
        np.floor(np.asarray(each) - points.starts_s).astype(int) for each in (points.ends_s, points.failures_s)
    )
    count = 1 + max(each.max(initial=0) for each in (completed_at, failed_at))
    times_us = np.asarray(points.times_us)
    ends = np.cumsum(np.bincount(completed_at, minlength=count))
    by_second = np.split(times_us[np.lexsort((times_us, completed_at))], ends[:-1])
    failed = np.bincount(failed_at, minlength=count)
    return [
        Second(
            second=second,
            completed=len(ordered),
            failed=int(failed[second]),
            response_time_us=_exact(ordered, OF_A_SECOND),
        )
        for second, ordered in enumerate(by_second)
    ]
