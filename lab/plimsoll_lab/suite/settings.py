"""A setting, and a table of them: the leaves of every question."""

from __future__ import annotations

from collections.abc import Mapping

Value = str | int | float | bool | tuple[str, ...]
"""One setting: a TOML scalar, or a list of texts (a command, a flag that may be repeated)."""

Settings = Mapping[str, Value]
"""Settings by key, or by dotted path."""
