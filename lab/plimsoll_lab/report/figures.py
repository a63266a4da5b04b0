"""The charts in their sections: response time, completed rate, efficiency, and whatever else a
suite asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.charts import Chart, charts
from plimsoll_lab.report.view import Cell, Drawing, Fold, Gallery, Part, Section, Table, Text
from plimsoll_lab.store.records import Json

READ = (
    "Every dot is a trial; a bar or a line is the median of the trials, and the line through a bar its 95 % interval. "
    "Panels side by side have a scale of their own, which need not begin at zero."
)
"""How the charts are read."""
HOMES = (
    ("response", "Response time", ("response_time", "service_time", "establishment_time", "transmission_time")),
    ("rate", "Completed rate", ("completed_rate", "goodput", "failed_ratio")),
    ("efficiency", "Efficiency", ("server.cpu", "server.memory", "generator.")),
)
"""Of each section its anchor, its title, and how the names of its figures begin."""


def sections(
    run: Json, summary: Json, found_curves: Sequence[Json], captions: Mapping[str, str], stills: Mapping[str, Markup]
) -> list[Section]:
    """The sections with at least one chart or table."""
    figures = {cast("str", each["name"]): each for each in cast("list[Json]", run["figures"])}
    drawn = charts(run, summary)
    found = []
    for name, title, beginnings in (*HOMES, ("more", "More figures", ())):
        mine = [chart for chart in drawn if _home(chart.figure) == name]
        parts: list[Part] = []
        if name == "response":
            parts += [Text(text=_loop(run)), *_curves(found_curves, captions, stills)]
        for figure in dict.fromkeys(chart.figure for chart in mine):
            data = _data(summary, figures[figure])
            drawings = [
                Drawing(name=chart.name, svg=stills[chart.name], caption=_caption(chart, figures[figure]))
                for chart in mine
                if chart.figure == figure
            ]
            parts += [Gallery(drawings=tuple(drawings)), Fold(title=f"The numbers of {data.caption}", parts=(data,))]
        if mine or (name == "response" and len(parts) > 1):
            found.append(Section(name=name, title=title, note=READ if mine else "", parts=parts))
        elif beginnings and name == "response":
            found.append(Section(name=name, title=title, parts=[*parts, Text(text=_no_chart(summary))]))
    return found


def _home(figure: str) -> str:
    return next((name for name, _, beginnings in HOMES if figure.startswith(beginnings)), "more")


def _no_chart(summary: Json) -> str:
    if not any(point["outcome"] == "ok" for point in cast("list[Json]", summary["points"])):
        return "No chart: no point has a valid result."
    return "No chart: the suite has one point, so the table of medians says it all."


def _loop(run: Json) -> str:
    loads = [cast("Json", point.get("load") or {}) for point in cast("list[Json]", run["points"])]
    if any("rate" in load for load in loads):
        loop = "The load is an open loop: requests are due on a schedule that does not wait for answers."
    else:
        loop = "The load is a closed loop: a connection sends its next request after the answer and the think time."
    return (
        f"{loop} Response time runs from the instant a request was due, so a stall counts for every request due during "
        "it (no coordinated omission). Failed requests have no response time and are counted apart."
    )


def _caption(chart: Chart, figure: Json) -> str:
    label = str(figure["label"])
    against = f"against {chart.over}" if chart.kind == "load" else "of the contenders side by side at each load"
    return f"{label[:1].upper()}{label[1:]} {against}; {figure['better']} is better."


def _data(summary: Json, figure: Json) -> Table:
    name, unit = cast("str", figure["name"]), cast("str", figure["unit"])
    rows = []
    for point in cast("list[Json]", summary["points"]):
        found = cast("dict[str, Json]", point["figures"]).get(name) if point["outcome"] == "ok" else None
        interval = cast("tuple[float, float] | None", (found or {}).get("median_ci95"))
        median = formatting.number(cast("float", found["median"]), unit) if found else str(point["outcome"] or "-")
        within = "-" if interval is None else " to ".join(formatting.number(each, unit) for each in interval)
        heading = Cell(text=formatting.setting(cast("Json", point["point"])), heading=True)
        rows.append((heading, Cell(text=median.replace("_", " ")), Cell(text=within)))
    label = str(figure["label"])
    head = ("point", "median", "95 % interval of the median")
    return Table(caption=f"{label[:1].upper()}{label[1:]}", head=head, rows=tuple(rows), style="numbers")


def _curves(found: Sequence[Json], captions: Mapping[str, str], stills: Mapping[str, Markup]) -> list[Part]:
    """The percentile curves, and their numbers; a column for each percentile that enough requests
    lie beyond.
    """
    if not found:
        return []
    quantiles = sorted(
        {quantile for each in found for quantile, _ in cast("list[tuple[float, float]]", each["quantiles"])}
    )
    rows = []
    for each in found:
        known = dict(cast("list[tuple[float, float]]", each["quantiles"]))
        cells = (formatting.number(known.get(quantile), "us") for quantile in quantiles)
        heading = Cell(text=formatting.setting(cast("Json", each["point"])), heading=True)
        rows.append((heading, *(Cell(text=cell) for cell in cells)))
    head = ("point", *(f"{quantile * 100:g} %" for quantile in quantiles))
    caption = "Response time below which this share of the requests stayed: the median of the trials"
    table = Table(caption=caption, head=head, rows=tuple(rows), style="numbers")
    drawings = [Drawing(name=name, svg=stills[name], caption=caption) for name, caption in captions.items()]
    return [Gallery(drawings=tuple(drawings)), Fold(title="The numbers of these curves", parts=(table,))]
