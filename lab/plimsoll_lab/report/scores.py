"""The scores as tables, and the A/A controls that say how far they can be believed."""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.stops import contender_cell
from plimsoll_lab.report.view import Cell, Fold, Part, Table, Text
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import ControlRecord, RunSummary, ScoreRecord

OPEN_UP_TO = 3
"""Tables that a page shows unasked."""
COUNTED = (
    "Verdicts and scores count the trials that the generator limited: their rates as lower bounds, and what the server "
    "used as it is. The medians of points, further below, leave these trials out."
)
"""Why a score's median may differ from its point's."""


def scores_tables(summary: RunSummary, layout: MatrixLayout, run: RunRecord) -> list[Part]:
    """A table a setting: the median of each contender with its interval; empty where nothing
    competes.
    """
    places: dict[str, list[ScoreRecord]] = {}
    for cell in summary.scores:
        places.setdefault(formatting.setting(cell.at), []).append(cell)
    tables = tuple(_table(place, here, layout, run) for place, here in places.items())
    limited = any(row.outcome == "generator_limited" for row in summary.left_out)
    told = [Text(text=COUNTED)] if tables and limited else []
    if len(tables) <= OPEN_UP_TO:
        return [*told, *tables]
    return [*told, Fold(title="The scores at each setting", parts=tables)]


def _table(place: str, cells: Sequence[ScoreRecord], layout: MatrixLayout, run: RunRecord) -> Table:
    figures = [run.figure(name) for name in dict.fromkeys(cell.figure for cell in cells)]
    by = {(cell.contender, cell.figure): cell for cell in cells}
    return Table(
        caption=f"Scores at {place}: the median with its 95 % interval, and how many times worse than the best",
        head=("contender", *(each.label for each in figures)),
        rows=tuple(
            (contender_cell(contender, layout), *(_cell(by.get((contender, each.name)), each.unit) for each in figures))
            for contender in dict.fromkeys(cell.contender for cell in cells)
        ),
    )


def _cell(score: ScoreRecord | None, unit: str) -> Cell:
    if score is None or score.median is None:
        return Cell(text="-")
    interval = score.median_ci95
    ends = zip(interval, formatting.OUTWARDS, strict=True) if interval else ()
    within = ", ".join(formatting.number(end, unit, way) for end, way in ends)
    within = f"[{within}]" if within else ""
    bound = "at most " if score.at_most else "at least " if score.censored else ""
    text = f"{bound}{formatting.number(score.median, unit, formatting.TOWARD[bound])}"
    if score.margin is None:
        return Cell(text=text, detail=within)
    ratio = formatting.ratio(score.margin, score.margin_ci95)
    badge, tone = ("best", "better") if score.best else ("level", "equivalent") if score.level else ("", "")
    # Of the best itself the ratio without an interval says nothing.
    told = "" if ratio == "1.000x" else f"{ratio} the best"
    return Cell(text=text, detail=f"{within} {told}".strip(), badge=badge, tone=tone)


def controls_fold(controls: Sequence[ControlRecord], run: RunRecord) -> list[Part]:
    """What one server measured twice showed; empty for a suite without a control."""
    if not controls:
        return []
    rows = tuple(
        (
            Cell(text=run.figure(each.figure).label, heading=True),
            Cell(text=formatting.setting(each.at)),
            Cell(text=formatting.ratio(each.ratio, each.ratio_ci95)),
            Cell(text="-" if each.floor is None else formatting.percent(each.floor)),
            Cell(text="", badge="differs", tone="missed") if each.differs else Cell(text="alike"),
        )
        for each in controls
    )
    caption = (
        "The A/A control: the first contender, measured twice in every block. "
        "The noise floor is the ratio that 95 % of comparisons of equal servers stay below."
    )
    head = ("figure", "setting", "ratio to itself", "noise floor", "result")
    return [Fold(title="The A/A control", parts=(Table(caption=caption, head=head, rows=rows),))]
