"""How often the comparison with the best is wrong, with noise as it was recorded; and the method
beside others that were not written here.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from simulated import tell

from plimsoll_lab.stats.best import FigureComparison, Pair, Value, compare_with_best

Array = NDArray[np.float64]
FAMILIES = int(os.environ.get("PLIMSOLL_ALIKE_FAMILIES", "60"))
"""Simulated families without any difference; `make soak` asks for 20,000, about ten minutes."""
ALIKE = Path(__file__).parents[2] / "docs" / "results" / "alike.json"
"""Rows of bench/echo.py and bench/forward.py that hold a program against itself, on two machines.
A later run of them is added by hand: a quiet one must not take the others' outliers away."""
CONTENDERS, FIGURES, SETTINGS = 5, 4, 2
SLOWER = 0.65
"""The machine's two speeds lie 35 % apart."""
SWITCHES = 1 / 20
"""Blocks in whose midst the speed changes."""
MISSING = 0.05


def recorded_noise() -> list[Array]:
    """The noise of one side in each recorded row: the difference of two logarithms has twice the
    variance.
    """
    return [np.log(row["ratios"]) / math.sqrt(2) for row in json.loads(ALIKE.read_text())]


def alike_family(recorded: Sequence[Array], blocks: int, luck: np.random.Generator) -> list[FigureComparison]:
    """Contenders that do not differ: each figure with the noise of one recorded row, on a machine
    that changes its speed between blocks and within some; some values are missing.
    """
    family = []
    for _ in range(SETTINGS):
        fast = luck.random(blocks) < 0.5
        switched = (luck.random(blocks) < SWITCHES) & (luck.random((CONTENDERS, blocks)) < 0.5)
        speed = np.where(fast ^ switched, 0.0, math.log(SLOWER))
        kept = luck.random((CONTENDERS, blocks)) >= MISSING
        for _ in range(FIGURES):
            row = recorded[int(luck.integers(len(recorded)))]
            noise = luck.choice(row, speed.shape) * luck.choice([-1.0, 1.0], speed.shape)
            values = np.exp(speed + noise)
            contenders: dict[str, dict[int, Value]] = {
                str(name): {block: float(values[name, block]) for block in range(blocks) if kept[name, block]}
                for name in range(CONTENDERS)
            }
            family.append(FigureComparison(figure="x", better="lower", at={}, contenders=contenders))
    return family


def test_the_bench_has_recorded_how_a_program_differs_from_itself() -> None:
    recorded = recorded_noise()
    assert len(recorded) >= 10
    assert sum(map(len, recorded)) >= 70
    assert any(np.abs(row).max() > 0.3 for row in recorded), "outliers are part of what was seen"


@pytest.mark.parametrize(("blocks", "families"), [(9, min(FAMILIES, 1000)), (12, FAMILIES)])
def test_contenders_that_do_not_differ_are_seldom_called_worse(blocks: int, families: int) -> None:
    """At most 64 of 1,000 families and 5.3 % of 20,000: 5 %, and two standard errors of so many."""
    recorded, luck = recorded_noise(), np.random.default_rng([blocks, 15])
    wrong = sum(
        any(found.others for found in compare_with_best(alike_family(recorded, blocks, luck), luck))
        for _ in range(families)
    )
    tell("errors", f"{blocks} blocks, noise as recorded, no difference", families, a_contender_is_called_worse=wrong)
    errors = 2 if families >= 1000 else 3
    assert wrong <= 0.05 * families + errors * math.sqrt(0.05 * 0.95 * families), wrong


def drawn(contenders: int, blocks: int, luck: np.random.Generator) -> FigureComparison:
    logs = luck.normal(0, 0.03, (contenders, blocks)) + luck.uniform(-0.35, 0, blocks)
    values: dict[str, dict[int, Value]] = {
        str(name): dict(enumerate(np.exp(row).tolist())) for name, row in enumerate(logs)
    }
    return FigureComparison(figure="x", better="lower", at={}, contenders=values)


def logs_of(comparison: FigureComparison, one: str, other: str) -> list[float]:
    def values(name: str) -> list[float]:
        return [each for each in comparison.contenders[name].values() if isinstance(each, float)]

    return [math.log(a) - math.log(b) for a, b in zip(values(one), values(other), strict=True)]


def by_hand(family: Sequence[FigureComparison]) -> list[dict[tuple[str, str], tuple[float, float]]]:
    """The same bounds by every pattern of signs, one at a time, and Student's t as defined."""

    def t_of(series: Sequence[float]) -> float:
        return abs(statistics.fmean(series)) / (statistics.stdev(series) / math.sqrt(len(series)))

    pairs = [
        {(one, other): logs_of(each, one, other) for one, other in itertools.combinations(each.contenders, 2)}
        for each in family
    ]
    every = [series for comparison in pairs for series in comparison.values()]
    centred = [[value - statistics.fmean(series) for value in series] for series in every]
    largest = sorted(
        (
            max(t_of([sign * value for sign, value in zip(signs, series, strict=True)]) for series in centred)
            for signs in itertools.product((-1, 1), repeat=len(every[0]))
        ),
        reverse=True,
    )
    # So many of the patterns reach the critical value; a pattern and its mirror are one.
    critical = largest[2 * math.floor(0.05 * len(largest) / 2) - 1]
    return [
        {
            names: (statistics.fmean(series) - reach, statistics.fmean(series) + reach)
            for names, series in comparison.items()
            for reach in [critical * statistics.stdev(series) / math.sqrt(len(series))]
        }
        for comparison in pairs
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_bounds_are_those_of_every_pattern_tried_by_hand(seed: int) -> None:
    luck = np.random.default_rng(seed)
    family = [drawn(3, 7, luck), drawn(3, 7, luck)]
    for found, expected in zip(compare_with_best(family, luck), by_hand(family), strict=True):
        for names, ends in expected.items():
            pair = found.pairs[names]
            assert (pair.low, pair.high) == pytest.approx(ends, rel=1e-6)


def test_the_bounds_of_two_contenders_are_those_of_students_t_in_the_mean() -> None:
    """One pair needs no simultaneous bounds: of normal noise its interval is Student's."""
    luck = np.random.default_rng(4)
    ratios = []
    for _ in range(60):
        comparison = drawn(2, 20, luck)
        [found] = compare_with_best([comparison], luck)
        ratios.append(_half(found.pairs["0", "1"]) / _student(logs_of(comparison, "0", "1")))
    assert statistics.fmean(ratios) == pytest.approx(1, rel=0.03)


def _half(pair: Pair) -> float:
    return (pair.high - pair.low) / 2


def _student(series: Sequence[float]) -> float:
    return float(stats.t.ppf(0.975, len(series) - 1)) * statistics.stdev(series) / math.sqrt(len(series))


def near_ties() -> list[FigureComparison]:
    """100 data sets of four contenders in 40 blocks."""
    luck = np.random.default_rng(5)
    return [drawn(4, 40, luck) for _ in range(100)]


def test_the_bounds_of_four_contenders_agree_with_those_of_glht_within_5_percent() -> None:
    """Beside Tukey's contrasts with the block as a factor, by `glht` of R's multcomp: `glht.R` says
    how its figures were made.
    """
    with (Path(__file__).parent / "glht.csv").open(encoding="utf-8") as file:
        theirs = {(int(row["set"]), row["one"], row["other"]): row for row in csv.DictReader(file)}
    widths = []
    for number, comparison in enumerate(near_ties()):
        [found] = compare_with_best([comparison], np.random.default_rng(number))
        for one, other in itertools.permutations(comparison.contenders, 2):
            row = theirs.pop((number, one, other), None)
            if row is None:
                continue
            pair, low, high = found.pairs[one, other], float(row["low"]), float(row["high"])
            assert math.exp(pair.low) == pytest.approx(math.exp(low), rel=0.05)
            assert math.exp(pair.high) == pytest.approx(math.exp(high), rel=0.05)
            assert (pair.low + pair.high) / 2 == pytest.approx((low + high) / 2, abs=2e-6)
            widths.append(2 * _half(pair) / (high - low))
    assert not theirs
    assert len(widths) == 600
    # Each of our pairs has a variance of its own, which costs some degrees of freedom.
    assert 1 <= statistics.fmean(widths) <= 1.05


def main() -> None:
    """Print the data sets for `glht.R`."""
    print("set,contender,block,log")
    for number, comparison in enumerate(near_ties()):
        for name, values in comparison.contenders.items():
            for block, value in values.items():
                assert isinstance(value, float)
                print(f"{number},{name},{block},{math.log(value):.9f}")


if __name__ == "__main__":
    main()
