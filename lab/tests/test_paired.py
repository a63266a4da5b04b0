"""Two series of the same blocks, and the A/A control: small examples, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from plimsoll_lab.stats.best import FigureComparison
from plimsoll_lab.stats.compare import control_floor, ends_of, holm
from plimsoll_lab.stats.control import control_verdicts
from plimsoll_lab.stats.results import Control
from plimsoll_lab.stats.signs import drawn_signs, sign_patterns


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_the_patterns_of_signs_count_in_binary_and_end_in_their_mirrors() -> None:
    assert sign_patterns(8, 3).tolist() == [
        [-1, -1, -1], [1, -1, -1], [-1, 1, -1], [1, 1, -1],
        [-1, -1, 1], [1, -1, 1], [-1, 1, 1], [1, 1, 1],
    ]  # fmt: skip
    half = sign_patterns(16, 5)
    assert (np.vstack([half, -half[::-1]]) == sign_patterns(32, 5)).all()


def test_drawn_signs_are_as_often_one_as_the_other_in_each_block() -> None:
    """Of 10,000 a share lies within 0.015 of a half, three standard errors."""
    drawn = drawn_signs(10_000, 3, rng())
    assert drawn.shape == (10_000, 3)
    assert set(np.unique(drawn)) == {-1, 1}
    assert (drawn > 0).mean(axis=0) == pytest.approx([0.5] * 3, abs=0.015)
    assert (drawn[:, 0] == drawn[:, 1]).mean() == pytest.approx(0.5, abs=0.015)


def test_a_bootstrap_ends_where_a_fortieth_lies_beyond_on_each_side() -> None:
    """Of 0 to 200, and of a column beside it that runs from 20 to 0."""
    up = np.arange(201.0)
    assert ends_of(up).tolist() == pytest.approx([5, 195])
    low, high = ends_of(np.column_stack([up, up[::-1] / 10]))
    assert (*low, *high) == pytest.approx((5, 0.5, 195, 19.5))


def test_holms_factors_fall_by_one_a_rank_and_a_later_p_is_never_smaller() -> None:
    """3 x 0.02 = 0.06; then 2 x 0.025 = 0.05, less than 0.06; then 0.9, and none is above 1."""
    assert holm([0.9, 0.02, 0.025]) == pytest.approx([0.9, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1, 1]
    assert holm([]) == []


@pytest.mark.parametrize("turned", [0, 1, 3])
@pytest.mark.parametrize(("blocks", "floor"), [(5, math.e - 1), (6, math.e ** (2 / 3) - 1)])
def test_a_twentieth_of_the_deals_lies_beyond_the_floor(blocks: int, floor: float, turned: int) -> None:
    """One value of each block is e and the other 1. One side gets every e in 2 of 2 ** n deals:
    6.3 % of five blocks, and 3.1 % of six. In 12 more of six it gets five of them, and the mean
    logarithms differ by four sixths.
    """
    one, other = [math.e] * blocks, [1.0] * blocks
    # Which of the two measurements a value belongs to says nothing.
    one[:turned], other[:turned] = other[:turned], one[:turned]
    assert control_floor(one, other, rng()) == pytest.approx(floor)


def test_four_blocks_are_enough_for_a_floor_and_three_are_not() -> None:
    """Of four blocks 10 of 16 deals give one side three or four of the higher values."""
    assert control_floor([2.0] * 4, [1.0] * 4, rng()) == pytest.approx(1)
    assert control_floor([2.0] * 3, [1.0] * 3, rng()) is None


def controlled(one: dict[int, float], again: dict[int, float]) -> FigureComparison:
    return FigureComparison(figure="x", better="lower", at={"n": 1}, contenders={}, control=(one, again))


def test_a_control_in_figures() -> None:
    """In six blocks the one is twice the other: p is the least of 32 patterns. A block that only
    one of them has, and one in which either is zero, are left out.
    """
    one = dict.fromkeys(range(6), 0.5) | {6: 9.0, 8: 0.0, 9: 9.0}
    again = dict.fromkeys(range(6), 0.25) | {7: 9.0, 8: 9.0, 9: 0.0}
    [found] = control_verdicts([controlled(one, again)], seed=1)
    assert (found.figure, found.at, found.blocks, found.differs) == ("x", {"n": 1}, 6, True)
    assert (found.ratio, *(found.ratio_ci95 or ())) == pytest.approx((2, 2, 2))
    assert found.p_adjusted == 1 / 32
    # As worked above: five of six values on one side, and one on the other.
    assert found.floor == pytest.approx(2 ** (4 / 6) - 1)


def test_a_control_whose_bounds_overflow_has_no_interval() -> None:
    """The exponential of its upper end ended the report of the whole run."""
    turns = [1.0, 3.0] * 3
    [found] = control_verdicts([controlled(dict(enumerate(turns)), dict(enumerate(turns[::-1])))], seed=1)
    assert (found.ratio_ci95, found.differs) == (None, False)


def test_those_of_no_comparison_are_none() -> None:
    assert control_verdicts([FigureComparison(figure="y", better="lower", at={}, contenders={})], seed=1) == []


def test_a_control_of_five_blocks_has_no_interval_and_one_of_none_has_nothing() -> None:
    five, half = dict.fromkeys(range(5), 1.0), dict.fromkeys(range(5), 0.5)
    short, nothing = control_verdicts([controlled(five, half), controlled({0: 1.0}, {1: 1.0})], seed=1)
    assert (short.blocks, short.ratio_ci95, short.p_adjusted, short.differs) == (5, None, None, False)
    assert short.ratio == pytest.approx(2)
    assert nothing == Control(
        figure="x", at={"n": 1}, blocks=0, ratio=None, ratio_ci95=None, p_adjusted=None, floor=None, differs=False
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_control_differs_exactly_where_its_interval_excludes_one(seed: int) -> None:
    """Its ratio was one of medians and its p of means: it differed, and its interval held 1."""
    luck = np.random.default_rng(seed)
    family = [
        controlled(dict(enumerate(luck.normal(1, 0.03, 9))), dict(enumerate(luck.normal(1 + shift, 0.03, 9))))
        for shift in (0, 0.04, 0.08)
    ]
    found = control_verdicts(family, seed=1)
    for each in found:
        low, high = each.ratio_ci95 or (0.0, 0.0)
        assert low <= (each.ratio or 0) <= high
        assert each.differs == (not low <= 1 <= high)
    assert control_verdicts(family, seed=1) == found
