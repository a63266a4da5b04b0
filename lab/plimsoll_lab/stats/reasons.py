"""Reasons in words, each once, and parts as they are written there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence


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
