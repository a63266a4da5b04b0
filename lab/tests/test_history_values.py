"""The values of a history: of which runs and points they are, and where a new level begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import MEDIAN, RATE, stored
from made_records import ENVIRONMENT, changed, run_record

from plimsoll_lab.analysis.history import HistoryRun, HistoryValue, Series, find_history
from plimsoll_lab.stats.change_points import LEAST_VALUES
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Outcome
from plimsoll_lab.store.run_record import FamilyRecord
from plimsoll_lab.store.search_record import SearchSettingsRecord

JUDGED = FamilyRecord(compare=None, figures=(RATE,), margin=0.05)


def rated(path: Path, rates: Sequence[float]) -> list[RunFolder]:
    """A run of each rate."""
    return [stored(path / f"{place:04}", {RATE: rate}, family=JUDGED) for place, rate in enumerate(rates, 1)]


def series_of(folders: Sequence[RunFolder]) -> list[Series]:
    return list(find_history(folders, "it").series)


def test_a_history_is_of_the_runs_of_one_suite_that_searched_for_nothing(tmp_path: Path) -> None:
    one, other, searched, last = rated(tmp_path, [1000, 1001, 1002, 1003])
    changed(one, versions={"plimsoll": "plimsoll 0.1.0", "plimsoll_sha256": "0123456789abcdef", "lab": "0.1.0"})
    changed(other, suite=run_record().suite.model_copy(update={"name": "another"}))
    changed(searched, search=SearchSettingsRecord(over="load.rate", lowest=1, highest=10))
    changed(last, started_unix_s=7.0, versions={})
    history = find_history([one, other, searched, last], "it")
    known = ENVIRONMENT.to_json()
    assert (history.suite, history.least) == ("it", LEAST_VALUES)
    assert history.runs == [
        HistoryRun(run="0001", started_unix_s=0.0, build="plimsoll 0.1.0 01234567", environment=known),
        HistoryRun(run="0004", started_unix_s=7.0, build="", environment=known),
    ]
    [series] = history.series
    assert (series.figure.name, series.at, series.missing, series.changes) == (RATE, "model epoll", [], [])
    assert [(each.order, each.median) for each in series.values] == [(0, 1000), (1, 1003)]


def test_a_value_has_its_interval_and_the_part_of_the_trials_that_tell_it(tmp_path: Path) -> None:
    """Seven of eight valid trials: the median is the fourth, and both ends bound it."""
    folder = stored(tmp_path / "0001", {RATE: 1.0}, family=JUDGED)
    [trial] = folder.read_trials()
    for number in range(1, 8):
        folder.write_trial(replace(trial, number=number, block=number, figures={RATE: 10.0 * number}))
    folder.write_trial(replace(trial, number=8, block=8, figures={}))
    folder.write_trial(replace(trial, number=9, block=9, outcome="invalid", figures={RATE: 1e9}))
    [series] = series_of([folder])
    assert series.values == [HistoryValue(order=0, median=40.0, low=10.0, high=70.0, n=7, told=7 / 8)]
    [alone] = series_of(rated(tmp_path / "more", [5.0]))
    assert alone.values == [HistoryValue(order=0, median=5.0, low=None, high=None, n=1, told=1.0)]


@pytest.mark.parametrize(("outcome", "missing"), [("failed", [1]), ("ok", [])])
def test_a_run_without_a_result_is_missing_where_it_was_asked_the_same(
    tmp_path: Path, outcome: Outcome, missing: list[int]
) -> None:
    one, last = rated(tmp_path, [1000, 1002])
    middle = stored(tmp_path / "0003", {RATE: 1001.0}, family=JUDGED, outcome=outcome)
    [series] = series_of([one, middle, last])
    assert (list(series.missing), len(series.values)) == (missing, 3 - len(missing))


def test_a_few_results_of_a_point_that_has_none_are_no_value(tmp_path: Path) -> None:
    """As on the page of the run: of three trials two failed."""
    folder = stored(tmp_path / "0001", {RATE: 1000.0}, family=JUDGED)
    [trial] = folder.read_trials()
    for number in (2, 3):
        folder.write_trial(replace(trial, number=number, block=number, outcome="failed"))
    assert series_of([folder]) == []


def test_a_run_that_leaves_more_of_its_times_untold_has_a_rate_and_no_time(tmp_path: Path) -> None:
    whole, part = (stored(tmp_path / name, {RATE: 1000.0, MEDIAN: 200.0}) for name in ("0001", "0002"))
    [trial] = part.read_trials()
    part.write_trial(replace(trial, number=2, block=2, figures={RATE: 1000.0}))
    values = {each.figure.name: [value.order for value in each.values] for each in series_of([whole, part])}
    assert values == {RATE: [0, 1], MEDIAN: [0]}


def test_controls_and_figures_that_a_run_does_not_judge_are_in_no_history(tmp_path: Path) -> None:
    folder = stored(tmp_path / "0001", {RATE: 1000.0, MEDIAN: 200.0}, models=("epoll", "poll"))
    run = folder.read_run()
    one, other = run.points
    changed(
        folder,
        points=[one.model_copy(update={"setting": {}}), other.model_copy(update={"control": True})],
        family=run.family.model_copy(update={"figures": (RATE,)}),
    )
    assert [(each.figure.name, each.at) for each in series_of([folder])] == [(RATE, "every setting")]
    changed(folder, points=[one.model_copy(update={"control": True}), other], family=run.family)
    assert [(each.figure.name, each.at) for each in series_of([folder])] == [
        (RATE, "model poll"),
        (MEDIAN, "model poll"),
    ]


def test_a_new_level_begins_where_it_changed_with_the_ratio_of_both(tmp_path: Path) -> None:
    """Six runs of 1/s on the geometric mean, and six of three quarters of that."""
    level = [1.01, 1 / 1.01] * 3
    [series] = series_of(rated(tmp_path, [*level, *(0.75 * each for each in level)]))
    [change] = series.changes
    assert change.order == 6
    assert change.ratio == pytest.approx(0.75)
    [steady] = series_of(rated(tmp_path / "steady", level * 2))
    assert steady.changes == []
    [stopped] = series_of(rated(tmp_path / "stopped", [*level, *([0.0] * 6)]))
    assert [(each.order, each.ratio, each.after) for each in stopped.changes] == [(6, 0.0, 0.0)]
    # "No level has changed" was said of a figure that was 0 in the first runs.
    [begun] = series_of(rated(tmp_path / "begun", [*([0.0] * 6), *level]))
    assert [(each.order, each.ratio, each.before) for each in begun.changes] == [(6, None, 0.0)]


def test_the_place_of_a_change_counts_runs_without_a_value(tmp_path: Path) -> None:
    level = [1000 * 1.01, 1000 / 1.01] * 3
    folders = rated(tmp_path, [*level, *(2 * each for each in level)])
    failed = stored(tmp_path / "0099", {RATE: 1.0}, family=JUDGED, outcome="failed")
    [series] = series_of([failed, *folders])
    [change] = series.changes
    assert change.order == 7
    assert change.ratio == pytest.approx(2)
    assert series.missing == [0]


def test_a_place_under_two_loads_is_named_by_its_first_run(tmp_path: Path) -> None:
    one, two, three = rated(tmp_path, [1000, 1001, 1002])
    point = two.read_run().points[0]
    for folder in (two, three):
        changed(folder, points=[point.model_copy(update={"load": {"connections": 20}})])
    found = {
        each.at: ([value.order for value in each.values], list(each.missing)) for each in series_of([one, two, three])
    }
    assert found == {"model epoll, as in run 0001": ([0], []), "model epoll, as in run 0002": ([1, 2], [])}


def test_runs_with_another_warm_up_or_a_capture_are_no_part_of_a_series(tmp_path: Path) -> None:
    """As `compare` has it: a level changed where packets were captured from then on."""
    one, captured, warmed, last = rated(tmp_path, [1000, 900, 1100, 1001])
    run = one.read_run()
    changed(captured, request=run.request.model_copy(update={"changes": {"capture": True}}))
    changed(warmed, settings=replace(run.settings, warm_up="3s"))
    found = {each.at: [value.order for value in each.values] for each in series_of([one, captured, warmed, last])}
    assert found == {f"model epoll, as in run {at:04}": orders for at, orders in ((1, [0, 3]), (2, [1]), (3, [2]))}
