"""Percentile curves on the axis that HdrHistogram's own plots have: one chart a setting, one line a
contender; where nothing competes, the settings together.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.percentiles import Curve
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.drawing import CATEGORY
from plimsoll_lab.report.encoding import EXACT, MatrixLayout, shapes_of
from plimsoll_lab.report.view import Cell, Described, Row, Table
from plimsoll_lab.store.records import Json

TICKS = (2, 4, 10, 20, 100, 1000, 10000)
LABELS = "{'2': '50 %', '4': '75 %', '10': '90 %', '20': '95 %', '100': '99 %', '1000': '99.9 %', '10000': '99.99 %'}"
"""The share of requests of an axis value of 1 / (1 - q)."""

LEAST_PERCENTILES = 3
"""Two are a line, whatever the response times are."""

TOGETHER = len(CATEGORY)
"""Settings in one chart where nothing competes: a colour each."""

_Dot = tuple[str, int, float]
"""The name of a line, a place on the axis, and a time in ms."""


def percentile_charts(curves: Sequence[Curve], layout: MatrixLayout) -> dict[str, Described]:
    """By name, each chart: one a setting with a line a contender; where nothing competes, a line a
    setting.
    """
    if layout.compare is None:
        return _settings_together(curves)
    places: dict[str, list[_Dot]] = {level: [] for level in layout.levels}
    for curve in curves:
        setting = {path: value for path, value in curve.point.items() if path != layout.compare}
        contender = formatting.contender(curve.point, layout.compare)
        places[formatting.setting(setting)].extend(_dots(contender, curve))
    return {
        f"percentiles-{number}": Described(
            spec=_spec(rows, layout.contenders), caption=_caption(place), data=_table(rows, place)
        )
        for number, (place, rows) in enumerate(places.items())
        if len({x for _, x, _ in rows}) >= LEAST_PERCENTILES
    }


def _settings_together(curves: Sequence[Curve]) -> dict[str, Described]:
    """As many settings a chart as there are colours, on one scale of times."""
    drawn = [each for each in curves if len(each.quantiles) >= LEAST_PERCENTILES]
    charts = -(-len(drawn) // TOGETHER)
    size = -(-len(drawn) // max(1, charts))  # as many in each, and not seven and one
    times_ms = [us / 1e3 for each in drawn for _, us in each.quantiles]
    found = {}
    for number in range(charts):
        some = drawn[number * size : (number + 1) * size]
        rows = [dot for each in some for dot in _dots(formatting.setting(each.point), each)]
        names = [formatting.setting(each.point) for each in some]
        alone = names[0] if len(drawn) == 1 else "of each setting"
        part = f" ({number + 1} of {charts})" if charts > 1 else ""
        found[f"percentiles-{number}"] = Described(
            spec=_spec(rows, names, named=len(names) > 1, between_ms=(min(times_ms), max(times_ms))),
            caption=_caption(alone + part),
            data=_table(rows, alone + part),
        )
    return found


def _dots(name: str, curve: Curve) -> list[_Dot]:
    return [(name, round(1 / (1 - q)), float(f"{us / 1e3:.6g}")) for q, us in curve.quantiles]


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
        rows.append((Cell(text=contender, heading=True), *cells))
    caption = f"Response time below which this share of the requests stayed, {place}: the median of the trials"
    head = ("", *(f"{(1 - 1 / x) * 100:.6g} %" for x in shares))
    return Table(caption=caption, head=head, rows=tuple(rows), style="numbers")


def _spec(
    rows: Sequence[_Dot],
    names: Sequence[str],
    *,
    named: bool = False,
    between_ms: tuple[float, float] | None = None,
) -> Json:
    """A line a name; `named` gives the chart a legend of its own, `between_ms` a scale of times."""
    domain = list(names)
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
        "scale": {"type": "log", "nice": False, "padding": 12}
        | ({} if between_ms is None else {"domain": list(between_ms)}),
        "axis": {"tickCount": 4, "format": EXACT},
    }
    legend = {"title": None, "orient": "top", "columns": 1, "labelLimit": 320} if named else None
    colour: Json = {"field": "contender", "type": "nominal", "scale": {"domain": domain}, "legend": legend}
    marks = shapes_of(len(domain))
    form = colour | {"scale": {"domain": domain, "range": marks}}
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
