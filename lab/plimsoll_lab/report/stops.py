"""Where each contender stopped, and which stated limits were met, as tables."""

from __future__ import annotations

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.view import Cell, Part, Table, Text
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary


def stops_table(summary: RunSummary, layout: MatrixLayout) -> list[Part]:
    """A row for each contender that stopped at a load."""
    if summary.capacities:
        return []
    if not summary.stops:
        return [Text(text="No server hit a limit at the loads of this suite.")]
    rows = tuple(
        (
            contender_cell(each.contender, layout),
            Cell(text=formatting.setting(each.at)),
            Cell(text="", badge=formatting.outcome(each.outcome), tone=each.outcome, detail=str(each.reason)),
        )
        for each in summary.stops
    )
    return [Table(caption="Where each one stops", head=("contender", "load", "outcome and reason"), rows=rows)]


def limits_table(summary: RunSummary, run: RunRecord) -> list[Part]:
    """A row for each limit that the suite states, at each point."""
    rows = []
    for each in (limit for point in summary.points for limit in point.limits):
        mark = "met" if each.met else "missed"
        rows.append(
            (
                Cell(text=formatting.setting(each.point), heading=True),
                Cell(text=each.limit),
                Cell(text=formatting.number(each.median, run.figure(each.figure).unit)),
                Cell(text="", badge=mark, tone=mark),
            )
        )
    head = ("point", "limit", "median", "result")
    return [Table(caption="The limits of the suite", head=head, rows=tuple(rows))] if rows else []


def contender_cell(name: str, layout: MatrixLayout) -> Cell:
    """A row's name, with the contender's mark where there are several."""
    several = len(layout.contenders) > 1 and name in layout.contenders
    return Cell(text=name or "the server", mark=layout.contenders.index(name) if several else None, heading=True)
