"""The runs of a suite over time: only runs that were asked the same make one series."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import ENVIRONMENT, stored_run

from plimsoll_lab.analysis.comparison import compare_runs
from plimsoll_lab.analysis.history import Change, History, HistoryRun, HistoryValue, Series, find_history
from plimsoll_lab.report import history_page
from plimsoll_lab.report.history_page import render_history_page
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite.figures import BY_NAME

LINKS = {"links": [{"ends": ["h1", "s1"], "shape": {"delay": "25ms"}}], "addresses": 1}


def run_of(path: Path, *, network: bool, congestion: str | None = None) -> RunFolder:
    folder = stored_run(path, ("epoll", "uring"), repeat=6)
    run = folder.read_run()
    run.run = path.name
    links = {**LINKS, "congestion": congestion} if congestion else LINKS
    run.points = [each.model_copy(update={"network": links if network else None}) for each in run.points]
    folder.write_run(run)
    return folder


def test_runs_over_another_network_are_a_series_of_their_own(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / f"{number:04}", network=number == 3) for number in (1, 2, 3)]
    history = find_history(runs, "it")
    rates = {each.at: [value.order for value in each.values] for each in history.series if "rate" in each.figure.name}
    assert rates == {
        "model epoll, as in run 0001": [0, 1],
        "model uring, as in run 0001": [0, 1],
        "model epoll, as in run 0003": [2],
        "model uring, as in run 0003": [2],
    }


def test_runs_that_were_asked_the_same_are_one_series(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / f"{number:04}", network=True) for number in (1, 2)]
    assert {each.at: len(each.values) for each in find_history(runs, "it").series} == {
        "model epoll": 2,
        "model uring": 2,
    }


def test_runs_over_another_congestion_control_are_not_alike(tmp_path: Path) -> None:
    one, other = (run_of(tmp_path / name, network=True, congestion=name) for name in ("bbr", "cubic"))
    assert compare_runs([one], [other]).not_comparable == ["the runs have no point in common"]
    assert {len(each.values) for each in find_history([one, other], "it").series} == {1}


@pytest.mark.parametrize("file", ["run.json", "trials/0001.json"])
def test_a_damaged_run_is_left_out_of_the_history_and_the_page_says_why(tmp_path: Path, file: str) -> None:
    """No history of any suite was shown beside it."""
    runs = [run_of(tmp_path / f"{number:04}", network=False) for number in (1, 2, 3)]
    (runs[1].path / file).write_text("{")
    history = find_history(runs, "it")
    assert [each.run for each in history.runs] == ["0001", "0003"]
    assert {tuple(value.order for value in each.values) for each in history.series} == {(0, 1)}
    page = render_history_page(history)
    assert f"0002/{file}: is damaged" in page


def test_a_point_without_a_result_is_no_value_of_the_history(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "0001", network=False)
    epoll = [trial for trial in folder.read_trials() if trial.point == 0]
    for spoilt, series in ((epoll[:3], 2), (epoll[3:4], 1)):
        for trial in spoilt:
            folder.write_trial(replace(trial, outcome="invalid", reason="others took its CPU"))
        rates = [each.at for each in find_history([folder], "it").series if "rate" in each.figure.name]
        assert len(rates) == series, rates


def lines_of(folders: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[str, bool]]]:
    """Of each chart the points of its line that is called epoll: the run, and whether it has a
    value.
    """
    drawn: list[Any] = []

    def draw(_: str, spec: Json, __: object) -> str:
        drawn.append(spec)
        return "<svg></svg>"

    monkeypatch.setattr(history_page, "draw", draw)
    render_history_page(find_history(folders, "it"))
    lines = [layer for spec in drawn for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    assert all(each["mark"]["invalid"] == "break-paths-filter-domains" for each in lines)
    return [
        sorted((row["run"], row["median"] is not None) for row in each["data"]["values"] if row["at"] == "model epoll")
        for each in lines
    ]


def test_a_run_without_a_result_breaks_the_line_of_its_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line went on from the run before to the run after, as if the level in between were
    known.
    """
    runs = [run_of(tmp_path / f"{number:04}", network=False) for number in (1, 2, 3)]
    for trial in runs[1].read_trials():
        if trial.point == 0:
            runs[1].write_trial(replace(trial, outcome="invalid", reason="others took its CPU"))
    broken = [("0001", True), ("0002", False), ("0003", True)]
    assert lines_of(runs, monkeypatch) == [broken, broken]


def test_a_run_that_was_asked_something_else_breaks_no_line(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / f"{number:04}", network=number == 2) for number in (1, 2, 3)]
    series = find_history(runs, "it").series
    assert {(tuple(value.order for value in each.values), tuple(each.missing)) for each in series} == {
        ((0, 2), ()),
        ((1,), ()),
    }


@pytest.mark.parametrize("limited", [False, True])
def test_a_run_that_leaves_more_of_its_tail_untold_is_no_value_of_it(tmp_path: Path, *, limited: bool) -> None:
    """Nor is one whose generator was the limit in some trials, which may be the slowest."""
    runs = [run_of(tmp_path / f"{number:04}", network=False) for number in (1, 2)]
    median = "response_time_us.p50"
    for trial in runs[1].read_trials():
        figures = {name: value for name, value in trial.figures.items() if name != median}
        late = replace(trial, outcome="generator_limited") if limited else replace(trial, figures=figures)
        runs[1].write_trial(late if trial.block == 1 else trial)
    history = find_history(runs, "it")
    assert {each.figure.name: [value.order for value in each.values] for each in history.series} == {
        "completed_rate": [0, 1],
        median: [0],
    }


def test_a_chart_of_one_series_says_whose_it_is(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / f"{number:04}", network=False) for number in (1, 2)]
    history = find_history(runs, "it")
    alone = replace(history, series=[each for each in history.series if "epoll" in each.at])
    assert "Completed rate, model epoll, in each run" in render_history_page(alone)


def test_each_chart_has_its_numbers(tmp_path: Path) -> None:
    runs = [run_of(tmp_path / f"{number:04}", network=False) for number in (1, 2)]
    history = find_history(runs, "it")
    page = render_history_page(history)
    assert page.count("data-chart=") == page.count("The numbers of this chart") == 2, "a chart a figure"
    rate = next(each for each in history.series if each.figure.name == "completed_rate" and "uring" in each.at)
    row = '<tr><th scope="row">model uring</th><td>0002</td><td>1,100/s</td><td>1,100/s to 1,110/s</td></tr>'
    assert row in page, rate.values


def test_a_level_that_never_changes_is_told_on_its_axis(tmp_path: Path) -> None:
    """Its axis had one number, 0."""
    runs = [run_of(tmp_path / f"{number:04}", network=False) for number in (1, 2)]
    page = render_history_page(find_history(runs, "it"))
    chart = page[page.index('data-chart="history-response_time_us.p50-0"') :].partition("</svg>")[0]
    assert ">0.2015<" in chart
    assert ">0<" not in chart


def test_a_new_level_names_what_of_the_machine_is_not_as_it_was() -> None:
    """The level may be that of the machine; only the table of runs said that it is another."""
    runs = [
        HistoryRun(
            run=f"000{order}",
            started_unix_s=0.0,
            build="",
            environment=ENVIRONMENT.model_copy(update={"cpus": 2 if order < 2 else 4}).to_json(),
        )
        for order in range(4)
    ]
    values = [HistoryValue(order=order, median=1.0, low=None, high=None, n=6, told=1.0) for order in (0, 1, 2, 3)]
    rate = BY_NAME["completed_rate"]
    series = [
        Series(
            figure=rate,
            at=at,
            values=values,
            missing=(),
            changes=[Change(order=order, before=1.0, after=2.0)],
        )
        for at, order in (("here", 2), ("there", 3))
    ]
    page = render_history_page(History(suite="it", runs=runs, series=series, least=2))
    assert "here: +100.0 % from run 0002 on, where the number of CPUs was 2 and is 4." in page
    assert "there: +100.0 % from run 0003 on." in page
