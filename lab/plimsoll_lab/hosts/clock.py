"""How far another machine's clock is from this one's, of exchanges as in NTP (RFC 5905, section
8). Pure.

Of a question sent at a, answered there at b and received at c, all by the clock of their machine,
the offset is b - (a + c) / 2, and wrong by (c - a) / 2 at most: the answer was made somewhere
between. So the shortest exchange is the most exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Exchange = tuple[float, float, float]
"""Seconds since 1970: sent, by this machine's clock; answered, by the other's; received, by this
one's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offset:
    """A clock, against this machine's."""

    offset_s: float
    """Add it to this machine's time to get that machine's."""
    error_s: float
    """How far the true offset may be from that, in either direction."""

    @property
    def known_s(self) -> float:
        """The offset, or 0 where its error exceeds it."""
        return self.offset_s if abs(self.offset_s) > self.error_s else 0.0


def estimate(exchanges: Sequence[Exchange]) -> Offset:
    """The offset by the shortest exchange. A clock that was set back meanwhile has none: such an
    exchange is left out.
    """
    usable = [each for each in exchanges if each[2] >= each[0]]
    if not usable:
        raise ValueError("this machine's clock was set back between each question and its answer")
    sent, there, received = min(usable, key=lambda each: each[2] - each[0])
    return Offset(offset_s=there - (sent + received) / 2, error_s=(received - sent) / 2)


def moved(before: Offset, after: Offset) -> float:
    """Seconds that a clock certainly moved between two comparisons; 0 where their errors allow that
    it did not.
    """
    least = abs(after.offset_s - before.offset_s) - before.error_s - after.error_s
    return max(0.0, least)
