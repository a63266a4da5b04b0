"""A run in a notebook: the same figures as on its page, tables that SQL reads, charts that draw."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest
from conftest import Done

from plimsoll_lab.notebook import Run, open_run, open_runs
from plimsoll_lab.problem import LabError


@pytest.fixture(scope="module")
def run(finished: tuple[Path, Done], tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("notebook")
    shutil.copytree(finished[0] / "runs", folder / "runs")
    return open_run(folder / "runs/0001")


def test_the_summary_is_that_of_the_page(run: Run) -> None:
    page = (run.path / "report.html").read_text()
    assert run.summary.question == run.record.suite.question
    assert run.summary.answer[0].split(" ")[0] in page
    assert repr(run) == "<run 0001 of small: complete>"
    assert len(run.trial_records) == run.summary.trials.measured


def test_tables_are_relations(run: Run) -> None:
    figures = {(each.number, name): value for each in run.trial_records for name, value in each.figures.items()}
    trials = run.trials
    assert trials.columns[-2:] == ["figure", "value"]
    rows = [(row[1], row[-1]) for row in trials.filter("figure = 'completed_rate'").fetchall()]
    assert rows
    assert all(figures[trial, "completed_rate"] == value for trial, value in rows)
    assert {row[1] for row in run.points.fetchall()} == {point.number for point in run.record.points}
    assert [row[:2] for row in run.runs.fetchall()] == [("0001", "small")]
    ((median,),) = run.sql("SELECT median(value) FROM trials WHERE figure = 'completed_rate' AND point = 0").fetchall()
    point = next(each for each in run.summary.points if each.number == 0)
    assert median == pytest.approx(point.figures["completed_rate"].median)
    assert run.timelines.columns == ["run", "trial", "at_s", "part", "figure", "value"]
    assert run.requests.fetchall() == []
    assert run.connections.columns[0] == "run"
    assert run.processes.columns == ["run", "trial", "pid", "name", "cpu_cores"]


def test_a_chart_is_vega_lite_and_a_picture(run: Run) -> None:
    charts = run.charts
    assert {"headline", "completed_rate-load", "completed_rate-contenders"} <= set(charts)
    chart = charts["completed_rate-load"]
    assert json.loads(json.dumps(chart.spec))["datasets"]["trials"]
    assert chart.svg.startswith("<svg")
    assert chart.png.startswith(b"\x89PNG")
    shown = chart._repr_mimebundle_()
    assert shown["application/vnd.vegalite.v6+json"] == chart.spec
    assert shown["image/svg+xml"] == chart.svg


def test_several_runs_are_one_set_of_tables(run: Run) -> None:
    tables = open_runs(run.path.parent)
    assert "0001" in {row[0] for row in tables.runs.fetchall()}
    tables.close()
    with pytest.raises(duckdb.Error):
        tables.sql("SELECT 1").fetchall()


def test_what_is_no_run_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="is no run"):
        open_run(tmp_path)
    with pytest.raises(LabError, match="there is no run in"):
        open_runs(tmp_path)
