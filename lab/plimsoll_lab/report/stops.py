"""Where each contender stopped, and which stated limits were met, as tables."""

from __future__ import annotations

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.view import Cell, Part, Table, Text
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary

MARKS = {True: ("met", "met"), False: ("missed", "missed"), None: ("cannot be told", "not-shown")}
"""How a limit is marked, and the tone of the mark."""


def stops_table(summary: RunSummary, layout: MatrixLayout) -> list[Part]:
    """A row for each contender that stopped at a load."""
    if summary.capacities:
        return []
    if not summary.stops:
        told = [point.outcome == "ok" for point in summary.points]
        where = "of this suite" if all(told) else "that have a result"
        return [Text(text=f"No server hit a limit at the loads {where}.")] if any(told) else []
    rows = tuple(
        (
            contender_cell(each.contender, layout),
            Cell(text=formatting.setting(each.at)),
            Cell(text="", badge=formatting.stop(each), tone=each.outcome, detail=str(each.reason)),
        )
        for each in summary.stops
    )
    return [Table(caption="Where each one stops", head=("contender", "load", "outcome and reason"), rows=rows)]


def limits_table(summary: RunSummary, run: RunRecord) -> list[Part]:
    """A row for each limit that the suite states, at each point."""
    rows = []
    for each in (limit for point in summary.points for limit in point.limits):
        unit = run.figure(each.figure).unit
        badge, tone = MARKS[each.met]
        rows.append(
            (
                Cell(text=formatting.setting(each.point), heading=True),
                Cell(text=each.limit),
                Cell(text=formatting.number(each.median, unit)),
                Cell(text=formatting.interval(each.median_ci95, unit)),
                Cell(text="", badge=badge, tone=tone),
            )
        )
    head = ("point", "limit", "median", "95 % interval", "result")
    return [Table(caption="The limits of the suite", head=head, rows=tuple(rows))] if rows else []


def contender_cell(name: str, layout: MatrixLayout) -> Cell:
    """A row's name, with the contender's mark where there are several."""
    several = len(layout.contenders) > 1 and name in layout.contenders
    return Cell(text=name or "the server", mark=layout.contenders.index(name) if several else None, heading=True)
