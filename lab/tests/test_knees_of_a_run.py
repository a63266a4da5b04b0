"""The knees of a run: which curves have one, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.knees import find_knees
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.knees import knee_charts
from plimsoll_lab.stats.results import Bound
from plimsoll_lab.store.records import ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import ImportRecord, RunRecord
from plimsoll_lab.store.summary_record import KneeRecord
from plimsoll_lab.suite.spec import Axis


def test_the_bound_of_a_curve_that_only_falls_is_level(tmp_path: Path) -> None:
    """By noise its corner may lie below the first load; the line rose there and fell again."""
    folder = stored_run(tmp_path / "0001", repeat=2)
    figures = {"completed_rate": 900.0, "response_time_us.mean": 1e3}
    trials = [
        replace(trial, setting={"load.connections": load}, figures=figures)
        for trial, load in zip(folder.read_trials(), (1, 2), strict=False)
    ]
    bound = Bound(most_rate=900.0, idle_response_s=1e-3, think_s=0.0, at=0.9, at_ci95=None, reached=True)
    knee = KneeRecord(point={}, bound=bound, fit=None, refused="two loads", text="")
    layout = MatrixLayout(compare=None, contenders=("all",), levels=())
    layers: Any = knee_charts([knee], trials, layout)["knee-0-rate"]["layer"]
    assert [(row["x"], row["y"]) for row in layers[1]["data"]["values"]] == [(1, 900.0), (2, 900.0)]


def test_loads_may_be_written_with_a_k(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", repeat=2)
    run, loads = folder.read_run(), ("1k", "2k")
    run.axes = (Axis(path="load.connections", values=loads),)
    run.points = [
        run.points[0].model_copy(update={"number": number, "setting": {"load.connections": load}})
        for number, load in enumerate(loads)
    ]
    figures = {"completed_rate": 10_000.0, "response_time_us.mean": 50_000.0}
    trials = [
        replace(trial, point=number, setting={"load.connections": loads[number]}, figures=figures)
        for number, trial in enumerate(folder.read_trials())
    ]
    [knee] = find_knees(run, trials)
    assert knee.bound is not None
    assert knee.bound.at == pytest.approx(500)
    assert knee.bound.reached


def curve_of(tmp_path: Path, loads: Sequence[int]) -> tuple[RunRecord, list[TrialRecord]]:
    """A run of two trials at each load, with 10 ms of think time: 1,000/s and 10 ms at the first
    load and half as much again at each further one.
    """
    folder = stored_run(tmp_path / "0001", tuple(map(str, loads)), repeat=2)
    run = folder.read_run()
    run.axes = (Axis(path="load.connections", values=tuple(loads)),)
    run.points = [
        point.model_copy(update={"setting": {"load.connections": load}, "load": {"think": "10ms"}})
        for point, load in zip(run.points, loads, strict=True)
    ]
    trials = [
        replace(
            trial,
            setting={"load.connections": loads[trial.point]},
            figures={"completed_rate": 1000.0 + 500 * trial.point, "response_time_us.mean": 10_000.0},
        )
        for trial in folder.read_trials()
    ]
    return run, trials


def test_a_knee_is_said_in_a_sentence(tmp_path: Path) -> None:
    """Both trials of a load are alike: 1,500/s at most, of 10 ms and 10 ms between, makes 30."""
    run, trials = curve_of(tmp_path, [10, 36])
    [knee] = find_knees(run, trials)
    assert knee.text == "30 [30, 30] connections: 1,500/s at most, and 10.0 ms when idle with 0.01 s of think time"
    assert (knee.point, knee.fit, knee.bound is not None) == ({}, None, True)
    assert knee.refused == "2 loads are too few for a curve of three parameters; at least 6"
    run.points = [each.model_copy(update={"load": {}}) for each in run.points]
    [alone] = find_knees(run, [each for each in trials if each.block == 1])
    assert alone.text == "15 connections: 1,500/s at most, and 10.0 ms when idle"


def test_a_knee_that_was_not_reached_is_said_to_be_so(tmp_path: Path) -> None:
    [knee] = find_knees(*curve_of(tmp_path, [10, 35]))
    assert knee.text == "not reached: N* is 30 connections or more, for no load well beyond that was tried"


def test_a_curve_of_one_load_with_a_result_has_no_knee(tmp_path: Path) -> None:
    run, trials = curve_of(tmp_path, [10, 36])
    for spoilt in (
        [each for each in trials if each.point == 0],
        [replace(each, outcome="invalid") if each.point else each for each in trials],
        [replace(each, figures={"completed_rate": 1.0}) if each.point else each for each in trials],
        [replace(each, figures={"response_time_us.mean": 1.0}) if each.point else each for each in trials],
        [
            replace(each, warnings=(ResultWarning(code="window_too_short", message="", remedy=""),))
            if each.point
            else each
            for each in trials
        ],
    ):
        [knee] = find_knees(run, spoilt)
        assert knee.text == "no knee: fewer than two loads have a result"
    warned = [replace(each, warnings=(ResultWarning(code="steal", message="", remedy=""),)) for each in trials]
    assert find_knees(run, warned) == find_knees(run, trials)


def test_no_knee_is_looked_for_where_nothing_is_known_of_the_loop_or_its_loads(tmp_path: Path) -> None:
    """Of an imported run, of one load, of an open loop, and of an axis that is no load."""
    run, trials = curve_of(tmp_path, [10, 36])
    points = list(run.points)
    assert find_knees(run, trials)
    for changed in (
        run.model_copy(update={"imported": ImportRecord.model_construct()}),
        run.model_copy(update={"axes": (Axis(path="load.connections", values=(10,)),)}),
        run.model_copy(update={"axes": (Axis(path="load.size", values=(10, 36)),)}),
        run.model_copy(update={"points": [each.model_copy(update={"load": {"rate": "1k"}}) for each in points]}),
        run.model_copy(update={"points": [each.model_copy(update={"control": True}) for each in points]}),
        run.model_copy(update={"points": [each.model_copy(update={"setting": {}}) for each in points]}),
    ):
        assert find_knees(changed, trials) == []


def test_each_setting_besides_the_connections_has_a_knee_in_the_order_of_the_suite(tmp_path: Path) -> None:
    run, trials = curve_of(tmp_path, [10, 36])
    sizes = ("64B", "1KiB")
    both = [
        each.model_copy(update={"number": 2 * place + each.number, "setting": {**each.setting, "load.size": size}})
        for place, size in enumerate(sizes)
        for each in run.points
    ]
    run = run.model_copy(
        update={
            "points": both,
            "axes": (Axis(path="load.size", values=sizes), Axis(path="load.connections", values=(10, 36))),
        }
    )
    made = [
        replace(
            trial,
            point=2 * place + trial.point,
            setting={**trial.setting, "load.size": size},
            figures={**trial.figures, "completed_rate": trial.figures["completed_rate"] / (1 + place)},
        )
        for place, size in reversed(list(enumerate(sizes)))
        for trial in trials
    ]
    first, second = find_knees(run, made)
    assert (first.point, second.point) == ({"load.size": "64B"}, {"load.size": "1KiB"})
    assert first.bound is not None
    assert second.bound is not None
    assert (first.bound.at, second.bound.at) == pytest.approx((30, 15))


def test_a_knee_has_the_fit_of_its_loads_by_the_seed_of_its_run(tmp_path: Path) -> None:
    """Eight loads of 1,000 N / (1 + 0.05 (N - 1)), and 1 % above and below that in two trials."""
    run, trials = curve_of(tmp_path, [1, 2, 4, 8, 16, 32, 64, 128])
    run.points = [each.model_copy(update={"load": {}}) for each in run.points]
    made = []
    for trial in trials:
        load, luck = int(str(trial.setting["load.connections"])), 1.01 if trial.block == 1 else 0.99
        rate = 1000 * load / (1 + 0.05 * (load - 1)) * luck
        made.append(replace(trial, figures={"completed_rate": rate, "response_time_us.mean": 1000.0 * luck}))
    [knee] = find_knees(run, made)
    assert knee.fit is not None
    assert knee.fit.alone == pytest.approx(1000, rel=0.01)
    assert knee.fit.contention == pytest.approx(0.05, rel=0.01)
    assert find_knees(run, made) == [knee]
    bound = knee.bound
    assert bound is not None
    assert bound.at_ci95 is not None
    low, high = bound.at_ci95
    assert low < bound.at < high
    assert f"[{low:,.0f}, {high:,.0f}]" in knee.text
