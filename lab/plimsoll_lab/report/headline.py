"""The picture under the answer: one figure at one load, the best contender first, and who stopped
before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.charts import SCHEMA, SHAPES, Shape
from plimsoll_lab.store.records import Json

PREFERRED = "server.cpu_us_per_request"
"""What a server costs tells contenders apart even where all of them complete the whole load."""
AXES = {"us": (1.0, "µs"), "bytes": (2.0**-20, "MiB"), "per_s": (1.0, "per second"), "ratio": (100.0, "%")}
ROW = 30
"""Pixels a contender."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """The picture, and its sentence."""

    spec: Json
    caption: str


def headline(summary: Json, run: Json, shape: Shape) -> Headline | None:
    """The picture of a run whose contenders compete; None where none do, or none has a result."""
    if shape.compare is None or summary["capacities"]:
        return None
    figures = {cast("str", each["name"]): each for each in cast("list[Json]", run["figures"])}
    judged = cast("list[str]", cast("Json", run["family"])["figures"])
    figure = PREFERRED if PREFERRED in judged else judged[0]
    at: Json = {}
    measured: list[Json] = []
    rows: list[Json] = []
    # The highest load at which at least two contenders have a result.
    for at, points in reversed(_places(summary, shape.compare)):  # noqa: B007 - the last one is used below
        measured = [_measured(point, figure, shape.compare) for point in points]
        rows = [row for row in measured if row["median"] is not None]
        if len(rows) > 1:
            break
    if len(rows) <= 1:
        return None
    better = cast("str", figures[figure]["better"])
    rows.sort(key=lambda row: cast("float", row["median"]), reverse=better == "higher")
    stopped = [row for row in measured if row["median"] is None]
    order = [cast("str", row["contender"]) for row in [*rows, *stopped]]
    measure = cast("str", figures[figure]["unit"])
    factor, unit = AXES.get(measure, (1.0, ""))
    label = cast("str", figures[figure]["label"])
    title = [f"{label[:1].upper()}{label[1:]}", formatting.setting(at)]
    values = [_scaled(row, factor, measure) for row in [*rows, *stopped]]
    spec = _spec(values, order, shape.contenders, title=title, axis=f"{unit}, {better} is better")
    best, worst = (formatting.number(cast("float", row["median"]), measure) for row in (rows[0], rows[-1]))
    caption = (
        f"{', '.join(title)}: {rows[0]['contender']} has the best median, {best}; {rows[-1]['contender']} has {worst}. "
        "The line through a mark is the median's 95 % interval."
    )
    return Headline(spec=spec, caption=caption)


def _places(summary: Json, compare: str) -> list[tuple[Json, list[Json]]]:
    """The points by the setting of the other axes, in the order of the suite."""
    found: dict[str, tuple[Json, list[Json]]] = {}
    for point in cast("list[Json]", summary["points"]):
        at = {path: value for path, value in cast("Json", point["point"]).items() if path != compare}
        found.setdefault(repr(at), (at, []))[1].append(point)
    return list(found.values())


def _measured(point: Json, figure: str, compare: str) -> Json:
    found = cast("Mapping[str, Json]", point["figures"]).get(figure) if point["outcome"] == "ok" else None
    low, high = cast("tuple[float | None, float | None]", (found or {}).get("median_ci95") or (None, None))
    outcome = {"hard_limit": "stopped before this load", "failed": "failed", None: "not measured"}
    said = outcome.get(cast("str | None", point["outcome"]), "no valid result")
    return {
        "contender": formatting.value(cast("Json", point["point"])[compare]),
        "median": cast("float | None", (found or {}).get("median")),
        "low": low,
        "high": high,
        "said": said,
    }


def _scaled(row: Json, factor: float, unit: str) -> Json:
    scaled = {
        key: None if row[key] is None else float(f"{cast('float', row[key]) * factor:.6g}")
        for key in ("median", "low", "high")
    }
    text = row["said"] if row["median"] is None else formatting.number(cast("float", row["median"]), unit)
    return {"contender": row["contender"], "text": text, **scaled}


def _spec(
    values: Sequence[Json], order: Sequence[str], contenders: Sequence[str], *, title: Sequence[str], axis: str
) -> Json:
    colour: Json = {"field": "contender", "type": "nominal", "scale": {"domain": list(contenders)}, "legend": None}
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(contenders))]
    y: Json = {
        "field": "contender",
        "type": "nominal",
        "sort": list(order),
        "title": None,
        "axis": {"labelFontSize": 13, "labelLimit": 220, "ticks": False, "domain": False},
    }
    x: Json = {
        "field": "median",
        "type": "quantitative",
        "title": axis,
        "scale": {"zero": True, "nice": True},
        "axis": {"tickCount": 5, "format": "~s" if axis.startswith("per second") else ",.4~r"},
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
