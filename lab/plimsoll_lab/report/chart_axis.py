"""A figure over an axis of any kind: a number with a unit, a product of two, a path by the size of
what it names.

A line joins only points that differ in nothing but this axis: where a second one varies, each of
its settings has a panel, or, where nothing competes, a colour. A figure of a document is a hollow
mark beside ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.encoding import counts
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord

TIMES = " * "
"""Between the two paths of a product."""
SCALES = {"s": (1e3, "ms"), "B": (2.0**-10, "KiB"), "bit/s": (1e-6, "Mbit/s"), "bit": (1e-3, "kbit"), "": (1.0, "")}
"""Of each unit, what a value is multiplied by for its axis, and the axis's words."""
LOGARITHMIC_FROM = 8.0
"""An axis whose ends lie farther apart is logarithmic: on a linear one marks near the lower end
overlap."""
PANELS_MOST = 8
"""More settings of a second axis than this are joined by their lines alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChartAxis:
    """An axis to draw against."""

    path: str
    """The setting's path, or two with ` * ` between them."""
    column: str
    """Of its numbers in the data; the rest of a setting is in `COLUMN_rest`."""
    title: str
    """Its words, with the unit."""
    values: tuple[float, ...]
    """Its numbers, in order."""
    rests: tuple[str, ...]
    """The other settings, as words, in the order of the suite."""


def chart_axes(run: RunRecord, compare: str | None) -> list[ChartAxis]:
    """Every axis of a run that numbers can be drawn against: those that are asked for, else each
    that varies alone somewhere, so that there is a line to draw.
    """
    settings = [point.setting for point in run.points]
    drawn = [over for _, over in run.drawn]
    paths = drawn or [path for path in dict.fromkeys(path for each in settings for path in each) if path != compare]
    found: list[ChartAxis] = []
    for path in dict.fromkeys(paths):
        numbers = [number_of(run, path, each) for each in settings]
        values = sorted({each[0] for each in numbers if each is not None})
        others = [other_settings(path, each, compare) for each in settings]
        if len(values) > 1 and (drawn or _varies_alone(numbers, others)):
            column = f"over_{len(found)}"
            units = next(each[1] for each in numbers if each is not None)
            words = TIMES.join(formatting.words(each) for each in path.split(TIMES))
            title = f"{words} ({units})" if units else words
            found.append(
                ChartAxis(
                    path=path, column=column, title=title, values=tuple(values), rests=tuple(dict.fromkeys(others))
                )
            )
    return found


def _varies_alone(numbers: Sequence[tuple[float, str] | None], others: Sequence[str]) -> bool:
    """Whether two points that are otherwise set alike have different numbers."""
    found: dict[str, set[float]] = {}
    for number, other in zip(numbers, others, strict=True):
        if number is not None:
            found.setdefault(other, set()).add(number[0])
    return any(len(each) > 1 for each in found.values())


def number_of(run: RunRecord, path: str, setting: Mapping[str, object]) -> tuple[float, str] | None:
    """A setting as a number in the unit of its axis, and that unit; None where it is a word or
    absent.
    """
    number, units = 1.0, []
    for each in path.split(TIMES):
        value = setting.get(each)
        found = run.quantities.get(each, {}).get(str(value))
        if found is None and isinstance(value, int | float) and not isinstance(value, bool):
            found = (float(value), "")
        if found is None:
            return None
        number *= found[0]
        units.append(found[1])
    unit = "bit" if sorted(units) == ["bit/s", "s"] else " ".join(each for each in units if each)
    factor, words = SCALES.get(unit, (1.0, unit))
    return float(f"{number * factor:.9g}"), words


def other_settings(path: str, setting: Mapping[str, object], compare: str | None) -> str:
    """Whatever else a point is set to, as words."""
    own = {*path.split(TIMES), compare, "point"}
    return formatting.setting({each: value for each, value in setting.items() if each not in own})


def columns(run: RunRecord, axes: Sequence[ChartAxis], setting: Mapping[str, object], compare: str | None) -> Json:
    """The columns of one row of the data: of each axis the number, and the rest."""
    found: Json = {}
    for over in axes:
        number = number_of(run, over.path, setting)
        found[over.column] = None if number is None else number[0]
        found[f"{over.column}_rest"] = other_settings(over.path, setting, compare)
    return found


def is_drawn_over(run: RunRecord, figure: str, over: ChartAxis) -> bool:
    """Whether this figure is drawn over this axis."""
    return not run.drawn or (figure, over.path) in run.drawn


def panels(over: ChartAxis, *, competes: bool) -> list[str | None]:
    """The panels of a chart: one a setting of the other axes; None: all in one."""
    several = len(over.rests) > 1 and competes and len(over.rests) <= PANELS_MOST
    return [*over.rests] if several else [None]


def x_axis(over: ChartAxis) -> Json:
    """The encoding of the axis."""
    wide = over.values[0] > 0 and over.values[-1] / over.values[0] >= LOGARITHMIC_FROM
    shown = [each for each in over.values if each == over.values[0] or not wide or each > 0]
    return {
        "field": over.column,
        "type": "quantitative",
        "title": over.title,
        "scale": {"nice": False, "padding": 14} | ({"type": "log"} if wide else {"type": "linear", "zero": False}),
        "axis": {"grid": False, "values": shown, "labelOverlap": True, **counts()},
    }


def colour_by_rest(over: ChartAxis) -> Json:
    """Colour where nothing competes: a line a setting of the other axes."""
    return {"field": f"{over.column}_rest", "type": "nominal", "title": None, "scale": {"domain": list(over.rests)}}
