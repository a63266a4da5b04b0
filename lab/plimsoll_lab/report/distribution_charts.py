"""How response times are distributed: a histogram a contender below each other, on one logarithmic
axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.distributions import R20, Distribution, edge_ns
from plimsoll_lab.report.charts import SCHEMA
from plimsoll_lab.report.drawing import CATEGORY
from plimsoll_lab.report.encoding import MatrixLayout, level_of
from plimsoll_lab.report.series import LEVELS_SHOWN, WIDTH, chosen, short
from plimsoll_lab.report.view import Cell, Described, Drawing, Part, Row, Table, Text
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import PointSummary

REQUESTS_LEAST = 100
"""Of fewer a histogram shows single requests."""
TOGETHER = len(CATEGORY)
"""Settings in the chart where nothing competes: a colour each."""
HEIGHT = 44
COLUMNS_MOST = 10
"""Of ranges in a table."""
ROUND = ((0, 6, 14), (0,))
"""The edges of a decade that a table has, by their places: 1, 2 and 5, or 1 alone where that would
be too many columns."""

_Row = tuple[str, Distribution]
"""The name of a histogram, and what it shows."""


def shown(points: Sequence[PointSummary], layout: MatrixLayout) -> list[PointSummary]:
    """The points whose distributions are drawn: of some settings every contender; where nothing
    competes, as many settings as there are colours, from the first to the last.
    """
    told = [each for each in points if each.outcome == "ok"]
    if layout.compare is not None:
        levels = chosen(list(dict.fromkeys(level_of(each.point, layout.compare) for each in told)))
        return [each for each in told if level_of(each.point, layout.compare) in levels]
    if len(told) <= TOGETHER:
        return told
    return [told[place * (len(told) - 1) // (TOGETHER - 1)] for place in range(TOGETHER)]


def distribution_charts(found: Sequence[Distribution], layout: MatrixLayout) -> dict[str, Described]:
    """By name, each chart: one a setting, or one of all where nothing competes."""
    rows: dict[str, list[_Row]] = {}
    for each in found:
        level = "every setting" if layout.compare is None else level_of(each.point, layout.compare)
        rows.setdefault(level, [])
        if each.requests >= REQUESTS_LEAST:
            rows[level].append((_name(each, layout), each))
    return {
        f"distribution-{number}": _described(level, here, layout)
        for number, (level, here) in enumerate(rows.items())
        if here
    }


def parts(
    run: RunRecord,
    points: Sequence[PointSummary],
    found: Sequence[Distribution],
    charts: Mapping[str, Described],
    stills: Mapping[str, Markup],
    layout: MatrixLayout,
) -> list[Part]:
    """The charts, and why others are not drawn."""
    if run.search is not None:
        return [Text(text="The distribution of response times is not drawn: a search tries many loads.")]
    drawings = [
        Drawing(name=name, svg=stills[name], caption=each.caption, data=each.data) for name, each in charts.items()
    ]
    told = [_missing(each) for each in found if each.requests < REQUESTS_LEAST]
    if found and not charts:
        causes = formatting.listed(list(dict.fromkeys(told)))
        return [Text(text=f"The distribution of response times is not drawn: {causes}.")]
    texts = [
        f"Not in the distribution: {_name(each, layout, whole=True)} ({_missing(each)})."
        for each in found
        if each.requests < REQUESTS_LEAST
    ]
    texts += [
        f"Of {_name(each, layout, whole=True)} {_left_out(each)}."
        for each in found
        if each.requests >= REQUESTS_LEAST and each.left_out
    ]
    texts += _of_how_many(points, layout)
    return [*drawings, *(Text(text=each) for each in texts)]


def _name(found: Distribution, layout: MatrixLayout, *, whole: bool = False) -> str:
    if layout.compare is None or whole:
        return formatting.setting(found.point)
    return formatting.contender(found.point, layout.compare)


def _missing(found: Distribution) -> str:
    if found.requests:
        return f"fewer than {REQUESTS_LEAST} requests are in its histograms"
    return _left_out(found) if found.left_out else "no valid trial keeps a histogram of them"


def _left_out(found: Distribution) -> str:
    causes = (
        f"{count} of {found.valid} trials {'is' if count == 1 else 'are'} left out, as the {cause}"
        for cause, count in found.left_out.items()
    )
    return formatting.listed(list(causes))


def _of_how_many(points: Sequence[PointSummary], layout: MatrixLayout) -> list[str]:
    told = [each for each in points if each.outcome == "ok"]
    settings = len({level_of(each.point, layout.compare) for each in told})
    most = TOGETHER if layout.compare is None else LEVELS_SHOWN
    which = f"Of {settings} settings the distributions of {most} are drawn"
    return [f"{which}; `plimsoll lab report RUN --export hgrm` writes all."] if settings > most else []


def _described(level: str, rows: Sequence[_Row], layout: MatrixLayout) -> Described:
    names = [name for name, _ in rows] if layout.compare is None else list(layout.contenders)
    place = rows[0][0] if layout.compare is None and len(rows) == 1 else level
    caption = (
        f"How response times are distributed, {place}: the share of the requests in each step of about 12 %, all "
        f"trials together.{''.join(_late(*row) for row in rows)}"
    )
    return Described(spec=_spec(rows, names), caption=caption, data=_table(rows, place))


def _late(name: str, found: Distribution) -> str:
    if not found.late:
        return ""
    return f" The generator's own lateness is half or more of {formatting.listed(found.late)} of {name}."


def _spec(rows: Sequence[_Row], names: Sequence[str]) -> Json:
    """Areas of one size, on the same axes."""
    ends = _ends(rows)
    marked = [each for each in _round_edges(*ends) if ends[0] <= each <= ends[1]]
    marked = marked if len(marked) > 1 else list(range(ends[0], ends[1] + 1))
    most = max(count / found.requests for _, found in rows for count in found.steps.values())
    drawn = []
    for number, (name, found) in enumerate(rows):
        last = number == len(rows) - 1
        x: Json = {
            "field": "x",
            "type": "quantitative",
            "title": "ms" if last else None,
            "scale": {"type": "log", "nice": False, "domain": [_ms(each) for each in ends]},
            "axis": {"labels": last, "ticks": last, "format": ",.4~r", "values": [_ms(each) for each in marked]},
        }
        y: Json = {
            "field": "y",
            "type": "quantitative",
            "title": None,
            "scale": {"domain": [0, short(100 * most)], "nice": False},
            "axis": {"tickCount": 2, "minExtent": 40, "labelExpr": "datum.label + ' %'", "grid": False},
        }
        colour: Json = {"field": "name", "type": "nominal", "scale": {"domain": list(names)}, "legend": None}
        panel: Json = {
            "width": WIDTH,
            "height": HEIGHT,
            "data": {"values": [{"name": name, "x": x_ms, "y": share} for x_ms, share in _outline(found)]},
            # An area would have its lower edge in the picture, too, dot by dot.
            "mark": {"type": "line", "interpolate": "step-after", "filled": True, "strokeWidth": 0, "opacity": 0.85},
            "encoding": {"x": x, "y": y, "color": colour},
        }
        if len(rows) > 1:
            panel["title"] = {"text": name, "anchor": "start", "fontSize": 11, "fontWeight": "normal", "offset": 2}
        drawn.append(panel)
    return {"$schema": SCHEMA, "spacing": 6, "vconcat": drawn}


def _ms(place: int) -> float:
    """Where a step begins."""
    return short(edge_ns(place) / 1e6)


def _ends(rows: Sequence[_Row]) -> tuple[int, int]:
    """The edges that all of some histograms lie between."""
    places = [place for _, found in rows for place in found.steps]
    return min(places), max(places) + 1


def _outline(found: Distribution) -> list[tuple[float, float]]:
    """The edge of a histogram in ms and percent, from 0 to 0: a dot wherever it changes."""
    dots = [(_ms(min(found.steps)), 0.0)]
    for place in range(min(found.steps), max(found.steps) + 2):
        share = short(100 * found.steps.get(place, 0) / found.requests)
        if share != dots[-1][1]:
            dots.append((_ms(place), share))
    return dots


def _table(rows: Sequence[_Row], place: str) -> Table:
    """The same requests in wider steps."""
    edges = _round_edges(*_ends(rows))
    parts = list(pairwise(edges))
    lines: list[Row] = []
    for name, found in rows:
        shares = (
            sum(count for step, count in found.steps.items() if low <= step < high) / found.requests
            for low, high in parts
        )
        requests = Cell(text=f"{found.requests:,}", detail=f"{found.trials} trial{'' if found.trials == 1 else 's'}")
        cells = (Cell(text=formatting.number(share, "ratio")) for share in shares)
        lines.append((Cell(text=name, heading=True), requests, *cells))
    head = ("", "requests", *(f"{_ms(low):,g} to {_ms(high):,g} ms" for low, high in parts))
    caption = f"The share of the requests whose response time lies in each range, {place}"
    return Table(caption=caption, head=head, rows=tuple(lines), style="numbers")


def _round_edges(first: int, last: int) -> list[int]:
    """Edges with round values around all of the steps."""
    found: list[int] = []
    for places in ROUND:
        every = [place for place in range(first - len(R20), last + len(R20)) if place % len(R20) in places]
        lowest = max(place for place in every if place <= first)
        highest = min(place for place in every if place >= last)
        found = [place for place in every if lowest <= place <= highest]
        if len(found) - 1 <= COLUMNS_MOST:
            break
    return found
