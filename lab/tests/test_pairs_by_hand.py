"""What resampled signs say of pairs of contenders, in figures (`made_signs`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from made_signs import COUNTS, DEVIATIONS, ERROR, logs_of, rng, t_of

from plimsoll_lab.stats.best import (
    FigureComparison,
    Pair,
    RankedContender,
    Ranking,
    Value,
    can_say_anything,
    compare_with_best,
    detectable_ratio,
    ends,
    middle_of,
)
from plimsoll_lab.stats.resampling import critical_t_of, smallest_p


def values_of(logs: Sequence[float]) -> dict[int, Value]:
    return {block: math.exp(log) for block, log in enumerate(logs)}


def two(logs: Sequence[float], better: str = "lower", unit: float = 0.01) -> FigureComparison:
    """How much worse b is than a, in hundredths, on a machine that changes its speed."""
    speed = [0.0, 0.3, -0.1, 0.2, 0.05, -0.3, 0.1, 0.0][: len(logs)]
    sign = 1 if better == "lower" else -1
    worse = values_of([s + sign * each * unit for s, each in zip(speed, logs, strict=True)])
    return FigureComparison(
        figure="x",
        better="higher" if better == "higher" else "lower",
        at={},
        contenders={"a": values_of(speed), "b": worse},
    )


def ranked(comparison: FigureComparison) -> Ranking:
    [found] = compare_with_best([comparison], rng())
    return found


def assert_pair(found: Pair, expected: Pair) -> None:
    assert (found.blocks, found.is_estimated) == (expected.blocks, expected.is_estimated)
    assert (found.estimate, found.low, found.high, found.p_adjusted) == pytest.approx(
        (expected.estimate, expected.low, expected.high, expected.p_adjusted)
    )


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize(("mean", "rarer"), [(9.0, 0), (4.0, 1), (2.0, 3), (0.5, 19)])
def test_a_pair_in_figures(mean: float, rarer: int, better: str) -> None:
    """A twentieth of 32 patterns is one. Its t is sqrt(30), and sqrt(30) x sqrt(28 / 30) = sqrt(28)
    is the reach of the interval. `rarer` patterns have a t that is at least as large.
    """
    assert t_of(12) == pytest.approx(math.sqrt(30))
    assert rarer == sum(count for total, count in COUNTS.items() if t_of(total) >= mean / ERROR)
    found = ranked(two([mean + each for each in DEVIATIONS], better))
    reach = math.sqrt(28)
    expected = Pair(
        blocks=6,
        estimate=mean / 100,
        low=(mean - reach) / 100,
        high=(mean + reach) / 100,
        p_adjusted=(rarer + 1) / 32,
    )
    assert_pair(found.pairs["b", "a"], expected)
    other_way = replace(expected, estimate=-mean / 100, low=-(mean + reach) / 100, high=(reach - mean) / 100)
    assert_pair(found.pairs["a", "b"], other_way)
    assert (expected.p_adjusted < 0.05) == (expected.low > 0)


def test_a_place_is_a_contenders_largest_loss_to_any_other() -> None:
    [best, worse] = ranked(two([9 + each for each in DEVIATIONS])).places
    reach = math.sqrt(28)
    assert best == RankedContender(name="a", ratio=1.0, at_least=1.0, at_most=1.0)
    assert worse.name == "b"
    assert (worse.ratio, worse.at_least, worse.at_most) == pytest.approx(
        tuple(math.exp(each / 100) for each in (9, 9 - reach, 9 + reach))
    )
    assert (best.may_be_best, worse.may_be_best) == (True, False)


def test_of_equal_estimates_the_one_with_the_least_to_lose_comes_first() -> None:
    """In every block b lies between the others: it differs from them by 1 and by a quarter of the
    deviations, and they from each other by 1.25.
    """
    contenders = {
        name: values_of([each * factor / 100 for each in DEVIATIONS])
        for name, factor in {"a": 1, "b": 0, "c": -0.25}.items()
    }
    places = ranked(FigureComparison(figure="x", better="lower", at={}, contenders=contenders)).places
    assert [each.ratio for each in places] == [1, 1, 1]
    assert places[0].name == "b"
    reach = math.sqrt(28) / 100
    assert [each.at_most for each in places] == pytest.approx(
        [math.exp(reach), math.exp(1.25 * reach), math.exp(1.25 * reach)]
    )


def test_a_pair_without_deviations_is_known_exactly() -> None:
    twice = ranked(two([1.0] * 6, unit=math.log(2))).pairs["b", "a"]
    log2 = math.log(2)
    assert_pair(twice, Pair(blocks=6, estimate=log2, low=log2, high=log2, p_adjusted=1 / 32))
    same = ranked(two([0.0] * 6))
    assert set(same.best) == {"a", "b"}
    assert_pair(same.pairs["a", "b"], Pair(blocks=6, estimate=0, low=0, high=0, p_adjusted=1))


def test_a_pair_without_deviations_is_known_exactly_beside_others() -> None:
    exact, noisy = two([1.0] * 6), two([9 + each for each in DEVIATIONS])
    known, other = compare_with_best([exact, noisy], rng())
    assert_pair(known.pairs["b", "a"], Pair(blocks=6, estimate=0.01, low=0.01, high=0.01, p_adjusted=1 / 32))
    assert other.pairs == ranked(noisy).pairs


def test_a_figure_of_two_neighbouring_values_takes_no_bound_from_another() -> None:
    """Its logarithms are 0 and 0.0005 in turn: one pattern of signs makes all deviations alike. A
    figure is known to a thousandth, so that its t there is 0.00025 x sqrt(6) / 0.001 = 0.6, and not
    beyond every number.
    """
    contenders: dict[str, dict[int, Value]] = {
        "a": dict.fromkeys(range(6), 1000.0),
        "b": {block: 1000 * math.exp(0.0005 * (block % 2)) for block in range(6)},
    }
    rounded = FigureComparison(figure="y", better="lower", at={}, contenders=contenders)
    comparison = two([9 + each for each in DEVIATIONS])
    known, near = compare_with_best([comparison, rounded], rng())
    assert (known.comparison, near.comparison) == (comparison, rounded)
    reach = math.sqrt(28)
    expected = Pair(blocks=6, estimate=0.09, low=(9 - reach) / 100, high=(9 + reach) / 100, p_adjusted=1 / 32)
    assert_pair(known.pairs["b", "a"], expected)
    # The critical t is sqrt(30), and the error 0.001 / sqrt(6).
    pair, reach = near.pairs["b", "a"], 0.001 * math.sqrt(5)
    assert (pair.estimate, pair.low, pair.high) == pytest.approx((0.00025, 0.00025 - reach, 0.00025 + reach))


def ends_of(low: float, high: float, blocks: int = 8) -> dict[int, Value]:
    return dict.fromkeys(range(blocks), (low, high))


@pytest.mark.parametrize(
    ("better", "a", "b", "expected"),
    [
        # Between 100 and 110 and between 150 and 165 a second: a is 150 / 110 to 165 / 100 times
        # worse.
        ("higher", (100.0, 110.0), (150.0, 165.0), (math.log(150 / 110), math.log(1.65), 1 / 128)),
        ("lower", (150.0, 165.0), (100.0, 110.0), (math.log(150 / 110), math.log(1.65), 1 / 128)),
        # The same the other way round.
        ("lower", (100.0, 110.0), (150.0, 165.0), (-math.log(1.65), -math.log(150 / 110), 1 / 128)),
        # At least 100 a second: 1.5 times worse than 150 at most, and by no lower bound.
        ("higher", (100.0, math.inf), (150.0, 150.0), (-math.inf, math.log(1.5), 1)),
        # At most 150: by no upper bound.
        ("higher", (0.0, 100.0), (150.0, 150.0), (math.log(1.5), math.inf, 1 / 128)),
        # Two that overlap show nothing: one end lies below 0, and the other above it. The p was
        # 1 / 128.
        ("lower", (100.0, 120.0), (110.0, 130.0), (math.log(100 / 130), math.log(120 / 110), 1)),
    ],
)
def test_values_that_lie_between_two_bounds(
    better: str, a: tuple[float, float], b: tuple[float, float], expected: tuple[float, float, float]
) -> None:
    comparison = replace(two([0.0]), contenders={"a": ends_of(*a), "b": ends_of(*b)})
    found = ranked(replace(comparison, better="higher" if better == "higher" else "lower"))
    low, high, p = expected
    known = [each for each in (low, high) if math.isfinite(each)]
    pair = Pair(blocks=8, estimate=sum(known) / len(known), low=low, high=high, p_adjusted=p)
    assert_pair(found.pairs["a", "b"], pair)


def test_of_a_bound_without_a_side_nothing_is_estimated() -> None:
    comparison = replace(two([0.0]), contenders={"a": ends_of(0, math.inf), "b": ends_of(150, 150)})
    nothing = Pair(blocks=8, estimate=0, low=-math.inf, high=math.inf, p_adjusted=1, is_estimated=False)
    found = ranked(comparison)
    assert_pair(found.pairs["a", "b"], nothing)
    assert_pair(found.pairs["b", "a"], nothing)


def test_one_side_that_is_open_in_one_block_is_open() -> None:
    values = {**ends_of(100, 110, 6), 3: (100.0, math.inf)}
    comparison = replace(two([0.0]), contenders={"a": values, "b": ends_of(100, 100, 6)})
    found = ranked(comparison).pairs["a", "b"]
    assert (found.low, found.high) == (0, math.inf)
    # It was the bound alone: two that are equal were 5 % apart for one open value of six.
    assert found.estimate == pytest.approx(5 / 6 * math.log(1.1) / 2)


def some(*blocks: int) -> dict[int, Value]:
    return dict.fromkeys(blocks, 0.5)


def test_who_cannot_be_compared_is_told_why() -> None:
    comparison = FigureComparison(
        figure="x",
        better="lower",
        at={},
        contenders={
            "six": some(*range(6)),
            "none": {},
            "zero": {**some(*range(6)), 2: 0.0},
            "nothing": {**some(*range(6)), 2: (0.0, 0.0)},
            "one": some(3),
            "five": some(*range(5)),
            "again": some(*range(6)),
        },
        untold={"told": "its trials end too early"},
    )
    found = ranked(comparison)
    assert found.unranked == {
        "told": "its trials end too early",
        "none": "no valid result",
        "zero": "a value of zero has no ratio to another",
        "nothing": "a value of zero has no ratio to another",
        "one": "1 valid block, at least 6 are needed",
        "five": "5 valid blocks, at least 6 are needed",
    }
    assert [each.name for each in found.places] == ["six", "again"]
    forbidden = ranked(replace(comparison, obstacle="unlike", untold={}))
    assert forbidden.unranked == dict.fromkeys(comparison.contenders, "unlike")
    assert forbidden.places == []


COMMON = "fewer than 6 valid blocks in common with the others"


@pytest.mark.parametrize(
    ("contenders", "left_out"),
    [
        # c shares four blocks with each of the others, which share twelve.
        ({"c": some(*range(8, 20)), "a": some(*range(12)), "b": some(*range(12))}, ["c"]),
        # Of two, the one with fewer blocks; of two with as many, neither.
        ({"a": some(*range(8)), "b": some(*range(4, 11))}, ["b"]),
        ({"a": some(*range(7)), "b": some(*range(4, 12))}, ["a"]),
        ({"a": some(*range(8)), "b": some(*range(4, 12))}, []),
        # d shares with nobody, and c with a alone, which is enough.
        (
            {
                "a": some(*range(12)),
                "b": some(*range(6)),
                "c": some(*range(6, 12)),
                "d": some(*range(20, 26)),
                "e": some(*range(6)),
            },
            ["d"],
        ),
        # Six in common are enough.
        ({"a": some(*range(8)), "b": some(*range(2, 10))}, []),
    ],
)
def test_who_shares_too_few_blocks_is_left_out_before_the_others(
    contenders: Mapping[str, Mapping[int, Value]], left_out: Sequence[str]
) -> None:
    found = ranked(FigureComparison(figure="x", better="lower", at={}, contenders=contenders))
    assert list(found.unranked.items()) == [(name, COMMON) for name in left_out]
    assert {each.name for each in found.places} == contenders.keys() - set(left_out)


def test_a_third_contender_with_other_missing_blocks_leaves_a_pair_as_it_was() -> None:
    """a, twice as good as b, shares too few blocks with c. It was left out, and c was the best."""
    luck = np.random.default_rng(1)
    levels = {"a": (100.0, range(6)), "b": (50.0, range(12)), "c": (60.0, range(3, 12))}
    contenders: dict[str, dict[int, Value]] = {
        name: {block: level * luck.uniform(0.99, 1.01) for block in blocks} for name, (level, blocks) in levels.items()
    }
    rates = FigureComparison(figure="x", better="higher", at={}, contenders=contenders)
    found, two = ranked(rates), ranked(replace(rates, contenders={name: contenders[name] for name in "ab"}))
    assert found.unranked == {}
    assert found.best == ["a", "c"]
    assert two.best == ["a"]
    assert [each.name for each in found.others] == [each.name for each in two.others] == ["b"]
    assert found.others[0].at_least > 1.9
    assert found.pairs["a", "c"].low == -math.inf


def test_a_pair_of_too_few_shared_blocks_has_an_estimate_and_no_bound() -> None:
    """The values are 2 in blocks 0 to 7 for a, and 1 in 4 to 11 for b."""
    contenders: dict[str, dict[int, Value]] = {
        "a": dict.fromkeys(range(8), 2.0),
        "b": dict.fromkeys(range(4, 12), 1.0),
    }
    found = ranked(FigureComparison(figure="x", better="lower", at={}, contenders=contenders))
    assert_pair(
        found.pairs["a", "b"],
        Pair(blocks=4, estimate=math.log(2), low=-math.inf, high=math.inf, p_adjusted=1.0),
    )
    assert [(each.name, each.at_most) for each in found.places] == [("b", math.inf), ("a", math.inf)]
    assert found.places[1].ratio == pytest.approx(2)


def test_of_a_pair_without_a_shared_block_nothing_is_estimated() -> None:
    contenders = {"a": some(*range(6)), "b": some(*range(6, 12))}
    [found] = compare_with_best([FigureComparison(figure="x", better="lower", at={}, contenders=contenders)], rng())
    nothing = Pair(blocks=0, estimate=0, low=-math.inf, high=math.inf, p_adjusted=1, is_estimated=False)
    assert_pair(found.pairs["a", "b"], nothing)


def test_a_pair_is_held_to_the_patterns_of_all_blocks_of_its_family() -> None:
    """Seven blocks have 64 patterns of signs, and a twentieth of these is three. A pair of six of
    the blocks has the p of the third pattern, with five degrees of freedom.
    """
    seven = [9 + each for each in (*DEVIATIONS, 0.5)]
    comparison = two(seven)
    short = {block: value for block, value in comparison.contenders["b"].items() if block < 6}
    short_pair = ranked(replace(comparison, contenders={**comparison.contenders, "b": short})).pairs["b", "a"]
    filled = smallest_p([logs_of([*DEVIATIONS, 99], [True] * 6 + [False])], 7, rng())
    assert len(filled) == 64
    reach = critical_t_of(6, float(filled[2])) * ERROR
    assert_pair(
        short_pair,
        Pair(blocks=6, estimate=0.09, low=(9 - reach) / 100, high=(9 + reach) / 100, p_adjusted=short_pair.p_adjusted),
    )


def test_a_loss_beyond_every_number_is_infinite() -> None:
    contenders: dict[str, dict[int, Value]] = {
        "a": dict.fromkeys(range(6), 1e-300),
        "b": dict.fromkeys(range(6), 1e300),
    }
    [_, worst] = ranked(FigureComparison(figure="x", better="lower", at={}, contenders=contenders)).places
    assert (worst.ratio, worst.at_least, worst.at_most) == (math.inf, math.inf, math.inf)


def test_six_blocks_can_say_something() -> None:
    assert (can_say_anything(5), can_say_anything(6)) == (False, True)


def test_the_detectable_ratio_follows_from_the_noise_and_the_blocks() -> None:
    """Of one comparison the critical t is nearly Student's: 2.179 with 13 blocks, and 0.84 more are
    needed to find four of five. The error is log 1.03 x sqrt(2 / 13) = 0.0116.
    """
    found = math.log(detectable_ratio(blocks=13, comparisons=1, noise=0.03, rng=rng()))
    assert found == pytest.approx((2.179 + 0.8416) * math.log(1.03) * math.sqrt(2 / 13), rel=0.05)
    noisier = math.log(detectable_ratio(blocks=13, comparisons=1, noise=0.1, rng=rng()))
    assert noisier / found == pytest.approx(math.log(1.1) / math.log(1.03))
    many = math.log(detectable_ratio(blocks=13, comparisons=20, noise=0.03, rng=rng()))
    # Of 20 comparisons by Bonferroni: t at 1 - 0.025 / 20 is 3.87.
    assert many == pytest.approx((3.87 + 0.84) * math.log(1.03) * math.sqrt(2 / 13), rel=0.1)
    assert math.isfinite(detectable_ratio(blocks=6, comparisons=1, noise=0.03, rng=rng()))
    # More than 13 blocks draw patterns of signs, which follow from the seed too.
    drawn = {detectable_ratio(blocks=14, comparisons=1, noise=0.03, rng=rng()) for _ in range(2)}
    assert len(drawn) == 1


def test_values_beside_another_count_between_these_two_alone() -> None:
    """Of b a trial is known beside c, as c tells less: there b has another value in block 2."""
    logs = [0.0, 0.01, -0.01, 0.02, 0.0, 0.01, -0.02, 0.01]
    plain = two(logs)
    values = {**plain.contenders, "c": plain.contenders["a"]}
    beside: Mapping[tuple[str, str], Mapping[int, Value]] = {("b", "c"): {2: 4 * ends(values["b"][2])[0]}}
    found = ranked(replace(plain, contenders=values, beside=beside))
    without = ranked(replace(plain, contenders=values))
    assert found.pairs["b", "a"].estimate == without.pairs["b", "a"].estimate
    assert (found.pairs["b", "c"].estimate or 0) == pytest.approx(
        (without.pairs["b", "c"].estimate or 0) + math.log(4) / 8
    )
    whole = replace(plain, contenders=values, beside=beside)
    assert whole.values_of("b", "c")[2] != whole.values_of("b", "a")[2]


def test_bounds_below_one_have_their_middle_too() -> None:
    assert middle_of((0.01, 0.04)) == pytest.approx(0.02)
    assert middle_of((0.0, 0.04)) == 0.04
    assert middle_of((0.04, math.inf)) == 0.04
    assert middle_of(0.04) == 0.04
