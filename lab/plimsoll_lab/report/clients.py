"""The section of clients: a strip chart of the connect time, the exchange time and the failures of
each.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.clients import Strip
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.view import Cell, Described, Drawing, Part, Row, Section, Table, Text
from plimsoll_lab.store.records import Json

TICKS_MOST = 150
"""Of more clients of a contender this many are drawn, evenly spaced by rank: a screen shows no
more."""
WIDTH, ROW_HEIGHT = 210, 26
PARTS = ("least", "median", "greatest")
COUNTS_MOST = 6
"""Marks on the axis of failures, whose numbers are whole."""
NOTE = (
    "A point is shown by the valid trial with its median completed rate. Each tick is a client. Times are of the "
    "clients that succeeded: of their last connect, and of all exchanges of their last sequence together. A circle is "
    "as large as the number of clients that had this many failures: connects, sequences and exchanges."
)


def strip_charts(strips: Mapping[str, Sequence[Strip]], layout: MatrixLayout) -> dict[str, Described]:
    """By name, each chart."""
    found = {}
    for number, (level, here) in enumerate(strips.items()):
        caption = f"Each client, {level}: connect time, exchange time and failures."
        found[f"clients-{number}"] = Described(spec=_spec(here, layout), caption=caption, data=_table(caption, here))
    return found


def _table(caption: str, strips: Sequence[Strip]) -> Table:
    """A row a contender: the least, the median and the greatest of each time, and the failures."""
    rows: list[Row] = []
    for strip in strips:
        failures = ", ".join(f"{clients:,} with {count}" for count, clients in sorted(strip.failures.items()))
        cells = (f"{len(strip.connect_us):,}", *_spread(strip.connect_us), *_spread(strip.exchange_us), failures)
        who = "clients" if strip.contender == "all" else strip.contender
        rows.append((Cell(text=who, heading=True), *(Cell(text=each) for each in cells)))
    head = ("", "succeeded", *(f"{part} {time}" for time in ("connect", "exchange") for part in PARTS), "failures")
    return Table(caption=caption, head=head, rows=tuple(rows), style="numbers")


def _spread(times_us: Sequence[float]) -> tuple[str, ...]:
    if not times_us:
        return ("-",) * len(PARTS)
    return tuple(formatting.number(of(times_us), "us") for of in (min, statistics.median, max))


def section(
    strips: Mapping[str, Sequence[Strip]], charts: Mapping[str, Described], stills: Mapping[str, Markup]
) -> Section:
    """The section; without parts where no generator recorded its connections."""
    parts: list[Part] = [
        Drawing(name=name, svg=stills[name], caption=each.caption, data=each.data) for name, each in charts.items()
    ]
    most = max((len(strip.connect_us) for here in strips.values() for strip in here), default=0)
    if most > TICKS_MOST:
        told = f"Of more than {TICKS_MOST} clients, {TICKS_MOST} are drawn, evenly spaced by rank. The table "
        parts.append(Text(text=told + "`connections` of `plimsoll lab query` has all."))
    return Section(name="clients", title="Every client of a trial", note=NOTE, parts=parts)


def _spec(strips: Sequence[Strip], layout: MatrixLayout) -> Json:
    rows: Json = {
        "field": "contender",
        "type": "nominal",
        "title": None,
        "scale": {"domain": [each.contender for each in strips]},
    }
    colour: Json = {
        "field": "contender",
        "type": "nominal",
        "scale": {"domain": list(layout.contenders)},
        "legend": None,
    }
    connect = [(each.contender, each.connect_us) for each in strips]
    exchange = [(each.contender, each.exchange_us) for each in strips]
    failures: list[Json] = [
        {"contender": each.contender, "failures": count, "clients": clients}
        for each in strips
        for count, clients in sorted(each.failures.items())
    ]
    most = max(1, *(count for each in strips for count in each.failures))
    sizes = [clients for each in strips for clients in each.failures.values()]
    unnamed = rows | {"axis": {"labels": False, "ticks": False}}
    return {
        "$schema": SCHEMA,
        "spacing": 24,
        "hconcat": [
            _times("connect time, ms", connect, rows, colour),
            _times("exchange time, ms", exchange, unnamed, colour),
            {
                "width": WIDTH,
                "height": {"step": ROW_HEIGHT},
                "data": {"values": failures},
                "mark": {"type": "circle", "opacity": 0.7},
                "encoding": {
                    "x": {
                        "field": "failures",
                        "type": "quantitative",
                        "title": "failures of a client",
                        "scale": {"domain": [0, most], "nice": False, "padding": 12},
                        "axis": {"values": [*range(0, most + 1, -(-most // COUNTS_MOST))], "format": "d"},
                    },
                    "y": unnamed,
                    "color": colour,
                    "size": {
                        "field": "clients",
                        "type": "quantitative",
                        "title": "clients",
                        # Of all panels, below them, so that it takes none of their width.
                        "legend": {"values": sorted({min(sizes), max(sizes)}), "orient": "bottom"},
                    },
                    "tooltip": [{"field": each} for each in ("contender", "failures", "clients")],
                },
            },
        ],
    }


def _times(title: str, times_us: Sequence[tuple[str, Sequence[float]]], rows: Json, colour: Json) -> Json:
    values: list[Json] = [
        {"contender": contender, "ms": float(f"{us / 1e3:.5g}")}
        for contender, every in times_us
        for us in _by_rank(every)
        # A logarithmic axis has no place for a client without a single exchange.
        if us > 0
    ]
    return {
        "width": WIDTH,
        "height": {"step": ROW_HEIGHT},
        "data": {"values": values},
        "mark": {"type": "tick", "thickness": 1.5, "opacity": 0.5},
        "encoding": {
            "x": {
                "field": "ms",
                "type": "quantitative",
                "title": title,
                "scale": {"type": "log", "nice": False, "padding": 8},
                "axis": {"tickCount": 4, "format": ",.3~r"},
            },
            "y": rows,
            "color": colour,
            "tooltip": [{"field": "contender"}, {"field": "ms"}],
        },
    }


def _by_rank(ordered: Sequence[float]) -> Sequence[float]:
    """All, or as many as are drawn, evenly spaced by rank, the first and the last among them."""
    if len(ordered) <= TICKS_MOST:
        return ordered
    return [ordered[round(place * (len(ordered) - 1) / (TICKS_MOST - 1))] for place in range(TICKS_MOST)]
