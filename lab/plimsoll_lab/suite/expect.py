"""[expect]: what a figure has to be in every trial, by an expression over the point's own settings.
Pure.

`endpoints = "== load.connections + 1"`: an operator, then numbers with units and dotted paths
joined by +, - and *. A duration is taken in the unit of the figure's name: of
`response_time_us.p99`, 5ms is 5000.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from plimsoll_lab.suite import units
from plimsoll_lab.suite.conditions import CONDITION, OPERATORS
from plimsoll_lab.suite.errors import SuiteError

_CONDITION = re.compile(CONDITION)
_TERM = re.compile(r"\s*(?:([A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)+)|(\d[\d_.]*\s?[A-Za-z%]*))\s*([+*-]|$)")
_READERS = (units.size_bytes, units.ratio, units.count)
_IN_US = re.compile(r"_us(?![A-Za-z0-9])")
"""In the name of a figure in microseconds, such as `response_time_us.p99`."""

Figures = Callable[[str], float | None]
"""The figure of a name; None where there is none."""
Settings = Callable[[str], object]
"""The setting at a dotted path; None where there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expectation:
    """One line of the table."""

    figure: str
    """The figure, by its path in the records."""
    operator: str
    """How it compares with the expression."""
    terms: tuple[tuple[str, str | float], ...]
    """Each operand after the operator that joins it: `+` for the first; a path or a number."""
    text: str
    """The condition as it was written."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The settings that the expression names."""
        return tuple(operand for _, operand in self.terms if isinstance(operand, str))


def read_expectation(figure: str, condition: object, *, source: str, named: str = "") -> Expectation:
    """Type one line; `named` is how the line calls the figure, where that is otherwise."""
    where = f"{source}: [expect] {named or figure}"
    match = _CONDITION.fullmatch(condition) if isinstance(condition, str) else None
    if match is None:
        raise SuiteError(
            f"{where}: {condition!r} is not a condition; write an operator and an expression, "
            "such as '== load.connections + 1'"
        )
    terms: list[tuple[str, str | float]] = []
    rest, joined = match[2], "+"
    while rest:
        term = _TERM.match(rest)
        if term is None or (term[3] and term.end() == len(rest)):
            raise SuiteError(f"{where}: cannot read '{rest}'; write numbers and dotted paths joined by +, - and *")
        terms.append((joined, term[1] or _number(term[2], figure, where)))
        joined, rest = term[3], rest[term.end() :]
    return Expectation(figure=figure, operator=match[1], terms=tuple(terms), text=str(condition).strip())


def missed(expectation: Expectation, figures: Figures, settings: Settings) -> str | None:
    """Why an expectation is not met, with both values; None where it is."""
    said = f"expected {expectation.figure} {expectation.text}"
    seen = figures(expectation.figure)
    if seen is None:
        return f"{said}, but the trial has no such figure"
    total, product = 0.0, 0.0
    for joined, operand in expectation.terms:
        value = as_number(settings(operand), expectation.figure) if isinstance(operand, str) else operand
        if value is None:
            return f"{said}, but {operand} has no value here"
        if joined == "*":
            product *= value
        else:
            total, product = total + product, value if joined == "+" else -value
    wanted = total + product
    if OPERATORS[expectation.operator](seen, wanted):
        return None
    return f"{said}: it is {seen:g}, and the expression is {wanted:g}"


def as_number(value: object, figure: str) -> float | None:
    """A setting as a number: a time in the figure's unit, bytes, a part of one or a count, as its
    unit says.
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        text = str(value)
    seconds = _try(units.duration_s, text)
    if seconds is not None:
        return seconds * 1e6 if _IN_US.search(figure) else seconds
    return next((found for reader in _READERS if (found := _try(reader, text)) is not None), None)


def _number(text: str, figure: str, where: str) -> float:
    found = as_number(text.replace("_", ""), figure)
    if found is None:
        raise SuiteError(f"{where}: '{text}' is not a number; write such as 100, 4KiB or 5s")
    return found


def _try(reader: Callable[[str], float], text: str) -> float | None:
    try:
        return float(reader(text))
    except ValueError:
        return None
