"""What is said of a ranking, of rankings made by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest

from plimsoll_lab.stats.best import FigureComparison, Pair, RankedContender, Ranking, Value
from plimsoll_lab.stats.reasons import reasons_once
from plimsoll_lab.stats.verdict import Verdict, decide, rank, verdicts

MARGIN = 0.05
NINE: Mapping[int, Value] = dict.fromkeys(range(9), 1.0)
COMPARISON = FigureComparison(figure="x", better="lower", at={"n": 8}, contenders={"a": NINE, "b": NINE})
AHEAD = Pair(blocks=9, estimate=math.log(1.5), low=math.log(1.25), high=math.log(2), p_adjusted=0.01)
"""How much worse b is than a."""
NEAR = Pair(blocks=9, estimate=0.01, low=-0.02, high=0.03, p_adjusted=0.7)
FAR = Pair(blocks=8, estimate=1.0, low=0.9, high=1.1, p_adjusted=0.001)


def place(name: str, ratio: float = 1.0, at_least: float = 1.0, at_most: float = 1.0) -> RankedContender:
    return RankedContender(name=name, ratio=ratio, at_least=at_least, at_most=at_most)


def both(pairs: Mapping[tuple[str, str], Pair]) -> dict[tuple[str, str], Pair]:
    return {**pairs, **{(other, one): pair.reversed() for (one, other), pair in pairs.items()}}


TWO = Ranking(
    comparison=COMPARISON,
    places=[place("a"), place("b", 1.5, 1.25, 2)],
    unranked={},
    pairs=both({("b", "a"): AHEAD}),
)
EQUAL = Ranking(
    comparison=COMPARISON,
    places=[place("a", 1, 1, 1.02), place("b", 1.01, 1, 1.03)],
    unranked={},
    pairs=both({("b", "a"): NEAR}),
)


def verdict_of(ranking: Ranking, margin: float = MARGIN, seed: int = 1) -> Verdict:
    [found] = verdicts([ranking], margin=margin, seed=seed)
    return found


def test_a_verdict_in_figures() -> None:
    found = verdict_of(TWO)
    assert found.ratio == pytest.approx(1 / 1.5)
    assert found.ratio_ci95 == pytest.approx((1 / 2, 1 / 1.25))
    assert replace(found, ratio=None, ratio_ci95=None) == Verdict(
        figure="x",
        better="lower",
        at={"n": 8},
        contenders=["a", "b"],
        best=["a"],
        best_within=1.0,
        others=[TWO.places[1]],
        unranked={},
        winner="a",
        runner_up="b",
        ratio=None,
        ratio_ci95=None,
        p_adjusted=0.01,
        noise_floor=None,
        blocks=9,
        call="better",
        level=[],
        reason="every other contender's interval against a excludes 1",
    )


def test_where_higher_is_better_the_winners_figure_is_the_larger_one() -> None:
    found = verdict_of(replace(TWO, comparison=replace(COMPARISON, better="higher")))
    assert found.ratio == pytest.approx(1.5)
    assert found.ratio_ci95 == pytest.approx((1.25, 2))


def test_two_within_the_margin_are_equivalent_and_level() -> None:
    found = verdict_of(EQUAL)
    assert (found.call, found.reason) == ("equivalent", "the interval lies within 5 %")
    assert (found.best, found.others, found.level, found.best_within) == (["a", "b"], [], ["b"], 1.03)
    assert found.ratio == pytest.approx(math.exp(-0.01))
    assert found.ratio_ci95 == pytest.approx((math.exp(-0.03), math.exp(0.02)))


@pytest.mark.parametrize(
    ("low", "high", "call"),
    [
        (-math.log1p(MARGIN), math.log1p(MARGIN), "equivalent"),
        (-0.0489, 0.0, "not shown"),
        (0.0, 0.0489, "not shown"),
    ],
)
def test_the_margin_holds_on_both_sides_and_belongs_to_itself(low: float, high: float, call: str) -> None:
    """The logarithm of 1.05 is 0.04879."""
    found = verdict_of(replace(EQUAL, pairs=both({("b", "a"): replace(NEAR, low=low, high=high)})))
    assert found.call == call
    assert found.level == (["b"] if call == "equivalent" else [])


def test_a_worse_one_within_the_margin_is_level_and_yet_worse() -> None:
    near = replace(AHEAD, estimate=0.02, low=0.01, high=0.03)
    found = verdict_of(replace(TWO, places=[place("a"), place("b", 1.02, 1.01, 1.03)], pairs=both({("b", "a"): near})))
    assert (found.call, found.best, found.level) == ("better", ["a"], ["b"])


def test_one_that_is_ahead_of_the_next_and_not_of_a_third_is_not_better() -> None:
    """Of c there are few blocks, and it may be the best."""
    three = Ranking(
        comparison=replace(COMPARISON, contenders={"a": NINE, "b": NINE, "c": NINE}),
        places=[place("a", at_most=3), *TWO.places[1:], place("c", 2.0, 1.0, 8.0)],
        unranked={},
        pairs=both(
            {("b", "a"): AHEAD, ("c", "a"): replace(FAR, low=-1.0), ("c", "b"): replace(FAR, estimate=0.3, low=-1.0)}
        ),
    )
    found = verdict_of(three)
    assert (found.winner, found.runner_up, found.call) == ("a", "b", "not shown")
    assert found.reason == "2 contenders may be best, and cannot be distinguished"
    assert (found.best, found.best_within) == (["a", "c"], 8.0)
    unbounded = [*three.places[:2], place("c", 2.0, 1.0, math.inf)]
    assert verdict_of(replace(three, places=unbounded)).best_within is None


def test_the_runner_up_is_the_one_that_comes_nearest_to_the_winner() -> None:
    """And not the second in order, whose ratio to the best is of other blocks."""
    three = Ranking(
        comparison=COMPARISON,
        places=[place("a"), place("b", 1.5, 1.25, 2), place("c", 1.6, 1.3, 2)],
        unranked={},
        pairs=both({("b", "a"): AHEAD, ("c", "a"): replace(AHEAD, estimate=0.3), ("c", "b"): NEAR}),
    )
    assert verdict_of(three).runner_up == "c"
    assert verdict_of(three).ratio == pytest.approx(math.exp(-0.3))


def test_where_each_has_one_that_is_ahead_of_it_nobody_wins() -> None:
    found = verdict_of(replace(EQUAL, pairs=both({("b", "a"): replace(NEAR, estimate=-0.01)})))
    assert (found.winner, found.runner_up, found.ratio, found.ratio_ci95) == (None, None, None, None)
    assert (found.p_adjusted, found.blocks, found.level, found.call) == (None, 0, [], "not shown")
    assert found.reason == "no contender is ahead of every other in the blocks that both have"
    tie = verdict_of(replace(EQUAL, pairs=both({("b", "a"): replace(NEAR, estimate=0.0)})))
    assert (tie.winner, tie.runner_up, tie.ratio) == ("a", "b", 1)


def test_bounds_that_overflow_are_none() -> None:
    for low, high in ((-700.0, 1.0), (-1.0, 700.0), (-math.inf, math.inf)):
        wide = replace(NEAR, low=low, high=high)
        found = verdict_of(replace(EQUAL, pairs=both({("b", "a"): wide})))
        assert (found.ratio_ci95, found.call) == (None, "not shown")
        assert found.reason == "2 contenders may be best, and cannot be distinguished"
    finite = verdict_of(replace(EQUAL, pairs=both({("b", "a"): replace(NEAR, low=-600.0, high=699.0)})))
    assert finite.ratio_ci95 == pytest.approx((math.exp(-699), math.exp(600)))


def test_two_of_which_nothing_is_known_have_no_ratio() -> None:
    unknown = Pair(blocks=0, estimate=0.0, low=-math.inf, high=math.inf, p_adjusted=1.0, is_estimated=False)
    found = verdict_of(replace(EQUAL, pairs=both({("b", "a"): unknown})))
    assert (found.winner, found.runner_up, found.ratio, found.p_adjusted) == ("a", "b", None, 1)


def controlled(factor: float, blocks: int = 8) -> FigureComparison:
    return replace(COMPARISON, control=(dict.fromkeys(range(blocks), factor), dict.fromkeys(range(blocks), 1.0)))


def test_a_difference_up_to_the_noise_floor_of_the_control_is_not_better() -> None:
    """A control that is half as large in each of eight blocks: seven of one side, and one of the
    other, differ by 2 to the 6 / 8 th. b is 1.5 times a.
    """
    floor = verdict_of(replace(TWO, comparison=controlled(0.5)))
    assert floor.noise_floor == pytest.approx(2**0.75 - 1)
    assert (floor.call, floor.reason) == ("not shown", "the difference is within the control's noise floor of 68.2 %")
    assert floor.noise_floor is not None
    # The answer said that b is at least 1.25 times as much, and the table that it is not shown.
    assert (floor.best, floor.others, floor.best_within) == (["a", "b"], [], 2)
    edge = math.log1p(floor.noise_floor)
    for estimate, call in ((edge, "not shown"), (math.nextafter(edge, 9), "better")):
        pairs = both({("b", "a"): replace(AHEAD, estimate=estimate)})
        assert verdict_of(replace(TWO, comparison=controlled(0.5), pairs=pairs)).call == call
    quiet = verdict_of(replace(TWO, comparison=controlled(0.9)))
    assert quiet.noise_floor == pytest.approx(0.9**-0.75 - 1)
    assert quiet.call == "better"
    assert (quiet.best, [each.name for each in quiet.others]) == (["a"], ["b"])


def test_the_reason_counts_those_within_the_noise_floor_too() -> None:
    """Three cannot be distinguished from the best; two were counted."""
    near = replace(NEAR, low=-0.1, high=0.2)
    ranking = Ranking(
        comparison=replace(controlled(0.5), contenders=dict.fromkeys("abc", NINE)),
        places=[place("a"), place("b", 1.01, 1, 1.03), place("c", 1.5, 1.25, 2)],
        unranked={},
        pairs=both({("b", "a"): near, ("c", "a"): AHEAD, ("c", "b"): AHEAD}),
    )
    found = verdict_of(ranking)
    assert found.best == ["a", "b", "c"]
    assert (found.call, found.reason) == ("not shown", "3 contenders may be best, and cannot be distinguished")


def test_a_control_without_a_ratio_has_no_floor() -> None:
    for one, again in (
        ({0: 1.0, 1: 1.0}, {2: 1.0, 3: 1.0}),
        (dict.fromkeys(range(8), 0.0), dict.fromkeys(range(8), 1.0)),
    ):
        found = verdict_of(replace(TWO, comparison=replace(COMPARISON, control=(one, again))))
        assert (found.noise_floor, found.call) == (None, "better")


def test_a_block_in_which_the_control_is_zero_is_left_out_of_its_floor() -> None:
    """As it is of the control's own ratio."""
    eight, seven = dict.fromkeys(range(8), 1.0), {0: 0.0} | dict.fromkeys(range(1, 8), 1.0)
    for control in ((seven, eight), (eight, seven)):
        assert verdict_of(replace(TWO, comparison=replace(COMPARISON, control=control))).noise_floor == 0


def test_a_control_is_taken_of_the_blocks_that_both_have() -> None:
    """The ninth of the one, which is 100 times as large, has no other."""
    one, again = (dict.fromkeys(range(8), each) for each in (0.1, 0.09))
    both_have = replace(COMPARISON, control=(one | {8: 100.0}, again | {9: 1e-3}))
    assert verdict_of(replace(TWO, comparison=both_have)).noise_floor == pytest.approx(0.9**-0.75 - 1)


def test_the_floor_follows_from_the_seed_and_the_place_in_the_family() -> None:
    noisy = replace(
        TWO,
        comparison=replace(
            COMPARISON,
            control=(
                {block: 1 + 0.1 * math.sin(block) for block in range(25)},
                {block: 1 + 0.1 * math.cos(3 * block) for block in range(25)},
            ),
        ),
    )
    floors, again, others = (
        [each.noise_floor for each in verdicts([noisy] * 6, margin=MARGIN, seed=seed)] for seed in (1, 1, 2)
    )
    assert len(set(floors)) > 1
    assert floors == again
    assert floors != others


def test_a_family_is_decided_by_its_ranking_and_its_seed() -> None:
    """Of 14 blocks patterns of signs are drawn."""
    luck = random.Random(1)
    values = {name: {block: luck.uniform(1, 2) for block in range(14)} for name in "abc"}
    family = [replace(COMPARISON, contenders=values, control=(values["a"], values["b"]))]
    first, again, other = (rank(family, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert [place.at_most for place in first[0].places] != [place.at_most for place in other[0].places]
    assert decide(family, margin=0.5, seed=1) == verdicts(first, margin=0.5, seed=1)
    assert decide(family, margin=0.5, seed=1) != decide(family, margin=0.5, seed=2)


NOTHING = Ranking(comparison=replace(COMPARISON, contenders={"a": NINE, "b": {}}), places=[], unranked={})
SHORT = {"b": "5 valid blocks, at least 6 are needed", "d": "no valid result"}


@pytest.mark.parametrize(
    ("ranking", "call", "reason"),
    [
        (NOTHING, "not shown", ""),
        (replace(NOTHING, unranked=SHORT), "not shown", f"b: {SHORT['b']}; d: {SHORT['d']}"),
        (
            replace(NOTHING, comparison=replace(COMPARISON, contenders={"a": {}})),
            "invalid",
            "no contender has a valid result here",
        ),
        (replace(NOTHING, comparison=replace(COMPARISON, obstacle="unlike")), "not shown", "unlike"),
        (replace(NOTHING, places=[place("a")]), "not shown", "no other contender could be compared here"),
        (
            Ranking(
                comparison=replace(COMPARISON, absent=["d", "e", "f"], untold={"d": "no valid result"}),
                places=[place("a")],
                unranked=SHORT,
            ),
            "not shown",
            f"no other contender could be compared here: e, f: no result; b: {SHORT['b']}; d: {SHORT['d']}",
        ),
    ],
    ids=["no reason", "reasons", "nothing", "an obstacle", "alone", "alone, and the others' reasons"],
)
def test_why_no_pair_is_compared(ranking: Ranking, call: str, reason: str) -> None:
    found = verdict_of(ranking)
    assert (found.call, found.reason) == (call, reason)
    assert (found.runner_up, found.ratio, found.ratio_ci95, found.p_adjusted) == (None, None, None, None)
    assert found.blocks == 0
    assert found.winner == ("a" if ranking.places else None)
    assert found.best_within == (1.0 if ranking.places else None)
    assert found.unranked == ranking.unranked


def test_without_places_the_contenders_are_those_with_values() -> None:
    assert verdict_of(NOTHING).contenders == ["a"]
    assert verdict_of(replace(NOTHING, places=[place("b")])).contenders == ["b"]


def test_a_reason_of_several_is_told_once_in_the_order_of_the_first() -> None:
    assert reasons_once({"a": "slow", "b": "lost", "c": "slow"}) == "a, c: slow; b: lost"
    assert reasons_once({}) == ""


def test_the_best_are_equivalent_where_all_that_may_be_best_are() -> None:
    """The runner-up alone was asked, and the answer said that a third may differ by far more."""
    wide = Pair(blocks=8, estimate=0.1, low=-0.2, high=0.4, p_adjusted=0.7)
    three = replace(
        EQUAL,
        places=[*EQUAL.places, place("c", 1.1, 1, 1.5)],
        pairs=both({("b", "a"): NEAR, ("c", "a"): wide, ("c", "b"): wide}),
    )
    assert verdict_of(EQUAL).call == "equivalent"
    found = verdict_of(three)
    assert (found.call, found.reason) == ("not shown", "3 contenders may be best, and cannot be distinguished")
    worse = replace(three, places=[*EQUAL.places, place("c", 1.5, 1.25, 2)], pairs=both({
        ("b", "a"): NEAR, ("c", "a"): AHEAD, ("c", "b"): AHEAD,
    }))  # fmt: skip
    assert verdict_of(worse).call == "equivalent"
