"""Which values of a run are compared, and what a trial says of each figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from made_records import point_summary, run_record

from plimsoll_lab.analysis.family import (
    all_were_up,
    control_of,
    cut_share,
    fell_behind,
    figure_comparisons,
    is_told_less,
    told_parts,
    unlike_shares,
    value_of,
    without,
)
from plimsoll_lab.stats.best import FigureComparison
from plimsoll_lab.store.records import CutRecord, Outcome, ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import FamilyRecord, ImportRecord, RunRecord
from plimsoll_lab.store.search_record import SearchRecord, SearchSettingsRecord
from plimsoll_lab.store.summary_record import PointSummary
from plimsoll_lab.suite.figures import FIGURES

RATE, P50, P99 = "completed_rate", "response_time_us.p50", "response_time_us.p99"


def trial(block: int = 1, point: int = 0, outcome: Outcome = "ok", **figures: float) -> TrialRecord:
    return TrialRecord(
        number=block, block=block, point=point, setting={}, outcome=outcome, reason=None, warnings=(),
        figures={name.replace("__", "."): value for name, value in figures.items()},
        started_unix_s=0, elapsed_s=1, server={}, load={}, machine={},
    )  # fmt: skip


def cut(share: float, **bounds: tuple[float, float]) -> CutRecord:
    return CutRecord(
        moments=1, share=share, requests=1, touched=0, completed_rate=None, estimates={}, doubted=(),
        bounds={name.replace("__", "."): ends for name, ends in bounds.items()},
    )  # fmt: skip


def warned(*codes: str) -> tuple[ResultWarning, ...]:
    return tuple(ResultWarning(code=code, message="", remedy="") for code in codes)


UP = {"connections.established": 9.0, "connections.never_established": 0.0, "server.peak_connections": 9.0}


@pytest.mark.parametrize(
    ("changed", "up"),
    [
        ({}, True),
        ({"connections.never_established": 1.0}, False),
        ({"connections.established": None}, False),
        ({"connections.never_established": None}, False),
        ({"server.peak_connections": 8.0}, False),
        ({"server.peak_connections": 10.0}, True),
        ({"server.peak_connections": None}, False),
        # Without the server's count the generator's own tells it.
        ({"server.peak_connections": None, "connections.peak": 9.0}, True),
        ({"server.peak_connections": None, "connections.peak": 8.0}, False),
        ({"server.peak_connections": 8.0, "connections.peak": 9.0}, False),
    ],
)
def test_all_were_up_where_every_connection_was_established_and_up_at_once(
    changed: Mapping[str, float | None], *, up: bool
) -> None:
    figures = {name: value for name, value in {**UP, **changed}.items() if value is not None}
    assert all_were_up(figures) is up


@pytest.mark.parametrize(
    ("outcome", "codes", "behind"),
    [
        ("generator_limited", (), True),
        ("invalid", ("generator_late", "machine_busy"), True),
        ("invalid", ("schedule_missed", "steal"), True),
        ("invalid", ("generator_late",), False),
        ("invalid", ("machine_busy",), False),
        ("invalid", (), False),
        ("failed", ("generator_late", "machine_busy"), False),
        ("ok", ("generator_late", "machine_busy"), False),
    ],
)
def test_a_generator_fell_behind_by_its_own_word_or_as_others_took_its_cpu(
    outcome: Outcome, codes: Sequence[str], *, behind: bool
) -> None:
    assert fell_behind(replace(trial(outcome=outcome), warnings=warned(*codes))) is behind


LATE = trial(
    outcome="generator_limited",
    completed_rate=100.0,
    goodput_bits_per_s=800.0,
    requests__completed=90.0,
    response_time_us__p50=7.0,
    server__cpu_us_per_request=3.0,
    server__memory_bytes=5.0,
)
LATE = replace(LATE, figures={**LATE.figures, **UP})
FEWER = replace(LATE, figures={**LATE.figures, "server.peak_connections": 8.0})


@pytest.mark.parametrize(
    ("figure", "late", "fewer"),
    [
        (RATE, (100.0, math.inf), (100.0, math.inf)),
        ("goodput_bits_per_s", (800.0, math.inf), (800.0, math.inf)),
        ("requests.completed", (90.0, math.inf), (90.0, math.inf)),
        (P50, None, None),
        ("server.cpu_us_per_request", 3.0, 3.0),
        ("server.memory_bytes", 5.0, (5.0, math.inf)),
        ("connections.established", 9.0, (9.0, math.inf)),
        ("connections.never_established", 0.0, None),
        ("unknown", None, None),
    ],
)
def test_what_a_generator_that_fell_behind_tells_of_a_figure(figure: str, late: object, fewer: object) -> None:
    assert (value_of(LATE, figure), value_of(FEWER, figure)) == (late, fewer)
    assert value_of(replace(LATE, outcome="ok"), figure) == LATE.figures.get(figure)
    for outcome in ("failed", "hard_limit", "invalid"):
        assert value_of(replace(LATE, outcome=outcome), figure) is None


def test_a_figure_without_its_disturbed_moments_lies_between_its_bounds() -> None:
    whole = trial(completed_rate=100.0, response_time_us__p50=7.0)
    disturbed = replace(whole, cut=cut(0.1, response_time_us__p50=(6, 9)))
    assert value_of(disturbed, P50) == (6, 9)
    assert value_of(disturbed, RATE) == 100


@pytest.mark.parametrize(
    ("figure", "shares", "unlike"),
    [
        # Half of what lies beyond the percentile: 0.5 % of p99, 25 % of p50.
        (P99, (0.0, 0.005), False),
        (P99, (0.0, 0.0051), True),
        (P99, (0.2, 0.204, 0.2051), True),
        (P50, (0.0, 0.25), False),
        (P50, (0.0, 0.2501), True),
        (P99, (), False),
        (P99, (0.9,), False),
        (RATE, (0.0, 0.9), False),
        ("response_time_us.mean", (0.0, 0.9), False),
        ("connect_time_us.p99", (0.0, 0.9), False),
    ],
)
def test_percentiles_are_not_compared_where_much_more_of_one_side_was_cut_out(
    figure: str, shares: Sequence[float], *, unlike: bool
) -> None:
    found = unlike_shares(figure, shares)
    assert (found is not None) == unlike
    if unlike:
        assert found == (
            f"the emulator disturbed {100 * min(shares):.1f} % of one contender's time and "
            f"{100 * max(shares):.1f} % of another's, so "
            "that their slowest requests are not alike"
        )


def test_the_share_that_was_cut_out_is_the_mean_over_valid_trials() -> None:
    some = [replace(trial(), cut=cut(0.3)), trial(), replace(trial(outcome="failed"), cut=cut(0.9))]
    assert cut_share(some) == pytest.approx(0.15)
    assert cut_share(some[2:]) is None


@pytest.mark.parametrize(
    ("part", "most", "less"), [(0.7, 0.8, False), (0.69, 0.8, True), (0.9, 1.0, False), (1, 1, False)]
)
def test_a_figure_is_told_less_in_more_than_a_tenth_fewer_of_the_trials(
    part: float, most: float, *, less: bool
) -> None:
    """In figures 0.8 less 0.7 is more than 0.1."""
    assert is_told_less(part, most) is less


def test_the_part_that_tells_a_figure_is_of_valid_trials_and_of_points_that_have_some() -> None:
    points = [point_summary({}, number) for number in range(4)]
    by_point = {
        0: [trial(completed_rate=1.0), trial(), trial(outcome="failed", completed_rate=1.0), trial(completed_rate=2.0)],
        1: [trial()],
        2: [trial(outcome="invalid", completed_rate=1.0)],
    }
    assert told_parts(RATE, points, by_point) == {0: pytest.approx(2 / 3), 1: 0}


COMPARE = "server.model"


def run_of(*figures: str, **family: object) -> RunRecord:
    run = run_record()
    run.family = FamilyRecord(compare=COMPARE, figures=figures, margin=0.05).model_copy(update=family)
    run.figures = FIGURES
    return run


def place(model: str, number: int, outcome: Outcome = "ok", connections: int = 8) -> PointSummary:
    return point_summary({COMPARE: model, "load.connections": connections}, number, outcome)


def test_each_figure_is_compared_at_each_setting() -> None:
    points = [place(*each) for each in (("a", 0), ("b", 1))] + [place("a", 2, connections=9)]
    by_point = {
        0: [trial(1, completed_rate=10.0, response_time_us__p50=1.0), trial(2, completed_rate=11.0)],
        1: [trial(1, completed_rate=20.0, response_time_us__p50=2.0), trial(3, outcome="failed", completed_rate=9.0)],
        2: [trial(1, completed_rate=30.0)],
    }
    found = figure_comparisons(run_of(RATE, P50), points, by_point)
    eight, nine = {"load.connections": 8}, {"load.connections": 9}
    assert [(each.figure, each.better, each.at) for each in found] == [
        (RATE, "higher", eight),
        (RATE, "higher", nine),
        (P50, "lower", eight),
        (P50, "lower", nine),
    ]
    rates, alone, times, none = found
    assert rates.contenders == {"a": {1: 10.0, 2: 11.0}, "b": {1: 20.0}}
    assert (rates.absent, rates.untold, rates.obstacle) == ((), {}, None)
    assert alone.contenders == {"a": {1: 30.0}}
    # Half of a's trials tell its time, and all of b's.
    assert times.contenders == {"b": {1: 2.0}}
    assert (times.absent, times.untold) == (("a",), {"a": "only 50 % of its trials tell this figure"})
    assert (none.contenders, none.untold) == ({}, {"a": "none of its trials tells this figure"})


def test_a_value_between_bounds_has_its_estimate_beside_it() -> None:
    """Of trials that are results, and of the figures that have bounds and a value."""
    disturbed = replace(trial(2, response_time_us__p99=5.0, completed_rate=9.0), cut=cut(0.0, **{P99: (4.0, 6.0)}))
    by_point = {
        0: [trial(1, response_time_us__p99=3.0), disturbed],
        1: [trial(1, response_time_us__p99=2.0), replace(disturbed, outcome="failed"), replace(disturbed, figures={})],
    }
    [found] = figure_comparisons(run_of(P99), [place("a", 0), place("b", 1)], by_point)
    assert found.contenders["a"] == {1: 3.0, 2: (4.0, 6.0)}
    assert found.estimates["a"] == {2: 5.0}
    assert found.estimates.get("b", {}) == {}


def test_a_rate_that_few_trials_tell_is_compared_all_the_same() -> None:
    by_point = {0: [trial(1, completed_rate=1.0), trial(2)], 1: [trial(1, completed_rate=2.0)]}
    [found] = figure_comparisons(run_of(RATE), [place("a", 0), place("b", 1)], by_point)
    assert found.contenders == {"a": {1: 1.0}, "b": {1: 2.0}}


@pytest.mark.parametrize(
    ("outcome", "compared"),
    [("ok", True), ("generator_limited", True), ("invalid", True), ("failed", False), ("hard_limit", False)],
)
def test_a_contender_that_stopped_is_absent_and_has_no_reason_of_its_own(outcome: Outcome, *, compared: bool) -> None:
    by_point = {0: [trial(1, completed_rate=1.0)], 1: [trial(1, completed_rate=2.0)]}
    [found] = figure_comparisons(run_of(RATE), [place("a", 0, outcome), place("b", 1)], by_point)
    assert set(found.contenders) == ({"a", "b"} if compared else {"b"})
    assert (found.absent, found.untold) == (() if compared else ("a",), {})


@pytest.mark.parametrize("figure", [RATE, P50])
def test_a_contender_without_valid_trials_is_absent(figure: str) -> None:
    points = [place("a", 0), place("b", 1)]
    valid = replace(trial(1), figures={figure: 2.0})
    [found] = figure_comparisons(run_of(figure), points, {1: [valid]})
    assert (found.contenders, found.absent, found.untold) == ({"b": {1: 2.0}}, ("a",), {})
    [nothing] = figure_comparisons(run_of(figure), points, {1: [replace(valid, outcome="failed")]})
    assert (nothing.contenders, nothing.absent, nothing.untold) == ({}, ("a", "b"), {})


def test_what_a_search_compares_are_capacities() -> None:
    run = run_of("capacity")
    run.search = SearchSettingsRecord(over="load.connections", lowest=1, highest=1000)
    run.searches = [
        SearchRecord(
            number=number, block=1, point=number, setting={COMPARE: model}, state="complete",
            lower=lower, upper=lower + 1, limited_by="server",
        )
        for number, (model, lower) in enumerate({"a": 100, "b": 200}.items())
    ]  # fmt: skip
    [found] = figure_comparisons(run, [], {})
    assert (found.figure, found.contenders) == ("capacity", {"a": {1: (100.0, 101.0)}, "b": {1: (200.0, 201.0)}})


def test_unlike_networks_are_an_obstacle() -> None:
    by_point = {
        0: [replace(trial(1, response_time_us__p99=1.0), cut=cut(0.2))],
        1: [trial(1, response_time_us__p99=2.0)],
    }
    [found] = figure_comparisons(run_of(P99), [place("a", 0), place("b", 1)], by_point)
    assert found.obstacle == unlike_shares(P99, [0.2, 0.0])
    assert found.obstacle is not None


def test_nothing_is_compared_where_nothing_competes_or_nobody_checked_the_trials() -> None:
    points, by_point = [place("a", 0)], {0: [trial(1, completed_rate=1.0)]}
    assert figure_comparisons(run_of(RATE), points, by_point)
    assert figure_comparisons(run_of(RATE, compare=None), points, by_point) == []
    imported = run_of(RATE).model_copy(update={"imported": ImportRecord.model_construct()})
    assert figure_comparisons(imported, points, by_point) == []


def test_the_control_is_that_of_the_comparisons_setting() -> None:
    """Point 2 is point 0 once more; of both the valid trials that have the figure, by block."""
    points = [place("a", 0), place("b", 1), place("a", 5, connections=9)]
    alike = [place("a", 6, connections=9), place("a", 2)]
    by_point = {
        0: [trial(1, completed_rate=1.0), trial(2, outcome="invalid", completed_rate=7.0), trial(3)],
        2: [trial(1, completed_rate=3.0), trial(2, completed_rate=4.0)],
    }
    asked = FigureComparison(figure=RATE, better="higher", at={"load.connections": 8}, contenders={})
    run = run_of(RATE)
    assert control_of(run, asked, points, alike, by_point) == ({1: 1.0}, {1: 3.0, 2: 4.0})
    assert control_of(run, asked, points, alike, {0: by_point[0]}) == ({1: 1.0}, {})
    assert control_of(run, asked, points[1:], alike, by_point) is None
    assert control_of(run, asked, points, alike[:1], by_point) is None
    assert control_of(run, asked, points, [], by_point) is None


def test_a_setting_without_what_competes() -> None:
    assert without({COMPARE: "a", "load.size": 1}, COMPARE) == {"load.size": 1}
    assert without({"load.size": 1}, None) == {"load.size": 1}
