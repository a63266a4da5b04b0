"""Capacities of stored runs are compared as any figure: a run is the unit, five a side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.comparison import compare_runs
from plimsoll_lab.store.comparison_summary import ComparisonSummary
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.search_record import LimitedBy, SearchRecord, SearchSettingsRecord
from plimsoll_lab.suite.figures import FIGURES, capacity_figure, read_limit
from plimsoll_lab.suite.spec import SearchSettings

SEARCH = SearchSettings(over="load.rate", lowest=100, highest=100_000)
DAYS = (1.0, 1.012, 0.991, 1.004, 0.996)


def searched(path: Path, lower: int, limited_by: LimitedBy = "server") -> RunFolder:
    """A run whose one search ended between `lower` and 5 % more."""
    folder = stored_run(path)
    run = folder.read_run()
    run.search = SearchSettingsRecord(**asdict(SEARCH))
    run.family = run.family.model_copy(update={"figures": ("capacity",)})
    run.figures = (capacity_figure(SEARCH), *FIGURES)
    run.searches = [
        SearchRecord(
            number=1, block=1, point=0, state="complete", setting={}, lower=lower, upper=round(lower * 1.05),
            limited_by=limited_by, held_s=60.0, confirmed=8,
        )
    ]  # fmt: skip
    folder.write_run(run)
    return folder


def compared(path: Path, a: Sequence[float], b: Sequence[float], limited_by: LimitedBy = "server") -> ComparisonSummary:
    sides = [
        [searched(path / f"{side}{number}", round(each), limited_by) for number, each in enumerate(values)]
        for side, values in (("a", a), ("b", b))
    ]
    return compare_runs(*sides)


def test_a_lower_capacity_is_worse_with_five_runs_a_side(tmp_path: Path) -> None:
    found = compared(tmp_path, [10_000 * day for day in DAYS], [8_500 * day for day in DAYS])
    [verdict] = found.verdicts
    assert (verdict.figure, verdict.call, verdict.winner, verdict.n) == ("capacity", "better", "A", (5, 5))
    assert (found.worse, found.valid) == (True, True)


def test_the_same_capacity_is_no_worse_and_four_runs_say_nothing(tmp_path: Path) -> None:
    same = compared(tmp_path / "same", [10_000 * day for day in DAYS], [10_050 * day for day in reversed(DAYS)])
    assert (same.worse, same.verdicts[0].call) == (False, "not shown")
    few = compared(tmp_path / "few", [10_000 * day for day in DAYS[:4]], [5_000 * day for day in DAYS[:4]])
    assert (few.worse, few.valid, few.verdicts[0].call) == (False, False, "not shown")
    assert "4 runs a side are too few" in few.verdicts[0].reason


def test_a_capacity_is_compared_by_what_it_lies_between(tmp_path: Path) -> None:
    """Of five searches over one grid each, brackets that overlap were called better with p = 0."""
    near = compared(tmp_path / "near", [10_100] * 5, [10_000] * 5)
    [verdict] = near.verdicts
    assert (near.worse, verdict.call) == (False, "not shown")
    assert verdict.ratio == pytest.approx(10_000 / 10_100, rel=1e-3)
    low, high = verdict.ratio_ci95 or (0.0, 0.0)
    assert low == pytest.approx(10_000 / 10_605, rel=1e-3)
    assert high == pytest.approx(10_500 / 10_100, rel=1e-3)
    far = compared(tmp_path / "far", [10_600] * 5, [10_000] * 5)
    assert (far.worse, far.verdicts[0].call, far.verdicts[0].winner) == (True, "better", "A")


def test_a_capacity_that_the_generator_limited_is_not_compared(tmp_path: Path) -> None:
    found = compared(tmp_path, [10_000 * day for day in DAYS], [8_500 * day for day in DAYS], "generator")
    assert (found.worse, found.valid, found.verdicts[0].call) == (False, False, "invalid")


def test_a_capacity_at_the_end_of_the_range_is_no_number(tmp_path: Path) -> None:
    """Two that carried the most that was tried were called equivalent."""
    sides = [[searched(tmp_path / f"{side}{number}", 10_000 + number) for number in range(5)] for side in ("a", "b")]
    for folder in (folder for side in sides for folder in side[3:]):
        run = folder.read_run()
        run.searches[0].upper, run.searches[0].limited_by = None, None
        folder.write_run(run)
    found = compare_runs(*sides)
    assert (found.worse, found.valid, found.verdicts[0].call) == (False, False, "invalid")
    assert found.verdicts[0].reason.startswith("4 of the runs carried the most that was tried, and may carry more")


def test_a_server_that_no_longer_starts_has_lost_its_capacity(tmp_path: Path) -> None:
    sides = [[searched(tmp_path / f"{side}{number}", 10_000 + number) for number in range(5)] for side in ("a", "b")]
    for folder in sides[1][2:]:
        run = folder.read_run()
        run.searches[0].state, run.searches[0].reason = "failed", "no such option"
        run.searches[0].lower = run.searches[0].upper = None
        folder.write_run(run)
    found = compare_runs(*sides)
    assert (found.worse, [each.outcome for each in found.lost]) == (True, ["failed"])
    assert "no such option" in str(found.lost[0].reason)


def test_of_a_search_that_was_interrupted_the_searches_are_counted(tmp_path: Path) -> None:
    """It had "42 of 2 trials": what is planned of a search are searches."""
    a, b = (searched(tmp_path / side, 10_000) for side in ("a", "b"))
    run = b.read_run()
    planned = [SearchRecord(number=number, block=number, point=0, state="planned") for number in (2, 3)]
    run.searches = [*run.searches, *planned]
    b.write_run(run)
    [warning] = compare_runs([a], [b]).warnings
    assert warning.code == "incomplete"
    assert warning.message == f"not every run is complete: {b.path} has 1 of 3 searches"
    assert warning.remedy == f"plimsoll lab resume {b.path} measures the rest"


@pytest.mark.parametrize(("limited_by", "lost"), [("server", True), ("generator", False)])
def test_a_server_that_carries_less_than_the_lowest_load_has_lost_its_capacity(
    tmp_path: Path, limited_by: LimitedBy, *, lost: bool
) -> None:
    """It had "no valid result", and the exit code said that nothing could be told."""
    sides = [[searched(tmp_path / f"{side}{number}", 10_000 + number) for number in range(5)] for side in ("a", "b")]
    for folder in sides[1][2:]:
        run = folder.read_run()
        run.searches[0].lower, run.searches[0].upper, run.searches[0].limited_by = None, 100, limited_by
        folder.write_run(run)
    found = compare_runs(*sides)
    assert (found.worse, [each.outcome for each in found.lost]) == (lost, ["hard_limit"] if lost else [])
    assert all(str(each.reason).startswith("the server carries less than 100 requests/s") for each in found.lost)
    back = compare_runs(sides[1], sides[0])
    assert (back.worse, back.lost) == (False, []), "what A lost is no loss of B"


def one_verdict(a: RunFolder, b: RunFolder) -> tuple[str, str]:
    """What was said of the capacity, and why."""
    [verdict] = compare_runs([a], [b]).verdicts
    assert verdict.figure == "capacity"
    return verdict.call, verdict.reason


@pytest.mark.parametrize(
    "changed",
    [
        {"state": "out of patience"},
        {"limited_by": "generator"},
        {"limited_by": "generator", "upper": None},
        {"limited_by": "environment"},
        {"state": "failed", "lower": None, "upper": None, "reason": "no such option"},
        {"lower": None, "upper": 100},
    ],
)
def test_a_search_that_did_not_find_the_servers_capacity_has_none_to_compare(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    a, b = (searched(tmp_path / side, 10_000) for side in ("a", "b"))
    run = b.read_run()
    run.searches = [run.searches[0].model_copy(update=changed)]
    b.write_run(run)
    assert one_verdict(a, b) == ("invalid", "no valid result in B")
    assert one_verdict(b, a) == ("invalid", "no valid result in A")


def test_one_capacity_at_the_end_of_its_range_is_counted_as_one(tmp_path: Path) -> None:
    a, b = (searched(tmp_path / side, 10_000) for side in ("a", "b"))
    run = b.read_run()
    run.searches[0].upper, run.searches[0].limited_by = None, None
    b.write_run(run)
    for one, other in ((a, b), (b, a)):
        assert one_verdict(one, other) == (
            "invalid",
            "1 of the runs carried the most that was tried, and may carry more; search over a greater range",
        )


def with_load(folder: RunFolder, place: int = 0, **load: int | str) -> RunFolder:
    """The same run, of which a point was tried with this load."""
    run = folder.read_run()
    points = list(run.points)
    points[place] = points[place].model_copy(update={"load": load})
    run.points = points
    folder.write_run(run)
    return folder


def test_what_a_search_varies_and_where_its_server_is_are_no_part_of_what_was_asked(tmp_path: Path) -> None:
    a = with_load(searched(tmp_path / "a", 10_000), rate=100, duration="1s", target="127.0.0.1:1", connections=10)
    b = with_load(searched(tmp_path / "b", 10_000), rate=900, duration="9s", target="127.0.0.1:2", connections=10)
    assert compare_runs([a], [b]).not_comparable == []
    c = with_load(searched(tmp_path / "c", 10_000), rate=100, duration="1s", target="127.0.0.1:1", connections=20)
    assert compare_runs([a], [c]).not_comparable == ["the runs have no point in common"]


def test_limits_of_a_search_are_the_same_in_any_order(tmp_path: Path) -> None:
    a, b = (searched(tmp_path / side, 10_000) for side in ("a", "b"))
    limits = [read_limit(name, "< 5ms", source="it.toml") for name in ("response_time.p99", "response_time.p50")]
    for folder, own in ((a, limits), (b, limits[::-1])):
        run = folder.read_run()
        run.limits = own
        folder.write_run(run)
    assert compare_runs([a], [b]).not_comparable == []


def test_capacities_are_compared_setting_by_setting(tmp_path: Path) -> None:
    """Of two servers the load of the second is another one."""

    def of_two(path: Path) -> RunFolder:
        folder = searched(path, 10_000)
        run = folder.read_run()
        first, epoll = run.searches[0], run.points[0]
        run.points = [epoll, epoll.model_copy(update={"number": 1, "setting": {"server.model": "poll"}})]
        run.searches = [
            first.model_copy(update={"number": point.number + 1, "point": point.number, "setting": point.setting})
            for point in run.points
        ]
        folder.write_run(run)
        return folder

    a, b = of_two(tmp_path / "a"), of_two(tmp_path / "b")
    both = [each.at for each in compare_runs([a], [b]).verdicts]
    assert both == [{"server.model": "epoll"}, {"server.model": "poll"}]
    found = compare_runs([a], [with_load(b, 1, connections=20)])
    assert [each.at for each in found.verdicts] == [{"server.model": "epoll"}]
    assert found.warnings[0].message.endswith(" were left out: 2")


def test_a_search_that_has_tried_no_load_yet_is_a_point_that_the_other_run_lacks(tmp_path: Path) -> None:
    a, b = (searched(tmp_path / side, 10_000) for side in ("a", "b"))
    run = b.read_run()
    planned = SearchRecord(number=2, block=1, point=1, state="planned", setting={"server.model": "poll"})
    run.searches = [*run.searches, planned]
    b.write_run(run)
    found = compare_runs([a], [b])
    assert [each.at for each in found.verdicts] == [{}]
    assert {each.code for each in found.warnings} == {"unmatched_points", "incomplete"}
