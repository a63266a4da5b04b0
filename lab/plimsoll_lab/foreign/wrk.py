"""wrk2 and wrk: what they print on stdout, with `--latency` for percentiles.

Source: src/wrk.c and src/units.c of github.com/giltene/wrk2 and github.com/wg/wrk.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from plimsoll_lab.foreign.fortio import without_secrets
from plimsoll_lab.foreign.result import (
    ForeignFileError,
    Result,
    actual_sends,
    check_order,
    failures_included,
    percentile_key,
    share_of,
    unjudged,
)
from plimsoll_lab.store.records import Json, ResultWarning
from plimsoll_lab.suite.settings import Value

UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6, "m": 6e7, "h": 3.6e9}
"""Microseconds in each unit that they print."""
RUNNING = re.compile(r"^Running (\S+) test @ (\S+)$", re.MULTILINE)
CONNECTIONS = re.compile(r"^\s+\d+ threads? and (\d+) connections$", re.MULTILINE)
THREADS = re.compile(
    r"^\s+Latency\s+([\d.]+)(us|ms|s|m|h)\s+([\d.]+)(us|ms|s|m|h)\s+([\d.]+)(us|ms|s|m|h)", re.MULTILINE
)
CORRECTED = "Latency Distribution (HdrHistogram - Recorded Latency)"
DISTRIBUTION = re.compile(
    r"^\s+Latency Distribution.*\n((?:\s*[\d.]+%\s+[\d.]+(?:us|ms|s|m|h)[ \t]*\n)+)", re.MULTILINE
)
PERCENTILE = re.compile(r"([\d.]+)%\s+([\d.]+)(us|ms|s|m|h)")
MEAN = re.compile(r"^#\[Mean\s+=\s*([\d.]+), StdDeviation\s+=\s*([\d.]+)\]", re.MULTILINE)
MAX = re.compile(r"^#\[Max\s+=\s*([\d.]+), Total count\s+=\s*(\d+)\]", re.MULTILINE)
TOTAL = re.compile(r"^\s+(\d+) requests in [\d.]+(?:us|ms|s|m|h), ", re.MULTILINE)
RATE = re.compile(r"^Requests/sec:\s+([\d.]+)$", re.MULTILINE)
SOCKET_ERRORS = re.compile(r"^\s+Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)$", re.MULTILINE)
STATUS_ERRORS = re.compile(r"^\s+Non-2xx or 3xx responses: (\d+)$", re.MULTILINE)
LATE_TOLERATED = 0.05
"""So many of the answers beyond a percentile may be missing, as a part of them."""
WHOLE = 100.0
"""The last percentile is the maximum."""


def is_text(text: str) -> bool:
    """Whether a text is of wrk or wrk2."""
    return RUNNING.search(text) is not None and "Thread Stats" in text


def read_text(text: str, path: Path) -> Result:
    """The text of one run."""
    running, total, rate = RUNNING.search(text), TOTAL.search(text), RATE.search(text)
    if running is None or total is None or rate is None:
        raise ForeignFileError(path, "it ends before the totals: 'requests in' or 'Requests/sec' is missing")
    if len(TOTAL.findall(text)) > 1:
        raise ForeignFileError(path, "it holds several runs: write each into a file of its own")
    corrected = CORRECTED in text
    tool = "wrk2" if corrected or "Thread calibration:" in text else "wrk"
    answered, per_s = int(total[1]), _number(rate[1], path)
    if answered and per_s <= 0:
        raise ForeignFileError(path, f"it counts {answered} requests at a rate of 0")
    found = STATUS_ERRORS.search(text)
    failing = int(found[1]) if found else 0
    errors = _errors(text)
    failed, timed_out = failing + errors["read"] + errors["write"], errors["timeout"]
    # What wrk calls a timeout is an answer that took longer: it is among the others, and its time
    # alone is missing. wrk2 counts connections that wait.
    late, timed_out = (timed_out, 0) if tool == "wrk" else (0, timed_out)
    errors["timeout"] = timed_out
    completed = answered - failing
    times = _without_late(_times(text, answered - late, path), late)
    check_order(times, path)
    lost = failed + timed_out
    summary: Json = {
        "failed_ratio": lost / (completed + lost) if completed + lost else 0.0,
        "requests": {"completed": completed, "failed": failed, "timed_out": timed_out},
        "errors": {**errors, "status": failing},
        "response_time_us": times,
    }
    elapsed_s = answered / per_s if per_s > 0 else None
    if elapsed_s is not None:
        summary |= {"elapsed_s": elapsed_s, "completed_rate": completed / elapsed_s}
    warnings = [unjudged(tool)]
    warnings += [] if tool == "wrk2" else [actual_sends(tool)]
    warnings += [failures_included(tool, failing)] if failing else []
    warnings += [_NO_PERCENTILES] if DISTRIBUTION.search(text) is None else []
    warnings += [_RATE_UNKNOWN, _CALIBRATION] if tool == "wrk2" else []
    warnings += [_TIMEOUTS] if timed_out else []
    warnings += [_late(late)] if late else []
    return Result(
        tool=tool,
        load=_load(text, running[1]),
        target=without_secrets(running[2]),
        elapsed_s=elapsed_s,
        summary=summary,
        warnings=warnings,
    )


def _errors(text: str) -> dict[str, int]:
    found = SOCKET_ERRORS.search(text)
    numbers = [int(each) for each in found.groups()] if found else [0, 0, 0, 0]
    return dict(zip(("connect", "read", "write", "timeout"), numbers, strict=True))


def _number(text: str, path: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise ForeignFileError(path, f"'{text}' is no number") from None


def _times(text: str, answered: int, path: Path) -> dict[str, float]:
    """The exact statistics below the spectrum where there are some; else those of the threads."""
    times: dict[str, float] = {}
    stats, exact, most = THREADS.search(text), MEAN.search(text), MAX.search(text)
    if exact is not None and most is not None:
        # wrk2 divides its microseconds by 1,000 for the spectrum and its footer.
        count = int(most[2])
        mean, stdev, highest = (_number(each, path) * 1e3 for each in (exact[1], exact[2], most[1]))
        times = {"mean": mean, "stdev": stdev, "max": highest}
    elif stats is not None:
        count = answered
        values = [_number(stats[place], path) * UNITS_US[stats[place + 1]] for place in (1, 3, 5)]
        times = dict(zip(("mean", "stdev", "max"), values, strict=True))
    if not times or not count:
        return {}
    block = DISTRIBUTION.search(text)
    for told, value, unit in PERCENTILE.findall(block[1]) if block else ():
        if (percent := _number(told, path)) < WHOLE:
            times[percentile_key(percent)] = _number(value, path) * UNITS_US[unit]
    return {"count": count, **times}


def _without_late(times: Mapping[str, float], late: int) -> dict[str, float]:
    """Without what so many slower answers would have moved: mean, deviation and maximum, and the
    percentiles beyond which they are more than a twentieth of all.
    """
    if not late or not times:
        return dict(times)
    answered = times["count"] + late
    kept = {
        name: value
        for name, value in times.items()
        if name.startswith("p") and late <= LATE_TOLERATED * (1 - share_of(name) / 100) * answered
    }
    return {"count": times["count"], **kept}


def _load(text: str, duration: str) -> Mapping[str, Value]:
    found = CONNECTIONS.search(text)
    return ({"connections": int(found[1])} if found else {}) | {"duration": duration}


_NO_PERCENTILES = ResultWarning(
    code="percentiles_missing",
    message="the file has no percentiles",
    remedy="run it with --latency",
)
_RATE_UNKNOWN = ResultWarning(
    code="load_unknown",
    message="wrk2 does not print the rate that it was asked for",
    remedy="state it with --set load.rate=2000: only runs of one load are compared",
)
_CALIBRATION = ResultWarning(
    code="calibration_left_out",
    message="wrk2 drops the response times of its first ten seconds, and counts their requests in the rate",
    remedy="run it for much longer than ten seconds",
)
_TIMEOUTS = ResultWarning(
    code="timeouts_counted_again",
    message="wrk2 counts a connection that waits too long at each of its checks, not once",
    remedy="read the failures as more than nothing, not as a number of requests",
)


def _late(count: int) -> ResultWarning:
    return ResultWarning(
        code="slowest_missing",
        message=f"{count:,} answers took longer than wrk's --timeout (2 s unless it is given): its response times "
        "are of the others, so that mean, maximum and the percentiles near them are not known",
        remedy="run wrk with a --timeout that is longer than any answer takes",
    )
