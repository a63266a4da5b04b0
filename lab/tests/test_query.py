"""Runs as tables: what SQL finds is what the records hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import Done, Lab, run_lab

from plimsoll_lab.problem import LabError
from plimsoll_lab.store.folder import list_runs
from plimsoll_lab.store.query import ask


def test_every_trial_and_figure_of_a_run_is_a_row(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    runs = folder / "runs"
    trials = list_runs(runs)[0].read_trials()
    found = ask(runs, "SELECT trial, value FROM trials WHERE figure = 'completed_rate' ORDER BY trial")
    assert found.columns == ("trial", "value")
    assert found.rows == [(trial.number, trial.figures["completed_rate"]) for trial in trials]
    (row,) = ask(runs, "SELECT run, suite, status FROM runs").rows
    assert row == ("0001", "small", "complete")


def test_points_and_trials_join(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    sql = (
        "SELECT value, count(DISTINCT trial) FROM points JOIN (SELECT run, point, trial FROM trials) "
        "USING (run, point) "
        "WHERE path = 'load.connections' GROUP BY ALL ORDER BY ALL"
    )
    assert ask(folder / "runs", sql).rows == [("100", 6), ("2000", 6)]


def test_timelines_are_there_under_the_run_they_are_of(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    sql = "SELECT DISTINCT run, trial FROM timelines WHERE figure = 'busy_s' ORDER BY ALL"
    assert ask(folder / "runs", sql).rows == [("0001", number) for number in range(1, 13)]


def test_tables_without_rows_are_tables_all_the_same(tmp_path: Path) -> None:
    for table in ("runs", "points", "trials", "timelines", "requests", "connections"):
        assert ask(tmp_path, f"SELECT count(*) FROM {table}").rows == [(0,)]


def test_a_query_that_means_nothing_is_refused_with_the_tables_there_are(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="the tables are runs, points, trials, timelines, requests, connections"):
        ask(tmp_path, "SELECT speed FROM cars")


def test_the_command_prints_a_table_or_json_lines(finished: tuple[Path, Done], lab: Lab) -> None:
    folder, _ = finished
    sql = "SELECT suite, 0.5 AS half FROM runs"
    assert run_lab(folder, "query", sql).stdout == "suite  half\nsmall  0.5\n"
    assert json.loads(run_lab(folder, "query", sql, "--json").stdout) == {"suite": "small", "half": "0.5"}
    refused = lab("query", "SELECT")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
