"""What the figures rest on: medians, summaries in full, and every trial that is no result or was
repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.charts import Shape
from plimsoll_lab.report.stops import OUTCOMES, contender_cell
from plimsoll_lab.report.view import Cell, Fold, Part, Row, Table
from plimsoll_lab.store.records import Json, TrialRecord

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


def parts(
    run: Json, summary: Json, made: Sequence[TrialRecord], shape: Shape, figures: Mapping[str, Json]
) -> list[Part]:
    """The medians of every point; the rest behind folds."""
    found: list[Part] = [_medians(summary, shape, figures)]
    full = tuple(_summaries(summary, figures))
    if full:
        found.append(Fold(title="Every summary in full", parts=full))
    left_out = cast("list[Json]", summary["left_out"])
    if left_out:
        found.append(Fold(title=f"{len(left_out)} trials were left out or repeated", parts=(_left_out(left_out),)))
    if made:
        found.append(Fold(title=f"All {len(made)} trials", parts=(_every(run, made, figures),)))
    return found


def _medians(summary: Json, shape: Shape, figures: Mapping[str, Json]) -> Table:
    columns = [(name, heading) for name, heading in COLUMNS if name in figures]
    head = ("", *(heading for _, heading in columns), "valid trials")
    rows: list[Row] = []
    group = None
    for point in _by_setting(cast("list[Json]", summary["points"]), shape.compare):
        setting = dict(cast("Json", point["point"]))
        contender = formatting.value(setting.pop(shape.compare)) if shape.compare else formatting.setting(setting)
        here = formatting.setting(setting) if shape.compare else None
        if here != group:
            rows.append((Cell(text=str(here), heading=True, span=len(head)),))
            group = here
        rows.append(
            (
                contender_cell(contender, shape),
                *_values(point, columns, figures),
                Cell(text=f"{point['valid_n']}/{point['n']}"),
            )
        )
    return Table(caption="The median of the valid trials of each point", head=head, rows=tuple(rows), style="numbers")


def _by_setting(points: Sequence[Json], compare: str | None) -> list[Json]:
    """The points of one setting beside each other, in the order of the suite."""
    groups: dict[str, list[Json]] = {}
    for point in points:
        setting = {path: value for path, value in cast("Json", point["point"]).items() if path != compare}
        groups.setdefault(repr(setting) if compare else "", []).append(point)
    return [point for members in groups.values() for point in members]


def _values(point: Json, columns: Sequence[tuple[str, str]], figures: Mapping[str, Json]) -> Row:
    if point["outcome"] != "ok":
        outcome = cast("str | None", point["outcome"])
        told = Cell(
            text="", badge=OUTCOMES[outcome], tone=outcome or "", detail=str(point["reason"]), span=len(columns)
        )
        return (told,)
    found = cast("dict[str, Json]", point["figures"])
    return tuple(_value(found.get(name), cast("str", figures[name]["unit"])) for name, _ in columns)


def _value(found: Json | None, unit: str) -> Cell:
    if found is None:
        return Cell(text="-")
    return Cell(text=formatting.number(cast("float", found["median"]), unit))


def _summaries(summary: Json, figures: Mapping[str, Json]) -> list[Table]:
    points = cast("list[Json]", summary["points"])
    shown = dict.fromkeys(name for point in points for name in cast("Json", point["figures"]) if name in figures)
    return [_summary(name, figures[name], points) for name in shown]


def _summary(name: str, figure: Json, points: Sequence[Json]) -> Table:
    unit = cast("str", figure["unit"])
    rows = []
    for point in points:
        found = cast("dict[str, Json]", point["figures"]).get(name)
        if found is None:
            continue
        cells = (
            f"{found['n']} of {point['n']}",
            formatting.number(cast("float", found["mean"]), unit),
            formatting.number(cast("float | None", found["stdev"]), unit),
            formatting.number(cast("float | None", found["cv"]), "ratio"),
            _interval(found["mean_ci95"], unit),
            formatting.number(cast("float", found["median"]), unit),
            _interval(found["median_ci95"], unit),
            _interval((found["least"], found["greatest"]), unit),
        )
        heading = Cell(text=formatting.setting(cast("Json", point["point"])), heading=True)
        rows.append((heading, *(Cell(text=cell) for cell in cells)))
    head = (
        *("point", "n", "mean", "standard deviation", "coefficient of variation", "mean, 95 % (Student's t)"),
        *("median", "median, 95 % (order statistics)", "range"),
    )
    return Table(caption=str(figure["label"]), head=head, rows=tuple(rows), style="numbers")


def _left_out(rows: Sequence[Json]) -> Table:
    lines = []
    for row in rows:
        discarded = cast("list[Json]", row["discarded"])
        causes = "; ".join(f"{_words(each['outcome'])}: {each['reason']}" for each in discarded)
        repeated = f"measured {len(discarded) + 1} times; discarded: {causes}" if discarded else ""
        outcome = "a result" if row["outcome"] == "ok" else _words(row["outcome"])
        reason = "; ".join(str(each) for each in (row["reason"], repeated) if each)
        where = formatting.setting(cast("Json", row["point"]))
        lines.append(tuple(Cell(text=cell) for cell in (str(row["trial"]), where, outcome, reason)))
    head = ("trial", "point", "outcome", "reason")
    return Table(caption="Trials that were left out or repeated", head=head, rows=tuple(lines))


def _every(run: Json, made: Sequence[TrialRecord], figures: Mapping[str, Json]) -> Table:
    columns = [(name, heading) for name, heading in COLUMNS if name in figures]
    rows = tuple(
        (
            Cell(text=str(trial.number), heading=True),
            Cell(text=str(trial.block)),
            Cell(text=formatting.setting(trial.setting)),
            Cell(text=_words(trial.outcome)),
            *(
                Cell(text=formatting.number(trial.figures.get(name), cast("str", figures[name]["unit"])))
                for name, _ in columns
            ),
        )
        for trial in made
    )
    head = ("trial", "block", "point", "outcome", *(heading for _, heading in columns))
    return Table(caption=f"Every trial of run {run['run']}", head=head, rows=rows, style="numbers")


def _interval(interval: object, unit: str) -> str:
    if interval is None:
        return "-"
    low, high = cast("tuple[float, float]", interval)
    return f"{formatting.number(low, unit)} to {formatting.number(high, unit)}"


def _words(outcome: object) -> str:
    return str(outcome).replace("_", " ")
