"""The section of timelines: panels on one shared time axis, and response time over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from plimsoll_lab.analysis.over_time import BANDS, SHARES, Band, Course
from plimsoll_lab.report.charts import SCHEMA, Shape
from plimsoll_lab.report.view import Drawing, Part, Section, Text
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord

LEVELS_SHOWN = 3
"""Settings that are drawn: the first, the middle and the last. More would fill the page."""
DOTS_MOST = 120
"""Of a line with more, each dot is the mean of neighbours: a screen shows no more."""
BINS_MOST = 60
"""Of more seconds, the one with the highest 99th percentile stands for its neighbours."""
PANELS: tuple[tuple[str, tuple[str, ...], str, float], ...] = (
    ("rate", ("completed", "intended"), "requests/s", 1.0),
    ("connections", ("connections",), "connections", 1.0),
    ("CPU", ("cpu",), "cores", 1.0),
    ("memory", ("memory",), "MiB", 2.0**-20),
    ("retransmissions", ("retransmissions",), "segments/s", 1.0),
    ("errors", ("failed", "timed_out"), "errors/s", 1.0),
)
"""Each panel: what it shows, its series, the unit on its axis, and the factor to that unit."""
DASHED = frozenset({"intended", "timed_out"})
"""The second series of a panel is dashed."""
ABSENT = {
    "rate": "the generator recorded no seconds",
    "connections": "the window ended before a second sample, or the host's connections were not counted",
    "CPU": "the window is too short for two samples",
    "memory": "the window is too short for two samples, or the meter would have disturbed the trial",
    "retransmissions": "the window is too short for two samples, or the run is older than these samples",
    "errors": "no request failed",
}
"""Why a panel can be missing."""
PANEL_HEIGHT, HEAT_HEIGHT, WIDTH = 92, 130, 680
NOTE = (
    "A point is shown by the valid trial with its median completed rate. Time 0 is the opening of the window; the "
    "shaded part before it is the warm-up. Connections and retransmissions are those of the server's whole host: "
    "both ends of a connection where the generator runs there too. A dashed line is the intended rate, or the "
    "requests that timed out."
)


def timeline_charts(courses: Mapping[str, Sequence[Course]], shape: Shape) -> dict[str, tuple[Json, str]]:
    """By name, each chart's specification and caption."""
    found: dict[str, tuple[Json, str]] = {}
    for number, level in enumerate(_chosen(list(courses))):
        here = courses[level]
        where = level or "the one point"
        panels = [panel for panel in PANELS if _has(panel, here)]
        if panels:
            found[f"timelines-{number}"] = (
                _panels(here, panels, shape),
                f"Over the time of a trial, {where}: {', '.join(panel[0] for panel in panels)}.",
            )
        banded = [course for course in here if course.bands]
        if banded:
            caption = f"Response time over time, {where}: each second's requests from the fastest to the slowest; "
            found[f"heat-{number}"] = (_heat(banded), caption + "the darker, the larger their share.")
    return found


def section(
    run: RunRecord,
    courses: Mapping[str, Sequence[Course]],
    captions: Mapping[str, str],
    stills: Mapping[str, Markup],
) -> Section:
    """The section, with a reason for whatever is not drawn."""
    title = "Over the time of a trial"
    if run.search is not None:
        told = "No chart: a search tries many loads. `plimsoll lab query` reads the timeline of each trial."
        return Section(name="timelines", title=title, parts=[Text(text=told)])
    if not captions:
        told = "No chart: no valid trial has a timeline with two instants."
        return Section(name="timelines", title=title, parts=[Text(text=told)])
    parts: list[Part] = [Drawing(name=name, svg=stills[name], caption=caption) for name, caption in captions.items()]
    every = [course for here in courses.values() for course in here]
    missing = [f"{panel[0]} ({ABSENT[panel[0]]})" for panel in PANELS if not _has(panel, every)]
    if missing:
        parts.append(Text(text=f"Not drawn: {'; '.join(missing)}."))
    if not any(course.bands for course in every):
        parts.append(Text(text="Response time over time is not drawn: the generator recorded none for each second."))
    if len(courses) > LEVELS_SHOWN:
        told = f"Of {len(courses)} settings the first, the middle and the last are shown; `plimsoll lab query` has all."
        parts.append(Text(text=told))
    return Section(name="timelines", title=title, note=NOTE, parts=parts)


def _chosen(levels: Sequence[str]) -> list[str]:
    if len(levels) <= LEVELS_SHOWN:
        return list(levels)
    return [levels[0], levels[len(levels) // 2], levels[-1]]


def _has(panel: tuple[str, tuple[str, ...], str, float], courses: Sequence[Course]) -> bool:
    """Whether there is something to draw: two instants, and of errors one that happened."""
    name, series, _, _ = panel
    dots = [course.series.get(each, []) for course in courses for each in series if each != "intended"]
    if name == "errors":
        return any(value for each in dots for _, value in each)
    return any(len(each) > 1 for each in dots)


def _panels(courses: Sequence[Course], panels: Sequence[tuple[str, tuple[str, ...], str, float]], shape: Shape) -> Json:
    across = [min(course.starts_s for course in courses), max(course.ends_s for course in courses)]
    drawn = []
    for place, (name, series, unit, factor) in enumerate(panels):
        values: list[Json] = [
            {
                "contender": course.contender,
                "series": "second" if each in DASHED else "first",
                "t": _short(at_s),
                "v": _short(value * factor),
            }
            for course in courses
            for each in series
            for at_s, value in _thinned(course.series.get(each, []))
        ]
        last = place == len(panels) - 1
        drawn.append(_panel(name, unit, values, across, shape, title="seconds" if last else None))
    return {"$schema": SCHEMA, "spacing": 8, "vconcat": drawn}


def _panel(
    name: str, unit: str, values: Sequence[Json], across: Sequence[float], shape: Shape, *, title: str | None
) -> Json:
    x: Json = {
        "field": "t",
        "type": "quantitative",
        "title": title,
        "scale": {"domain": [_short(each) for each in across], "nice": False},
        "axis": {"grid": False, "labels": title is not None, "ticks": title is not None},
    }
    y: Json = {
        "field": "v",
        "type": "quantitative",
        "title": [name, unit] if name != unit else [unit],
        "axis": {"tickCount": 3, "minExtent": 64, "titleX": -60, "format": "~s" if unit != "cores" else ".2~f"},
    }
    domain = list(shape.contenders)
    colour: Json = {"field": "contender", "type": "nominal", "scale": {"domain": domain}, "legend": None}
    dash: Json = {
        "field": "series",
        "type": "nominal",
        "scale": {"domain": ["first", "second"], "range": [[1, 0], [5, 3]]},
        "legend": None,
    }
    layers: list[Json] = []
    if across[0] < 0:
        shade = {"values": [{"t": _short(across[0]), "to": 0}]}
        mark: Json = {"type": "rect", "color": "#808890", "opacity": 0.18}
        layers.append({"data": shade, "mark": mark, "encoding": {"x": x, "x2": {"field": "to"}}})
    tooltip = [{"field": "contender"}, {"field": "t", "title": "s"}, {"field": "v", "title": unit}]
    line: Json = {"x": x, "y": y, "color": colour, "strokeDash": dash, "tooltip": tooltip}
    layers.append({"data": {"values": list(values)}, "mark": {"type": "line", "strokeWidth": 1.6}, "encoding": line})
    return {"width": WIDTH, "height": PANEL_HEIGHT, "layer": layers}


def _heat(courses: Sequence[Course]) -> Json:
    across = [0.0, max(course.ends_s for course in courses)]
    times = [us / 1e3 for course in courses for band in course.bands for us in (band.low_us, band.high_us) if us > 0]
    up = [_short(min(times)), _short(max(times))]  # one scale, so that contenders can be compared
    drawn = []
    for place, course in enumerate(courses):
        values = [
            {
                "t": _short(band.at_s),
                "to": _short(band.to_s),
                "low": max(up[0], _short(band.low_us / 1e3)),
                "high": max(up[0], _short(band.high_us / 1e3)),
                "share": f"{band.share} %",
            }
            for band in _binned(course.bands)
        ]
        last = place == len(courses) - 1
        x: Json = {
            "field": "t",
            "type": "quantitative",
            "title": "seconds" if last else None,
            "scale": {"domain": [_short(each) for each in across], "nice": False},
            "axis": {"grid": False, "labels": last, "ticks": last},
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


def _binned(bands: Sequence[Band]) -> list[Band]:
    """All seconds where they are few; else of each bin the second with the highest p99."""
    step = len(BANDS) - 1
    seconds = [bands[place : place + step] for place in range(0, len(bands), step)]
    size = -(-len(seconds) // BINS_MOST)
    bins = [seconds[place : place + size] for place in range(0, len(seconds), size or 1)]
    found: list[Band] = []
    for each in bins:
        worst = max(each, key=lambda second: second[-1].low_us)
        start, end = each[0][0].at_s, each[-1][0].to_s
        found += [
            Band(at_s=start, to_s=end, low_us=band.low_us, high_us=band.high_us, share=band.share) for band in worst
        ]
    return found


def _thinned(dots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = max(1, -(-len(dots) // DOTS_MOST))
    bins = [dots[place : place + size] for place in range(0, len(dots), size)]
    return [(sum(at for at, _ in each) / len(each), sum(value for _, value in each) / len(each)) for each in bins]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
