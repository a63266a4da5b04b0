"""Intervals and verdicts: against definitions, against worked numbers, and against chance."""

from __future__ import annotations

import itertools
import math
import os
import random
import statistics
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from plimsoll_lab.stats.best import FigureComparison, Value
from plimsoll_lab.stats.compare import control_floor, holm
from plimsoll_lab.stats.control import control_verdicts
from plimsoll_lab.stats.scores import score
from plimsoll_lab.stats.summary import Summary, median_bounds, median_interval, summarise
from plimsoll_lab.stats.verdict import decide, rank

SUITES = int(os.environ.get("PLIMSOLL_FAMILIES", "60"))
"""Simulated suites of equals; `make soak` asks for many more."""

positive = st.floats(1e-3, 1e6, allow_nan=False)
samples = st.lists(positive, min_size=1, max_size=40)


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


@given(samples)
def test_a_summary_agrees_with_the_definitions(values: list[float]) -> None:
    found = summarise(values)
    assert found.n == len(values)
    assert found.median == statistics.median(values)
    assert found.least <= found.median <= found.greatest
    assert found.mean == pytest.approx(statistics.fmean(values))
    if len(values) > 1:
        low, high = found.mean_ci95 or (math.nan, math.nan)
        expected = (
            stats.t.interval(0.95, len(values) - 1, found.mean, stats.sem(values)) if found.stdev else (low, high)
        )
        assert (low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("n", "ranks"), [(5, None), (6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (10, (2, 9)), (20, (6, 15))]
)
def test_the_median_interval_is_the_tables(n: int, ranks: tuple[int, int] | None) -> None:
    assert median_interval(list(range(1, n + 1))) == ranks


def test_a_summary_in_figures() -> None:
    """1, 4 and 7: the mean is 4, the standard deviation sqrt((9 + 0 + 9) / 2) = 3, and t with two
    degrees of freedom 4.302653, of which 3 / sqrt(3) is the unit.
    """
    half = 4.302653 * math.sqrt(3)
    found = summarise([7, 1, 4])
    assert found.mean_ci95 == pytest.approx((4 - half, 4 + half))
    assert replace(found, mean_ci95=None) == Summary(
        n=3, mean=4, stdev=3, mean_ci95=None, median=4, median_ci95=None, least=1, greatest=7
    )
    assert summarise([5]) == Summary(
        n=1, mean=5, stdev=None, mean_ci95=None, median=5, median_ci95=None, least=5, greatest=5
    )
    assert summarise([6, 2, 3, 5, 4, 1]).median_ci95 == (1, 6)


def test_values_that_are_not_known_widen_the_interval_of_the_median() -> None:
    """Of eight values it is the 1st to the 8th, of nine the 2nd to the 8th, of ten the 2nd to the
    9th. With one value more, which may be any, the 2nd is at least the 1st of those known, and the
    8th at most their 8th; of two more, the 2nd may be one of them.
    """
    known = [3, 1, 2, 8, 7, 6, 5, 4]
    assert median_bounds(known) == (1, 8)
    assert median_bounds([*known, 9]) == (2, 8)
    assert median_bounds(known, 1) == (1, 8)
    assert median_bounds(known, 2) == (-math.inf, math.inf)
    assert median_bounds([*known, 9, 10], 1) == (1, 10)
    assert median_bounds([1, 2, 3]) == (-math.inf, math.inf)


@given(st.integers(6, 60))
def test_the_median_interval_covers_with_at_least_95_percent(n: int) -> None:
    low, high = median_interval(list(range(1, n + 1))) or (0, 0)
    assert stats.binom.cdf(high - 1, n, 0.5) - stats.binom.cdf(low - 1, n, 0.5) >= 0.95 - 1e-12


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_holm_never_lowers_a_p_and_keeps_their_order(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(p <= after <= 1 for p, after in zip(p_values, adjusted, strict=True))
    by_p = sorted(range(len(p_values)), key=lambda i: p_values[i])
    assert all(adjusted[a] <= adjusted[b] for a, b in itertools.pairwise(by_p))


def test_holm_on_a_worked_example() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def comparison(
    factors: dict[str, float], *, noise: float, blocks: int, seed: int, figure: str = "x"
) -> FigureComparison:
    draw = random.Random(seed)
    machine = [draw.uniform(0.8, 1.2) for _ in range(blocks)]
    contenders: dict[str, dict[int, Value]] = {
        name: {block: machine[block] * factor * math.exp(draw.gauss(0, noise)) for block in range(blocks)}
        for name, factor in factors.items()
    }
    return FigureComparison(figure=figure, better="lower", at={}, contenders=contenders)


def test_a_clear_winner_is_better() -> None:
    [verdict] = decide([comparison({"a": 1, "b": 1.3, "c": 1.5}, noise=0.02, blocks=9, seed=1)], margin=0.05, seed=1)
    assert (verdict.winner, verdict.runner_up, verdict.call) == ("a", "b", "better")
    assert verdict.ratio == pytest.approx(1 / 1.3, rel=0.1)


def test_two_alike_are_equivalent_where_the_interval_is_narrow() -> None:
    [verdict] = decide([comparison({"a": 1, "b": 1.001, "c": 2}, noise=0.01, blocks=20, seed=2)], margin=0.05, seed=1)
    assert verdict.call == "equivalent"


def test_noise_shows_nothing() -> None:
    [verdict] = decide([comparison({"a": 1, "b": 1.03}, noise=0.3, blocks=9, seed=3)], margin=0.05, seed=1)
    assert verdict.call == "not shown"


def two_values_in_turn(factor: float) -> FigureComparison:
    """Of six blocks; some pattern of signs makes all their deviations alike."""
    values = {
        "a": dict.fromkeys(range(6), 1000.0),
        "b": {block: 950.0 * factor ** ((-1) ** block) for block in range(6)},
    }
    return FigureComparison(figure="x", better="higher", at={}, contenders=values)


def test_two_values_in_turn_are_told_from_one_that_is_far_from_both() -> None:
    """The deviations are log 1.005, their error is that over sqrt(5), and t of all alike is theirs
    over 0.001 / sqrt(6).
    """
    [verdict] = decide([two_values_in_turn(1.005)], margin=0.05, seed=1)
    away = math.log(1.005)
    reach = away * math.sqrt(6) / 0.001 * away / math.sqrt(5)
    assert verdict.call == "better"
    assert verdict.ratio_ci95 == pytest.approx(tuple(math.exp(sign * reach) / 0.95 for sign in (-1, 1)))


def test_values_that_differ_beyond_measure_end_in_no_bound_and_not_in_an_overflow() -> None:
    [verdict] = decide([two_values_in_turn(10.0)], margin=0.05, seed=1)
    assert (verdict.call, verdict.ratio_ci95) == ("not shown", None)


def test_too_few_blocks_never_say_better() -> None:
    [verdict] = decide([comparison({"a": 1, "b": 3}, noise=0.01, blocks=5, seed=4)], margin=0.05, seed=1)
    assert verdict.call == "not shown"
    assert "5 valid blocks, at least 6 are needed" in verdict.reason


def test_one_contender_alone_does_not_win() -> None:
    [verdict] = decide([comparison({"a": 1}, noise=0.01, blocks=9, seed=5)], margin=0.05, seed=1)
    assert (verdict.winner, verdict.runner_up, verdict.call) == ("a", None, "not shown")


def test_nobody_measured_is_invalid() -> None:
    [verdict] = decide([FigureComparison(figure="x", better="lower", at={}, contenders={})], margin=0.05, seed=1)
    assert (verdict.winner, verdict.call) == (None, "invalid")


def test_higher_may_be_better() -> None:
    asked = comparison({"a": 1, "b": 2}, noise=0.01, blocks=9, seed=6)
    asked = FigureComparison(figure="x", better="higher", at={}, contenders=asked.contenders)
    [verdict] = decide([asked], margin=0.05, seed=1)
    assert (verdict.winner, verdict.call) == ("b", "better")


def test_only_shared_blocks_are_compared() -> None:
    asked = comparison({"a": 1, "b": 1.5}, noise=0.01, blocks=12, seed=7)
    contenders = {
        "a": dict(list(asked.contenders["a"].items())[:10]),
        "b": dict(list(asked.contenders["b"].items())[2:]),
    }
    [verdict] = decide(
        [FigureComparison(figure="x", better="lower", at={}, contenders=contenders)], margin=0.05, seed=1
    )
    assert verdict.blocks == 8


def test_a_block_that_slows_both_does_not_widen_the_ratio() -> None:
    asked = comparison({"a": 1, "b": 1.1}, noise=0.02, blocks=9, seed=9)
    slowed = replace(
        asked,
        contenders={
            name: {
                block: value * 5 if block == 4 and isinstance(value, float) else value for block, value in of.items()
            }
            for name, of in asked.contenders.items()
        },
    )
    [verdict], [other] = (decide([each], margin=0.05, seed=1) for each in (asked, slowed))
    assert slowed.contenders["a"][4] == pytest.approx(5 * asked.contenders["a"][4])
    assert other.ratio == pytest.approx(verdict.ratio)
    assert other.ratio_ci95 == pytest.approx(verdict.ratio_ci95)


def test_the_same_numbers_and_seed_give_the_same_verdict() -> None:
    family = [comparison({"a": 1, "b": 1.1}, noise=0.1, blocks=9, seed=8)]
    assert decide(family, margin=0.05, seed=1) == decide(family, margin=0.05, seed=1)


def test_suites_of_equals_hardly_ever_name_a_winner() -> None:
    """A/A suites, each seven contenders that are alike, four figures at three settings: at most 5 %
    err.
    """
    names = ["threads", "fork", "select", "poll", "epoll", "epoll-et", "uring"]
    wrong = 0
    for suite in range(SUITES):
        family = [
            comparison(dict.fromkeys(names, 1.0), noise=0.03, blocks=9, seed=suite * 100 + place) for place in range(12)
        ]
        wrong += any(verdict.others for verdict in decide(family, margin=0.05, seed=suite))
    # Five percent, and three standard errors of what so many suites tell.
    assert wrong <= 0.05 * SUITES + 3 * math.sqrt(0.05 * 0.95 * SUITES)


def test_the_winner_and_the_ratio_agree_in_direction() -> None:
    """The first of the verdicts once seen to be wrong: winner A, ratio 0.92, higher is better."""
    for seed in range(60):
        draw = random.Random(seed)
        better: Literal["higher", "lower"] = draw.choice(("higher", "lower"))
        asked = comparison({"a": 1, "b": draw.uniform(0.8, 1.2), "c": 1.1}, noise=0.1, blocks=10, seed=seed)
        contenders = {
            name: {block: value for block, value in values.items() if draw.random() > 0.25}
            for name, values in asked.contenders.items()
        }
        [verdict] = decide([replace(asked, better=better, contenders=contenders)], margin=0.05, seed=1)
        if verdict.ratio is None:
            continue
        assert (verdict.ratio >= 1) == (better == "higher") or verdict.ratio == 1
        low, high = verdict.ratio_ci95 or (-math.inf, math.inf)
        assert low <= verdict.ratio <= high
        if verdict.call == "better":
            assert verdict.best == [verdict.winner]
            assert (low > 1) == (better == "higher")


def twice(noise: float, shift: float = 1.0, blocks: int = 12) -> tuple[dict[int, float], dict[int, float]]:
    draw = random.Random(11)
    return (
        {block: 100 * math.exp(draw.gauss(0, noise)) for block in range(blocks)},
        {block: 100 * shift * math.exp(draw.gauss(0, noise)) for block in range(blocks)},
    )


def test_a_control_measures_the_noise_of_a_ratio() -> None:
    one, again = twice(0.05, blocks=20)
    floor = control_floor(list(one.values()), list(again.values()), rng())
    # 0.05 x sqrt(2 / 20), and 95 % lie below twice that.
    assert floor == pytest.approx(0.031, rel=0.5)
    assert control_floor([1, 2], [2, 1], rng()) is None


def test_a_noisy_control_keeps_a_difference_from_being_called_better() -> None:
    asked = comparison({"a": 1, "b": 1.05}, noise=0.002, blocks=12, seed=3)
    [quiet] = decide([replace(asked, control=twice(0.002))], margin=0.01, seed=1)
    [noisy] = decide([replace(asked, control=twice(0.3))], margin=0.01, seed=1)
    assert (quiet.call, noisy.call) == ("better", "not shown")
    assert "noise floor" in noisy.reason


def test_one_that_is_told_from_itself_is_said_to_differ() -> None:
    asked = comparison({"a": 1, "b": 1.05}, noise=0.01, blocks=12, seed=3)
    family = [replace(asked, control=twice(0.01)), replace(asked, control=twice(0.01, shift=1.2)), asked]
    assert [each.differs for each in control_verdicts(family, seed=1)] == [False, True]


def test_each_cell_is_scored_by_its_ratio_to_the_best_and_there_is_no_total() -> None:
    asked = comparison({"a": 1, "b": 1.5, "c": 1.001}, noise=0.002, blocks=9, seed=4)
    rankings = rank([replace(asked, absent=("d",))], seed=1)
    cells = {cell.contender: cell for cell in score(rankings, margin=0.05)}
    assert cells["a"].best
    assert cells["b"].margin == pytest.approx(1.5, rel=0.02)
    low, high = cells["b"].margin_ci95 or (0, 0)
    assert low <= 1.5 <= high
    assert (cells["b"].level, cells["c"].level) == (False, True)
    assert (cells["d"].median, cells["d"].margin, cells["d"].n) == (None, None, 0)
    assert set(cells) == {"a", "b", "c", "d"}
