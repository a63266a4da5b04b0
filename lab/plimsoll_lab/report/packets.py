"""The section of packets: over time with TCP's flags and new endpoints, and in all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.over_time import Course
from plimsoll_lab.analysis.packets import FLAGS, TOTALS, Traffic
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.series import Panel, chosen, has_something, panels_spec, series_table
from plimsoll_lab.report.stops import contender_cell
from plimsoll_lab.report.view import Cell, Described, Drawing, Part, Section, Table, Text

PANELS = (
    Panel(name="packets", series=("packets",), unit="packets/s"),
    Panel(name="bits", series=("bits",), unit="Mbit/s", factor=1e-6),
    Panel(name="SYN", series=("syn",), unit="segments/s", may_be_zero=False),
    Panel(name="FIN", series=("fin",), unit="segments/s", may_be_zero=False),
    Panel(name="RST", series=("rst",), unit="segments/s", may_be_zero=False),
    Panel(name="PSH", series=("psh",), unit="segments/s", may_be_zero=False),
    Panel(name="endpoints", series=("new_endpoints",), unit="new/s", may_be_zero=False),
    Panel(name="retransmitted", series=("retransmissions",), unit="segments/s", may_be_zero=False),
)
"""Each panel where at least one capture has counted something."""
NOTE = (
    "Packets at the server's host, from the first one on: a capture begins before the window and ends after it, and "
    "its last interval may be a part of one. A point is shown by its valid trial with the median completed rate. On "
    "loopback, and before segments are cut, a packet is as large as the kernel hands it over."
)
HEADS = {
    "packets": "packets",
    "bytes": "bytes",
    "endpoints": "endpoints",
    **{name: name.upper() for name in FLAGS},
    **{name: name.replace("_", " ") for name in TOTALS},
}
"""The columns of the totals."""


def packet_charts(found: Mapping[str, Sequence[Traffic]], layout: MatrixLayout) -> dict[str, Described]:
    """By name, each chart."""
    made: dict[str, Described] = {}
    for number, level in enumerate(chosen(list(found))):
        here = [_course(each) for each in found[level] if len(each.series.get("packets", ())) > 1]
        drawn = [panel for panel in PANELS if has_something(panel, here)]
        if drawn:
            named = ", ".join(panel.name for panel in drawn)
            caption = f"Packets over time, {level}: {named}."
            made[f"packets-{number}"] = Described(
                spec=panels_spec(here, drawn, layout), caption=caption, data=series_table(caption, here, drawn)
            )
    return made


def _course(traffic: Traffic) -> Course:
    return Course(
        trial=traffic.trial,
        contender=traffic.contender,
        series=traffic.series,
        bands=(),
        starts_s=0.0,
        ends_s=traffic.ends_s,
    )


def section(
    found: Mapping[str, Sequence[Traffic]],
    charts: Mapping[str, Described],
    stills: Mapping[str, Markup],
    layout: MatrixLayout,
) -> Section:
    """The section; without parts where nothing was captured."""
    title = "Packets"
    if not found:
        return Section(name="packets", title=title)
    parts: list[Part] = [
        Drawing(name=name, svg=stills[name], caption=each.caption, data=each.data) for name, each in charts.items()
    ]
    if not charts:
        parts.append(Text(text="No chart: no capture has two intervals with packets."))
    absent = [panel.name for panel in PANELS if charts and not _drawn(panel, found)]
    if absent:
        parts.append(Text(text=f"Not drawn, as there was none: {', '.join(absent)}."))
    parts.append(_totals(found, layout))
    return Section(name="packets", title=title, note=NOTE, parts=parts)


def _drawn(panel: Panel, found: Mapping[str, Sequence[Traffic]]) -> bool:
    return has_something(panel, [_course(each) for here in found.values() for each in here])


def _totals(found: Mapping[str, Sequence[Traffic]], layout: MatrixLayout) -> Table:
    every = [each for here in found.values() for each in here]
    names = [name for name in HEADS if any(name in each.totals for each in every)]
    drops = any(each.drops for each in every)
    head = ("", *(HEADS[name] for name in names), *(("missed by the capture",) if drops else ()))
    rows: list[tuple[Cell, ...]] = []
    for level, here in found.items():
        if len(found) > 1:
            rows.append((Cell(text=level, heading=True, span=len(head)),))
        for each in here:
            own = contender_cell(each.contender, layout)
            cells = [Cell(text=_count(each.totals.get(name), name)) for name in names]
            missed = [Cell(text="-" if each.drops is None else f"{each.drops:,}")] if drops else []
            rows.append((own, *cells, *missed))
    caption = "What each capture saw in all; endpoints are pairs of address and port"
    return Table(caption=caption, head=head, rows=tuple(rows), style="numbers")


def _count(count: int | None, name: str) -> str:
    if count is None:
        return "-"
    return formatting.number(count, "bytes") if name == "bytes" else f"{count:,}"
