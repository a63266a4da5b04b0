"""Claims of documents as a suite writes them: what is read and what is refused, and which of them a
run of a changed suite is still about.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from made_claims import judged, made
from made_records import calibration_record, point_summary, run_record
from small_suites import CLAIM, MATRIX

from plimsoll_lab.analysis.claims import compare_references, decide_claim, judge_claims
from plimsoll_lab.store.run_record import PointRecord, RequestRecord, RunRecord
from plimsoll_lab.store.summary_record import ClaimRecord
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Suite


def read(text: str, *, fast: bool = False) -> Suite:
    return read_text(text, source="it.toml", directory="/here", fast=fast)


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
    "a row of nothing": (ROW.replace('{ "elapsed_s"', "{} # "), "[[reference]] 1 values: {} is not a table of figures"),
    "a figure of a row": (ROW.replace("elapsed_s", "elapsed"), "[[reference]] 1 values: 'elapsed' is no figure"),
    "a value of a row": (ROW.replace("3s", "3"), "[[reference]] 1 values elapsed_s: '3' is not a duration"),
    "chart": ('[[chart]]\nfigure = "elapsed_s"\nover = "load.size"\n', "'load.size' does not vary"),
    "fast": ("fast = 3\n", "fast: write [fast.TABLE]"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_put_to_the_test_is_refused_in_one_line(name: str) -> None:
    text, said = REFUSALS[name]
    with pytest.raises(SuiteError) as refusal:
        expand(read(text + MATRIX if name == "fast" else MATRIX + text), seed=1)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_row_of_a_documents_table_is_a_reference_a_figure() -> None:
    found = read(MATRIX + ROW).references
    assert [(each.figure, each.value) for each in found] == [("elapsed_s", 3.0), ("client.h2.requests.completed", 6870)]
    assert {(each.source, each.at["load.connections"]) for each in found} == {("a document, table 1", 20)}


@pytest.mark.parametrize(
    ("expect", "interval", "outcome"),
    [
        ("< 0us", (-9.0, -2.0), "confirmed"),
        ("< 0us", (-9.0, 1.0), "cannot be told"),
        ("< 0us", (1.0, 2.0), "contradicted"),
        (">= 0us", (-9.0, -2.0), "contradicted"),
        (">= 0us", (-1.0, 5.0), "cannot be told"),
        ("> 0us", (0.5, 5.0), "confirmed"),
        ("< 5us", (-9.0, -2.0), "other hardware"),
        ("-5us to 5us", (-4.0, 4.0), "other hardware"),
        ("-5us to 5us", (-6.0, 4.0), "cannot be told"),
        ("-9us to -5us", (-4.0, 4.0), "contradicted"),
    ],
)
def test_a_difference_may_be_negative(expect: str, interval: tuple[float, float], outcome: str) -> None:
    """Ranges began at 0: a difference below that was 0, and one of less than 0 never confirmed."""
    (claim,) = read(MATRIX + CLAIM.replace("1.5 to 3", expect) + "difference = true\n").claims
    least, most = -math.inf if claim.least is None else claim.least, math.inf if claim.most is None else claim.most
    assert decide_claim(interval, least, most, portable=claim.portable, signed=claim.difference) == outcome


def test_a_claim_is_read_as_it_is_written() -> None:
    (found,) = read(MATRIX + CLAIM).claims
    assert (found.least, found.most, found.portable) == (1.5, 3.0, True)
    between = read(MATRIX + CLAIM.replace("1.5 to 3", "1ms to 2ms") + "difference = true\n").claims[0]
    assert (between.least, between.most, between.difference) == (1000.0, 2000.0, True)
    one_sided = read(MATRIX + CLAIM.replace("1.5 to 3", ">= 2")).claims[0]
    assert (one_sided.least, one_sided.most) == (2.0, None)


def test_fast_lies_over_the_suite_only_where_it_is_asked_for() -> None:
    text = MATRIX + '[fast.matrix]\n"load.think" = ["1ms"]\n[fast.load]\neach = 1\n'
    assert len(expand(read(text), seed=1).points) == 4
    small = expand(read(text, fast=True), seed=1)
    assert len(small.points) == 2
    assert small.points[0].load["each"] == 1
    assert small.suite.run.repeat == 2
    assert read(text + "[fast.run]\nrepeat = 1\n", fast=True).run.repeat == 1


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
    (claim,) = read(MATRIX + text.replace("1.5 to 3", expect)).claims
    assert judged(replace(claim, at={"load.connections": 20}), values={1: [value] * 3}).outcome == outcome


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
    told = judged_as(run_with(MATRIX + CLAIM + "[fast.load]\neach = 1\n", changes=changes, fast=fast))
    assert (told.outcome, told.value) == ("not reachable here", None)
    assert told.reason.startswith("this run changed the suite there: ")
    assert said in told.reason


def test_a_run_of_more_blocks_or_of_some_points_is_still_about_the_claim() -> None:
    for changes in ({"run.repeat": 9, "run.seed": 5}, {"load.think": "1s"}, {"load.each": 2}):
        assert judged_as(run_with(MATRIX + CLAIM, changes=changes)).outcome == "confirmed", changes
    assert judged_as(run_with(MATRIX + CLAIM, only="1s")).outcome == "confirmed"


def test_leaving_points_out_makes_no_claim_about_one_of_them() -> None:
    vague = CLAIM.replace(', "load.think" = "1s"', "")
    told = judged_as(run_with(MATRIX + vague, only="1s"))
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
        run = run_with(MATRIX + text, changes=changes)
        here = [point_summary(point.setting, point.number) for point in run.points]
        (told,) = compare_references(run, here, made({point.number: [100.0] for point in run.points}))
        assert told.ratio == (ratio and pytest.approx(ratio))
        assert ("load.each is 3" in (told.reason or "")) == (ratio is None)


def test_a_claim_about_a_network_that_was_another_cannot_be_told() -> None:
    run = run_with(MATRIX + CLAIM)
    run.calibrations = [calibration_record([point.number for point in run.points], off=2.0)]
    told = judged_as(run)
    assert told.outcome == "cannot be told"
    assert told.interval == pytest.approx((2.0, 2.0))
    assert "a round trip of 30.000 ms for 10.000 ms asked" in told.reason
