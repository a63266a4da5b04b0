"""The growth of a backlog, on batches whose line and residuals are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from plimsoll_lab.stats.backlog import STUDENT, UNKNOWN, Growth, backlog_growth, batch_growth

PLACES = [-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]
"""The middles of eight batches of a second, from their middle; the sum of their squares is 42."""


def growth_of(slope: float, residuals: Sequence[float], offered_rate: float = 100.0) -> Growth:
    """Of eight batches of two half seconds, before which three half seconds are left over."""
    means = [50 + slope * at + each for at, each in zip(PLACES, residuals, strict=True)]
    backlog = [1e6, 2e6, 3e6, *(value for mean in means for value in (mean - 1, mean + 1))]
    return batch_growth(backlog, interval_s=0.5, offered_rate=offered_rate)


def ends(found: Growth) -> tuple[float, float]:
    return found.low, found.high


def test_batches_on_a_line_tell_the_growth_exactly() -> None:
    assert ends(growth_of(2, [0] * 8)) == (0.02, 0.02)
    assert ends(growth_of(-2, [0] * 8, offered_rate=1.0)) == (-2, -2)
    # Twice as long intervals: half the growth.
    assert ends(batch_growth([0, 4, 8, 12, 16, 20, 24, 28], interval_s=2.0, offered_rate=100)) == (0.02, 0.02)


@pytest.mark.parametrize("unit", [0.01, 1, 100])
def test_the_bounds_of_a_growth_in_figures(unit: float) -> None:
    """Residuals of +-1: their squares sum to 8. Products of neighbours sum to -1, so that their
    correlation is -1/8 + 1/4 = 1/8, and the inflation (9/8) / (7/8) = 9/7. The slope's error is
    sqrt(8 / 6 x 9/7 / 42) = sqrt(2) / 7.
    """
    beyond = STUDENT * math.sqrt(2) / 7 * unit
    found = growth_of(2, [each * unit for each in (1, -1, -1, 1, 1, -1, -1, 1)])
    assert ends(found) == pytest.approx(((2 - beyond) / 100, (2 + beyond) / 100))


def test_a_negative_correlation_makes_no_bound_narrower() -> None:
    """Products of neighbours sum to -5: -5/8 + 1/4 is below 0, and the inflation 1."""
    beyond = STUDENT * math.sqrt(8 / 6 / 42)
    assert ends(growth_of(0, [1, -1, 1, -1, -1, 1, -1, 1])) == pytest.approx((-beyond / 100, beyond / 100))


def test_batches_shorter_than_the_correlation_tell_nothing() -> None:
    """Of a parabola the squares sum to 168 and the products to 63: 3/8 + 1/4. Of the other 192 and
    48: 1/4 + 1/4, which is the most that is allowed, with an inflation of 1.5 / 0.5.
    """
    assert growth_of(0, [7, 1, -3, -5, -5, -3, 1, 7]) == UNKNOWN
    beyond = STUDENT * math.sqrt(192 / 6 * 3 / 42)
    assert ends(growth_of(0, [8, 0, -4, -4, -4, -4, 0, 8])) == pytest.approx((-beyond / 100, beyond / 100))


def test_less_than_eight_intervals_and_no_offered_rate_tell_nothing() -> None:
    assert batch_growth([1.0] * 7, interval_s=1, offered_rate=100) == UNKNOWN
    assert batch_growth([1.0] * 8, interval_s=1, offered_rate=0) == UNKNOWN
    assert batch_growth([], interval_s=1, offered_rate=0) == UNKNOWN
    assert ends(UNKNOWN) == (-math.inf, math.inf)
    assert (UNKNOWN.shown, UNKNOWN.refuted) == (False, False)


def test_half_a_percent_of_the_offered_rate_is_neither_shown_nor_refuted() -> None:
    assert not Growth(low=0.005, high=0.006).shown
    assert Growth(low=0.0051, high=0.006).shown
    assert not Growth(low=0.004, high=0.005).refuted
    assert Growth(low=0.004, high=0.0049).refuted


@pytest.mark.parametrize(
    ("in_flight", "mean_response_s", "scheduled", "growth"),
    [
        # A mean backlog of 100 x 0.09 = 9, of which two standard deviations are 6: 25 is 10 beyond.
        (25, 0.09, 1000, 0.02),
        (15, 0.09, 1000, 0),
        (3, 0.09, 1000, 0),
        # Of a mean backlog of 0.25 one request is the standard deviation.
        (4.25, 0.0025, 1000, 0.004),
        (25, 0.09, 1, 20),
        (25, 0.09, 0, 0),
    ],
)
def test_a_backlog_that_ends_far_above_its_mean_has_grown(
    in_flight: float, mean_response_s: float, scheduled: float, growth: float
) -> None:
    found = backlog_growth(
        in_flight=in_flight, completed_rate=100, mean_response_s=mean_response_s, scheduled=scheduled
    )
    assert found == pytest.approx(growth)
