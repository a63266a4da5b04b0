"""A forest plot: a row a comparison, its estimate a mark and its interval a line. The words of a
row are above its line: beside it, long ones would leave a phone no room for the lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.store.records import Json

ROW = 36
"""Pixels a row: one line of words, and one of marks."""
WORDS, MARKS = -8, 7
"""Pixels from the middle of a row to its words and to its marks."""
LINE = 18
"""Pixels of the thin line in a row: it leaves the words free."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForestRow:
    """One comparison."""

    words: str
    """What is compared."""
    middle: float | None
    """The estimate; None where there is none."""
    low: float | None
    """The lower end of the interval."""
    high: float | None
    """The upper end; a row without both ends has no line."""
    group: str
    """What its colour and mark mean: a contender, or a way of being better."""


def forest(rows: Sequence[ForestRow], encoding: Json, *, title: str, lines: Sequence[float], width: int) -> Json:
    """The plot as Vega-Lite. `encoding` has the colour and the shape of the field `contender`,
    which holds a row's group; `lines` are the values that a thin line
    marks in each row.
    """
    values: list[Json] = [
        {
            "row": place,
            "words": row.words,
            "contender": row.group,
            "middle": row.middle,
            "low": row.low if row.high is not None else None,
            "high": row.high if row.low is not None else None,
        }
        for place, row in enumerate(rows)
    ]
    y: Json = {"field": "row", "type": "ordinal", "axis": None}
    x: Json = {"type": "quantitative", "title": title, "scale": {"zero": True}, "axis": {"tickCount": 5}}
    middle: Json = {"y": y, "x": x | {"field": "middle"}, **encoding}
    ends: Json = {"y": y, "x": x | {"field": "low"}, "x2": {"field": "high"}, "color": encoding["color"]}
    piece: Json = {"type": "tick", "orient": "vertical", "size": LINE, "thickness": 1.2, "yOffset": MARKS}
    piece |= {"color": "#808890"}
    marked: Json = {"type": "point", "filled": True, "size": 70, "opacity": 1, "yOffset": MARKS}
    return {
        "$schema": SCHEMA,
        "width": width,
        "height": ROW * len(values),
        "data": {"values": values},
        "layer": [
            *({"mark": piece, "encoding": {"y": y, "x": x | {"datum": each}}} for each in lines),
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "strokeWidth": 2.5, "yOffset": MARKS},
                "encoding": ends,
            },
            {"transform": [{"filter": "isValid(datum.middle)"}], "mark": marked, "encoding": middle},
            {
                "mark": {"type": "text", "align": "left", "fontSize": 11, "yOffset": WORDS},
                "encoding": {"y": y, "x": {"value": 0}, "text": {"field": "words"}},
            },
        ],
    }
