"""The history of a suite: one line a figure and point over its runs, with intervals, and the places
where a level changed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.environments import changes_of_machine
from plimsoll_lab.analysis.history import Change, History, HistoryRun, Series
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.compare_page import EVER_CHANGING
from plimsoll_lab.report.drawing import draw
from plimsoll_lab.report.encoding import EXACT, axis_of, counts, shapes_of
from plimsoll_lab.report.plain_page import Plain, render_plain
from plimsoll_lab.report.view import Cell, Drawing, Part, Section, Table, Text
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import EnvironmentRecord
from plimsoll_lab.suite.figures import Figure

TOGETHER = 7
"""Points that share a chart: as many as there are colours."""


def render_history_page(history: History, links: Sequence[tuple[str, str]] = ()) -> str:
    """The page of a suite's history."""
    runs = history.runs
    by_figure: dict[str, list[Series]] = {}
    for each in history.series:
        by_figure.setdefault(each.figure.name, []).append(each)
    sections = [_figure(name, mine, runs, history.least) for name, mine in by_figure.items()]
    return render_plain(
        Plain(
            title=f"History of {history.suite}",
            line=f"{history.suite} · {len(runs)} runs",
            question=f"How have the figures of {history.suite} changed?",
            answer=_answer(history),
            contenders=(),
            sections=[*sections, *([_runs(runs)] if runs else []), *_unread(history)],
            links=links,
        )
    )


def _unread(history: History) -> list[Section]:
    """The runs that are left out, and why."""
    parts = [Text(text=each) for each in history.unread]
    return [Section(name="unread", title="Runs that are left out", parts=parts)] if parts else []


def _answer(history: History) -> list[str]:
    if not history.runs:
        return [f"There is no run of {history.suite} that measured loads it was told; searches have no history."]
    changed = [each for each in history.series if each.changes]
    longest = max((len(each.values) for each in history.series), default=0)
    if longest < history.least:
        return [f"Change points need {history.least} runs with a result; there are {longest}."]
    if not changed:
        return [f"No level has changed in {longest} runs."]
    told = [
        f"{each.figure.label} at {each.at}: {_by_how_much(each, change)} from run "
        f"{_name(history.runs, change)} on{_elsewhere(history, each, change)}."
        for each in changed
        for change in each.changes
    ]
    return told if len(told) <= TOGETHER else [f"{len(told)} levels have changed; the tables name them."]


def _by_how_much(series: Series, change: Change) -> str:
    """`+7.2 %`; of a level of zero both levels."""
    if change.ratio is not None:
        return formatting.change(change.ratio)
    before, after = (formatting.number(each, series.figure.unit) for each in (change.before, change.after))
    return f"{before} to {after}"


def _elsewhere(history: History, series: Series, change: Change) -> str:
    """What of the machine is not as it was in the series' run before: the level may be that of the
    machine.
    """
    orders = [value.order for value in series.values]
    before = orders[orders.index(change.order) - 1]
    then, now = (EnvironmentRecord.model_validate(history.runs[order].environment) for order in (before, change.order))
    changes = changes_of_machine(then, now)
    return f", where {' and '.join(changes)}" if changes else ""


def _name(runs: Sequence[HistoryRun], change: Change) -> str:
    return runs[change.order].run


def _figure(name: str, series: Sequence[Series], runs: Sequence[HistoryRun], least: int) -> Section:
    figure = series[0].figure
    label = figure.label
    parts: list[Part] = []
    for number in range(0, len(series), TOGETHER):
        some = series[number : number + TOGETHER]
        title = f"history-{name}-{number}"
        alone = f", {some[0].at}" if len(some) == 1 else ""  # such a chart has no legend
        caption = (
            f"{label[:1].upper()}{label[1:]}{alone}, in each run; {figure.better} is better. The line through a mark "
            "is the median's 95 % interval; a dashed line marks a new level. A run without a result breaks the line."
        )
        svg = draw(title, _spec(some, figure, runs), {})
        parts.append(Drawing(name=title, svg=svg, caption=caption, data=_table(f"{label}{alone}", some, runs)))
    rows = tuple(
        (Cell(text=each.at, heading=True), Cell(text=_name(runs, change)), Cell(text=_by_how_much(each, change)))
        for each in series
        for change in each.changes
    )
    if rows:
        head = ("point", "from run", "change")
        parts.append(Table(caption=f"New levels of {label}", head=head, rows=rows, style="numbers"))
    elif any(len(each.values) >= least for each in series):
        parts.append(Text(text="No change point."))
    return Section(name=name.replace(".", "-"), title=f"{label[:1].upper()}{label[1:]}", parts=parts)


def _table(caption: str, series: Sequence[Series], runs: Sequence[HistoryRun]) -> Table:
    """A row a point and run: the median and its interval."""
    rows = tuple(
        (
            Cell(text=each.at, heading=True),
            Cell(text=runs[value.order].run),
            Cell(text=formatting.number(value.median, each.figure.unit)),
            Cell(
                text="-"
                if value.low is None or value.high is None
                else formatting.interval((value.low, value.high), each.figure.unit)
            ),
        )
        for each in series
        for value in each.values
    )
    return Table(caption=caption, head=("point", "run", "median", "95 % interval"), rows=rows, style="numbers")


def _spec(series: Sequence[Series], figure: Figure, runs: Sequence[HistoryRun]) -> Json:
    factor, unit = axis_of(figure) if "cpu_us" not in figure.name else (1.0, "\u00b5s")
    rows = [
        {
            "at": each.at,
            "run": runs[value.order].run,
            "median": _scaled(value.median, factor),
            "low": _scaled(value.low, factor),
            "high": _scaled(value.high, factor),
        }
        for each in series
        for value in each.values
    ]
    # A value that is none breaks the line.
    gaps = [{"at": each.at, "run": runs[order].run, "median": None} for each in series for order in each.missing]
    changes = [{"at": each.at, "run": _name(runs, change)} for each in series for change in each.changes]
    places = [each.at for each in series]
    shapes = shapes_of(len(places))
    x: Json = {
        "field": "run",
        "type": "ordinal",
        "title": "run",
        "sort": [each.run for each in runs],
        "scale": {"domain": [each.run for each in runs]},
        "axis": {"labelAngle": -45, "labelOverlap": True},
    }
    y: Json = {
        "field": "median",
        "type": "quantitative",
        "title": unit or None,
        "scale": {"zero": False, "nice": True},
        "axis": counts() if figure.unit == "per_s" else {"format": EXACT},
    }
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
                "data": {"values": [*rows, *gaps]},
                "mark": {"type": "line", "strokeWidth": 1.6, "invalid": "break-paths-filter-domains"},
                "encoding": {"x": x, "y": y, "color": colour},
            },
            {
                "data": {"values": rows},
                "mark": {"type": "point", "filled": True, "size": 55, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": colour, "shape": form},
            },
        ],
    }


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else float(f"{value * factor:.6g}")


def _runs(runs: Sequence[HistoryRun]) -> Section:
    """Which build each run is of, and where the environment is not the one before."""
    rows = []
    before: Mapping[str, object] | None = None
    for each in runs:
        environment = each.environment
        names = [
            key
            for key in environment
            if before is not None and key not in EVER_CHANGING and environment[key] != before.get(key)
        ]
        when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(each.started_unix_s))
        changed = ", ".join(names).replace("_", " ") or "-"
        cells = (Cell(text=when), Cell(text=each.build), Cell(text=changed))
        rows.append((Cell(text=each.run, heading=True), *cells))
        before = environment
    head = ("run", "began", "build", "differs from the run before")
    return Section(
        name="runs",
        title="Runs and builds",
        parts=[Table(caption="The runs, the oldest first", head=head, rows=tuple(rows))],
    )
