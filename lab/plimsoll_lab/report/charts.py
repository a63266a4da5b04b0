"""The charts, as Vega-Lite: one card a figure, every trial a dot, the median and its interval on
top.

Left, the figure against the load; right, the contenders side by side at each load, on a scale of
its own, where small differences can be seen. Colours and shapes follow the order of the suite,
pinned, so that a contender looks the same everywhere. The page gives the colours; what is here is
form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.summary import CAPACITY
from plimsoll_lab.report.over import Over, axes_over, by_rest, columns, panels, x_axis
from plimsoll_lab.report.over import wanted as asked
from plimsoll_lab.store.records import Json, TrialRecord

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
"""A second mark of identity beside the colour."""
CARDS = (
    "completed_rate",
    "response_time_us.p50",
    "response_time_us.p99",
    "server.cpu_us_per_request",
    "server.memory_bytes",
)
"""Figures that get a card, in this order, and after them whatever else the verdict looks at."""
AXES = {
    "us": (1e-3, "ms"),
    "s": (1.0, "s"),
    "s2": (1.0, "s\u00b2"),
    "bytes": (2.0**-20, "MiB"),
    "per_s": (1.0, "requests/s"),
    "bits_per_s": (1e-6, "Mbit/s"),
    "ratio": (100.0, "%"),
    "cores": (1.0, "cores"),
    "count": (1.0, ""),
}
"""Of each unit, what a value is multiplied by for its axis, and the axis's words."""
SMALL = (1.0, "\u00b5s per request")
"""CPU for one request is microseconds, where a response takes milliseconds."""
LOGARITHMIC = {"us", "bytes", "per_s", "bits_per_s"}
"""Units whose values span decades over a range of loads."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""A name, not an address that anything loads."""
SPREAD = 8.0
"""Contenders that lie farther apart than this are told apart on a logarithmic scale only."""
PANEL_STEP = 23
"""Pixels a contender: room for its dots and for its name at a slant."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """One chart."""

    name: str
    """For a file's or an element's name."""
    figure: str
    """The figure it shows."""
    kind: str
    """`load` for the figure against the load, `contenders` for the contenders side by side."""
    spec: Json
    """Vega-Lite, its data named `trials`, `points` and `references`."""
    over: str = "the load"
    """Of a chart of kind `load`, the axis that it is drawn against."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """How the axes of a matrix are laid out."""

    compare: str | None
    """The axis that competes: colour and shape."""
    contenders: tuple[str, ...]
    """Its values."""
    load: str | None
    """A numeric axis to draw against."""
    loads: tuple[float, ...]
    """The values of that axis."""
    levels: tuple[str, ...]
    """The other axes' settings, in order, one panel each."""


def shape_of(run: Json) -> Shape:
    """Lay out a run's matrix."""
    compare = cast("str | None", cast("Json", run["family"])["compare"])
    axes = cast("list[Json]", run["axes"])
    load = None
    loads: tuple[float, ...] = ()
    for axis in axes:
        values = cast("list[object]", axis["values"])
        if axis["path"] != compare and len(values) > 1 and all(isinstance(value, int | float) for value in values):
            load, loads = cast("str", axis["path"]), tuple(cast("list[float]", values))
            break
    contenders = dict.fromkeys(
        formatting.value(cast("Json", point["setting"])[compare]) if compare else "all"
        for point in cast("list[Json]", run["points"])
    )
    levels = dict.fromkeys(
        _level(cast("Json", point["setting"]), compare) for point in cast("list[Json]", run["points"])
    )
    return Shape(compare=compare, contenders=tuple(contenders), load=load, loads=loads, levels=tuple(levels))


def charts(run: Json, summary: Json) -> list[Chart]:
    """Every chart of a run."""
    shape = shape_of(run)
    figures = {cast("str", each["name"]): each for each in cast("list[Json]", run["figures"])}
    axes, references = axes_over(run, shape.compare), cast("list[Json]", run.get("references") or [])
    found = []
    for name in shown(run):
        for number, over in enumerate(each for each in axes if asked(run, name, each)):
            title = f"{name}-over-{number + 1}" if number else f"{name}-load"
            spec = _against(figures[name], shape, over, references)
            found.append(Chart(name=title, figure=name, kind="load", over=over.title, spec=spec))
        # A search tries loads where they tell most, seldom the same for two contenders.
        if shape.compare is not None and not run.get("search"):
            spec = _side_by_side(figures[name], shape, logarithmic=_spread(summary, name, shape) > SPREAD)
            found.append(Chart(name=f"{name}-contenders", figure=name, kind="contenders", spec=spec))
    return found


def shown(run: Json) -> list[str]:
    """The figures that get a card: the usual ones, those of the verdict, of documents, and those
    asked for.
    """
    drawn = [figure for figure, _ in cast("list[tuple[str, str]]", run.get("drawn") or [])]
    told = [
        cast("str", each["figure"])
        for key in ("references", "claims")
        for each in cast("list[Json]", run.get(key) or [])
    ]
    return [*dict.fromkeys([*CARDS, *_of_trials(run), *drawn, *told])]


def _of_trials(run: Json) -> list[str]:
    """The figures of the verdict that a trial has; a capacity is a search's."""
    return [name for name in cast("list[str]", cast("Json", run["family"])["figures"]) if name != CAPACITY]


def rows(run: Json, summary: Json, trials: Sequence[TrialRecord]) -> dict[str, list[Json]]:
    """The data behind every chart: a row a valid trial, and a row a point."""
    shape = shape_of(run)
    names, over = shown(run), axes_over(run, shape.compare)
    axes = {cast("str", each["name"]): _axis(each) for each in cast("list[Json]", run["figures"])}
    dots = [
        _place(trial.setting, shape)
        | columns(run, over, trial.setting, shape.compare)
        | {"trial": trial.number, "block": trial.block}
        | {_field(name): _scaled(trial.figures.get(name), axes[name]) for name in names}
        for trial in trials
        if trial.outcome == "ok"
    ]
    medians = []
    for point in cast("list[Json]", summary["points"]):
        row = _place(cast("Json", point["point"]), shape) | {"outcome": point["outcome"]}
        row |= columns(run, over, cast("Json", point["point"]), shape.compare)
        for name in names:
            found = cast("dict[str, Json]", point["figures"]).get(name) if point["outcome"] == "ok" else None
            low, high = cast("tuple[float, float]", (found or {}).get("median_ci95") or (None, None))
            row[_field(name)] = _scaled(cast("float | None", (found or {}).get("median")), axes[name])
            row[_field(name) + "_low"] = _scaled(low, axes[name])
            row[_field(name) + "_high"] = _scaled(high, axes[name])
        medians.append(row)
    return {"trials": dots, "points": medians, "references": _references(run, shape, over, axes)}


def _references(run: Json, shape: Shape, over: Sequence[Over], axes: Mapping[str, tuple[float, str]]) -> list[Json]:
    """A row a figure of a document, at the one point of the run that agrees with its setting."""
    settings = [cast("Json", point["setting"]) for point in cast("list[Json]", run["points"]) if not point["control"]]
    found = []
    for each in cast("list[Json]", run.get("references") or []):
        at = cast("Json", each["at"])
        here = [setting for setting in settings if all(setting.get(path) == value for path, value in at.items())]
        if len(here) == 1:
            name = cast("str", each["figure"])
            row = _place(here[0], shape) | columns(run, over, here[0], shape.compare) | {"source": each["source"]}
            found.append(row | {_field(name): _scaled(cast("float", each["value"]), axes[name])})
    return found


def _against(figure: Json, shape: Shape, over: Over, references: Sequence[Json]) -> Json:
    """The figure over one axis, in a panel for each setting of the others where contenders
    compete.
    """
    here = panels(over, competes=shape.compare is not None)
    drawn = [_over_panel(figure, shape, over, rest) for rest in here]
    if any(each["figure"] == figure["name"] for each in references):
        for panel, rest in zip(drawn, here, strict=True):
            cast("list[Json]", panel["layer"]).append(_theirs(figure, shape, over, rest))
    if len(drawn) == 1:
        return {"$schema": SCHEMA, **drawn[0]}
    return {"$schema": SCHEMA, "spacing": 40, "hconcat": drawn}


def _over_panel(figure: Json, shape: Shape, over: Over, rest: str | None) -> Json:
    field = _field(cast("str", figure["name"]))
    logarithmic = figure["unit"] in LOGARITHMIC and _axis(figure) != SMALL
    place: Json = {"x": x_axis(over), "y": _y(figure, logarithmic=logarithmic, zero=not logarithmic)}
    present = [*_present(field), *_present(over.column), *_only(over, rest)]
    several = shape.compare is None and len(over.rests) > 1
    colour: Json = {"color": by_rest(over)} if several else {"color": _colour(shape)}
    identity: Json = colour if several else _identity(shape)
    titled: Json = (
        {} if rest is None else {"title": {"text": rest, "fontSize": 12, "fontWeight": 500, "anchor": "middle"}}
    )
    return {
        **titled,
        "width": 290,
        "height": 220,
        "layer": [
            {
                "data": {"name": "trials"},
                "transform": present,
                "mark": {"type": "point", "filled": True, "size": 16, "opacity": 0.35},
                "encoding": {**place, **identity, "tooltip": _tooltip(figure, dot=True)},
            },
            {
                "data": {"name": "points"},
                "transform": present,
                "mark": {"type": "line", "strokeWidth": 1.6},
                # A line for each setting of the other axes: it joins only points that differ in
                # this one.
                "encoding": {**place, **colour, "detail": [{"field": f"{over.column}_rest", "type": "nominal"}]},
            },
            {
                "data": {"name": "points"},
                "transform": present,
                "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
                "encoding": {**place, **identity, "tooltip": _tooltip(figure, dot=False)},
            },
        ],
    }


def _theirs(figure: Json, shape: Shape, over: Over, rest: str | None) -> Json:
    """Figures of documents: hollow marks, beside ours."""
    field = _field(cast("str", figure["name"]))
    logarithmic = figure["unit"] in LOGARITHMIC and _axis(figure) != SMALL
    colour = by_rest(over) if shape.compare is None and len(over.rests) > 1 else _colour(shape)
    return {
        "data": {"name": "references"},
        "transform": [*_present(field), *_present(over.column), *_only(over, rest)],
        "mark": {"type": "point", "filled": False, "size": 90, "strokeWidth": 1.8},
        "encoding": {
            "x": x_axis(over),
            "y": _y(figure, logarithmic=logarithmic, zero=not logarithmic),
            "color": colour,
            "tooltip": [{"field": "source"}, {"field": field, "title": str(figure["label"]), "format": ",.4~g"}],
        },
    }


def _only(over: Over, rest: str | None) -> list[Json]:
    return [] if rest is None else [{"filter": {"field": f"{over.column}_rest", "equal": rest}}]


def _side_by_side(figure: Json, shape: Shape, *, logarithmic: bool) -> Json:
    return {
        "$schema": SCHEMA,
        "bounds": "flush",  # the plots of the panels stand in line, whatever their labels take
        "align": "all",
        "spacing": 52,
        "hconcat": [
            _panel(figure, shape, level, logarithmic=logarithmic, titled=not place)
            for place, level in enumerate(shape.levels)
        ],
        "resolve": {"scale": {"y": "independent"}},
    }


def _panel(figure: Json, shape: Shape, level: str, *, logarithmic: bool, titled: bool) -> Json:
    """The contenders at one level, on a scale of their own."""
    field = _field(cast("str", figure["name"]))
    here: Json = {"filter": {"field": "level", "equal": level}}
    x: Json = {
        "field": "contender",
        "type": "nominal",
        "scale": {"domain": list(shape.contenders)},
        "title": None,
        "axis": {"labelAngle": -45, "grid": False, "labelLimit": 90},
    }
    y = _y(figure, logarithmic=logarithmic, zero=False) | ({} if titled else {"title": None})
    return {
        "title": {"text": level, "fontSize": 12, "fontWeight": 500, "anchor": "middle"},
        "width": max(120, PANEL_STEP * len(shape.contenders)),
        "height": 220,
        "layer": [
            {
                "data": {"name": "points"},
                "transform": [here, *_present(f"{field}_low")],
                "mark": {"type": "rule", "strokeWidth": 2.5, "opacity": 0.9},
                "encoding": {
                    "x": x,
                    "y": y | {"field": f"{field}_low"},
                    "y2": {"field": f"{field}_high"},
                    "color": _colour(shape),
                },
            },
            {
                "data": {"name": "points"},
                "transform": [here, *_present(field)],
                "mark": {"type": "tick", "thickness": 2.5, "width": 16},
                "encoding": {"x": x, "y": y, "color": _colour(shape), "tooltip": _tooltip(figure, dot=False)},
            },
            {
                "data": {"name": "trials"},
                "transform": [here, *_present(field)],
                "mark": {"type": "point", "filled": True, "size": 20, "opacity": 0.5},
                "encoding": {"x": x, "y": y, **_identity(shape), "tooltip": _tooltip(figure, dot=True)},
            },
            {
                "data": {"name": "points"},
                "transform": [here, {"filter": "datum.outcome != 'ok'"}],
                "mark": {"type": "text", "text": "\u2715", "fontSize": 13, "opacity": 0.7},
                "encoding": {
                    "x": x,
                    "y": {"value": 208},
                    "color": _colour(shape),
                    "tooltip": [{"field": "contender"}, {"field": "outcome"}],
                },
            },
        ],
    }


def _spread(summary: Json, name: str, shape: Shape) -> float:
    """How far the contenders lie apart at most: at one level, the largest median over the
    smallest.
    """
    levels: dict[str, list[float]] = {}
    for point in cast("list[Json]", summary["points"]):
        found = cast("dict[str, Json]", point["figures"]).get(name)
        if point["outcome"] == "ok" and found is not None:
            level = _level(cast("Json", point["point"]), shape.compare)
            levels.setdefault(level, []).append(cast("float", found["median"]))
    return max((max(each) / min(each) for each in levels.values() if min(each) > 0), default=1.0)


def _present(field: str) -> list[Json]:
    """Only the rows that have this figure."""
    return [{"filter": f"isValid(datum['{field}'])"}]


def _y(figure: Json, *, logarithmic: bool, zero: bool) -> Json:
    unit = _axis(figure)[1]
    return {
        "field": _field(cast("str", figure["name"])),
        "type": "quantitative",
        "title": unit or None,
        "scale": {"type": "log", "nice": False, "padding": 12} if logarithmic else {"zero": zero, "nice": True},
        "axis": {"tickCount": 3 if logarithmic else 5, "format": "~s" if figure["unit"] == "per_s" else ",.4~r"},
    }


def _colour(shape: Shape) -> Json:
    return {"field": "contender", "type": "nominal", "scale": {"domain": list(shape.contenders)}, "legend": None}


def _identity(shape: Shape) -> Json:
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(shape.contenders))]
    return {
        "color": _colour(shape),
        "shape": {
            "field": "contender",
            "type": "nominal",
            "scale": {"domain": list(shape.contenders), "range": shapes},
            "legend": None,
        },
    }


def _tooltip(figure: Json, *, dot: bool) -> list[Json]:
    field = _field(cast("str", figure["name"]))
    unit = _axis(figure)[1]
    label = f"{figure['label']} ({unit})" if unit else str(figure["label"])
    number = ",.4~g"
    shown: list[Json] = [
        {"field": "contender", "title": "server"},
        {"field": "level", "title": "at"},
        {"field": field, "title": label, "format": number},
    ]
    if dot:
        return [*shown, {"field": "trial"}, {"field": "block"}]
    return [
        *shown,
        {"field": f"{field}_low", "title": "95 % from", "format": number},
        {"field": f"{field}_high", "title": "to", "format": number},
    ]


def _field(name: str) -> str:
    """A figure's column: Vega-Lite reads a dot as a path."""
    return name.replace(".", "_")


def _axis(figure: Json) -> tuple[float, str]:
    return SMALL if "cpu_us" in cast("str", figure["name"]) else AXES[cast("str", figure["unit"])]


def _scaled(value: float | None, axis: tuple[float, str]) -> float | None:
    return None if value is None else float(f"{value * axis[0]:.6g}")


def _place(setting: Mapping[str, object], shape: Shape) -> Json:
    contender = formatting.value(setting[shape.compare]) if shape.compare else "all"
    return {
        "contender": contender,
        "level": _level(setting, shape.compare),
        "load": setting[shape.load] if shape.load else None,
    }


def _level(setting: Mapping[str, object], compare: str | None) -> str:
    return formatting.setting({path: value for path, value in setting.items() if path != compare})
