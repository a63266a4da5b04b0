"""How a figure may be compared with a value, in limits and in expectations. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "==": lambda one, other: one == other,
    "!=": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}
"""Operators that `plimsoll load --limit` takes."""
CONDITION = r"\s*(==|!=|<=|>=|<|>)\s*(.+?)\s*"
"""An operator and what follows it, as a pattern for a full match."""
EXACT = ("==", "!=")
"""Operators that no order of values helps: each value alone meets them or does not."""
