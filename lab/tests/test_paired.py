"""Two series of the same blocks, and the A/A control: small examples, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from plimsoll_lab.stats.best import FigureComparison
from plimsoll_lab.stats.compare import (
    control_floor,
    ends_of,
    holm,
    permutation_p,
    ratio_interval,
    ratio_of_medians,
    row_medians,
)
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


def test_the_ratio_is_the_first_median_over_the_second() -> None:
    assert ratio_of_medians([1, 2, 9], [4, 4, 4]) == 0.5
    assert ratio_of_medians([4, 4, 4], [1, 2, 9]) == 2


@pytest.mark.parametrize("count", range(1, 10))
def test_the_median_of_each_row_is_numpys(count: int) -> None:
    rows = np.random.default_rng(count).permuted(np.tile(np.arange(count) ** 2.0, (200, 1)), axis=1)
    rows *= np.arange(1, 201)[:, None]
    assert row_medians(rows).tolist() == np.median(rows, axis=1).tolist()


def test_a_bootstrap_ends_where_a_fortieth_lies_beyond_on_each_side() -> None:
    """Of 0 to 200, and of a column beside it that runs from 20 to 0."""
    up = np.arange(201.0)
    assert ends_of(up).tolist() == pytest.approx([5, 195])
    low, high = ends_of(np.column_stack([up, up[::-1] / 10]))
    assert (*low, *high) == pytest.approx((5, 0.5, 195, 19.5))


def test_the_interval_of_a_ratio_is_that_of_a_median_of_drawn_blocks() -> None:
    """The median of seven that are drawn from 1 to 7 is 1 where at least four of them are: with
    1.0 %. It is 1 or 2 with 10.8 %. So 2.5 % lies at 2, and by symmetry 97.5 % at 6.
    """
    assert ratio_interval([1, 2, 3, 4, 5, 6, 7], [1] * 7, rng()) == (2, 6)
    assert ratio_interval([1] * 7, [1, 2, 4, 5, 8, 10, 16], rng()) == pytest.approx((0.1, 0.5))


def test_both_values_of_a_block_are_drawn_together() -> None:
    one = [3.0, 1.0, 4.0, 1.5, 9.0, 2.0]
    assert ratio_interval([2 * each for each in one], one, rng()) == (2, 2)


def test_a_permutation_test_of_blocks_that_all_agree() -> None:
    """Two patterns of 2 ** 16 are as extreme. Beyond 16 blocks 10,000 are drawn, none of them so
    extreme, and the one that was observed counts.
    """
    assert permutation_p([2.0] * 16, [1.0] * 16, rng()) == 2 / 65_536
    assert permutation_p([2.0] * 17, [1.0] * 17, rng()) == 1 / 10_001


def test_a_permutation_test_of_blocks_that_do_not_differ_counts_every_pattern() -> None:
    assert permutation_p([5.0, 7.0], [5.0, 7.0], rng()) == 1
    assert permutation_p([2.0, 1.0], [1.0, 2.0], rng()) == 1
    assert permutation_p([], [], rng()) == 1


def test_holms_factors_fall_by_one_a_rank_and_a_later_p_is_never_smaller() -> None:
    """3 x 0.02 = 0.06; then 2 x 0.025 = 0.05, less than 0.06; then 0.9, and none is above 1."""
    assert holm([0.9, 0.02, 0.025]) == pytest.approx([0.9, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1, 1]
    assert holm([]) == []


@pytest.mark.parametrize("turned", [0, 1, 3])
@pytest.mark.parametrize(("apart", "floor"), [(5, math.e - 1), (6, 0)])
def test_a_twentieth_of_the_deals_lies_beyond_the_floor(apart: int, floor: float, turned: int) -> None:
    """One value of each of these blocks is e and the other 1; in as many blocks less one both are
    far higher. So the median of one side is 1 only where it gets every 1, and the two medians
    differ in 2 of 2 ** n deals: 6.3 % of five blocks, and 3.1 % of six.
    """
    one, other = [math.e] * apart + [50.0] * (apart - 1), [1.0] * apart + [50.0] * (apart - 1)
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
    """In six blocks the one is twice the other: p is 2 / 64. A block that only one of them has, and
    one in which either is zero, are left out.
    """
    one = dict.fromkeys(range(6), 0.5) | {6: 9.0, 8: 0.0, 9: 9.0}
    again = dict.fromkeys(range(6), 0.25) | {7: 9.0, 8: 9.0, 9: 0.0}
    assert control_verdicts([controlled(one, again)], seed=1) == [
        Control(
            figure="x",
            at={"n": 1},
            blocks=6,
            ratio=2.0,
            ratio_ci95=(2.0, 2.0),
            p_adjusted=2 / 64,
            floor=pytest.approx(1.0),  # type: ignore[arg-type]
            differs=True,
        )
    ]


def test_controls_are_adjusted_together_and_those_of_no_comparison_are_none() -> None:
    six, half = dict.fromkeys(range(6), 1.0), dict.fromkeys(range(6), 0.5)
    family = [controlled(six, half), FigureComparison(figure="y", better="lower", at={}, contenders={})]
    assert [(each.p_adjusted, each.differs) for each in control_verdicts([*family, family[0]], seed=1)] == [
        (4 / 64, False),
        (4 / 64, False),
    ]


def test_a_control_of_five_blocks_has_no_interval_and_one_of_none_has_nothing() -> None:
    five, half = dict.fromkeys(range(5), 1.0), dict.fromkeys(range(5), 0.5)
    short, nothing = control_verdicts([controlled(five, half), controlled({0: 1.0}, {1: 1.0})], seed=1)
    assert (short.blocks, short.ratio, short.ratio_ci95, short.differs) == (5, 2, None, False)
    # 2 / 32, of two controls, of which the other one shows nothing.
    assert short.p_adjusted == 4 / 32
    assert nothing == Control(
        figure="x", at={"n": 1}, blocks=0, ratio=None, ratio_ci95=None, p_adjusted=None, floor=None, differs=False
    )


def test_a_control_follows_from_its_seed_and_its_place_in_the_family() -> None:
    """The bootstrap of the same values draws other blocks at another place."""
    luck = np.random.default_rng(3)
    noisy = controlled(dict(enumerate(luck.uniform(1, 2, 30))), dict(enumerate(luck.uniform(1, 2, 30))))
    first, second = control_verdicts([noisy, noisy], seed=1)
    assert first.ratio_ci95 != second.ratio_ci95
    assert control_verdicts([noisy, noisy], seed=1) == [first, second]
