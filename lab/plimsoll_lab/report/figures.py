"""The charts in their sections: response time, completed rate, efficiency, and whatever else a
suite asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.all_charts import AllCharts
from plimsoll_lab.report.charts import Chart, charts
from plimsoll_lab.report.view import Cell, Described, Drawing, Fold, Gallery, Part, Section, Table, Text
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import PointSummary, RunSummary
from plimsoll_lab.suite.figures import Figure

READ = (
    "Every dot is a trial; a bar or a line is the median of the trials, and the line through a bar its 95 % interval. "
    "Panels side by side have a scale of their own, which need not begin at zero."
)
"""How the charts are read."""
UNDER_THE_ANSWER = "The first percentile curves are the picture under the answer."
HOMES = (
    ("response", "Response time", ("response_time", "service_time", "establishment_time", "transmission_time")),
    ("rate", "Completed rate", ("completed_rate", "goodput", "failed_ratio")),
    ("efficiency", "Efficiency", ("server.cpu", "server.memory", "generator.")),
)
"""Of each section its anchor, its title, and how the names of its figures begin."""


def sections(
    run: RunRecord,
    summary: RunSummary,
    every: AllCharts,
    distribution: Sequence[Part],
    stills: Mapping[str, Markup],
) -> list[Section]:
    """The sections with at least one chart or table; `distribution` stands beside the percentile
    curves.
    """
    figures = run.figures_by_name
    drawn = charts(run, summary)
    percentiles = every.percentiles
    found = []
    for name, title, beginnings in (*HOMES, ("more", "More figures", ())):
        mine = [chart for chart in drawn if _home(chart.figure) == name]
        parts: list[Part] = []
        if name == "response":
            parts += [Text(text=_loop(run)), *_curves(every, stills), *_without_curve(run, summary, percentiles)]
            parts += distribution
        for figure in dict.fromkeys(chart.figure for chart in mine):
            data = _data(summary, figures[figure])
            drawings = [
                Drawing(name=chart.name, svg=stills[chart.name], caption=_caption(chart, figures[figure]))
                for chart in mine
                if chart.figure == figure
            ]
            parts += [Gallery(drawings=tuple(drawings)), Fold(title=f"The numbers of {data.caption}", parts=(data,))]
        if mine or (name == "response" and (percentiles or any(each.kind == "drawing" for each in distribution))):
            found.append(Section(name=name, title=title, note=READ if mine else "", parts=parts))
        elif beginnings and name == "response":
            found.append(Section(name=name, title=title, parts=[*parts, Text(text=_no_chart(summary))]))
    return found


def _home(figure: str) -> str:
    return next((name for name, _, beginnings in HOMES if figure.startswith(beginnings)), "more")


def _no_chart(summary: RunSummary) -> str:
    if not any(point.outcome == "ok" for point in summary.points):
        return "No chart: no point has a valid result."
    return "No chart: the suite has one point, so the table of medians says it all."


def _loop(run: RunRecord) -> str:
    if run.imported is not None:
        tools = formatting.listed(run.imported.tools)
        return f"Response time is what {tools} took for it; the warnings say where that differs from ours."
    if any("rate" in point.load for point in run.points):
        loop = "The load is an open loop: requests are due on a schedule that does not wait for answers."
    else:
        loop = "The load is a closed loop: a connection sends its next request after the answer and the think time."
    return (
        f"{loop} Response time runs from the instant a request was due, so a stall counts for every request due during "
        "it (no coordinated omission). Failed requests have no response time and are counted apart."
    )


def _caption(chart: Chart, figure: Figure) -> str:
    label = figure.label
    against = f"against {chart.over}" if chart.kind == "load" else "of the contenders side by side at each load"
    return f"{label[:1].upper()}{label[1:]} {against}; {figure.better} is better."


def _data(summary: RunSummary, figure: Figure) -> Table:
    rows = []
    for point in summary.points:
        found = point.figures.get(figure.name) if point.outcome == "ok" else None
        interval = found.median_ci95 if found is not None else None
        median = _median(point, figure)
        within = "-" if interval is None else formatting.interval(interval, figure.unit)
        heading = Cell(text=formatting.setting(point.point), heading=True)
        rows.append((heading, Cell(text=median), Cell(text=within)))
    head = ("point", "median", "95 % interval of the median")
    caption = f"{figure.label[:1].upper()}{figure.label[1:]}"
    return Table(caption=caption, head=head, rows=tuple(rows), style="numbers")


def _median(point: PointSummary, figure: Figure) -> str:
    """Why a point has no result, or its figure; `-` of a figure that its results do not have."""
    if point.outcome != "ok":
        return f"{formatting.outcome(point.outcome)}{formatting.in_part(point)}"
    return formatting.median(point, figure.name, figure.unit)


def _curves(every: AllCharts, stills: Mapping[str, Markup]) -> list[Part]:
    """The percentile curves, each with its numbers, but those under the answer."""
    drawings = [
        Drawing(name=name, svg=stills[name], caption=each.caption, data=each.data)
        for name, each in every.percentiles.items()
        if name != every.opening
    ]
    told: list[Part] = [Text(text=UNDER_THE_ANSWER)] if every.opening is not None else []
    return [*told, Gallery(drawings=tuple(drawings))] if drawings else told


def _without_curve(run: RunRecord, summary: RunSummary, percentiles: Mapping[str, Described]) -> list[Part]:
    """Why settings with a result have no percentile curve."""
    compare = run.family.compare
    settings = {
        formatting.setting({path: value for path, value in point.point.items() if path != compare})
        for point in summary.points
        if point.outcome == "ok"
    }
    # Where contenders compete a chart is of one setting; else each line is.
    drawn = len(percentiles) if compare else sum(len(each.data.rows) for each in percentiles.values())
    missing = len(settings) - drawn
    if missing <= 0:
        return []
    told = f"Percentile curves of {missing} of {len(settings)} settings are not drawn: "
    told += "fewer than three percentiles are told by every trial, with ten requests beyond them"
    return [Text(text=f"{told}; those that are the generator's own lateness, or that a file lacks, are not.")]
