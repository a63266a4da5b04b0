"""fortio: the document of `-json`.

Source: RunnerResults and HTTPRunnerResults of github.com/fortio/fortio. Response times are in
seconds, durations in nanoseconds (Go's time.Duration).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import AwareDatetime, Field

from plimsoll_lab.foreign.result import (
    Amount,
    Count,
    Foreign,
    ForeignFileError,
    Result,
    actual_sends,
    check_order,
    failures_included,
    percentile_key,
    read_form,
    unjudged,
)
from plimsoll_lab.store.records import Json, ResultWarning
from plimsoll_lab.suite.settings import Value

TOOL = "fortio"
US, NS = 1e6, 1e9
"""Microseconds and nanoseconds in a second."""
OK = range(200, 400)
"""Statuses of HTTP that are no failure, for files without a histogram of errors."""


class _Percentile(Foreign):
    percent: Amount = Field(alias="Percentile", le=100)
    value: Amount = Field(alias="Value")


class _Histogram(Foreign):
    count: Count = Field(alias="Count")
    least: Amount = Field(default=0.0, alias="Min")
    greatest: Amount = Field(default=0.0, alias="Max")
    mean: Amount = Field(default=0.0, alias="Avg")
    stdev: Amount = Field(default=0.0, alias="StdDev")
    percentiles: Sequence[_Percentile] | None = Field(default=None, alias="Percentiles")


class _Document(Foreign):
    run_type: str = Field(default="HTTP", alias="RunType")
    version: str = Field(default="", alias="Version")
    started: AwareDatetime | None = Field(default=None, alias="StartTime")
    asked_rate: str = Field(default="max", alias="RequestedQPS")
    asked_duration: str = Field(default="", alias="RequestedDuration")
    exactly: Count = Field(default=0, alias="Exactly")
    duration_ns: Amount = Field(alias="ActualDuration")
    threads: Count | None = Field(default=None, alias="NumThreads")
    times: _Histogram = Field(alias="DurationHistogram")
    errors: _Histogram | None = Field(default=None, alias="ErrorsDurationHistogram")
    codes: Mapping[str, Count] = Field(default_factory=dict, alias="RetCodes")
    url: str = Field(default="", alias="URL")


def is_document(document: Mapping[str, object]) -> bool:
    """Whether a JSON document is fortio's."""
    return "DurationHistogram" in document and "ActualDuration" in document


def read_document(document: Mapping[str, object], path: Path) -> Result:
    """The document of one run."""
    found = read_form(_Document, document, path)
    failed = _failed(found)
    count = found.times.count
    if failed is not None and failed > count:
        raise ForeignFileError(path, f"it counts {failed} failed requests of {count}")
    completed, elapsed_s = count - (failed or 0), found.duration_ns / NS
    times = _times(found.times)
    check_order(times, path)
    summary: Json = {"elapsed_s": elapsed_s, "requests": {"completed": completed}, "response_time_us": times}
    if elapsed_s > 0:
        summary["completed_rate"] = completed / elapsed_s
    if failed is not None:
        summary |= {"failed_ratio": failed / count if count else 0.0}
        summary["requests"] = {"completed": completed, "failed": failed}
    warnings = [unjudged(TOOL), actual_sends(TOOL), _INTERPOLATED]
    warnings += [failures_included(TOOL, failed)] if failed else []
    warnings += [_NO_FAILURES] if failed is None else []
    load = _load(found)
    if "rate" in load:
        summary["intended_rate"] = load["rate"]
    return Result(
        tool=TOOL,
        version=found.version,
        load=load,
        target=without_secrets(found.url),
        started_unix_s=None if found.started is None else found.started.timestamp(),
        elapsed_s=elapsed_s,
        summary=summary,
        warnings=warnings,
    )


def without_secrets(url: str) -> str:
    """An address without user, password, query and fragment; empty where it is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}" if parts.scheme and host else ""


def _failed(found: _Document) -> int | None:
    """Failed requests; None where an old file of another protocol lacks them."""
    if found.errors is not None:
        return found.errors.count
    if found.run_type == "HTTP" and found.codes:
        return sum(count for code, count in found.codes.items() if not (code.isdigit() and int(code) in OK))
    return None


def _times(found: _Histogram) -> dict[str, float]:
    if not found.count:
        return {}
    whole = {"min": found.least, "mean": found.mean, "stdev": found.stdev, "max": found.greatest}
    percentiles = {percentile_key(each.percent): each.value for each in found.percentiles or ()}
    return {"count": found.count, **{name: value * US for name, value in (whole | percentiles).items()}}


def _load(found: _Document) -> Mapping[str, Value]:
    load: dict[str, Value] = {} if found.threads is None else {"connections": found.threads}
    try:
        rate = float(found.asked_rate)
    except ValueError:
        rate = 0.0  # `max`: no rate was asked for
    if 0 < rate < float("inf"):
        load["rate"] = int(rate) if rate.is_integer() else rate
    if found.exactly:
        load["requests"] = found.exactly
    elif found.asked_duration:
        load["duration"] = found.asked_duration
    return load


_INTERPOLATED = ResultWarning(
    code="percentiles_interpolated",
    message="fortio interpolates percentiles within the buckets of its histogram",
    remedy="run fortio with a smaller -r (the width of the first buckets) for finer percentiles",
)
_NO_FAILURES = ResultWarning(
    code="failures_unknown",
    message="the file does not say how many requests failed",
    remedy="use a newer fortio, which writes ErrorsDurationHistogram",
)
