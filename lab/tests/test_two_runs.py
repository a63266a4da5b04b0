"""Runs of A against runs of B: Welch's test on logarithms, worked by hand and held against
scipy's.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from plimsoll_lab.stats.results import Difference
from plimsoll_lab.stats.two_runs import Pair, compare_sides


def spread(middle: float, step: float, count: int = 5) -> list[float]:
    """Values whose logarithms are evenly apart."""
    return [middle * math.exp(step * (place - (count - 1) / 2)) for place in range(count)]


A, B = spread(100, 0.01), spread(110, 0.02, 6)
PAIR = Pair(figure="x", better="higher", a=A, b=B, at={"n": 8})
CONSTANT = Pair(figure="x", better="higher", a=[100.0] * 5, b=[110.0] * 5)
WELCH = stats.ttest_ind(np.log(B), np.log(A), equal_var=False)


def only(pair: Pair, margin: float = 0.05) -> Difference:
    [found] = compare_sides([pair], margin=margin)
    return found


def test_a_difference_in_figures() -> None:
    """The logarithms of A are 0.01 apart and their variance is 0.00025; those of B 0.02 and 0.0014.
    So the error is sqrt(0.00025 / 5 + 0.0014 / 6) = 0.0168, of log 1.1 = 0.0953.
    """
    found = only(PAIR)
    interval = WELCH.confidence_interval(0.95)
    assert WELCH.statistic == pytest.approx(math.log(1.1) / math.sqrt(0.00025 / 5 + 0.0014 / 6))
    assert found.ratio == pytest.approx(1.1)
    assert found.ratio_ci95 == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert found.p_adjusted == pytest.approx(WELCH.pvalue)
    assert replace(found, ratio=None, ratio_ci95=None, p_adjusted=None) == Difference(
        figure="x",
        better="higher",
        at={"n": 8},
        winner="B",
        runner_up="A",
        ratio=None,
        ratio_ci95=None,
        p_adjusted=None,
        n=(5, 6),
        call="better",
        reason=f"the interval excludes 1, p is {WELCH.pvalue:.2g} after Holm's adjustment",
    )


def test_the_sides_swapped_and_the_other_direction() -> None:
    there, back = only(PAIR), only(replace(PAIR, a=B, b=A))
    assert (back.winner, back.runner_up, back.n) == ("A", "B", (6, 5))
    assert back.ratio == pytest.approx(1 / 1.1)
    low, high = there.ratio_ci95 or (0, 0)
    assert back.ratio_ci95 == pytest.approx((1 / high, 1 / low))
    assert back.p_adjusted == pytest.approx(there.p_adjusted)
    lower = only(replace(PAIR, better="lower"))
    assert (lower.winner, lower.runner_up, lower.ratio, lower.call) == ("A", "B", there.ratio, "better")


def test_runs_without_any_spread() -> None:
    """100 and 110 differ surely; 100 and 100 surely do not."""
    apart, alike = only(CONSTANT), only(replace(CONSTANT, b=CONSTANT.a))
    assert (apart.winner, apart.p_adjusted, apart.call) == ("B", 0, "better")
    assert apart.ratio_ci95 == pytest.approx((1.1, 1.1))
    assert (alike.winner, alike.runner_up, alike.ratio, alike.ratio_ci95) == (None, None, 1, (1, 1))
    assert (alike.p_adjusted, alike.call, alike.reason) == (1, "equivalent", "the interval lies within 5 %")


def test_four_runs_on_one_side_have_an_estimate_and_no_verdict() -> None:
    for a, b, runs in ((A[:4], B, "4 runs a side are"), (A, B[:4], "4 runs a side are"), (A, B[:1], "1 run a side is")):
        found = only(replace(PAIR, a=a, b=b))
        assert (found.ratio_ci95, found.p_adjusted, found.call) == (None, None, "not shown")
        assert found.reason == f"{runs} too few; at least 5, or `plimsoll lab gate` in one run"
        assert found.ratio == pytest.approx(math.exp(np.log(b).mean() - np.log(a).mean()))
        assert (found.winner, found.n) == ("B", (len(a), len(b)))


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ([], B, "no valid result in A"),
        (A, [], "no valid result in B"),
        ([], [], "no valid result in A and B"),
        ([*A, 0.0], B, "a value of zero has no ratio to another"),
        (A, [0.0, *B], "a value of zero has no ratio to another"),
    ],
)
def test_what_has_no_ratio_is_invalid(a: list[float], b: list[float], reason: str) -> None:
    found = only(replace(PAIR, a=a, b=b))
    assert (found.winner, found.runner_up) == (None, None)
    assert (found.ratio, found.ratio_ci95, found.p_adjusted) == (None, None, None)
    assert (found.call, found.reason, found.n) == ("invalid", reason, (len(a), len(b)))
    assert only(replace(PAIR, a=a, b=b, obstacle="another machine")).reason == "another machine"


@pytest.mark.parametrize("pair", [PAIR, CONSTANT, replace(PAIR, a=A[:4])], ids=["enough", "constant", "few"])
def test_an_obstacle_forbids_the_verdict_and_not_the_estimate(pair: Pair) -> None:
    found, free = only(replace(pair, obstacle="another machine")), only(pair)
    assert (found.call, found.reason) == ("invalid", "another machine")
    assert replace(found, call=free.call, reason=free.reason) == free


def test_values_below_one_have_ratios_like_any_other() -> None:
    small = only(replace(PAIR, a=[each / 1e6 for each in A], b=[each / 1e6 for each in B]))
    assert (small.call, small.winner) == ("better", "B")
    assert small.ratio == pytest.approx(1.1)


def test_pairs_are_one_family_to_which_those_without_a_test_do_not_belong() -> None:
    """One that is shown alone, with p = 0.03, is not shown among three."""
    step = 0.1
    alone = Pair(figure="x", better="higher", a=spread(1, step), b=spread(math.exp(0.265), step))
    p = only(alone).p_adjusted or 0
    assert p == pytest.approx(stats.ttest_ind(np.log(alone.b), np.log(alone.a), equal_var=False).pvalue)
    assert 0.02 < p < 0.05
    assert only(alone).call == "better"
    unlike = [replace(alone, b=[]), alone, replace(alone, a=A[:4], b=B)]
    assert [each.p_adjusted for each in compare_sides(unlike, margin=0.05)] == [None, p, None]
    three = compare_sides([alone, PAIR, alone], margin=0.05)
    assert [each.p_adjusted for each in three] == pytest.approx([2 * p, 3 * WELCH.pvalue, 2 * p])
    assert [each.call for each in three] == ["not shown", "better", "not shown"]
    assert three[0].reason == f"p is {2 * p:.2g} after Holm's adjustment"


@pytest.mark.parametrize(("reach", "call"), [(0.2305, "not shown"), (0.2307, "better")])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_pair_alone_differs_exactly_where_its_interval_excludes_one(reach: float, call: str, side: int) -> None:
    """Five logarithms that are 0.1 apart have a variance of 0.025, so that the error of the
    difference is 0.1. Student's t is 2.30600 with eight degrees of freedom.
    """
    found = only(Pair(figure="x", better="lower", a=spread(1, 0.1), b=spread(math.exp(side * reach), 0.1)))
    low, high = found.ratio_ci95 or (1, 1)
    assert (math.log(low), math.log(high)) == pytest.approx((side * reach - 0.2306, side * reach + 0.2306), abs=1e-6)
    assert found.call == call
    assert (low <= 1 <= high) == (call == "not shown")


def test_two_without_any_difference_are_equivalent_within_a_margin_of_nothing() -> None:
    alike = only(replace(CONSTANT, b=CONSTANT.a), margin=0.0)
    assert (alike.call, alike.reason) == ("equivalent", "the interval lies within 0 %")


@pytest.mark.parametrize(("margin", "call"), [(0.05, "equivalent"), (0.02, "not shown")])
def test_two_are_equivalent_where_the_interval_lies_within_the_margin_on_both_sides(margin: float, call: str) -> None:
    """Around 1.01 and its reciprocal, 0.023 to each side: t is 2.31 with eight degrees of freedom,
    and the error 0.01.
    """
    for middle in (101, 100 / 1.01):
        found = only(Pair(figure="x", better="higher", a=spread(100, 0.01), b=spread(middle, 0.01)), margin)
        assert found.ratio_ci95 == pytest.approx((middle / 100 * math.exp(-0.02306), middle / 100 * math.exp(0.02306)))
        assert found.call == call
