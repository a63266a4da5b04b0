"""The picture under the answer: one figure at one load, the best contender first, and who stopped
before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.answer import main_verdict
from plimsoll_lab.analysis.family import COMPETES, SERVERS_OWN, without
from plimsoll_lab.analysis.points import STOPPED
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.encoding import AXES as ENCODED
from plimsoll_lab.report.encoding import EXACT, MatrixLayout, counts, shapes_of
from plimsoll_lab.report.view import Cell, Table
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import PointSummary, RunSummary
from plimsoll_lab.suite.figures import Figure
from plimsoll_lab.suite.settings import Settings

PREFERRED = "server.cpu_us_per_request"
"""Where nothing is compared: contenders differ in what they cost, even where all of them complete
the whole load."""
AXES = ENCODED | {"us": (1.0, "µs"), "s": (1e3, "ms"), "per_s": (1.0, "per second")}
"""Of each unit, what a value is multiplied by for the axis, and the axis's words."""
ROW = 30
"""Pixels a contender."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """The picture, and its sentence."""

    spec: Json
    caption: str
    data: Table


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """A contender with a result."""

    contender: str
    median: float
    interval: tuple[float, float] | tuple[None, None]
    doubtful: bool
    bound: Literal["", "at most ", "at least "]
    """Whether the median is a bound, as of a response time that a late generator can only raise, or
    of a rate that it did not exhaust."""

    def told(self, unit: str) -> str:
        """The median in words."""
        return f"{self.bound}{formatting.number(self.median, unit, formatting.TOWARD[self.bound])}"


def headline(summary: RunSummary, run: RunRecord, layout: MatrixLayout) -> Headline | None:
    """The picture of a run whose contenders compete; None where none do, no figure is compared, or
    none has a result.
    """
    if layout.compare is None or not run.family.figures:
        return None
    judged = run.family.figures
    told = main_verdict(summary.verdicts)
    preferred = PREFERRED if PREFERRED in judged else judged[0]
    figure = run.figure(preferred if told is None else told.figure)
    at: Settings = {}
    rows: list[_Row] = []
    points: list[PointSummary] = []
    # The answer's figure; else the highest load at which at least two contenders have a result.
    places = list(reversed(_places(summary, layout.compare)))
    places.sort(key=lambda place: told is None or place[0] != told.at)
    for at, points in places:  # noqa: B007 - the last one is used below
        rows = [row for point in points if (row := _measured(point, figure.name, layout.compare, summary)) is not None]
        if len(rows) > 1:
            break
    if len(rows) <= 1:
        return None
    rows.sort(key=lambda row: row.median, reverse=figure.better == "higher")
    factor, unit = AXES[figure.unit]
    title = [f"{figure.label[:1].upper()}{figure.label[1:]}", formatting.setting(at)]
    stopped = [
        _stopped(point, layout.compare)
        for point in points
        if formatting.contender(point.point, layout.compare) not in {row.contender for row in rows}
    ]
    unranked = told.unranked if told is not None and (told.at, told.figure) == (at, figure.name) else {}
    apart = [row.contender for row in rows if row.contender in unranked]
    values = [*(_scaled(row, factor, figure.unit, compared=row.contender not in apart) for row in rows), *stopped]
    spec = _spec(values, layout.contenders, title=title, axis=f"{f'{unit}, ' if unit else ''}{figure.better} is better")
    ranked = [row for row in rows if row.contender not in apart]
    told_of = ranked if len(ranked) > 1 else rows
    ends = (told_of[0], told_of[-1])
    best, worst = (row.told(figure.unit) for row in ends)
    sentence = f"{ends[0].contender} has the best median, {best}; {ends[1].contender} has {worst}"
    if best == worst:
        sentence = f"the medians of all are {best}"
    caption = f"{', '.join(title)}: {sentence}. The line through a mark is the median's 95 % interval."
    if told is not None and apart:
        drawn = told.model_copy(update={"unranked": {name: unranked[name] for name in apart}})
        caption += f" Not compared: {formatting.unranked(drawn)}."
    return Headline(spec=spec, caption=caption, data=_table(rows, stopped, figure, title))


def _table(rows: Sequence[_Row], stopped: Sequence[Json], figure: Figure, title: Sequence[str]) -> Table:
    """A row a contender, in the order of the picture."""
    lines = [
        (
            Cell(text=row.contender, heading=True),
            Cell(text=row.told(figure.unit)),
            Cell(
                text=" to ".join(formatting.number(each, figure.unit) for each in row.interval if each is not None)
                or "-"
            ),
        )
        for row in rows
    ]
    lines += [
        (Cell(text=str(each["contender"]), heading=True), Cell(text=str(each["text"])), Cell(text="-"))
        for each in stopped
    ]
    head = ("", "median", "95 % interval")
    return Table(caption=", ".join(title), head=head, rows=tuple(lines), style="numbers")


def _places(summary: RunSummary, compare: str) -> list[tuple[Settings, list[PointSummary]]]:
    """The points by the setting of the other axes, in the order of the suite."""
    found: dict[str, tuple[Settings, list[PointSummary]]] = {}
    for point in summary.points:
        at = {path: value for path, value in point.point.items() if path != compare}
        found.setdefault(repr(at), (at, []))[1].append(point)
    return list(found.values())


def _measured(point: PointSummary, figure: str, compare: str, summary: RunSummary) -> _Row | None:
    # A generator that fell behind does not spoil what the server used, and the answer counts it.
    tells = point.outcome == "ok" or (point.outcome in COMPETES and figure in SERVERS_OWN)
    if not tells:
        return None
    contender, at = formatting.contender(point.point, compare), without(point.point, compare)
    scored = (each for each in summary.scores if (each.figure, each.contender, each.at) == (figure, contender, at))
    score = next((each for each in scored if each.median is not None), None)
    # The answer's medians, which also count trials that the generator limited: all of them may be.
    found = point.figures.get(figure)
    if score is not None:
        median, interval = score.median, score.median_ci95
    elif found is not None and point.outcome == "ok":
        median, interval = found.median, found.median_ci95
    else:
        return None
    if median is None:
        return None
    return _Row(
        contender=contender,
        median=median,
        interval=interval or (None, None),
        doubtful=point.doubtful,
        bound="" if score is None else "at most " if score.at_most else "at least " if score.censored else "",
    )


def _scaled(row: _Row, factor: float, unit: str, *, compared: bool) -> Json:
    low, high = (None if each is None else _rounded(each * factor) for each in row.interval)
    text = row.told(unit) + ("?" if row.doubtful else "") + ("" if compared else ", not compared")
    return {"contender": row.contender, "text": text, "median": _rounded(row.median * factor), "low": low, "high": high}


def _stopped(point: PointSummary, compare: str) -> Json:
    """A contender without a result, and why."""
    reasons = {"hard_limit": "stopped before this load", "failed": "failed", "": "not measured"}
    text = reasons.get(point.outcome or "", "no valid result")
    if point.outcome in STOPPED:
        text += formatting.in_part(point)
    contender = formatting.contender(point.point, compare)
    return {"contender": contender, "text": text, "median": None, "low": None, "high": None}


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _spec(values: Sequence[Json], contenders: Sequence[str], *, title: Sequence[str], axis: str) -> Json:
    colour: Json = {"field": "contender", "type": "nominal", "scale": {"domain": list(contenders)}, "legend": None}
    shapes = shapes_of(len(contenders))
    y: Json = {
        "field": "contender",
        "type": "nominal",
        "sort": [row["contender"] for row in values],
        "title": None,
        "axis": {"labelFontSize": 13, "labelLimit": 220, "ticks": False, "domain": False},
    }
    x: Json = {
        "field": "median",
        "type": "quantitative",
        "title": axis,
        "scale": {"zero": True, "nice": True},
        "axis": {"tickCount": 5, **(counts() if axis.startswith("per second") else {"format": EXACT})},
    }
    measured, absent = [{"filter": "isValid(datum.median)"}], [{"filter": "!isValid(datum.median)"}]
    return {
        "$schema": SCHEMA,
        "width": 680,
        "height": ROW * len(values),
        "title": {"text": list(title), "anchor": "start", "fontSize": 14, "fontWeight": 600, "offset": 12},
        "data": {"values": list(values)},
        "layer": [
            {
                "transform": measured,
                "mark": {"type": "bar", "height": 12, "opacity": 0.45},
                "encoding": {"y": y, "x": x, "color": colour},
            },
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 2.5},
                "encoding": {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}, "color": colour},
            },
            {
                "transform": measured,
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {
                    "y": y,
                    "x": x,
                    "color": colour,
                    "shape": {
                        "field": "contender",
                        "type": "nominal",
                        "scale": {"domain": list(contenders), "range": shapes},
                        "legend": None,
                    },
                },
            },
            {
                "transform": [*measured, {"calculate": "isValid(datum.high) ? datum.high : datum.median", "as": "end"}],
                "mark": {"type": "text", "align": "left", "dx": 10, "fontSize": 12, "fontWeight": 600},
                "encoding": {"y": y, "x": x | {"field": "end"}, "text": {"field": "text"}},
            },
            {
                "transform": absent,
                "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 12, "fontStyle": "italic"},
                "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "text"}},
            },
        ],
    }
