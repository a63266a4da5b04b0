"""The verdicts as tables: for each figure and setting, who is best and how much worse each other
contender is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.charts import Shape
from plimsoll_lab.report.view import Cell, Part, Row, Table
from plimsoll_lab.store.records import Json


def verdicts_tables(summary: Json, shape: Shape, figures: Mapping[str, Json]) -> list[Part]:
    """One table a setting; a row a figure. Empty where nothing competes."""
    places: dict[str, list[Json]] = {}
    for verdict in cast("list[Json]", summary["verdicts"]):
        places.setdefault(formatting.setting(cast("Json", verdict["at"])), []).append(verdict)
    return [_table(place, verdicts, shape, figures) for place, verdicts in places.items()]


def _table(place: str, verdicts: list[Json], shape: Shape, figures: Mapping[str, Json]) -> Table:
    return Table(
        caption=f"Who is best at {place}",
        head=("figure", "may be best", "at least how many times worse the others are", "verdict and reason"),
        rows=tuple(_row(verdict, shape, figures) for verdict in verdicts),
    )


def _row(verdict: Json, shape: Shape, figures: Mapping[str, Json]) -> Row:
    figure = figures[cast("str", verdict["figure"])]
    best = cast("list[str]", verdict["best"])
    call = cast("str", verdict["call"])
    mark = shape.contenders.index(best[0]) if len(best) == 1 and best[0] in shape.contenders else None
    return (
        Cell(text=str(figure["label"]), detail=f"{figure['better']} is better", heading=True),
        Cell(text=formatting.best(verdict) or "-", mark=mark),
        Cell(text=formatting.others(verdict) or "-"),
        Cell(text="", badge=call, tone=call.replace(" ", "-"), detail=str(verdict["reason"] or "")),
    )
