"""What a trial that was cut, or that the generator limited, gives to a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from made_records import point_summary, run_record

from plimsoll_lab.analysis.family import figure_comparisons, unlike_cuts, value_of
from plimsoll_lab.analysis.gate import judge_gate
from plimsoll_lab.stats.best import FigureComparison
from plimsoll_lab.stats.verdict import Verdict, rank, verdicts
from plimsoll_lab.store.records import CutRecord, Outcome, ResultWarning, TakenRecord, TrialRecord
from plimsoll_lab.store.run_record import FamilyRecord
from plimsoll_lab.suite.figures import FIGURES as ALL_FIGURES


def test_a_percentile_with_bounds_is_judged_by_them_and_unlike_cuts_by_nothing() -> None:
    def trial(point: int, share: float, block: int) -> TrialRecord:
        cut = CutRecord(
            moments=1, share=share, requests=1, touched=0, completed_rate=100.0,
            bounds={"response_time_us.p99": (1000.0, 3000.0)}, estimates={"response_time_us.p99": 2000.0}, doubted=[],
        )  # fmt: skip
        return TrialRecord(
            number=block, block=block, point=point, setting={}, outcome="ok", reason=None, warnings=(), cut=cut,
            figures={"response_time_us.p99": 2000.0, "completed_rate": 100.0}, started_unix_s=0, elapsed_s=1,
            server={}, load={}, machine={},
        )  # fmt: skip

    assert value_of(trial(0, 0.01, 1), "response_time_us.p99") == (1000.0, 3000.0)
    assert value_of(trial(0, 0.01, 1), "completed_rate") == 100.0
    points = [point_summary({"server.model": "a"}, 0), point_summary({"server.model": "b"}, 1)]

    def asked(figure: str, other: float) -> str | None:
        return unlike_cuts(figure, points, {0: [trial(0, 0.010, 1)], 1: [trial(1, other, 1)]})

    assert asked("response_time_us.p99", 0.014) is None
    assert "1.0 % of one contender's time and 1.6 %" in str(asked("response_time_us.p99", 0.016))
    assert asked("response_time_us.p50", 0.016) is None
    assert asked("completed_rate", 0.5) is None


@pytest.mark.parametrize(("late", "compared"), [(1, ["a", "b"]), (2, ["b"])])
def test_a_contender_that_seldom_tells_its_tail_has_none_to_compare(late: int, compared: list[str]) -> None:
    def trial(point: int, block: int) -> TrialRecord:
        told = {"response_time_us.p99": 2000.0} if point or block >= late else {}
        return TrialRecord(
            number=block, block=block, point=point, setting={}, outcome="ok", reason=None, warnings=(),
            figures={"response_time_us.p50": 1000.0, **told}, started_unix_s=0, elapsed_s=1,
            server={}, load={}, machine={},
        )  # fmt: skip

    run = run_record()
    figures = ("response_time_us.p50", "response_time_us.p99")
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=figures, margin=0.05)
    points = [point_summary({"server.model": "a"}, 0), point_summary({"server.model": "b"}, 1)]
    of_points = {point: [trial(point, block) for block in range(12)] for point in (0, 1)}
    median, tail = figure_comparisons(run, points, of_points)
    assert list(median.contenders) == ["a", "b"]
    assert (list(tail.contenders), list(tail.absent)) == (compared, [each for each in "ab" if each not in compared])
    (_, verdict) = verdicts(rank([median, tail], seed=1), margin=0.05, seed=1)
    why = "only 83 % of its trials tell this figure"
    assert verdict.unranked == ({} if late == 1 else {"a": why})
    assert (why in verdict.reason) is (late == 2)


def late_mean(point: int, block: int, mean_us: float, *, late: bool) -> TrialRecord:
    """A trial whose mean is the generator's own lateness by half or more, or is not."""
    figures = {} if late else {MEAN: mean_us}
    return TrialRecord(
        number=block, block=block, point=point, setting={}, outcome="ok", reason=None, warnings=(), figures=figures,
        late_figures={MEAN: 3 * mean_us} if late else {}, started_unix_s=0, elapsed_s=1, server={}, load={}, machine={},
    )  # fmt: skip


def judged(late: Mapping[str, Sequence[bool]], means_us: Mapping[str, float]) -> tuple[FigureComparison, Verdict]:
    """Contenders in twelve blocks: in which of them the generator was too late, and their means."""
    run = run_record()
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=(MEAN,), margin=0.05)
    points = [point_summary({"server.model": name}, number) for number, name in enumerate(late)]
    made = {
        number: [
            late_mean(number, block, means_us[name] * (1 + 0.01 * math.sin(7 * block + number)), late=is_late)
            for block, is_late in enumerate(late[name])
        ]
        for number, name in enumerate(late)
    }
    [asked] = figure_comparisons(run, points, made)
    [verdict] = verdicts(rank([asked], seed=1), margin=0.05, seed=1)
    return asked, verdict


MEAN = "response_time_us.mean"
HALF = [True, False] * 6
NEVER = [False] * 12


def test_of_contenders_whose_lateness_is_seldom_told_a_slow_one_is_not_the_best() -> None:
    """The generator's lag is most of what a fast server takes, and little of what a slow one does:
    the slow one was called best, as the fast ones could not be compared.
    """
    late = {"fast": HALF, "quick": [True] * 12, "slow": NEVER, "slower": NEVER}
    asked, verdict = judged(late, {"fast": 50.0, "quick": 60.0, "slow": 5000.0, "slower": 9000.0})
    assert (asked.absent, asked.untold) == ((), {})
    hidden, sure, other = asked.beside["fast", "slow"][0], asked.contenders["fast"][1], asked.beside["quick", "slow"][5]
    assert sure == pytest.approx(50.0, rel=0.02)
    assert hidden == pytest.approx((0.0, 150.0), rel=0.02)
    assert other == pytest.approx((0.0, 180.0), rel=0.02)
    assert sorted(verdict.best) == ["fast", "quick"]
    assert [each.name for each in verdict.others] == ["slow", "slower"]
    # By no more than the truth, and by little less than beside what the fast ones took at most.
    slow, slower = verdict.others
    assert 5000 / 200 < slow.at_least < 5000 / 50
    assert 9000 / 200 < slower.at_least < 9000 / 50
    assert verdict.call == "not shown", "the two fast ones are not ranked"


def test_a_slow_contender_that_tells_all_of_its_times_changes_nothing_between_two_that_tell_half() -> None:
    late, means_us = {"fast": HALF, "quick": HALF}, {"fast": 50.0, "quick": 60.0, "slow": 5000.0}
    asked, alone = judged(late, means_us)
    beside, all_three = judged({**late, "slow": NEVER}, means_us)
    [one], [other] = rank([asked], seed=1), rank([beside], seed=1)
    assert other.pairs["quick", "fast"].blocks == one.pairs["quick", "fast"].blocks == 6
    assert other.pairs["quick", "fast"].estimate == one.pairs["quick", "fast"].estimate
    assert (alone.winner, alone.call) == (all_three.winner, all_three.call) == ("fast", "better")
    assert [each.name for each in all_three.others] == ["quick", "slow"]


def test_where_one_of_two_that_hide_most_is_told_less_what_both_hide_counts() -> None:
    """The one that told a single trial had too few blocks, and the other one was best alone."""
    seldom = [block not in {3, 8} for block in range(12)]
    asked, verdict = judged({"direct": seldom, "forwarded": [True] * 12}, {"direct": 40.0, "forwarded": 90.0})
    assert len(asked.values_of("direct", "forwarded")) == len(asked.values_of("forwarded", "direct")) == 12
    assert asked.values_of("direct", "forwarded")[3] == pytest.approx(40.0, rel=0.02)
    assert sorted(verdict.best) == ["direct", "forwarded"]
    assert (verdict.call, verdict.others, verdict.unranked) == ("not shown", [], {})
    # One hidden trial in ten is passed over: a slow contender is worse all the same.
    rarely = [block == 5 for block in range(12)]
    _, worse = judged({"direct": HALF, "slow": rarely}, {"direct": 40.0, "slow": 4000.0})
    assert (worse.best, [each.name for each in worse.others]) == (["direct"], ["slow"])
    # Of two that tell alike nothing else counts, and too little is left.
    alike, nothing = judged({"direct": [block != 3 for block in range(12)], "forwarded": [True] * 12}, {
        "direct": 40.0, "forwarded": 90.0,
    })  # fmt: skip
    assert (alike.beside, alike.untold) == ({}, {"forwarded": "none of its trials tells this figure"})
    assert (nothing.best, nothing.unranked["direct"]) == ([], "1 valid block, at least 6 are needed")


def test_a_contender_whose_lateness_may_be_all_of_its_time_is_never_called_worse() -> None:
    """Its trials that tell the figure alone would have it take twice as long as the other."""
    _, verdict = judged({"late": HALF, "sure": NEVER}, {"late": 200.0, "sure": 100.0})
    assert sorted(verdict.best) == ["late", "sure"]
    assert (verdict.others, verdict.call) == ([], "not shown")


def test_what_a_late_trial_took_at_most_is_taken_where_others_tell_more_and_never_of_fewer_trials() -> None:
    """Of two that tell alike the trials that tell it are compared, as before."""
    asked, verdict = judged({"a": HALF, "b": HALF}, {"a": 100.0, "b": 200.0})
    assert asked.contenders["a"].keys() == {1, 3, 5, 7, 9, 11}
    assert (verdict.best, verdict.call) == (["a"], "better")
    # Of a trial in which the network was disturbed too, no upper bound is known.
    run = run_record()
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=(MEAN,), margin=0.05)
    points = [point_summary({"server.model": name}, number) for number, name in enumerate("ab")]
    unknown = [replace(late_mean(0, block, 9.0, late=True), late_figures={}) for block in range(12)]
    told = [late_mean(1, block, 9.0, late=False) for block in range(12)]
    [none] = figure_comparisons(run, points, {0: unknown, 1: told})
    assert (none.absent, none.untold) == (("a",), {"a": "none of its trials tells this figure"})


def test_a_gate_takes_a_late_response_time_for_no_zero() -> None:
    """A new build whose lateness is hidden passes by what it took at most, and is never worse."""
    run = run_record()
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=(MEAN,), margin=0.05, baseline="old", tolerance=0.05)
    founds = [
        judge_gate(run, [judged({"new": HALF, "old": NEVER}, {"new": new_us, "old": 1000.0})[0]], [], [])
        for new_us in (100.0, 900.0)
    ]
    assert [(each.outcome, each.reasons) for each in founds if each is not None] == [("pass", []), ("undecided", [])]
    found = founds[1]
    assert found is not None
    why = "has only an upper bound in some blocks, where the generator was late or others had the CPUs"
    assert found.text == f"The gate is undecided. new's response time, mean {why}."


def test_a_gate_takes_what_is_bounded_from_above_alone_for_no_zero() -> None:
    """Of one trial a moment in the first second left no lower bound: the baseline was zero, and
    nothing was compared.
    """
    run = run_record()
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=(MEAN,), margin=0.05, baseline="old", tolerance=0.05)
    means_us = {"old": 2000.0, "new": 4000.0}
    points = [point_summary({"server.model": name}, number) for number, name in enumerate(means_us)]
    made = {
        number: [late_mean(number, block, mean_us + block, late=False) for block in range(12)]
        for number, mean_us in enumerate(means_us.values())
    }
    taken = TakenRecord(moments=1, share=1.0, requests=1000, bounds={MEAN: (0.0, 2000.0)})
    made[0][0] = replace(made[0][0], taken=taken)
    found = judge_gate(run, figure_comparisons(run, points, made), [], [])
    assert found is not None
    assert (found.outcome, found.reasons) == ("worse", [])


def test_of_a_contender_without_a_figure_nothing_is_said_that_it_did_not_do() -> None:
    """It was said to have stopped, where its rate was cut away, or the generator was the limit."""

    def trial(point: int, block: int) -> TrialRecord:
        return TrialRecord(
            number=block, block=block, point=point, setting={}, outcome="generator_limited" if point == 2 else "ok",
            reason=None, warnings=(), figures={} if point else {"completed_rate": 100.0 + block}, started_unix_s=0,
            elapsed_s=1, server={}, load={}, machine={},
        )  # fmt: skip

    run = run_record()
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=("completed_rate",), margin=0.05)
    outcomes: tuple[Outcome, ...] = ("ok", "ok", "generator_limited")
    points = [
        point_summary({"server.model": name}, number, outcome)
        for number, (name, outcome) in enumerate(zip("abc", outcomes, strict=True))
    ]
    asked = figure_comparisons(run, points, {point: [trial(point, block) for block in range(12)] for point in range(3)})
    (verdict,) = verdicts(rank(asked, seed=1), margin=0.05, seed=1)
    assert verdict.reason == (
        "no other contender could be compared here: b: none of its trials tells this figure; c: the generator was the "
        "limit"
    )


def test_a_generator_at_its_limit_bounds_the_rate_and_leaves_what_is_the_servers_own() -> None:
    figures = {"completed_rate": 100.0, "response_time_us.p50": 5.0, "server.cpu_us_per_request": 7.0}
    limited = TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="generator_limited", reason="its thread was full", warnings=(),
        figures=figures, started_unix_s=0, elapsed_s=1, server={}, load={}, machine={},
    )  # fmt: skip
    assert value_of(limited, "completed_rate") == (100.0, math.inf)
    assert value_of(limited, "response_time_us.p50") is None
    assert value_of(limited, "server.cpu_us_per_request") == 7.0
    # Other programs that took the generator's CPU make it no more than late.
    warnings = [
        ResultWarning(code=code, message="so it was", remedy="less") for code in ("machine_busy", "generator_late")
    ]
    busy = replace(limited, outcome="invalid", warnings=warnings)
    assert value_of(busy, "completed_rate") == (100.0, math.inf)
    assert (value_of(busy, "response_time_us.p50"), value_of(busy, "server.cpu_us_per_request")) == (None, 7.0)
    for spoilt in (replace(limited, outcome="invalid"), replace(limited, outcome="failed", warnings=warnings)):
        assert value_of(spoilt, "server.cpu_us_per_request") is None
    assert value_of(replace(busy, warnings=warnings[:1]), "completed_rate") is None


@pytest.mark.parametrize("figure", ["connections.established", "server.peak_connections", "host.memory_bytes"])
def test_what_grows_with_connections_stands_where_all_were_up_and_is_a_lower_bound_elsewhere(figure: str) -> None:
    figures = {
        "connections.established": 800.0,
        "connections.never_established": 0.0,
        "server.peak_connections": 800.0,
        "host.memory_bytes": 900.0,
    }
    limited = TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="generator_limited", reason="it was late", warnings=(),
        figures=figures, started_unix_s=0, elapsed_s=1, server={}, load={}, machine={},
    )  # fmt: skip
    assert value_of(limited, figure) == figures[figure]
    never = "connections.never_established"
    assert value_of(limited, never) == 0
    assert value_of(replace(limited, figures=figures | {never: 3.0}), never) is None
    for short in ({"server.peak_connections": 700.0}, {"connections.never_established": 3.0}):
        fewer = replace(limited, figures=figures | short)
        assert value_of(fewer, figure) == (fewer.figures[figure], math.inf)


@pytest.mark.parametrize("outcome", ["generator_limited", "invalid"])
def test_a_contender_without_a_result_is_named_where_the_others_are_compared(outcome: Outcome) -> None:
    """The generator limited the fast one in each trial; the slow one was called better than every
    other, and not a word was said of the fast one.
    """
    run = run_record()
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=(MEAN,), margin=0.05)
    means_us = {"fast": 50.0, "slow": 5000.0, "slower": 9000.0}
    points = [
        point_summary({"server.model": name}, number, outcome if name == "fast" else "ok")
        for number, name in enumerate(means_us)
    ]
    made = {
        number: [
            late_mean(number, block, means_us[name] * (1 + 0.01 * math.sin(7 * block + number)), late=False)
            for block in range(12)
        ]
        for number, name in enumerate(means_us)
    }
    made[0] = [replace(each, outcome=outcome) for each in made[0]]
    [asked] = figure_comparisons(run, points, made)
    [verdict] = verdicts(rank([asked], seed=1), margin=0.05, seed=1)
    assert (asked.absent, list(verdict.unranked)) == (("fast",), ["fast"])
    assert [each.name for each in verdict.others] == ["slower"]


def test_trials_with_a_late_generator_are_part_of_those_that_may_tell_a_figure() -> None:
    """Of the fast one those that missed a limit were left out: it was compared by the others."""
    run = run_record()
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=(MEAN,), margin=0.05)
    points = [point_summary({"server.model": name}, number) for number, name in enumerate(("fast", "slow"))]
    made = {number: [late_mean(number, block, 100.0 + block, late=False) for block in range(12)] for number in (0, 1)}
    [whole] = figure_comparisons(run, points, made)
    assert list(whole.contenders) == ["fast", "slow"]
    made[0] = [replace(each, outcome="generator_limited") if each.block % 2 else each for each in made[0]]
    [asked] = figure_comparisons(run, points, made)
    assert (list(asked.contenders), asked.untold) == (["slow"], {"fast": "only 50 % of its trials tell this figure"})


def test_what_stopped_changes_nothing_between_the_others() -> None:
    """One trial of a contender that failed in the others told its mean, and these two told less of
    theirs than it; a part of its time was cut out too.
    """
    late = {"a": [True, *[False] * 4] * 2, "b": [True, *[False] * 4] * 2}
    run = run_record()
    run.figures = ALL_FIGURES
    run.family = FamilyRecord(compare="server.model", figures=(MEAN,), margin=0.05)
    made = {
        number: [
            replace(late_mean(number, block, 100.0 + block, late=is_late), late_figures={})
            for block, is_late in enumerate(late[name])
        ]
        for number, name in enumerate(late)
    }
    two = [point_summary({"server.model": name}, number) for number, name in enumerate(late)]
    [alone] = figure_comparisons(run, two, made)
    stopped = point_summary({"server.model": "c"}, 2, "failed", "it fell over")
    made[2] = [late_mean(2, 0, 100.0, late=False)]
    [beside] = figure_comparisons(run, [*two, stopped], made)
    assert list(alone.contenders) == ["a", "b"]
    assert beside.contenders == alone.contenders
