"""What a search says is left of it where its patience ends first, and of a load that nothing
refuted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from searched_by_hand import BLIND, GOAL, RISING, carries, left_at, made

from plimsoll_lab.stats.capacity import Bounds, OutOfPatience, search
from plimsoll_lab.stats.readings import Reading


def test_no_more_is_left_than_the_patience_with_a_warm_up_of_half_as_long() -> None:
    """Without it 43 and 42 s of windows."""
    assert left_at(replace(GOAL, patience_s=30.0), carries(lambda _: 100), [2, 3, 4]) == [None, 20.0, 20.0]
    assert left_at(replace(GOAL, patience_s=64.0), carries(lambda _: 100), [3, 4]) == [64 / 1.5, 42.0]


def test_nothing_is_left_of_a_patience_that_has_ended() -> None:
    def slow(load: int, _length_s: float) -> Reading:
        return Reading(met=load <= 100, took_s=100.0)

    assert left_at(replace(GOAL, patience_s=30.0), slow, [3, 4]) == [0.0, 0.0]


def test_bounds_that_say_no_more_are_finished_and_confirmed_by_nothing() -> None:
    found = Bounds(lower=None, upper=7)
    assert (found.finished, found.confirmed, found.upper_s, found.unconfirmed) == (True, 0, 0.0, ())
    assert (found.trial_s, found.held_s, found.precision) == (0.0, 0.0, None)


def test_a_search_that_ends_before_its_first_trial_knows_nothing() -> None:
    def never(_load: int, _length_s: float) -> Reading:
        raise OutOfPatience

    assert search(never, GOAL) == Bounds(lower=None, upper=None, finished=False, trial_s=1.0)


def test_a_search_that_ends_while_it_rises_is_not_finished() -> None:
    def short(load: int, _length_s: float) -> Reading:
        if load > 40:
            raise OutOfPatience
        return Reading(met=True)

    assert search(short, GOAL) == Bounds(lower=40, upper=None, finished=False, trial_s=1.0)


@pytest.mark.parametrize(("affordable_s", "lengths_s"), [(1.45, [1.0]), (1.55, [1.0, 1.55])])
def test_trials_become_longer_where_there_is_time_for_half_as_long_again(
    affordable_s: float, lengths_s: Sequence[float]
) -> None:
    """15 s are spent, and a search and its confirmation take 26 trials."""

    def measure(load: int, length_s: float) -> Reading:
        return Reading(met=load <= 100, excess=-0.1, took_s=1.5 * length_s)

    trials, found = made(replace(BLIND, patience_s=15 + 39 * affordable_s), measure)
    assert trials[:10] == [each for each in RISING for _ in range(2)]
    assert list(dict.fromkeys(length_s for _, length_s in trials)) == pytest.approx(lengths_s)
    assert found.confirmed == 8


def test_a_trial_as_long_as_the_load_has_to_last_leaves_no_longer_one_to_come() -> None:
    """Of 80 to 113 one halving of 5 s, and eight of 5 s."""
    assert left_at(replace(GOAL, hold_s=5), carries(lambda _: 100), [6, 7]) == [45, 40]
