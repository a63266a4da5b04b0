"""Change points: found where a level changes, and seldom where none does."""

from __future__ import annotations

import numpy as np

from plimsoll_lab.stats.change_points import LEAST_VALUES, change_points


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


def test_the_same_series_gives_the_same_places() -> None:
    values = noisy([(100.0, 20), (102.0, 20)], 5)
    assert change_points(values, seed=9) == change_points(values, seed=9)
