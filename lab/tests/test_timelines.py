"""What happened over a trial, as tables: nothing is lost on the way, and a sample favours no
request.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import duckdb
import pytest
from made_records import stored_run

from plimsoll_lab.problem import LabError
from plimsoll_lab.store import timelines
from plimsoll_lab.store.query import ask as ask_runs
from plimsoll_lab.store.records import Sample, TrialRecord

TRIAL = TrialRecord(
    number=3,
    block=1,
    point=0,
    setting={},
    outcome="ok",
    reason=None,
    warnings=(),
    figures={},
    started_unix_s=0.0,
    elapsed_s=1.0,
    server={},
    load={},
    machine={},
    samples=(Sample(at_s=0.1, cpu_s=0.5, memory_bytes=4096),),
    hosts={
        "timeline": [{"at_s": 1.0, "machine": {"busy_s": 2.0}, "hosts": {"h1": {"established": 7}}, "parts": {}}],
        "captures": [{"host": "h1", "summary": {"interval_s": 0.5, "interval": [{"packets": 4}, {"packets": 9}]}}],
    },
)


def ask(sql: str) -> list[tuple[object, ...]]:
    with duckdb.connect() as database:
        return database.execute(sql).fetchall()


def written(run: Path, records: Path) -> list[tuple[object, ...]]:
    timelines.write_timelines(run, records, TRIAL)
    return ask(f"SELECT at_s, part, figure, value FROM '{run}/timelines/0003.parquet' ORDER BY ALL")


def test_a_timeline_has_every_number_that_was_read_and_told(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    second = {"second": 2, "unix_s": 1.8e9, "phase": "window", "completed": 5, "response_time_us": {"p50": 12.5}}
    before = {"second": 2, "unix_s": 1.8e9, "phase": "warm_up", "completed": 3}
    (records / "load.timeseries.jsonl").write_text(json.dumps(before) + "\n" + json.dumps(second) + "\n")
    assert written(tmp_path, records) == [
        (0.0, "capture h1", "packets", 4.0),
        (0.1, "server", "cpu_s", 0.5),
        (0.1, "server", "memory_bytes", 4096.0),
        (0.5, "capture h1", "packets", 9.0),
        (1.0, "host h1", "established", 7.0),
        (1.0, "machine", "busy_s", 2.0),
        (2.0, "load", "completed", 5.0),
        (2.0, "load", "response_time_us.p50", 12.5),
        (2.0, "load", "warm_up.completed", 3.0),
    ]
    assert not records.exists(), "what has become a table is removed"


def test_the_seconds_of_a_generator_count_from_the_opening_of_its_window(tmp_path: Path) -> None:
    records = tmp_path / "records"
    records.mkdir()
    rows = [{"second": 0, "unix_s": 1000.0, "phase": "warm_up", "completed": 1}]
    rows += [{"second": number, "unix_s": 1000.0 + number, "completed": 2} for number in (0, 1)]
    (records / "load.timeseries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    trial = replace(TRIAL, load={"summary": {"window": {"opened_unix_s": 1000.25}}}, samples=(), hosts={})
    timelines.write_timelines(tmp_path, records, trial)
    assert [(at_s, figure, value) for _, at_s, _, figure, value in timelines.read_timeline(tmp_path, 3)] == [
        (-0.25, "completed", 2.0),
        (0.75, "completed", 2.0),
        (-0.25, "warm_up.completed", 1.0),
    ]
    assert timelines.read_timeline(tmp_path, 4) == []


def log(records: Path, rows: list[tuple[float, int, int, float]]) -> None:
    """A request log of an end in seconds, a connection, its request, and a response time in
    microseconds.
    """
    records.mkdir()
    lines = [f"{end:.6f},{connection},{request},64,{took}" for end, connection, request, took in rows]
    text = "time,connection,request,bytes,response_time_us\n" + "".join(line + "\n" for line in lines)
    (records / "load.request_log.csv").write_text(text)


def test_a_request_stands_beside_the_connections_up_as_it_began(tmp_path: Path) -> None:
    # Connection 1 is up from 10 to 14, connection 2 from 11 to 13.
    log(tmp_path / "records", [(11.0, 1, 1, 1e6), (12.0, 2, 1, 1e6), (13.0, 2, 2, 5e5), (14.0, 1, 2, 5e5)])
    timelines.write_timelines(tmp_path, tmp_path / "records", TRIAL)
    rows = ask(f"SELECT connection, request, connections_up FROM '{tmp_path}/requests/0003.parquet' ORDER BY ALL")
    assert rows == [(1, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2, 2)]


def test_a_trial_that_is_made_again_has_no_table_of_its_first_measurement(tmp_path: Path) -> None:
    """One whose generator wrote no log had the requests, and their figure, of the one before."""
    log(tmp_path / "records", [(11.0, 1, 1, 1e6), (12.0, 2, 1, 1e6)])
    told = {name: 1 for name in timelines.CONNECTIONS if name not in {"trial", "part"}} | {"success": True}
    (tmp_path / "records/load.connections.jsonl").write_text(json.dumps(told) + "\n")
    timelines.write_timelines(tmp_path, tmp_path / "records", TRIAL)
    assert timelines.read_by_connections(tmp_path, TRIAL) != []
    assert (tmp_path / "connections/0003.parquet").is_file()
    (tmp_path / "records").mkdir()
    timelines.write_timelines(tmp_path, tmp_path / "records", TRIAL)
    assert timelines.read_by_connections(tmp_path, TRIAL) == []
    assert [each.name for each in tmp_path.rglob("*.parquet")] == ["0003.parquet"], "its timeline"


class Killed(BaseException):
    """The lab ends here."""


class Killing:
    """A database of a lab that is killed as it writes one of its tables: half of it is on disk."""

    table = ""
    """The folder of that table."""
    connect = duckdb.connect

    def __init__(self) -> None:
        self._database = Killing.connect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def execute(self, sql: str, values: object = None) -> duckdb.DuckDBPyConnection:
        """Answer a query, and be killed at the one that writes the table."""
        found = self._database.execute(sql, values)
        _, copies, target = sql.partition(" TO '")
        if copies and f"/{self.table}/" in target:
            written = target.partition("'")[0]
            os.truncate(written, Path(written).stat().st_size // 2)
            raise Killed
        return found


@pytest.mark.parametrize("table", ["timelines", "requests", "connections"])
def test_a_lab_that_is_killed_as_it_writes_a_table_leaves_the_runs_to_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """Half a table had its name, and no query over the folder was answered until the resume."""
    run = stored_run(tmp_path / "0001")
    records = run.records(3)
    records.rmdir()
    log(records, [(11.0, 1, 1, 1e6), (12.0, 2, 1, 1e6)])
    told = {name: 1 for name in timelines.CONNECTIONS if name not in {"trial", "part"}} | {"success": True}
    (records / "load.connections.jsonl").write_text(json.dumps(told) + "\n")
    monkeypatch.setattr(Killing, "table", table)
    monkeypatch.setattr(duckdb, "connect", Killing)
    with pytest.raises(Killed):
        timelines.write_timelines(run.path, records, TRIAL)
    monkeypatch.undo()
    (run.path / table / "0003.parquet.tmp").write_bytes(b"PAR1")  # what is left of the draft
    assert ask_runs(tmp_path, f"SELECT count(*) FROM {table}").rows == [(0,)]
    timelines.write_timelines(run.path, records, TRIAL)
    assert ask_runs(tmp_path, f"SELECT count(*) > 0 FROM {table}").rows == [(True,)]


def test_response_times_are_told_by_the_connections_up(tmp_path: Path) -> None:
    # Each of 40 connections begins a second after the one before, asks once, and stays until 100.
    first = [(10.0 + number, number, 1, 1e5 * (number + 1)) for number in range(40)]
    log(tmp_path / "records", [*first, *((100.0, number, 2, 1e5) for number in range(40))])
    timelines.write_timelines(tmp_path, tmp_path / "records", TRIAL)
    steps = timelines.read_by_connections(tmp_path, TRIAL)
    assert len(steps) == timelines.STEPS
    assert (steps[0].requests, steps[0].connections) == (2, 1.5)
    assert sum(each.requests for each in steps) == 80
    assert [each.connections for each in steps] == sorted(each.connections for each in steps)
    assert timelines.read_by_connections(tmp_path, replace(TRIAL, number=4)) == []


def test_requests_that_are_not_measured_are_not_among_those(tmp_path: Path) -> None:
    records = tmp_path / "records"
    log(records, [(11.0, 1, 1, 1e5), (12.0, 2, 1, 1e5)])
    other = (records / "load.request_log.csv").read_text().replace("100000.0", "900000.0")
    (records / "saturator.request_log.csv").write_text(other)
    beside = replace(TRIAL, roles=({"name": "saturator", "measured": False}, {"name": "second", "kind": "server"}))
    timelines.write_timelines(tmp_path, records, beside)
    assert [each.response_time_us for each in timelines.read_by_connections(tmp_path, beside)] == [1e5]
    told = timelines.read_by_connections(tmp_path, replace(beside, roles=()))
    assert sum(each.requests for each in told) == 4


def test_the_requests_of_each_generator_count_from_the_opening_of_its_window(tmp_path: Path) -> None:
    """As its seconds do: with a warm-up of 10 s a request stood 10 s away from them."""
    log(tmp_path / "records", [(11.0, 1, 1, 1e6), (13.0, 1, 2, 5e5)])
    (tmp_path / "records/load.request_log.csv").rename(tmp_path / "load.request_log.csv")
    (tmp_path / "records").rmdir()
    log(tmp_path / "records", [(12.5, 1, 7, 1e6)])
    (tmp_path / "records/load.request_log.csv").rename(tmp_path / "records/load-2.request_log.csv")
    (tmp_path / "load.request_log.csv").rename(tmp_path / "records/load.request_log.csv")
    generators: Any = [
        {"name": name, "summary": {"window": {"opened_unix_s": opened}}}
        for name, opened in (("load", 12.0), ("load-2", 12.25))
    ]
    timelines.write_timelines(tmp_path, tmp_path / "records", replace(TRIAL, load={"generators": generators}))
    rows = ask(f"SELECT part, request, at_s FROM '{tmp_path}/requests/0003.parquet' ORDER BY ALL")
    assert rows == [("load", 1, -1.0), ("load", 2, 1.0), ("load-2", 7, 0.25)]


def test_connections_of_generators_with_clocks_apart_are_up_together(tmp_path: Path) -> None:
    """Of two that were up at once, with clocks a hundred seconds apart, one was counted."""
    log(tmp_path / "records", [(12.0, 1, 1, 1e6)])
    (tmp_path / "records/load.request_log.csv").rename(tmp_path / "load.request_log.csv")
    (tmp_path / "records").rmdir()
    log(tmp_path / "records", [(112.0, 1, 7, 5e5), (113.0, 1, 8, 5e5)])
    (tmp_path / "records/load.request_log.csv").rename(tmp_path / "records/load-2.request_log.csv")
    (tmp_path / "load.request_log.csv").rename(tmp_path / "records/load.request_log.csv")
    generators: Any = [
        {"name": name, "summary": {"window": {"opened_unix_s": opened}}}
        for name, opened in (("load", 10.0), ("load-2", 110.0))
    ]
    windows: Any = [{"generator": name, "opened_unix_s": 10.0} for name in ("load", "load-2")]
    trial = replace(TRIAL, load={"generators": generators}, hosts={"windows": windows})
    timelines.write_timelines(tmp_path, tmp_path / "records", trial)
    rows = ask(f"SELECT part, request, at_s, connections_up FROM '{tmp_path}/requests/0003.parquet' ORDER BY ALL")
    assert rows == [("load", 1, 2.0, 1), ("load-2", 7, 2.0, 2), ("load-2", 8, 3.0, 1)]


def test_a_sample_of_the_requests_favours_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timelines, "REQUESTS_KEPT", 2_000)
    log(tmp_path / "records", [(100 + number / 1000, number % 50, number // 50, 10.0) for number in range(20_000)])
    timelines.write_timelines(tmp_path, tmp_path / "records", TRIAL)
    rows = f"'{tmp_path}/requests/0003.parquet'"
    assert ask(f"SELECT count(*) FROM {rows}") == [(2_000,)]
    tenths = ask(f"SELECT count(*) FROM {rows} GROUP BY floor((time - 100) / 2) ORDER BY ALL")
    # Each tenth of the time has 200 of them but for chance: 13.4 by the binomial, and the draw's
    # seed is fixed.
    assert len(tenths) == 10
    assert all(140 < int(str(count)) < 260 for (count,) in tenths), tenths


def test_a_generator_that_answered_nothing_or_was_killed_in_a_line_leaves_whole_tables(tmp_path: Path) -> None:
    heading = "time,connection,request,bytes,response_time_us,phase,outcome\n"
    row = "11.000000,1,1,64,1000000.000,window,ok\n"
    half = '{"second": 0, "unix_s": 1000.0, "phase": "window", "completed": 2}\n{"second": 1, "uni'
    for name, logs, kept in (
        ("empty", ("", ""), None),
        ("nothing", (heading, heading), 0),
        ("killed", (heading, heading + row + row[:13]), 1),
    ):
        run = tmp_path / name
        (records := run / "records").mkdir(parents=True)
        for number, text in enumerate(logs):
            (records / f"load-{number}.request_log.csv").write_text(text)
        (records / "load.timeseries.jsonl").write_text(half)
        timelines.write_timelines(run, records, TRIAL)
        assert ("load", "completed", 2.0) in {row[2:] for row in timelines.read_timeline(run, 3)}
        table = run / "requests" / "0003.parquet"
        assert table.exists() == (kept is not None)
        if kept is not None:
            assert ask(f"SELECT count(*) FROM '{table}'") == [(kept,)]
            assert ask(f"SELECT typeof(time) FROM '{table}'") == [("DOUBLE",)] * kept


READERS: dict[str, Callable[[Path], object]] = {
    "timelines": lambda run: timelines.read_timeline(run, 3),
    "requests": lambda run: timelines.read_by_connections(run, TRIAL),
    "connections": lambda run: timelines.read_clients(run, 3),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_damaged_table_is_named(tmp_path: Path, kind: str) -> None:
    """A page ended as a fault of the lab."""
    path = tmp_path / kind / "0003.parquet"
    path.parent.mkdir()
    path.write_bytes(b"PAR1 cut off")
    with pytest.raises(LabError, match=f"{kind}/0003.parquet: is damaged"):
        READERS[kind](tmp_path)
