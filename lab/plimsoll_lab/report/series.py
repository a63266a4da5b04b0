"""Quantities over time: panels on one shared time axis, and their numbers as a table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.over_time import Course
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.encoding import MatrixLayout, counts
from plimsoll_lab.report.view import Cell, Row, Table
from plimsoll_lab.store.records import Json

LEVELS_SHOWN = 3
"""Settings that are drawn: the first, the middle and the last. More would fill the page."""
DOTS_MOST = 120
"""Of a line with more, each dot is the mean of neighbours: a screen shows no more."""
PARTS_MOST = 8
"""Columns of a table over time."""
NEAR = 0.01
"""Of a part of the time: "-0.00142 to 0.668 s" tells nobody more than "0 to 0.668 s"."""
ENDS = 2
"""Dots of a level that was only asked for: it is a line between two."""
FORMATS = {"cores": ".2~f", "Mbit/s": ",.3~r"}
"""Of units whose values lie near 1, how an axis writes them."""
PANEL_HEIGHT, WIDTH = 92, 680

TIME_TICKS = 10
"""About so many labels on an axis of seconds: with more, those of parts of a second touch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One panel of a chart."""

    name: str
    """What it shows."""
    series: tuple[str, ...]
    """The quantities in it, by their names in a course; every one after the first is dashed."""
    unit: str
    """The unit on its axis."""
    factor: float = 1.0
    """To that unit."""
    may_be_zero: bool = True
    """Whether a line at 0 is worth drawing."""


def chosen(levels: Sequence[str]) -> list[str]:
    """The settings that are drawn."""
    if len(levels) <= LEVELS_SHOWN:
        return list(levels)
    return [levels[0], levels[len(levels) // 2], levels[-1]]


def has_something(panel: Panel, courses: Sequence[Course]) -> bool:
    """Whether there is something to draw: two instants, and a number that is not 0 unless a line at
    0 is worth drawing.
    """
    dots = [course.series.get(each, []) for course in courses for each in panel.series if each != "intended"]
    if not panel.may_be_zero:
        return any(value for each in dots for _, value in each)
    return any(len(each) > 1 for each in dots)


def panels_spec(courses: Sequence[Course], panels: Sequence[Panel], layout: MatrixLayout) -> Json:
    """The panels below each other, as Vega-Lite."""
    across = _across(courses)
    drawn = []
    for place, panel in enumerate(panels):
        values: list[Json] = [
            {
                "contender": course.contender,
                "series": "second" if number else "first",
                "of": each,
                "t": short(at_s),
                "v": short(value * panel.factor),
            }
            for course in courses
            for number, each in enumerate(panel.series)
            for at_s, value in thinned(course.series.get(each, []))
        ]
        last = place == len(panels) - 1
        drawn.append(_panel(panel, values, across, layout, title="seconds" if last else None))
    return {"$schema": SCHEMA, "spacing": 8, "vconcat": drawn}


def _across(courses: Sequence[Course]) -> tuple[float, float]:
    return min(course.starts_s for course in courses), max(course.ends_s for course in courses)


def _panel(
    panel: Panel, values: Sequence[Json], across: Sequence[float], layout: MatrixLayout, *, title: str | None
) -> Json:
    name, unit = panel.name, panel.unit
    x: Json = {
        "field": "t",
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [short(each) for each in across], "nice": False},
        "axis": {"grid": False, "labels": title is not None, "ticks": title is not None, "tickCount": TIME_TICKS},
    }
    y: Json = {
        "field": "v",
        "type": "quantitative",
        "title": [name, unit] if name != unit else [unit],
        "axis": {
            "tickCount": 3,
            "minExtent": 64,
            "titleX": -60,
            **({"format": FORMATS[unit]} if unit in FORMATS else counts()),
        },
    }
    domain = list(layout.contenders)
    colour: Json = {"field": "contender", "type": "nominal", "scale": {"domain": domain}, "legend": None}
    dash: Json = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": ["first", "second"], "range": [[1, 0], [5, 3]]},
        "legend": None,
    }
    layers: list[Json] = []
    if across[0] < 0:
        shade = {"values": [{"t": short(across[0]), "to": 0}]}
        mark: Json = {"type": "rect", "color": "#808890", "opacity": 0.18}
        layers.append({"data": shade, "mark": mark, "encoding": {"x": x, "x2": {"field": "to"}}})
    tooltip = [
        {"field": "contender"},
        {"field": "of", "title": "quantity"},
        {"field": "t", "title": "s"},
        {"field": "v", "title": unit},
    ]
    line: Json = {"x": x, "y": y, "color": colour, "strokeDash": dash, "tooltip": tooltip}
    line |= {"detail": {"field": "of", "type": "nominal"}}
    layers.append({"data": {"values": list(values)}, "mark": {"type": "line", "strokeWidth": 1.6}, "encoding": line})
    return {"width": WIDTH, "height": PANEL_HEIGHT, "layer": layers}


def series_table(caption: str, courses: Sequence[Course], panels: Sequence[Panel]) -> Table:
    """The numbers behind the lines, coarser: the mean of each part of the time."""
    own = [len(course.series.get(each, ())) for panel in panels for each in panel.series for course in courses]
    edges = parts_of(*_across(courses), dots=min((each for each in own if each > ENDS), default=1))
    rows: list[Row] = []
    for panel in panels:
        for course in courses:
            for each in panel.series:
                dots = course.series.get(each, [])
                if dots:
                    heading = each.replace("_", " ") if len(panel.series) > 1 else panel.name
                    who = "" if course.contender == "all" else f"{course.contender}, "
                    means = (_mean(dots, low, high) for low, high in edges)
                    told = ("-" if mean is None else formatting.significant(mean * panel.factor) for mean in means)
                    cells = (Cell(text=each) for each in told)
                    rows.append((Cell(text=f"{who}{heading}", detail=panel.unit, heading=True), *cells))
    return Table(
        caption=f"{caption} The mean of each part of the time.", head=head_of(edges), rows=tuple(rows), style="numbers"
    )


def parts_of(start_s: float, end_s: float, dots: int) -> list[tuple[float, float]]:
    """Equal parts of a time, no more than there are dots in it. One that begins or ends within NEAR
    of a part from the window's opening does so at the opening.
    """
    parts = max(1, min(PARTS_MOST, dots))
    step = (end_s - start_s) / parts
    edges = (start_s + place * step for place in range(parts + 1))
    return list(itertools.pairwise(0.0 if abs(edge) < NEAR * step else edge for edge in edges))


def head_of(edges: Sequence[tuple[float, float]]) -> tuple[str, ...]:
    """The columns of a table over time."""
    return ("", *(f"{low:.3g} to {high:.3g} s" for low, high in edges))


def _mean(dots: Sequence[tuple[float, float]], low: float, high: float) -> float | None:
    """Of the dots in a part of the time; of the line between two dots in a part without one."""
    inside = [value for at_s, value in dots if low <= at_s < high]
    if inside:
        return sum(inside) / len(inside)
    before = [dot for dot in dots if dot[0] < low]
    after = [dot for dot in dots if dot[0] >= high]
    if not before or not after:
        return None
    (start_s, one), (end_s, other) = before[-1], after[0]
    return one + (other - one) * ((low + high) / 2 - start_s) / (end_s - start_s)


def thinned(dots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Dots that are apart on a screen."""
    size = max(1, -(-len(dots) // DOTS_MOST))
    bins = [dots[place : place + size] for place in range(0, len(dots), size)]
    return [(sum(at for at, _ in each) / len(each), sum(value for _, value in each) / len(each)) for each in bins]


def short(value: float) -> float:
    """Five significant digits: a chart shows no more."""
    return float(f"{value:.5g}")
