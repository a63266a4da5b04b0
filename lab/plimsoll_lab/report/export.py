"""A run for other programs: charts as SVG and PNG, figures as CSV, and the other files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.all_charts import all_charts
from plimsoll_lab.report.data_files import hgrm_files, json_files, markdown_file, openmetrics_file, parquet_files
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import FigureSummary, RunSummary
from plimsoll_lab.suite.figures import CAPACITY
from plimsoll_lab.suite.settings import Settings

OF_CAPACITIES = (
    *("lower", "upper", "searches", "ended", "finished", "held_s", "spread", "precision", "limited_by"),
    *("first_break", "text"),
)
"""The columns of `capacities.csv` after the setting, named as in the summary."""
STATISTICS = ("n", "mean", "stdev", "median")
PNG_SCALE = 2
"""Pixels a point: sharp on the screens of today."""


def export(folder: RunFolder, kinds: Sequence[str]) -> list[Path]:
    """Write the run in each of some of `KINDS`; the files."""
    run, summary = folder.read_run(), summarise_run(folder)
    # An A/A control is no further point, nor are its trials further trials of the one it repeats.
    told = {point.number for point in summary.points}
    made = [trial for trial in folder.read_trials() if trial.point in told]
    written: list[Path] = []
    if "json" in kinds:
        written += json_files(folder, summary.to_json())
    if "md" in kinds:
        written += markdown_file(folder, run, summary)
    if "parquet" in kinds:
        written += parquet_files(folder)
    if "hgrm" in kinds:
        written += hgrm_files(folder, run, made)
    if "openmetrics" in kinds:
        written += openmetrics_file(folder, run, summary)
    if "csv" in kinds:
        written.append(_write(folder.path / "points.csv", points_csv(run, summary)))
        written.append(_write(folder.path / "trials.csv", trials_csv(run, made)))
        if summary.capacities:
            written.append(_write(folder.path / "capacities.csv", capacities_csv(summary)))
    if "svg" in kinds or "png" in kinds:
        written += _charts(folder, run, summary, kinds)
    return written


def _charts(folder: RunFolder, run: RunRecord, summary: RunSummary, kinds: Sequence[str]) -> list[Path]:
    import vl_convert  # noqa: PLC0415 - a second and 50 MB that only an export needs

    home = folder.path / "charts"
    home.mkdir(exist_ok=True)
    drawn = all_charts(folder, run, summary, folder.read_trials())
    written = []
    for name in drawn.specs:
        spec = drawn.whole(name)
        if "svg" in kinds:
            path = home / f"{name}.svg"
            path.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
            written.append(path)
        if "png" in kinds:
            path = home / f"{name}.png"
            path.write_bytes(vl_convert.vegalite_to_png(spec, scale=PNG_SCALE))
            written.append(path)
    return written


def points_csv(run: RunRecord, summary: RunSummary) -> str:
    """A row a point: each figure's n, mean, standard deviation and median."""
    paths = _paths(run)
    names = _names(run)
    header = [
        *paths,
        "n",
        "valid_n",
        "outcome",
        "doubtful",
        *(f"{name}.{each}" for name in names for each in STATISTICS),
    ]
    lines = []
    for point in summary.points:
        setting = _cells(point.point, paths)
        cells = [cell for name in names for cell in _statistics(point.figures.get(name))]
        lines.append([*setting, point.n, point.valid_n, point.outcome, point.doubtful, *cells])
    return _csv(header, lines)


def _statistics(found: FigureSummary | None) -> tuple[float | None, ...]:
    return (None,) * len(STATISTICS) if found is None else (found.n, found.mean, found.stdev, found.median)


def trials_csv(run: RunRecord, trials: Sequence[TrialRecord]) -> str:
    """A row a trial, whatever came of it."""
    paths = _paths(run)
    names = _names(run)
    lines = (
        [
            trial.number,
            trial.block,
            *_cells(trial.setting, paths),
            trial.outcome,
            *(trial.figures.get(name) for name in names),
        ]
        for trial in trials
    )
    return _csv(["trial", "block", *paths, "outcome", *names], lines)


def capacities_csv(summary: RunSummary) -> str:
    """A row a setting that was searched: its bounds, and how they were confirmed."""
    paths = _paths_of([each.point for each in summary.capacities])
    lines = [
        [*_cells(each.point, paths), *(getattr(each, name) for name in OF_CAPACITIES)] for each in summary.capacities
    ]
    return _csv([*paths, *OF_CAPACITIES], lines)


def _names(run: RunRecord) -> list[str]:
    """The figures that points and trials have: a capacity is a search's."""
    return [figure.name for figure in run.figures if figure.name != CAPACITY]


def _paths(run: RunRecord) -> list[str]:
    """Whatever varies: the axes, and what points beside the matrix set."""
    settings = [{axis.path: None for axis in run.axes}, *(point.setting for point in run.points)]
    return _paths_of(settings)


def _paths_of(settings: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(path for each in settings for path in each))


def _cells(setting: Settings, paths: Sequence[str]) -> list[str]:
    """A setting under its header; empty where a point does not set a path."""
    return [formatting.value(setting[path]) if path in setting else "" for path in paths]


def _csv(header: Sequence[str], lines: Iterable[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(header)
    writer.writerows(lines)
    return text.getvalue()


def _write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path
