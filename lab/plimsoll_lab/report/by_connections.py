"""The section of response times by the connections up as a request began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.by_connections import Climb, Climbs
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.encoding import MatrixLayout, colour_and_shape, colour_of
from plimsoll_lab.report.series import chosen, short
from plimsoll_lab.report.view import Cell, Described, Drawing, Row, Section, Table
from plimsoll_lab.store.records import Json

WIDTH, HEIGHT = 680, 200
QUARTERS = 4
"""The table has the first step, the last, and those at each quarter between them."""
NOTE = (
    "A point is shown by the valid trial with its median completed rate. A dot is the mean of the requests that began "
    "with about so many connections up, in twentieths of the most that ever were; most requests begin with all of them."
)


def climb_charts(found: Climbs, layout: MatrixLayout) -> dict[str, Described]:
    """By name, each chart."""
    made = {}
    for number, level in enumerate(chosen(list(found))):
        caption = f"Mean response time by the connections up as a request began, {level}."
        made[f"by-connections-{number}"] = Described(
            spec=_spec(found[level], layout), caption=caption, data=_table(caption, found[level])
        )
    return made


def section(charts: Mapping[str, Described], stills: Mapping[str, Markup]) -> Section:
    """The section; without parts where no requests were logged."""
    parts = [
        Drawing(name=name, svg=stills[name], caption=each.caption, data=each.data) for name, each in charts.items()
    ]
    return Section(name="by-connections", title="Response time by connections", note=NOTE, parts=parts)


def _spec(climbs: Sequence[Climb], layout: MatrixLayout) -> Json:
    values: list[Json] = [
        {
            "contender": climb.contender,
            "connections": short(step.connections),
            "ms": short(step.response_time_us / 1e3),
            "requests": step.requests,
        }
        for climb in climbs
        for step in climb.steps
    ]
    place: Json = {
        "x": {"field": "connections", "type": "quantitative", "title": "connections up"},
        "y": {"field": "ms", "type": "quantitative", "title": "mean response time, ms"},
    }
    tooltip = [{"field": each} for each in ("contender", "connections", "ms", "requests")]
    return {
        "$schema": SCHEMA,
        "width": WIDTH,
        "height": HEIGHT,
        "data": {"values": values},
        "layer": [
            {"mark": {"type": "line"}, "encoding": {**place, "color": colour_of(layout)}},
            {
                "mark": {"type": "point", "filled": True, "size": 30, "opacity": 1},
                "encoding": {**place, **colour_and_shape(layout), "tooltip": tooltip},
            },
        ],
    }


def _table(caption: str, climbs: Sequence[Climb]) -> Table:
    """A row a contender: the mean at the first step, each quarter and the last."""
    rows: list[Row] = []
    for climb in climbs:
        last = len(climb.steps) - 1
        own = [climb.steps[round(last * number / QUARTERS)] for number in range(QUARTERS + 1)]
        cells = (
            Cell(text=formatting.number(step.response_time_us, "us"), detail=f"{step.connections:,.0f} connections up")
            for step in own
        )
        who = "mean response time" if climb.contender == "all" else climb.contender
        rows.append((Cell(text=who, heading=True), *cells))
    head = ("", "first", "a quarter", "half", "three quarters", "last")
    return Table(caption=caption, head=head, rows=tuple(rows), style="numbers")
