"""Which loads are confirmed, by trials of what length, and what a search says meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from searched_by_hand import GOAL, SEARCHED, carries, left_at, made, patient

from plimsoll_lab.stats.capacity import OutOfPatience, Search, search
from plimsoll_lab.stats.readings import Reading


@pytest.mark.parametrize(
    ("patience_s", "carried", "tried", "upper", "is_near"),
    [
        # Steps of 0.125, 0.25 and 0.5 lead from 80 to 71, 56 and 37; 60 s are spent when 56 has
        # failed, and there is time for no two: 38 is a width below 56, and no further.
        (170, 50, (80, 71, 56, 38), 56, True),
        # There is time for two: the step is as wide, and rounded down. Then 45 fails.
        (180, 40, (80, 71, 56, 37), 45, True),
        # 75 s are spent when 37 has failed, and the next step is wider than the width: half of 37.
        (185, 30, (80, 71, 56, 37, 18), 37, False),
    ],
)
def test_the_last_load_that_there_is_time_for_is_a_width_below_or_a_step(
    patience_s: float, carried: int, tried: Sequence[int], upper: int, *, is_near: bool
) -> None:
    trials, found = made(*patient(patience_s, most=lambda length_s: 100 if length_s < 5 else carried))
    refused = [(load, 5) for load in tried[:-1] for _ in range(2)]
    assert trials[: len(SEARCHED) + len(refused) + 8] == [*SEARCHED, *refused, *[(tried[-1], 5)] * 8]
    assert (found.lower, found.upper, found.confirmed) == (tried[-1], upper, 8)
    assert (found.unconfirmed, found.finished) == (tuple(tried[:-1]), is_near)


def test_the_length_of_trials_before_any_confirm_is_that_of_the_search() -> None:
    known: list[float] = []

    def told(load: int, length_s: float) -> Reading:
        known.append(hunt.bounds().trial_s)
        return carries(lambda _: 100)(load, length_s)

    hunt = Search(replace(GOAL, first_s=0.5), told)
    hunt.run()
    assert known[:7] == [0.5] * 6 + [5]


def test_trials_stay_longer_at_a_lower_load_where_there_is_time_for_one_such_load() -> None:
    """60 s of 200 are spent once two of 10 s have told nothing, and eight of them take 120 s."""
    trials, found = made(*patient(200, least_told_s=30, most=lambda _: 100))
    assert trials == [*SEARCHED, *[(80, 5)] * 2, *[(80, 10)] * 2, *[(54, 10)] * 8]
    assert (found.lower, found.trial_s) == (54, 10)


def test_confirming_trials_become_as_long_as_there_is_time_for() -> None:
    """102 s are left, for eight trials that take half as long again as their window."""
    trials, found = made(*patient(132, least_told_s=8, most=lambda _: 100))
    assert trials == [*SEARCHED, *[(80, 5)] * 2, *[(80, 8.5)] * 8]
    assert (found.lower, found.held_s) == (80, 68)


@pytest.mark.parametrize("untold_first", [True, False])
def test_one_trial_of_two_that_tells_nothing_refutes_nothing(*, untold_first: bool) -> None:
    """Short ones and long ones: they become twice as long."""
    given = {5: iter([None, False] if untold_first else [False, None])}
    trials, found = made(GOAL, lambda load, length_s: wavering(load, length_s, given))
    assert trials[6:] == [*[(80, 5)] * 2, *[(80, 10)] * 8, *[(95, 10)] * 8]
    given = {60: iter([None, False] if untold_first else [False, None])}
    trials, found = made(replace(GOAL, hold_s=60), lambda load, length_s: wavering(load, length_s, given))
    assert trials[6:18] == [*[(80, 5)] * 8, *[(80, 60)] * 2, *[(80, 120)] * 2]
    assert found.unconfirmed == ()


def wavering(load: int, length_s: float, given: Mapping[int, Iterator[bool | None]]) -> Reading:
    """A server that carries 100, and what its first trials at 80 of some length tell."""
    return Reading(met=next(given.get(round(length_s), iter(())), True) if load == 80 else load <= 100)


def test_a_load_that_told_nothing_is_no_answer_once_lower_ones_have_failed() -> None:
    """80 told nothing, 64 and 42 failed, and the patience ends at 21: 40 and 80 were carried for a
    second, and nothing but 10 lies below 21.
    """

    def measure(load: int, length_s: float) -> Reading:
        if length_s < 5:
            return Reading(met=load <= 100)
        if load < 40:
            raise OutOfPatience
        return Reading(met=None if load == 80 else False)

    found = search(measure, replace(GOAL, most_s=30))
    assert (found.lower, found.upper, found.confirmed, found.unconfirmed) == (10, 42, 0, (64, 42))


def test_where_nothing_has_failed_the_answer_is_the_highest_load_though_it_told_nothing() -> None:
    def measure(load: int, length_s: float) -> Reading:
        if length_s >= 5 and load < 1000:
            raise OutOfPatience
        return Reading(met=True if length_s < 5 else None)

    found = search(measure, replace(GOAL, most_s=5))
    assert (found.lower, found.upper, found.confirmed, found.finished) == (1000, None, 0, False)


def test_the_time_that_is_left_counts_what_a_failed_trial_makes_of_it() -> None:
    """One of eight may fail: it had been counted as to be made again. Of the long ones one that
    fails asks for one more, and none of the short ones for another.
    """
    fails = iter([False])
    measure = carries(lambda _: 100)

    def once(load: int, length_s: float) -> Reading:
        return Reading(met=next(fails, True)) if (load, length_s) == (80, 5) else measure(load, length_s)

    # Of 80 to 113 one halving of a trial of 5 s.
    assert left_at(GOAL, once, [6, 7, 8, 13]) == [45, 40, 35, 10]
    long = iter([False])

    def held(load: int, length_s: float) -> Reading:
        return Reading(met=next(long, True)) if (load, length_s) == (80, 60) else measure(load, length_s)

    assert left_at(replace(GOAL, hold_s=60), held, [14, 15, 16, 17]) == [125, 185, 125, 65]
