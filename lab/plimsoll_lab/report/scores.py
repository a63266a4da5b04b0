"""The scores as tables, and the A/A controls that say how far they can be believed."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.records import Json

OPEN_UP_TO = 3
"""Tables that a page shows unasked."""


def scores_section(summary: Json, figures: Mapping[str, Json]) -> str:
    """The section of the page; empty where nothing competes."""
    cells = cast("list[Json]", summary["scores"])
    if not cells:
        return ""
    places: dict[str, list[Json]] = {}
    for cell in cells:
        places.setdefault(formatting.setting(cast("Json", cell["at"])), []).append(cell)
    tables = "".join(_table(place, here, figures) for place, here in places.items())
    return (
        "<section><h2>Scores</h2><p class='note'>The median with its 95&nbsp;% interval, and how many times worse than "
        "the best the contender is. Intervals of these ratios hold together with 95&nbsp;%. <b>Best</b>: cannot be "
        "distinguished from the best. <b>Level</b>: at most the suite's margin worse. There is no score over all "
        "figures.</p>"
        f"{tables if len(places) <= OPEN_UP_TO else _folded(tables)}</section>"
    )


def _folded(tables: str) -> str:
    return f"<details><summary>At each setting</summary>{tables}</details>"


def _table(place: str, cells: Sequence[Json], figures: Mapping[str, Json]) -> str:
    names = list(dict.fromkeys(cast("str", cell["figure"]) for cell in cells))
    rows = list(dict.fromkeys(cast("str", cell["contender"]) for cell in cells))
    by = {(cell["contender"], cell["figure"]): cell for cell in cells}
    head = "".join(f"<th scope='col'>{html.escape(str(figures[name]['label']))}</th>" for name in names)
    body = "".join(
        f"<tr><th scope='row'>{html.escape(row)}</th>"
        f"{''.join(_cell(by.get((row, name)), str(figures[name]['unit'])) for name in names)}</tr>"
        for row in rows
    )
    title = f"<caption>{html.escape(place)}</caption>" if place != "every setting" else ""
    return (
        f"<div class='scroll'><table class='scores'>{title}<thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _cell(cell: Json | None, unit: str) -> str:
    median = cast("float | None", cell["median"]) if cell else None
    if cell is None or median is None:
        return "<td class='none'>&ndash;</td>"
    interval = cast("tuple[float, float] | None", cell["median_ci95"])
    within = f" <small>[{_bounds(interval, unit)}]</small>" if interval else ""
    return f"<td>{formatting.number(median, unit)}{within}{_margin(cell)}</td>"


def _bounds(interval: tuple[float, float], unit: str) -> str:
    return f"{formatting.number(interval[0], unit)}, {formatting.number(interval[1], unit)}"


def _margin(cell: Json) -> str:
    if cell["margin"] is None:
        return ""
    ratio = formatting.ratio(cast("float", cell["margin"]), cast("tuple[float, float] | None", cell["margin_ci95"]))
    best = " <span class='call better'>best</span>" if cell["best"] else ""
    level = " <span class='call equivalent'>level</span>" if cell["level"] else ""
    return f"<span class='margin'>{html.escape(ratio).replace('x', '&times;')}{best}{level}</span>"


def controls_section(controls: Sequence[Json], figures: Mapping[str, Json]) -> str:
    """What one server measured twice showed; empty for a suite without a control."""
    if not controls:
        return ""
    rows = "".join(
        f"<tr><th scope='row'>{html.escape(str(figures[cast('str', each['figure'])]['label']))}</th>"
        f"<td>{html.escape(formatting.setting(cast('Json', each['at'])))}</td>"
        f"<td>{html.escape(_ratio(each))}</td><td>{_percent(each['floor'])}</td>"
        f"<td>{'<b>differs</b>' if each['differs'] else 'alike'}</td></tr>"
        for each in controls
    )
    head = "<tr><th></th><th></th><th>over itself</th><th>noise floor</th><th></th></tr>"
    return (
        "<section><details><summary>The A/A control: the first contender, measured twice in every block</summary>"
        "<p class='note'>The noise floor is the ratio that 95&nbsp;% of comparisons of two that are alike stay below; "
        "a verdict has to lie beyond it.</p>"
        f"<div class='scroll'><table><thead>{head}</thead><tbody>{rows}</tbody></table></div></details></section>"
    )


def _ratio(control: Json) -> str:
    return formatting.ratio(
        cast("float | None", control["ratio"]), cast("tuple[float, float] | None", control["ratio_ci95"])
    )


def _percent(floor: object) -> str:
    return "&ndash;" if floor is None else f"{cast('float', floor):.1%}"
