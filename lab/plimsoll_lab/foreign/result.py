"""The content of a file of another load generator, in our names and units."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.records import Json, ResultWarning
from plimsoll_lab.suite.settings import Value

OUT_OF_ORDER = 0.01
"""A percentile may lie this part below a lower one: tools round what they print."""

Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""A time, a rate or a size: finite, and not negative."""
Count = Annotated[int, Field(ge=0)]


class Foreign(BaseModel):
    """A part of a file. Fields of the tool that are not read here are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


ForeignT = TypeVar("ForeignT", bound=Foreign)


class ForeignFileError(LabError):
    """A file cannot be imported: its name, why, and what to do."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: cannot be imported: {reason}", exit_code=USAGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Second:
    """One second of a measurement."""

    second: int
    """Counted from the start of the measurement."""
    completed: int
    """Requests completed in it."""
    failed: int
    """Requests that failed in it."""
    response_time_us: Mapping[str, float]
    """Count, minimum, percentiles and maximum; empty without a completed request."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One measurement of another tool."""

    tool: str
    """Its name: `k6`."""
    version: str = ""
    """Its version, where the file has it."""
    load: Mapping[str, Value] = field(default_factory=dict)
    """The load that was asked for, as far as the file has it: settings as in a suite's [load]."""
    target: str = ""
    """The address that was loaded, without credentials and query."""
    started_unix_s: float | None = None
    """When it began."""
    elapsed_s: float | None = None
    """How long it lasted."""
    summary: Json
    """In the form of the summary of `plimsoll load`; what the file lacks is absent."""
    seconds: Sequence[Second] = ()
    """The measurement over time, where the file has it."""
    warnings: Sequence[ResultWarning] = ()
    """What the file lacks, and where its figures mean something else than ours."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a person says about a file, as the file itself lacks it."""

    unit: str | None = None
    """The unit of HdrHistogram's values: `ns`, `us`, `ms` or `s`."""
    duration_s: float | None = None
    """How long a measurement lasted."""
    tag: str | None = None
    """The tag of a histogram log to read."""


def read_form(form: type[ForeignT], told: object, path: Path) -> ForeignT:
    """A part of a file in its form. Raises `ForeignFileError` where it has another."""
    try:
        return form.model_validate(told)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(each) for each in first["loc"]) or "the file"
        raise ForeignFileError(path, f"{where}: {first['msg']}") from None


def parse_json(text: str, path: Path, where: str = "it") -> object:
    """JSON without the numbers that it does not have, such as NaN."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise ForeignFileError(path, f"{where} is not JSON: {error}") from None


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def check_order(times: Mapping[str, float], path: Path) -> None:
    """Refuse percentiles that fall: such a file is broken."""
    names = ["min", *sorted((each for each in times if each[:1] == "p"), key=share_of), "max"]
    known = [(name, times[name]) for name in names if name in times]
    for (lower, one), (higher, other) in itertools.pairwise(known):
        if other < one * (1 - OUT_OF_ORDER):
            raise ForeignFileError(path, f"its response times are out of order: {higher} lies below {lower}")


def percentile_key(percent: float) -> str:
    """The name of a percentile in our records: `p99_9`."""
    return "p" + f"{percent:.10g}".replace(".", "_")


def share_of(key: str) -> float:
    """The percentile of a name in our records: 99.9."""
    return float(key[1:].replace("_", "."))


def unjudged(tool: str) -> ResultWarning:
    """What no foreign file has."""
    return ResultWarning(
        code="imported",
        message=f"{tool} records neither the server's CPU and memory nor whether the generator or the machine "
        "was the limit",
        remedy="measure with plimsoll lab run for results that are checked",
    )


def actual_sends(tool: str) -> ResultWarning:
    """Response times that miss what a stall delays."""
    return ResultWarning(
        code="coordinated_omission",
        message=f"response times of {tool} run from the actual send: requests that a stall delayed do not count it",
        remedy="compare its percentiles only with those of the same tool",
    )


def failures_included(tool: str, failed: int) -> ResultWarning:
    """Response times of failed requests among the others."""
    return ResultWarning(
        code="failures_included",
        message=f"the response times of {tool} include those of {failed:,} failed requests",
        remedy="ours are of completed requests alone: look at the failures first",
    )
