"""Every figure a trial yields: its name, its words, its unit, and which way is better.

A figure has one name everywhere: its path in the JSON. In a limit the value carries the unit instead of the name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from plimsoll_lab.suite import units
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.spec import Limit, SearchSettings

Unit = Literal["per_s", "bits_per_s", "us", "bytes", "cores", "ratio", "count"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One figure of a trial."""

    name: str
    """Its path in the records."""
    label: str
    """Its name in a sentence, a table or on an axis."""
    unit: Unit
    """What it is counted in."""
    better: Literal["higher", "lower"]
    """Which way is better for the server under test."""


def _times(stem: str, label: str) -> tuple[Figure, ...]:
    parts = {"mean": "mean", "p50": "p50", "p75": "p75", "p90": "p90", "p99": "p99", "p99_9": "p99.9", "max": "maximum"}
    return tuple(
        Figure(name=f"{stem}.{key}", label=f"{label}, {words}", unit="us", better="lower")
        for key, words in parts.items()
    )


FIGURES: tuple[Figure, ...] = (
    Figure(name="completed_rate", label="completed rate", unit="per_s", better="higher"),
    *_times("response_time_us", "response time"),
    *_times("establishment_time_us", "establishment time"),
    Figure(name="server.cpu_us_per_request", label="server CPU per request", unit="us", better="lower"),
    Figure(name="server.cpu_cores", label="server CPU", unit="cores", better="lower"),
    Figure(name="server.memory_bytes", label="server memory", unit="bytes", better="lower"),
    Figure(name="goodput_bits_per_s", label="goodput", unit="bits_per_s", better="higher"),
    Figure(name="failed_ratio", label="failed requests", unit="ratio", better="lower"),
    Figure(name="connections.established", label="connections established", unit="count", better="higher"),
    Figure(name="generator.cpu_cores", label="generator CPU", unit="cores", better="lower"),
    Figure(name="generator.cpu_us_per_request", label="generator CPU per request", unit="us", better="lower"),
    Figure(
        name="generator.busiest_thread_cpu_cores", label="generator CPU, busiest thread", unit="cores", better="lower"
    ),
)
BY_NAME = {figure.name: figure for figure in FIGURES}

CAPACITY = "capacity"
"""The figure of a search, where every other one is a trial's."""


def capacity_figure(search: SearchSettings) -> Figure:
    """The capacity that a search finds."""
    return Figure(name=CAPACITY, label="capacity", unit="per_s" if search.key == "rate" else "count", better="higher")


_UNIT_IN_NAME = re.compile(r"_(us|bytes|bits_per_s)(?=\.|$)")
_LIMIT = re.compile(r"\s*(<=|>=|<|>)\s*(.+?)\s*")


def limit_name(figure: Figure) -> str:
    """The figure's name in a limit, where the value carries the unit: `response_time.p99`."""
    return _UNIT_IN_NAME.sub("", figure.name)


BY_LIMIT_NAME = {limit_name(figure): figure for figure in FIGURES}


def read_limit(name: str, condition: object, *, source: str) -> Limit:
    """Type one line of the `[limits]` table, such as `"response_time.p99" = "<250ms"`."""
    figure = BY_LIMIT_NAME.get(name)
    if figure is None:
        suggestion = suggest(name, BY_LIMIT_NAME)
        raise SuiteError(f"{source}: [limits] {name}: no such figure{suggestion}")
    match = _LIMIT.fullmatch(condition) if isinstance(condition, str) else None
    if match is None:
        raise SuiteError(
            f"{source}: [limits] {name}: {condition!r} is not a limit; write an operator and a value, such as '<250ms'"
        )
    try:
        value = _read_value(match[2], figure.unit)
    except ValueError as refusal:
        raise SuiteError(f"{source}: [limits] {name}: {refusal}") from None
    return Limit(figure=figure.name, operator=match[1], value=value, text=f"{name} {match[1]} {match[2]}")


def _read_value(text: str, unit: Unit) -> float:
    if unit == "us":
        return units.duration_s(text) * 1e6
    if unit == "bytes":
        return float(units.size_bytes(text))
    if unit == "ratio":
        return units.ratio(text)
    if unit == "cores":
        return float(text)
    return float(units.count(text))


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of a refusal: the known word that is near, or else all of them."""
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    return f"; known are {', '.join(words)}"
