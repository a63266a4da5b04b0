"""The scores as tables, and the A/A controls that say how far they can be believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.charts import Shape
from plimsoll_lab.report.stops import contender_cell
from plimsoll_lab.report.view import Cell, Fold, Part, Table
from plimsoll_lab.store.records import Json

OPEN_UP_TO = 3
"""Tables that a page shows unasked."""


def scores_tables(summary: Json, shape: Shape, figures: Mapping[str, Json]) -> list[Part]:
    """A table a setting: the median of each contender with its interval; empty where nothing
    competes.
    """
    places: dict[str, list[Json]] = {}
    for cell in cast("list[Json]", summary["scores"]):
        places.setdefault(formatting.setting(cast("Json", cell["at"])), []).append(cell)
    tables = tuple(_table(place, here, shape, figures) for place, here in places.items())
    if len(tables) <= OPEN_UP_TO:
        return list(tables)
    return [Fold(title="The scores at each setting", parts=tables)]


def _table(place: str, cells: Sequence[Json], shape: Shape, figures: Mapping[str, Json]) -> Table:
    names = list(dict.fromkeys(cast("str", cell["figure"]) for cell in cells))
    contenders = list(dict.fromkeys(cast("str", cell["contender"]) for cell in cells))
    by = {(cell["contender"], cell["figure"]): cell for cell in cells}
    return Table(
        caption=f"Scores at {place}: the median with its 95 % interval, and how many times worse than the best",
        head=("contender", *(str(figures[name]["label"]) for name in names)),
        rows=tuple(
            (
                contender_cell(contender, shape),
                *(_cell(by.get((contender, name)), str(figures[name]["unit"])) for name in names),
            )
            for contender in contenders
        ),
    )


def _cell(cell: Json | None, unit: str) -> Cell:
    median = cast("float | None", cell["median"]) if cell else None
    if cell is None or median is None:
        return Cell(text="-")
    interval = cast("tuple[float, float] | None", cell["median_ci95"])
    within = f"[{formatting.number(interval[0], unit)}, {formatting.number(interval[1], unit)}]" if interval else ""
    text = formatting.number(median, unit)
    if cell["margin"] is None:
        return Cell(text=text, detail=within)
    ratio = formatting.ratio(cast("float", cell["margin"]), cast("tuple[float, float] | None", cell["margin_ci95"]))
    badge, tone = ("best", "better") if cell["best"] else ("level", "equivalent") if cell["level"] else ("", "")
    return Cell(text=text, detail=f"{within} {ratio} the best".strip(), badge=badge, tone=tone)


def controls_fold(controls: Sequence[Json], figures: Mapping[str, Json]) -> list[Part]:
    """What one server measured twice showed; empty for a suite without a control."""
    if not controls:
        return []
    rows = tuple(
        (
            Cell(text=str(figures[cast("str", each["figure"])]["label"]), heading=True),
            Cell(text=formatting.setting(cast("Json", each["at"]))),
            Cell(text=_ratio(each)),
            Cell(text="-" if each["floor"] is None else f"{cast('float', each['floor']):.1%}"),
            Cell(text="", badge="differs", tone="missed") if each["differs"] else Cell(text="alike"),
        )
        for each in controls
    )
    caption = (
        "The A/A control: the first contender, measured twice in every block. "
        "The noise floor is the ratio that 95 % of comparisons of equal servers stay below."
    )
    head = ("figure", "setting", "ratio to itself", "noise floor", "result")
    return [Fold(title="The A/A control", parts=(Table(caption=caption, head=head, rows=rows),))]


def _ratio(control: Json) -> str:
    return formatting.ratio(
        cast("float | None", control["ratio"]), cast("tuple[float, float] | None", control["ratio_ci95"])
    )
