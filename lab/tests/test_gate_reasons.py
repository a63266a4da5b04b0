"""What a gate ends in, and the reasons that it tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import numpy as np
import pytest
from made_records import point_summary, run_record

from plimsoll_lab.analysis.gate import judge_gate
from plimsoll_lab.stats.best import FigureComparison, Value
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.run_record import FamilyRecord
from plimsoll_lab.store.search_record import LimitedBy, SearchRecord, SearchSettingsRecord, SearchState
from plimsoll_lab.store.summary_record import GateOutcome, GateRecord, LimitSummary, PointSummary
from plimsoll_lab.suite.figures import FIGURES, capacity_figure
from plimsoll_lab.suite.spec import SearchSettings

TOLERANCE = 0.05
ALIKE = FigureComparison(
    figure="completed_rate",
    better="higher",
    at={"load.connections": 8},
    contenders={name: {block: 1000.0 + block for block in range(12)} for name in ("base", "new")},
    absent=(),
)


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
    assert found.text == f"The gate failed. {first} 4 more reasons are on the page."
    assert len(found.reasons) == 5
    assert max(len(each.split()) for each in found.text.split(". ")) <= 25


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


def test_a_gate_says_in_how_many_trials_a_contender_failed() -> None:
    (point,) = places_of(("new", 8, "failed", "it ended"))
    found = gate_of([point.model_copy(update={"n": 10, "outcomes": {"failed": 6, "ok": 4}})])
    assert found.reasons == ["new failed at 8 connections (in 6 of 10 trials): it ended"]


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

    assert text(2) == "The gate failed. c0 failed at 1 connection: reason 0. c1 failed at 1 connection: reason 1."
    assert text(3) == "The gate failed. c0 failed at 1 connection: reason 0. 2 more reasons are on the page."


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
    """A value below one is none, nor is one that is known from above alone."""
    zero, below = (
        gate_of(family=[asked({**EXACT, 2: 0.0}, EXACT)]),
        gate_of(family=[asked({**EXACT, 2: (0.0, 0.0)}, EXACT)]),
    )
    for found in (zero, below):
        assert found.outcome == "undecided"
        assert found.reasons == [f"{MEMORY} was zero, which has no ratio to another value"]
        assert found.losses[0].blocks == 0
    from_above = gate_of(family=[asked({**EXACT, 2: (0.0, 9.0)}, EXACT)])
    assert (from_above.reasons, from_above.losses[0].blocks) == ([], len(EXACT))
    assert "has only an upper bound in some blocks" in from_above.text
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


@pytest.mark.parametrize(
    ("met", "outcome", "reason"),
    [
        ({"new": False}, "worse", "new misses the limit p99 < 5ms at 8 connections"),
        ({"new": None}, "undecided", "whether new meets the limit p99 < 5ms at 8 connections cannot be told"),
        ({"new": True}, "pass", None),
        # What the baseline misses is no loss.
        ({"base": False}, "pass", None),
    ],
)
def test_a_gate_does_not_pass_what_misses_a_limit_of_the_suite(
    met: Mapping[object, bool | None], outcome: GateOutcome, reason: str | None
) -> None:
    """It passed with a limit that every trial missed, in exit code 0."""
    limit = LimitSummary(point={}, limit="p99 < 5ms", figure="p99", median=1.0, median_ci95=(1.0, 1.0), met=None)
    points = [
        each.model_copy(
            update={"limits": [limit.model_copy(update={"met": met[name]}) for name in met.keys() & {name}]}
        )
        for each in places_of(("base", 8, "ok", None), ("new", 8, "ok", None))
        for name in (each.point["contender"],)
    ]
    found = gate_of(points, family=[ALIKE])
    assert (found.outcome, found.reasons) == (outcome, [] if reason is None else [reason])
    if outcome == "worse":
        assert found.text == f"The gate finds a limit that is missed. {reason}.", "there is no loss"
    # One that is judged is missed although the emulator disturbed the figure of another one.
    doubtful = gate_of([each.model_copy(update={"doubtful": True}) for each in points], family=[ALIKE])
    doubt = "figures of base and new are doubtful"
    assert doubtful.outcome == ("worse" if outcome == "worse" else "undecided")
    assert doubtful.reasons == [doubt, *([] if reason is None else [reason])]


def test_a_gate_tells_a_loss_beside_a_limit_that_is_missed() -> None:
    limit = LimitSummary(point={}, limit="p99 < 5ms", figure="p99", median=1.0, median_ci95=(1.0, 1.0), met=False)
    base, new = places_of(("base", 8, "ok", None), ("new", 8, "ok", None))
    half = {block: value / 2 for block, value in ALIKE.contenders["new"].items() if isinstance(value, float)}
    slower = replace(ALIKE, contenders={**ALIKE.contenders, "new": half})
    found = gate_of([base, new.model_copy(update={"limits": [limit]})], family=[slower])
    assert found.text.startswith(
        "The gate finds a loss. new's completed rate at 8 connections is at least 50.0 % worse"
    )
    assert found.text.endswith("new misses the limit p99 < 5ms at 8 connections.")


def test_a_gate_over_a_network_that_was_not_asked_for_decides_nothing() -> None:
    points = places_of(("base", 8, "ok", None), ("new", 8, "ok", None))
    doubtful = [each.model_copy(update={"doubtful": True}) for each in points]
    found = gate_of(doubtful, family=[ALIKE])
    assert (found.outcome, found.reasons) == ("undecided", ["figures of base and new are doubtful"])
    assert gate_of(points, family=[ALIKE]).outcome == "pass"


Capacity = tuple[int | None, int | None]


def gate_of_capacities(base: Sequence[Capacity], new: Sequence[Capacity], limited_by: LimitedBy) -> GateRecord:
    """The bounds of each block; those of `new` were limited so where they have no upper one."""
    run = run_record()
    run.family = FamilyRecord(
        compare="contender", figures=("capacity",), margin=0.05, baseline="base", tolerance=TOLERANCE
    )
    settings = SearchSettings(over="load.connections", lowest=100, highest=9000)
    run.search, run.figures = SearchSettingsRecord(**asdict(settings)), (capacity_figure(settings), *FIGURES)
    run.searches = [
        SearchRecord(
            number=block, block=block, point=0, setting={"contender": name}, state="complete", lower=lower, upper=upper,
            limited_by="server" if upper is not None else limited_by,
        )
        for name, capacities in (("base", base), ("new", new))
        for block, (lower, upper) in enumerate(capacities, start=1)
    ]  # fmt: skip
    points = [point_summary({"contender": name}, number) for number, name in enumerate(("base", "new"))]
    found = judge_gate(run, [], points, [])
    assert found is not None
    return found


def test_a_build_that_carries_not_even_the_lowest_load_has_lost_what_the_other_carries_beyond_it() -> None:
    found = gate_of_capacities([(1000, 1050)] * 6, [(None, 100)] * 6, "server")
    assert (found.outcome, found.sentences) == (
        "worse",
        ["The gate finds a loss.", "new's capacity is at least 90.0 % worse."],
    )
    (loss,) = found.losses
    assert loss.at_least == pytest.approx(0.9)
    assert loss.at_most is None


def test_capacities_without_an_end_are_bounded_on_one_side() -> None:
    found = gate_of_capacities([(1000, 1050)] * 6, [(900, 950)] * 4 + [(900, None)] * 2, "generator")
    assert (found.outcome, found.sentences) == (
        "undecided",
        ["The gate is undecided.", "new's capacity is bounded on one side alone by some of its searches."],
    )
