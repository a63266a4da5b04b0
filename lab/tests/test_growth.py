"""Whether the last clients wait longer than a straight line says."""

from __future__ import annotations

import pytest

from plimsoll_lab.stats.growth import last_over_line

TWENTY = [float(x) for x in range(1, 21)]


def test_what_grows_in_a_straight_line_ends_on_it() -> None:
    assert last_over_line([(x, 3 + 2 * x) for x in TWENTY]) == pytest.approx(1.0)
    assert last_over_line([(x, 5.0) for x in reversed(TWENTY)]) == pytest.approx(1.0)


def test_last_ones_that_wait_four_times_as_long_are_told() -> None:
    points = [(x, 2 * x * (4 if x > 18 else 1)) for x in TWENTY]
    assert last_over_line(points) == pytest.approx(4.0)


def test_an_exponential_leaves_its_line() -> None:
    found = last_over_line([(x, 1 + 2 ** (x - 14)) for x in TWENTY])
    assert found is not None
    assert found > 3


@pytest.mark.parametrize("unit", [1e-6, 1, 1e6])
def test_the_last_one_of_ten_points_is_held_against_the_line_through_nine(unit: float) -> None:
    """The line 5 + 2 x comes to 25 at 10, where 75 was measured."""
    points = [(float(x), (5 + 2 * x) * unit) for x in range(1, 10)]
    assert last_over_line([(10.0, 75 * unit), *points]) == pytest.approx(3)


def test_the_last_two_of_twenty_points_are_held_against_the_line_together() -> None:
    """At 19 and 20 the line x + 1 comes to 20 and 21; 50 and 73 were measured: 123 / 41 = 3."""
    points = [(x, x + 1) for x in TWENTY[:-2]]
    assert last_over_line([*points, (19, 50), (20, 73)]) == pytest.approx(3)


def test_points_above_one_another_have_a_level_line() -> None:
    """By their order the last one is the highest: 14 over a mean of 7."""
    assert last_over_line([(1.0, 7.0)] * 9 + [(1.0, 14.0)]) == pytest.approx(2)


def test_a_line_at_zero_tells_nothing() -> None:
    assert last_over_line([(x, 0.0) for x in TWENTY]) is None


def test_too_few_points_and_a_line_below_zero_tell_nothing() -> None:
    assert last_over_line([(x, x) for x in TWENTY[:9]]) is None
    assert last_over_line([(x, 10.0 - x) for x in TWENTY]) is None
