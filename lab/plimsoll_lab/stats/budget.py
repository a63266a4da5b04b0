"""What a search has time for. Pure."""

from __future__ import annotations

from plimsoll_lab.stats.goal import CONFIRMATIONS, FAILURES_TOLERATED, HOLDS, Goal
from plimsoll_lab.stats.readings import WARM_UP, Readings

LOADS_AGAIN, LOADS_REFUSED = 6, 3
"""How many loads a search with longer trials decides about, and how many are then not confirmed, as
a rule: what there is no time for is not begun."""


class Budget:
    """The patience of one search, and what is left of it as its trials are made."""

    def __init__(self, goal: Goal, readings: Readings) -> None:
        self._goal = goal
        self._readings = readings

    def left_s(self) -> float:
        """Seconds that are left."""
        return self._goal.patience_s - self._readings.spent_s

    def lasts_for(self, loads: int, length_s: float, hold_s: float, *, beside_s: float = 0.0) -> bool:
        """Whether it lasts for so many more loads that are confirmed by trials of these lengths,
        and for so many seconds beside them.
        """
        one_s = CONFIRMATIONS * self._readings.takes_s(length_s) + self._holding_s(length_s, hold_s)
        return self._readings.spent_s + beside_s + loads * one_s <= self._goal.patience_s

    def lasts_for_long_ones(self, hold_s: float) -> bool:
        """Whether it lasts for the long trials at a load that passes."""
        return self.left_s() >= HOLDS * self._readings.takes_s(hold_s)

    def searching_s(self, length_s: float) -> float:
        """What a search with trials of a length takes, as a rule."""
        return LOADS_AGAIN * self._goal.majority * self._readings.takes_s(length_s)

    def deciding_s(self, length_s: float) -> float:
        """What it takes to decide about a load by trials of a length, at most."""
        return self._goal.trials * self._readings.takes_s(length_s)

    def length_of_search_s(self) -> float:
        """How long trials may be so that the patience lasts for a search with them, and for the
        confirmation of its answer, whose trials are at least `least_s` long.
        """
        goal, longer = self._goal, 1 + WARM_UP
        searching = LOADS_AGAIN * goal.majority
        confirming = LOADS_REFUSED * (FAILURES_TOLERATED + 1) + CONFIRMATIONS
        beside_s = self._readings.beside_s()
        left_s = self.left_s() - HOLDS * self._readings.takes_s(goal.hold_s)
        length_s = (left_s / (searching + confirming) - beside_s) / longer
        if length_s >= goal.least_s:
            return length_s
        # And for a look at what failed with trials as long as those that confirm.
        left_s -= (confirming + goal.trials) * (beside_s + longer * goal.least_s)
        return (left_s / searching - beside_s) / longer

    def length_of_eight_s(self, length_s: float, hold_s: float) -> float:
        """How long the eight confirming trials may be, which now have a length."""
        left_s = self.left_s() - self._holding_s(length_s, hold_s)
        return (left_s / CONFIRMATIONS - self._readings.beside_s()) / (1 + WARM_UP)

    def _holding_s(self, length_s: float, hold_s: float) -> float:
        """What the long trials take at a load that passes; none are made where all are as long."""
        return HOLDS * self._readings.takes_s(hold_s) if hold_s > length_s else 0.0
