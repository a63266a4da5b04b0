"""What the figures rest on: medians, summaries in full, and every trial that is no result or was
repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.stops import contender_cell
from plimsoll_lab.report.view import Cell, Fold, Part, Row, Table, Text
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import LeftOutRecord, PointSummary, RunSummary
from plimsoll_lab.suite.figures import Figure

COLUMNS = (
    ("completed_rate", "completed"),
    ("response_time_us.p50", "p50"),
    ("response_time_us.p99", "p99"),
    ("establishment_time_us.p50", "establishment p50"),
    ("server.cpu_us_per_request", "CPU per request"),
    ("server.cpu_cores", "CPU"),
    ("server.memory_bytes", "memory"),
    ("generator.cpu_cores", "generator CPU"),
)
"""The columns of the table of medians."""


def parts(run: RunRecord, summary: RunSummary, made: Sequence[TrialRecord], layout: MatrixLayout) -> list[Part]:
    """The medians of every point; the rest behind folds."""
    found: list[Part] = [_medians(run, summary, layout)]
    full = tuple(_summaries(run, summary))
    if full:
        found.append(Fold(title="Every summary in full", parts=full))
    if summary.left_out:
        several = len(summary.left_out) > 1
        title = f"{len(summary.left_out)} {'trials were' if several else 'trial was'} left out or repeated"
        found.append(Fold(title=title, parts=(_left_out(summary.left_out),)))
    if made:
        title = f"All {len(made)} trials" if len(made) > 1 else "The trial"
        found.append(Fold(title=title, parts=(_every(run, made),)))
    return found


def _columns(run: RunRecord) -> list[tuple[Figure, str]]:
    """The columns that a run has, each with its heading."""
    known = run.figures_by_name
    return [(known[name], heading) for name, heading in COLUMNS if name in known]


def _medians(run: RunRecord, summary: RunSummary, layout: MatrixLayout) -> Table:
    columns = _columns(run)
    head = ("", *(heading for _, heading in columns), "valid trials")
    rows: list[Row] = []
    group = None
    for point in _by_setting(summary.points, layout.compare):
        setting = {path: value for path, value in point.point.items() if path != layout.compare}
        here = formatting.setting(setting) if layout.compare else None
        contender = formatting.contender(point.point, layout.compare) if layout.compare else formatting.setting(setting)
        if here != group:
            rows.append((Cell(text=str(here), heading=True, span=len(head)),))
            group = here
        counts = Cell(text=f"{point.valid_n}/{point.n}")
        rows.append((contender_cell(contender, layout), *_values(point, columns), counts))
    return Table(caption="The median of the valid trials of each point", head=head, rows=tuple(rows), style="numbers")


def _by_setting(points: Sequence[PointSummary], compare: str | None) -> list[PointSummary]:
    """The points of one setting beside each other, in the order of the suite."""
    groups: dict[str, list[PointSummary]] = {}
    for point in points:
        setting = {path: value for path, value in point.point.items() if path != compare}
        groups.setdefault(repr(setting) if compare else "", []).append(point)
    return [point for members in groups.values() for point in members]


def _values(point: PointSummary, columns: Sequence[tuple[Figure, str]]) -> Row:
    if point.outcome != "ok" and not point.doubtful:
        badge, tone = formatting.outcome(point.outcome), point.outcome or ""
        return (Cell(text="", badge=badge, tone=tone, detail=str(point.reason), span=len(columns)),)
    return tuple(Cell(text=formatting.median(point, figure.name, figure.unit)) for figure, _ in columns)


def _summaries(run: RunRecord, summary: RunSummary) -> list[Part]:
    """A table a figure; those that were 0 in every trial are named in a sentence."""
    known = run.figures_by_name
    shown = dict.fromkeys(name for point in summary.points for name in point.figures if name in known)
    zeros = [name for name in shown if _is_zero(name, summary.points)]
    told = f"0 in every trial: {', '.join(known[name].label for name in zeros)}."
    tables = [_summary(known[name], summary.points) for name in shown if name not in zeros]
    return [*tables, *([Text(text=told)] if zeros else [])]


def _is_zero(name: str, points: Sequence[PointSummary]) -> bool:
    found = [point.figures[name] for point in points if name in point.figures]
    return all(each.least == each.greatest == 0 for each in found)


def _summary(figure: Figure, points: Sequence[PointSummary]) -> Table:
    unit = figure.unit
    rows = []
    for point in points:
        found = point.figures.get(figure.name)
        if found is None:
            continue
        cells = (
            f"{found.n} of {point.n}",
            formatting.number(found.mean, unit),
            formatting.number(found.stdev, unit),
            formatting.number(found.cv, "ratio"),
            _interval(found.mean_ci95, unit),
            formatting.number(found.median, unit),
            _interval(found.median_ci95, unit),
            _interval((found.least, found.greatest), unit),
        )
        heading = Cell(text=formatting.setting(point.point), heading=True)
        rows.append((heading, *(Cell(text=cell) for cell in cells)))
    head = (
        *("point", "n", "mean", "standard deviation", "coefficient of variation", "mean, 95 % (Student's t)"),
        *("median", "median, 95 % (order statistics)", "range"),
    )
    return Table(caption=figure.label, head=head, rows=tuple(rows), style="numbers")


def _left_out(rows: Sequence[LeftOutRecord]) -> Table:
    lines = []
    for row in rows:
        causes = "; ".join(f"{formatting.outcome(each.outcome)}: {each.reason}" for each in row.discarded)
        repeated = f"measured {len(row.discarded) + 1} times; discarded: {causes}" if row.discarded else ""
        outcome = "a result" if row.outcome == "ok" else formatting.outcome(row.outcome)
        reason = "; ".join(each for each in (row.reason, repeated) if each)
        where = formatting.setting(row.point)
        lines.append(tuple(Cell(text=cell) for cell in (str(row.trial), where, outcome, reason)))
    head = ("trial", "point", "outcome", "reason")
    return Table(caption="Trials that were left out or repeated", head=head, rows=tuple(lines))


def _every(run: RunRecord, made: Sequence[TrialRecord]) -> Table:
    columns = _columns(run)
    rows = tuple(
        (
            Cell(text=str(trial.number), heading=True),
            Cell(text=str(trial.block)),
            Cell(text=formatting.setting(trial.setting)),
            Cell(text=formatting.outcome(trial.outcome)),
            *(Cell(text=formatting.number(trial.figures.get(each.name), each.unit)) for each, _ in columns),
        )
        for trial in made
    )
    head = ("trial", "block", "point", "outcome", *(heading for _, heading in columns))
    return Table(caption=f"Every trial of run {run.run}", head=head, rows=rows, style="numbers")


def _interval(interval: tuple[float, float] | None, unit: str) -> str:
    return "-" if interval is None else formatting.interval(interval, unit)
