"""What a search for the highest load is to find, and how its answer is confirmed. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONFIRMATIONS = 8
"""Fresh trials at an answer."""
HOLDS = 2
"""The long trials that show that a load lasts; one more for each that fails."""
FAILURES_TOLERATED = 1
"""Of the confirming trials, and of the long ones: a moment that is not the server's doing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """What is searched for, where, and how finely."""

    lowest: int
    """The floor: a load that every server should complete."""
    highest: int
    """The highest load that is tried."""
    width: float
    """Relative distance of the bounds at which the search ends."""
    trials: int
    """The most trials that decide about a load; more than half of them agree."""
    first_s: float = 1.0
    """Seconds of the search's first trials."""
    least_s: float = 5.0
    """Seconds of the shortest confirming trials."""
    most_s: float = 150.0
    """Seconds of the longest trials."""
    hold_s: float = 0.0
    """Seconds of the long trials that show whether the load lasts; 0 for none."""
    patience_s: float = math.inf
    """Seconds for all trials together, whose end `measure` tells: trials become no longer than that
    it lasts for a search with them, and for their confirmation."""
    shift: float = 0.0
    """From 0 to 1: where on the scale the search's loads lie, so that repeated searches try other
    ones."""

    @property
    def majority(self) -> int:
        """How many trials decide about a load, where they agree."""
        return self.trials // 2 + 1

    def is_near(self, lower: int, upper: int) -> bool:
        """Whether bounds are as near as is asked, or as whole loads are."""
        return upper <= lower * (1 + self.width) or between(lower, upper) is None


def between(low: int, high: int, part: float = 0.5) -> int | None:
    """The load that is this part of the way, on a logarithmic scale; None where whole loads lie no
    nearer.
    """
    middle = max(low + 1, math.floor(low * (high / low) ** part))
    return middle if middle < high else None
