"""Reasons in words, each once, and parts as they are written there."""

from __future__ import annotations

from collections.abc import Mapping


def reasons_once(told: Mapping[str, str]) -> str:
    """Why some could not be compared, each reason once: `a, b: 4 valid blocks; c: no result`."""
    alike: dict[str, list[str]] = {}
    for name, reason in told.items():
        alike.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in alike.items())


def counted(count: int, one: str) -> str:
    """`1 trial`, `1,400 trials`."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def percent(part: float, digits: int = 1) -> str:
    """`7.2 %`; no part that rounds to nothing is negative."""
    return f"{part * 100:z.{digits}f} %"
