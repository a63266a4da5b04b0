"""The figures of a kept run: which a chapter shows, the document's beside ours, and along what they
are drawn.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from typing import Any

import three_servers
from report_plots import OURS, THEIRS

from plimsoll_lab.analysis import formatting
from plimsoll_lab.suite.drawn import TIMES, quantity
from plimsoll_lab.suite.shipped import find

TABLED = {
    "epoll-scaling": ("requests.completed", "bytes_sent", "endpoints", "capture.packets_per_s_swing"),
    "three-servers": three_servers.KEPT,
}
"""Figures of a suite that its table has besides: what the document tells of each case."""
DRAWN = {
    "tcpbenchmark": ("tcpbenchmark.connect_time_s.average", "tcpbenchmark.send_recv_time_s.average", "elapsed_s"),
    "three-servers": (
        *("connections.established", "response_time_us.mean", "server.cpu_us_per_request", "server.memory_bytes"),
    ),
    "epoll-scaling": ("response_time_us.mean", "elapsed_s", "packets_per_s"),
}
"""Of a suite whose document states many figures those that are drawn over its axes."""
FETCHED = (
    *("completed_rate", "goodput_bits_per_s", "establishment_time_us.mean", "transmission_time_us.mean"),
    "connection_and_transmission_us",
)
"""Both readings of throughput; connection and transmission time apart and together."""
FURTHER = {
    "http-saturation-size": FETCHED,
    "http-saturation-bandwidth": FETCHED,
    "http-saturation-versions": FETCHED,
    "http-saturation-ladder": ("server.cpu_cores", "server.cpu_cores_min", "host.load_average"),
    "port-fwd-255": ("completed_rate", "role.forwarder.cpu_cores"),
    "port-fwd-4000": ("completed_rate", "role.forwarder.cpu_cores"),
}
"""Figures of a suite that are drawn and tabled besides those that it states or claims."""
LEGS = "read as legs"
"""How the remark of a reference begins whose connections were counted at the forwarder, two for
each of a client."""
LEAST_ALONG = 3
"""An axis with fewer values is no line."""

Json = Mapping[str, Any]


def is_of_a_client(figure: str) -> bool:
    """Whether a figure is of one host of the generators: those are kept of points with a name."""
    return figure.startswith("client.")


def figures_of(summary: Json) -> list[str]:
    """The figures that the document states or claims, in the order of the suite, and further ones;
    else the rate and the response time.
    """
    named = [each["figure"] for each in (*summary["references"], *summary["claims"])]
    named += FURTHER.get(summary["suite"], ())
    return list(dict.fromkeys(named)) or ["completed_rate", "response_time_us.mean"]


def label(setting: Json) -> str:
    """A point's setting in one line, as the page has it."""
    return formatting.setting(setting)


def number(value: float | None) -> str:
    """Three significant digits, with thousands in groups."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def theirs(summary: Json, figure: str, setting: Json) -> dict[str, float]:
    """The document's figure at a point, where it states one of this point alone, by whose it is: a
    figure may be read in two ways.
    """
    found: dict[str, float] = {}
    for each in (reference for reference in summary["references"] if reference["figure"] == figure):
        here = [point["point"] for point in summary["points"] if is_at(point["point"], each["at"])]
        if here == [setting]:
            legs = str(each.get("text", "")).startswith(LEGS)
            found.setdefault(f"{THEIRS}, {LEGS}" if legs else THEIRS, float(each["value"]))
    return found


def is_at(setting: Json, place: Json) -> bool:
    """Whether a point is the one that a document speaks of."""
    return all(str(setting.get(path)) == str(at) for path, at in place.items())


def axis_of(summary: Json) -> tuple[str, str] | None:
    """The path of the points' settings along which a figure is drawn, and its unit: the one with
    most values, all of them numbers; None where no path has three. Most points have it: those that
    do not are left out of the picture.
    """
    found: dict[str, tuple[int, str]] = {}
    for path in {path for point in summary["points"] for path in point["point"]}:
        read = [quantity(path, point["point"][path]) for point in summary["points"] if path in point["point"]]
        known = [each for each in read if each is not None]
        if len(known) == len(read) > len(summary["points"]) / 2 and len({each[1] for each in known}) == 1:
            found[path] = (len({each[0] for each in known}), known[0][1])
    path = max(found, key=lambda each: found[each][0], default=None)
    return (path, found[path][1]) if path is not None and found[path][0] >= LEAST_ALONG else None


def axes_of(summary: Json, figure: str) -> tuple[str, str] | None:
    """What a figure is drawn along: the product that the suite draws it over, where there is one;
    else the axis of the points.
    """
    charts = tomllib.loads(find(summary["suite"]).read_text(encoding="utf-8")).get("chart", [])
    products = [each["over"] for each in charts if each["figure"] == figure and TIMES in each["over"]]
    found = [at for point in summary["points"] for path in products if (at := place_along(path, point["point"]))]
    return (products[0], found[0][1]) if found else axis_of(summary)


def along_of(summary: Json, figure: str) -> list[tuple[str, str] | None]:
    """All that a figure is drawn along: each path that the suite draws it over, where there are
    several; else one axis.
    """
    charts = tomllib.loads(find(summary["suite"]).read_text(encoding="utf-8")).get("chart", [])
    paths = [each["over"] for each in charts if each["figure"] == figure and TIMES not in each["over"]]
    places = {path: [at for point in summary["points"] if (at := place_along(path, point["point"]))] for path in paths}
    found = [(path, here[0][1]) for path, here in places.items() if len(set(here)) >= LEAST_ALONG]
    return [*found] if len(found) > 1 else [axes_of(summary, figure)]


def place_along(path: str, setting: Json) -> tuple[float, str] | None:
    """Where a point stands along a path, or along the product of two, and in which unit; None of
    one that lacks it.
    """
    found = [quantity(each, setting[each]) for each in path.split(TIMES) if each in setting]
    known = [each for each in found if each is not None]
    if len(known) < len(path.split(TIMES)):
        return None
    there = sorted(unit for _, unit in known if unit)
    return math.prod(value for value, _ in known), "bit" if there == ["bit/s", "s"] else " ".join(there)


def dots(summary: Json, figure: str, along: str | None) -> list[dict[str, Any]]:
    """Ours and theirs of one figure, a dot a point; `along` is the path of the axis."""
    found = []
    for point in summary["points"]:
        at = place_along(along, point["point"]) if along is not None else None
        if along is not None and at is None:
            continue
        # A point without a result may have figures of a few of its trials.
        own = point["figures"].get(figure) if point["outcome"] == "ok" else None
        whose = f"{OURS}, doubtful" if point.get("doubtful") else OURS
        values = ({whose: own["mean"]} if own else {}) | theirs(summary, figure, point["point"])
        for who, value in values.items():
            if value <= 0:
                continue
            # Of a product the first path is drawn along: points that differ in the second are no
            # line.
            drawn = along.partition(TIMES)[0] if along is not None else None
            rest = {path: each for path, each in point["point"].items() if path not in {drawn, "point"}}
            dot = {"point": label(point["point"]), "series": label(rest) if rest else "", "whose": who, "value": value}
            found.append(dot | ({"at": at[0]} if at is not None else {}))
    return found
