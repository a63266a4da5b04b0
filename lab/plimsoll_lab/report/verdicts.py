"""The verdicts as tables: for each figure and setting, who is best and how much worse each other
contender is.
"""

from __future__ import annotations

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.view import Cell, Part, Row, Table
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary, VerdictRecord


def verdicts_tables(summary: RunSummary, layout: MatrixLayout, run: RunRecord) -> list[Part]:
    """One table a setting; a row a figure. Empty where nothing competes."""
    places: dict[str, list[VerdictRecord]] = {}
    for verdict in summary.verdicts:
        places.setdefault(formatting.setting(verdict.at), []).append(verdict)
    return [
        Table(
            caption=f"Who is best at {place}",
            head=("figure", "may be best", "at least how many times worse the others are", "verdict and reason"),
            rows=tuple(_row(verdict, layout, run) for verdict in verdicts),
        )
        for place, verdicts in places.items()
    ]


def _row(verdict: VerdictRecord, layout: MatrixLayout, run: RunRecord) -> Row:
    figure, best, call = run.figure(verdict.figure), verdict.best, verdict.call
    mark = layout.contenders.index(best[0]) if len(best) == 1 and best[0] in layout.contenders else None
    return (
        Cell(text=figure.label, detail=f"{figure.better} is better", heading=True),
        Cell(text=formatting.best(verdict) or "-", mark=mark),
        Cell(text=formatting.others(verdict) or "-"),
        Cell(text="", badge=call, tone=call.replace(" ", "-"), detail="; ".join(_reasons(verdict))),
    )


def _reasons(verdict: VerdictRecord) -> list[str]:
    """Why the verdict is what it is, and why contenders with figures are not in it."""
    told = formatting.unranked(verdict)
    if not told or told in verdict.reason or set(verdict.unranked.values()) == {verdict.reason}:
        return [verdict.reason]
    return [verdict.reason, f"not compared: {told}"]
