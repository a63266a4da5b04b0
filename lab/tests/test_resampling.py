"""Resampled signs, in figures (`made_signs`)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from made_signs import COUNTS, DEVIATIONS, logs_of, rng, t_of
from scipy import special

from plimsoll_lab.stats.resampling import PairLogs, critical_p_of, critical_t_of, p_of, smallest_p

ALL = np.ones(6, dtype=bool)


def test_p_is_students_on_both_sides() -> None:
    assert float(p_of(2.228139, 11)) == pytest.approx(0.05, rel=1e-5)
    assert float(p_of(0.0, 6)) == 1
    assert p_of(np.array([2.570582, 4.032143]), 6).tolist() == pytest.approx([0.05, 0.01], rel=1e-5)


def test_the_critical_p_is_that_of_a_twentieth_of_the_patterns() -> None:
    """Of 19 patterns a twentieth is none."""
    assert critical_p_of(np.arange(1, 20) / 1000) == 0
    assert critical_p_of(np.arange(1, 21) / 1000) == 0.001
    assert critical_p_of(np.arange(1, 41) / 1000) == 0.002
    assert critical_t_of(11, 0.05) == pytest.approx(2.228139, rel=1e-6)
    assert critical_t_of(11, 0.0) == math.inf


def test_the_smallest_ps_are_those_of_every_pattern() -> None:
    expected = [2 * special.stdtr(5, -t_of(total)) for total, count in COUNTS.items() for _ in range(count)]
    assert smallest_p([logs_of(DEVIATIONS)], 6, rng()).tolist() == pytest.approx(expected)
    # The middle of a series and its unit change nothing.
    moved = logs_of([7 + each / 100 for each in DEVIATIONS])
    assert smallest_p([moved], 6, rng()).tolist() == pytest.approx(expected)


def test_the_smallest_p_is_over_all_pairs_however_many() -> None:
    """300 are resampled in two parts, of which the last one has the odd pair."""
    luck = np.random.default_rng(2)
    odd, other = logs_of(luck.normal(size=6).tolist()), logs_of(DEVIATIONS)
    few, many = smallest_p([other, odd], 6, rng()), smallest_p([other] * 299 + [odd], 6, rng())
    assert many.tolist() == pytest.approx(few.tolist())
    assert many.tolist() != pytest.approx(smallest_p([other], 6, rng()).tolist())
    first = smallest_p([odd, *[other] * 299], 6, rng())
    assert first.tolist() == pytest.approx(few.tolist())


def test_patterns_are_counted_up_to_13_blocks_and_drawn_beyond() -> None:
    luck = np.random.default_rng(2)
    for blocks, patterns in ((12, 2048), (13, 4096), (14, 9999)):
        pair = logs_of(luck.normal(size=blocks).tolist(), [True] * blocks)
        assert len(smallest_p([pair], blocks, rng())) == patterns


def test_series_without_deviations_and_pairs_of_five_blocks_are_not_resampled() -> None:
    constant = logs_of([2.0] * 6)
    assert smallest_p([constant], 6, rng()).tolist() == [1] * 32
    both = smallest_p([constant, logs_of(DEVIATIONS)], 6, rng()).tolist()
    assert both == smallest_p([logs_of(DEVIATIONS)], 6, rng()).tolist()
    short = logs_of(DEVIATIONS, [True] * 5 + [False])
    assert smallest_p([short], 6, rng()).tolist() == [1]
    assert smallest_p([], 6, rng()).tolist() == [1]


def test_what_differs_by_rounding_alone_is_not_resampled() -> None:
    """0.1 + 0.2 is more than 0.3. Also where a block is missing, whose value says nothing."""
    rounded, real = [0.1 + 0.2, 0.3, 0.3, 0.3, 0.3, 0.3], logs_of(DEVIATIONS)
    alone = smallest_p([real], 6, rng()).tolist()
    assert smallest_p([logs_of(rounded), real], 6, rng()).tolist() == alone
    seven, short = logs_of([*DEVIATIONS, 0.5], [True] * 7), logs_of([*rounded, 0.0], [True] * 6 + [False])
    assert smallest_p([seven, short], 7, rng()).tolist() == smallest_p([seven], 7, rng()).tolist()


def test_missing_blocks_are_filled_with_the_deviations_of_the_others() -> None:
    """Of eight blocks a pair has six: the seventh and eighth repeat the first two deviations, 1 and
    -1, so that their mean stays 0.
    """
    short = logs_of([*DEVIATIONS, 99, 99], [True] * 6 + [False] * 2)
    filled = logs_of([*DEVIATIONS, 1, -1], [True] * 8)
    assert smallest_p([short], 8, rng()).tolist() == pytest.approx(smallest_p([filled], 8, rng()).tolist())
    # Of seven, the repeated one moves the mean by 1 / 7.
    short = logs_of([99, *DEVIATIONS], [False] + [True] * 6)
    filled = logs_of([1, *DEVIATIONS], [True] * 7)
    assert smallest_p([short], 7, rng()).tolist() == pytest.approx(smallest_p([filled], 7, rng()).tolist())


def test_each_bound_of_an_interval_is_resampled_and_one_that_is_none_is_not() -> None:
    low, high = np.array(DEVIATIONS), np.array([5.0, 1, 1, -1, -2, 0])
    between = PairLogs(names=("a", "b"), shared=ALL, low=low, high=high)
    apart = [PairLogs(names=("a", "b"), shared=ALL, low=each, high=each) for each in (low, high)]
    assert smallest_p([between], 6, rng()).tolist() == smallest_p(apart, 6, rng()).tolist()
    for half in (replace(between, high=None), replace(between, low=None, high=low)):
        assert smallest_p([half], 6, rng()).tolist() == smallest_p(apart[:1], 6, rng()).tolist()
    assert replace(between, low=None, high=None).bounded() == []
    assert len(apart[0].bounded()) == 1
