"""Comparison with the best: properties over random data, and how often its bounds hold."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import tell

from plimsoll_lab.stats.best import FigureComparison, Ranking, Value, compare_with_best, detectable_ratio
from plimsoll_lab.stats.resampling import LEAST_BLOCKS
from plimsoll_lab.stats.scores import score
from plimsoll_lab.stats.verdict import verdicts

FAMILIES = int(os.environ.get("PLIMSOLL_FAMILIES", "60"))
"""Simulated families of each design; `make soak` asks for many more."""

Noise = dict[str, dict[int, Value]]


def measured(
    levels: Mapping[str, float], *, blocks: int, noise: float, seed: int, better: str = "lower", machine: float = 0.35
) -> FigureComparison:
    """Contenders on a machine whose speed changes from block to block by up to `machine`."""
    rng = np.random.default_rng(seed)
    speed = 1 - machine * rng.random(blocks)
    values: Noise = {
        name: {block: float(level * speed[block] * math.exp(rng.normal(0, noise))) for block in range(blocks)}
        for name, level in levels.items()
    }
    return FigureComparison(figure="x", better="higher" if better == "higher" else "lower", at={}, contenders=values)


def rank(*family: FigureComparison, seed: int = 1) -> list[Ranking]:
    return compare_with_best(family, np.random.default_rng(seed))


def without(comparison: FigureComparison, name: str, kept: Sequence[int]) -> FigureComparison:
    """The same with one contender measured in some blocks only."""
    some = {block: comparison.contenders[name][block] for block in kept}
    return replace(comparison, contenders={**comparison.contenders, name: some})


def flipped(comparison: FigureComparison) -> FigureComparison:
    """The same figures as rates: the reciprocal, and the other direction is better."""
    turned: Noise = {
        name: {block: 1 / value for block, value in values.items() if isinstance(value, float)}
        for name, values in comparison.contenders.items()
    }
    return replace(comparison, better="higher", contenders=turned)


levels = st.dictionaries(st.sampled_from("abcdefg"), st.floats(1, 5), min_size=2, max_size=6)
designs = st.builds(
    lambda levels, blocks, noise, seed: measured(levels, blocks=blocks, noise=noise, seed=seed),
    levels,
    st.integers(6, 10),
    st.floats(0.001, 0.3),
    st.integers(0, 10_000),
)


@settings(max_examples=60)
@given(designs)
def test_somebody_may_be_best_and_every_estimate_lies_in_its_interval(comparison: FigureComparison) -> None:
    [found] = rank(comparison)
    assert found.best
    assert {*found.best, *(each.name for each in found.others)} == set(comparison.contenders)
    for place in found.places:
        assert 1 <= place.at_least <= place.ratio * (1 + 1e-9)
        assert place.ratio <= place.at_most * (1 + 1e-9)
    assert found.places[0].ratio == pytest.approx(1)
    assert found.places[0].may_be_best


@settings(max_examples=60)
@given(designs)
def test_a_pair_is_adjusted_below_5_percent_exactly_where_its_interval_excludes_equality(
    comparison: FigureComparison,
) -> None:
    [found] = rank(comparison)
    for (one, other), pair in found.pairs.items():
        assert (pair.p_adjusted < 0.05) == (pair.low > 0 or pair.high < 0)
        assert found.pairs[other, one] == pair.reversed()


@settings(max_examples=40)
@given(designs)
def test_a_rate_and_its_reciprocal_are_ranked_alike(comparison: FigureComparison) -> None:
    [one], [other] = rank(comparison), rank(flipped(comparison))
    assert [place.name for place in one.places] == [place.name for place in other.places]
    assert [place.at_least for place in one.places] == pytest.approx([place.at_least for place in other.places])


@settings(max_examples=40)
@given(designs, st.floats(0.001, 1000))
def test_the_unit_of_a_figure_changes_nothing(comparison: FigureComparison, factor: float) -> None:
    scaled: Noise = {
        name: {block: value * factor for block, value in values.items() if isinstance(value, float)}
        for name, values in comparison.contenders.items()
    }
    [one], [other] = rank(comparison), rank(replace(comparison, contenders=scaled))
    assert [place.at_most for place in one.places] == pytest.approx([place.at_most for place in other.places])


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from(["far", "short", "zero", "censored"]))
def test_a_third_contender_that_is_no_rival_changes_nothing_between_two(seed: int, kind: str) -> None:
    """Far worse, measured in three blocks, zero in one, or known in no direction: the two are
    judged as before.
    """
    comparison = measured({"a": 1, "b": 1.2, "z": 1.1}, blocks=10, noise=0.03, seed=seed)
    z: dict[int, Value] = dict(comparison.contenders["z"])
    if kind == "far":
        z = {block: value * 50 for block, value in z.items() if isinstance(value, float)}
    elif kind == "short":
        z = {block: z[block] for block in (1, 4, 7)}
    elif kind == "zero":
        z[3] = 0.0
    else:
        z = dict.fromkeys(z, (0.0, math.inf))
    [usual] = rank(comparison)
    [found] = rank(replace(comparison, contenders={**comparison.contenders, "z": z}))
    before, after = usual.pairs["b", "a"], found.pairs["b", "a"]
    assert after.estimate == before.estimate
    assert (after.low > 0) == (before.low > 0) or abs(before.p_adjusted - 0.05) < 0.03
    # A rival less, or one with less to say, can only make the family smaller.
    assert after.high - after.low <= (before.high - before.low) * (1 + 1e-9)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 11), min_size=6, max_size=12, unique=True))
def test_missing_blocks_of_a_third_contender_hardly_move_the_bounds_of_two_others(seed: int, kept: list[int]) -> None:
    comparison = measured({"a": 1, "b": 1.2, "z": 1.1}, blocks=12, noise=0.03, seed=seed)
    [whole], [part] = rank(comparison), rank(without(comparison, "z", kept))
    one, other = whole.pairs["b", "a"], part.pairs["b", "a"]
    assert other.estimate == one.estimate
    # The family's critical value is resampled from all pairs, and the third's deviations are partly
    # repeated ones.
    assert other.high - other.low == pytest.approx(one.high - one.low, rel=0.15)


def test_two_are_compared_in_the_blocks_that_both_have() -> None:
    comparison = measured({"a": 1, "b": 1}, blocks=10, noise=0.001, seed=1, machine=0)
    values = dict(comparison.contenders["a"]) | {8: 100.0, 9: 100.0}
    comparison = replace(comparison, contenders={**comparison.contenders, "a": values})
    [found] = rank(without(comparison, "b", range(8)))
    assert found.pairs["a", "b"].blocks == 8
    assert abs(found.pairs["a", "b"].estimate) < 0.01
    assert set(found.best) == {"a", "b"}


def test_clear_differences_are_shown_and_bounded() -> None:
    [found] = rank(measured({"a": 1, "b": 1.001, "c": 2, "d": 4}, blocks=10, noise=0.02, seed=3))
    assert set(found.best) == {"a", "b"}
    assert [each.name for each in found.others] == ["c", "d"]
    assert all(each.at_least < truth < each.at_most for each, truth in zip(found.others, (2, 4), strict=True))


@pytest.mark.parametrize("blocks", range(1, LEAST_BLOCKS))
def test_below_six_blocks_nothing_is_said(blocks: int) -> None:
    [found] = rank(measured({"a": 1, "b": 9}, blocks=blocks, noise=0.001, seed=1))
    assert found.places == []
    assert set(found.unranked) == {"a", "b"}
    assert math.isinf(detectable_ratio(blocks=blocks, comparisons=1, noise=0.01, rng=np.random.default_rng(1)))


def test_a_figure_without_any_noise_is_compared_exactly() -> None:
    exact = FigureComparison(
        figure="x",
        better="lower",
        at={},
        contenders={"a": dict.fromkeys(range(8), 3.0), "b": dict.fromkeys(range(8), 6.0)},
    )
    [found] = rank(exact)
    assert found.best == ["a"]
    assert (found.others[0].at_least, found.others[0].at_most) == pytest.approx((2, 2))


def test_a_rate_that_the_generator_limited_may_win_but_never_lose() -> None:
    comparison = measured({"a": 100, "b": 150, "c": 200}, blocks=9, noise=0.02, seed=1, better="higher")

    def limited(*names: str) -> Ranking:
        values: Noise = {
            name: {block: (value, math.inf) for block, value in each.items() if isinstance(value, float)}
            if name in names
            else dict(each)
            for name, each in comparison.contenders.items()
        }
        [found] = rank(replace(comparison, contenders=values))
        return found

    fastest = limited("c")
    assert fastest.best == ["c"]
    assert math.isinf(next(each.at_most for each in fastest.others if each.name == "a"))
    slowest = limited("a")
    assert set(slowest.best) == {"a", "c"}, "a rate of at least 100 may be any"
    assert [each.name for each in slowest.others] == ["b"]
    both = limited("a", "c")
    assert set(both.best) == {"a", "c"}, "two lower bounds are not ranked"
    assert not both.pairs["a", "c"].is_estimated
    assert both.pairs["a", "b"].is_estimated
    shown = {each.contender: each.margin for each in score([limited("a", "b", "c")], margin=0.05)}
    assert shown == {"a": None, "b": None, "c": None}
    [verdict] = verdicts([limited("a", "b", "c")], margin=0.05, seed=1)
    assert (verdict.ratio, verdict.ratio_ci95, verdict.call) == (None, None, "not shown")


def test_two_that_share_no_block_have_no_ratio() -> None:
    """It was said to be 1."""
    comparison = measured({"a": 100, "b": 150}, blocks=12, noise=0.02, seed=1)
    apart = without(without(comparison, "a", range(6)), "b", range(6, 12))
    [verdict] = verdicts(rank(apart), margin=0.05, seed=1)
    assert (verdict.call, verdict.ratio, verdict.blocks) == ("not shown", None, 0)


def test_a_capacity_between_two_loads_is_no_better_known_than_that() -> None:
    def between(values: Sequence[float]) -> dict[int, Value]:
        return {block: (value, value * 1.1) for block, value in enumerate(values)}

    near = {"a": between([100.0] * 9), "b": between([105.0] * 9)}
    far = {"a": between([100.0] * 9), "b": between([150.0] * 9)}
    [together], [apart] = (
        rank(FigureComparison(figure="capacity", better="higher", at={}, contenders=each)) for each in (near, far)
    )
    assert set(together.best) == {"a", "b"}
    assert apart.best == ["b"]
    assert apart.others[0].at_least == pytest.approx(150 / 110, rel=0.01)


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_capacities_that_every_search_found_alike_are_not_equivalent(better: str) -> None:
    """Of select it is 1,020 connections each time, and of epoll no load that was tried: without any
    spread the open end of their interval turned its direction, and they were called equivalent.
    """
    ends: Noise = {
        "select": dict.fromkeys(range(6), (1019.0, 1020.0)),
        "epoll": dict.fromkeys(range(6), (60_000.0, math.inf)),
    }
    comparison = FigureComparison(figure="x", better="lower", at={}, contenders=ends)
    [found] = rank(replace(comparison, better="higher") if better == "higher" else comparison)
    first, last = ("epoll", "select") if better == "higher" else ("select", "epoll")
    [verdict] = verdicts([found], margin=0.05, seed=1)
    assert (verdict.call, verdict.best, verdict.level) == ("better", [first], [])
    [worse] = found.others
    assert (worse.name, worse.at_most) == (last, math.inf)
    assert worse.at_least == pytest.approx(60_000 / 1020)


def test_more_blocks_show_smaller_differences() -> None:
    found = [
        detectable_ratio(blocks=blocks, comparisons=60, noise=0.03, rng=np.random.default_rng(1))
        for blocks in (6, 9, 12, 20)
    ]
    assert found == sorted(found, reverse=True)
    assert found[2] < 1.1, "10 % at 3 % noise is shown with twelve blocks"


def drawn(
    kind: str, shape: tuple[int, ...], rng: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Noise of a log figure: as the normal has it, or with a trial in thirty far slower."""
    noise = rng.normal(0, 0.03, shape)
    return noise if kind == "normal" else noise + (rng.random(shape) < 1 / 30) * rng.exponential(0.5, shape)


@pytest.mark.parametrize("kind", ["normal", "outliers", "missing"])
@pytest.mark.parametrize("blocks", [6, 9, 12, 20])
def test_all_bounds_hold_together_in_95_of_100_families(kind: str, blocks: int) -> None:
    """Four figures at two settings, five contenders; also how often one of the best is called
    worse.
    """
    rng = np.random.default_rng([blocks, len(kind)])
    truth = np.log([1, 1, 1, 1.05, 1.3])
    outside = wrong = 0
    for _ in range(FAMILIES):
        family = []
        for _ in range(8):
            logs = truth[:, None] + drawn(kind, (len(truth), blocks), rng) + rng.uniform(-0.35, 0, blocks)
            kept = rng.random(logs.shape) > (0.1 if kind == "missing" else 0)
            values: Noise = {
                str(name): {block: float(math.exp(row[block])) for block in range(blocks) if kept[name, block]}
                for name, row in enumerate(logs)
            }
            family.append(FigureComparison(figure="x", better="lower", at={}, contenders=values))
        found = compare_with_best(family, rng)
        outside += any(
            not pair.low <= truth[int(one)] - truth[int(other)] <= pair.high
            for each in found
            for (one, other), pair in each.pairs.items()
        )
        wrong += any(
            place.may_be_best is False and truth[int(place.name)] == 0 for each in found for place in each.places
        )
    tell("coverage", f"{blocks} blocks, {kind} noise", FAMILIES, a_bound_fails=outside, a_best_is_called_worse=wrong)
    # Five percent, and three standard errors of what so many families tell.
    allowed = 0.05 * FAMILIES + 3 * math.sqrt(0.05 * 0.95 * FAMILIES)
    assert outside <= allowed
    assert wrong <= allowed


def test_a_tenth_is_found_in_four_of_five_families_at_a_noise_of_3_percent_with_twelve_blocks() -> None:
    """In a family of four figures at two settings, where one of three contenders is 10 % worse."""
    rng = np.random.default_rng(12)
    found = 0
    for _ in range(FAMILIES):
        family = []
        for place in range(8):
            logs = rng.normal(0, 0.03, (3, 12)) + rng.uniform(-0.35, 0, 12)
            logs[2] += math.log(1.1) if place == 0 else 0
            values: Noise = {str(name): dict(enumerate(np.exp(row).tolist())) for name, row in enumerate(logs)}
            family.append(FigureComparison(figure="x", better="lower", at={}, contenders=values))
        found += [place.name for place in compare_with_best(family, rng)[0].others] == ["2"]
    tell("coverage", "12 blocks, normal noise, one of three 10 % worse", FAMILIES, found=found)
    assert found >= 0.8 * FAMILIES
