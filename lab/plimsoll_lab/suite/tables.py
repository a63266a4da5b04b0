"""What `tomllib` gives, typed: tables, lists of tables and settings. A function refuses any other
value with an error that names the place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import suggest
from plimsoll_lab.suite.settings import Value

Table = Mapping[str, object]
"""A table of TOML whose values are not typed yet."""


def as_table(raw: object, *, refusal: str) -> dict[str, object]:
    """A table. Raises `SuiteError` with this refusal for any other value."""
    if not isinstance(raw, dict):
        raise SuiteError(refusal)
    return raw


def not_a_table(name: str) -> str:
    """The refusal of a value that has to be the table [NAME]."""
    return f"{name}: not a table; write [{name}] and its settings below"


def not_tables(name: str) -> str:
    """The refusal of a value that has to be the tables [[NAME]]."""
    return f"{name}: not a list of tables; write [[{name}]] and its settings below"


def as_tables(raw: object, *, refusal: str) -> list[dict[str, object]]:
    """A list of tables. Raises `SuiteError` with this refusal for any other value."""
    if not isinstance(raw, list):
        raise SuiteError(refusal)
    return [as_table(each, refusal=refusal) for each in raw]


def as_setting(raw: object, where: str) -> Value:
    """A setting. Raises `SuiteError` for a value that no setting has, such as a table or a date, or
    a text that no program can be given.
    """
    for text in raw if isinstance(raw, list) else [raw]:
        # It ends each argument (execve(2)).
        if isinstance(text, str) and "\0" in text:
            raise SuiteError(f"{where}: {text!r} holds U+0000, which no program can be given; leave it out")
    if isinstance(raw, str | int | float):
        return raw
    if isinstance(raw, list) and all(isinstance(each, str) for each in raw):
        return tuple(raw)
    raise SuiteError(f"{where}: {raw!r} is neither a plain value nor a list of texts")


def as_toml(value: Value) -> object:
    """A setting as `tomllib` gives it."""
    return list(value) if isinstance(value, tuple) else value


def refuse_unknown(table: Table, known: Iterable[str], where: str) -> None:
    """Raise `SuiteError` for the first key that this table does not have."""
    known = tuple(known)
    for key in table:
        if key not in known:
            raise SuiteError(f"{where} {key}: unknown key{suggest(key, known)}")
