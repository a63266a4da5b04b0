"""A chapter of the book that a script writes: prose wraps as the rest of the book does."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

WIDTH = 100
"""Columns (tests/line_width.py)."""


def wrapped(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a chapter, wrapped but for tables, headings and fenced blocks."""
    fenced = False
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
        if fenced or len(line) <= WIDTH or line.startswith(("|", "#", "```")):
            yield line
        else:
            indent = "  " if line.startswith("- ") else ""
            yield from textwrap.wrap(
                line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
