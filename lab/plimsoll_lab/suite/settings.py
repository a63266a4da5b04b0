"""A setting, and a table of them: the leaves of every question."""

from __future__ import annotations

from collections.abc import Mapping

Value = str | int | float | bool | tuple[str, ...]
"""One setting: a TOML scalar, or a list of texts (a command, a flag that may be repeated)."""

Settings = Mapping[str, Value]
"""Settings by key, or by dotted path."""


def quantity(settings: Settings, key: str, default: str | int | None = None) -> str | int:
    """A setting that is a number, or a text with a unit.

    Raises TypeError: a suite's reader has refused any other.
    """
    value = settings.get(key, default)
    if not isinstance(value, str | int):
        raise TypeError(f"{key} is no quantity: {value!r}")
    return value


def texts(settings: Settings, key: str) -> tuple[str, ...]:
    """A setting that is a list of texts, or one text alone.

    Raises TypeError: a suite's reader has refused any other.
    """
    value = settings[key]
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, tuple):
        raise TypeError(f"{key} is no list of texts: {value!r}")
    return value
