"""What documents say: [[reference]], a figure of theirs at a point, and [[claim]], a conclusion put
to the test.

Both are in the suite, and so in a commit, before the run that answers them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from plimsoll_lab.suite import units
from plimsoll_lab.suite.documents import Claim, Reference
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import BY_NAME, Figure, figure_named, read_value, suggest
from plimsoll_lab.suite.keys import CLAIM, REFERENCE
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.tables import Table, as_setting, as_table, as_tables, refuse_unknown

_OPERATOR = re.compile(r"\s*(<=|>=|<|>)\s*(.+?)\s*")
NEXT_TO_ZERO = math.nextafter(0.0, math.inf)
"""The end of a range above 0."""
_BETWEEN = re.compile(r"\s*(.+?)\s+to\s+(.+?)\s*")


def read_references(raw: object, *, source: str) -> tuple[Reference, ...]:
    """Type every [[reference]]: a figure, or each figure of its `values`."""
    found: list[Reference] = []
    for number, table in enumerate(_tables(raw, "reference", source=source), start=1):
        where = f"{source}: [[reference]] {number}"
        refuse_unknown(table, REFERENCE, where)
        if "values" in table and table.keys() & {"figure", "value"}:
            raise SuiteError(f"{where} values: it has a figure of its own too; write each figure into values")
        if "values" in table:
            refusal = f'{where} values: {table["values"]!r} is not a table of figures; write {{ "elapsed_s" = "3s" }}'
            values = as_table(table["values"] or None, refusal=refusal)
            stated = [(f"{where} values {name}", _named(name, f"{where} values"), values[name]) for name in values]
        else:
            stated = [(f"{where} value", _figure(table, where), table.get("value", ""))]
        at, document, text = _setting(table, "at", where), _text(table, "source", where), str(table.get("text", ""))
        for place, figure, value in stated:
            try:
                read = read_value(str(value), figure.unit)
            except ValueError as refused:
                raise SuiteError(f"{place}: {refused}") from None
            found.append(Reference(figure=figure.name, at=at, value=read, source=document, text=text))
    return tuple(found)


def read_claims(raw: object, *, source: str) -> tuple[Claim, ...]:
    """Type every [[claim]]."""
    return tuple(
        _claim(table, f"{source}: [[claim]] {number}")
        for number, table in enumerate(_tables(raw, "claim", source=source), start=1)
    )


def check_paths(settings: Iterable[Settings], known: Iterable[str], where: str) -> None:
    """Refuse a point that names a setting which no point of this suite varies."""
    paths = set(known)
    for setting in settings:
        for path in setting:
            if path not in paths:
                raise SuiteError(f"{where}: '{path}' does not vary in this suite{suggest(path, paths)}")


def settings_of(claim: Claim) -> list[Settings]:
    """Every point that a claim is about."""
    return [claim.at, *([claim.over] if claim.over is not None else []), *(claim.against or ())]


def _claim(table: Table, where: str) -> Claim:
    refuse_unknown(table, CLAIM, where)
    figure = _figure(table, where)
    over = _setting(table, "over", where) if "over" in table else None
    against = None
    if "against" in table:
        pair = table["against"]
        if over is None or not isinstance(pair, list) or len(pair) != 2:  # noqa: PLR2004 - a pair
            raise SuiteError(f'{where} against: write two points, [{{...}}, {{...}}], beside "over"')
        one, other = (_setting({"against": each}, "against", where) for each in pair)
        against = (one, other)
    expect = _text(table, "expect", where)
    difference = _switch(table, "difference", where, default=False)
    if difference and over is None:
        raise SuiteError(f'{where} difference: of which two points? write the second one as "over"')
    ratio = over is not None and not difference
    least, most = _range(expect, figure, where, ratio=ratio, signed=difference)
    # Of a difference only the sign can be expected of any hardware.
    anywhere = ratio or (difference and all(abs(end or 0.0) <= NEXT_TO_ZERO for end in (least, most)))
    return Claim(
        name=_text(table, "name", where),
        source=_text(table, "source", where),
        figure=figure.name,
        at=_setting(table, "at", where),
        over=over,
        against=against,
        least=least,
        most=most,
        expect=expect,
        free=str(table.get("free", "")),
        portable=_switch(table, "portable", where, default=anywhere),
        difference=difference,
    )


def _switch(table: Table, key: str, where: str, *, default: bool) -> bool:
    value = table.get(key, default)
    if not isinstance(value, bool):
        raise SuiteError(f"{where} {key}: {value!r} is neither true nor false")
    return value


def _range(expect: str, figure: Figure, where: str, *, ratio: bool, signed: bool) -> tuple[float | None, float | None]:
    """The ends of a range; None where it has none. What is not signed begins at 0."""
    try:
        if operator := _OPERATOR.fullmatch(expect):
            bound, below = _bound(operator[2], figure, ratio=ratio, signed=signed), operator[1][0] == "<"
            if "=" not in operator[1]:
                # The bound is no part of the range, which ends at the number beside it.
                bound = math.nextafter(bound, -math.inf if below else math.inf)
            return (None if signed else 0.0, bound) if below else (bound, None)
        between = _BETWEEN.fullmatch(expect)
        if between is None:
            raise SuiteError(f"{where} expect: '{expect}' is no range; write '< 2', '>= 250ms' or '1.5 to 3'")
        least, most = (_bound(end, figure, ratio=ratio, signed=signed) for end in between.groups())
    except ValueError as refusal:
        raise SuiteError(f"{where} expect: {refusal}") from None
    if least >= most:
        raise SuiteError(f"{where} expect: '{expect}' holds no number; write the lower end first")
    return least, most


def _bound(text: str, figure: Figure, *, ratio: bool, signed: bool) -> float:
    if signed and text.startswith("-"):
        return -read_value(text[1:].strip(), figure.unit)
    return units.rate(text) if ratio else read_value(text, figure.unit)


def _tables(raw: object, name: str, *, source: str) -> list[dict[str, object]]:
    return as_tables(raw, refusal=f"{source}: {name}: not a list of tables; write [[{name}]] above each")


def _figure(table: Table, where: str) -> Figure:
    return _named(_text(table, "figure", where), f"{where} figure")


def _named(name: str, where: str) -> Figure:
    figure = figure_named(name)
    if figure is None:
        raise SuiteError(f"{where}: '{name}' is no figure{suggest(name, BY_NAME)}")
    return figure


def _setting(table: Table, key: str, where: str) -> Settings:
    raw = table.get(key)
    refusal = f'{where} {key}: {raw!r} is no point; write {{ "load.connections" = 5000 }}'
    return {path: as_setting(value, f"{where} {key} {path}") for path, value in as_table(raw, refusal=refusal).items()}


def _text(table: Table, key: str, where: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise SuiteError(f"{where} {key}: missing or empty; write it as a text")
    return value
