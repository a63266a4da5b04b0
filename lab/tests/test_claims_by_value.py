"""Claims and figures of documents: each outcome in its words, and which trials count in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from made_claims import CLAIMED, judged, made, points, trial
from made_records import calibration_record, point_summary, run_record

from plimsoll_lab.analysis.claims import compare_references, decide_claim, judge_claims
from plimsoll_lab.store.records import CutRecord, MeasuredLoadRecord, Outcome, TakenRecord, TrialRecord
from plimsoll_lab.store.summary_record import ClaimRecord, PointSummary, ReferenceRecord
from plimsoll_lab.suite.documents import Claim, Reference
from plimsoll_lab.suite.settings import Settings

MEAN = "response_time_us.mean"
AT: Settings = {"load.connections": 20}
REFERENCE = Reference(figure=MEAN, at=AT, value=50.0, source="a document, table 1", text="over loopback")
OFF = "the network is not what was asked for: from h1 to h2, a round trip of "
CUT = CutRecord(moments=1, share=0.1, requests=9, touched=0, completed_rate=9.0, bounds={}, estimates={}, doubted=())
LATE: MeasuredLoadRecord = {"summary": {"doubted": ["response_time_us.max"]}}
SIX = {0: [10.0] * 6, 1: [20.0] * 6}


def told_of(
    claim: Claim, trials: Sequence[TrialRecord], here: Sequence[PointSummary] | None = None, off: Sequence[int] = ()
) -> ClaimRecord:
    """A claim that is judged by these trials; the network of some points is another."""
    run = run_record()
    run.claims = [claim]
    run.calibrations = [calibration_record(off)] if off else []
    (told,) = judge_claims(run, points() if here is None else here, trials)
    return told


def beside(
    reference: Reference,
    trials: Sequence[TrialRecord],
    here: Sequence[PointSummary] | None = None,
    off: Sequence[int] = (),
) -> ReferenceRecord:
    """A document's figure beside that of these trials."""
    run = run_record()
    run.references = [reference]
    run.calibrations = [calibration_record(off)] if off else []
    (found,) = compare_references(run, points() if here is None else here, trials)
    return found


def late(trials: Sequence[TrialRecord], point: int, most: float) -> list[TrialRecord]:
    """The trials, of which one of a point does not tell its time: it took so long at most."""
    return [
        replace(each, figures={}, late_figures={MEAN: most}) if (each.block, each.point) == (3, point) else each
        for each in trials
    ]


@pytest.mark.parametrize(
    ("least", "most", "portable", "outcome", "reason"),
    [
        (1.5, 3.0, True, "confirmed", "the whole interval lies in the claimed range"),
        (3.0, 9.0, True, "contradicted", "the whole interval lies outside the claimed range"),
        (2.0, 3.0, True, "cannot be told", "the interval reaches beyond the claimed range"),
        (
            1.5,
            3.0,
            False,
            "other hardware",
            "it lies in the claimed range, and such a figure belongs to its hardware",
        ),
    ],
)
def test_each_outcome_has_its_reason(least: float, most: float, outcome: str, reason: str, *, portable: bool) -> None:
    """Twice as long, between 1.81 and 2.20 times with 95 %."""
    claim = replace(CLAIMED, least=least, most=most, portable=portable)
    told = judged(claim, values={0: [10.0] * 5, 1: [18.0, 19.0, 20.0, 21.0, 22.0]})
    assert (told.outcome, told.reason) == (outcome, reason)
    assert told.interval == pytest.approx((1.808, 2.202), abs=2e-3)


@pytest.mark.parametrize(
    ("interval", "outcome"),
    [
        ((1.5, 3.0), "confirmed"),
        ((0.5, 1.5), "cannot be told"),
        ((3.0, 9.0), "cannot be told"),
        ((1.49, 1.5), "cannot be told"),
    ],
)
def test_a_range_has_both_of_its_ends(interval: tuple[float, float], outcome: str) -> None:
    assert decide_claim(interval, 1.5, 3.0, portable=True) == outcome


def test_an_outcome_has_the_claim_as_it_was_written() -> None:
    pair: tuple[Settings, Settings] = ({"load.connections": 10}, {"load.connections": 20})
    told = judged(replace(CLAIMED, against=pair, expect="> 3", least=3.0, most=None, free="the size is left open"))
    assert (told.name, told.source, told.figure) == ("twice", "a document", MEAN)
    assert (told.expect, told.free, told.difference) == ("> 3", "the size is left open", False)
    assert (told.at, told.over) == ({"load.connections": 20}, {"load.connections": 10})
    assert list(told.against or ()) == list(pair)


def test_of_ratios_of_zero_no_effect_is_larger_than_another() -> None:
    pair: tuple[Settings, Settings] = ({"load.connections": 10}, {"load.connections": 20})
    told = judged(replace(CLAIMED, against=pair, least=0.5, most=None), values={0: [0.0, 0.0], 1: [0.0, 0.0]})
    assert (told.outcome, told.value, told.reason) == ("cannot be told", None, "every value is zero")


@pytest.mark.parametrize("number", [0, 1])
def test_the_network_of_either_point_makes_a_ratio_one_that_cannot_be_told(number: int) -> None:
    told = told_of(CLAIMED, made(SIX), off=[number])
    assert told.outcome == "cannot be told"
    assert told.value == pytest.approx(2.0)
    assert told.reason.startswith(OFF)


def test_over_another_network_no_bound_decides_a_claim() -> None:
    told = told_of(CLAIMED, late(made(SIX), 0, 10.0), off=[1])
    assert told.outcome == "cannot be told"
    assert told.reason.startswith(OFF)
    unbounded = TakenRecord(moments=1, share=1.0, requests=9, bounds={MEAN: (0.0, 10.0)})
    taken = [replace(each, taken=unbounded) if (each.block, each.point) == (3, 0) else each for each in made(SIX)]
    open_ended = replace(CLAIMED, least=1.5, most=None)
    assert told_of(open_ended, taken).outcome == "confirmed"
    told = told_of(open_ended, taken, off=[1])
    assert (told.outcome, told.interval) == ("cannot be told", None)
    assert told.reason.startswith(OFF)


def test_how_much_each_point_leaves_untold_is_said_whole() -> None:
    trials = made({0: [10.0, 20.0, 40.0], 1: [20.0, 40.0, 80.0]})
    trials[0] = replace(trials[0], figures={})
    assert told_of(CLAIMED, trials).reason == (
        "67 % of one point's trials tell it, 100 % of another's: the rest may be the slowest; 2 of 5 blocks tell it"
    )


def test_a_difference_below_zero_is_decided_by_what_late_trials_took_at_most() -> None:
    """Ten are saved in each block, and in one of six twenty at most."""
    saved = replace(CLAIMED, at={"load.connections": 10}, over=AT, difference=True, least=None, most=-1.0)
    told = told_of(saved, late(made(SIX), 0, 10.0))
    assert told.outcome == "confirmed"
    assert told.reason == "at most -10.0 us, where trials with a late generator count by what they took at most"


def test_a_time_that_late_trials_bound_belongs_to_its_hardware_too() -> None:
    alone = replace(CLAIMED, over=None, least=0.0, most=40.0)
    trials = late(made(SIX), 1, 22.0)
    assert told_of(alone, trials).outcome == "confirmed"
    assert told_of(replace(alone, portable=False), trials).outcome == "other hardware"


def test_where_no_point_or_several_are_meant_the_reason_says_so() -> None:
    nowhere = judged(replace(CLAIMED, at={"load.connections": 99}))
    assert (nowhere.outcome, nowhere.reason) == ("not reachable here", "no such point was measured in this run")
    several = judged(replace(CLAIMED, at={}))
    assert several.reason == "2 points of this run agree with it; the claim has to name one"


@pytest.mark.parametrize(
    ("figure", "never", "outcome", "reason"),
    [
        ("connections.established", 0.0, "confirmed", None),
        ("server.peak_connections", 0.0, "confirmed", None),
        ("server.memory_bytes", 0.0, "confirmed", None),
        ("host.memory_bytes", 0.0, "confirmed", None),
        ("connections.never_established", 0.0, "confirmed", None),
        ("failed_ratio", 0.0, "not reachable here", "generator limited: it was late"),
        ("completed_rate", 0.0, "not reachable here", "generator limited: it was late"),
        # Not all were up: what grows with them is a lower bound. Nobody knows whose fault it is.
        (
            "connections.established",
            1.0,
            "cannot be told",
            "the generator was the limit in some blocks, of which only a lower bound is known",
        ),
        ("connections.never_established", 1.0, "not reachable here", "no trial of this point has the figure"),
    ],
)
def test_what_a_limited_generator_tells_is_judged_and_nothing_else(
    figure: str, never: float, outcome: str, reason: str | None
) -> None:
    figures = {"failed_ratio": 0.0, "completed_rate": 20.0, "connections.never_established": never}
    grown = ("connections.established", "server.peak_connections", "server.memory_bytes", "host.memory_bytes")
    figures |= dict.fromkeys(grown, 20.0)
    trials = [replace(trial(block, 0, block, 0.0, "generator_limited"), figures=figures) for block in range(5)]
    here = [point_summary(AT, 0, "generator_limited", "it was late")]
    told = told_of(replace(CLAIMED, figure=figure, over=None, least=0.0, most=30.0), trials, here)
    assert told.outcome == outcome
    assert reason is None or told.reason == reason


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ((), "no trial of this point has the figure"),
        (("cut",), "no trial of this point has the figure"),
        (("late",), "no trial of this point has the figure"),
        (("cut", "late"), "no trial of this point has the figure"),
        (
            ("cut", "cut"),
            "the links disturbed each trial of this point, and the figure is not known without that",
        ),
        (
            ("late", "late"),
            "the generator's own lateness is half of the figure or more in each trial of this point",
        ),
    ],
)
def test_why_a_figure_is_absent_is_said_of_all_trials_alone(spoilt: Sequence[str], said: str) -> None:
    by = {
        "": trial(1, 0, 1, 20.0),
        "cut": replace(trial(1, 0, 1, 20.0), cut=CUT),
        "late": replace(trial(1, 0, 1, 20.0), load=LATE),
    }
    trials = [replace(by[each], number=place, block=place) for place, each in enumerate([*spoilt, "", ""][:2], start=1)]
    claim = replace(CLAIMED, figure="response_time_us.max", over=None)
    told = told_of(claim, trials, [point_summary(AT, 0)])
    assert (told.outcome, told.reason) == ("not reachable here", said)


def test_a_point_without_a_trial_has_no_figure() -> None:
    told = told_of(replace(CLAIMED, over=None), [], [point_summary(AT, 0)])
    assert (told.outcome, told.reason) == ("not reachable here", "no trial of this point has the figure")


@pytest.mark.parametrize("outcome", ["failed", "hard_limit"])
def test_a_trial_that_stopped_tells_its_failures_and_no_rate(outcome: Outcome) -> None:
    def with_figures(figures: Mapping[str, float], number: int, ended: Outcome) -> TrialRecord:
        return replace(trial(number, 0, number, 0.0, ended), figures=figures)

    trials = [with_figures({"failed_ratio": 0.1, "completed_rate": 100.0}, number, "ok") for number in range(3)]
    trials += [with_figures({"failed_ratio": 0.5, "completed_rate": 900.0}, number, outcome) for number in (3, 4)]
    here = [point_summary(AT, 0)]
    ratio = told_of(replace(CLAIMED, figure="failed_ratio", over=None, least=0.0, most=1.0), trials, here)
    assert ratio.value == pytest.approx(0.26)
    assert ratio.reason == "the whole interval lies in the claimed range"
    rate = told_of(replace(CLAIMED, figure="completed_rate", over=None, least=0.0, most=500.0), trials, here)
    assert (rate.value, rate.outcome) == (100.0, "confirmed")
    assert rate.reason.endswith("; 3 of 5 blocks tell it")


def test_ours_is_the_mean_over_blocks_beside_the_figure_as_it_was_written() -> None:
    found = beside(REFERENCE, made({1: [10.0, 20.0, 60.0]}))
    assert (found.figure, found.at, found.value) == (MEAN, {"load.connections": 20}, 50.0)
    assert (found.source, found.text) == ("a document, table 1", "over loopback")
    assert (found.ours, found.ratio, found.reason) == (30.0, 0.6, None)


def test_a_figure_of_zero_has_ours_beside_it_and_no_multiple() -> None:
    found = beside(replace(REFERENCE, value=0.0), made({1: [10.0, 20.0, 60.0]}))
    assert (found.ours, found.ratio, found.reason) == (30.0, None, None)


def test_a_lower_bound_stands_beside_no_figure_of_a_document() -> None:
    outcomes: list[Outcome] = ["ok", "ok", "generator_limited"]
    trials = [
        replace(trial(block, 1, block, 0.0, outcome), figures={"completed_rate": 1000.0})
        for block, outcome in enumerate(outcomes)
    ]
    found = beside(replace(REFERENCE, figure="completed_rate", value=500.0), trials)
    assert (found.ours, found.ratio) == (None, None)
    assert found.reason == "the generator was the limit in some blocks, of which only a lower bound is known"
    assert beside(replace(REFERENCE, figure="completed_rate", value=500.0), trials[:2]).ratio == 2.0


def test_why_nothing_stands_beside_a_figure_of_a_document_is_said() -> None:
    blank = [replace(each, figures={}) for each in made({1: [10.0, 20.0]})]
    found = beside(REFERENCE, blank)
    assert (found.ours, found.reason) == (None, "no trial of this point has the figure")
    stopped = beside(replace(REFERENCE, at={"load.connections": 10}), made(SIX), points("failed"))
    assert (stopped.ours, stopped.reason) == (None, "failed: too few ports")
    in_part = [each.model_copy(update={"n": 3, "outcomes": {"failed": 2, "ok": 1}}) for each in points("failed")]
    some = beside(replace(REFERENCE, at={"load.connections": 10}), made(SIX), in_part)
    assert some.reason == "failed in 2 of 3 trials: too few ports"
    nowhere = beside(replace(REFERENCE, at={"load.connections": 99}), made(SIX))
    assert (nowhere.ours, nowhere.reason) == (None, "no such point was measured in this run")


def test_another_network_goes_before_trials_that_tell_nothing() -> None:
    half = made({1: [90.0, 110.0, 100.0, 100.0]})
    half = [*half[:2], *(replace(each, figures={}) for each in half[2:])]
    assert str(beside(REFERENCE, half).reason).startswith("only 50 % of the point's trials")
    found = beside(REFERENCE, half, off=[1])
    assert (found.ours, found.ratio) == (100.0, 2.0)
    assert str(found.reason).startswith(OFF)


def test_values_below_one_have_a_ratio_too() -> None:
    told = judged(CLAIMED, values={0: [0.1, 0.2, 0.4], 1: [0.2, 0.4, 0.8]})
    assert told.outcome == "confirmed"
    assert told.value == pytest.approx(2.0)
    short = late(made({0: [0.1] * 6, 1: [0.2] * 6}), 0, 0.1)
    assert told_of(replace(CLAIMED, most=None), short).reason == (
        "at least 2.00 times, where trials with a late generator count by what they took at most"
    )


def test_a_ratio_that_is_a_bound_is_rounded_down() -> None:
    told = told_of(replace(CLAIMED, most=None), late(made({0: [10.0] * 6, 1: [20.06] * 6}), 0, 10.0))
    assert told.reason.startswith("at least 2.00 times, ")


def test_a_value_of_zero_whose_bounds_are_above_it_has_no_ratio() -> None:
    taken = TakenRecord(moments=1, share=0.1, requests=9, bounds={MEAN: (0.0, 5.0)})
    trials = [
        replace(each, figures={MEAN: 0.0}, taken=taken) if (each.block, each.point) == (3, 0) else each
        for each in made(SIX)
    ]
    told = told_of(CLAIMED, trials)
    assert (told.outcome, told.value) == ("cannot be told", None)
    assert told.reason == "a value of zero has no ratio to another"


def test_late_trials_of_blocks_that_no_other_point_has_bound_nothing() -> None:
    trials = made({0: [10.0] * 6, 1: [20.0] * 6})
    apart = [replace(each, block=each.block + 10) if each.point else each for each in trials]
    told = told_of(CLAIMED, late(apart, 0, 10.0))
    assert (told.outcome, told.value) == ("cannot be told", None)
    assert told.reason == "83 % of one point's trials tell it, 100 % of another's: the rest may be the slowest"


def test_a_bound_below_one_microsecond_is_told_with_both_ends() -> None:
    """Five blocks of half a microsecond, and one of at most as much: 0.417 us, or 0.214 less."""
    alone = replace(CLAIMED, over=None, least=0.0, most=40.0)
    told = told_of(alone, late(made({1: [0.5] * 6}), 1, 0.5))
    assert told.reason.startswith("between 0.202 us and 0.500 us, ")


def test_a_range_begins_at_zero_but_for_differences() -> None:
    assert decide_claim((-1.0, 0.5), 0.0, 1.0, portable=True) == "confirmed"
    assert decide_claim((-1.0, 0.5), 0.0, 1.0, portable=True, signed=True) == "cannot be told"
    saved = replace(CLAIMED, at={"load.connections": 10}, over=AT, difference=True, least=None, most=-1.0)
    told = told_of(saved, made(SIX))
    assert (told.outcome, told.value) == ("confirmed", -10.0)


def test_what_the_links_disturbed_is_said_of_the_point_alone() -> None:
    cut = [replace(each, cut=CUT, figures={}) if each.point == 0 else each for each in made(SIX)]
    told = told_of(replace(CLAIMED, at={"load.connections": 10}, over=None, figure="response_time_us.max"), cut)
    assert told.reason == "the links disturbed each trial of this point, and the figure is not known without that"


def test_beside_a_document_each_network_counts_that_a_trial_had() -> None:
    """The path was off in the first one, which was opened once more for the last trial."""
    run = run_record()
    run.references = [REFERENCE]
    run.calibrations = [
        calibration_record([1]),
        calibration_record([1], within=True).model_copy(update={"unix_s": 5.0}),
    ]
    for started, off in (((1.0, 6.0), True), ((6.0, 7.0), False)):
        trials = [replace(each, started_unix_s=at) for each, at in zip(made({1: [100.0, 100.0]}), started, strict=True)]
        (found,) = compare_references(run, points(), trials)
        assert (found.reason or "").startswith(OFF) == off
