"""Reasons in words, each once, and parts as they are written there."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

Toward = Literal["nearest", "down", "up"]
OUTWARDS: tuple[Toward, Toward] = ("down", "up")
"""How the ends of an interval are rounded: it lies within what is told."""


def reasons_once(told: Mapping[str, str]) -> str:
    """Why some could not be compared, each reason once: `a, b: 4 valid blocks; c: no result`."""
    alike: dict[str, list[str]] = {}
    for name, reason in told.items():
        alike.setdefault(reason, []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in alike.items())


def usual_reason(reasons: Sequence[str | None]) -> str | None:
    """The reason that most gave, of as many the first: `it died (mostly)` where one gave another,
    `(among others)` where no more than half gave this one. Where each differs, as by a number, the
    first stands for them.
    """
    reason, count = Counter(reasons).most_common(1)[0]
    if reason is None or count in {1, len(reasons)}:
        return reason
    return f"{reason.rstrip('.')} ({'mostly' if 2 * count > len(reasons) else 'among others'})"


def counted(count: int, one: str) -> str:
    """`1 trial`, `1,400 trials`."""
    return f"{count:,} {one}{'' if count == 1 else 's'}"


def percent(part: float, digits: int = 1) -> str:
    """`7.2 %`; no part that rounds to nothing is negative."""
    return f"{part * 100:z.{digits}f} %"


def significant(value: float, toward: Toward = "nearest") -> str:
    """Three significant figures, thousands grouped."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    # What differs by a float's last digits alone is exact.
    beyond = 0 if math.isclose(rounded, value, rel_tol=1e-12) else {"nearest": 0, "down": -1, "up": 1}[toward]
    if beyond and (rounded - value) * beyond < 0:
        rounded = round(rounded + beyond * 10.0**-digits, digits)
    # Rounding may carry into another digit: 9.999 is 10.0, not 10.00.
    digits = max(0, 2 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{digits}f}"
