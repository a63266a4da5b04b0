"""Runs for scripts and notebooks. Nothing here changes a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.problem import LabError
from plimsoll_lab.report.all_charts import all_charts
from plimsoll_lab.store import folder as folders
from plimsoll_lab.store.query import open_tables
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary

if TYPE_CHECKING:
    import duckdb

PNG_SCALE = 2
"""Pixels a point: sharp on the screens of today."""
VEGA_LITE = "application/vnd.vegalite.v6+json"
"""The type under which notebooks draw Vega-Lite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One chart of a run. A notebook displays it: interactive if it supports Vega-Lite, else as a
    picture.
    """

    name: str
    """Its name: `headline`, `completed_rate-load`, `timelines-0`."""
    spec: Json
    """Vega-Lite 6 with the data inside; `altair.Chart.from_dict(chart.spec)` reads it."""

    @property
    def svg(self) -> str:
        """The picture as SVG, on white."""
        import vl_convert  # noqa: PLC0415 - 50 MB of renderer that only pictures need

        return vl_convert.vegalite_to_svg(self.spec)

    @property
    def png(self) -> bytes:
        """The picture as PNG, on white, two pixels a point."""
        import vl_convert  # noqa: PLC0415 - the same

        return vl_convert.vegalite_to_png(self.spec, scale=PNG_SCALE)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, object]:
        """What IPython's display asks of an object."""
        del include, exclude
        return {VEGA_LITE: self.spec, "image/svg+xml": self.svg, "text/plain": repr(self.name)}


class Tables:
    """The tables of some runs, in a database of their own in memory.

    Relations read the records as they were when this was opened. Times are in seconds, other
    figures in the unit of their name.
    """

    def __init__(self, runs: Sequence[folders.RunFolder]) -> None:
        self._database = open_tables(runs)

    def sql(self, query: str) -> duckdb.DuckDBPyRelation:
        """A query over `runs`, `points`, `trials`, `processes`, `timelines`, `requests` and
        `connections`.

        Raises `duckdb.Error` where the query is wrong.
        """
        return self._database.sql(query)

    @property
    def runs(self) -> duckdb.DuckDBPyRelation:
        """A row a run: `run`, `suite`, `question`, `status`, `started_unix_s`, `seed`,
        `command`.
        """
        return self._database.table("runs")

    @property
    def points(self) -> duckdb.DuckDBPyRelation:
        """A row a setting of a point: `run`, `point`, `setting`, `path`, `value`."""
        return self._database.table("points")

    @property
    def trials(self) -> duckdb.DuckDBPyRelation:
        """A row a figure of a trial: `run`, `trial`, `block`, `point`, `outcome`, `reason`,
        `started_unix_s`, `elapsed_s`, `figure`, `value`.
        """
        return self._database.table("trials")

    @property
    def processes(self) -> duckdb.DuckDBPyRelation:
        """A row a process of the server, of a suite that lists them: `run`, `trial`, `pid`, `name`,
        `cpu_cores`.
        """
        return self._database.table("processes")

    @property
    def timelines(self) -> duckdb.DuckDBPyRelation:
        """A row a figure at an instant: `run`, `trial`, `at_s`, `part`, `figure`, `value`."""
        return self._database.view("timelines")

    @property
    def requests(self) -> duckdb.DuckDBPyRelation:
        """A row a request of a request log: `run`, `trial`, `part`, `time`, `connection`,
        `request`, `bytes`, `response_time_us`, `phase`, `outcome`, `at_s`, `connections_up`.
        """
        return self._database.view("requests")

    @property
    def connections(self) -> duckdb.DuckDBPyRelation:
        """A row a connection of a generator that recorded each, as in `plimsoll lab query`."""
        return self._database.view("connections")

    def close(self) -> None:
        """Give the memory back; relations cannot be used any more."""
        self._database.close()


class Run(Tables):
    """One run."""

    def __init__(self, run: folders.RunFolder) -> None:
        super().__init__([run])
        self._folder = run

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._folder.path

    @cached_property
    def record(self) -> RunRecord:
        """What it is about: suite, settings, environment, points."""
        return self._folder.read_run()

    @cached_property
    def summary(self) -> RunSummary:
        """What it amounts to: the same figures, verdicts and warnings as on its page."""
        return summarise_run(self._folder)

    @cached_property
    def trial_records(self) -> Sequence[TrialRecord]:
        """Every trial whole, as it is on disk."""
        return self._folder.read_trials()

    @cached_property
    def charts(self) -> Mapping[str, Chart]:
        """Every chart of its page, by name."""
        drawn = all_charts(self._folder, self.record, self.summary, self.trial_records)
        return {name: Chart(name=name, spec=drawn.whole(name)) for name in drawn.specs}

    def __repr__(self) -> str:
        return f"<run {self.record.run} of {self.record.suite.name}: {self.record.status}>"


def open_run(path: str | Path) -> Run:
    """A run by its folder, such as `runs/0007`.

    Raises `plimsoll_lab.problem.LabError` where there is none, or its records are damaged.
    """
    return Run(folders.open_run(Path(path)))


def open_runs(out: str | Path = "runs") -> Tables:
    """The tables of every run below a folder.

    Raises `plimsoll_lab.problem.LabError` where there is none, or a record is damaged.
    """
    found = folders.list_runs(Path(out))
    if not found:
        raise LabError(f"there is no run in {out}; 'plimsoll lab run' makes one")
    return Tables(found)
