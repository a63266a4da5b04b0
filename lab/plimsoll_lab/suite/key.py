"""A key of a suite's tables, with its words: a reader refuses every other key, and the book's
reference (docs/suite.md) is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "address",
    "bit rate",
    "choice",
    "condition",
    "count",
    "cpus",
    "duration",
    "expression",
    "figure",
    "figures",
    "file",
    "host",
    "hosts",
    "link",
    "loads",
    "name",
    "pair",
    "path",
    "point",
    "points",
    "port",
    "range",
    "rate",
    "row",
    "setting",
    "share",
    "size",
    "switch",
    "text",
    "texts",
    "value",
    "values",
]
"""How a value is written; docs/suite.md says it of each."""

REQUIRED = "required"


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One key of a table."""

    kind: Kind
    """How its value is written."""
    means: str
    """What it does, in one sentence or two."""
    example: str
    """A value as it is written in a suite."""
    default: str = ""
    """What holds without it; empty where nothing does."""


Keys = Mapping[str, Key]
