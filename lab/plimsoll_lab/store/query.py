"""Runs as tables for SQL: `runs`, `points`, `trials`, `timelines`, `requests` and `connections`,
over every run below a folder.

The tables are made of the records each time; nothing is written, and a query can change nothing on
disk: it reads, and may have tables of its own in memory.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.folder import RunFolder, runs_in
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.timelines import CONNECTIONS

if TYPE_CHECKING:
    import duckdb

TABLES: Mapping[str, str] = {
    "runs": "run VARCHAR, suite VARCHAR, question VARCHAR, status VARCHAR, started_unix_s DOUBLE, seed BIGINT, "
    "command VARCHAR",
    "points": "run VARCHAR, point INTEGER, setting VARCHAR, path VARCHAR, value VARCHAR, control BOOLEAN",
    "trials": "run VARCHAR, trial INTEGER, block INTEGER, point INTEGER, outcome VARCHAR, reason VARCHAR, "
    "started_unix_s DOUBLE, elapsed_s DOUBLE, figure VARCHAR, value DOUBLE",
    "processes": "run VARCHAR, trial INTEGER, pid INTEGER, name VARCHAR, cpu_cores DOUBLE",
}
"""The columns of each; `points` has a row a setting, `trials` a row a figure, or one without a
figure, `processes` a row a process of the server."""
PARQUET: Mapping[str, str] = {
    "timelines": "trial INTEGER, at_s DOUBLE, part VARCHAR, figure VARCHAR, value DOUBLE",
    "requests": "trial INTEGER, part VARCHAR, time DOUBLE, connection BIGINT, request BIGINT, bytes BIGINT, "
    "response_time_us DOUBLE, phase VARCHAR, outcome VARCHAR, at_s DOUBLE, connections_up DOUBLE",
    "connections": ", ".join(f"{name} {kind}" for name, kind in CONNECTIONS.items()),
}
"""Tables that are on disk as Parquet, and their columns beside `run`."""

HARMLESS = ("SELECT", "CREATE", "INSERT")
"""Statements that a query may have, by DuckDB's names: the last two change what is in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What a query found."""

    columns: tuple[str, ...]
    """Their names."""
    rows: Sequence[tuple[object, ...]]
    """The rows."""


def ask(out: Path, sql: str) -> Answer:
    """Answer one query over the runs below a folder."""
    import duckdb  # noqa: PLC0415 - 30 MB that only a run and a query need

    folders = runs_in(out)
    try:
        with open_tables(folders) as database:
            # From here on nothing outside is read but what the views name, and nothing is written.
            files = (file for table in PARQUET for file in _files(table, folders))
            listed = ", ".join(f"'{_quoted(file)}'" for file in files)
            database.execute(f"SET allowed_paths = [{listed}]")
            database.execute("SET enable_external_access = false")
            database.execute("SET lock_configuration = true")
            statements = database.extract_statements(sql)
            if not statements:
                raise LabError("the query is empty: write a SELECT", exit_code=USAGE)
            for statement in statements:
                # COPY writes to the paths that may be read, also from within EXPLAIN and PREPARE.
                if statement.type.name not in HARMLESS:
                    what = f"a query reads, and {statement.type.name} is not one of {', '.join(HARMLESS)}"
                    raise LabError(f"the query cannot be answered: {what}", exit_code=USAGE)
            found = database.execute(sql)
            described = found.description or []
            return Answer(columns=tuple(str(each[0]) for each in described), rows=found.fetchall())
    except duckdb.Error as error:
        said = str(error).splitlines()[0]
        tables = ", ".join((*TABLES, *PARQUET))
        raise LabError(f"the query cannot be answered: {said}; the tables are {tables}", exit_code=USAGE) from None


def open_tables(folders: Sequence[RunFolder]) -> duckdb.DuckDBPyConnection:
    """A database in memory with the tables of some runs; the caller closes it.

    `runs`, `points`, `trials` and `processes` are copies of the records, the others views of the
    files on disk.
    """
    import duckdb  # noqa: PLC0415

    database = duckdb.connect()
    try:
        with tempfile.TemporaryDirectory(prefix="plimsoll-query-") as scratch:
            for table in TABLES:
                _fill(database, table, folders, Path(scratch))
        for table, columns in PARQUET.items():
            database.execute(_view(table, columns, _files(table, folders)))
    except BaseException:
        database.close()
        raise
    return database


def write_table(folder: RunFolder, table: str, path: Path) -> Path:
    """Write one table of a run as Parquet."""
    import duckdb  # noqa: PLC0415

    with duckdb.connect() as database, tempfile.TemporaryDirectory(prefix="plimsoll-query-") as scratch:
        _fill(database, table, [folder], Path(scratch))
        database.execute(f"COPY {table} TO '{_quoted(path)}' (FORMAT parquet, COMPRESSION zstd)")
    return path


def _fill(database: duckdb.DuckDBPyConnection, table: str, folders: Sequence[RunFolder], scratch: Path) -> None:
    """Make a table of the records. DuckDB reads a file of rows a thousand times faster than it
    takes parameters.
    """
    columns = TABLES[table]
    file = scratch / f"{table}.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        lines.writelines(json.dumps(row) + "\n" for folder in folders for row in _rows(folder, table))
    database.execute(f"CREATE TABLE {table} ({columns})")
    if file.stat().st_size:
        typed = ", ".join(f"{name}: '{kind}'" for name, kind in _split(columns))
        database.execute(
            f"INSERT INTO {table} SELECT * FROM read_json('{_quoted(file)}', "
            f"format = 'newline_delimited', columns = {{{typed}}})"
        )


def _rows(folder: RunFolder, table: str) -> Iterator[Json]:
    run = folder.read_run()
    # Not the name that the record has: a folder may be a copy, or be moved beside others.
    name = folder.path.resolve().name
    if table == "runs":
        kept = {
            "status": folder.status(run),
            "started_unix_s": run.started_unix_s,
            "seed": run.seed,
            "command": run.command,
        }
        yield {"run": name, "suite": run.suite.name, "question": run.suite.question, **kept}
    elif table == "points":
        for point in run.points:
            words = ", ".join(f"{path}={value}" for path, value in point.setting.items())
            for path, value in point.setting.items() or (("", ""),):
                own = {"point": point.number, "setting": words, "control": point.control}
                yield {"run": name, **own, "path": path, "value": str(value)}
    else:
        rows = _processes if table == "processes" else _figures
        yield from ({"run": name, **row} for trial in folder.read_trials() for row in rows(trial))


def _figures(trial: TrialRecord) -> Iterator[Json]:
    own: Json = {"trial": trial.number, "block": trial.block, "point": trial.point}
    own |= {"outcome": trial.outcome, "reason": trial.reason}
    own |= {"started_unix_s": trial.started_unix_s, "elapsed_s": trial.elapsed_s}
    if not trial.figures:
        yield {**own, "figure": None, "value": None}
    for figure, value in trial.figures.items():
        yield {**own, "figure": figure, "value": value}


def _processes(trial: TrialRecord) -> Iterator[Json]:
    for each in trial.server.get("processes", ()):
        yield {"trial": trial.number, **each}


def _files(table: str, folders: Sequence[RunFolder]) -> list[Path]:
    """A table's files, each named after its trial; what a killed lab left half written has another
    name.
    """
    return [file for folder in folders for file in sorted((folder.path.resolve() / table).glob("[0-9]*.parquet"))]


def _view(table: str, columns: str, files: Sequence[Path]) -> str:
    names = ", ".join(name for name, _ in _split(columns))
    typed = ", ".join(f"NULL::{kind} AS {name}" for name, kind in _split(columns))
    empty = f"SELECT NULL::VARCHAR AS run, {typed} WHERE false"
    if not files:
        return f"CREATE VIEW {table} AS {empty}"
    listed = ", ".join(f"'{_quoted(file)}'" for file in files)
    # The empty table has the columns that files of an older lab lack.
    return (
        f"CREATE VIEW {table} AS SELECT run, {names} FROM ({empty} UNION ALL BY NAME "
        "SELECT string_split(filename, '/')[-3] AS run, * EXCLUDE (filename) "
        f"FROM read_parquet([{listed}], filename = true, union_by_name = true))"
    )


def _split(columns: str) -> list[tuple[str, str]]:
    names_and_types = (each.strip().partition(" ") for each in columns.split(","))
    return [(name, kind) for name, _, kind in names_and_types]


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
