"""The pictures of a chapter: a figure of ours and theirs, and the law of a closed loop."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.closed_loop import Case, Law
from plimsoll_lab.report.chart_axis import SCALES
from plimsoll_lab.report.drawing import CATEGORY
from plimsoll_lab.suite.drawn import TIMES
from plimsoll_lab.suite.figures import figure_named

LARGER: Mapping[str, Sequence[tuple[float, float, str]]] = {
    "us": [(1e-3, 1e4, "ms"), (1e-6, 1e7, "s")],
    "bits_per_s": [(1e-6, 1e6, "Mbit/s")],
    "bytes": [(2.0**-10, 2.0**13, "KiB"), (2.0**-20, 2.0**23, "MiB")],
    "per_s": [(1.0, 0.0, "a second")],
}
"""Of a unit its multiples: the factor, the value from which each is used, its name."""


OURS, THEIRS = "ours", "theirs"
SHAPES = {OURS: "circle", f"{OURS}, doubtful": "triangle-up", THEIRS: "square", f"{THEIRS}, read as legs": "diamond"}
"""Whose a mark is, and what it looks like."""


COLOURS = ["#1f5fa8", "#6f8fb8", "#b85c00", "#d9a36b"]
"""Of each, in that order."""


Json = Mapping[str, Any]


def shown(figure: str, values: Sequence[float]) -> tuple[float, str]:
    """What the values of a figure are multiplied by to be read with ease, and its words with the
    unit that they have then.
    """
    known = figure_named(figure)
    if known is None:
        return 1.0, figure
    largest = max(map(abs, values), default=0.0)
    steps = [(1.0, 0.0, known.unit), *LARGER.get(known.unit, ())]
    factor, unit = next((factor, unit) for factor, least, unit in reversed(steps) if largest >= least)
    said = unit in {"count", "number"} or f" {unit} " in f" {known.label} "
    return factor, known.label + ("" if said else f" ({unit})")


def plot(values: Sequence[Json], figure: str, axis: tuple[str, str] | None) -> str:
    """Ours filled, theirs hollow, on a scale of powers of ten: along the axis of the points, a line
    for each of the other settings, or else each point a row.
    """
    import vl_convert  # noqa: PLC0415 - loads a renderer

    drawn = {each["whose"] for each in values}
    whose = [each for each in SHAPES if each in drawn]
    factor, heading = shown(figure, [each["value"] for each in values])
    values = [{**each, "value": factor * each["value"]} for each in values]
    shape = {
        "field": "whose",
        "type": "nominal",
        "title": None,
        "scale": {"domain": whose, "range": [SHAPES[each] for each in whose]},
    }
    if len(whose) == 1:
        shape["legend"] = None
    filled = {"condition": {"test": f"indexof(datum.whose, '{THEIRS}') == 0", "value": 0}, "value": 1}
    scale = {"type": "log", "nice": False, "padding": 10}
    encoding: dict[str, dict[str, Any]]
    if axis is None:
        encoding = {
            "x": {"field": "value", "type": "quantitative", "title": heading, "scale": scale},
            "y": {"field": "point", "type": "nominal", "title": None, "sort": None},
            "color": {
                "field": "whose",
                "type": "nominal",
                "title": None,
                "scale": {"domain": list(SHAPES), "range": COLOURS},
            },
        }
        layers: list[Json] = []
    else:
        path, unit = axis
        along, words = SCALES.get(unit, (1.0, unit))
        values = [{**each, "at": along * each["at"]} for each in values]
        title = TIMES.join(map(formatting.words, path.split(TIMES))) + (f" ({words})" if words else "")
        encoding = {
            "x": {
                "field": "at",
                "type": "quantitative",
                "title": title,
                "scale": scale,
                "axis": {"labelOverlap": "greedy", "labelSeparation": 8},
            },
            "y": {"field": "value", "type": "quantitative", "title": heading, "scale": scale},
            "color": {
                "field": "series",
                "type": "nominal",
                "title": None,
                "sort": None,
                "scale": {"range": list(CATEGORY)},
                "legend": {"symbolType": "stroke", "labelLimit": 0},
            },
        }
        ours = [{"filter": f"indexof(datum.whose, '{THEIRS}') != 0"}]
        layers = [{"transform": ours, "mark": {"type": "line"}, "encoding": encoding}]
    points = {
        "mark": {"type": "point", "size": 70, "filled": False},
        "encoding": {**encoding, "shape": shape, "fillOpacity": filled, "fill": {**encoding["color"], "legend": None}},
    }
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": list(values)},
        "width": 520,
        "padding": {"left": 5, "top": 5, "right": 60, "bottom": 5},  # a browser's letters may be wider
        "layer": [*layers, points],
    }
    return str(vl_convert.vegalite_to_svg(json.dumps(spec)))


def law_plot(cases: Sequence[Case], law: Law) -> str:
    """All cases in one: the response time that was seen over the least that the law allows."""
    import vl_convert  # noqa: PLC0415 - loads a renderer

    allowed = [law.least_response_s(case.clients, case.pause_s) * 1e3 for case in cases]
    values = [
        {
            "law": least,
            "seen": case.response_s * 1e3,
            "clients": f"{case.clients:,}",
            "pause": f"{case.pause_s * 1e3:g} ms",
        }
        for case, least in zip(cases, allowed, strict=True)
    ]
    ends = [min(allowed), max(allowed)]
    axis = {"type": "quantitative", "scale": {"type": "log"}}
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 420,
        "height": 320,
        "layer": [
            {
                "data": {"values": [{"law": end, "seen": end} for end in ends]},
                "mark": {"type": "line", "strokeDash": [4, 4]},
                "encoding": {"x": {"field": "law", **axis}, "y": {"field": "seen", **axis}},
            },
            {
                "data": {"values": values},
                "mark": {"type": "point", "size": 70},
                "encoding": {
                    "x": {"field": "law", "title": "max(R0, N/X - Z), ms", **axis},
                    "y": {"field": "seen", "title": "mean response time, ms", **axis},
                    "color": {"field": "clients", "type": "nominal", "sort": None},
                    "shape": {"field": "pause", "type": "nominal", "sort": None},
                },
            },
        ],
    }
    return str(vl_convert.vegalite_to_svg(json.dumps(spec)))
