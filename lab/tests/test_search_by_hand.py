"""Every trial of a search, in order: what its rules make of servers that are known exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from searched_by_hand import BLIND, GOAL, SEARCHED, blindly, carries, made

from plimsoll_lab.stats.capacity import Bounds, OutOfPatience, search
from plimsoll_lab.stats.goal import Goal
from plimsoll_lab.stats.readings import Measure, Reading


def test_a_search_that_is_confirmed_and_then_goes_half_the_rest() -> None:
    """113 is more than a quarter above 80, and sqrt(80 x 113) = 95 is tried; 113 is less than a
    quarter above 95.
    """
    trials, found = made(GOAL, carries(lambda _: 100))
    assert trials == [*SEARCHED, *[(80, 5)] * 8, *[(95, 5)] * 8]
    assert found == Bounds(
        lower=95, upper=113, finished=True, confirmed=8, is_held=True, upper_s=5, trial_s=5, held_s=40
    )


def test_a_load_that_is_not_confirmed_goes_down_in_steps_that_double() -> None:
    """Two of eight trials fail at 80; a step is a quarter of the width, 0.125: 80 / 1.125 = 71,
    then 71 / 1.25 = 56. It is confirmed, and sqrt(56 x 71) = 63 too.
    """
    trials, found = made(GOAL, carries(lambda length_s: 100 if length_s < 5 else 70))
    assert trials == [*SEARCHED, *[(80, 5)] * 2, *[(71, 5)] * 2, *[(56, 5)] * 8, *[(63, 5)] * 8]
    assert found == Bounds(
        lower=63,
        upper=71,
        finished=True,
        confirmed=8,
        is_held=True,
        upper_s=5,
        unconfirmed=(80, 71),
        trial_s=5,
        held_s=40,
    )


def test_a_load_above_the_confirmed_one_that_fails_is_the_upper_bound() -> None:
    """63 is less than a quarter above 56."""
    trials, found = made(GOAL, carries(lambda length_s: 100 if length_s < 5 else 60))
    assert trials == [*SEARCHED, *[(80, 5)] * 2, *[(71, 5)] * 2, *[(56, 5)] * 8, *[(63, 5)] * 2]
    assert (found.lower, found.upper, found.confirmed, found.unconfirmed) == (56, 63, 8, (80, 71))


def test_a_load_far_above_the_confirmed_one_that_fails_is_halved_again() -> None:
    """At a width of 10 % the search ends between 951 and 1,037. Steps of 2.5 %, 5, 10 and 20 % lead
    to 667. Of 667 and 801 the middle is 730, which fails; of 667 and 730 it is 697.
    """
    goal = Goal(lowest=100, highest=10_000, width=0.1, trials=1)
    trials, found = made(goal, carries(lambda length_s: 1000 if length_s < 5 else 700))
    rising = [*((load, 1) for load in (100, 400, 1600, 800, 1131, 951, 1037)), (1037, 5)]
    falling = [(load, 5) for load in (951, 927, 882, 801) for _ in range(2)]
    assert trials == [*rising, *falling, *[(667, 5)] * 8, *[(730, 5)] * 2, *[(697, 5)] * 8]
    assert (found.lower, found.upper, found.unconfirmed) == (697, 730, (951, 927, 882, 801))


@pytest.mark.parametrize(
    ("width", "tried"),
    [
        # By steps of 0.125, 0.25, 0.5, 1 and 2: the next one would be 6, below the lowest.
        (0.5, (80, 71, 56, 37, 18, 10)),
        # By steps of 0.2, 0.4, 0.8 and 1.6: the last one is the lowest itself.
        (0.8, (80, 66, 47, 26, 10)),
    ],
)
def test_where_nothing_is_confirmed_the_answer_goes_down_to_the_lowest_load(
    width: float, tried: tuple[int, ...]
) -> None:
    trials, found = made(replace(GOAL, width=width), carries(lambda length_s: 100 if length_s < 5 else 0))
    assert trials == [*SEARCHED, *((load, 5) for load in tried for _ in range(2))]
    assert found == Bounds(
        lower=None, upper=tried[-1], finished=True, confirmed=0, upper_s=5, unconfirmed=tried, trial_s=5
    )


def test_the_lowest_load_is_tried_before_nothing_is_said_to_be_carried() -> None:
    """A server that carried 12 in longer trials, and 10 too, was said to carry less than 18."""
    trials, found = made(GOAL, carries(lambda length_s: 100 if length_s < 5 else 12))
    fallen = [(load, 5) for load in (80, 71, 56, 37, 18) for _ in range(2)]
    assert trials == [*SEARCHED, *fallen, *[(10, 5)] * 8, *[(13, 5)] * 2, *[(11, 5)] * 8]
    assert (found.lower, found.upper, found.finished) == (11, 13, True)


def test_a_step_that_is_no_load_goes_to_the_next_load_below() -> None:
    """The middle of 6 and 8, 6.9, is 6 as a whole load: then it is the next one."""
    goal = Goal(lowest=1, highest=8, width=1e-17, trials=1)
    trials, found = made(goal, carries(lambda length_s: 7 if length_s < 5 else 5))
    rising = [*((load, 1) for load in (1, 4, 8, 5, 6, 7)), (8, 5)]
    assert trials == [*rising, *[(7, 5)] * 2, *[(6, 5)] * 2, *[(5, 5)] * 8]
    # No load lies between, and nothing is left to be tried.
    assert (found.lower, found.upper, found.finished) == (5, 6, True)


def test_a_search_that_nothing_stops_is_confirmed_at_the_highest_load() -> None:
    trials, found = made(GOAL, carries(lambda _: math.inf))
    assert trials == [(10, 1), (40, 1), (160, 1), (640, 1), (1000, 1), *[(1000, 5)] * 8]
    assert (found.lower, found.upper, found.confirmed, found.finished) == (1000, None, 8, True)


def test_a_search_that_is_shifted_rises_less_at_first() -> None:
    """By 4 ** 0.75 = 2.83 at a shift of a half, and by 2 at a shift of 1; then by 4."""
    for shift, loads in ((0.5, [10, 28, 112, 448]), (1.0, [10, 20, 80, 320])):
        trials, _ = made(replace(GOAL, shift=shift), carries(lambda _: 300))
        assert [load for load, _ in trials[:4]] == loads


@pytest.mark.parametrize("trials", [1, 3, 5])
def test_more_than_half_of_the_trials_decide_about_a_load(trials: int) -> None:
    """Of three two, of five three; the rest is not made. Trials that are too short to show that the
    load lasts count as met.
    """
    needed = trials // 2 + 1
    seen: list[int] = []

    def measure(load: int, length_s: float) -> Reading:
        if length_s >= 5:
            raise OutOfPatience
        seen.append(load)
        turn = seen.count(load)
        # Each load but the last one is missed once less than is needed, and then met.
        return Reading(met=load < 160 and turn >= needed and (True if load > 10 else None))

    found = search(measure, replace(GOAL, trials=trials))
    assert seen.count(10) == seen.count(40) == 2 * needed - 1
    assert seen.count(160) == needed
    assert (found.lower, found.finished) == (113, False)


@pytest.mark.parametrize("failing", [1, 2])
def test_one_of_eight_confirming_trials_may_fail(failing: int) -> None:
    left = iter([False] * failing)

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=next(left, True) if (load, length_s) == (80, 5) else load <= 90)

    trials, found = made(GOAL, measure)
    if failing == 1:
        assert trials == [*SEARCHED, *[(80, 5)] * 8, *[(95, 5)] * 2]
        assert (found.lower, found.confirmed, found.held_s, found.unconfirmed) == (80, 7, 35, ())
    else:
        assert trials[6:9] == [(80, 5), (80, 5), (71, 5)]
        assert found.unconfirmed == (80,)


def test_a_load_that_has_to_last_is_tried_in_two_long_trials_once_short_ones_have_passed() -> None:
    """Minutes at each load that is too high took most of a search."""
    trials, found = made(replace(GOAL, hold_s=60), carries(lambda _: 90))
    assert trials == [*SEARCHED, *[(80, 5)] * 8, *[(80, 60)] * 2, *[(95, 5)] * 2]
    assert (found.lower, found.upper, found.confirmed, found.held_s, found.trial_s) == (80, 95, 8, 160, 5)


@pytest.mark.parametrize("failing", [(0,), (1,), (2,)])
def test_a_long_trial_may_fail_once_if_three_of_four_pass(failing: tuple[int, ...]) -> None:
    trials, found = made(replace(GOAL, hold_s=60), one_long_trial_after_another(failing))
    # One that fails after the first two have passed is not made.
    long = 2 if failing == (2,) else 4
    assert trials[6:] == [*[(80, 5)] * 8, *[(80, 60)] * long, *[(95, 5)] * 2]
    assert (found.lower, found.confirmed, found.held_s) == (80, 8, 40 + (long - len(failing) + (long == 2)) * 60)


@pytest.mark.parametrize("failing", [(0, 1), (0, 2), (1, 3)])
def test_where_two_long_trials_fail_the_long_ones_of_a_lower_load_come_first(failing: tuple[int, ...]) -> None:
    """Short ones do not see what comes later, and would pass there too."""
    trials, found = made(replace(GOAL, hold_s=60), one_long_trial_after_another(failing))
    long = failing[-1] + 1
    assert trials[6:] == [*[(80, 5)] * 8, *[(80, 60)] * long, *[(71, 60)] * 2, *[(71, 5)] * 8]
    assert (found.lower, found.upper, found.unconfirmed, found.finished) == (71, 80, (80,), True)
    assert (found.held_s, found.trial_s, found.confirmed) == (160, 5, 8)


def one_long_trial_after_another(failing: Sequence[int]) -> Measure:
    """A server that carries 90, and fails these of its long trials, the first one 0."""
    long: list[int] = []

    def measure(load: int, length_s: float) -> Reading:
        if length_s == 60:
            long.append(load)
            return Reading(met=len(long) - 1 not in failing)
        return Reading(met=load <= 90)

    return measure


def test_a_search_that_is_given_up_in_the_long_trial_keeps_what_the_short_ones_have_shown() -> None:
    def measure(load: int, length_s: float) -> Reading:
        if length_s == 60:
            raise OutOfPatience
        return Reading(met=load <= 90)

    _, found = made(replace(GOAL, hold_s=60), measure)
    assert (found.lower, found.upper, found.finished) == (80, 113, False)
    assert (found.confirmed, found.held_s) == (8, 40)


def test_a_load_whose_long_trial_has_failed_is_not_held_when_the_search_is_given_up() -> None:
    """The short ones had passed before it, and it was said to have been held by these."""
    long: list[int] = []

    def measure(load: int, length_s: float) -> Reading:
        if length_s == 60:
            if long:
                raise OutOfPatience
            long.append(load)
        return Reading(met=load <= 90 and length_s < 60)

    _, found = made(replace(GOAL, hold_s=60), measure)
    assert (found.lower, found.confirmed, found.held_s, found.finished) == (80, 0, 0, False)


def test_a_long_trial_that_is_too_short_to_show_that_the_load_lasts_refutes_nothing() -> None:
    """It took the load for one that is not carried, though longer trials were allowed."""

    def measure(load: int, length_s: float) -> Reading:
        met = load <= 90
        return Reading(met=None if met and length_s == 60 else met)

    trials, found = made(replace(GOAL, hold_s=60, most_s=150), measure)
    assert trials[6:] == [*[(80, 5)] * 8, *[(80, 60)] * 2, *[(80, 120)] * 2, *[(95, 5)] * 2]
    assert (found.lower, found.unconfirmed, found.held_s) == (80, (), 40 + 240)
    # No longer ones are allowed: the load is not shown to last, and no lower one is; none failed.
    trials, found = made(replace(GOAL, hold_s=60, most_s=60), measure)
    tried = [load for load, length_s in trials if length_s == 60]
    # In steps of a quarter, half of the width, as nothing failed. Of 53 and below 5 s tell.
    assert tried == [load for load in (80, 64, 51, 40, 32, 25, 20, 16, 12, 10) for _ in range(2)]
    assert (found.lower, found.upper, found.confirmed, found.unconfirmed, found.finished) == (80, 113, 0, (), False)


def test_a_search_that_is_given_up_as_longer_trials_refute_its_bounds_keeps_what_lies_below() -> None:
    """80 had passed for a second, and fails with two; 40 had passed too, and it knew nothing of
    it.
    """
    made_s: list[float] = []

    def measure(load: int, length_s: float) -> Reading:
        made_s.append(length_s)
        if made_s.count(2) > 2:
            raise OutOfPatience
        return blindly(lambda seconds: 100 if seconds < 2 else 30)(load, length_s)

    found = search(measure, BLIND)
    assert (found.lower, found.upper, found.finished) == (40, 80, False)


def test_a_trial_as_long_as_the_load_has_to_last_needs_no_longer_one() -> None:
    trials, _ = made(replace(GOAL, hold_s=5), carries(lambda _: 90))
    assert trials == [*SEARCHED, *[(80, 5)] * 8, *[(95, 5)] * 2]


def test_trials_too_short_to_show_that_a_load_lasts_become_twice_as_long_up_to_the_longest() -> None:
    """Of 5, 10, 20 and 30 s only those of 30 s tell; those before them confirm nothing."""

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=False if load > 80 else True if length_s >= 30 else None)

    trials, found = made(replace(GOAL, most_s=30), measure)
    shorter = [(80, length_s) for length_s in (5, 10, 20) for _ in range(2)]
    assert trials == [*SEARCHED, *shorter, *[(80, 30)] * 8, *[(95, 30)] * 2]
    assert (found.lower, found.confirmed, found.held_s, found.trial_s) == (80, 8, 240, 30)
    # The longest ones that do not tell have not met it, and have not missed it.
    trials, found = made(replace(GOAL, most_s=20), measure)
    assert trials[6:14] == [*shorter, (64, 20), (64, 20)]
    assert (found.lower, found.upper, found.confirmed, found.unconfirmed, found.finished) == (80, 113, 0, (), False)
