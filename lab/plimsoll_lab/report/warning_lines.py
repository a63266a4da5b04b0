"""Warnings as lines of text: how much each matters, then what was seen and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.store.records import Severity, WarningRecord

WORDS: dict[Severity, str] = {"voids": "voids results", "widens": "less certain results", "note": "good to know"}
"""The severity in two or three words."""
COLOURS: dict[Severity, str] = {"voids": "31", "widens": "33", "note": "2"}
"""Of the word `warning`, as SGR codes."""


def warning_lines(warnings: Sequence[WarningRecord], *, colour: bool = False) -> list[str]:
    """A line a warning, in the order they are in: the gravest first."""
    lines = []
    for each in warnings:
        mark = f"warning, {WORDS[each.severity]}"
        shown = f"\x1b[{COLOURS[each.severity]}m{mark}\x1b[0m" if colour else mark
        lines.append(f"{shown}  {each.code}: {each.message}; {each.remedy}")
    return lines
