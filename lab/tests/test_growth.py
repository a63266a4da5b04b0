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


def test_too_few_points_and_a_line_below_zero_tell_nothing() -> None:
    assert last_over_line([(x, x) for x in TWENTY[:9]]) is None
    assert last_over_line([(x, 10.0 - x) for x in TWENTY]) is None
