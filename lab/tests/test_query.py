"""Runs as tables: what SQL finds is what the records hold."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pytest
from conftest import SUITE, Done, Lab, run_lab
from made_records import stored_run

from plimsoll_lab.hosts.host import Host, HostProcess
from plimsoll_lab.hosts.samplers.threads import ThreadReading
from plimsoll_lab.hosts.samplers.usage import ProcessUsage, Usage
from plimsoll_lab.problem import LabError
from plimsoll_lab.store.folder import RunFolder, list_runs
from plimsoll_lab.store.query import ask, open_tables
from plimsoll_lab.store.timelines import write_timelines
from plimsoll_lab.trial import window as trial_window
from plimsoll_lab.trial.window import SAMPLE_EVERY_S, Window


def test_every_trial_and_figure_of_a_run_is_a_row(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    runs = folder / "runs"
    trials = list_runs(runs)[0].read_trials()
    found = ask(runs, "SELECT trial, value FROM trials WHERE figure = 'completed_rate' ORDER BY trial")
    assert found.columns == ("trial", "value")
    assert found.rows == [(trial.number, trial.figures["completed_rate"]) for trial in trials]
    (row,) = ask(runs, "SELECT run, suite, status FROM runs").rows
    assert row == ("0001", "small", "complete")


def test_the_servers_processes_are_rows_of_a_suite_that_asks_for_them(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "listed.toml").write_text("processes = true\n" + SUITE)
    only = ("--repeat", "1", "--only", "load.connections=100")
    assert lab("run", "listed.toml", *only).returncode == 0
    rows = ask(tmp_path / "runs", "SELECT trial, pid, name, cpu_cores FROM processes ORDER BY trial").rows
    assert [row[0] for row in rows] == [1, 2, 3]
    for _, pid, name, cpu_cores in rows:
        assert isinstance(pid, int)
        assert name == "plimsoll"
        assert isinstance(cpu_cores, float)
        assert 0 <= cpu_cores < 1.5


def test_the_busiest_process_comes_first_and_one_that_began_later_counts_from_its_start() -> None:
    def used(pid: int, cpu_s: float) -> ProcessUsage:
        return ProcessUsage(pid=pid, name="s", cpu_s=cpu_s)

    window = Window(length_s=2.0, processes_first=(used(1, 5.0), used(2, 1.0)))
    window.processes_seen = {each.pid: each for each in (used(1, 5.5), used(3, 1.5))}
    assert [(each["pid"], each["cpu_cores"]) for each in window.processes()] == [(3, 0.75), (1, 0.25)]


class Forking(HostProcess):
    """A server of which a test says what processes it has, a listing at a time."""

    def __init__(self, *listings: Mapping[int, float]) -> None:
        super().__init__(cast("Any", None), 1, "proc")
        self._listings = list(listings)

    def now_has(self, listing: Mapping[int, float]) -> None:
        """Tell this one next, whatever was not asked for."""
        self._listings = [listing]

    def tree(self) -> tuple[ProcessUsage, ...]:
        """The next of them."""
        return tuple(ProcessUsage(pid=pid, name="s", cpu_s=cpu_s) for pid, cpu_s in self._listings.pop(0).items())

    def threads(self, *, sleeps: bool) -> tuple[ThreadReading, ...]:
        """None that waits for a CPU."""
        assert not sleeps
        return ()


def test_a_process_that_has_gone_by_the_end_is_listed_as_it_was_seen_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that forks for each connection was listed once the children had gone with them."""
    reading = SimpleNamespace(
        server=Usage(cpu_s=0.0, memory_bytes=None), at_s=0.0, at_unix_s=0.0, machine=None, others={}
    )
    monkeypatch.setattr(trial_window, "read_usage", lambda *_, **__: reading)
    window, host = Window(lists_processes=True), cast("Host", None)
    server = Forking({1: 5.0}, {1: 5.25, 2: 0.5, 3: 0.25}, {1: 5.25, 2: 0.75}, {1: 5.5})
    window.begin(host, server, {}, 0.0)
    for _ in range(2):
        window.sample(host, server, window.listing_due_at - 1e-6)
        window.sample(host, server, max(window.listing_due_at, window.opened_at + 2 * SAMPLE_EVERY_S))
    window.end(host, server, {}, 1.0, rests_until=None)
    window.length_s = 1.0
    assert [(each["pid"], each["cpu_cores"]) for each in window.processes()] == [(2, 0.75), (1, 0.5), (3, 0.25)]


def test_what_processes_used_until_the_opening_was_heard_of_is_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's cost has it, where it is read before the window opens."""
    reading = SimpleNamespace(
        server=Usage(cpu_s=0.0, memory_bytes=None), at_s=0.0, at_unix_s=0.0, machine=None, others={}
    )
    monkeypatch.setattr(trial_window, "read_usage", lambda *_, **__: reading)
    window, host = Window(lists_processes=True), cast("Host", None)
    server = Forking()
    server.now_has({1: 5.0})
    window.foresee(host, server, {})
    server.now_has({1: 5.5})
    window.begin(host, server, {}, 0.0)
    server.now_has({1: 6.0})
    window.end(host, server, {}, 1.0, rests_until=None)
    window.length_s = 1.0
    assert [(each["pid"], each["cpu_cores"]) for each in window.processes()] == [(1, 1.0)]


def test_a_copy_of_a_run_beside_it_is_another_run(tmp_path: Path) -> None:
    stored_run(tmp_path / "0001", repeat=2)
    timelines = tmp_path / "0001" / "timelines"
    timelines.mkdir()
    with duckdb.connect() as database:
        columns = "1 AS trial, 0.5 AS at_s, 'load' AS part, 'completed' AS figure, 7.0 AS value"
        database.execute(f"COPY (SELECT {columns}) TO '{timelines / '0001.parquet'}'")
    shutil.copytree(tmp_path / "0001", tmp_path / "0002")
    for table in ("runs", "points", "trials", "timelines"):
        found = ask(tmp_path, f"SELECT DISTINCT run FROM {table} ORDER BY run").rows
        assert found == [("0001",), ("0002",)], table


def test_a_run_is_named_alike_in_every_table_from_wherever_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = stored_run(tmp_path / "copy")
    monkeypatch.chdir(folder.path)
    with open_tables([RunFolder(path=Path())]) as database:
        assert database.sql("SELECT run FROM runs").fetchall() == [("copy",)]


def test_a_trial_without_a_figure_is_a_row_all_the_same(tmp_path: Path) -> None:
    stored_run(tmp_path / "0001", outcome="failed", repeat=2)
    sql = "SELECT trial, outcome, reason, figure, value FROM trials"
    why = "the server <ended> with code 1"
    assert ask(tmp_path, sql).rows == [(1, "failed", why, None, None), (2, "failed", why, None, None)]


def test_a_run_whose_lab_was_killed_is_said_to_be_killed(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001")
    run = folder.read_run()
    run.status = "running"
    folder.write_run(run)
    with folder.lock():
        assert ask(tmp_path, "SELECT status FROM runs").rows == [("running",)]
    assert ask(tmp_path, "SELECT status FROM runs").rows == [("killed",)]


def test_what_a_killed_lab_left_half_written_is_passed_over_and_damage_is_told(tmp_path: Path) -> None:
    timelines = stored_run(tmp_path / "0001").path / "timelines"
    timelines.mkdir()
    (timelines / "tmp_0001.parquet").write_bytes(b"PAR1")
    assert ask(tmp_path, "SELECT * FROM timelines").rows == []
    (timelines / "0001.parquet").write_bytes(b"PAR1")
    with pytest.raises(LabError, match=r"0001\.parquet"):
        ask(tmp_path, "SELECT * FROM runs")


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("COPY runs TO '{file}'", "COPY is not one of SELECT"),
        ("SELECT * FROM read_csv('{file}')", "disabled by configuration"),
        ("ATTACH '{file}'", "ATTACH is not one of SELECT"),
    ],
)
def test_a_query_reaches_no_file_but_those_of_the_runs(tmp_path: Path, sql: str, said: str) -> None:
    stored_run(tmp_path / "0001")
    file = tmp_path / "file"
    with pytest.raises(LabError, match=said):
        ask(tmp_path, sql.format(file=file))
    assert not file.exists()


@pytest.mark.parametrize("sql", ["", "  ", "-- nothing"])
def test_an_empty_query_is_refused(tmp_path: Path, sql: str) -> None:
    """It was an internal error."""
    with pytest.raises(LabError, match="the query is empty: write a SELECT"):
        ask(tmp_path, sql)


@pytest.mark.parametrize("before", ["", "EXPLAIN ANALYZE ", "PREPARE it AS ", "SELECT 1; "])
def test_a_query_changes_no_file_of_a_run_that_it_may_read(tmp_path: Path, before: str) -> None:
    """COPY may write wherever a query may read."""
    timelines = stored_run(tmp_path / "0001").path / "timelines"
    timelines.mkdir(exist_ok=True)
    file = timelines / "0001.parquet"
    columns = "1 AS trial, 0.5 AS at_s, 'server' AS part, 'cpu_cores' AS figure, 1.0 AS value"
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT {columns}) TO '{file}' (FORMAT parquet)")
    kept = file.read_bytes()
    with pytest.raises(LabError, match=r"a query reads, and .* is not one of SELECT, CREATE, INSERT"):
        ask(tmp_path, f"{before}COPY (SELECT 2) TO '{file}' (FORMAT parquet, USE_TMP_FILE false)")
    assert file.read_bytes() == kept
    assert ask(tmp_path, "CREATE TABLE mine AS SELECT value FROM timelines; SELECT * FROM mine").rows == [(1.0,)]


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
    # A busy machine takes no sample in some windows of 20 ms.
    sampled = sorted(int(each.stem) for each in (folder / "runs" / "0001" / "timelines").glob("*.parquet"))
    assert sampled
    found = ask(folder / "runs", "SELECT DISTINCT run, trial FROM timelines ORDER BY ALL").rows
    assert found == [("0001", number) for number in sampled]


def test_requests_of_the_window_that_were_answered_can_be_asked_for_also_of_a_run_of_an_older_lab(
    tmp_path: Path,
) -> None:
    heading = "time,connection,request,bytes,response_time_us,phase,outcome\n"
    rows = ("10.5,1,1,64,100,warm_up,ok", "11.5,1,2,64,200,window,ok", "12.5,1,3,0,900000,window,timeout")
    folder = stored_run(tmp_path / "0001", repeat=1)
    (trial, *_) = folder.read_trials()
    records = folder.records(trial.number)
    (records / "load.request_log.csv").write_text(heading + "".join(f"{row}\n" for row in rows))
    write_timelines(folder.path, records, trial)
    older = stored_run(tmp_path / "0002", repeat=1).path / "requests"
    older.mkdir()
    with duckdb.connect() as database:
        columns = "1 AS trial, 9.0 AS time, 1 AS connection, 1 AS request, 64 AS bytes, 50.0 AS response_time_us"
        database.execute(f"COPY (SELECT {columns}, 0.5 AS at_s, 1 AS connections_up) TO '{older / '0001.parquet'}'")
    sql = "SELECT run, part, phase, outcome, response_time_us FROM requests ORDER BY run, time"
    assert ask(tmp_path, sql).rows == [
        ("0001", "load", "warm_up", "ok", 100.0),
        ("0001", "load", "window", "ok", 200.0),
        ("0001", "load", "window", "timeout", 900_000.0),
        ("0002", None, None, None, 50.0),
    ]


def test_tables_without_rows_are_tables_all_the_same(tmp_path: Path) -> None:
    for table in ("runs", "points", "trials", "processes", "timelines", "requests", "connections"):
        assert ask(tmp_path, f"SELECT count(*) FROM {table}").rows == [(0,)]


def test_a_query_that_means_nothing_is_refused_with_the_tables_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        LabError, match="the tables are runs, points, trials, processes, timelines, requests, connections"
    ):
        ask(tmp_path, "SELECT speed FROM cars")


def test_two_columns_of_one_name_are_no_line_of_json(finished: tuple[Path, Done]) -> None:
    """The second took the place of the first."""
    done = run_lab(finished[0], "query", "SELECT a.run, b.run FROM runs a, runs b", "--json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "two columns are called run" in done.stderr


def test_the_command_prints_a_table_or_json_lines(finished: tuple[Path, Done], lab: Lab) -> None:
    folder, _ = finished
    sql = "SELECT suite, 0.5 AS half FROM runs"
    assert run_lab(folder, "query", sql).stdout == "suite  half\nsmall  0.5\n"
    assert json.loads(run_lab(folder, "query", sql, "--json").stdout) == {"suite": "small", "half": "0.5"}
    refused = lab("query", "SELECT")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
