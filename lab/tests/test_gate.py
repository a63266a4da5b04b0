"""The gate's decisions: how often they are wrong, and what each finding ends in."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from made_records import run_record
from simulated import tell

from plimsoll_lab.analysis.gate import judge_gate
from plimsoll_lab.report.gate import bounded, percent
from plimsoll_lab.stats.best import FigureComparison, Value
from plimsoll_lab.stats.gate import BaselineComparison, Loss, blocks_for, decide_gate, losses
from plimsoll_lab.store.run_record import FamilyRecord
from plimsoll_lab.store.summary_record import GateRecord, LossRecord
from plimsoll_lab.suite.figures import FIGURES
from plimsoll_lab.suite.spec import PlannedTrial

GATES = int(os.environ.get("PLIMSOLL_GATES", "300"))
"""Simulated gates of each kind; `make soak` asks for many more."""
TOLERANCE, NOISE = 0.05, 0.03


def gate(worse: float, rng: np.random.Generator, *, outliers: bool = False) -> list[Loss]:
    """A rate and a cost that are `worse` by a part of the baseline's, on a machine whose speed
    changes by 35 %.
    """
    blocks = blocks_for(noise=NOISE, tolerance=TOLERANCE, comparisons=2) or 0
    speed = rng.uniform(0.65, 1, blocks)
    factors = {"rate": 1 - worse, "cost": 1 + worse}

    def series(factor: float) -> dict[int, float]:
        noise = rng.normal(0, NOISE, blocks)
        if outliers:
            noise += (rng.random(blocks) < 1 / 50) * rng.exponential(0.3, blocks)
        return {block: factor * speed[block] * math.exp(noise[block]) for block in range(blocks)}

    return losses(
        [
            BaselineComparison(
                figure=name,
                better="higher" if name == "rate" else "lower",
                at={},
                contender="new",
                baseline=series(1.0),
                values=series(factor),
            )
            for name, factor in factors.items()
        ],
        rng,
    )


@pytest.mark.parametrize(
    ("worse", "wanted", "least", "wrong", "most"),
    [
        (0.0, "pass", 0.90, ["worse"], 0.05),
        (0.05, "undecided", 0.80, ["pass", "worse"], 0.05),
        (0.10, "worse", 0.90, ["pass"], 0.001),
    ],
)
def test_a_gate_is_seldom_wrong(worse: float, wanted: str, least: float, wrong: Sequence[str], most: float) -> None:
    rng = np.random.default_rng([int(worse * 100), 7])
    ends: Counter[str] = Counter(decide_gate(gate(worse, rng), TOLERANCE) for _ in range(GATES))
    counts = {name: ends[name] for name in ("pass", "undecided", "worse")}
    tell("gates", f"worse by {worse:.0%}, tolerance {TOLERANCE:.0%}, noise {NOISE:.0%}", GATES, **counts)
    # Three standard errors of what so many gates tell.
    assert ends[wanted] >= least * GATES - 3 * math.sqrt(least * (1 - least) * GATES)
    for each in wrong:
        assert ends[each] <= most * GATES + 3 * math.sqrt(most * (1 - most) * GATES)


def test_outliers_make_a_gate_undecided_and_not_wrong() -> None:
    rng = np.random.default_rng(11)
    ends: Counter[str] = Counter(decide_gate(gate(0.05, rng, outliers=True), TOLERANCE) for _ in range(GATES))
    counts = {name: ends[name] for name in ("pass", "undecided", "worse")}
    tell("gates", f"worse by 5%, tolerance {TOLERANCE:.0%}, noise {NOISE:.0%} with outliers", GATES, **counts)
    allowed = 0.05 * GATES + 3 * math.sqrt(0.05 * 0.95 * GATES)
    assert ends["pass"] <= allowed
    assert ends["worse"] <= allowed


def test_the_loss_of_a_rate_is_what_is_missing_of_it() -> None:
    def exact(better: str, value: float) -> Loss:
        [found] = losses(
            [
                BaselineComparison(
                    figure="x",
                    better="higher" if better == "higher" else "lower",
                    at={},
                    contender="new",
                    baseline=dict.fromkeys(range(8), 100.0),
                    values=dict.fromkeys(range(8), value),
                )
            ],
            np.random.default_rng(1),
        )
        return found

    rate, cost, gain = exact("higher", 90.0), exact("lower", 110.0), exact("higher", 125.0)
    for found, truth in ((rate, 0.1), (cost, 0.1), (gain, -0.25)):
        assert (found.at_least, found.estimate, found.at_most) == pytest.approx((truth, truth, truth))
    assert decide_gate([rate], 0.05) == "worse"
    assert decide_gate([gain], 0.05) == "pass"
    assert decide_gate([rate, gain], 0.05) == "worse"


def test_a_gate_without_enough_blocks_is_undecided() -> None:
    short = BaselineComparison(
        figure="x",
        better="lower",
        at={},
        contender="new",
        baseline=dict.fromkeys(range(5), 1.0),
        values=dict.fromkeys(range(5), 9.0),
    )
    [found] = losses([short], np.random.default_rng(1))
    assert (found.blocks, found.at_least, found.at_most) == (5, None, None)
    assert found.estimate == pytest.approx(8)
    assert decide_gate([found], 0.05) == "undecided"
    assert decide_gate([], 0.05) == "undecided"


@pytest.mark.parametrize("contender", ["old", "new"])
def test_no_block_is_left_out_for_a_value_of_zero(contender: str) -> None:
    values = {"old": dict.fromkeys(range(12), 100.0), "new": dict.fromkeys(range(12), 100.0)}
    run = run_record()
    run.family = FamilyRecord(
        compare="contender", figures=("completed_rate",), margin=0.05, baseline="old", tolerance=TOLERANCE
    )
    run.figures = FIGURES

    def outcome() -> tuple[str, str]:
        family = [FigureComparison(figure="completed_rate", better="higher", at={}, contenders=values)]
        found = judge_gate(run, family, [], [])
        assert found is not None
        return found.outcome, found.text

    assert outcome()[0] == "pass"
    values[contender] |= dict.fromkeys(range(4), 0.0)
    assert outcome() == (
        "undecided",
        f"The gate is undecided. {contender}'s completed rate was zero, which has no ratio to another value.",
    )


def test_a_gate_passes_nothing_that_the_verdicts_do_not_compare() -> None:
    """Of a percentile of two whose networks were disturbed unlike a verdict says nothing, and the
    gate passed.
    """
    run = run_record()
    run.family = FamilyRecord(
        compare="contender", figures=("response_time_us.p99",), margin=0.05, baseline="old", tolerance=TOLERANCE
    )
    run.figures = FIGURES
    alike = dict.fromkeys(range(12), 100.0)
    asked = FigureComparison(
        figure="response_time_us.p99",
        better="lower",
        at={"load.connections": 8},
        contenders={"old": alike, "new": alike},
        obstacle="their slowest requests are not alike",
    )
    found = judge_gate(run, [asked], [], [])
    assert found is not None
    assert (found.outcome, found.losses[0].at_most) == ("undecided", None)
    assert found.reasons == [
        "response time, p99 at 8 connections is not compared: their slowest requests are not alike"
    ]


def judged(
    base: dict[int, Value],
    new: dict[int, Value],
    figures: tuple[str, ...] = ("completed_rate",),
    planned: Sequence[PlannedTrial] = (),
) -> GateRecord:
    """The gate of one contender with the same values in each figure."""
    run = run_record()
    run.family = FamilyRecord(compare="contender", figures=figures, margin=0.05, baseline="base", tolerance=TOLERANCE)
    run.figures = FIGURES
    family = [
        FigureComparison(figure=figure, better="higher", at={}, contenders={"base": base, "new": new})
        for figure in figures
    ]
    run.trials = planned
    found = judge_gate(run, family, [], [])
    assert found is not None
    return found


def test_blocks_in_which_the_generator_was_the_limit_are_not_left_out() -> None:
    alike: dict[int, Value] = {block: 100.0 + block % 3 for block in range(12)}
    limited: dict[int, Value] = alike | dict.fromkeys(range(3), (100.0, math.inf))
    faster = judged(alike, limited)
    assert faster.outcome == "pass", "a contender of at least as much is no loss"
    assert (faster.losses[0].at_least, faster.losses[0].loss) == (None, None)
    slower = judged(limited, alike)
    assert slower.outcome == "undecided", "nobody knows how much more the baseline would have done"
    assert slower.losses[0].at_most is None
    assert "only a lower bound in some blocks" in slower.text
    halved: dict[int, Value] = {block: 50.0 + block % 3 for block in range(12)}
    assert judged(limited, halved).outcome == "worse"


def test_a_gate_holds_what_is_known_between_bounds_to_the_worse_end() -> None:
    alike: dict[int, Value] = {block: 100.0 + block % 3 for block in range(12)}
    for low, outcome in ((99.0, "pass"), (80.0, "undecided")):
        between: dict[int, Value] = alike | dict.fromkeys(range(6), (low, 101.0))
        assert judged(alike, between).outcome == outcome


def test_a_gate_that_was_ended_early_passes_nobody() -> None:
    alike: dict[int, Value] = {block: 100.0 + block % 3 for block in range(12)}
    halved: dict[int, Value] = {block: 50.0 + block % 3 for block in range(12)}
    planned = [PlannedTrial(number=1, block=1, point=0)]
    assert judged(alike, alike, planned=planned).text == "The gate is undecided. 0 of 1 trials were measured."
    assert judged(alike, halved, planned=planned).outcome == "worse", "what is shown is shown"


def test_the_bounds_of_a_loss_hold_as_they_are_shown() -> None:
    """Of a tolerance of 5 % an upper bound of 5.04 % was shown as 5.0 %, and the gate undecided."""
    record = LossRecord(
        figure="x",
        at={},
        contender="new",
        blocks=12,
        loss=0.0196,
        at_least=-0.0112,
        at_most=0.0504,
        outcome="undecided",
    )
    assert bounded(record) == ("2.0 %", "-1.2 %", "5.1 %")
    assert bounded(record.model_copy(update={"at_least": 0.0196, "at_most": 0.05}))[1:] == ("1.9 %", "5.0 %")
    assert bounded(record.model_copy(update={"at_least": None, "at_most": None}))[1:] == ("-", "-")


def test_one_comparison_is_said_to_be_the_least_of_nothing() -> None:
    alike: dict[int, Value] = {block: 100.0 + block % 3 for block in range(12)}
    one = judged(alike, alike)
    assert one.text == "The gate passes. new's completed rate is at most 0.0 % worse."
    two = judged(alike, alike, ("completed_rate", "goodput_bits_per_s"))
    assert two.text.endswith(" worse, and no other comparison shows more.")
    assert judged(alike, alike, ()).text == "The gate is undecided. there is nothing to compare with the baseline."


def test_the_number_of_blocks_follows_from_the_noise() -> None:
    found = [blocks_for(noise=noise, tolerance=0.05, comparisons=2) for noise in (0.005, 0.03, 0.06)]
    assert found[0] == 6
    assert found == sorted(found, key=lambda each: each or 0)
    assert blocks_for(noise=0.5, tolerance=0.05, comparisons=2) is None


@pytest.mark.parametrize(("part", "shown"), [(-0.0004, "0.0 %"), (-0.0006, "-0.1 %"), (0.0722, "7.2 %"), (None, "-")])
def test_no_loss_is_minus_zero(part: float | None, shown: str) -> None:
    assert percent(part) == shown


def test_rates_that_take_two_neighbouring_values_pass() -> None:
    """They left no bound to any comparison, as some signs of six blocks leave them no deviation."""
    run = run_record()
    figures = ("completed_rate", "server.cpu_us_per_request", "server.memory_bytes")
    run.family = FamilyRecord(compare="contender", figures=figures, margin=0.05, baseline="old", tolerance=TOLERANCE)
    run.figures = FIGURES
    signs = ((1, 1, 1, 0, 0, 0), (1, 0, 1, 0, 1, 0), (0, 1, 1, 0, 0, 1))
    family = [
        FigureComparison(
            figure=name,
            better="lower",
            at={},
            contenders={
                "old": dict.fromkeys(range(6), 5000.0),
                "new": {block: 5000.0 - sign for block, sign in enumerate(own)},
            },
        )
        for name, own in zip(figures, signs, strict=True)
    ]
    found = judge_gate(run, family, [], [])
    assert found is not None
    assert found.outcome == "pass"
