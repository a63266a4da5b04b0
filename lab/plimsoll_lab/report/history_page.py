"""The history of a suite: one line a figure and point over its runs, with intervals, and the places
where a level changed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.report.charts import AXES, SCHEMA, SHAPES
from plimsoll_lab.report.compare_page import EVER_CHANGING
from plimsoll_lab.report.drawing import draw
from plimsoll_lab.report.plain_page import Plain, render_plain
from plimsoll_lab.report.view import Cell, Drawing, Part, Section, Table, Text
from plimsoll_lab.store.records import Json

TOGETHER = 7
"""Points that share a chart: as many as there are colours."""


def render_history_page(history: Json, links: Sequence[tuple[str, str]] = ()) -> str:
    """The page of a suite's history."""
    runs = cast("list[Json]", history["runs"])
    series = cast("list[Json]", history["series"])
    by_figure: dict[str, list[Json]] = {}
    for each in series:
        by_figure.setdefault(str(cast("Json", each["figure"])["name"]), []).append(each)
    sections = [_figure(name, mine, runs, cast("int", history["least"])) for name, mine in by_figure.items()]
    return render_plain(
        Plain(
            title=f"History of {history['suite']}",
            line=f"{history['suite']} · {len(runs)} runs",
            question=f"How have the figures of {history['suite']} changed?",
            answer=_answer(history, runs, series),
            contenders=(),
            sections=[*sections, _runs(runs)] if runs else [],
            links=links,
        )
    )


def _answer(history: Json, runs: Sequence[Json], series: Sequence[Json]) -> list[str]:
    if not runs:
        return [f"There is no run of {history['suite']} with trials."]
    changed = [each for each in series if each["changes"]]
    longest = max((len(cast("list[Json]", each["values"])) for each in series), default=0)
    least = cast("int", history["least"])
    if longest < least:
        return [f"Change points need {least} runs with a result; there are {longest}."]
    if not changed:
        return [f"No level has changed in {longest} runs."]
    told = [
        f"{cast('Json', each['figure'])['label']} at {each['at']}: {_change(change)} from run {_name(runs, change)} on."
        for each in changed
        for change in cast("list[Json]", each["changes"])
    ]
    return told if len(told) <= TOGETHER else [f"{len(told)} levels have changed; the tables name them."]


def _change(change: Json) -> str:
    return f"{(cast('float', change['ratio']) - 1) * 100:+.1f} %"


def _name(runs: Sequence[Json], change: Json) -> str:
    return str(runs[cast("int", change["order"])]["run"])


def _figure(name: str, series: Sequence[Json], runs: Sequence[Json], least: int) -> Section:
    figure = cast("Json", series[0]["figure"])
    label = str(figure["label"])
    parts: list[Part] = []
    for number in range(0, len(series), TOGETHER):
        some = series[number : number + TOGETHER]
        title = f"history-{name}-{number}"
        caption = (
            f"{label[:1].upper()}{label[1:]}, in each run; {figure['better']} is better. The line through a mark is "
            "the median's 95 % interval; a dashed line marks a new level."
        )
        parts.append(Drawing(name=title, svg=draw(title, _spec(some, figure, runs), {}), caption=caption))
    rows = tuple(
        (Cell(text=str(each["at"]), heading=True), Cell(text=_name(runs, change)), Cell(text=_change(change)))
        for each in series
        for change in cast("list[Json]", each["changes"])
    )
    if rows:
        head = ("point", "from run", "change")
        parts.append(Table(caption=f"New levels of {label}", head=head, rows=rows, style="numbers"))
    elif any(len(cast("list[Json]", each["values"])) >= least for each in series):
        parts.append(Text(text="No change point."))
    return Section(name=name.replace(".", "-"), title=f"{label[:1].upper()}{label[1:]}", parts=parts)


def _spec(series: Sequence[Json], figure: Json, runs: Sequence[Json]) -> Json:
    factor, unit = AXES[cast("str", figure["unit"])] if "cpu_us" not in str(figure["name"]) else (1.0, "\u00b5s")
    rows = [
        {"at": each["at"], "run": runs[cast("int", value["order"])]["run"]}
        | {key: _scaled(value[key], factor) for key in ("median", "low", "high")}
        for each in series
        for value in cast("list[Json]", each["values"])
    ]
    changes = [
        {"at": each["at"], "run": _name(runs, change)}
        for each in series
        for change in cast("list[Json]", each["changes"])
    ]
    places = [str(each["at"]) for each in series]
    shapes = [SHAPES[place % len(SHAPES)] for place in range(len(places))]
    x: Json = {
        "field": "run",
        "type": "ordinal",
        "title": "run",
        "sort": [str(each["run"]) for each in runs],
        "scale": {"domain": [str(each["run"]) for each in runs]},
        "axis": {"labelAngle": -45, "labelOverlap": True},
    }
    y: Json = {"field": "median", "type": "quantitative", "title": unit or None, "scale": {"zero": False, "nice": True}}
    several: Json = {"title": None, "orient": "top", "columns": 3, "labelLimit": 260}
    colour: Json = {
        "field": "at",
        "type": "nominal",
        "scale": {"domain": places},
        "legend": several if len(places) > 1 else None,
    }
    form = colour | {"scale": {"domain": places, "range": shapes}}
    rule: Json = {"mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.4}}
    return {
        "$schema": SCHEMA,
        "width": 720,
        "height": 240,
        "layer": [
            {"data": {"values": changes}, **rule, "encoding": {"x": x, "color": colour}},
            {
                "data": {"values": rows},
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, "color": colour},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "line", "strokeWidth": 1.6},
                "encoding": {"x": x, "y": y, "color": colour},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, "shape": form},
            },
        ],
    }


def _scaled(value: object, factor: float) -> float | None:
    return None if value is None else float(f"{cast('float', value) * factor:.6g}")


def _runs(runs: Sequence[Json]) -> Section:
    """Which build each run is of, and where the environment is not the one before."""
    rows = []
    before: Mapping[str, object] | None = None
    for each in runs:
        environment = cast("Mapping[str, object]", each["environment"])
        names = [
            key
            for key in environment
            if before is not None and key not in EVER_CHANGING and environment[key] != before.get(key)
        ]
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(cast("float", each["started_unix_s"])))
        changed = ", ".join(names).replace("_", " ") or "-"
        cells = (Cell(text=when), Cell(text=str(each["build"])), Cell(text=changed))
        rows.append((Cell(text=str(each["run"]), heading=True), *cells))
        before = environment
    head = ("run", "began", "build", "differs from the run before")
    return Section(
        name="runs",
        title="Runs and builds",
        parts=[Table(caption="The runs, the oldest first", head=head, rows=tuple(rows))],
    )
