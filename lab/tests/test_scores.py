"""Every field of a cell, of rankings made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from plimsoll_lab.stats.best import FigureComparison, Pair, RankedContender, Ranking, Value
from plimsoll_lab.stats.results import Score
from plimsoll_lab.stats.scores import score

COMPARISON = FigureComparison(
    figure="x",
    better="lower",
    at={"n": 8},
    contenders={"a": dict(enumerate([3.0, 1, 2, 4, 5, 6])), "b": {0: (8.0, math.inf), 1: 4.0}},
    absent=["a", "c"],
)
PAIR = Pair(blocks=6, estimate=0.1, low=0.0, high=0.2, p_adjusted=0.5)
A = RankedContender(name="a", ratio=1.0, at_least=1.0, at_most=1.05)
B = RankedContender(name="b", ratio=1.5, at_least=1.25, at_most=math.inf)
RANKING = Ranking(
    comparison=COMPARISON,
    places=[A, B],
    unranked={},
    pairs={("a", "b"): replace(PAIR, is_estimated=False), ("b", "a"): PAIR},
)
ALONE = Score(
    at={"n": 8},
    contender="a",
    figure="x",
    n=6,
    median=3.5,
    median_ci95=(1, 6),
    best=True,
    margin=1.0,
    margin_ci95=(1.0, 1.05),
    censored=False,
    level=True,
)


def test_of_a_value_of_which_only_the_most_is_known_that_is_shown() -> None:
    """Its lower end was shown: a response time of 0."""
    late: dict[int, Value] = {0: (0.0, 9.0), 1: (0.0, 7.0), 2: 2.0}
    asked = replace(COMPARISON, contenders={"a": late})
    [cell, _] = score([replace(RANKING, comparison=asked)], margin=0.05)
    assert (cell.median, cell.censored, cell.at_most) == (7.0, False, True)
    even = replace(asked, contenders={"a": {block: (0.0, most) for block, most in enumerate((7.0, 9.0, 20.0, 30.0))}})
    [cell, _] = score([replace(RANKING, comparison=even)], margin=0.05)
    assert (cell.median, cell.at_most) == (20.0, True), "9 is no bound: the median may be above it"
    # A capacity below the lowest load begins at 0, too, and nobody knows the most of a memory.
    for other in (replace(asked, better="higher"), replace(asked, contenders={"a": {0: (0.0, math.inf)}})):
        [cell, _] = score([replace(RANKING, comparison=other)], margin=0.05)
        assert (cell.median, cell.censored, cell.at_most) == (0.0, True, False)


def test_of_a_figure_with_moments_cut_out_the_estimate_is_shown_within_its_bounds() -> None:
    """The flattering end was called the median, as 1.04 times worse than one that is greater."""
    cut: dict[int, Value] = {block: (3.0, 9.0 + block) for block in range(6)}
    estimates = {"a": {block: 6.0 + block / 10 for block in range(6)}}
    asked = replace(COMPARISON, contenders={"a": cut}, estimates=estimates)
    [cell, *_] = score([replace(RANKING, comparison=asked)], margin=0.05)
    assert (cell.median, cell.median_ci95, cell.censored) == (6.25, (3.0, 14.0), False)


def test_of_capacities_one_is_shown_that_was_tried() -> None:
    """Of eight searches, 1,052 requests/s "at least" was the mean of 1,011 and 1,093."""
    lowers = (1000, 1004, 1011, 1100, 1093, 1107, 1120, 1001)
    capacities: dict[int, Value] = {block: (float(each), each * 1.02) for block, each in enumerate(lowers)}
    [cell, *_] = score([replace(RANKING, comparison=replace(COMPARISON, contenders={"a": capacities}))], margin=0.05)
    assert (cell.median, cell.censored) == (1011.0, True)


def test_the_cells_of_a_comparison() -> None:
    """Of a nothing is estimated, and b has no upper bound: of 8 or more, and 4, it shows 4."""
    assert score([RANKING], margin=0.05) == [
        replace(ALONE, margin=None),
        Score(
            at={"n": 8},
            contender="b",
            figure="x",
            n=2,
            median=4.0,
            median_ci95=None,
            best=False,
            margin=1.5,
            margin_ci95=None,
            censored=True,
            level=False,
        ),
        Score(
            at={"n": 8},
            contender="c",
            figure="x",
            n=0,
            median=None,
            median_ci95=None,
            best=False,
            margin=None,
            margin_ci95=None,
            censored=False,
            level=False,
        ),
    ]


def test_a_contender_alone_is_its_own_best() -> None:
    alone = replace(COMPARISON, contenders={"a": COMPARISON.contenders["a"]}, absent=[])
    assert score([Ranking(comparison=alone, places=[A], unranked={})], margin=0.05) == [ALONE]


@pytest.mark.parametrize(("margin", "level"), [(0.05, True), (0.049, False)])
def test_a_contender_is_level_up_to_the_margin_itself(margin: float, *, level: bool) -> None:
    assert score([RANKING], margin=margin)[0].level == level


def test_any_estimate_against_another_is_a_ratio_to_the_best() -> None:
    third = {("a", "c"): PAIR, ("c", "a"): PAIR}
    assert score([replace(RANKING, pairs={**RANKING.pairs, **third})], margin=0.05)[0].margin == 1.0


def test_the_interval_of_a_median_has_no_end_where_the_values_have_none() -> None:
    """Their shown ends stood for them: 800 to 1,000 of a median that may be anything above."""
    rates: dict[int, Value] = {block: 1000.0 if block < 3 else (800.0, math.inf) for block in range(9)}
    asked = replace(COMPARISON, better="higher", contenders={"a": rates})
    [cell, _] = score([replace(RANKING, comparison=asked)], margin=0.05)
    assert (cell.median, cell.censored, cell.median_ci95) == (800.0, True, None)
    measured: dict[int, Value] = {block: (800.0, 900.0 + block) for block in range(9)}
    [cell, _] = score([replace(RANKING, comparison=replace(asked, contenders={"a": measured}))], margin=0.05)
    assert cell.median_ci95 == (800.0, 907.0)
