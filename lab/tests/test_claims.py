"""Claims of documents: what is confirmed, contradicted, or neither; and axes that are more than
numbers.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_records import calibration_record, point_summary, run_record

from plimsoll_lab.analysis.claims import compare_references, decide_claim, judge_claims
from plimsoll_lab.store.records import CutRecord, Outcome, TrialRecord
from plimsoll_lab.store.run_record import PointRecord, RequestRecord, RunRecord
from plimsoll_lab.store.summary_record import ClaimRecord, PointSummary
from plimsoll_lab.suite.documents import Claim, Reference
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Suite

SUITE = """
name = "it"
question = "Well?"
[server]
[load]
each = 2
[matrix]
"load.connections" = [10, 20]
"load.think" = ["1ms", "1s"]
[run]
repeat = 9
"""
CLAIM = """
[[claim]]
name = "twice the clients"
source = "a document"
figure = "response_time_us.mean"
at = { "load.connections" = 20, "load.think" = "1s" }
over = { "load.connections" = 10, "load.think" = "1s" }
expect = "1.5 to 3"
"""


def read(text: str, *, fast: bool = False) -> Suite:
    return read_text(text, source="it.toml", directory="/here", fast=fast)


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


def trial(number: int, point: int, block: int, value: float, outcome: str = "ok") -> TrialRecord:
    return TrialRecord(
        number=number,
        block=block,
        point=point,
        setting={},
        outcome=outcome,  # type: ignore[arg-type]
        reason=None,
        warnings=(),
        figures={"response_time_us.mean": value},
        started_unix_s=0.0,
        elapsed_s=1.0,
        server={},
        load={},
        machine={},
    )


def made(values: dict[int, list[float]]) -> list[TrialRecord]:
    return [
        trial(10 * point + block, point, block, value)
        for point, series in values.items()
        for block, value in enumerate(series)
    ]


def points(outcome: Outcome = "ok") -> list[PointSummary]:
    return [
        point_summary({"load.connections": 10}, 0, outcome, "too few ports"),
        point_summary({"load.connections": 20}, 1, response_time_us__mean=100.0),
    ]


CLAIMED = Claim(
    name="twice",
    source="a document",
    figure="response_time_us.mean",
    at={"load.connections": 20},
    over={"load.connections": 10},
    against=None,
    expect="1.5 to 3",
    least=1.5,
    most=3.0,
    free="",
    portable=True,
)


def judged(claim: Claim, *, outcome: Outcome = "ok", values: dict[int, list[float]] | None = None) -> ClaimRecord:
    series = values if values is not None else {0: [10.0, 20.0, 40.0], 1: [20.0, 40.0, 80.0]}
    run = run_record()
    run.claims = [claim]
    return judge_claims(run, points(outcome), made(series))[0]


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


def test_points_without_a_block_in_common_are_said_to_have_none() -> None:
    run = run_record()
    run.claims = [CLAIMED]
    apart = [trial(1, 0, 0, 10.0), trial(2, 0, 1, 10.0), trial(3, 1, 2, 20.0), trial(4, 1, 3, 20.0)]
    told = judge_claims(run, points(), apart)[0]
    assert (told.outcome, told.reason) == ("cannot be told", "no block has a result of every point")


@pytest.mark.parametrize(
    ("expect", "value", "outcome"),
    [
        ("> 0s", 0.0, "contradicted"),
        (">= 20us", 20.0, "confirmed"),
        ("> 20us", 20.0, "contradicted"),
        ("<= 20us", 20.0, "confirmed"),
        ("< 20us", 20.0, "contradicted"),
        ("< 20us", 19.0, "confirmed"),
        ("< 20us", -1.0, "confirmed"),
    ],
)
def test_a_range_is_without_the_bound_that_it_excludes(expect: str, value: float, outcome: str) -> None:
    text = CLAIM.replace('over = { "load.connections" = 10, "load.think" = "1s" }\n', "portable = true\n")
    (claim,) = read(SUITE + text.replace("1.5 to 3", expect)).claims
    assert judged(replace(claim, at={"load.connections": 20}), values={1: [value] * 3}).outcome == outcome


def test_points_of_which_one_leaves_more_untold_are_not_held_against_each_other() -> None:
    run = run_record()
    run.claims = [CLAIMED, replace(CLAIMED, over=None)]
    trials = made({0: [10.0, 20.0, 40.0], 1: [20.0, 40.0, 80.0]})
    trials[0] = replace(trials[0], figures={})
    ratio, alone = judge_claims(run, points(), trials)
    assert ratio.outcome == "cannot be told"
    assert ratio.reason.startswith("67% of one point's trials tell it, 100% of another's")
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
    late = [
        replace(trial(block, 0, block, 50.0, "generator_limited"), figures={cost: 12.0, time_us: 50.0})
        for block in range(2)
    ]
    run = run_record()
    claim = replace(CLAIMED, figure=cost, over=None, least=10.0, most=20.0, portable=True)
    run.claims = [claim, replace(claim, figure=time_us)]
    assert [told.outcome for told in judge_claims(run, here, late)] == ["confirmed", "not reachable here"]


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


def run_with(text: str, *, changes: Settings | None = None, fast: bool = False, only: str = "") -> RunRecord:
    """A run of a suite's text, as `begin` would write it."""
    kept = {"load.think": [only]} if only else {}
    suite = read_text(text, source="it.toml", directory="/here", changes=changes or {}, fast=fast)
    run = run_record()
    run.suite = run.suite.model_copy(update={"text": text})
    run.request = RequestRecord(suite="it.toml", changes=changes or {}, only=kept, fast=fast)
    run.points = [
        PointRecord(number=point.number, setting=point.setting, server=point.server, load=point.load)
        for point in expand(suite, seed=1, only=kept).points
    ]
    run.claims, run.references, run.settings = suite.claims, suite.references, suite.run
    return run


def judged_as(run: RunRecord) -> ClaimRecord:
    """The one claim of a run, each of whose points has twice the figure of half the connections."""
    here = [point_summary(point.setting, point.number, response_time_us__mean=1.0) for point in run.points]
    values = {point.number: [float(str(point.setting["load.connections"]))] * 9 for point in run.points}
    return judge_claims(run, here, made(values))[0]


@pytest.mark.parametrize(
    ("changes", "fast", "said"),
    [
        ({"load.each": 3}, False, "load.each is 3 and not 2"),
        ({"load.size": "1KiB"}, False, "load.size is 1KiB and not unset"),
        ({"server.workers": 1}, False, "server.workers is 1 and not unset"),
        ({"run.warm_up": "1s"}, False, "run.warm_up is 1s and not unset"),
        ({"network.rtt": "50ms"}, False, "the network is another"),
        ({"capture": True}, False, "capture is true and not false"),
        ({}, True, "load.each is 1 and not 2"),
    ],
)
def test_a_claim_about_points_that_the_run_changed_is_not_judged(
    *, changes: dict[str, str | int | bool], fast: bool, said: str
) -> None:
    told = judged_as(run_with(SUITE + CLAIM + "[fast.load]\neach = 1\n", changes=changes, fast=fast))
    assert (told.outcome, told.value) == ("not reachable here", None)
    assert told.reason.startswith("this run changed the suite there: ")
    assert said in told.reason


def test_a_run_of_more_blocks_or_of_some_points_is_still_about_the_claim() -> None:
    for changes in ({"run.repeat": 9, "run.seed": 5}, {"load.think": "1s"}, {"load.each": 2}):
        assert judged_as(run_with(SUITE + CLAIM, changes=changes)).outcome == "confirmed", changes
    assert judged_as(run_with(SUITE + CLAIM, only="1s")).outcome == "confirmed"


def test_leaving_points_out_makes_no_claim_about_one_of_them() -> None:
    vague = CLAIM.replace(', "load.think" = "1s"', "")
    told = judged_as(run_with(SUITE + vague, only="1s"))
    assert (told.outcome, told.reason) == (
        "not reachable here",
        "2 points of the suite agree with it as it is written",
    )


def test_a_figure_of_a_document_is_not_beside_a_point_that_the_run_changed() -> None:
    text = """[[reference]]
figure = "response_time_us.mean"
at = { "load.connections" = 20, "load.think" = "1s" }
value = "50us"
source = "a document"
"""
    for changes, ratio in (({"load.each": 3}, None), ({"run.repeat": 3}, 2.0)):
        run = run_with(SUITE + text, changes=changes)
        here = [point_summary(point.setting, point.number) for point in run.points]
        (told,) = compare_references(run, here, made({point.number: [100.0] for point in run.points}))
        assert told.ratio == (ratio and pytest.approx(ratio))
        assert ("load.each is 3" in (told.reason or "")) == (ratio is None)


def test_a_claim_about_a_network_that_was_another_cannot_be_told() -> None:
    run = run_with(SUITE + CLAIM)
    run.calibrations = [calibration_record([point.number for point in run.points], off=2.0)]
    told = judged_as(run)
    assert told.outcome == "cannot be told"
    assert told.interval == pytest.approx((2.0, 2.0))
    assert "a round trip of 30.000 ms for 10.000 ms asked" in told.reason


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
    late = replace(trial(1, 0, 1, 20.0), load={"summary": {"doubted": ["response_time_us.max"]}})
    assert judge_claims(run, here, [late])[0].reason.startswith("the generator's own lateness is half")
    for cut, said in ((cut_between(1.0, 2.0), "the links disturbed each trial"), (None, "no trial of this point has")):
        told = judge_claims(run, here, [replace(trial(1, 0, 1, 20.0), cut=cut)])[0]
        assert (told.outcome, told.value) == ("not reachable here", None)
        assert told.reason.startswith(said)


def test_a_lower_bound_is_not_left_out_of_a_claim() -> None:
    rate = "completed_rate"
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


def test_a_claim_says_how_many_blocks_tell_it() -> None:
    assert judged(CLAIMED).reason.endswith("; 3 of 5 blocks tell it")
    every = {0: [10.0] * 5, 1: [20.0] * 5}
    assert judged(CLAIMED, values=every).reason == "the whole interval lies in the claimed range"


ROW = """
[[reference]]
at = { "load.connections" = 20 }
source = "a document, table 1"
values = { "elapsed_s" = "3s", "client.h2.requests.completed" = "6870" }
"""
REFUSALS = {
    "figure": (CLAIM.replace("response_time_us.mean", "speed"), "[[claim]] 1 figure: 'speed' is no figure"),
    "range": (CLAIM.replace("1.5 to 3", "3 to 1.5"), "holds no number"),
    "no range": (CLAIM.replace("1.5 to 3", "twice"), "is no range"),
    "no number": (CLAIM.replace("1.5 to 3", "nan to 3"), "is not a number"),
    "point": (CLAIM.replace('"load.think" = "1s" }\nover', '"load.size" = "1B" }\nover'), "'load.size' does not vary"),
    "a difference of one": (CLAIM.replace("over =", "# over =") + "difference = true\n", "of which two points?"),
    "a difference without a unit": (CLAIM + "difference = true\n", "expect: '1.5' is not a duration"),
    "a difference of a word": (CLAIM + 'difference = "yes"\n', "[[claim]] 1 difference: 'yes' is neither true nor"),
    "key": (CLAIM + "hardware = 1\n", "[[claim]] 1 hardware: unknown key"),
    "reference": ('[[reference]]\nfigure = "elapsed_s"\nat = {}\nvalue = "3"\nsource = "x"\n', "is not a duration"),
    "a row and a figure": (ROW + 'figure = "elapsed_s"\n', "[[reference]] 1 values: it has a figure of its own too"),
    "a row of no values": (ROW.replace('{ "elapsed_s"', "[3] # "), "[[reference]] 1 values: [3] is not a table"),
    "a figure of a row": (ROW.replace("elapsed_s", "elapsed"), "[[reference]] 1 values: 'elapsed' is no figure"),
    "a value of a row": (ROW.replace("3s", "3"), "[[reference]] 1 values elapsed_s: '3' is not a duration"),
    "chart": ('[[chart]]\nfigure = "elapsed_s"\nover = "load.size"\n', "'load.size' does not vary"),
    "fast": ("fast = 3\n", "fast: write [fast.TABLE]"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_put_to_the_test_is_refused_in_one_line(name: str) -> None:
    text, said = REFUSALS[name]
    with pytest.raises(SuiteError) as refusal:
        expand(read(text + SUITE if name == "fast" else SUITE + text), seed=1)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_row_of_a_documents_table_is_a_reference_a_figure() -> None:
    found = read(SUITE + ROW).references
    assert [(each.figure, each.value) for each in found] == [("elapsed_s", 3.0), ("client.h2.requests.completed", 6870)]
    assert {(each.source, each.at["load.connections"]) for each in found} == {("a document, table 1", 20)}


def test_a_claim_is_read_as_it_is_written() -> None:
    (found,) = read(SUITE + CLAIM).claims
    assert (found.least, found.most, found.portable) == (1.5, 3.0, True)
    between = read(SUITE + CLAIM.replace("1.5 to 3", "1ms to 2ms") + "difference = true\n").claims[0]
    assert (between.least, between.most, between.difference) == (1000.0, 2000.0, True)
    one_sided = read(SUITE + CLAIM.replace("1.5 to 3", ">= 2")).claims[0]
    assert (one_sided.least, one_sided.most) == (2.0, None)


def test_fast_lies_over_the_suite_only_where_it_is_asked_for() -> None:
    text = SUITE + '[fast.matrix]\n"load.think" = ["1ms"]\n[fast.load]\neach = 1\n'
    assert len(expand(read(text), seed=1).points) == 4
    small = expand(read(text, fast=True), seed=1)
    assert len(small.points) == 2
    assert small.points[0].load["each"] == 1
    assert small.suite.run.repeat == 2
    assert read(text + "[fast.run]\nrepeat = 1\n", fast=True).run.repeat == 1
