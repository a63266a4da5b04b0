"""Where the bounds of a search lie, where one more or less of something makes another trial."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from searched_by_hand import BLIND, GOAL, RISING, blindly, carries, made, twice

from plimsoll_lab.stats.capacity import Bounds, Search
from plimsoll_lab.stats.readings import Reading, load_noise


def test_a_search_that_ends_at_the_lowest_load_says_how_long_its_trials_were() -> None:
    _, found = made(GOAL, carries(lambda _: 9))
    assert found == Bounds(lower=None, upper=10, finished=True, upper_s=5, trial_s=1)


def test_what_has_failed_as_long_trials_as_confirm_is_not_looked_at_again() -> None:
    trials, _ = made(replace(GOAL, least_s=1), carries(lambda _: 100))
    assert trials == [*RISING, *[(80, 1)] * 8, *[(95, 1)] * 8]
    trials, found = made(replace(GOAL, least_s=1), carries(lambda _: 9))
    assert trials == [(10, 1)]
    assert (found.lower, found.upper, found.finished) == (None, 10, True)


def test_until_longer_trials_have_decided_the_bounds_are_those_of_the_shorter_ones() -> None:
    known: list[tuple[int, float, Bounds]] = []

    def told(load: int, length_s: float) -> Reading:
        known.append((load, length_s, hunt.bounds()))
        return blindly(lambda seconds: 100 if seconds < 2 else 30)(load, length_s)

    hunt = Search(BLIND, told)
    hunt.run()
    first = next(each for each in known if each[1] == 2)
    assert first[0] == 80
    assert (first[2].lower, first[2].upper, first[2].upper_s) == (80, 113, 1)


def test_the_first_halving_of_a_shifted_search_is_shifted_too() -> None:
    """The middle of 80 and 320 is 160; two thirds of the way are 201, and the next one is a half of
    the way again: sqrt(201 x 320) = 253.
    """
    trials, _ = made(replace(GOAL, shift=1.0), carries(lambda _: 300))
    assert [load for load, _ in trials[:6]] == [10, 20, 80, 320, 201, 253]


def test_bounds_as_near_as_is_asked_are_not_halved() -> None:
    """60 is half as much again as 40, which is asked; for an answer that is confirmed half of it
    is, and 50 is as near.
    """
    trials, found = made(replace(GOAL, lowest=40, highest=60), carries(lambda _: 50))
    assert trials == [(40, 1), (60, 1), (60, 5), *[(40, 5)] * 8, *[(48, 5)] * 8]
    assert (found.lower, found.upper) == (48, 60)
    trials, found = made(replace(GOAL, lowest=40, highest=50), carries(lambda _: 45))
    assert trials == [(40, 1), (50, 1), (50, 5), *[(40, 5)] * 8]
    assert (found.lower, found.upper, found.finished) == (40, 50, True)


def test_a_search_falls_to_a_quarter_at_most() -> None:
    """1,000 / 1.5 = 666, 666 / 2 = 333, 333 / 3 = 111, 111 / 4 = 27 and no fifth; then 27 / 4 is
    below the lowest load.
    """
    goal = replace(BLIND, highest=2000, lowest=1, most_s=2)
    measure = blindly(lambda length_s: 1000 if length_s < 2 else 1)
    trials, _ = made(goal, measure)
    start = next(load for load, length_s in trials if length_s == 2)
    fallen = list(dict.fromkeys(load for load, length_s in trials if length_s == 2))[:7]
    expected = [start]
    for step in (1.5, 2, 3, 4, 4, 4):
        expected.append(max(1, math.floor(expected[-1] / step)))
    assert fallen == expected


@pytest.mark.parametrize(("noise", "longer_s"), [(0.15, None), (0.17, 1.5), (0.2, 1.65), (0.25, 2.78), (0.3, 4.0)])
def test_trials_whose_noise_is_too_large_become_half_as_long_again_and_at_most_four_times_as_long(
    noise: float, longer_s: float | None
) -> None:
    """Of a width of a half 0.2 is tolerated. Six of the ten trials lie near the limit, on either
    side of a line with a slope of 1.
    """
    seen: list[tuple[int, float, float]] = []

    def measure(load: int, length_s: float) -> Reading:
        excess = math.log(load / 100) + noise * (-1) ** len(seen)
        seen.append((load, length_s, excess))
        return Reading(met=load <= 100, excess=excess)

    trials, _ = made(replace(BLIND, trials=3, most_s=30), measure)
    assert trials[:10] == twice(*RISING)
    found = load_noise([each for each in seen[:10] if abs(each[2]) <= 1], 1.0)
    assert found is not None
    lengths_s = list(dict.fromkeys(length_s for _, length_s in trials))
    if longer_s is None:
        assert (found / 0.2) ** 2 < 1
        assert lengths_s == [1]
    else:
        assert longer_s == pytest.approx(min(4, max(1.5, (found / 0.2) ** 2)), abs=0.005)
        assert lengths_s[1] == pytest.approx(longer_s, abs=0.005)
