"""Every trial of a search with longer trials, or that rises again from a load that had failed."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from searched_by_hand import BLIND, GOAL, RISING, SEARCHED, Trial, blindly, carries, made, patient, twice

from plimsoll_lab.stats.capacity import Bounds, OutOfPatience
from plimsoll_lab.stats.readings import NEAR, Reading


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
    """15 s are spent then, six loads of 2 s take 18 s, and eight trials of 5 s take 60 s."""
    trials, found = made(*patient(92, most=lambda length_s: 60 if length_s < 5 else 100))
    assert trials[5:] == [(80, 5), *[(80, 5)] * 8]
    assert (found.lower, found.upper, found.confirmed, found.finished) == (80, None, 8, False)
    trials, _ = made(*patient(93, most=lambda length_s: 60 if length_s < 5 else 100))
    assert trials[5:7] == [(80, 5), (121, 2)]


def test_a_search_is_not_finished_below_the_highest_load_where_nothing_fails_any_more() -> None:
    """160 is all that failed, and passes with 5 s. What lies above was not looked at."""
    trials, found = made(*patient(92, most=lambda length_s: 120 if length_s < 5 else 200))
    assert trials == [*RISING, (160, 5), *[(160, 5)] * 8]
    assert (found.lower, found.upper, found.confirmed, found.finished) == (160, None, 8, False)


def test_the_lowest_load_is_tried_once_more_where_the_patience_lasts_for_no_answer_too() -> None:
    """It is all that there is to say: 1.5 s of 65 were spent, and less than 10 was carried."""
    spent_s = 0.0

    def measure(load: int, length_s: float) -> Reading:
        nonlocal spent_s
        if spent_s >= 65:
            raise OutOfPatience
        spent_s += 1.5 * length_s
        return Reading(met=load <= 100 and spent_s > 1.5, took_s=1.5 * length_s)

    trials, found = made(replace(GOAL, patience_s=65), measure)
    assert trials[:6] == [(10, 1), (10, 5), *RISING[1:]]
    assert (found.lower, found.upper, found.finished) == (80, 113, False)


def test_what_misleading_trials_failed_is_no_upper_bound_where_there_is_no_time_to_rise() -> None:
    """Of a second 113 fails, of two 121 and 171 pass, of four 114 and 95 fail; with ten 95 passes.
    The search had finished between 95 and 114, and 500 is the most.
    """
    most = {1: 90, 2: 190, 4: 90}
    goal = replace(BLIND, least_s=10, patience_s=385)

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=load <= most.get(round(length_s), 500), excess=-0.1, took_s=1.5 * length_s)

    trials, found = made(goal, measure)
    assert {(113, 1), (171, 2), (114, 4), (95, 4), (95, 10)} <= set(trials)
    assert (found.lower, found.upper, found.confirmed, found.finished) == (95, None, 8, False)


def test_a_lowest_load_that_failed_for_a_moment_is_tried_once_more_too() -> None:
    """It was said to carry less than 10, by one trial of a second."""
    fails = iter([False])
    trials, found = made(GOAL, lambda load, _: Reading(met=next(fails, load <= 100)))
    assert trials[:3] == [(10, 1), (10, 5), (40, 1)]
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


@pytest.mark.parametrize(("patience_s", "looked_at"), [(97, False), (98, True)])
def test_a_load_that_failed_is_not_looked_at_again_without_time_for_each_trial_of_it(
    patience_s: float, *, looked_at: bool
) -> None:
    """15 s are spent, eight trials take 60 s, and three of 5 s 22.5 s, of which two are made."""
    goal, measure = patient(patience_s, most=lambda _: 100)
    trials, _ = made(replace(goal, trials=3), measure)
    assert trials == [*twice(*(SEARCHED if looked_at else RISING)), *[(80, 5)] * 8]


@pytest.mark.parametrize(("patience_s", "next_trial"), [(125, (80, 5)), (126, (121, 2))])
def test_a_search_rises_again_where_there_is_time_for_two_of_three_trials_of_each_load(
    patience_s: float, next_trial: Trial
) -> None:
    """30 s are spent then, two trials of 2 s at each of six loads take 36 s, and eight of 5 s take
    60 s.
    """
    goal, measure = patient(patience_s, most=lambda length_s: 60 if length_s < 5 else 100)
    trials, _ = made(replace(goal, trials=3), measure)
    moment: list[Trial] = [(10, 1), (40, 1), (160, 1), (80, 1), (56, 1), (80, 5)]
    assert trials[:13] == [*twice(*moment), next_trial]


def test_longer_trials_that_carry_less_search_downwards_from_the_last_bounds() -> None:
    """With 2 s 80 fails; steps of 0.5, and 1, lead to 53 and 26; sqrt(26 x 53) = 37 and sqrt(26 x
    37) = 31 fail. With 4 s 26 holds; 26 x 1.5 + 1 = 40 and sqrt(26 x 40) = 32 fail.
    """
    trials, found = made(BLIND, blindly(lambda length_s: 100 if length_s < 2 else 30))
    two = [(load, 2) for load in (80, 53, 26, 37, 31)]
    four = [(load, 4) for load in (26, 40, 32)]
    assert trials == [*twice(*RISING), *twice(*two), *twice(*four), *[(26, 4)] * 8]
    assert found == Bounds(
        lower=26,
        upper=32,
        finished=True,
        confirmed=8,
        is_held=True,
        upper_s=4,
        trial_s=4,
        held_s=32,
        precision=math.inf,
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
