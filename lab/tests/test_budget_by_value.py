"""What a search has time for, in seconds."""

from __future__ import annotations

import pytest

from plimsoll_lab.stats.budget import Budget
from plimsoll_lab.stats.goal import Goal
from plimsoll_lab.stats.readings import Reading, Readings


def budget(patience_s: float) -> Budget:
    """Two seconds pass beside a trial and its warm-up, and one of 10 s has been made: 17 s are
    spent. Two of three trials decide.
    """
    goal = Goal(lowest=1, highest=10, width=0.1, trials=3, least_s=5.0, hold_s=60.0, patience_s=patience_s)
    readings = Readings(lambda _load, length_s: Reading(met=True, took_s=2.0 + 1.5 * length_s))
    readings.read(1, 10.0)
    return Budget(goal, readings)


def test_what_is_left_is_the_patience_less_what_was_spent() -> None:
    assert [budget(patience_s).left_s() for patience_s in (100.0, 17.0, 10.0)] == [83.0, 0.0, -7.0]


@pytest.mark.parametrize(
    ("loads", "hold_s", "beside_s", "needed_s"),
    [
        # Eight trials of 5 s take 76 s; two of 60 s take 184 more, and none is made of 5 s.
        (1, 0.0, 0.0, 17 + 76),
        (1, 5.0, 0.0, 17 + 76),
        (1, 5.5, 0.0, 17 + 76 + 20.5),
        (1, 60.0, 0.0, 17 + 260),
        (2, 60.0, 0.0, 17 + 520),
        (2, 60.0, 10.0, 17 + 530),
        (0, 60.0, 3.0, 17 + 3),
    ],
)
def test_a_patience_lasts_for_loads_and_what_is_beside_them(
    loads: int, hold_s: float, beside_s: float, needed_s: float
) -> None:
    assert budget(needed_s).lasts_for(loads, 5.0, hold_s, beside_s=beside_s)
    assert not budget(needed_s - 0.25).lasts_for(loads, 5.0, hold_s, beside_s=beside_s)


def test_nothing_is_beside_loads_where_nothing_is_named() -> None:
    assert budget(93.0).lasts_for(1, 5.0, 0.0)


def test_a_patience_lasts_for_the_long_trials_at_a_load() -> None:
    """Two of 92 s each."""
    assert budget(17.0 + 184).lasts_for_long_ones(60.0)
    assert not budget(17.0 + 183.75).lasts_for_long_ones(60.0)


def test_what_a_search_and_a_load_take() -> None:
    """A trial of 4 s takes 8 s: two of them at each of six loads, and three at one."""
    made = budget(1000.0)
    assert (made.searching_s(4.0), made.deciding_s(4.0)) == (96.0, 24.0)


@pytest.mark.parametrize(
    ("left_s", "length_s"),
    [
        # Twelve trials search, six refuse and eight confirm: 26 of 17 s, and two of 92 s.
        (26 * 17 + 184, 10.0),
        (26 * 9.5 + 184, 5.0),
        # Shorter ones than confirm: seventeen of those take 161.5 s, and twelve have the rest.
        (26 * 9.5 + 184 - 0.5, (246.5 - 161.5) / 18 - 4 / 3),
        (221 + 184, (221 - 161.5) / 18 - 4 / 3),
        (161.5 + 184, -4 / 3),
    ],
)
def test_how_long_the_trials_of_a_search_may_be(left_s: float, length_s: float) -> None:
    assert budget(17 + left_s).length_of_search_s() == pytest.approx(length_s)


def test_how_long_the_eight_trials_may_be() -> None:
    """The long ones take 184 s, but where the eight are as long themselves."""
    made = budget(17 + 360)
    assert made.length_of_eight_s(5.0, 60.0) == pytest.approx((176 / 8 - 2) / 1.5)
    assert made.length_of_eight_s(60.0, 60.0) == pytest.approx((360 / 8 - 2) / 1.5)
