"""The knees of a run: which curves have one, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.knees import AXIS, check_settings, connections_of, find_knees
from plimsoll_lab.problem import LabError
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.knees import knee_charts
from plimsoll_lab.stats.results import Bound
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import NOT_TOLD, ImportRecord, RunRecord
from plimsoll_lab.store.summary_record import KneeRecord
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Axis


def test_the_bound_of_a_curve_that_only_falls_is_level(tmp_path: Path) -> None:
    """By noise its corner may lie below the first load; the line rose there and fell again."""
    folder = stored_run(tmp_path / "0001", repeat=2)
    figures = {"completed_rate": 900.0, "response_time_us.mean": 1e3}
    trials = [
        replace(trial, setting={"load.connections": load}, figures=figures)
        for trial, load in zip(folder.read_trials(), (1, 2), strict=False)
    ]
    bound = Bound(
        most_rate=900.0,
        idle_response_s=1e-3,
        think_s=0.0,
        at=0.9,
        at_ci95=None,
        reached=True,
        lowest=1,
        saturated=False,
    )
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


def test_the_lowest_load_that_was_tried_is_no_knee(tmp_path: Path) -> None:
    """A server saturated throughout had its knee at the fewest connections, "20.0 ms when idle"."""
    run, trials = curve_of(tmp_path, [1000, 2000, 4000])
    run.points = [each.model_copy(update={"load": {}}) for each in run.points]
    full = {"completed_rate": 50_000.0}
    trials = [
        replace(each, figures={**full, "response_time_us.mean": 20_000.0 * 2**each.point}, setting=each.setting)
        for each in trials
    ]
    [knee] = find_knees(run, trials)
    assert knee.bound is not None
    assert knee.bound.saturated
    assert knee.text == "not shown: 1,000 connections, the fewest tried, may saturate the server: 50,000/s at most"
    assert not knee.bound.is_shown


def test_the_one_result_of_a_load_that_has_none_bends_no_curve(tmp_path: Path) -> None:
    """Eleven of twelve trials had a late generator, and the twelfth was the most requests."""
    run, trials = curve_of(tmp_path, [10, 36, 72])
    late = [
        replace(each, outcome="generator_limited") if each.point == 2 and each.block == 1 else each for each in trials
    ]
    late += [replace(each, outcome="generator_limited", number=99) for each in trials if each.point == 2]
    slow = [
        replace(each, figures={**each.figures, "completed_rate": 1500.0})
        if each.outcome == "generator_limited"
        else each
        for each in late
    ]
    [knee] = find_knees(run, slow)
    [without] = find_knees(run, [each for each in trials if each.point != 2])
    assert (knee.text, knee.bound) == (without.text, without.bound)
    # What the generator did not exhaust is more than "at most".
    [beyond] = find_knees(run, late)
    assert without.bound is not None
    assert beyond.bound == replace(without.bound, reached=False)
    assert beyond.text == (
        "not reached: N* is 30 connections or more, for the generator was the limit at 2,000/s, more than the 1,500/s "
        "that it did not limit"
    )


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


def test_a_run_that_has_come_to_its_first_trial_has_a_curve_of_one_load(tmp_path: Path) -> None:
    run, trials = curve_of(tmp_path, [10, 36])
    [knee] = find_knees(run, trials[:1])
    assert (knee.text, knee.point) == ("no knee: fewer than two loads have a result", {})


def test_the_bound_of_a_run_is_in_seconds_and_of_its_own_think_time(tmp_path: Path) -> None:
    run, trials = curve_of(tmp_path, [10, 36])
    [knee] = find_knees(run, trials)
    assert knee.bound is not None
    assert (knee.bound.idle_response_s, knee.bound.think_s) == (0.01, 0.01)
    drawn = run.model_copy(
        update={"points": [each.model_copy(update={"load": {"think": "exp:1s"}}) for each in run.points]}
    )
    [longer] = find_knees(drawn, trials)
    assert longer.bound is not None
    assert longer.bound.at == pytest.approx(1500 * 1.01)


def test_a_point_beside_the_matrix_and_one_with_a_rate_are_on_no_curve(tmp_path: Path) -> None:
    run, trials = curve_of(tmp_path, [10, 36, 100])
    one, other, last = run.points
    [knee] = find_knees(run, trials)
    run.points = [one, other, last.model_copy(update={"load": {"rate": "1k"}})]
    [without] = find_knees(run, trials)
    run.points = [one, other, last.model_copy(update={"setting": {"server.model": "epoll"}})]
    assert find_knees(run, trials) == [without]
    run.points = [one, other, last.model_copy(update={"control": True})]
    assert find_knees(run, trials) == [without]
    assert knee.bound is not None
    assert without.bound is not None
    assert (knee.bound.at, without.bound.at) == pytest.approx((40, 30))


def on_disk(tmp_path: Path) -> tuple[RunFolder, RunRecord, list[TrialRecord]]:
    """Two loads and a point beside the matrix, which does not set the connections."""
    run, trials = curve_of(tmp_path, [10, 36, 100])
    run.family = run.family.model_copy(update={"compare": None})
    run.points = [*run.points[:2], run.points[2].model_copy(update={"setting": {"server.model": "epoll"}})]
    made = [replace(each, setting={"server.model": "epoll"}) if each.point == 2 else each for each in trials]
    return RunFolder(path=tmp_path / "0001"), run, made


DURATION = "write a number and one of us, ms, s, m, h, such as 250ms"


def refusal_of(folder: RunFolder, run: RunRecord, trials: Sequence[TrialRecord]) -> str:
    with pytest.raises(LabError) as refusal:
        check_settings(folder, run, trials)
    return str(refusal.value)


@pytest.mark.parametrize(
    ("place", "changed", "said"),
    [
        (
            1,
            {"load": {"think": "10 parsecs"}},
            f"points.1.load.think: '10 parsecs' is not a duration: {DURATION}",
        ),
        (0, {"setting": {AXIS: "ten"}}, "points.0.setting.load.connections: 'ten' is not a number with a unit"),
    ],
)
def test_a_damaged_setting_of_a_point_is_told_with_its_place(
    tmp_path: Path, place: int, changed: dict[str, object], said: str
) -> None:
    folder, run, trials = on_disk(tmp_path)
    points = list(run.points)
    points[place] = points[place].model_copy(update=changed)
    remedy = "restore it from a copy, or begin a new run"
    damaged = run.model_copy(update={"points": points})
    assert refusal_of(folder, damaged, trials) == f"{folder.path}/run.json: is damaged ({said}); {remedy}"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({AXIS: "2km"}, "setting.load.connections: '2km' is not a count: write a whole number, with k or M for"),
        ({"server.model": "epoll"}, "setting: load.connections is missing)"),
    ],
)
def test_a_damaged_setting_of_a_trial_is_told_with_its_file(tmp_path: Path, setting: Settings, said: str) -> None:
    """A trial of a point that varies the connections needs them, as its load is read from it."""
    folder, run, trials = on_disk(tmp_path)
    second = trials[1]
    refused = refusal_of(folder, run, [trials[0], replace(second, setting=setting), *trials[2:]])
    assert refused.startswith(f"{folder.path}/trials/{second.number:04}.json: is damaged ({said}")
    assert refused.endswith("; remove it, and 'plimsoll lab resume' measures it again")


def test_settings_that_are_numbers_and_those_of_imported_runs_are_not_refused(tmp_path: Path) -> None:
    """A file of another load generator may not tell its connections."""
    folder, run, trials = on_disk(tmp_path)
    check_settings(folder, run, trials)
    assert [connections_of(each) for each in trials] == [10, 36, 0, 10, 36, 0]
    untold = [replace(each, setting={AXIS: NOT_TOLD}) for each in trials]
    imported = run.model_copy(update={"imported": ImportRecord.model_construct()})
    check_settings(folder, imported, untold)
