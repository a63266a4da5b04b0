"""What several searches for one capacity come to."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from made_records import calibration_record
from made_searches import FLOOR, MOST, Bounds, run_of

from plimsoll_lab.analysis import network
from plimsoll_lab.analysis.comparison import compare_runs
from plimsoll_lab.analysis.searches import (
    capacity_family,
    describe_searches,
    searches_without_capacity,
)
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.cli.outcome import exit_code
from plimsoll_lab.report.data_files import openmetrics
from plimsoll_lab.report.export import capacities_csv, points_csv, trials_csv
from plimsoll_lab.report.searches import searches_section
from plimsoll_lab.report.view import Text
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.run_record import FamilyRecord, PointRecord, RunRecord
from plimsoll_lab.store.search_record import BreakRecord, CauseRecord, LimitedBy, SearchState
from plimsoll_lab.store.summary_record import CapacityRecord, GateOutcome, RunSummary, StopRecord
from plimsoll_lab.suite.figures import CAPACITY, capacity_figure
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Limit, SearchSettings


def found(*bounds: Bounds) -> CapacityRecord:
    [capacity] = describe_searches(run_of(bounds))
    return capacity


def test_a_search_that_was_broken_off_says_nothing_about_what_others_found() -> None:
    run = run_of([(1000, 1100), (400, None), (None, None)])
    for broken in run.searches[1:]:
        broken.state, broken.reason = "failed", "nothing accepts connections"
    [capacity] = describe_searches(run)
    assert (capacity.lower, capacity.upper, capacity.lowers, capacity.uppers) == (1000, 1100, [1000], [1100])
    assert (capacity.ended, capacity.finished, capacity.spread) == (3, False, None)
    assert "model epoll carries 1,000 connections and not 1,100 (1 of 3 searches), with " in capacity.text
    assert capacity.text.endswith("; 2 of 3 searches failed: nothing accepts connections")


def test_the_precision_is_that_of_the_searches_that_were_not_broken_off() -> None:
    run = run_of([(1000, 1100), (400, None)])
    run.searches[0].precision = 0.02
    run.searches[1].precision, run.searches[1].state, run.searches[1].reason = 0.5, "failed", "it ended"
    [capacity] = describe_searches(run)
    assert capacity.precision == 0.02


def test_a_search_that_is_still_to_come_makes_none_of_the_others_end_early() -> None:
    run = run_of([(1000, 1100), (1010, 1090), (None, None)])
    run.searches[2].state = "planned"
    [capacity] = describe_searches(run)
    assert "carries 1,000 connections and not 1,100 (median of 2 of 3 searches, 1,000 to 1,010)" in capacity.text
    assert "before it ended" not in capacity.text


def test_a_search_that_ran_out_of_time_and_one_that_failed_at_the_floor_say_what_they_found() -> None:
    run = run_of([(1000, None), (None, FLOOR)])
    run.searches[0].state = "out of patience"
    [capacity] = describe_searches(run)
    assert (capacity.lower, capacity.upper) == (None, None)
    found = "before they ended, its searches found at least 1,000 connections and less than 100 connections"
    assert found in capacity.text


def test_one_search_that_failed_at_the_floor_does_not_undo_the_others() -> None:
    capacity = found((1000, 1100), (None, FLOOR), (1010, 1090), (990, 1080), (1000, 1100))
    assert (capacity.lower, capacity.upper) == (1000, 1090)
    assert "carries 1,000 connections and not 1,090 (median of 5 searches, nothing to 1,010)" in capacity.text


def test_one_search_without_an_end_does_not_undo_the_others() -> None:
    capacity = found((1000, 1100), (MOST, None), (1010, 1090))
    assert (capacity.lower, capacity.upper) == (1010, 1100)
    assert "carries 1,010 connections and not 1,100 (median of 3 searches, 1,000 to 10,000)" in capacity.text


def test_bounds_that_most_searches_lack_are_none() -> None:
    below = found((None, FLOOR), (1000, 1100), (None, FLOOR))
    assert (below.lower, below.upper, below.spread) == (None, FLOOR, None)
    assert "carries less than 100 connections" in below.text
    beyond = found((MOST, None), (1000, 1100), (MOST, None))
    assert (beyond.lower, beyond.upper) == (MOST, None)
    assert "carries at least 10,000 connections, the most that was tried" in beyond.text


def test_two_searches_that_disagree_bound_what_both_allow() -> None:
    assert "carries less than 1,100 connections (" in found((None, FLOOR), (1000, 1100)).text
    assert "carries at least 1,000 connections (" in found((MOST, None), (1000, 1100)).text
    assert "is not decided: one of its searches" in found((MOST, None), (None, FLOOR)).text


def test_what_is_told_beside_the_answer_is_of_the_search_that_found_it() -> None:
    """The reason was that of one search, the figure that of another, and how long it held that of a
    third.
    """
    run = run_of([(1000, 1100), (1200, 1300), (900, 950)])
    told = (
        ("server", "descriptors", "no more descriptors", 80.0, 9000.0),
        ("generator", "cpu", "no more CPU", 20.0, 8000.0),
        ("server", "memory", "no more memory", 10.0, 7000.0),
    )
    run.searches = [
        each.model_copy(
            update={
                "limited_by": by,
                "broke": BreakRecord(
                    missed="p99 at 9 ms", causes=[CauseRecord.model_validate({"code": code, "text": text})]
                ),
                "confirmed": 8,
                "held_s": held_s,
                "generator_ceiling_per_s": ceiling,
            }
        )
        for each, (by, code, text, held_s, ceiling) in zip(run.searches, told, strict=True)
    ]
    [capacity] = describe_searches(run)
    assert (capacity.lower, capacity.limited_by, capacity.causes) == (1000, "server", ["descriptors"])
    assert (capacity.held_s, capacity.generator_ceiling_per_s) == (80.0, 9000.0)
    assert capacity.first_break == "p99 at 9 ms; no more descriptors"
    assert "held for 1 min 20 s" in capacity.text


@pytest.mark.parametrize(
    ("ends", "limited_by", "said"),
    [
        (
            [((None, FLOOR), "generator"), ((None, FLOOR), "server"), ((None, FLOOR), "server")],
            "server",
            "carries less than 100 connections",
        ),
        (
            [((None, FLOOR), "generator"), ((None, FLOOR), "server")],
            "generator",
            "it was not seen whether it carries 100",
        ),
        (
            [((900, 1000), "generator"), ((1000, 1100), "server"), ((1200, 1300), "generator")],
            "generator",
            "carries at least 1,000 connections",
        ),
        (
            [((900, 1000), "server"), ((1000, 1100), "generator"), ((1200, 1300), "server")],
            "server",
            "carries 1,000 connections",
        ),
        (
            [((1000, 1100), "environment"), ((1000, 1100), "server"), ((1000, None), None)],
            "environment",
            "carries at least 1,000 connections",
        ),
        (
            [((None, FLOOR), "environment"), ((None, FLOOR), "environment"), ((5000, 5500), "server")],
            "environment",
            "it was not seen whether it carries 100",
        ),
        (
            [((None, FLOOR), "server"), ((5000, 5500), "generator")],
            "generator",
            "it was not seen whether it carries 5,500",
        ),
        (
            [((None, FLOOR), "generator"), ((MOST, None), None)],
            "generator",
            "is not decided",
        ),
        (
            [((1000, 1100), "generator"), ((MOST, None), None)],
            "generator",
            "carries at least 1,000 connections",
        ),
    ],
)
def test_what_ended_the_searches_is_what_ended_most_of_them_in_whichever_order(
    ends: Sequence[tuple[Bounds, LimitedBy | None]], limited_by: LimitedBy | None, said: str
) -> None:
    """The sentence and the exit code followed the first of the searches that found the median."""
    for order in itertools.permutations(ends):
        run = run_of([bounds for bounds, _ in order])
        for search, (_, by) in zip(run.searches, order, strict=True):
            search.limited_by = by
        [capacity] = describe_searches(run)
        assert capacity.limited_by == limited_by, order
        assert said in capacity.text, order


def test_a_bound_of_the_generator_bounds_no_server() -> None:
    run = run_of([(1000, 1100), (1000, 1020), (1000, 1200)])
    run.searches[1].limited_by = "generator"
    [capacity] = describe_searches(run)
    assert (capacity.lower, capacity.upper, capacity.limited_by) == (1000, 1200, "server")


def test_a_server_that_ended_during_its_search_is_no_server_that_carries_less() -> None:
    """Nobody starts a server anew that already runs: each further trial failed, down to the
    floor.
    """
    run = run_of([(1000, 4000)])
    run.searches = [each.model_copy(update={"state": "failed", "reason": "nothing listens"}) for each in run.searches]
    [capacity] = describe_searches(run)
    assert capacity.text == (
        "model epoll was not measured to the end: nothing listens; until then it carried at least 1,000 and less "
        "than 4,000 connections"
    )


def test_a_path_belongs_to_the_loads_of_the_setting_that_it_was_measured_for() -> None:
    """A search numbers the loads that it tries, and a calibration names cells of the matrix: the
    first search's second load was taken for the second cell.
    """
    settings: list[Settings] = [{"network.rtt": "5ms"}, {"network.rtt": "50ms"}]
    run = run_of([(1, 4), (1, 4)])
    run.searches = [
        each.model_copy(update={"point": at, "setting": settings[at]}) for at, each in enumerate(run.searches)
    ]
    run.points = [
        PointRecord(number=number, setting={**settings[number // 2], "load.connections": load}, server={}, load={})
        for number, load in enumerate((1, 4, 1, 4))
    ]
    run.calibrations = [calibration_record([at], within=within) for at, within in enumerate((True, False))]
    assert [each.setting for each in network.paths(run)] == settings
    assert [network.paths_off(run, point.number) is None for point in run.points] == [True, True, False, False]


def test_a_search_that_failed_at_the_floor_competes_with_what_it_shows() -> None:
    [comparison] = capacity_family(run_of([(1000, 1100), (None, FLOOR)]), "server.model")
    assert comparison.contenders == {"epoll": {1: (1000.0, 1100.0), 2: (0.0, 100.0)}}
    [comparison] = capacity_family(run_of([(None, FLOOR)]), "server.model")
    assert (comparison.contenders, comparison.absent) == ({}, ("epoll",))


def test_a_capacity_that_the_server_did_not_end_is_a_lower_bound() -> None:
    """A server that carried the whole range was left out, so that the one that stopped was alone
    with a result.
    """
    run = run_of([(MOST, None), (1000, 1100), (None, FLOOR)])
    run.searches[0].limited_by = None
    run.searches[1].limited_by = "generator"
    [comparison] = capacity_family(run, "server.model")
    assert comparison.contenders == {"epoll": {1: (float(MOST), math.inf), 2: (1000.0, math.inf), 3: (0.0, 100.0)}}
    run.searches[2].limited_by = "generator"
    [comparison] = capacity_family(run, "server.model")
    assert comparison.contenders["epoll"].keys() == {1, 2}, "below the floor nothing is known of the server"


def run_of_contenders(**bounds: Sequence[Bounds]) -> RunRecord:
    """A run of searches whose contenders are models, one search of each in a block."""
    run = run_of([each for every in bounds.values() for each in every])
    places = [(name, block) for name, every in bounds.items() for block in range(1, len(every) + 1)]
    for each, (name, block) in zip(run.searches, places, strict=True):
        each.setting, each.point, each.block = {"server.model": name}, list(bounds).index(name), block
        each.limited_by = "server" if each.upper is not None else None
    run.family = FamilyRecord(compare="server.model", figures=(CAPACITY,), margin=0.05)
    run.figures = [capacity_figure(SearchSettings(over="load.connections", lowest=FLOOR, highest=MOST))]
    return run


def answered(path: Path, run: RunRecord) -> RunSummary:
    (path / "trials").mkdir(parents=True)
    folder = RunFolder(path=path)
    folder.write_run(run)
    return summarise_run(folder)


def test_the_answer_has_those_who_carry_all_or_less_than_the_least_or_failed(tmp_path: Path) -> None:
    run = run_of_contenders(
        epoll=[(MOST, None)] * 6,
        poll=[(1000 + block, 1100 + block) for block in range(6)],
        select=[(None, FLOOR)] * 6,
        fork=[(None, None)] * 6,
    )
    for each in run.searches:
        if each.setting["server.model"] == "fork":
            each.state, each.reason = "failed", "no such option"
    text = " ".join(answered(tmp_path, run).answer)
    assert text.startswith("epoll carries at least 10,000 connections; poll at most 12 % of that. "), text
    assert "select reaches a limit: it carries less than 100 connections" in text
    assert "fork fails: no such option" in text


@pytest.mark.parametrize(
    ("new", "outcome", "said"),
    [
        ([(1000, 1010)] * 8, "pass", "at most"),
        ([(800, 810)] * 8, "worse", "at least"),
        ([(1000, 1010)] * 7 + [(None, None)], "failed", "new failed: no such option"),
        # It ended undecided, where `compare` calls it worse.
        ([(None, FLOOR)] * 8, "worse", "new's capacity is at least 90.0 % worse."),
        ([(1000, 1010)] * 7 + [(None, FLOOR)], "undecided", "new: search 8 found no load that is carried"),
        ([(MOST, None)] * 8, "pass", "at most"),
    ],
)
def test_a_gate_over_capacities_judges_these_and_not_the_loads_that_were_tried(
    new: Sequence[Bounds], outcome: GateOutcome, said: str, tmp_path: Path
) -> None:
    """A load that is too much on purpose failed the gate, and a loss of capacity ended in 0."""
    run = run_of_contenders(old=[(1000, 1010)] * 8, new=new)
    for each in run.searches:
        if each.lower is None and each.upper is None:
            each.state, each.reason = "failed", "no such option"
    run.family = run.family.model_copy(update={"baseline": "old", "tolerance": 0.05})
    too_much: Settings = {"server.model": "new", "load.connections": 4000}
    run.points = [PointRecord(number=0, setting=too_much, server={}, load={})]
    summary = answered(tmp_path, run)
    assert summary.gate is not None
    assert (summary.gate.outcome, said in summary.gate.text) == (outcome, True), summary.gate.text
    assert exit_code(summary) == {"pass": 0, "worse": 3, "undecided": 4, "failed": 1}[outcome]


def test_searches_that_contradict_each_other_are_no_answer(tmp_path: Path) -> None:
    """It was not decided, by its sentence, and ended as one that carries less."""
    run = run_of([(MOST, None), (None, FLOOR)])
    run.searches[0].limited_by = None
    summary = answered(tmp_path, run)
    assert "is not decided: one of its searches carried every load, and another none" in " ".join(summary.answer)
    assert (summary.valid, exit_code(summary)) == (False, 4)


@pytest.mark.parametrize(
    ("bounds", "states", "said"),
    [
        ([(1000, 1100), (990, 1090)], ["complete", "complete"], ", confirmed by fresh, longer trials"),
        (
            [(1000, 1100), (990, 1090)],
            ["complete", "out of patience"],
            ", confirmed by fresh, longer trials in 1 of 2 searches",
        ),
        ([(1000, 1100), (990, 1090)], ["interrupted", "out of patience"], ", not confirmed by fresh, longer trials"),
        ([(1000, 1100), (None, FLOOR)], ["complete", "complete"], ", confirmed by fresh, longer trials"),
        ([(None, FLOOR)], ["complete"], ""),
    ],
)
def test_the_page_of_searches_says_whether_their_answers_are_confirmed(
    tmp_path: Path, bounds: Sequence[Bounds], states: Sequence[SearchState], said: str
) -> None:
    """It said so of every one, also of those that ended before."""
    run = run_of(bounds)
    run.limits = [Limit(figure="response_time_us.p99", operator="<", value=5e3, text="p99 < 5ms")]
    for search, state in zip(run.searches, states, strict=True):
        search.state, search.is_held = state, search.is_held and state == "complete"
    note = searches_section(answered(tmp_path, run), run)[0]
    assert note == Text(text=f"The highest load that meets p99 < 5ms{said}.")


def stored(path: Path, limit: str, *, size: str = "64B") -> RunFolder:
    run = run_of([(1000, 1100)])
    run.run, run.family = path.name, FamilyRecord(compare=None, figures=(CAPACITY,), margin=0.05)
    run.limits = [Limit(figure="response_time_us.p99", operator="<", value=1.0, text=limit)]
    run.figures = [capacity_figure(SearchSettings(over="load.connections", lowest=FLOOR, highest=MOST))]
    run.points = [PointRecord(number=0, setting={"server.model": "epoll"}, server={}, load={"size": size})]
    (path / "trials").mkdir(parents=True)
    folder = RunFolder(path=path)
    folder.write_run(run)
    return folder


def test_the_capacities_of_a_search_are_in_its_exports(tmp_path: Path) -> None:
    """They had an empty column in the tables of points and of trials, and were in no other."""
    folder = stored(tmp_path / "0001", "response_time.p99 < 5ms")
    run, summary = folder.read_run(), summarise_run(folder)
    [row] = csv.DictReader(io.StringIO(capacities_csv(summary)))
    told = {"server.model": "epoll", "lower": "1000", "upper": "1100", "limited_by": "server", "searches": "1"}
    assert told.items() <= row.items()
    assert row["text"] == summary.capacities[0].text
    for table in (points_csv(run, summary), trials_csv(run, [])):
        assert "capacity" not in table.splitlines()[0]
    samples = [line for line in openmetrics(run, summary).splitlines() if line.startswith("plimsoll_lab_capacity{")]
    assert [re.findall(r'server_model="epoll",statistic="(\w+)"} (.*)', each) for each in samples] == [
        [("lower", "1000")], [("upper", "1100")]
    ]  # fmt: skip


def test_capacities_within_other_limits_or_of_another_load_are_not_compared(tmp_path: Path) -> None:
    one = stored(tmp_path / "0001", "response_time.p99 < 5ms")
    alike = stored(tmp_path / "0002", "response_time.p99 < 5ms")
    wider = stored(tmp_path / "0003", "response_time.p99 < 50ms")
    other = stored(tmp_path / "0004", "response_time.p99 < 5ms", size="4KiB")
    assert compare_runs([one], [alike]).not_comparable == []
    for run in (wider, other):
        assert compare_runs([one], [run]).not_comparable == ["the runs have no point in common"]


def test_who_has_no_capacity_to_compare_is_told_with_the_reason() -> None:
    run = run_of_contenders(
        epoll=[(1000, 1100)], select=[(None, FLOOR)], fork=[(None, None)], poll=[(None, None)], tired=[(None, 400)]
    )
    states: dict[str, tuple[SearchState, str | None]] = {
        "fork": ("failed", "no such option"),
        "poll": ("planned", None),
        "tired": ("out of patience", None),
    }
    for each in run.searches:
        each.state, each.reason = states.get(str(each.setting["server.model"]), ("complete", None))
    assert searches_without_capacity(run, describe_searches(run)) == [
        StopRecord(
            contender="select", at={}, outcome="hard_limit", reason="it carries less than 100 connections", held=None
        ),
        StopRecord(contender="fork", at={}, outcome="failed", reason="no such option", held=None),
    ]
    run.family = run.family.model_copy(update={"compare": None})
    assert searches_without_capacity(run, describe_searches(run)) == []


def test_the_spread_is_of_what_was_carried_over_the_middle() -> None:
    """From 900 to 1,100 around 1,000; of two, around 950; a search at the floor carried nothing."""
    assert found((1000, 1010), (900, 910), (1100, 1110)).spread == pytest.approx(0.2)
    assert found((900, 910), (1000, 1010)).spread == pytest.approx(100 / 950)
    assert found((1000, 1010), (None, FLOOR), (1000, 1010)).spread == 1
    assert found((1000, 1010)).spread is None


def test_capacities_are_compared_at_each_setting_besides_the_contender() -> None:
    run = run_of_contenders(a=[(1000, 1100)], b=[(900, 950)])
    run.searches = [
        each.model_copy(update={"setting": {**each.setting, "load.size": size}})
        for size in ("64B", "1KiB")
        for each in run.searches
    ]
    run.searches = [*run.searches, run.searches[0].model_copy(update={"setting": {"load.size": "64B"}})]
    small, large = capacity_family(run, "server.model")
    assert (small.at, large.at) == ({"load.size": "64B"}, {"load.size": "1KiB"})
    assert (small.figure, small.better, small.absent) == ("capacity", "higher", ())
    assert small.contenders == large.contenders == {"a": {1: (1000.0, 1100.0)}, "b": {1: (900.0, 950.0)}}
