"""How figures and contenders are encoded in every chart: units, axes, colours, marks, tooltips."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.suite.figures import Figure
from plimsoll_lab.suite.settings import Settings

SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right")
"""A second mark of identity beside the colour."""
AXES = {
    "us": (1e-3, "ms"),
    "s": (1.0, "s"),
    "s2": (1.0, "s\u00b2"),
    "bytes": (2.0**-20, "MiB"),
    "per_s": (1.0, "requests/s"),
    "bits_per_s": (1e-6, "Mbit/s"),
    "ratio": (100.0, "%"),
    "cores": (1.0, "cores"),
    "count": (1.0, ""),
    "number": (1.0, ""),
}
"""Of each unit, what a value is multiplied by for its axis, and the axis's words."""
SMALL = (1.0, "\u00b5s per request")
"""CPU for one request is microseconds, where a response takes milliseconds."""
PACKETS = (1.0, "packets/s")
"""Of figures a second all others are requests."""
EXACT = ",.10~r"
"""How an axis writes its numbers, which are round ones: with fewer digits two of a narrow axis were
the same. The renderer's own format has none where all values are one: 0.2 ms was 0."""
LOGARITHMIC = {"us", "bytes", "per_s", "bits_per_s"}
"""Units whose values span decades over a range of loads."""


def shapes_of(count: int) -> list[str]:
    """The mark of each of so many contenders. There are as many colours as marks: where these begin
    again the marks are moved on by one, so that no two of 49 look the same.
    """
    return [SHAPES[(place + place // len(SHAPES)) % len(SHAPES)] for place in range(count)]


@dataclass(frozen=True, kw_only=True, slots=True)
class MatrixLayout:
    """How the axes of a matrix are laid out."""

    compare: str | None
    """The axis that competes: colour and shape."""
    contenders: tuple[str, ...]
    """Its values."""
    levels: tuple[str, ...]
    """The other axes' settings, in order, one panel each."""


def layout_of(run: RunRecord) -> MatrixLayout:
    """Lay out a run's matrix."""
    compare = run.family.compare
    settings = [point.setting for point in run.points]
    contenders = dict.fromkeys(formatting.contender(each, compare) if compare else "all" for each in settings)
    levels = dict.fromkeys(level_of(each, compare) for each in settings)
    return MatrixLayout(compare=compare, contenders=tuple(contenders), levels=tuple(levels))


def with_value(field: str) -> list[Json]:
    """Only the rows that have this figure."""
    return [{"filter": f"isValid(datum['{field}'])"}]


def counts(largest: str = ".10~s") -> Json:
    """How an axis writes counts and rates, each by itself: 0, 500, 1.5k. The renderer writes all of
    them in the unit of the largest: 0k beside 2k, and a half as 500m.
    """
    return {"labelExpr": f"abs(datum.value) < 1000 ? format(datum.value, '{EXACT}') : format(datum.value, '{largest}')"}


def y_axis(figure: Figure, *, logarithmic: bool, zero: bool) -> Json:
    """A figure on the vertical axis."""
    unit = axis_of(figure)[1]
    return {
        "field": field_of(figure.name),
        "type": "quantitative",
        "title": unit or None,
        "scale": {"type": "log", "nice": False, "padding": 12} if logarithmic else {"zero": zero, "nice": True},
        "axis": {"tickCount": 3 if logarithmic else 5, **(counts() if figure.unit == "per_s" else {"format": EXACT})},
    }


def colour_of(layout: MatrixLayout) -> Json:
    """A contender's colour, which is the same in every chart."""
    return {"field": "contender", "type": "nominal", "scale": {"domain": list(layout.contenders)}, "legend": None}


def colour_and_shape(layout: MatrixLayout) -> Json:
    """A contender's colour and its mark, for readers who cannot distinguish the colours."""
    return {
        "color": colour_of(layout),
        "shape": {
            "field": "contender",
            "type": "nominal",
            "scale": {"domain": list(layout.contenders), "range": shapes_of(len(layout.contenders))},
            "legend": None,
        },
    }


def tooltip_of(figure: Figure, *, dot: bool) -> list[Json]:
    """What is shown beside the pointer: of one trial, or of a median with its interval."""
    field = field_of(figure.name)
    unit = axis_of(figure)[1]
    label = f"{figure.label} ({unit})" if unit else figure.label
    number = ",.4~g"
    shown: list[Json] = [
        {"field": "contender", "title": "server"},
        {"field": "level", "title": "at"},
        {"field": field, "title": label, "format": number},
    ]
    if dot:
        return [*shown, {"field": "trial"}, {"field": "block"}]
    return [
        *shown,
        {"field": f"{field}_low", "title": "95 % from", "format": number},
        {"field": f"{field}_high", "title": "to", "format": number},
    ]


def field_of(name: str) -> str:
    """A figure's column: Vega-Lite reads a dot as a path."""
    return name.replace(".", "_")


def axis_of(figure: Figure) -> tuple[float, str]:
    """What a figure's value is multiplied by for its axis, and the axis's words."""
    if "packets_per_s" in figure.name:
        return PACKETS if figure.unit == "per_s" else AXES[figure.unit]
    return SMALL if "cpu_us" in figure.name else AXES[figure.unit]


def scaled(value: float | None, axis: tuple[float, str]) -> float | None:
    """A value on its axis, with six digits."""
    return None if value is None else float(f"{value * axis[0]:.6g}")


def place_of(setting: Settings, layout: MatrixLayout) -> Json:
    """The columns by which a row of the data is placed: contender and panel."""
    contender = formatting.contender(setting, layout.compare) if layout.compare else "all"
    return {
        "contender": contender,
        "level": level_of(setting, layout.compare),
    }


def level_of(setting: Settings, compare: str | None) -> str:
    """The settings of the axes that do not compete, as a panel's title."""
    return formatting.setting({path: value for path, value in setting.items() if path != compare})
