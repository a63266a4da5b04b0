"""Change points: found where a level changes, and seldom where none does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from plimsoll_lab.stats.change_points import LEAST_VALUES, PERMUTATIONS, change_points


def noisy(levels: list[tuple[float, int]], seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    return [float(level * np.exp(0.02 * rng.standard_normal())) for level, count in levels for _ in range(count)]


def test_a_step_is_found_where_it_is() -> None:
    assert change_points(noisy([(100.0, 12), (120.0, 9)], 1), seed=1) == [12]


def test_several_steps_are_found_in_order() -> None:
    assert change_points(noisy([(100.0, 12), (130.0, 12), (90.0, 12)], 2), seed=1) == [12, 24]


def test_series_without_a_change_seldom_show_one() -> None:
    """A hundredth may: of 400, more than 11 have a chance below 0.001 (binomial)."""
    shown = sum(bool(change_points(noisy([(100.0, 20)], seed), seed=seed)) for seed in range(400))
    assert shown <= 11


def test_one_value_alone_is_an_outlier() -> None:
    values = noisy([(100.0, 15)], 3)
    values[7] = 300.0
    assert change_points(values, seed=1) == []


def test_too_few_values_and_equal_values_have_none() -> None:
    assert change_points(noisy([(100.0, 4), (200.0, LEAST_VALUES - 5)], 4), seed=1) == []
    assert change_points([5.0] * 30, seed=1) == []
    assert change_points([], seed=1) == []


def test_ten_values_show_a_change_as_often_as_their_permutations_allow() -> None:
    """Of the 252 orders of five low and five high values two split them wholly, and no other has so
    large a statistic: the number of such permutations is binomial(1999, 2 / 252). A change is shown
    where the part of them, the series itself among them, is below 0.01: (18 + 1) / 2000 and no
    more.
    """
    low_first = [1.0] * 5 + [2.0] * 5
    found = [change_points(low_first, seed=seed) for seed in range(1000)]
    assert {tuple(each) for each in found} == {(), (5,)}
    likely = stats.binom.cdf(18, PERMUTATIONS, 2 / 252)
    shown = sum(map(bool, found)) / len(found)
    assert shown == pytest.approx(likely, abs=3 * math.sqrt(likely * (1 - likely) / len(found)))
    assert found[:100] == [change_points(low_first, seed=seed) for seed in range(100)], "a seed has one answer"


def test_each_part_is_searched_again_and_its_places_are_those_of_the_whole_series() -> None:
    """1 differs most from the others, then 12 from those in between, and then these two from each
    other: the last change is one of the left part of the right part.
    """
    levels = [1.0] * 12 + [10.0] * 12 + [10.5] * 12 + [12.0] * 12
    assert change_points([each + place % 2 / 100 for place, each in enumerate(levels)], seed=1) == [12, 24, 36]


@pytest.mark.parametrize("unit", [1e-6, 1, 1e6])
@pytest.mark.parametrize("count", [17, 3])
def test_a_change_near_an_end_is_found_there_whatever_the_unit(count: int, unit: float) -> None:
    """Of 17 values at 1 and 3 at 2 the deviations are -0.15 and 0.85. At 17 the sum is 17 x 0.15 =
    2.55 and the statistic 2.55 / sqrt(17 x 3) = 0.357; at 16 it is 2.4 / sqrt(16 x 4) = 0.3.
    """
    values = [1.0 * unit] * count + [2.0 * unit] * (20 - count)
    assert change_points(values, seed=1) == [count]


def test_two_values_at_an_end_are_a_level_and_one_is_not() -> None:
    """Of two values among 40, 2 of 780 pairs of places are the first two or the last two. Of one
    value among 200, 4 places are as good as its own: 2 at each end, for no part has one value
    alone.
    """
    assert change_points([2, 2, *[1] * 38], seed=1) == [2]
    assert change_points([*[1] * 38, 2, 2], seed=1) == [38]
    assert change_points([2, *[1] * 199], seed=1) == []
    assert change_points([*[1] * 199, 2], seed=1) == []


def test_a_series_and_its_mirror_change_at_the_same_place() -> None:
    values = noisy([(100.0, 14), (130.0, 10)], 6)
    assert change_points(values, seed=1) == [14]
    assert change_points(values[::-1], seed=1) == [10]
    assert change_points([-each for each in values], seed=1) == [14]
