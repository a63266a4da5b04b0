"""Clocks of two machines, compared over exchanges whose truth is known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll_lab.hosts.clock import Offset, estimate, moved

DELAYS = st.floats(min_value=0.0, max_value=0.5)
OFFSETS = st.floats(min_value=-100.0, max_value=100.0)
SENT = 1_700_000_000.0
ROUNDING_S = 1e-6
"""A time since 1970 has digits for a quarter of a microsecond."""


def exchange(offset_s: float, there_s: float, back_s: float, at: float = SENT) -> tuple[float, float, float]:
    """An exchange whose ways take these seconds, with a clock that is off by `offset_s`."""
    return (at, at + there_s + offset_s, at + there_s + back_s)


@given(OFFSETS, st.lists(st.tuples(DELAYS, DELAYS), min_size=1, max_size=10))
def test_the_true_offset_is_within_the_stated_error_however_the_ways_differ(
    offset_s: float, ways: list[tuple[float, float]]
) -> None:
    found = estimate([exchange(offset_s, *way, at=SENT + number) for number, way in enumerate(ways)])
    assert abs(found.offset_s - offset_s) <= found.error_s + ROUNDING_S
    assert found.error_s <= min(sum(way) for way in ways) / 2 + ROUNDING_S


def test_the_shortest_exchange_counts() -> None:
    found = estimate([exchange(0.25, 0.4, 0.1), exchange(0.25, 0.001, 0.001), exchange(0.25, 0.1, 0.4)])
    assert found.offset_s == pytest.approx(0.25, abs=ROUNDING_S)
    assert found.error_s == pytest.approx(0.001, abs=ROUNDING_S)


def test_an_exchange_over_which_the_own_clock_was_set_back_is_left_out() -> None:
    assert estimate([(SENT, SENT, SENT - 1), exchange(2.0, 0.1, 0.1)]).offset_s == pytest.approx(2.0)
    with pytest.raises(ValueError, match="set back"):
        estimate([(SENT, SENT, SENT - 1)])


def test_an_offset_within_its_error_is_taken_for_none() -> None:
    assert Offset(offset_s=0.002, error_s=0.003).known_s == 0.0
    assert Offset(offset_s=-0.004, error_s=0.003).known_s == -0.004


def test_a_clock_moved_by_what_no_error_explains() -> None:
    before = Offset(offset_s=0.010, error_s=0.002)
    assert moved(before, Offset(offset_s=0.013, error_s=0.002)) == 0.0
    assert moved(before, Offset(offset_s=0.050, error_s=0.003)) == pytest.approx(0.035)
