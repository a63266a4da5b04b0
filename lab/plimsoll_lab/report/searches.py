"""What a run's searches have found, as tables: every load that was tried, and an overview of the
servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.searches import limits_text, over
from plimsoll_lab.report.view import Cell, Fold, Part, Table, Text
from plimsoll_lab.store.records import Json


def table_of_loads(run: Json, search: Json) -> list[list[str]]:
    """A head and a row a load: how many trials met the limits, and the medians."""
    rows = cast("list[Json]", search.get("loads") or [])
    figures = {cast("str", each["name"]): each for each in cast("list[Json]", run["figures"])}
    names = list(dict.fromkeys(name for row in rows for name in cast("Json", row["medians"])))
    table = [[over(run), "met", *(str(figures[name]["label"]) for name in names)]]
    for row in rows:
        found = cast("dict[str, float]", row["medians"])
        cells = [formatting.number(found.get(name), str(figures[name]["unit"])) for name in names]
        table.append([f"{row['load']:,}", f"{row['good']}/{row['trials']}", *cells])
    return table


def render_searches(summary: Json, run: Json) -> list[str]:
    """The tables for the terminal: one for each search where there are few, else a row each."""
    searches = [each for each in cast("list[Json]", run["searches"]) if each.get("loads")]
    if len(searches) > 1:
        return ["", *_aligned(_overview(summary))]
    return [line for each in searches for line in ["", *_aligned(table_of_loads(run, each))]]


def _overview(summary: Json) -> list[list[str]]:
    table = [["", "carries", "not", "searches", "spread", "limited by", "what breaks first"]]
    for each in cast("list[Json]", summary["capacities"]):
        lower, upper, spread = (cast("float | None", each[key]) for key in ("lower", "upper", "spread"))
        table.append(
            [
                formatting.setting(cast("Json", each["point"])) if each["point"] else "",
                "-" if lower is None else f"{lower:,}",
                "-" if upper is None else f"{upper:,}",
                f"{each['ended']}/{each['searches']}",
                "-" if spread is None else f"{spread:.1%}",
                str(each["limited_by"] or "-"),
                str(each["first_break"] or "-"),
            ]
        )
    return table


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    last = len(widths) - 1
    return [
        "  ".join(
            cell if column == last and not cell[:1].isdigit() else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in table
    ]


def searches_section(summary: Json, run: Json) -> list[Part]:
    """The parts of the page; none for a run that searched for nothing."""
    if not run.get("searches"):
        return []
    searches = [each for each in cast("list[Json]", run["searches"]) if each.get("loads")]
    parts: list[Part] = [Text(text=_note(run)), _view(_overview(summary), "Capacity of each server")]
    for each in searches:
        title = formatting.setting(cast("Json", each["setting"])) if each.get("setting") else "The search"
        table = _view(table_of_loads(run, each), f"{title}, search {each['block']}: every load that was tried")
        parts.append(Fold(title=table.caption, parts=(table,), is_open=len(searches) == 1))
    return parts


def _note(run: Json) -> str:
    ceilings = [
        ceiling
        for each in cast("list[Json]", run["searches"])
        if (ceiling := cast("float | None", each.get("generator_ceiling_per_s")))
    ]
    told = (
        f" The generator itself completes {formatting.number(max(ceilings), 'per_s')} against a null server here."
        if ceilings
        else ""
    )
    return f"The highest load that meets {limits_text(run)}, confirmed by fresh, longer trials.{told}"


def _view(table: Sequence[Sequence[str]], caption: str) -> Table:
    rows = tuple((Cell(text=line[0], heading=True), *(Cell(text=cell) for cell in line[1:])) for line in table[1:])
    return Table(caption=caption, head=tuple(table[0]), rows=rows)
