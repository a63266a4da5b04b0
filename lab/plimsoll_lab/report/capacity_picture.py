"""The picture of a run that searches: the limited figure over the load, the limit, and the highest
load that met it.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.answer import asked_load
from plimsoll_lab.analysis.searches import UNITS, refused, searched_key
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.drawing import CATEGORY
from plimsoll_lab.report.encoding import (
    EXACT,
    LOGARITHMIC,
    SHAPES,
    MatrixLayout,
    axis_of,
    colour_and_shape,
    counts,
    field_of,
    scaled,
    y_axis,
)
from plimsoll_lab.report.headline import Headline
from plimsoll_lab.report.view import Cell, Table
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.search_record import SearchRecord
from plimsoll_lab.store.summary_record import CapacityRecord, RunSummary
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Limit

WIDE = 8.0
"""Ends of an axis that lie farther apart put it on a logarithmic scale."""
LINE = 14
"""Pixels from one line of words to the next."""


def picture(summary: RunSummary, run: RunRecord, layout: MatrixLayout) -> Headline | None:
    """The picture of the heaviest setting of the axes that do not compete; None where no search has
    the limited figure, or where there are more servers than colours.
    """
    compare = layout.compare
    tried = [each for each in run.searches if each.loads]
    if not tried:
        return None
    at = _without(max(tried, key=lambda each: (asked_load(_without(each, compare)), each.point)), compare)
    here = [each for each in tried if _without(each, compare) == at]
    limit = next((each for each in run.limits if _tells(here, each)), None)
    names = layout.contenders if compare is not None else ("all",)
    if limit is None or len(names) > len(CATEGORY):
        return None
    figure, unit = run.figure(limit.figure), UNITS[searched_key(run)]
    axis = axis_of(figure)
    values: list[Json] = [
        {
            "contender": formatting.contender(each.setting, compare) if compare is not None else "all",
            "load": row.load,
            field_of(figure.name): scaled(row.medians[figure.name], axis),
            "met": f"{row.good}/{row.trials}",
        }
        for each in here
        for row in each.loads
        # A logarithmic scale has no place for 0.
        if figure.name in row.medians and (row.medians[figure.name] > 0 or figure.unit not in LOGARITHMIC)
    ]
    found = [each for each in summary.capacities if each.lower is not None and _own(each, compare) == at]
    marks: list[Json] = [
        {
            "contender": formatting.contender(each.point, compare) if compare is not None else "all",
            "load": each.lower,
            "words": f"{each.lower:,}",
        }
        for each in found
    ]
    place = formatting.setting(at) if at else ""
    caption = (
        f"{figure.label[:1].upper()}{figure.label[1:]} against the {unit} asked for{f', {place}' if place else ''}: "
        f"each mark is the median of the trials at a load. The dashed line is the limit, {limit.text}; an upright line "
        "is the highest load that met all limits."
    )
    spec = _spec(values, marks, y_axis_of(run, limit, values), scaled(limit.value, axis), layout, unit)
    return Headline(spec=spec, caption=caption, data=_table(found, limit, compare, unit, alone=len(run.limits) == 1))


def y_axis_of(run: RunRecord, limit: Limit, values: Sequence[Json]) -> Json:
    """The limited figure, on a logarithmic scale where it spans decades."""
    figure = run.figure(limit.figure)
    numbers = [number for each in values if isinstance(number := each[field_of(figure.name)], int | float)]
    wide = figure.unit in LOGARITHMIC and max(numbers) / min(numbers) > WIDE
    axis = y_axis(figure, logarithmic=wide, zero=True)
    several: Json = {"tickCount": 8, **(counts() if figure.unit == "per_s" else {"format": EXACT})}
    return axis | {"axis": several, "title": [figure.label, str(axis["title"])] if axis["title"] else figure.label}


def _tells(searches: Sequence[SearchRecord], limit: Limit) -> bool:
    return any(row.medians.get(limit.figure, 0.0) > 0 for each in searches for row in each.loads)


def _without(search: SearchRecord, compare: str | None) -> Settings:
    return {path: value for path, value in search.setting.items() if path != compare}


def _own(found: CapacityRecord, compare: str | None) -> dict[str, object]:
    return {path: value for path, value in found.point.items() if path != compare}


def _spec(
    values: Sequence[Json], marks: Sequence[Json], y: Json, bound: float | None, layout: MatrixLayout, unit: str
) -> Json:
    loads = [load for each in (*values, *marks) if isinstance(load := each["load"], int | float)]
    scale: Json = {"type": "log", "nice": False, "padding": 14}
    linear: Json = {"zero": False, "nice": False, "padding": 14}
    x: Json = {
        "field": "load",
        "type": "quantitative",
        "title": f"{unit} asked for",
        "scale": scale if max(loads) / max(1, min(loads)) > WIDE else linear,
        "axis": {"grid": False, "labelOverlap": True, **counts()},
    }
    own = colour_and_shape(layout) if layout.compare is not None else {"color": {"value": CATEGORY[0]}}
    own.setdefault("shape", {"value": SHAPES[0]})
    tooltip = [{"field": each} for each in ("contender", "load", y["field"], "met")]
    return {
        "$schema": SCHEMA,
        "width": 680,
        "height": 240,
        "layer": [
            {
                "data": {"values": [{y["field"]: bound}]},
                "mark": {"type": "rule", "strokeDash": [5, 4], "color": "#808890"},
                "encoding": {"y": y},
            },
            {
                "data": {"values": list(marks)},
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {"x": x, "color": own["color"]},
            },
            # A line each: the words of servers that carry about as much would overlap.
            *(
                {
                    "data": {"values": [each]},
                    "mark": {"type": "text", "align": "right", "dx": -5, "baseline": "top", "fontWeight": 600},
                    "encoding": {
                        "x": x,
                        "y": {"value": 2 + LINE * place},
                        "text": {"field": "words"},
                        "color": own["color"],
                    },
                }
                for place, each in enumerate(marks)
            ),
            {
                "data": {"values": list(values)},
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 0.8},
                "encoding": {"x": x, "y": y, **own, "tooltip": tooltip},
            },
        ],
    }


def _table(found: Sequence[CapacityRecord], limit: Limit, compare: str | None, unit: str, *, alone: bool) -> Table:
    """A row a server: the highest load that met the limits, and the lowest that did not."""
    rows = tuple(
        (
            Cell(text=formatting.contender(each.point, compare) if compare is not None else "the server", heading=True),
            Cell(text=f"{each.lower:,}"),
            Cell(text=refused(each)),
        )
        for each in found
    )
    limits = f"within {limit.text}" if alone else "within all limits"
    caption = f"{unit[:1].upper()}{unit[1:]} {limits}"
    return Table(caption=caption, head=("", "met", "missed"), rows=rows, style="numbers")
