"""What happened over the time of a trial, as Parquet: a long table of figures a second, a row a
request, and a row a connection.

`timelines/NNNN.parquet` has the columns `trial`, `at_s` (seconds since the window opened), `part`,
`figure`, `value`; `requests/NNNN.parquet` has a row a request of the request log, with `part`,
`at_s` and the number of connections up at that instant; `connections/NNNN.parquet` has a row a
connection of a generator that records what became of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll_lab.problem import GOES_ON, LabError
from plimsoll_lab.store.folder import replacing
from plimsoll_lab.store.program_output import CaptureSummary, HostRow, Second, read_output
from plimsoll_lab.store.records import Json, TrialRecord

if TYPE_CHECKING:
    import duckdb

REQUESTS_KEPT = 200_000
"""Requests of a trial that are kept; of more, this many are drawn, each as likely as any other."""
STEPS = 20
"""Steps of the number of connections up, by which response times are told."""
DIGITS = 4
LINE_MOST = 2**20
"""Bytes of a line of a part's file, at most: a hundred times a line about one second."""
REQUESTS: Mapping[str, str] = {
    "time": "DOUBLE",
    "connection": "BIGINT",
    "request": "BIGINT",
    "bytes": "BIGINT",
    "response_time_us": "DOUBLE",
}
"""The numbers of a request log: one without a request does not show what they are."""
CONNECTIONS: Mapping[str, str] = {
    "trial": "INTEGER",
    "part": "VARCHAR",
    "connection": "BIGINT",
    "success": "BOOLEAN",
    "completed": "BIGINT",
    "failed_connects": "BIGINT",
    "failed_sequences": "BIGINT",
    "failed_requests": "BIGINT",
    "establishment_time_us": "DOUBLE",
    "service_time_total_us": "DOUBLE",
}
"""The columns of a table of connections, in the generator's order."""

Row = tuple[int, float, str, str, float]
"""Trial, seconds, part, figure, value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Client:
    """What became of one connection of a generator."""

    success: bool
    """Whether its sequence of requests was completed."""
    failures: int
    """Connects, sequences and requests that failed."""
    connect_us: float
    """Connect call until usable, of the connection of the last sequence."""
    exchange_us: float
    """The service times of the last sequence, together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The requests that began with about so many connections up."""

    connections: float
    """How many, on average."""
    response_time_us: float
    """Their mean response time."""
    requests: int
    """How many requests."""


def write_timelines(run: Path, records: Path, trial: TrialRecord) -> None:
    """Write the tables of one trial from its record and the files of its parts; what has become a
    table is removed, and so are the tables of a measurement that this one takes the place of.
    """
    name = f"{trial.number:0{DIGITS}d}.parquet"
    for table in ("requests", "connections"):
        (run / table / name).unlink(missing_ok=True)
    for file in (*records.glob("*.request_log.csv"), *records.glob("*.timeseries.jsonl")):
        end_with_a_line(file)
    _write_rows(run / "timelines" / name, list(_rows(records, trial)))
    logs = sorted(records.glob("*.request_log.csv"))
    if any(log.stat().st_size for log in logs):
        _write_requests(run / "requests" / name, logs, trial)
    told = sorted(records.glob("*.connections.jsonl"))
    if told:
        _write_connections(run / "connections" / name, told, trial)
    for file in (*records.glob("*.timeseries.jsonl"), *logs, *told):
        file.unlink()
    if not any(records.iterdir()):
        shutil.rmtree(records)


def end_with_a_line(file: Path) -> None:
    """Cut off the line that a killed process was writing."""
    with file.open("rb+") as lines:
        size = lines.seek(0, os.SEEK_END)
        start = max(0, size - LINE_MOST)
        lines.seek(start)
        lines.truncate(start + lines.read().rfind(b"\n") + 1)


def _rows(records: Path, trial: TrialRecord) -> Iterator[Row]:
    for sample in trial.samples:
        yield trial.number, sample.at_s, "server", "cpu_s", sample.cpu_s
        if sample.memory_bytes is not None:
            yield trial.number, sample.at_s, "server", "memory_bytes", sample.memory_bytes
    for row in trial.hosts.get("timeline") or ():
        read = read_output(HostRow, row, "a host")
        yield from _flat(trial.number, read.at_s, "machine", read.machine)
        for host, values in read.hosts.items():
            yield from _flat(trial.number, read.at_s, f"host {host}", values)
        for part, values in read.parts.items():
            if part != "server":  # its samples are above, ten times as many
                yield from _flat(trial.number, read.at_s, part, values)
    yield from _captured(trial)
    for file in sorted(records.glob("*.timeseries.jsonl")):
        part = file.name.removesuffix(".timeseries.jsonl")
        opened = _opened_unix_s(trial, part)
        for line in file.read_text(encoding="utf-8").splitlines():
            told: Json = json.loads(line)
            began = told.pop("unix_s", None)
            told.pop("from_unix_s", None)  # an instant is no figure
            # A second has a line for each phase that it touches: what is not of the window says so
            # in its path.
            second = read_output(Second, {"phase": "window", "second": 0} | told, part)
            phase = second.phase
            figures = {key: value for key, value in told.items() if key not in {"phase", "second"}}
            # The generator counts seconds from its own start, before its warm-up. One that printed
            # no summary has not said when its window opened.
            at_s = began - opened if opened is not None and isinstance(began, float) else float(second.second)
            yield from _flat(trial.number, at_s, part, figures, "" if phase == "window" else phase)


def _ahead_s(trial: TrialRecord, part: str) -> float:
    """How far a generator's clock was ahead of the laboratory's, by both times at which its window
    opened; 0 of one generator alone, and of one that is not measured.
    """
    own = _opened_unix_s(trial, part)
    rows = [each for each in trial.hosts.get("windows") or () if each.get("generator") == part]
    opened = rows[0].get("opened_unix_s") if rows else None
    return own - opened if own is not None and isinstance(opened, float) else 0.0


def _opened_unix_s(trial: TrialRecord, part: str) -> float | None:
    """When the window of a generator opened, by its own clock; None where it did not say."""
    own = {each["name"]: each["summary"] for each in trial.load.get("generators") or ()}
    summary = own.get(part) or trial.load.get("summary") or {}
    window = summary.get("window")
    opened = window.get("opened_unix_s") if isinstance(window, Mapping) else None
    return opened if isinstance(opened, float) else None


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database to read a table with; its errors are the table's, which may be damaged."""
    import duckdb  # noqa: PLC0415

    try:
        with duckdb.connect() as database:
            yield database
    except duckdb.Error as error:
        why = str(error).partition("\n")[0]
        raise LabError(f"{path}: is damaged ({why}); remove it, and the run is shown without it") from None


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database to write a table with; where it cannot, the disk has no room or refuses it."""
    import duckdb  # noqa: PLC0415 - 30 MB that only a run and a query need

    try:
        with duckdb.connect() as database:
            yield database
    except duckdb.IOException as error:
        why = str(error).partition("\n")[0]
        raise LabError(f"cannot write {path}: {why}; correct that, then {GOES_ON}") from None


def read_timeline(run: Path, trial: int) -> list[Row]:
    """The rows of a trial's timeline, by part, figure and time; empty where it has none."""
    path = run / "timelines" / f"{trial:0{DIGITS}d}.parquet"
    if not path.is_file():
        return []
    with _reading(path) as database:
        sql = f"SELECT trial, at_s, part, figure, value FROM '{_quoted(path)}' ORDER BY part, figure, at_s"
        rows: list[Row] = database.execute(sql).fetchall()
    return rows


def read_clients(run: Path, trial: int) -> list[Client]:
    """What became of each connection of a trial, by generator and number; empty where that was not
    asked for.
    """
    path = run / "connections" / f"{trial:0{DIGITS}d}.parquet"
    if not path.is_file():
        return []
    sql = (
        "SELECT success, failed_connects + failed_sequences + failed_requests, establishment_time_us, "
        f"service_time_total_us FROM '{_quoted(path)}' ORDER BY part, connection"
    )
    with _reading(path) as database:
        rows = database.execute(sql).fetchall()
    return [
        Client(success=success, failures=failures, connect_us=connect, exchange_us=exchange)
        for success, failures, connect, exchange in rows
    ]


def read_by_connections(run: Path, trial: TrialRecord) -> list[Step]:
    """The response times of a trial by the connections up as each request began, in twentieths of
    the most that ever were; empty where requests were not logged. Requests of a generator that is
    not measured have no part in them.
    """
    path = run / "requests" / f"{trial.number:0{DIGITS}d}.parquet"
    if not path.is_file():
        return []
    others = [role["name"] for role in trial.roles if not role.get("measured", True)]
    with _reading(path) as database:
        database.execute(f"CREATE VIEW log AS SELECT * FROM '{_quoted(path)}'")
        told = {name for name, *_ in database.execute("DESCRIBE log").fetchall()}
        where = "AND phase = 'window' AND outcome = 'ok'" if {"phase", "outcome"} <= told else ""
        rows = database.execute(_BY_CONNECTIONS.format(steps=STEPS, where=where), [others]).fetchall()
    return [Step(connections=up, response_time_us=mean, requests=count) for _, up, mean, count in rows]


_BY_CONNECTIONS = """
WITH kept AS (SELECT CAST(connections_up AS BIGINT) AS up, response_time_us FROM log
    WHERE NOT list_contains(CAST($1 AS VARCHAR[]), part) {where})
SELECT (up - 1) * {steps} // (SELECT max(up) FROM kept) AS step,
    avg(up), avg(response_time_us), count(*)
FROM kept GROUP BY step ORDER BY step
"""


def _captured(trial: TrialRecord) -> Iterator[Row]:
    for capture in trial.hosts.get("captures") or ():
        summary = read_output(CaptureSummary, capture.get("summary") or {}, "the capture")
        length_s = summary.interval_s or 1.0
        for number, each in enumerate(summary.interval):
            yield from _flat(trial.number, number * length_s, f"capture {capture['host']}", each.model_dump())


def _flat(trial: int, at_s: float, part: str, values: object, path: str = "") -> Iterator[Row]:
    """Every number below a record, by its path."""
    if isinstance(values, Mapping):
        for key, value in values.items():
            yield from _flat(trial, at_s, part, value, f"{path}.{key}" if path else str(key))
    elif isinstance(values, int | float) and not isinstance(values, bool):
        yield trial, at_s, part, path, float(values)


def _write_rows(path: Path, rows: Sequence[Row]) -> None:
    columns = {"trial": "INTEGER", "at_s": "DOUBLE", "part": "VARCHAR", "figure": "VARCHAR", "value": "DOUBLE"}
    _write_table(path, columns, (dict(zip(columns, row, strict=True)) for row in rows))


def _write_connections(path: Path, files: Sequence[Path], trial: TrialRecord) -> None:
    rows = (
        {"trial": trial.number, "part": file.name.removesuffix(".connections.jsonl")} | json.loads(line)
        for file in files
        for line in file.read_text(encoding="utf-8").splitlines()
    )
    _write_table(path, CONNECTIONS, rows)


def _write_table(path: Path, columns: Mapping[str, str], rows: Iterable[Json]) -> None:
    """Write rows as Parquet, of each the columns that are named."""
    path.parent.mkdir(exist_ok=True)
    # DuckDB reads a file of rows a thousand times faster than it takes parameters.
    draft = path.with_suffix(".jsonl")
    with draft.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps({name: row[name] for name in columns}) + "\n" for row in rows)
    typed = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
    with _writing(path) as database:
        rows_of = f"read_json('{_quoted(draft)}', format = 'newline_delimited', columns = {{{typed}}})"
        _copy(database, f"SELECT * FROM {rows_of}", path)
    draft.unlink()


def _copy(database: duckdb.DuckDBPyConnection, query: str, path: Path) -> None:
    """Write what a query gives as Parquet, whole or not at all: no query over the runs is answered
    where a killed lab has left half a table.
    """
    # DuckDB itself writes elsewhere first only where the file is there already.
    with replacing(path) as draft:
        database.execute(f"COPY ({query}) TO '{_quoted(draft)}' (FORMAT parquet, COMPRESSION zstd)")


def _write_requests(path: Path, logs: Sequence[Path], trial: TrialRecord) -> None:
    """A connection counts as up from the start of its first request in the log to the end of its
    last.
    """
    path.parent.mkdir(exist_ok=True)
    logs = [log for log in logs if log.stat().st_size]
    files = ", ".join(f"'{_quoted(log)}'" for log in logs)
    kinds = ", ".join(f"{name}: '{kind}'" for name, kind in REQUESTS.items())
    opened = f"read_csv([{files}], header = true, filename = true, union_by_name = true, types = {{{kinds}}})"
    with _writing(path) as database:
        database.execute(f"CREATE TABLE log AS SELECT * FROM {opened}")
        database.execute("CREATE TABLE windows (filename VARCHAR, part VARCHAR, opened DOUBLE, ahead DOUBLE)")
        for log in logs:
            part = log.name.removesuffix(".request_log.csv")
            row = [str(log), part, _opened_unix_s(trial, part), _ahead_s(trial, part)]
            database.execute("INSERT INTO windows VALUES (?, ?, ?, ?)", row)
        database.execute(_UP)
        ((count,),) = database.execute("SELECT count(*) FROM log").fetchall()
        # A reservoir draws each row with the same chance (Vitter 1985); the seed makes the draw
        # come again.
        draw = f"USING SAMPLE reservoir({REQUESTS_KEPT} ROWS) REPEATABLE (1)" if count > REQUESTS_KEPT else ""
        _copy(database, f"SELECT {trial.number} AS trial, * FROM (SELECT * FROM log_up) {draw}", path)


_UP = """
CREATE TABLE log_up AS
WITH lives AS (
    SELECT filename, connection, min(time - response_time_us / 1e6 - ahead) AS up, max(time - ahead) AS down
    FROM log JOIN windows USING (filename) GROUP BY ALL
), steps AS (
    SELECT up AS time, 1 AS step FROM lives UNION ALL SELECT down, -1 FROM lives
), levels AS (
    SELECT time, sum(step) OVER (ORDER BY time, step DESC ROWS UNBOUNDED PRECEDING) AS connections_up FROM steps
), instants AS (
    SELECT time, last(connections_up ORDER BY connections_up) AS connections_up FROM levels GROUP BY time
)
SELECT windows.part, log.* EXCLUDE (filename), log.time - coalesce(windows.opened, (SELECT min(up) FROM lives)) AS at_s,
    instants.connections_up
FROM log JOIN windows ON log.filename = windows.filename
ASOF JOIN instants ON log.time - log.response_time_us / 1e6 - windows.ahead >= instants.time
"""
"""With each request, whose it was, when it ended, in seconds since its generator's window opened,
and how many connections of all generators were up as it began: of measured ones by the
laboratory's clock, of others by their own. Of a generator that did not say when, seconds count from
the first request."""


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
