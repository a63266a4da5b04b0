"""What a search does with its patience, says is left of it, and has when it is stopped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from searched_by_hand import BLIND, GOAL, SEARCHED, Trial, carries, left_at, made, patient

from plimsoll_lab.stats.capacity import Bounds, OutOfPatience, Search, search
from plimsoll_lab.stats.readings import Reading


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


def test_trials_become_no_longer_than_there_is_time_for_a_look_at_what_failed() -> None:
    """15 s of 174 are spent. Eight trials at an answer, six at loads that are not confirmed and
    three of that look take 127.5 s, and the rest is enough for twelve of 1.75 s.
    """

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=load <= 100, excess=-0.1, took_s=1.5 * length_s)

    trials, found = made(replace(BLIND, least_s=5, most_s=60, patience_s=174), measure)
    assert list(dict.fromkeys(length_s for _, length_s in trials)) == pytest.approx([1, 1.75, 5])
    assert found.confirmed == 8


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


def test_the_time_that_is_left_counts_long_trials_anew_once_they_are_longer() -> None:
    """80 of which two of 30 s told nothing takes two of 60 s, and a halving of a trial of 5 s."""
    measure = carries(lambda _: 100)
    trials: list[Trial] = []

    def untold(load: int, length_s: float) -> Reading:
        trials.append((load, length_s))
        return replace(measure(load, length_s), met=None) if length_s == 30 else measure(load, length_s)

    left = left_at(replace(GOAL, hold_s=30), untold, range(20))
    assert [left[number] for number in range(20) if trials[number] == (80, 60)] == [125, 65]


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
    assert known[14] == known[21] == replace(searched, confirmed=8, is_held=True, held_s=40)
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


def test_an_answer_is_held_once_all_its_long_trials_have_passed_however_long_they_are() -> None:
    """Of 60 s trials tell nothing; of 120 s one has passed when the patience ends, which lasts as
    long as two of 60 s: it was taken for both.
    """
    long: list[float] = []

    def measure(load: int, length_s: float) -> Reading:
        if length_s >= 60:
            if long.count(120) == enough:
                raise OutOfPatience
            long.append(length_s)
            return Reading(met=True if length_s == 120 else None)
        return Reading(met=load <= 90)

    for enough, held in ((1, False), (2, True)):
        long.clear()
        found = search(measure, replace(GOAL, hold_s=60))
        assert (found.lower, found.confirmed, found.held_s) == (80, 8, 40 + enough * 120)
        assert (found.is_held, found.finished) == (held, held)
