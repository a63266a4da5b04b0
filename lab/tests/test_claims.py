"""Claims of documents: what is confirmed, contradicted, or neither."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_claims import CLAIMED, judged, made, points, trial
from made_records import calibration_record, point_summary, run_record

from plimsoll_lab.analysis.claims import compare_references, decide_claim, judge_claims
from plimsoll_lab.store.records import CutRecord, Outcome, TakenRecord, TrialRecord
from plimsoll_lab.store.summary_record import PointSummary
from plimsoll_lab.suite.documents import Reference
from plimsoll_lab.suite.figures import FIGURES
from plimsoll_lab.suite.settings import Settings


@pytest.mark.parametrize(
    ("interval", "portable", "outcome"),
    [
        ((1.6, 2.9), True, "confirmed"),
        ((1.6, 2.9), False, "other hardware"),
        ((1.4, 2.9), True, "cannot be told"),
        ((2.0, 3.1), True, "cannot be told"),
        ((0.5, 4.0), True, "cannot be told"),
        ((0.5, 1.4), True, "contradicted"),
        ((3.1, 9.0), True, "contradicted"),
        ((3.1, 9.0), False, "contradicted"),
        ((-3.0, -2.0), True, "contradicted"),
        (None, True, "cannot be told"),
    ],
)
def test_an_outcome_rests_on_the_whole_interval(
    *, interval: tuple[float, float] | None, portable: bool, outcome: str
) -> None:
    assert decide_claim(interval, 1.5, 3.0, portable=portable) == outcome


def test_blocks_pair_what_is_compared() -> None:
    told = judged(CLAIMED)
    assert told.outcome == "confirmed"
    assert told.value == pytest.approx(2.0)
    assert told.interval == pytest.approx((2.0, 2.0)), "each block doubles, however far the blocks lie apart"


def test_a_point_without_a_result_is_not_reachable_and_says_why() -> None:
    told = judged(CLAIMED, outcome="hard_limit")
    assert (told.outcome, told.value) == ("not reachable here", None)
    assert told.reason == "hard limit: too few ports"
    assert judged(replace(CLAIMED, at={"load.connections": 99})).outcome == "not reachable here"


def test_a_claim_about_failures_counts_the_trials_that_failed() -> None:
    """Five of nine had none, and the four that had were no results: it was confirmed."""
    claim = replace(CLAIMED, figure="failed_ratio", over=None, expect="<= 0.5%", least=0.0, most=0.005)
    run = run_record()
    run.claims = [claim]
    trials = [
        replace(trial(number, 1, number, 0.0, "ok" if ratio == 0 else "failed"), figures={"failed_ratio": ratio})
        for number, ratio in enumerate([0.0] * 5 + [0.3] * 4)
    ]
    here = [points()[0], point_summary({"load.connections": 20}, 1, failed_ratio=0.0)]
    assert judge_claims(run, here, trials[:5])[0].outcome == "confirmed"
    assert judge_claims(run, here, trials)[0].outcome == "contradicted"


def test_a_point_that_is_told_from_no_other_is_no_point() -> None:
    told = judged(replace(CLAIMED, at={}))
    assert told.outcome == "not reachable here"
    assert "has to name one" in told.reason


def test_one_repetition_tells_nothing() -> None:
    told = judged(CLAIMED, values={0: [10.0], 1: [20.0]})
    assert (told.outcome, told.reason) == ("cannot be told", "one block has no interval; 1 of 5 blocks tell it")


@pytest.mark.parametrize("zero", [0, 1])
def test_no_block_is_left_out_for_a_value_of_zero(zero: int) -> None:
    series = {0: [10.0, 20.0, 40.0], 1: [20.0, 40.0, 80.0]}
    series[zero][0] = 0.0
    told = judged(CLAIMED, values=series)
    assert (told.outcome, told.value, told.interval) == ("cannot be told", None, None)
    assert told.reason == "a value of zero has no ratio to another"


@pytest.mark.parametrize(
    ("least", "most", "outcome"),
    [
        # `> 1` and `< 1`: the bound is no part of the range.
        (math.nextafter(1.0, math.inf), None, "contradicted"),
        (0.0, math.nextafter(1.0, -math.inf), "contradicted"),
        # `>= 1` and `<= 1`: equal ones are in it.
        (1.0, None, "confirmed"),
        (0.0, 1.0, "confirmed"),
        (1.5, 3.0, "contradicted"),
        (0.8, 1.25, "confirmed"),
    ],
)
def test_of_two_that_are_zero_throughout_neither_is_more(least: float | None, most: float | None, outcome: str) -> None:
    claim = replace(CLAIMED, least=least, most=most)
    told = judged(claim, values={0: [0.0, 0.0], 1: [0.0, 0.0]})
    assert (told.outcome, told.value, told.interval) == (outcome, None, None)
    assert told.reason == "every value is zero"
    of_its_hardware = judged(replace(claim, portable=False), values={0: [0.0, 0.0], 1: [0.0, 0.0]})
    assert of_its_hardware.outcome == outcome.replace("confirmed", "other hardware")
    once = judged(claim, values={0: [0.0], 1: [0.0]})
    assert once.outcome == "cannot be told"


def test_points_without_a_block_in_common_are_said_to_have_none() -> None:
    run = run_record()
    run.claims = [CLAIMED]
    apart = [trial(1, 0, 0, 10.0), trial(2, 0, 1, 10.0), trial(3, 1, 2, 20.0), trial(4, 1, 3, 20.0)]
    told = judge_claims(run, points(), apart)[0]
    assert (told.outcome, told.reason) == ("cannot be told", "no block has a result of every point")


def test_points_of_which_one_leaves_more_untold_are_not_held_against_each_other() -> None:
    run = run_record()
    run.claims = [CLAIMED, replace(CLAIMED, over=None)]
    trials = made({0: [10.0, 20.0, 40.0], 1: [20.0, 40.0, 80.0]})
    trials[0] = replace(trials[0], figures={})
    ratio, alone = judge_claims(run, points(), trials)
    assert ratio.outcome == "cannot be told"
    assert ratio.reason.startswith("67 % of one point's trials tell it, 100 % of another's")
    assert "trials tell it" not in alone.reason


def test_a_point_that_leaves_much_untold_is_not_held_against_a_range() -> None:
    """One trial of three told its time, and a claim was confirmed by it."""
    run = run_record()
    run.claims = [replace(CLAIMED, over=None, portable=True, least=0.0, most=1e9)]
    trials = made({1: [20.0, 20.0, 20.0, 20.0]})
    assert judge_claims(run, points(), trials)[0].outcome == "confirmed"
    untold = [replace(each, figures={}) if each.block > 2 else each for each in trials]
    (told,) = judge_claims(run, points(), untold)
    assert told.outcome == "cannot be told"
    assert told.reason.startswith("only ")


def late(trials: Sequence[TrialRecord], block: int, point: int, most: float) -> list[TrialRecord]:
    """The trials, of which one does not tell its time: it took so long at most."""
    figure = "response_time_us.mean"
    return [
        replace(each, figures={}, late_figures={figure: most}) if (each.block, each.point) == (block, point) else each
        for each in trials
    ]


@pytest.mark.parametrize(
    ("point", "most", "least", "greatest", "outcome", "said"),
    [
        # The denominator is hidden in one block of six, and took 10 at most: twice at least.
        (0, 10.0, 1.5, None, "confirmed", "at least "),
        (0, 10.0, 0.0, 1.5, "contradicted", "at least "),
        (0, 10.0, 1.5, 3.0, "cannot be told", "83 % of one point's trials tell it"),
        # It may have been slower than that: nothing is known.
        (0, 400.0, 1.5, None, "cannot be told", "83 % of one point's trials tell it"),
        # So is the numerator: twice at most.
        (1, 20.0, 0.0, 3.0, "confirmed", "at most "),
        (1, 20.0, 3.0, None, "contradicted", "at most "),
        (1, 20.0, 1.5, None, "cannot be told", "83 % of one point's trials tell it"),
    ],
)
def test_a_claim_that_is_decided_by_what_late_trials_took_at_most_is_told(
    point: int, most: float, least: float, greatest: float | None, outcome: str, said: str
) -> None:
    luck = (1.0, 1.01, 0.99, 1.0, 1.02, 0.98)
    trials = made({0: [10.0 * each for each in luck], 1: [20.0] * 6})
    run = run_record()
    run.figures = FIGURES
    run.claims = [replace(CLAIMED, least=least, most=greatest)]
    (told,) = judge_claims(run, points(), late(trials, 3, point, most))
    assert told.outcome == outcome
    assert told.reason.startswith(said)
    if outcome != "cannot be told":
        assert (told.value, told.interval) == (None, None)
        assert " times, where trials with a late generator count by what they took at most" in told.reason


@pytest.mark.parametrize(
    ("point", "least", "most", "outcome", "interval"),
    [
        (1, 0.0, 3.0, "confirmed", (0.0, 2.0)),
        (1, 0.0, 1.5, "cannot be told", (0.0, 2.0)),
        (0, 1.5, None, "confirmed", None),
        (0, 2.5, None, "cannot be told", None),
    ],
)
def test_a_ratio_of_a_time_that_is_bounded_from_above_alone_is_told_where_that_decides(
    point: int, least: float, most: float | None, outcome: str, interval: tuple[float, float] | None
) -> None:
    """It could not be told, for a value of zero that there was none of."""
    trials = made({0: [10.0] * 6, 1: [20.0] * 6})
    unbounded = TakenRecord(
        moments=1, share=1.0, requests=9, bounds={"response_time_us.mean": (0.0, 10.0 * (1 + point))}
    )
    trials = [replace(each, taken=unbounded) if (each.block, each.point) == (3, point) else each for each in trials]
    run = run_record()
    run.figures = FIGURES
    run.claims = [replace(CLAIMED, least=least, most=most)]
    (told,) = judge_claims(run, points(), trials)
    assert told.outcome == outcome
    assert told.value == pytest.approx(2.0)
    assert told.interval == (None if interval is None else pytest.approx(interval))
    assert "zero" not in told.reason
    if interval is None:
        assert told.reason.startswith("at least 2.00 times, where moments at which others had the CPUs")


def test_a_claim_of_one_point_or_a_difference_is_decided_by_what_late_trials_took_at_most() -> None:
    trials = late(made({0: [10.0] * 6, 1: [20.0] * 6}), 3, 1, 22.0)
    run = run_record()
    run.figures = FIGURES
    alone = replace(CLAIMED, over=None, least=0.0, most=40.0)
    run.claims = [alone, replace(CLAIMED, difference=True, least=None, most=30.0), replace(alone, most=20.0)]
    (below, apart, unknown) = judge_claims(run, points(), trials)
    assert (below.outcome, below.reason.partition(",")[0]) == ("confirmed", "between 8.09 us and 21.2 us")
    assert (apart.outcome, apart.reason.partition(",")[0]) == ("confirmed", "at most 11.2 us")
    assert (unknown.outcome, unknown.value) == ("cannot be told", 20.0)
    # Of a trial that is not bounded either nothing follows.
    (hidden, _, _) = judge_claims(run, points(), [replace(each, late_figures={}) for each in trials])
    assert hidden.outcome == "cannot be told"


def test_a_figure_beside_a_documents_says_that_its_network_was_another() -> None:
    run = run_record()
    run.references = [
        Reference(figure="response_time_us.mean", at={"load.connections": 20}, value=50.0, source="a document", text="")
    ]
    numbers = [each.number for each in points()]
    run.calibrations = [calibration_record(numbers)]
    (found,) = compare_references(run, points(), made({1: [90.0, 110.0]}))
    assert found.ratio == 2.0
    assert str(found.reason).startswith("the network is not what was asked for: from h1 to h2")


def test_a_figure_beside_a_documents_says_that_few_of_its_trials_tell_it() -> None:
    """Of a claim about it that was said, and of the figure beside theirs not."""
    run = run_record()
    run.references = [
        Reference(figure="response_time_us.mean", at={"load.connections": 20}, value=50.0, source="a document", text="")
    ]
    trials = made({1: [90.0, 110.0, 100.0, 100.0]})
    assert compare_references(run, points(), trials)[0].reason is None
    (found,) = compare_references(run, points(), [*trials[:2], *(replace(each, figures={}) for each in trials[2:])])
    assert (found.ours, found.reason) == (100.0, "only 50 % of the point's trials tell it: the rest may be the slowest")


def test_an_effect_can_be_larger_here_than_there() -> None:
    pair: tuple[Settings, Settings] = ({"load.connections": 10}, {"load.connections": 20})
    told = judged(replace(CLAIMED, against=pair, least=1.0, most=None))
    assert told.value == pytest.approx(4.0)
    assert told.outcome == "confirmed"


def test_a_difference_has_the_figures_unit_and_may_lie_below_its_range() -> None:
    added = replace(CLAIMED, difference=True, least=9.0, most=None)
    blocks = {0: [10.0, 20.0, 40.0], 1: [20.0, 31.0, 49.0]}
    told = judged(added, values=blocks)
    assert told.value == pytest.approx(10.0)
    assert told.interval == pytest.approx((10.0 - 2.484, 10.0 + 2.484), rel=1e-3)
    assert told.outcome == "cannot be told"
    assert told.difference
    saved = replace(added, at={"load.connections": 10}, over={"load.connections": 20}, least=1.0)
    assert judged(saved, values=blocks).outcome == "contradicted"
    # Nothing is divided, so a value of zero is one like any other.
    assert judged(added, values={0: [0.0] * 3, 1: [10.0] * 3}).outcome == "confirmed"
    pair: tuple[Settings, Settings] = ({"load.connections": 10}, {"load.connections": 20})
    assert judged(replace(added, against=pair), values=blocks).value == pytest.approx(20.0)


def test_a_time_of_other_hardware_is_never_confirmed() -> None:
    told = judged(replace(CLAIMED, over=None, portable=False, least=0.0, most=1e9))
    assert told.outcome == "other hardware"


def test_a_figure_of_a_document_stands_beside_ours() -> None:
    run = run_record()
    run.references = [
        Reference(figure="response_time_us.mean", at={"load.connections": 20}, value=50.0, source="a document", text="")
    ]
    assert compare_references(run, points(), made({1: [90.0, 110.0]}))[0].ratio == 2.0


def test_a_late_generator_spoils_response_times_and_not_what_the_server_costs() -> None:
    cost, time_us = "server.cpu_us_per_request", "response_time_us.mean"
    here: list[PointSummary] = [point_summary({"load.connections": 20}, 0, "generator_limited", "it was late")]
    slowed = [
        replace(trial(block, 0, block, 50.0, "generator_limited"), figures={cost: 12.0, time_us: 50.0})
        for block in range(2)
    ]
    run = run_record()
    claim = replace(CLAIMED, figure=cost, over=None, least=10.0, most=20.0, portable=True)
    run.claims = [claim, replace(claim, figure=time_us)]
    assert [told.outcome for told in judge_claims(run, here, slowed)] == ["confirmed", "not reachable here"]


def test_what_a_server_held_at_its_own_limit_is_a_result() -> None:
    held = "server.peak_connections"
    here: list[PointSummary] = [point_summary({"load.connections": 20}, 0, "hard_limit", "it held 1017 at most")]
    stopped = [
        replace(trial(block, 0, block, 0.0, "hard_limit"), figures={held: 1017.0, "elapsed_s": 1.0})
        for block in range(2)
    ]
    run = run_record()
    claim = replace(CLAIMED, figure=held, over=None, least=1000.0, most=2000.0, portable=True)
    run.claims = [claim, replace(claim, figure="elapsed_s")]
    run.references = [Reference(figure=held, at={"load.connections": 20}, value=1017.0, source="a document", text="")]
    assert [told.outcome for told in judge_claims(run, here, stopped)] == ["confirmed", "not reachable here"]
    assert compare_references(run, here, stopped)[0].ratio == 1.0


def cut_between(low: float, high: float) -> CutRecord:
    return CutRecord(
        moments=1,
        share=0.01,
        requests=1,
        touched=0,
        completed_rate=1.0,
        bounds={"response_time_us.mean": (low, high)},
        estimates={},
        doubted=(),
    )


@pytest.mark.parametrize(("high", "outcome"), [(21.0, "confirmed"), (40.0, "cannot be told")])
def test_a_disturbed_trial_tells_a_claim_as_much_as_its_bounds_do(high: float, outcome: str) -> None:
    trials = [
        replace(trial(10 * point + block, point, block, value), cut=cut_between(value, high if point else value))
        for block in range(3)
        for point, value in enumerate((10.0, 20.0))
    ]
    run = run_record()
    run.claims = [CLAIMED]
    told = judge_claims(run, points(), trials)[0]
    assert told.outcome == outcome
    assert told.value == pytest.approx(2.0)
    assert told.interval == pytest.approx((2.0, high / 10))


def test_a_figure_that_was_cut_away_is_said_to_be() -> None:
    run = run_record()
    run.claims = [replace(CLAIMED, figure="response_time_us.max", over=None)]
    here: list[PointSummary] = [point_summary({"load.connections": 20}, 0)]
    hidden = replace(trial(1, 0, 1, 20.0), load={"summary": {"doubted": ["response_time_us.max"]}})
    assert judge_claims(run, here, [hidden])[0].reason.startswith("the generator's own lateness is half")
    for cut, said in ((cut_between(1.0, 2.0), "the links disturbed each trial"), (None, "no trial of this point has")):
        told = judge_claims(run, here, [replace(trial(1, 0, 1, 20.0), cut=cut)])[0]
        assert (told.outcome, told.value) == ("not reachable here", None)
        assert told.reason.startswith(said)


@pytest.mark.parametrize(
    "rate",
    [
        "completed_rate",
        "requests.completed",
    ],
)
def test_a_lower_bound_is_not_left_out_of_a_claim(rate: str) -> None:
    outcomes: list[Outcome] = ["ok", "ok", "ok", "generator_limited"]
    trials = [
        replace(trial(block, 0, block, 0.0, outcome), figures={rate: 1000.0}) for block, outcome in enumerate(outcomes)
    ]
    run = run_record()
    run.claims = [replace(CLAIMED, figure=rate, over=None, least=0.0, most=1100.0, portable=True)]
    here: list[PointSummary] = [point_summary({"load.connections": 20}, 0)]
    told = judge_claims(run, here, trials)[0]
    assert (told.outcome, told.value) == ("cannot be told", None)
    assert "only a lower bound" in told.reason
    run.references = [Reference(figure=rate, at={"load.connections": 20}, value=1000.0, source="a document", text="")]
    (beside,) = compare_references(run, here, trials)
    assert beside.ours is None
    assert "only a lower bound" in str(beside.reason)


def test_a_claim_says_how_many_blocks_tell_it() -> None:
    assert judged(CLAIMED).reason.endswith("; 3 of 5 blocks tell it")
    every = {0: [10.0] * 5, 1: [20.0] * 5}
    assert judged(CLAIMED, values=every).reason == "the whole interval lies in the claimed range"


def test_a_response_time_of_one_generator_that_fewer_trials_tell_is_held_against_no_other() -> None:
    """That of all generators was not, and that of a host's was called contradicted."""
    figure = "client.h2.response_time_us.mean"
    trials = [replace(each, figures={figure: each.figures["response_time_us.mean"]}) for each in made(
        {0: [10.0] * 6, 1: [20.0] * 6}
    )]  # fmt: skip
    trials[0] = replace(trials[0], figures={})
    run = run_record()
    run.claims = [replace(CLAIMED, figure=figure, least=3.0, most=None)]
    (told,) = judge_claims(run, points(), trials)
    assert told.outcome == "cannot be told"
    assert told.reason.startswith("83 % of one point's trials tell it, 100 % of another's")
