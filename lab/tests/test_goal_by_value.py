"""A search's goal in figures: how many trials decide, and which bounds are near enough."""

from __future__ import annotations

import pytest

from plimsoll_lab.stats.goal import Goal, between

GOAL = Goal(lowest=1, highest=1000, width=0.5, trials=3)


@pytest.mark.parametrize(("trials", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_more_than_half_of_the_trials_decide(trials: int, majority: int) -> None:
    assert Goal(lowest=1, highest=2, width=0.1, trials=trials).majority == majority


@pytest.mark.parametrize(
    ("lower", "upper", "near"), [(100, 149, True), (100, 150, True), (100, 151, False), (1, 2, True), (1, 3, False)]
)
def test_bounds_are_near_within_the_width_or_as_whole_loads_are(lower: int, upper: int, *, near: bool) -> None:
    assert GOAL.is_near(lower, upper) is near


@pytest.mark.parametrize(
    ("low", "high", "part", "load"),
    [
        (40, 160, 0.5, 80),
        (10, 1000, 0.25, 31),
        (10, 1000, 0.75, 316),
        # The geometric mean of 5 and 7 is 5.9: the next load above 5.
        (5, 7, 0.5, 6),
        (5, 6, 0.5, None),
        (1, 2, 0.5, None),
        (1, 3, 0.5, 2),
    ],
)
def test_the_load_between_two_lies_a_part_of_the_way_by_its_logarithm(
    low: int, high: int, part: float, load: int | None
) -> None:
    assert between(low, high, part) == load


def test_half_of_the_way_is_meant_where_no_part_is_named() -> None:
    assert between(10, 1000) == 100


def test_a_goal_that_says_no_more_has_these_lengths() -> None:
    assert (GOAL.first_s, GOAL.least_s, GOAL.most_s, GOAL.hold_s, GOAL.shift) == (1.0, 5.0, 150.0, 0.0, 0.0)
