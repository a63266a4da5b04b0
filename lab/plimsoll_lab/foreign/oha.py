"""oha: the document of `--output-format json` (`-j` before 1.9).

Source: schema.json of github.com/hatoo/oha. Times are in seconds, and a percentile is null where
no request was answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from plimsoll_lab.foreign.result import (
    Amount,
    Count,
    Foreign,
    Result,
    check_order,
    failures_included,
    percentile_key,
    read_form,
    unjudged,
)
from plimsoll_lab.store.records import Json, ResultWarning

TOOL = "oha"
US = 1e6
"""Microseconds in a second."""
DEADLINE = "aborted due to deadline"
"""The error of a request that was under way as the time was up: oha leaves it out of its rate of
success, and so it is no failure here."""
FAILING = 400
"""Statuses from here on are failures (RFC 9110, section 15)."""

_Times = Mapping[Annotated[str, Field(pattern=r"^p\d{1,3}(\.\d+)?$")], Amount | None]


class _Summary(Foreign):
    total: Amount
    slowest: Amount | None = None
    fastest: Amount | None = None
    average: Amount | None = None


class _Document(Foreign):
    summary: _Summary
    percentiles: _Times = Field(alias="latencyPercentiles")
    successful: _Times | None = Field(default=None, alias="latencyPercentilesSuccessful")
    statuses: Mapping[int, Count] = Field(alias="statusCodeDistribution")
    errors: Mapping[str, Count] = Field(alias="errorDistribution")


def is_document(document: Mapping[str, object]) -> bool:
    """Whether a JSON document is oha's."""
    return "latencyPercentiles" in document and "statusCodeDistribution" in document


def read_document(document: Mapping[str, object], path: Path) -> Result:
    """The document of one run."""
    found = read_form(_Document, document, path)
    answered = sum(found.statuses.values())
    failing = sum(count for status, count in found.statuses.items() if status >= FAILING)
    broken = sum(count for error, count in found.errors.items() if error != DEADLINE)
    completed, failed = answered - failing, failing + broken
    elapsed_s = found.summary.total
    times = _times(found, completed, answered)
    check_order(times, path)
    warnings = [unjudged(TOOL), _SENDS, _LOAD]
    warnings += [failures_included(TOOL, failing)] if failing and found.successful is None else []
    summary: Json = {
        "elapsed_s": elapsed_s,
        "failed_ratio": failed / (completed + failed) if completed + failed else 0.0,
        "requests": {"completed": completed, "failed": failed, "in_flight": found.errors.get(DEADLINE, 0)},
        "errors": {"status": failing},
        "statuses": {str(status): count for status, count in found.statuses.items()},
        "response_time_us": times,
    }
    if elapsed_s > 0:
        summary["completed_rate"] = completed / elapsed_s
    return Result(tool=TOOL, elapsed_s=elapsed_s, summary=summary, warnings=warnings)


def _times(found: _Document, completed: int, answered: int) -> dict[str, float]:
    """Of successful requests where oha was asked for them; else of every request with an answer."""
    apart = found.successful is not None
    percentiles = found.successful if found.successful is not None else found.percentiles
    times: dict[str, float] = {}
    for name, value in percentiles.items():
        if value is not None:
            times[percentile_key(float(name[1:]))] = value * US
    if not apart:
        whole = {"min": found.summary.fastest, "mean": found.summary.average, "max": found.summary.slowest}
        times |= {name: value * US for name, value in whole.items() if value is not None}
    return {"count": completed if apart else answered, **times} if times else {}


_LOAD = ResultWarning(
    code="load_unknown",
    message="oha does not write down the load that it was asked for",
    remedy="state it with --set, such as --set load.connections=50: only runs of one load are compared",
)
_SENDS = ResultWarning(
    code="coordinated_omission",
    message="response times of oha run from the actual send, and requests that a stall delayed do not count it, "
    "unless it was run with --latency-correction, which the file does not tell",
    remedy="compare its percentiles only with those of the same tool and the same flags",
)
