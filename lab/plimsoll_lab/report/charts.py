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

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.as_stated import changes_at
from plimsoll_lab.report.chart_axis import (
    LOGARITHMIC_FROM,
    ChartAxis,
    chart_axes,
    colour_by_rest,
    columns,
    is_drawn_over,
    panels,
    x_axis,
)
from plimsoll_lab.report.encoding import (
    LOGARITHMIC,
    SMALL,
    MatrixLayout,
    axis_of,
    colour_and_shape,
    colour_of,
    field_of,
    layout_of,
    level_of,
    place_of,
    scaled,
    tooltip_of,
    with_value,
    y_axis,
)
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary
from plimsoll_lab.suite.documents import Reference
from plimsoll_lab.suite.figures import CAPACITY, Figure

CARDS = (
    "completed_rate",
    "response_time_us.p50",
    "response_time_us.p99",
    "server.cpu_us_per_request",
    "server.memory_bytes",
)
"""Figures that get a card, in this order, and after them whatever else the verdict looks at."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""A name, not an address that anything loads."""
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


def charts(run: RunRecord, summary: RunSummary) -> list[Chart]:
    """Every chart of a run."""
    layout = layout_of(run)
    axes = chart_axes(run, layout.compare)
    found = []
    measured = {name for point in summary.points if point.outcome == "ok" for name in point.figures}
    # A search's figures are those of its loads, which its points do not have.
    for name in (each for each in shown(run) if run.search is not None or each in measured):
        figure = run.figure(name)
        drawn_over = [each for each in axes if is_drawn_over(run, name, each)]
        positive = _is_positive(run, summary, name)
        wide = positive and figure.unit in LOGARITHMIC and axis_of(figure) != SMALL
        for number, over in enumerate(drawn_over):
            title = f"{name}-over-{number + 1}" if number else f"{name}-load"
            spec = _against(figure, layout, over, run.references, logarithmic=wide)
            found.append(Chart(name=title, figure=name, kind="load", over=over.title, spec=spec))
        # A search tries loads where they show most, seldom the same for two contenders. A figure
        # that only a document names has one picture.
        aside = bool(drawn_over) and name not in _judged(run)
        if layout.compare is not None and run.search is None and not aside:
            far = positive and _spread(summary, name, layout) > LOGARITHMIC_FROM
            spec = _side_by_side(figure, layout, logarithmic=far)
            found.append(Chart(name=f"{name}-contenders", figure=name, kind="contenders", spec=spec))
    return found


def shown(run: RunRecord) -> list[str]:
    """The figures that get a card: the usual ones, those of the verdict, those asked for, and those
    of documents.
    """
    told = [*(each.figure for each in run.references), *(each.figure for each in run.claims)]
    return [*dict.fromkeys([*_judged(run), *(figure for figure, _ in run.drawn), *told])]


def _judged(run: RunRecord) -> list[str]:
    """The usual figures, and those of the verdict."""
    return [*dict.fromkeys([*CARDS, *_of_trials(run)])]


def _of_trials(run: RunRecord) -> list[str]:
    """The figures of the verdict that a trial has; a capacity is a search's."""
    return [name for name in run.family.figures if name != CAPACITY]


def rows(run: RunRecord, summary: RunSummary, trials: Sequence[TrialRecord]) -> dict[str, list[Json]]:
    """The data behind every chart: a row a valid trial, and a row a point."""
    layout = layout_of(run)
    names, over = shown(run), chart_axes(run, layout.compare)
    axes = {name: axis_of(each) for name, each in run.figures_by_name.items()}
    dots = [
        place_of(trial.setting, layout)
        | columns(run, over, trial.setting, layout.compare)
        | {"trial": trial.number, "block": trial.block}
        | {field_of(name): scaled(trial.figures.get(name), axes[name]) for name in names}
        for trial in trials
        if trial.outcome == "ok"
    ]
    medians = []
    for point in summary.points:
        row = place_of(point.point, layout) | {"outcome": formatting.outcome(point.outcome), "doubtful": point.doubtful}
        row |= columns(run, over, point.point, layout.compare)
        for name in names:
            found = point.figures.get(name) if point.outcome == "ok" else None
            low, high = (found.median_ci95 if found is not None else None) or (None, None)
            row[field_of(name)] = scaled(found.median if found is not None else None, axes[name])
            row[field_of(name) + "_low"] = scaled(low, axes[name])
            row[field_of(name) + "_high"] = scaled(high, axes[name])
        medians.append(row)
    return {"trials": dots, "points": medians, "references": _references(run, layout, over, axes)}


def _references(
    run: RunRecord, layout: MatrixLayout, over: Sequence[ChartAxis], axes: Mapping[str, tuple[float, str]]
) -> list[Json]:
    """A row a figure of a document, at the one point of the run that agrees with its setting, and
    that is what the suite says.
    """
    changes = changes_at(run)
    settings = [point.setting for point in run.points if not point.control]
    found = []
    for each in run.references:
        here = [setting for setting in settings if all(setting.get(path) == value for path, value in each.at.items())]
        if len(here) == 1 and changes(each.at) is None:
            row = place_of(here[0], layout) | columns(run, over, here[0], layout.compare) | {"source": each.source}
            found.append(row | {field_of(each.figure): scaled(each.value, axes[each.figure])})
    return found


def _against(
    figure: Figure, layout: MatrixLayout, over: ChartAxis, references: Sequence[Reference], *, logarithmic: bool
) -> Json:
    """The figure over one axis, in a panel for each setting of the others where contenders
    compete.
    """
    theirs = any(each.figure == figure.name for each in references)
    drawn = [
        _over_panel(
            figure,
            layout,
            over,
            rest,
            [_theirs(figure, layout, over, rest, logarithmic=logarithmic)] if theirs else [],
            logarithmic=logarithmic,
        )
        for rest in panels(over, competes=layout.compare is not None)
    ]
    if len(drawn) == 1:
        return {"$schema": SCHEMA, **drawn[0]}
    return {"$schema": SCHEMA, "spacing": 40, "hconcat": drawn}


def _over_panel(
    figure: Figure,
    layout: MatrixLayout,
    over: ChartAxis,
    rest: str | None,
    further: Sequence[Json],
    *,
    logarithmic: bool,
) -> Json:
    field = field_of(figure.name)
    place: Json = {"x": x_axis(over), "y": y_axis(figure, logarithmic=logarithmic, zero=not logarithmic)}
    present = [*with_value(field), *with_value(over.column), *_only(over, rest)]
    several = layout.compare is None and len(over.rests) > 1
    colour: Json = {"color": colour_by_rest(over)} if several else {"color": colour_of(layout)}
    identity: Json = colour if several else colour_and_shape(layout)
    titled: Json = (
        {} if rest is None else {"title": {"text": rest, "fontSize": 12, "fontWeight": 500, "anchor": "middle"}}
    )
    layers: list[Json] = [
        {
            "data": {"name": "trials"},
            "transform": present,
            "mark": {"type": "point", "filled": True, "size": 16, "opacity": 0.35},
            "encoding": {**place, **identity, "tooltip": tooltip_of(figure, dot=True)},
        },
        {
            "data": {"name": "points"},
            # A point without a result breaks the line: it is unknown what lies between its
            # neighbours.
            "transform": [*with_value(over.column), *_only(over, rest)],
            "mark": {"type": "line", "strokeWidth": 1.6, "invalid": "break-paths-filter-domains"},
            # A line for each setting of the other axes: it joins only points that differ in
            # this one.
            "encoding": {**place, **colour, "detail": [{"field": f"{over.column}_rest", "type": "nominal"}]},
        },
        {
            "data": {"name": "points"},
            "transform": present,
            "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
            "encoding": {**place, **identity, "tooltip": tooltip_of(figure, dot=False)},
        },
        _doubtful(present, {**place, **colour}),
    ]
    return {**titled, "width": 290, "height": 220, "layer": [*layers, *further]}


def _theirs(figure: Figure, layout: MatrixLayout, over: ChartAxis, rest: str | None, *, logarithmic: bool) -> Json:
    """Figures of documents: hollow marks, beside ours."""
    field = field_of(figure.name)
    several = layout.compare is None and len(over.rests) > 1
    identity: Json = {"color": colour_by_rest(over)} if several else colour_and_shape(layout)
    return {
        "data": {"name": "references"},
        "transform": [*with_value(field), *with_value(over.column), *_only(over, rest)],
        "mark": {"type": "point", "filled": False, "size": 90, "strokeWidth": 1.8},
        "encoding": {
            "x": x_axis(over),
            "y": y_axis(figure, logarithmic=logarithmic, zero=not logarithmic),
            **identity,
            "tooltip": [{"field": "source"}, {"field": field, "title": figure.label, "format": ",.4~g"}],
        },
    }


def _doubtful(transform: Sequence[Json], encoding: Json) -> Json:
    """The mark of a point whose figures are doubtful, as tables have it."""
    return {
        "data": {"name": "points"},
        "transform": [*transform, {"filter": "datum.doubtful"}],
        "mark": {"type": "text", "text": "?", "fontSize": 14, "fontWeight": "bold", "dx": 10, "dy": -8},
        "encoding": encoding,
    }


def _only(over: ChartAxis, rest: str | None) -> list[Json]:
    return [] if rest is None else [{"filter": {"field": f"{over.column}_rest", "equal": rest}}]


def _side_by_side(figure: Figure, layout: MatrixLayout, *, logarithmic: bool) -> Json:
    return {
        "$schema": SCHEMA,
        "bounds": "flush",  # the plots of the panels are in line, whatever their labels take
        "align": "all",
        "spacing": 52,
        "hconcat": [
            _panel(figure, layout, level, logarithmic=logarithmic, titled=not place)
            for place, level in enumerate(layout.levels)
        ],
        "resolve": {"scale": {"y": "independent"}},
    }


def _panel(figure: Figure, layout: MatrixLayout, level: str, *, logarithmic: bool, titled: bool) -> Json:
    """The contenders at one level, on a scale of their own."""
    field = field_of(figure.name)
    here: Json = {"filter": {"field": "level", "equal": level}}
    x: Json = {
        "field": "contender",
        "type": "nominal",
        "scale": {"domain": list(layout.contenders)},
        "title": None,
        "axis": {"labelAngle": -45, "grid": False, "labelLimit": 90},
    }
    y = y_axis(figure, logarithmic=logarithmic, zero=False) | ({} if titled else {"title": None})
    return {
        "title": {"text": level, "fontSize": 12, "fontWeight": 500, "anchor": "middle"},
        "width": max(120, PANEL_STEP * len(layout.contenders)),
        "height": 220,
        "layer": [
            {
                "data": {"name": "points"},
                "transform": [here, *with_value(f"{field}_low")],
                "mark": {"type": "rule", "strokeWidth": 2.5, "opacity": 0.9},
                "encoding": {
                    "x": x,
                    "y": y | {"field": f"{field}_low"},
                    "y2": {"field": f"{field}_high"},
                    "color": colour_of(layout),
                },
            },
            {
                "data": {"name": "points"},
                "transform": [here, *with_value(field)],
                "mark": {"type": "tick", "thickness": 2.5, "width": 16},
                "encoding": {"x": x, "y": y, "color": colour_of(layout), "tooltip": tooltip_of(figure, dot=False)},
            },
            _doubtful([here, *with_value(field)], {"x": x, "y": y, "color": colour_of(layout)}),
            {
                "data": {"name": "trials"},
                "transform": [here, *with_value(field)],
                "mark": {"type": "point", "filled": True, "size": 20, "opacity": 0.5},
                "encoding": {"x": x, "y": y, **colour_and_shape(layout), "tooltip": tooltip_of(figure, dot=True)},
            },
            {
                "data": {"name": "points"},
                "transform": [here, {"filter": "datum.outcome != 'ok'"}],
                "mark": {"type": "text", "text": "\u2715", "fontSize": 13, "opacity": 0.7},
                "encoding": {
                    "x": x,
                    "y": {"value": 208},
                    "color": colour_of(layout),
                    "tooltip": [{"field": "contender"}, {"field": "outcome"}],
                },
            },
        ],
    }


def _is_positive(run: RunRecord, summary: RunSummary, name: str) -> bool:
    """Whether no trial of a result, and no document, has a figure of 0 or less: a logarithmic scale
    has no place for it, and shows nothing else then.
    """
    least = [point.figures[name].least for point in summary.points if name in point.figures]
    return min([*least, *(each.value for each in run.references if each.figure == name)], default=0.0) > 0


def _spread(summary: RunSummary, name: str, layout: MatrixLayout) -> float:
    """How far the contenders lie apart at most: at one level, the largest median over the
    smallest.
    """
    levels: dict[str, list[float]] = {}
    for point in summary.points:
        if point.outcome == "ok" and name in point.figures:
            levels.setdefault(level_of(point.point, layout.compare), []).append(point.figures[name].median)
    return max((max(each) / min(each) for each in levels.values() if min(each) > 0), default=1.0)
