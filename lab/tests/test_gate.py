"""The gate's decisions: how often they are wrong, and what each finding ends in."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from made_records import point_summary, run_record
from simulated import tell

from plimsoll_lab.analysis.gate import judge_gate
from plimsoll_lab.report.gate import bounded, percent
from plimsoll_lab.stats.best import FigureComparison, Value
from plimsoll_lab.stats.gate import BaselineComparison, Loss, blocks_for, decide_gate, losses
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.run_record import FamilyRecord
from plimsoll_lab.store.search_record import SearchRecord, SearchSettingsRecord, SearchState
from plimsoll_lab.store.summary_record import GateOutcome, GateRecord, LossRecord, PointSummary
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


def test_a_gate_tells_its_reasons_in_sentences_and_how_many_more_there_are() -> None:
    run = run_record()
    run.family = FamilyRecord(compare="contender", figures=(), margin=0.05, baseline="base", tolerance=TOLERANCE)
    points = [
        point_summary({"contender": name, "load.connections": count}, outcome="failed", reason=f"{name} fell over.")
        for name in ("base", "new", "a", "b", "c")
        for count in (1, 8, 64, 512)
    ]
    found = judge_gate(run, [], points, [])
    assert found is not None
    first = "base failed at 1 connection and 3 other settings: base fell over."
    assert found.text.startswith(f"The gate failed. {first} new failed at 1 connection ")
    assert found.text.endswith(" a fell over. 2 more reasons are on the page.")
    assert len(found.reasons) == 5
    assert max(len(each.split()) for each in found.text.split(". ")) <= 25


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


def places_of(*points: tuple[str, int, Outcome, str | None]) -> list[PointSummary]:
    return [
        point_summary({"contender": name, "load.connections": count}, number, outcome, reason)
        for number, (name, count, outcome, reason) in enumerate(points)
    ]


def gate_of(
    points: Sequence[PointSummary] = (), trials: Sequence[TrialRecord] = (), family: Sequence[FigureComparison] = ()
) -> GateRecord:
    run = run_record()
    run.family = FamilyRecord(compare="contender", figures=(), margin=0.05, baseline="base", tolerance=TOLERANCE)
    run.figures = FIGURES
    found = judge_gate(run, family, points, trials)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("points", "outcome", "reasons"),
    [
        # A contender that fails, and a baseline that fails or reaches its limit, end the gate.
        ([("new", 8, "failed", "it ended.")], "failed", ["new failed at 8 connections: it ended"]),
        ([("base", 8, "failed", "it ended")], "failed", ["base failed at 8 connections: it ended"]),
        ([("base", 8, "hard_limit", "1,024")], "failed", ["base reached a limit at 8 connections: 1,024"]),
        # A contender that reaches a limit is worse; what has no result decides nothing.
        ([("new", 8, "hard_limit", "1,024")], "worse", ["new reached a limit at 8 connections: 1,024"]),
        ([("new", 8, "invalid", "busy")], "undecided", ["new has no result at 8 connections: busy"]),
        ([("base", 8, "invalid", "busy")], "undecided", ["base has no result at 8 connections: busy"]),
        # One that has a result comes before the others and says nothing.
        (
            [("base", 1, "ok", None), ("new", 1, "ok", None), ("new", 8, "generator_limited", "late")],
            "undecided",
            ["new has no result at 8 connections: late"],
        ),
        # The same cause is said once, of those that stopped at the same places together.
        (
            [(name, count, "failed", "x") for name in ("base", "new") for count in (1, 8)],
            "failed",
            ["base and new failed at 1 connection and 8 connections: x"],
        ),
        (
            [("base", 1, "invalid", "x"), ("new", 1, "invalid", "x")],
            "undecided",
            ["base and new have no result at 1 connection: x"],
        ),
        (
            [
                ("base", 8, "failed", "x"),
                ("new", 1, "failed", "x"),
                ("new", 2, "failed", "x"),
                ("new", 3, "failed", "x"),
            ],
            "failed",
            ["base failed at 8 connections, new failed at 1 connection, 2 connections and 3 connections: x"],
        ),
        (
            [("new", count, "failed", "x") for count in (1, 2, 3, 4)],
            "failed",
            ["new failed at 1 connection and 3 other settings: x"],
        ),
    ],
)
def test_what_points_without_a_result_end_a_gate_in(
    points: Sequence[tuple[str, int, Outcome, str | None]], outcome: GateOutcome, reasons: Sequence[str]
) -> None:
    found = gate_of(places_of(*points))
    assert (found.outcome, found.reasons) == (outcome, reasons)
    assert all(each in found.text for each in reasons)


def trial_of(point: int, outcome: Outcome, reason: str | None = None) -> TrialRecord:
    return TrialRecord(
        number=1, block=1, point=point, setting={}, outcome=outcome, reason=reason, warnings=(), figures={},
        started_unix_s=0, elapsed_s=1, server={}, load={}, machine={},
    )  # fmt: skip


def test_a_limit_or_a_failure_in_some_trials_of_a_point_leaves_a_gate_undecided() -> None:
    points = places_of(("base", 8, "ok", None), ("new", 8, "ok", None), ("new", 9, "invalid", "busy"))
    trials = [
        trial_of(0, "ok"),
        trial_of(1, "ok"),
        trial_of(1, "invalid", "steal"),
        trial_of(1, "hard_limit", "1,024"),
        trial_of(1, "hard_limit", "1,025"),
        trial_of(1, "failed", "it ended"),
        trial_of(2, "failed", "elsewhere"),
    ]
    found = gate_of(points, trials)
    assert found.outcome == "undecided"
    assert found.reasons == [
        "new has no result at 9 connections: busy",
        "new: 2 of 5 trials ended so: 1,024",
        "new: 1 of 5 trials ended so: it ended",
    ]
    assert gate_of(points[:2], trials[:3]).reasons == []


def test_how_many_more_reasons_there_are() -> None:
    def text(count: int) -> str:
        return gate_of(places_of(*((f"c{each}", 1, "failed", f"reason {each}") for each in range(count)))).text

    assert text(3).endswith("c2 failed at 1 connection: reason 2.")
    assert text(4).endswith("reason 2. 1 more reason is on the page.")
    assert text(5).endswith("reason 2. 2 more reasons are on the page.")


def test_searches_that_end_a_gate() -> None:
    """Two of a contender that fail alike are one reason. The loads that they tried are none."""
    run = run_record()
    run.family = FamilyRecord(
        compare="contender", figures=("capacity",), margin=0.05, baseline="base", tolerance=TOLERANCE
    )
    run.figures = FIGURES
    run.search = SearchSettingsRecord(over="load.connections", lowest=1, highest=1000)
    states: list[tuple[str, int, SearchState, str | None, int | None]] = [
        ("base", 1, "complete", None, 100),
        ("new", 1, "failed", "it ended.", 50),
        ("new", 2, "failed", "it ended.", 50),
        ("new", 3, "interrupted", None, 50),
        ("new", 4, "complete", None, None),
    ]
    run.searches = [
        SearchRecord(
            number=block, block=block, point=0, setting={"contender": name, "load.size": "64B"}, state=state,
            reason=reason, lower=lower, upper=200, limited_by="server",
        )
        for name, block, state, reason, lower in states
    ]  # fmt: skip
    points = places_of(("new", 8, "failed", "too much"), ("new", 4, "ok", None))
    found = judge_gate(run, [], points, [trial_of(1, "failed", "too much")])
    assert found is not None
    at = "at size 64B"
    assert found.outcome == "failed"
    assert found.reasons == [
        f"new failed {at}: it ended",
        f"new: search 3 was not finished {at}",
        f"new: search 4 found no load that is carried {at}",
    ]
    run.searches = run.searches[:1]
    whole = judge_gate(run, [], points, [])
    assert whole is not None
    assert (whole.outcome, whole.reasons) == ("undecided", [])
    assert judge_gate(run_record(), [], [], []) is None
    unnamed = run.family.model_copy(update={"compare": None})
    assert judge_gate(run.model_copy(update={"family": unnamed}), [], [], []) is None


def asked(
    new: Mapping[int, Value], old: Mapping[int, Value], figure: str = "server.memory_bytes", connections: int = 8
) -> FigureComparison:
    at = {"load.connections": connections}
    return FigureComparison(figure=figure, better="lower", at=at, contenders={"base": old, "new": new})


EXACT: dict[int, Value] = dict.fromkeys(range(8), 100.0)
MEMORY = "new's server memory at 8 connections"


def exactly(value: float) -> dict[int, Value]:
    return dict.fromkeys(range(8), value)


def test_a_gate_says_what_is_worse_by_how_much() -> None:
    found = gate_of(family=[asked(exactly(110.0), EXACT), asked(exactly(104.0), EXACT, connections=9)])
    assert found.text == f"The gate finds a loss. {MEMORY} is at least 10.0 % worse (estimate 10.0 %)."
    assert [each.outcome for each in found.losses] == ["worse", "pass"]


LIMITED: dict[int, Value] = {**EXACT, 3: (100.0, math.inf)}


@pytest.mark.parametrize(
    ("new", "old", "reason"),
    [
        (dict.fromkeys(range(8), (102.0, 112.0)), EXACT, "is worse, by 2.0 % to 12.0 %; by how much cannot be told"),
        (dict.fromkeys(range(8), (92.0, 120.0)), EXACT, "changes by 8.0 % better to 20.0 % worse"),
        (dict.fromkeys(range(5), 100.0), EXACT, "has 5 blocks with both, which is too few"),
        (LIMITED, EXACT, "has only a lower bound in some blocks, where the generator was the limit"),
        (exactly(120.0), LIMITED, "has only a lower bound in some blocks, where the generator was the limit"),
        (
            {block: value for block, value in LIMITED.items() if block < 6},
            LIMITED,
            "has only a lower bound in some blocks, where the generator was the limit",
        ),
    ],
)
def test_a_gate_says_what_keeps_it_open(new: dict[int, Value], old: dict[int, Value], reason: str) -> None:
    """What is shown to be level is no reason."""
    found = gate_of(family=[asked(new, old), asked(EXACT, EXACT, connections=9)])
    assert found.text == f"The gate is undecided. {MEMORY} {reason}."


def test_a_gate_that_passes_says_the_greatest_loss_that_is_left() -> None:
    two = gate_of(family=[asked(exactly(99.0), EXACT, connections=1), asked(exactly(102.0), EXACT)])
    assert two.text == f"The gate passes. {MEMORY} is at most 2.0 % worse, and no other comparison shows more."
    better = gate_of(family=[asked(exactly(90.0), EXACT)])
    assert better.text == f"The gate passes. {MEMORY} is at most 0.0 % worse."


def test_a_zero_keeps_a_gate_open_wherever_it_is() -> None:
    """A value below one is none, nor is one that lies between bounds above zero."""
    zero, below = (
        gate_of(family=[asked({**EXACT, 2: 0.0}, EXACT)]),
        gate_of(family=[asked({**EXACT, 2: (0.0, 9.0)}, EXACT)]),
    )
    for found in (zero, below):
        assert found.outcome == "undecided"
        assert found.reasons == [f"{MEMORY} was zero, which has no ratio to another value"]
        assert found.losses[0].blocks == 0
    assert gate_of(family=[asked(exactly(0.5), exactly(0.5))]).outcome == "pass"


def test_a_contender_or_a_baseline_without_values_is_compared_in_no_block() -> None:
    gone = FigureComparison(
        figure="server.memory_bytes", better="lower", at={}, contenders={"new": EXACT}, absent=("base", "other")
    )
    found = gate_of(family=[gone])
    assert [(each.contender, each.blocks) for each in found.losses] == [("new", 0), ("other", 0)]
    assert found.outcome == "undecided"


def test_a_suite_names_the_baseline_by_its_value() -> None:
    """That of a number is named by what it sets too."""
    run = run_record()
    run.family = FamilyRecord(compare="load.size", figures=(), margin=0.05, baseline="64", tolerance=TOLERANCE)
    run.figures = FIGURES
    contenders = {"size 64": EXACT, "size 128": EXACT}
    family = [FigureComparison(figure="server.memory_bytes", better="lower", at={}, contenders=contenders)]
    found = judge_gate(run, family, [point_summary({"load.size": size}, size) for size in (64, 128)], [])
    assert found is not None
    assert (found.baseline, [each.contender for each in found.losses]) == ("size 64", ["size 128"])


def test_a_gate_of_many_blocks_follows_from_its_runs_seed() -> None:
    """More than 13 blocks draw patterns of signs."""
    luck = np.random.default_rng(1)
    noisy: dict[int, Value] = {block: float(math.exp(luck.normal(0, 0.1))) for block in range(20)}
    family = [asked(noisy, dict.fromkeys(range(20), 1.0))]
    ends = {gate_of(family=family).losses[0].at_least for _ in range(3)}
    assert len(ends) == 1
