"""Where each contender stopped, and which stated limits were met, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.charts import Shape
from plimsoll_lab.report.view import Cell, Part, Table, Text
from plimsoll_lab.store.records import Json

OUTCOMES: Mapping[str | None, str] = {
    "hard_limit": "hard limit",
    "failed": "failed",
    "generator_limited": "generator limited",
    "invalid": "invalid",
    None: "not measured",
}
"""What is said of a point without a valid result."""


def stops_table(summary: Json, shape: Shape) -> list[Part]:
    """A row for each contender that stopped at a load."""
    if summary["capacities"]:
        return []
    stops = cast("list[Json]", summary["stops"])
    if not stops:
        return [Text(text="No server hit a limit at the loads of this suite.")]
    rows = tuple(
        (
            contender_cell(str(each["contender"]), shape),
            Cell(text=formatting.setting(cast("Json", each["at"]))),
            Cell(
                text="",
                badge=OUTCOMES[cast("str", each["outcome"])],
                tone=cast("str", each["outcome"]),
                detail=str(each["reason"]),
            ),
        )
        for each in stops
    )
    return [Table(caption="Where each one stops", head=("contender", "load", "outcome and reason"), rows=rows)]


def limits_table(summary: Json, figures: Mapping[str, Json]) -> list[Part]:
    """A row for each limit that the suite states, at each point."""
    stated = [limit for point in cast("list[Json]", summary["points"]) for limit in cast("list[Json]", point["limits"])]
    if not stated:
        return []
    rows = []
    for each in stated:
        unit = cast("str", figures[cast("str", each["figure"])]["unit"])
        mark = "met" if each["met"] else "missed"
        rows.append(
            (
                Cell(text=formatting.setting(cast("Json", each["point"])), heading=True),
                Cell(text=str(each["limit"])),
                Cell(text=formatting.number(cast("float | None", each["median"]), unit)),
                Cell(text="", badge=mark, tone=mark),
            )
        )
    return [Table(caption="The limits of the suite", head=("point", "limit", "median", "result"), rows=tuple(rows))]


def contender_cell(name: str, shape: Shape) -> Cell:
    """A row's name, with the contender's mark where there are several."""
    several = len(shape.contenders) > 1 and name in shape.contenders
    return Cell(text=name or "the server", mark=shape.contenders.index(name) if several else None, heading=True)
