"""The section of timelines: panels on one shared time axis, and response time over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.over_time import BANDS, CAUSES, SHARES, Band, Course
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.series import (
    LEVELS_SHOWN,
    TIME_TICKS,
    WIDTH,
    Panel,
    chosen,
    has_something,
    head_of,
    panels_spec,
    parts_of,
    series_table,
    short,
)
from plimsoll_lab.report.view import Cell, Described, Drawing, Part, Row, Section, Table, Text
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord

APART_S = 0.01
"""Seconds that lie no farther apart follow each other."""
BINS_MOST = 60
"""Of more seconds, the one with the highest 99th percentile is drawn for its neighbours."""
PANELS = (
    Panel(name="rate", series=("completed", "intended"), unit="requests/s"),
    Panel(name="connections", series=("connections",), unit="connections"),
    Panel(name="CPU", series=("cpu",), unit="cores"),
    Panel(name="memory", series=("memory",), unit="MiB", factor=2.0**-20),
    Panel(name="retransmissions", series=("retransmissions",), unit="segments/s"),
    Panel(name="errors", series=("failed", "timed_out"), unit="errors/s", may_be_zero=False),
    *(Panel(name=f"errors: {each}", series=(f"errors.{each}",), unit="errors/s", may_be_zero=False) for each in CAUSES),
)
"""The panels, in order. Of each cause of errors one, where the generator reports causes by the
second; else one for all."""
ABSENT = {
    "rate": "the generator recorded fewer than two seconds",
    "connections": "the window ended before a second sample, or the connections of the server's host were not counted",
    "CPU": "the window is too short for two samples, the meter would have disturbed the trial, or the server already "
    "ran",
    "memory": "the window is too short for two samples, the meter would have disturbed the trial, or the server "
    "already ran",
    "retransmissions": "the window is too short for two samples, or the run is older than these samples",
    "errors": "no recorded second has a request that failed",
}
"""Why a panel can be missing."""
HEAT_HEIGHT = 130
NOTE = (
    "A point is shown by the valid trial with its median completed rate. Time 0 is the opening of the window; the "
    "shaded part before it is the warm-up. Connections and retransmissions are those of the server's whole host: "
    "both ends of a connection where the generator runs there too. A dashed line is the intended rate, or the "
    "requests that timed out where the causes of errors are not known."
)


def timeline_charts(courses: Mapping[str, Sequence[Course]], layout: MatrixLayout) -> dict[str, Described]:
    """By name, each chart."""
    found: dict[str, Described] = {}
    for number, level in enumerate(chosen(list(courses))):
        here = courses[level]
        panels = [panel for panel in PANELS if has_something(panel, here)]
        if panels:
            caption = f"Over the time of a trial, {level}: {', '.join(panel.name for panel in panels)}."
            found[f"timelines-{number}"] = Described(
                spec=panels_spec(here, panels, layout), caption=caption, data=series_table(caption, here, panels)
            )
        banded = [course for course in here if _seconds(course) > 1]
        if banded:
            caption = f"Response time over time, {level}: each second's requests from the fastest to the slowest; "
            caption += "the darker, the larger their share."
            caption += "".join(_late(course) for course in banded)
            found[f"heat-{number}"] = Described(spec=_heat(banded), caption=caption, data=_heat_table(caption, banded))
    return found


def section(
    run: RunRecord,
    courses: Mapping[str, Sequence[Course]],
    charts: Mapping[str, Described],
    stills: Mapping[str, Markup],
) -> Section:
    """The section, with a reason for whatever is not drawn."""
    title = "Over the time of a trial"
    if run.search is not None:
        told = "No chart: a search tries many loads. `plimsoll lab query` reads the timeline of each trial."
        return Section(name="timelines", title=title, parts=[Text(text=told)])
    if not charts:
        told = "No chart: no valid trial has a timeline with two instants."
        return Section(name="timelines", title=title, parts=[Text(text=told)])
    parts: list[Part] = [
        Drawing(name=name, svg=stills[name], caption=each.caption, data=each.data) for name, each in charts.items()
    ]
    every = [course for here in courses.values() for course in here]
    there = {panel.name.partition(":")[0] for panel in PANELS if has_something(panel, every)}
    absent = [name for name in ABSENT if name not in there]
    missing = [f"{name} ({ABSENT[name]})" for name in absent]
    if missing:
        parts.append(Text(text=f"Not drawn: {'; '.join(missing)}."))
    if not any(_seconds(course) > 1 for course in every):
        why = "the window ended within a second" if any(course.bands for course in every) else "no second is recorded"
        if any(course.generators > 1 for course in every):
            why = "the percentiles of several generators cannot be put together"
        parts.append(Text(text=f"Response time over time is not drawn: {why}."))
    if len(courses) > LEVELS_SHOWN:
        told = f"Of {len(courses)} settings the first, the middle and the last are shown; `plimsoll lab query` has all."
        parts.append(Text(text=told))
    return Section(name="timelines", title=title, note=NOTE, parts=parts)


def _seconds(course: Course) -> int:
    """How many seconds have response times; a single one is no course."""
    return len({band.at_s for band in course.bands})


def _late(course: Course) -> str:
    """What of a picture is the generator's doing, and not the server's."""
    names = [name for name in BANDS if f"response_time_us.{name}" in course.untold]
    who = "" if course.contender == "all" else f" of {course.contender}"
    return f" The generator's own lateness is half or more of {formatting.listed(names)}{who}." if names else ""


def _heat(courses: Sequence[Course]) -> Json:
    across = [0.0, max(course.ends_s for course in courses)]
    times = [us / 1e3 for course in courses for band in course.bands for us in (band.low_us, band.high_us) if us > 0]
    up = [short(min(times)), short(max(times))]  # one scale, so that contenders can be compared
    drawn = []
    for place, course in enumerate(courses):
        values = [
            {
                "t": short(band.at_s),
                "to": short(band.to_s),
                "low": max(up[0], short(band.low_us / 1e3)),
                "high": max(up[0], short(band.high_us / 1e3)),
                "share": f"{band.share} %",
            }
            for band in _binned(course.bands)
        ]
        last = place == len(courses) - 1
        x: Json = {
            "field": "t",
            "type": "quantitative",
            "title": "seconds" if last else None,
            "scale": {"domain": [short(each) for each in across], "nice": False},
            "axis": {"grid": False, "labels": last, "ticks": last, "tickCount": TIME_TICKS},
        }
        y: Json = {
            "field": "low",
            "type": "quantitative",
            "title": [course.contender, "ms"] if course.contender != "all" else "ms",
            "scale": {"type": "log", "nice": False, "domain": up},
            "axis": {"tickCount": 4, "minExtent": 64, "titleX": -60, "format": ",.3~r"},
        }
        colour: Json = {
            "field": "share",
            "type": "ordinal",
            "title": "of the requests",
            "sort": [f"{each} %" for each in SHARES],
            "scale": {
                "domain": [f"{each} %" for each in SHARES],
                "range": ["#08519c", "#3182bd", "#6baed6", "#9ecae1", "#c6dbef"],
            },
            "legend": {"orient": "top", "direction": "horizontal"},
        }
        tooltip = [{"field": each} for each in ("t", "low", "high", "share")]
        encoding: Json = {
            "x": x,
            "x2": {"field": "to"},
            "y": y,
            "y2": {"field": "high"},
            "color": colour,
            "tooltip": tooltip,
        }
        layer: Json = {"data": {"values": values}, "mark": {"type": "rect"}, "encoding": encoding}
        drawn.append({"width": WIDTH, "height": HEAT_HEIGHT, **layer})
    return {"$schema": SCHEMA, "spacing": 8, "vconcat": drawn}


def _heat_table(caption: str, courses: Sequence[Course]) -> Table:
    """Of each part of the time the highest median and the highest 99th percentile of a second."""
    seconds = min(len(course.bands) // len(SHARES) for course in courses)
    edges = parts_of(0.0, max(course.ends_s for course in courses), seconds)
    rows: list[Row] = []
    for course in courses:
        who = "" if course.contender == "all" else f"{course.contender}, "
        for name, share in (("p50", SHARES[0]), ("p99", SHARES[-2])):
            own = [band for band in course.bands if band.share == share]
            highest = (
                max((band.high_us for band in own if band.at_s < high and band.to_s > low), default=None)
                for low, high in edges
            )
            cells = (Cell(text=formatting.number(each, "us")) for each in highest)
            rows.append((Cell(text=who + name, detail="highest of a second", heading=True), *cells))
    return Table(caption=caption, head=head_of(edges), rows=tuple(rows), style="numbers")


def _binned(bands: Sequence[Band]) -> list[Band]:
    """All seconds where they are few; else of each bin the second with the highest p99. A bin ends
    where a second is missing, in which nothing was answered.
    """
    step = len(BANDS) - 1
    seconds = [bands[place : place + step] for place in range(0, len(bands), step)]
    size = -(-len(seconds) // BINS_MOST)
    bins: list[list[Sequence[Band]]] = []
    for second in seconds:
        if bins and len(bins[-1]) < size and second[0].at_s <= bins[-1][-1][0].to_s + APART_S:
            bins[-1].append(second)
        else:
            bins.append([second])
    found: list[Band] = []
    for each in bins:
        worst = max(each, key=lambda second: second[-1].low_us)
        start, end = each[0][0].at_s, each[-1][0].to_s
        found += [
            Band(at_s=start, to_s=end, low_us=band.low_us, high_us=band.high_us, share=band.share) for band in worst
        ]
    return found
