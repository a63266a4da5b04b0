"""The parts of the chapter about three-servers that no other report has: its eight figures by name,
its tables a client host, and its verdict table, from the points at the document's own loads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from report_plots import OURS, THEIRS, plot, shown

Json = Mapping[str, Any]

MODELS = ("threads", "select", "epoll")
"""Its three servers. Each has a point of its name, at its own load."""
HOSTS = ("h2", "h3", "h4", "h5")
"""Its client hosts 1 to 4."""
COMPARED = HOSTS[:2]
"""The client hosts that all three servers had."""
EQUAL = 800
"""Of the loads that all servers had alike, the one that each of them carried."""
COLUMNS = {
    "connections.established": "clients",
    "requests.completed": "requests",
    "response_time_us.mean": "mean time",
    "memory_bytes": "memory",
    "cpu_cores": "CPU",
}
"""Of a client host, by figure: a column of the document's tables."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One of the document's eight."""

    number: int
    """Its number there."""
    about: str
    """What it shows."""
    name: str
    """The figure; of each client host below `client.HOST`."""
    higher: bool
    """Whether more is better."""
    winner: str
    """Whose the document says it is."""
    a_host: bool = False
    """Whether it is told of each client host."""

    def names(self) -> list[str]:
        """The figures by which it is decided."""
        return [f"client.{host}.{self.name}" for host in COMPARED] if self.a_host else [self.name]


FIGURES = (
    Figure(
        number=1,
        about="most clients, by client host",
        name="connections.established",
        higher=True,
        winner="epoll",
        a_host=True,
    ),
    Figure(
        number=2,
        about="most requests, by client host",
        name="requests.completed",
        higher=True,
        winner="epoll",
        a_host=True,
    ),
    Figure(
        number=3,
        about="mean time of a request, by client host",
        name="response_time_us.mean",
        higher=False,
        winner="threads",
        a_host=True,
    ),
    Figure(number=4, about="most clients of a server", name="server.peak_connections", higher=True, winner="epoll"),
    Figure(number=5, about="most requests of a server", name="requests.completed", higher=True, winner="epoll"),
    Figure(number=6, about="mean time of a request", name="response_time_us.mean", higher=False, winner="threads"),
    Figure(number=7, about="processing power", name="server.cpu_cores", higher=False, winner="epoll"),
    Figure(number=8, about="memory of the server's host", name="host.memory_bytes", higher=False, winner="select"),
)

KEPT = (
    *(figure.name for figure in FIGURES if not figure.a_host),
    *("requests.due", "connections.established"),
    *(f"client.{host}.{name}" for host in HOSTS for name in COLUMNS),
)
"""Figures of a run that this part of the chapter needs."""


def lines(summary: Json, folder: Path) -> list[str]:
    """The eight figures, the tables and the verdicts; pictures are written into the folder."""
    points = {model: point for model in MODELS if (point := own_point(summary, model)) is not None}
    if not points:
        return ["No run with the points at the document's own loads is kept yet.", "", *_verdicts(summary, points)]
    found = ["Its eight figures, each server at its own load a host:", ""]
    for figure in FIGURES:
        values = [dot for model, point in points.items() for dot in _dots(summary, figure, model, point)]
        whose = {each["whose"] for each in values}
        if OURS in whose:
            name = f"report-three-servers-figure-{figure.number}.svg"
            (folder / name).write_text(plot(values, figure.name, None), encoding="utf-8")
            title = f"Figure {figure.number}, {figure.about}" + (f", {OURS} and {THEIRS}" if THEIRS in whose else "")
            found += [f"![{title}](results/{name})", ""]
    return [*found, *_due(summary, points), *_hosts(summary, points), *_verdicts(summary, points)]


def own_point(summary: Json, model: str) -> Json | None:
    """The point at the document's own load of one of its servers."""
    named = f"{model} at its load"
    return next((point for point in summary["points"] if point["point"].get("point") == named), None)


def stated(summary: Json, figure: str, point: Json) -> float | None:
    """The document's figure of a point of its own."""
    name = point["point"].get("point")
    here = (each for each in summary["references"] if each["figure"] == figure and each["at"] == {"point": name})
    return next((float(each["value"]) for each in here), None)


def _dots(summary: Json, figure: Figure, model: str, point: Json) -> list[dict[str, Any]]:
    rows = {model: figure.name}
    if figure.a_host:
        rows = {f"{model}, client {number}": f"client.{host}.{figure.name}" for number, host in enumerate(HOSTS, 1)}
    found = []
    for row, name in rows.items():
        own = _mean(point, name)
        for whose, value in ((OURS, own), (THEIRS, stated(summary, name, point))):
            if value is not None and value > 0:
                found.append({"point": row, "series": "", "whose": whose, "value": value})
    return found


def _mean(point: Json, name: str) -> float | None:
    own = point["figures"].get(name)
    return float(own["mean"]) if own else None


def _due(summary: Json, points: Mapping[str, Json]) -> list[str]:
    """What was asked for beside what was answered."""
    names = ("requests.due", "requests.completed", "connections.established")
    rows = ["| server | requests due | requests made | clients due | clients established |", "|---|---|---|---|---|"]
    for model, point in points.items():
        due, made, established = (_cell(summary, name, point, 1.0) for name in names)
        rows.append(f"| {model} | {due} | {made} | {point['point']['load.connections']:,} | {established} |")
    return ["What was due beside what was made; the document's, of which the due ones are theoretical:", "", *rows, ""]


def _hosts(summary: Json, points: Mapping[str, Json]) -> list[str]:
    """A table a server: a row a client host, theirs in brackets."""
    found = []
    for model, point in points.items():
        factors, heads = [], []
        for name, words in COLUMNS.items():
            values = [each for host in HOSTS for each in _both(summary, f"client.{host}.{name}", point)]
            factor, heading = shown(f"client.{HOSTS[0]}.{name}", values)
            unit = heading.rpartition(" (")[2].rstrip(")") if heading.endswith(")") else ""
            factors.append(factor)
            heads.append(f"{words} ({unit})" if unit else words)
        found += [f"The {model} server, by client host; the document's in brackets:", ""]
        found += ["| client | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
        for number, host in enumerate(HOSTS, 1):
            cells = [
                _cell(summary, f"client.{host}.{name}", point, factor)
                for name, factor in zip(COLUMNS, factors, strict=True)
            ]
            if set(cells) != {"-"}:
                found.append(f"| {number} | " + " | ".join(cells) + " |")
        found.append("")
    return found


def _both(summary: Json, name: str, point: Json) -> list[float]:
    return [value for value in (_mean(point, name), stated(summary, name, point)) if value is not None]


def _cell(summary: Json, name: str, point: Json, factor: float) -> str:
    own, other = _mean(point, name), stated(summary, name, point)
    said = "-" if own is None else _digits(factor * own)
    return said + (f" ({_digits(factor * other)})" if other is not None else "")


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def winner(figure: Figure, points: Mapping[str, Json]) -> str:
    """Whose a figure is: the best by every host, wherever its interval of 95 % meets no other's."""
    told = {
        model: [point["figures"][name] for name in figure.names()]
        for model, point in points.items()
        if all(name in point["figures"] for name in figure.names())
    }
    if len(told) < 2:  # noqa: PLR2004 - one has no rival
        return "-"
    sign = 1 if figure.higher else -1
    best = max(told, key=lambda model: sign * told[model][0]["mean"])
    rivals = [each for model, each in told.items() if model != best]
    ahead = all(_ahead(one, other, sign) for each in rivals for one, other in zip(told[best], each, strict=True))
    lacking = [model for model in points if model not in told]
    said = best if ahead else "cannot be told"
    return said + (f" ({' and '.join(lacking)} without a result)" if lacking else "")


def _ahead(one: Json, other: Json, sign: int) -> bool:
    """Whether the whole interval of one lies beyond that of the other; of a figure without an
    interval, the mean.
    """
    low, high = ((each.get("mean_ci95") or [each["mean"]] * 2) for each in (one, other))
    return bool(low[0] > high[1]) if sign > 0 else bool(low[1] < high[0])


def _verdicts(summary: Json, points: Mapping[str, Json]) -> list[str]:
    """Who wins which figure: there, here at the same loads, and here where all had one load."""
    alike = {
        model: point
        for model in MODELS
        for point in summary["points"]
        if point["point"].get("server.model") == model
        and point["point"].get("load.connections") == EQUAL
        and "point" not in point["point"]
    }
    rows = [
        "Who wins which of its figures; a figure is won where no other server's interval of 95 % meets the winner's:",
        "",
        f"| figure | about | theirs | ours, at its loads | ours, all with {EQUAL:,} clients |",
        "|---|---|---|---|---|",
    ]
    sides: list[list[str]] = [[], [], []]
    for figure in FIGURES:
        told = (figure.winner, winner(figure, points), winner(figure, alike) if not figure.a_host else "-")
        for side, each in zip(sides, told, strict=True):
            side.append(each.partition(" (")[0])
        rows.append(f"| {figure.number} | {figure.about} | " + " | ".join(told) + " |")
    totals = (
        ", ".join(f"{model} {side.count(model)}" for model in MODELS) if set(side) - {"-"} else "-" for side in sides
    )
    return [*rows, "| in all | | " + " | ".join(totals) + " |", ""]
