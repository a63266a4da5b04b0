"""What happened within the runs of a chapter: response times by the connections up, and packets and
TCP's flags over time. Of each point one trial, the one with the median completed rate.

Series are kept as texts of numbers, a line each: as lists they would be most of the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from plimsoll_lab.analysis.over_time import typical_trials
from plimsoll_lab.analysis.packets import traffic
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.timelines import read_by_connections

Json = Mapping[str, Any]

FLAGS = ("syn", "fin", "rst", "retransmissions")
"""What is drawn of TCP beside packets: PSH and ACK stand in nearly all of them."""
COLUMNS = 3
"""Panels beside each other."""
WIDTH, HEIGHT = 180, 110
"""Of a panel."""


def courses_of(run: str) -> dict[str, Any]:
    """What a run tells of this, as it is kept; empty of a run without captures and request logs."""
    folder = RunFolder(path=Path(run))
    record, trials = folder.read_run(), folder.read_trials()
    packets = [
        {
            "point": level,
            **{name: _text(count for _, count in dots) for name, dots in each.series.items() if _drawn(name)},
        }
        | {"at_s": _text(at for at, _ in each.series["packets"])}
        for level, here in traffic(record, trials).items()
        for each in here
        if "packets" in each.series
    ]
    by_connections = []
    for level, _, trial in typical_trials(record, trials):
        steps = read_by_connections(folder.path, trial)
        if steps:
            up, took = _text(each.connections for each in steps), _text(each.response_time_us for each in steps)
            by_connections.append({"point": level, "connections": up, "response_time_us": took})
    found = {"packets": packets, "by_connections": by_connections}
    return {"courses": found} if packets or by_connections else {}


def lines(summary: Json, folder: Path) -> list[str]:
    """The pictures of it, written into the folder, as lines of the chapter."""
    kept = summary.get("courses") or {}
    found = []
    pictures = {
        "by-connections": ("Response time by the connections up as a request began", _by_connections(kept)),
        "packets": ("Packets a second over time", _over_time(kept, ("packets",), "packets a second")),
        "flags": ("TCP flags and retransmissions over time", _over_time(kept, FLAGS, "segments a second")),
    }
    for name, (title, values) in pictures.items():
        if values is not None:
            file = f"report-{summary['suite']}-{name}.svg"
            (folder / file).write_text(values, encoding="utf-8")
            found += [f"![{title}](results/{file})", ""]
    return found


def _drawn(name: str) -> bool:
    return name == "packets" or name in FLAGS


def _text(values: Iterable[float]) -> str:
    return " ".join(f"{value:.4g}" for value in values)


def _numbers(text: str) -> list[float]:
    return [float(each) for each in text.split()]


def _by_connections(kept: Json) -> str | None:
    values = [
        {"point": each["point"], "connections": up, "ms": took / 1e3}
        for each in kept.get("by_connections", ())
        for up, took in zip(_numbers(each["connections"]), _numbers(each["response_time_us"]), strict=True)
    ]
    return _panels(values, ("connections", "connections up"), ("ms", "mean response time, ms"), None)


def _over_time(kept: Json, names: Sequence[str], title: str) -> str | None:
    values = [
        {"point": each["point"], "at": at, "count": count, "of": name}
        for each in kept.get("packets", ())
        for name in names
        # What a run never saw is no line at zero.
        if any(_numbers(each.get(name, "")))
        for at, count in zip(_numbers(each["at_s"]), _numbers(each[name]), strict=True)
    ]
    return _panels(values, ("at", "seconds"), ("count", title), "of" if len(names) > 1 else None)


def _panels(values: Sequence[Json], x: tuple[str, str], y: tuple[str, str], colour: str | None) -> str | None:
    """A panel a point, each on its own scales: cases last from one second to a minute."""
    import vl_convert  # noqa: PLC0415 - loads a renderer

    if not values:
        return None
    encoding: dict[str, Any] = {
        "x": {"field": x[0], "type": "quantitative", "title": x[1]},
        "y": {"field": y[0], "type": "quantitative", "title": y[1]},
    }
    if colour is not None:
        encoding["color"] = {"field": colour, "type": "nominal", "title": None}
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": list(values)},
        "facet": {"field": "point", "type": "nominal", "title": None, "sort": None},
        "columns": COLUMNS,
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": WIDTH,
            "height": HEIGHT,
            "mark": {"type": "line", "point": {"size": 8}},
            "encoding": encoding,
        },
    }
    return str(vl_convert.vegalite_to_svg(json.dumps(spec)))
