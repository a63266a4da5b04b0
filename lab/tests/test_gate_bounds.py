"""A gate's bounds in figures: six blocks, whose 64 patterns of signs can be counted by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from plimsoll_lab.stats.best import Value
from plimsoll_lab.stats.gate import BaselineComparison, Loss, blocks_for, decide_gate, losses

DEVIATIONS = [1.0, -1.0, 2.0, -2.0, 3.0, -3.0]
"""In hundredths; their squares sum to 28."""
ERROR = math.sqrt(28 / 5 / 6) / 100
"""The standard error of their mean."""


def t_of(total: float) -> float:
    """Student's t of a pattern of signs that makes the deviations sum to this: the mean is S / 6
    and the variance (28 - S^2 / 6) / 5.
    """
    return total / 6 * math.sqrt(6) / math.sqrt((28 - total**2 / 6) / 5)


def compared(worse: Sequence[float], better: str = "lower") -> BaselineComparison:
    """A contender that is worse by these logarithms, in blocks of unlike speed."""
    speed = [0.0, 0.3, -0.1, 0.2, 0.05, -0.3, 0.1, 0.0][: len(worse)]
    sign = 1 if better == "lower" else -1
    return BaselineComparison(
        figure="x",
        better="higher" if better == "higher" else "lower",
        at={"n": 8},
        contender="new",
        baseline={block: 100 * math.exp(each) for block, each in enumerate(speed)},
        values={block: 100 * math.exp(speed[block] + sign * each) for block, each in enumerate(worse)},
    )


def bounds_of(*comparisons: BaselineComparison) -> list[Loss]:
    return losses(comparisons, np.random.default_rng(1))


def part(log: float, better: str) -> float:
    """The increase of a cost, or what is missing of a rate."""
    return math.exp(log) - 1 if better == "lower" else 1 - math.exp(-log)


@pytest.mark.parametrize("better", ["lower", "higher"])
@pytest.mark.parametrize("unit", [1, 0.1])
def test_the_bounds_of_a_loss_in_figures(better: str, unit: float) -> None:
    """Of 64 patterns a twentieth is three. The deviations sum to 12 in one pattern and to 10 in
    two, so that the third largest t is that of 10: it is L's. U's is Student's at 95 % with five
    degrees of freedom, 2.015.
    """
    mean = 0.04 * unit
    comparison = compared([mean + each / 100 * unit for each in DEVIATIONS], better)
    [found] = bounds_of(comparison)
    assert (found.comparison, found.blocks) == (comparison, 6)
    assert found.estimate == pytest.approx(part(mean, better))
    assert found.at_least == pytest.approx(part(mean - t_of(10) * ERROR * unit, better))
    assert found.at_most == pytest.approx(part(mean + 2.0150484 * ERROR * unit, better))


def test_the_lower_bounds_hold_together() -> None:
    """Each deviation turned around gives 12 in a second pattern, and two more comparisons, of other
    places, in a third and fourth: the third largest t is that of 12 now.
    """
    one = compared([each / 100 for each in DEVIATIONS])
    more = [compared([sign * each / 100 for each in (1.0, 2, 3, -3, -2, -1)]) for sign in (1, -1)]
    turned = compared([-each / 100 for each in DEVIATIONS])
    [alone], [alike, _] = bounds_of(one), bounds_of(one, one)
    assert alike == alone
    among = bounds_of(one, turned, *more)[0]
    assert alone.at_least == pytest.approx(part(-t_of(10) * ERROR, "lower"))
    assert among.at_least == pytest.approx(part(-t_of(12) * ERROR, "lower"))
    assert among.at_most == alone.at_most, "each upper bound holds alone"


def test_a_comparison_of_fewer_blocks_is_resampled_in_all_of_them() -> None:
    """Eight blocks have 256 patterns, of which a twentieth is 12."""
    luck = np.random.default_rng(4)
    logs = (luck.normal(size=8) / 100).tolist()
    eight = compared(logs)
    [whole] = bounds_of(eight)
    patterns = (np.arange(256)[:, None] >> np.arange(8) & 1) * 2.0 - 1
    centred = np.array(logs) - np.mean(logs)
    t = np.sort([stats.ttest_1samp(each * centred, 0).statistic for each in patterns])[::-1]
    error = float(np.std(logs, ddof=1)) / math.sqrt(8)
    assert whole.at_least == pytest.approx(part(float(np.mean(logs)) - t[11] * error, "lower"))
    # One of six blocks beside it is filled up with its own deviations, 1 and -1.
    short = compared([each / 100 for each in DEVIATIONS])
    filled = compared([each / 100 for each in (*DEVIATIONS, 1.0, -1.0)])
    beside_short, beside_filled = (bounds_of(eight, each)[0].at_least for each in (short, filled))
    assert beside_short == pytest.approx(beside_filled)
    assert beside_short != pytest.approx(whole.at_least)


def test_an_exact_comparison_widens_no_other() -> None:
    one, exact = compared([each / 100 for each in DEVIATIONS]), compared([0.05] * 6)
    alone, beside, flat = bounds_of(one)[0], *bounds_of(one, exact)
    assert alone == beside
    loss = part(0.05, "lower")
    assert (flat.at_least, flat.estimate, flat.at_most) == pytest.approx((loss, loss, loss))


def test_five_blocks_are_too_few_beside_others_that_have_enough() -> None:
    six, five = compared([each / 100 for each in DEVIATIONS]), compared([0.01, 0.02, 0.03, 0.05, 0.04])
    enough, short = bounds_of(six, five)
    assert enough == bounds_of(six)[0]
    assert (short.blocks, short.at_least, short.at_most) == (5, None, None)


@pytest.mark.parametrize(("blocks", "are_drawn"), [(13, False), (14, True)])
def test_the_patterns_of_up_to_13_blocks_are_no_matter_of_luck(blocks: int, *, are_drawn: bool) -> None:
    logs = (np.random.default_rng(6).normal(size=blocks) / 100).tolist()
    comparison = replace(
        compared([0.0]),
        baseline=dict.fromkeys(range(blocks), 100.0),
        values={block: 100 * math.exp(each) for block, each in enumerate(logs)},
    )
    ends = {losses([comparison], np.random.default_rng(seed))[0].at_least for seed in range(5)}
    assert (len(ends) > 1) == are_drawn


def test_more_than_13_blocks_are_drawn() -> None:
    """The one-sided t of a twentieth of what is drawn is nearly Student's, 1.729 with 20 blocks."""
    logs = (np.random.default_rng(5).normal(size=20) / 100).tolist()
    speed = dict.fromkeys(range(20), 100.0)
    comparison = replace(
        compared([0.0]), baseline=speed, values={block: 100 * math.exp(each) for block, each in enumerate(logs)}
    )
    [found] = bounds_of(comparison)
    error = float(np.std(logs, ddof=1)) / math.sqrt(20)
    assert found.at_least is not None
    reach = (float(np.mean(logs)) - math.log1p(found.at_least)) / error
    assert reach == pytest.approx(1.729, rel=0.06)
    assert found.at_most == pytest.approx(part(float(np.mean(logs)) + 1.7291328 * error, "lower"))


def between(low: float, high: float, others: float = 100.0) -> dict[int, Value]:
    """Known between two ends in its third block."""
    return {**dict.fromkeys(range(6), others), 2: (low, high)}


@pytest.mark.parametrize(
    ("better", "baseline", "values", "estimate", "bounded"),
    [
        # A contender of at least as much: no loss is known, and none beyond the upper bound.
        ("higher", (100.0, 100.0), (100.0, math.inf), None, (False, True)),
        ("higher", (100.0, math.inf), (100.0, 100.0), None, (True, False)),
        ("lower", (100.0, 100.0), (100.0, math.inf), None, (True, False)),
        ("lower", (100.0, math.inf), (100.0, 100.0), None, (False, True)),
        ("higher", (100.0, math.inf), (100.0, math.inf), None, (False, False)),
        # The middle of 90 and 110 in logarithms, over six blocks.
        ("lower", (100.0, 100.0), (90.0, 110.0), (math.log(0.9) + math.log(1.1)) / 12, (True, True)),
        ("lower", (90.0, 110.0), (100.0, 100.0), -(math.log(0.9) + math.log(1.1)) / 12, (True, True)),
        ("higher", (100.0, 100.0), (90.0, 110.0), -(math.log(0.9) + math.log(1.1)) / 12, (True, True)),
    ],
)
def test_a_block_that_is_known_between_two_ends(
    better: str,
    baseline: tuple[float, float],
    values: tuple[float, float],
    estimate: float | None,
    bounded: tuple[bool, bool],
) -> None:
    [found] = bounds_of(replace(compared([0.0], better), baseline=between(*baseline), values=between(*values)))
    assert (found.at_least is not None, found.at_most is not None) == bounded
    assert found.estimate == (None if estimate is None else pytest.approx(part(estimate, better)))


def test_each_bound_is_of_the_worse_and_the_better_ends() -> None:
    """All blocks alike: the contender is between 10 % better and 20 % worse, each for sure."""
    ends: Mapping[int, Value] = dict.fromkeys(range(6), (90.0, 120.0))
    comparison = replace(compared([0.0]), baseline=dict.fromkeys(range(6), 100.0), values=ends)
    [found] = bounds_of(comparison)
    assert (found.at_least, found.at_most) == pytest.approx((-0.1, 0.2))
    [rate] = bounds_of(replace(comparison, better="higher"))
    assert (rate.at_least, rate.at_most) == pytest.approx((-0.2, 0.1))


def test_only_shared_blocks_count_and_five_are_too_few() -> None:
    six = compared([0.05] * 6)
    [found] = bounds_of(replace(six, values={**six.values, 9: 1.0}, baseline={**six.baseline, 8: 1.0}))
    assert found.blocks == 6
    assert found.estimate == pytest.approx(part(0.05, "lower"))
    five, nothing = bounds_of(compared([0.05] * 5), replace(six, values={9: 1.0}))
    assert (five.blocks, five.at_least, five.at_most) == (5, None, None)
    assert five.estimate == pytest.approx(part(0.05, "lower"))
    assert (nothing.blocks, nothing.estimate, nothing.at_least, nothing.at_most) == (0, None, None, None)


TURNS = ((1, -1, 1, -1, 1, -1), (1, 1, 1, -1, -1, -1), (1, 1, -1, -1, -1, 1))


def test_where_a_pattern_leaves_no_deviation_the_figures_resolution_is_what_is_left() -> None:
    """Deviations of 0.01 sum to S = 6 in one pattern, and have nothing left but 0.001: t is 24.5.
    In six S is 4, of which the mean is 2 / 3, the variance (6 - 16 / 6) / 5 = 2 / 3, and t 2: the
    third largest. Three comparisons have three patterns with a t of 24.5.
    """
    pairs, error = [compared([each / 100 for each in own]) for own in TURNS], math.sqrt(6 / 5 / 6) / 100
    assert bounds_of(pairs[0])[0].at_least == pytest.approx(part(-2 * error, "lower"))
    third = part(-10 * math.sqrt(6) * error, "lower")
    assert [each.at_least for each in bounds_of(*pairs)] == pytest.approx([third] * 3)


def test_figures_of_two_neighbouring_values_take_no_bound_from_another() -> None:
    """Deviations of 0.0005 count as 0.001, so that their t is at most 1.2, less than that of 10."""
    one, rounded = compared([each / 100 for each in DEVIATIONS]), [[each / 2000 for each in own] for own in TURNS]
    known, *near = bounds_of(one, *(compared(each) for each in rounded))
    assert known == bounds_of(one)[0]
    error = 0.001 / math.sqrt(6)
    for each in near:
        assert each.at_least == pytest.approx(part(-t_of(10) * error, "lower"))
        assert each.at_most == pytest.approx(part(2.0150484 * error, "lower"))


def test_a_bound_beyond_every_number_is_none() -> None:
    """Of five logarithms of 0 and one of 1,200 the mean is 200 and the error too: its t at 95 %, of
    2.015, lies at 603. Of 0 and 1,400 it lies at 704.
    """

    def upper(log: float) -> float | None:
        ends = {**dict.fromkeys(range(6), 1e-300), 5: 1e-300 * math.exp(log / 2) * math.exp(log / 2)}
        return bounds_of(replace(compared([0.0]), baseline=dict.fromkeys(range(6), 1e-300), values=ends))[0].at_most

    assert upper(1200) == pytest.approx(math.exp(200 * 3.0150484), rel=1e-4)
    assert upper(1400) is None


def loss(at_least: float | None, at_most: float | None) -> Loss:
    return Loss(comparison=compared([0.0]), blocks=6, estimate=0.0, at_least=at_least, at_most=at_most)


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        ([loss(0.0, 0.049)], "pass"),
        ([loss(0.0, 0.05)], "undecided"),
        ([loss(0.05, 0.2)], "undecided"),
        ([loss(0.051, 0.2)], "worse"),
        ([loss(None, 0.049)], "pass"),
        ([loss(0.0, None)], "undecided"),
        ([loss(0.051, None)], "worse"),
        ([loss(0.0, 0.01), loss(0.0, 0.2)], "undecided"),
        ([loss(0.0, 0.01), loss(None, None)], "undecided"),
        ([loss(None, None), loss(0.2, 0.3), loss(0.0, 0.01)], "worse"),
        ([], "undecided"),
    ],
)
def test_the_bounds_decide_together(found: Sequence[Loss], outcome: str) -> None:
    assert decide_gate(found, 0.05) == outcome


def chances(blocks: int, noise: float, tolerance: float, comparisons: int) -> tuple[float, float]:
    """How often no loss passes, and a loss of twice the tolerance is found in one comparison."""
    error = math.log1p(noise) * math.sqrt(2 / blocks)
    room = min(math.log1p(tolerance), math.log((1 + 2 * tolerance) / (1 + tolerance)))
    upper, lower = (stats.t.ppf(1 - 0.05 / among, blocks - 1) for among in (1, comparisons))
    misses = stats.nct.cdf(upper, blocks - 1, room / error)
    return 1 - comparisons * misses, 1 - stats.nct.cdf(lower, blocks - 1, room / error)


@pytest.mark.parametrize(
    ("noise", "tolerance", "comparisons"),
    [(0.03, 0.05, 1), (0.03, 0.05, 2), (0.02, 0.05, 2), (0.016, 0.05, 40), (0.06, 0.05, 6), (0.02, 0.1, 3)],
)
def test_the_number_of_blocks_is_the_fewest_with_which_nine_of_ten_gates_decide(
    noise: float, tolerance: float, comparisons: int
) -> None:
    found = blocks_for(noise=noise, tolerance=tolerance, comparisons=comparisons)
    assert found is not None
    assert min(chances(found, noise, tolerance, comparisons)) >= 0.9
    assert found == 6 or min(chances(found - 1, noise, tolerance, comparisons)) < 0.9


def test_no_more_than_200_blocks_are_asked_for() -> None:
    """The noise at which 200 are needed lies between these two."""
    quiet, loud = 0.1, 1.0
    for _ in range(40):
        middle = (quiet + loud) / 2
        if min(chances(200, middle, 0.05, 1)) >= 0.9:
            quiet = middle
        else:
            loud = middle
    assert blocks_for(noise=quiet, tolerance=0.05, comparisons=1) == 200
    assert blocks_for(noise=loud * 1.001, tolerance=0.05, comparisons=1) is None
