"""Percentile curves: one chart a setting, one line a contender, on the axis that HdrHistogram's own
plots have.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.percentiles import Curve
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.encoding import SHAPES, MatrixLayout
from plimsoll_lab.report.view import Cell, Described, Row, Table
from plimsoll_lab.store.records import Json

TICKS = (2, 4, 10, 20, 100, 1000, 10000)
LABELS = "{'2': '50 %', '4': '75 %', '10': '90 %', '20': '95 %', '100': '99 %', '1000': '99.9 %', '10000': '99.99 %'}"
"""The share of requests that an axis value of 1 / (1 - q) stands for."""

LEAST_PERCENTILES = 3
"""Two are a line, whatever the response times are."""

_Dot = tuple[str, int, float]
"""A contender, a place on the axis, and a time in ms."""


def percentile_charts(curves: Sequence[Curve], layout: MatrixLayout) -> dict[str, Described]:
    """By name, each chart."""
    places: dict[str, list[_Dot]] = {level: [] for level in layout.levels}
    for curve in curves:
        setting = {path: value for path, value in curve.point.items() if path != layout.compare}
        contender = formatting.contender(curve.point, layout.compare) if layout.compare else "all"
        rows = [(contender, round(1 / (1 - q)), float(f"{us / 1e3:.6g}")) for q, us in curve.quantiles]
        places[formatting.setting(setting)].extend(rows)
    return {
        f"percentiles-{number}": Described(spec=_spec(rows, layout), caption=_caption(place), data=_table(rows, place))
        for number, (place, rows) in enumerate(places.items())
        if len({x for _, x, _ in rows}) >= LEAST_PERCENTILES
    }


def _caption(place: str) -> str:
    return f"Response time by percentile, {place}; lower is better."


def _table(dots: Sequence[_Dot], place: str) -> Table:
    """A row a contender: the time below which a share of the requests stayed."""
    shares = sorted({x for _, x, _ in dots})
    known = {(contender, x): y for contender, x, y in dots}
    rows: list[Row] = []
    for contender in dict.fromkeys(contender for contender, _, _ in dots):
        times = (known.get((contender, x)) for x in shares)
        cells = (Cell(text="-" if each is None else formatting.number(each * 1e3, "us")) for each in times)
        rows.append((Cell(text="response time" if contender == "all" else contender, heading=True), *cells))
    caption = f"Response time below which this share of the requests stayed, {place}: the median of the trials"
    head = ("", *(f"{(1 - 1 / x) * 100:.6g} %" for x in shares))
    return Table(caption=caption, head=head, rows=tuple(rows), style="numbers")


def _spec(rows: Sequence[_Dot], layout: MatrixLayout) -> Json:
    domain = list(layout.contenders)
    most = max(x for _, x, _ in rows) * 1.01
    across: Json = {
        "field": "x",
        "type": "quantitative",
        "title": "share of requests below",
        "scale": {"type": "log", "nice": False},
        "axis": {"values": [each for each in TICKS if each <= most], "labelExpr": f"({LABELS})[datum.value]"},
    }
    up: Json = {
        "field": "y",
        "type": "quantitative",
        "title": "ms",
        "scale": {"type": "log", "nice": False, "padding": 12},
        "axis": {"tickCount": 4, "format": ",.4~r"},
    }
    colour: Json = {"field": "contender", "type": "nominal", "scale": {"domain": domain}, "legend": None}
    marks = [SHAPES[place % len(SHAPES)] for place in range(len(domain))]
    form = {"field": "contender", "type": "nominal", "scale": {"domain": domain, "range": marks}, "legend": None}
    tooltip = [{"field": "contender"}, {"field": "y", "title": "ms"}]
    return {
        "$schema": SCHEMA,
        "width": 520,
        "height": 240,
        "data": {"values": [{"contender": contender, "x": x, "y": y} for contender, x, y in rows]},
        "layer": [
            {"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": {"x": across, "y": up, "color": colour}},
            {
                "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
                "encoding": {"x": across, "y": up, "color": colour, "shape": form, "tooltip": tooltip},
            },
        ],
    }
