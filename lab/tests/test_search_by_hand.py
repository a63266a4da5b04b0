"""Every trial of a search, in order: what its rules make of servers that are known exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from plimsoll_lab.stats.capacity import Bounds, Goal, OutOfPatience, Search, search
from plimsoll_lab.stats.readings import NEAR, Measure, Reading

GOAL = Goal(lowest=10, highest=1000, width=0.5, trials=1)
"""One trial decides. Bounds are half as far again apart, a quarter once an answer is confirmed."""
Trial = tuple[int, float]
"""The load of a trial, and its seconds."""


def made(goal: Goal, measure: Measure) -> tuple[list[Trial], Bounds]:
    """The trials of a search, and what it found."""
    trials: list[Trial] = []

    def told(load: int, length_s: float) -> Reading:
        trials.append((load, length_s))
        return measure(load, length_s)

    return trials, search(told, goal)


def carries(most: Callable[[float], float]) -> Measure:
    """A server that carries so much in trials of a length."""
    return lambda load, length_s: Reading(met=load <= most(length_s))


RISING: list[Trial] = [(10, 1), (40, 1), (160, 1), (80, 1), (113, 1)]
"""Four times as much each time until 160 fails; then sqrt(40 x 160) = 80, and sqrt(80 x 160) = 113,
which is less than half as much again."""
SEARCHED: list[Trial] = [*RISING, (113, 5)]
"""And 113 once more, as long as what confirms an answer."""


def test_a_search_that_is_confirmed_and_then_goes_half_the_rest() -> None:
    """113 is more than a quarter above 80, and sqrt(80 x 113) = 95 is tried; 113 is less than a
    quarter above 95.
    """
    trials, found = made(GOAL, carries(lambda _: 100))
    assert trials == [*SEARCHED, *[(80, 5)] * 8, *[(95, 5)] * 8]
    assert found == Bounds(lower=95, upper=113, finished=True, confirmed=8, upper_s=5, trial_s=5, held_s=40)


def test_a_search_rises_again_from_a_load_that_had_failed_for_a_moment() -> None:
    """For five seconds 56 fails, and then 500 is carried. It had answered with 40, and not 56. With
    5 s 56 passes. With 2 s half as much again does, and twice as much as that; three times as much
    does not, and 447 and 514 are near enough.
    """
    seen: list[int] = []

    def measure(load: int, _: float) -> Reading:
        seen.append(load)
        return Reading(met=load <= (50 if len(seen) <= 5 else 500))

    trials, found = made(GOAL, measure)
    moment = [(10, 1), (40, 1), (160, 1), (80, 1), (56, 1)]
    again = [(load, 2) for load in (85, 171, 514, 296, 390, 447)]
    assert trials == [*moment, (56, 5), *again, (514, 5), *[(447, 5)] * 8]
    assert (found.lower, found.upper, found.finished) == (447, 514, True)


def test_short_trials_that_mislead_become_as_long_as_those_that_confirm() -> None:
    """A server that is slow for its first seconds: of 1, 2 and 4 s 60 is the most, of 5 s 100."""
    trials, found = made(GOAL, carries(lambda length_s: 60 if length_s < 5 else 100))
    one = [(10, 1), (40, 1), (160, 1), (80, 1), (56, 1), (80, 5)]
    two, four = [(121, 2), (98, 2), (98, 5)], [(148, 4), (120, 4), (120, 5)]
    assert trials == [*one, *two, *four, *[(98, 5)] * 8]
    assert (found.lower, found.upper, found.finished) == (98, 120, True)


def test_a_load_that_passes_after_all_is_the_answer_where_there_is_no_time_to_rise_from_it() -> None:
    """15 s are spent then, six loads of 2 s take 18 s, and eight trials of 5 s take 60 s. Of one
    second 80 and 160 had failed.
    """
    trials, found = made(*patient(92, most=lambda length_s: 60 if length_s < 5 else 100))
    assert trials[5:] == [(80, 5), *[(80, 5)] * 8]
    assert (found.lower, found.upper, found.confirmed, found.finished) == (80, 160, 8, False)
    trials, _ = made(*patient(93, most=lambda length_s: 60 if length_s < 5 else 100))
    assert trials[5:7] == [(80, 5), (121, 2)]


def test_a_search_is_not_finished_below_the_highest_load_where_nothing_fails_any_more() -> None:
    """Of two seconds 5 fails, and of five it passes; 28.5 s are spent then, and six loads of 4 s
    and eight trials of 5 s take 96 s. What lies above was not looked at.
    """
    goal, measure = patient(110, most=lambda length_s: 4 if length_s < 5 else 10)
    fails = iter([False])

    def moment(load: int, length_s: float) -> Reading:
        reading = measure(load, length_s)
        return replace(reading, met=next(fails, reading.met))

    trials, found = made(replace(goal, lowest=1, highest=10), moment)
    assert trials == [(1, 1), (1, 5), (2, 2), (5, 2), (3, 2), (4, 2), (5, 5), *[(5, 5)] * 8]
    assert (found.lower, found.upper, found.confirmed, found.finished) == (5, None, 8, False)


def test_a_lowest_load_that_failed_for_a_moment_is_tried_once_more_too() -> None:
    """It was said to carry less than 10, by one trial of a second."""
    fails = iter([False])
    trials, found = made(GOAL, lambda load, _: Reading(met=next(fails, load <= 100)))
    assert trials[:3] == [(10, 1), (10, 5), (16, 2)]
    assert 80 <= (found.lower or 0) <= 100 < (found.upper or 0) <= 120
    trials, found = made(GOAL, carries(lambda _: 9))
    assert trials == [(10, 1), (10, 5)]
    assert (found.lower, found.upper, found.finished) == (None, 10, True)


@pytest.mark.parametrize("trials", [3, 5])
def test_more_than_half_of_the_trials_have_to_pass_for_a_search_to_rise_again(trials: int) -> None:
    """One that tells nothing does not pass."""
    needed = trials // 2 + 1
    seen: list[bool | None] = []

    def measure(load: int, length_s: float) -> Reading:
        if (load, length_s) != (113, 5):
            return Reading(met=load <= 100)
        seen.append([True, None, False][len(seen) % 3])
        return Reading(met=seen[-1])

    _, found = made(replace(GOAL, trials=trials), measure)
    assert seen.count(True) < needed
    assert len(seen) - seen.count(True) == needed
    assert (found.lower, found.upper, found.upper_s) == (95, 113, 5)


def test_longer_trials_that_tell_nothing_are_not_those_that_refuted_a_load() -> None:
    """What broke there was said of them: no trial had shown that the backlog does not grow."""

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=None if load == 113 and length_s > 1 else load <= 100)

    trials, found = made(GOAL, measure)
    assert trials[:6] == SEARCHED
    assert (found.lower, found.upper, found.upper_s) == (95, 113, 1)


@pytest.mark.parametrize(("patience_s", "looked_at"), [(74, False), (75, True)])
def test_a_load_that_failed_is_not_looked_at_again_without_time_for_an_answer(
    patience_s: float, *, looked_at: bool
) -> None:
    """7.5 s are spent, the trial takes as long, and eight at an answer 60 s."""
    trials, found = made(*patient(patience_s, most=lambda _: 100))
    assert trials == [*(SEARCHED if looked_at else RISING), *[(80, 5)] * 8]
    assert (found.lower, found.upper, found.confirmed) == (80, 113, 8)


def test_a_load_that_is_not_confirmed_goes_down_in_steps_that_double() -> None:
    """Two of eight trials fail at 80; a step is a quarter of the width, 0.125: 80 / 1.125 = 71,
    then 71 / 1.25 = 56. It is confirmed, and sqrt(56 x 71) = 63 too.
    """
    trials, found = made(GOAL, carries(lambda length_s: 100 if length_s < 5 else 70))
    assert trials == [*SEARCHED, *[(80, 5)] * 2, *[(71, 5)] * 2, *[(56, 5)] * 8, *[(63, 5)] * 8]
    assert found == Bounds(
        lower=63, upper=71, finished=True, confirmed=8, upper_s=5, unconfirmed=(80, 71), trial_s=5, held_s=40
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


BLIND = replace(GOAL, trials=3, least_s=1, most_s=4)


def blindly(most: Callable[[float], float]) -> Measure:
    """Readings that do not change with the load: nobody knows how long trials have to be."""
    return lambda load, length_s: Reading(met=load <= most(length_s), excess=-0.1)


def twice(*trials: Trial) -> list[Trial]:
    """Two of three trials decide."""
    return [each for each in trials for _ in range(2)]


def test_longer_trials_that_carry_less_search_downwards_from_the_last_bounds() -> None:
    """With 2 s 80 fails; steps of 0.5, and 1, lead to 53 and 26; sqrt(26 x 53) = 37 and sqrt(26 x
    37) = 31 fail. With 4 s 26 holds; 26 x 1.5 + 1 = 40 and sqrt(26 x 40) = 32 fail.
    """
    trials, found = made(BLIND, blindly(lambda length_s: 100 if length_s < 2 else 30))
    two = [(load, 2) for load in (80, 53, 26, 37, 31)]
    four = [(load, 4) for load in (26, 40, 32)]
    assert trials == [*twice(*RISING), *twice(*two), *twice(*four), *[(26, 4)] * 8]
    assert found == Bounds(
        lower=26, upper=32, finished=True, confirmed=8, upper_s=4, trial_s=4, held_s=32, precision=math.inf
    )


def test_a_search_with_longer_trials_begins_with_steps_of_twice_the_noise_that_is_a_half_at_most() -> None:
    """Not of the width, a tenth: 95 / 1.5 = 63, 63 / 2 = 31 and 31 / 3 = 10. Then halves, up to 29,
    and 30, which lies between 29 and 31.
    """
    trials, found = made(replace(BLIND, width=0.1, most_s=2), blindly(lambda length_s: 100 if length_s < 2 else 30))
    one = [(load, 1) for load in (10, 40, 160, 80, 113, 95, 103)]
    two = [(load, 2) for load in (95, 63, 31, 10, 17, 22, 26, 28, 29, 30)]
    assert trials == [*twice(*one), *twice(*two), *[(30, 2)] * 8]
    assert (found.lower, found.upper) == (30, 31)


def test_longer_trials_that_carry_more_search_upwards_to_the_highest_load() -> None:
    """80 x 1.5 + 1 = 121, 121 x 2 + 1 = 243, 243 x 3 + 1 = 730, and then times 4 each time."""
    goal = replace(BLIND, highest=60_000)
    trials, found = made(goal, blindly(lambda length_s: 100 if length_s < 2 else math.inf))
    up = [(load, 2) for load in (80, 121, 243, 730, 2920, 11_680, 46_720, 60_000)]
    assert trials == [*twice(*RISING), *twice(*up), *[(60_000, 2)] * 8]
    assert (found.lower, found.upper, found.precision) == (60_000, None, math.inf)


def test_longer_trials_that_carry_nothing_end_at_the_lowest_load() -> None:
    """80 / 1.5 = 53, 53 / 2 = 26, 26 / 3 = 8, which is below 10; with 4 s nothing lies below 10."""
    trials, found = made(BLIND, blindly(lambda length_s: 100 if length_s < 2 else 5))
    down = [*((load, 2) for load in (80, 53, 26, 10)), (10, 4)]
    assert trials == [*twice(*RISING), *twice(*down)]
    assert (found.lower, found.upper, found.finished, found.confirmed) == (None, 10, True, 0)


@pytest.mark.parametrize(
    ("trials", "excess", "longer"),
    [(1, 0.1, False), (3, 0.1, True), (3, NEAR, True), (3, NEAR + 0.01, False)],
    ids=["five readings", "ten", "ten at the edge", "ten that lie too far"],
)
def test_trials_become_longer_by_six_readings_near_the_limit(trials: int, excess: float, *, longer: bool) -> None:
    def measure(load: int, _: float) -> Reading:
        return Reading(met=load <= 100, excess=-excess if load <= 100 else excess)

    seen, found = made(replace(BLIND, trials=trials), measure)
    assert (len({length_s for _, length_s in seen}) > 1) == longer
    # The confirming trials are readings too.
    assert (found.precision is None) == (excess > NEAR)


@pytest.mark.parametrize(
    ("patience_s", "lengths_s"),
    [
        # A search of six loads, three that are not confirmed and one that is take 26 trials.
        (60, [1.0]),
        (100, [1.0, 2.0]),
        (1000, [1.0, 2.0, 4.0]),
        # (90 - 15) / 1.5 / 26 s, as 15 s are spent.
        (90, [1.0, 75 / 39]),
    ],
)
def test_trials_become_no_longer_than_the_patience_lasts_for_a_search_with_them(
    patience_s: float, lengths_s: Sequence[float]
) -> None:
    """It made ever longer ones until its patience had ended, and its answer was not confirmed."""

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=load <= 100, excess=-0.1, took_s=1.5 * length_s)

    trials, found = made(replace(BLIND, patience_s=patience_s), measure)
    assert list(dict.fromkeys(length_s for _, length_s in trials)) == pytest.approx(lengths_s)
    assert (found.finished, found.confirmed, found.precision) == (True, 8, math.inf)


@pytest.mark.parametrize("patience_s", [240, 300, 360, 600, 900])
def test_a_search_whose_trials_take_more_than_their_window_confirms_its_answer_in_time(patience_s: float) -> None:
    """Three seconds pass beside each of them. They were made longer, and the patience ended before
    the minute that shows whether the load lasts.
    """
    spent_s = 0.0

    def measure(load: int, length_s: float) -> Reading:
        nonlocal spent_s
        if spent_s >= patience_s:
            raise OutOfPatience
        took_s = 3 + 1.5 * length_s
        spent_s += took_s
        # In a short trial a growing queue has not grown yet.
        return Reading(met=load <= (1000 if length_s >= goal.least_s else 1200), excess=-0.1, took_s=took_s)

    goal = replace(BLIND, highest=60_000, width=0.1, least_s=5, most_s=60, hold_s=60, patience_s=patience_s)
    _, found = made(goal, measure)
    assert 900 <= (found.lower or 0) <= 1000
    assert found.held_s >= goal.hold_s + 8 * goal.least_s


def patient(patience_s: float, *, least_told_s: float = 0.0, most: Callable[[float], float]) -> tuple[Goal, Measure]:
    """A goal, and a server of which trials at 60 or more tell nothing unless they are so long. A
    trial takes half as long again as its window.
    """
    spent_s = 0.0

    def measure(load: int, length_s: float) -> Reading:
        nonlocal spent_s
        assert spent_s < patience_s
        spent_s += 1.5 * length_s
        met: bool | None = load <= most(length_s)
        if met and load >= 60 and 1 < length_s < least_told_s:
            met = None
        return Reading(met=met, took_s=1.5 * length_s)

    return replace(GOAL, patience_s=patience_s), measure


@pytest.mark.parametrize(("patience_s", "higher"), [(134, False), (135, True)])
def test_no_higher_load_is_tried_where_there_is_no_time_to_confirm_it(patience_s: float, *, higher: bool) -> None:
    """The search has taken 15 s, and a load takes 60 s. 95 was begun all the same, and its trials
    became longer until the patience had ended.
    """
    trials, found = made(*patient(patience_s, most=lambda _: 100))
    assert trials == [*SEARCHED, *[(80, 5)] * 8, *([(95, 5)] * 8 if higher else [])]
    assert (found.lower, found.upper, found.held_s, found.finished) == (95 if higher else 80, 113, 40, True)


@pytest.mark.parametrize(
    ("patience_s", "carried", "tried"), [(149, 70, [80, 54]), (150, 70, [80, 71, 48]), (150, 75, [80, 71])]
)
def test_a_load_that_is_likelier_to_pass_is_tried_where_there_is_time_for_no_two(
    patience_s: float, carried: int, tried: Sequence[int]
) -> None:
    """30 s are spent when 80 has failed, and two loads take 120 s. 71 is the first step below 80,
    and 54 a width; once 71 has failed too there is time for no two, and 48 is a width below it.
    Neither is further below than a width: the search has finished.
    """
    trials, found = made(*patient(patience_s, most=lambda length_s: 100 if length_s < 5 else carried))
    assert list(dict.fromkeys(load for load, length_s in trials if length_s == 5)) == [113, *tried]
    assert (found.lower, found.confirmed, found.finished) == (tried[-1], 8, True)


@pytest.mark.parametrize(("patience_s", "longer"), [(100, False), (220, True)])
def test_a_lower_load_is_confirmed_where_there_is_no_time_for_trials_that_tell(
    patience_s: float, *, longer: bool
) -> None:
    """30 s are spent when two trials at 80 have told nothing. Eight of 7.5 s, half as long again,
    take 90 s. Of 54 trials of 5 s tell.
    """
    trials, found = made(*patient(patience_s, least_told_s=7.5, most=lambda _: 100))
    if longer:
        assert trials[:16] == [*SEARCHED, *[(80, 5)] * 2, *[(80, 10)] * 8]
        assert (found.lower, found.held_s) == (80, 80)
    else:
        # It ends near 80, of which nothing is known, and not near 113.
        assert trials == [*SEARCHED, *[(80, 5)] * 2, *[(54, 5)] * 8]
        assert (found.lower, found.upper, found.confirmed, found.unconfirmed) == (54, 113, 8, ())
    assert found.finished == longer


def test_long_trials_are_as_short_as_at_first_at_a_lower_load_where_there_is_no_time_for_longer_ones() -> None:
    """345 s of 500 are spent once two of 60 s have told nothing at 80, as two of 30 s had not. A
    lower load takes 150 s with two of 30 s, and 240 with two of 60.
    """
    goal, measure = patient(500, most=lambda _: 100)

    def late(load: int, length_s: float) -> Reading:
        reading = measure(load, length_s)
        return replace(reading, met=None) if load >= 60 and length_s >= 30 else reading

    trials, found = made(replace(goal, hold_s=30), late)
    at_80 = [*[(80, 5)] * 8, *[(80, 30)] * 2, *[(80, 60)] * 2]
    assert trials == [*SEARCHED, *at_80, *[(54, 5)] * 8, *[(54, 30)] * 2]
    assert (found.lower, found.confirmed, found.held_s, found.finished) == (54, 8, 100, False)


def test_no_load_that_longer_trials_have_passed_is_the_upper_bound() -> None:
    """Of a second 130 and 96 fail. Of two 72, 109 and 130 pass and tell nothing; 58 is confirmed.
    It was said not to carry 96.
    """

    def measure(load: int, length_s: float) -> Reading:
        met = load <= 90 if length_s == 1 else None if load >= 60 else True
        return Reading(met=met, excess=-0.1)

    trials, found = made(replace(BLIND, highest=130, most_s=2), measure)
    assert {(96, 1), (109, 2), (130, 2)} <= set(trials)
    assert (found.lower, found.upper, found.confirmed, found.finished) == (58, None, 8, False)


def test_the_time_that_is_left_counts_long_trials_anew_once_they_are_longer() -> None:
    """80 of which two of 30 s told nothing takes two of 60 s, and a halving of a trial of 5 s."""
    measure = carries(lambda _: 100)
    trials: list[Trial] = []

    def untold(load: int, length_s: float) -> Reading:
        trials.append((load, length_s))
        return replace(measure(load, length_s), met=None) if length_s == 30 else measure(load, length_s)

    left = left_at(replace(GOAL, hold_s=30), untold, range(20))
    assert [left[number] for number in range(20) if trials[number] == (80, 60)] == [125, 65]


def left_at(goal: Goal, measure: Measure, trials: Sequence[int]) -> list[float | None]:
    """What a search says is left before these of its trials, the first one 0."""
    found: list[float | None] = []

    def told(load: int, length_s: float) -> Reading:
        found.append(hunt.left_s())
        return measure(load, length_s)

    hunt = Search(goal, told)
    hunt.run()
    return [found[each] for each in trials]


def test_the_time_that_is_left_in_figures() -> None:
    """Nothing is known until 160 fails. Between 40 and 160 lie log 4 / log 1.25 = 6.2 quarters,
    three halvings of one trial of 1 s, and eight of 5 s are to confirm: 43 s. Of 80 to 160 two
    halvings; of 80 to 113, 1.55 quarters, one of 5 s: 45 s, and 5 s less with each trial that
    passes. Between 95 and 113 nothing is left to halve.
    """
    left = left_at(GOAL, carries(lambda _: 100), [0, 1, 2, 3, 4, 6, 7, 13, 14, 15])
    assert left == [None, None, None, 43, 42, 45, 40, 10, 40, 35]


def test_the_time_that_is_left_includes_the_long_trial_and_all_that_decide() -> None:
    """Two of three trials of 1 s for each of three halvings, eight of 5 s, and two of 60 s."""
    left = left_at(replace(GOAL, trials=3, hold_s=60), carries(lambda _: 100), [6, 12, 13, 20, 21])
    # Once the load is being confirmed: one halving of two trials of 5 s, and at last the long ones.
    assert left == [6 + 40 + 120, 10 + 40 + 120, 10 + 35 + 120, 10 + 120, 10 + 60]


def test_a_search_that_is_interrupted_knows_what_it_has() -> None:
    """Before the first trial nothing; while 80 is confirmed, that and how many passed there; while
    95 is, 80 still, until 95 is confirmed.
    """
    known: list[Bounds] = []

    def told(load: int, length_s: float) -> Reading:
        known.append(hunt.bounds())
        return carries(lambda _: 100)(load, length_s)

    hunt = Search(GOAL, told)
    final = hunt.run()
    nothing = Bounds(lower=None, upper=None, finished=False, trial_s=1)
    searched = replace(nothing, lower=80, upper=113, upper_s=5, trial_s=5)
    assert known[0] == nothing
    assert known[1] == replace(nothing, lower=10)
    assert known[3] == replace(nothing, lower=40, upper=160, upper_s=1)
    assert known[5] == replace(searched, upper_s=1, trial_s=1)
    assert known[6] == searched
    assert known[7] == replace(searched, confirmed=1, held_s=5)
    assert known[13] == replace(searched, confirmed=7, held_s=35)
    assert known[14] == known[21] == replace(searched, confirmed=8, held_s=40)
    assert hunt.bounds(finished=True) == final


def test_while_a_lower_load_is_confirmed_the_answer_is_what_the_search_has_found_good() -> None:
    """80 was not confirmed; until a trial has passed at 71, the answer is 40, which was carried."""
    known: list[Bounds] = []

    def told(load: int, length_s: float) -> Reading:
        known.append(hunt.bounds())
        return carries(lambda length_s: 100 if length_s < 5 else 75)(load, length_s)

    hunt = Search(GOAL, told)
    hunt.run()
    # Six trials of the search, two at 80, then those at 71.
    assert [(each.lower, each.upper, each.confirmed) for each in known[6:10]] == [
        (80, 113, 0),
        (80, 113, 0),
        (40, 80, 0),
        (71, 80, 1),
    ]
    assert known[8].unconfirmed == (80,)


def test_a_search_that_ends_as_it_goes_further_has_found_what_was_asked() -> None:
    """80 is confirmed, and 113 is less than half as much again; the patience ends at 95."""
    measure = carries(lambda _: 100)

    def impatient(load: int, length_s: float) -> Reading:
        if load == 95:
            raise OutOfPatience
        return measure(load, length_s)

    found = search(impatient, GOAL)
    assert (found.lower, found.upper, found.confirmed, found.finished) == (80, 113, 8, True)
    assert not search(impatient, replace(GOAL, width=0.4)).finished


def test_a_load_that_told_nothing_is_no_matter_once_the_lowest_has_failed() -> None:
    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=load <= 100 if length_s < 5 else None if load == 80 else False)

    found = search(measure, GOAL)
    assert (found.lower, found.upper, found.finished) == (None, 10, True)


def test_the_length_of_trials_is_that_of_those_which_confirmed_the_answer() -> None:
    """Of 95 nothing is told by trials of up to 30 s; 80 was confirmed by some of 5 s."""

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=None if load == 95 and length_s > 1 else load <= 100)

    trials, found = made(replace(GOAL, most_s=30), measure)
    assert trials[-1] == (95, 30)
    assert (found.lower, found.confirmed, found.held_s, found.trial_s) == (80, 8, 40, 5)


def test_a_search_that_ends_below_a_load_that_told_nothing_answers_with_that_load() -> None:
    """Nothing failed at 80: 64 is to be confirmed next, and the patience ends before its first
    trial.
    """

    def measure(load: int, length_s: float) -> Reading:
        if load < 80 and length_s > 1:
            raise OutOfPatience
        return Reading(met=None if length_s > 1 else load <= 100)

    found = search(measure, replace(GOAL, most_s=30))
    assert (found.lower, found.upper, found.confirmed, found.unconfirmed) == (80, 113, 0, ())
