"""What documents say, beside what was found: claims with their outcomes, and figures of theirs
beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.view import Cell, Section, Table
from plimsoll_lab.store.records import Json

NOTE = (
    "A claim is confirmed where the whole 95 % interval lies in the claimed range, contradicted where it lies wholly "
    "outside. A figure itself belongs to its hardware: it stands beside ours, and is never confirmed."
)
"""How the outcomes are read."""
TONES = {"confirmed": "met", "contradicted": "missed"}


def section(summary: Json, figures: Mapping[str, Json]) -> Section:
    """The section of the page; without parts where the suite holds nothing from documents."""
    claims = cast("list[Json]", summary.get("claims") or [])
    references = cast("list[Json]", summary.get("references") or [])
    parts = []
    if claims:
        rows = tuple(
            (
                Cell(text=str(each["name"]), detail=str(each["source"]), heading=True),
                Cell(text=f"{each['figure']} {each['expect']}", detail=str(each["free"])),
                Cell(text=measured(each, figures)),
                Cell(
                    text="",
                    badge=str(each["outcome"]),
                    tone=TONES.get(str(each["outcome"]), ""),
                    detail=str(each["reason"]),
                ),
            )
            for each in claims
        )
        head = ("claim", "figure and range", "found, 95 %", "outcome")
        parts.append(Table(caption="Claims of documents, put to the test", head=head, rows=rows))
    if references:
        beside = tuple(_reference(each, figures) for each in references)
        names = ("figure", "at", "theirs", "ours", "ours / theirs")
        parts.append(Table(caption="Figures of documents beside ours", head=names, rows=beside, style="numbers"))
    return Section(name="documents", title="What documents say", note=NOTE, parts=parts)


def lines(summary: Json, figures: Mapping[str, Json]) -> list[str]:
    """The same for a terminal: a line a claim."""
    claims = cast("list[Json]", summary.get("claims") or [])
    if not claims:
        return []
    width = max(len(str(each["outcome"])) for each in claims)
    told = [
        f"  {each['outcome']!s:<{width}}  {each['name']}: {measured(each, figures)}, claimed {each['expect']}"
        for each in claims
    ]
    return ["", "claims of documents", *told]


def measured(claim: Json, figures: Mapping[str, Json]) -> str:
    """What was found for a claim: a figure or a ratio, with its interval; else why there is
    none.
    """
    value, interval = cast("float | None", claim["value"]), cast("tuple[float, float] | None", claim["interval"])
    if value is None:
        return str(claim["reason"])
    if claim["over"] is not None:
        return formatting.ratio(value, interval)
    unit = cast("str", figures[cast("str", claim["figure"])]["unit"])
    within = "" if interval is None else f" [{', '.join(formatting.number(each, unit) for each in interval)}]"
    return formatting.number(value, unit) + within


def _reference(each: Json, figures: Mapping[str, Json]) -> tuple[Cell, ...]:
    figure = figures[cast("str", each["figure"])]
    unit = cast("str", figure["unit"])
    ratio = cast("float | None", each["ratio"])
    return (
        Cell(text=str(figure["label"]), detail=str(each["source"]), heading=True),
        Cell(text=formatting.setting(cast("Json", each["at"]))),
        Cell(text=formatting.number(cast("float", each["value"]), unit)),
        Cell(text=formatting.number(cast("float | None", each["ours"]), unit)),
        Cell(text="-" if ratio is None else f"{formatting.three(ratio)}x"),
    )
