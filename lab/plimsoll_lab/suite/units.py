"""Quantities as people write them: `250ms`, `64KB`, `10k`, `0.1%`."""

from __future__ import annotations

import math
import re
import sys
from decimal import Decimal

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
BYTES = {
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "KiB": 1024,
    "MiB": 1024**2,
    "GiB": 1024**3,
}
BITS_PER_S = {"bit": 1, "kbit": 1000, "Mbit": 1000**2, "Gbit": 1000**3}
COUNT = {"": 1, "k": 1000, "M": 1000_000}

MOST = 1e18
"""No quantity is more than this; with every unit it is still a finite number."""

_CPUS = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?", re.ASCII)
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]*)")


def _split(text: str) -> tuple[float, str]:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"'{text}' is not a number with a unit")
    number = float(match[1])
    if number > MOST:
        raise ValueError(f"'{text}' is beyond every number")
    return number, match[2]


def _whole(number: float) -> int | None:
    """The whole number that this is, but for what a float lacks of a decimal such as 1.001."""
    if not math.isfinite(number):
        return None
    whole = round(number)
    return whole if abs(number - whole) <= 4 * sys.float_info.epsilon * whole else None


def duration_s(text: str) -> float:
    """Seconds in `250ms`; a bare number has no unit and is refused, but for 0."""
    number, unit = _split(text)
    if unit not in SECONDS:
        if number == 0 and not unit:
            return 0.0
        raise ValueError(f"'{text}' is not a duration: write a number and one of us, ms, s, m, h, such as 250ms")
    return number * SECONDS[unit]


def size_bytes(text: str | int) -> int:
    """Bytes in `64KB`; a bare whole number is bytes."""
    if isinstance(text, int):
        return text
    number, unit = _split(text)
    size = _whole(number * BYTES.get(unit or "B", math.nan))
    if size is None:
        raise ValueError(f"'{text}' is not a size: write a whole number of {', '.join(BYTES)}, such as 4KiB")
    return size


def bits_per_s(text: str) -> float:
    """Bits a second in `100Mbit`."""
    number, unit = _split(text)
    if unit not in BITS_PER_S or number == 0:
        raise ValueError(f"'{text}' is not a rate: write a number and one of {', '.join(BITS_PER_S)}, such as 100Mbit")
    return number * BITS_PER_S[unit]


def count(text: str | int) -> int:
    """The number in `10k`."""
    if isinstance(text, int):
        return text
    number, unit = _split(text)
    found = _whole(number * COUNT.get(unit, math.nan))
    if found is None:
        raise ValueError(f"'{text}' is not a count: write a whole number, with k or M for thousands or millions")
    return found


def cpus(text: str) -> tuple[int, ...]:
    """The CPUs in `0,2-3`, by the kernel's numbers, in ascending order, each once."""
    found: set[int] = set()
    for each in text.split(","):
        match = _CPUS.fullmatch(each.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise ValueError(f"'{text}' is not a list of CPUs: write their numbers, such as 0,2-3")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(found))


def rate(text: str) -> float:
    """The number in `10k` or `0.5`: of events a second, of cores, of one figure over another."""
    number, unit = _split(text)
    if unit not in COUNT:
        raise ValueError(f"'{text}' is not a number: write one such as 0.5, with k or M for thousands or millions")
    return number * COUNT[unit]


def ratio(text: str) -> float:
    """The fraction in `0.1%`, or in a bare `0.001`."""
    number, unit = _split(text)
    if unit not in {"", "%"}:
        raise ValueError(f"'{text}' is not a ratio: write a percentage such as 0.1%")
    # Not by a division of floats: 0.7 % is 7 of 1,000, and 0.7 / 100 is less.
    return float(Decimal(str(number)) / 100) if unit else number


def part(text: str) -> float:
    """A fraction of a whole; a bare number above 1 is refused, as `5` was meant to be `5%`."""
    found = ratio(text)
    if found > 1 and not text.strip().endswith("%"):
        raise ValueError(f"'{text}' would be {found:.0%}: write a percentage, such as {text.strip()}%")
    return found
