"""Charts as static pictures, in tones that can be read on white and on black paper."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from markupsafe import Markup

from plimsoll_lab.store.records import Json

INK, FAINT = "#6a7683", "#9aa5b0"
"""A contrast of at least 4.5 on white and 4.0 on the dark page (WCAG 2.2, 1.4.3 asks for 3 of
graphics)."""
CATEGORY = ("#0072B2", "#D55E00", "#00805C", "#AB7239", "#1B9CD8", "#B3478C", "#909090")
"""One colour a contender, told apart with any of the common colour-vision deficiencies (after Okabe
and Ito; lab/tests/test_colours.py computes how far apart they are), and seen on white and on dark
paper."""

_TEXT = {"labelColor": INK, "titleColor": INK, "labelFont": "sans-serif", "titleFont": "sans-serif"}
CONFIGURATION: Json = {
    "background": "transparent",
    "view": {"stroke": None},
    "axis": _TEXT | {"gridColor": FAINT, "gridOpacity": 0.35, "domainColor": FAINT, "tickColor": FAINT},
    "legend": _TEXT | {"columnPadding": 24},
    "header": _TEXT,
    "title": {"color": INK, "font": "sans-serif"},
    "text": {"color": INK, "font": "sans-serif"},
    "aria": False,
    "range": {"category": list(CATEGORY)},
}
ROOM = {"left": 12, "top": 5, "right": 24, "bottom": 5}
"""Pixels around a still picture: a reader's letters may be a fifth wider than those that the
renderer measured."""
_TAG = re.compile(r"<[a-z][^<>]*>")
_IDLE = re.compile(
    r' (?:aria-hidden|aria-roledescription|role|class|pointer-events)="[^"]*"| (?:opacity|stroke-width)="1"'
    r'| font-family="sans-serif"| transform="translate\(0,0\)"'
)
_PLACE = re.compile(r'(?<= )(?:d|transform|x|y|x1|x2|y1|y2|width|height)="[^"]*"')
_LONG = re.compile(r"-?\d*\.\d{3,}")
_MARK = re.compile(
    r'<path (?:transform="translate\(([-\d.]+),([-\d.]+)\)" d="|d="M([-\d.]+),([-\d.]+)(?=[hv]))([^"]*"[^>]*/>)'
)
"""A shape at a place: moved there, or begun there and drawn by horizontal and vertical steps."""
ALIKE_LEAST = 3
"""Shapes that differ in nothing but their places, from how many on they are one that is used."""
_RUN = re.compile(r"<g>((?:<(?:line|path) [^<>]*/>){2,}|(?:<text [^<>]*>[^<>]*</text>){2,})</g>")
"""A group of nothing but lines, paths or texts."""
_INHERITED = re.compile(
    r" (?:fill|fill-opacity|stroke|stroke-dasharray|stroke-opacity|stroke-width"
    r'|font-size|font-weight|text-anchor)="[^"]*"'
)
"""What the parts of a group have from it, where they do not state it (SVG 2, appendix H)."""
_GROUP = re.compile(r"</?g\b[^<>]*>")
_NAMED = re.compile(r'(id="|url\(#|xlink:href="#|href="#)((?:clip|gradient_|m(?=\d))\w*)')


def draw(name: str, spec: Json, datasets: Mapping[str, object]) -> Markup:
    """The SVG of a chart; the names inside it begin with the chart's own, so that charts share a
    page.
    """
    import vl_convert  # noqa: PLC0415 - 50 MB of renderer that only a report needs

    spec = _without_tooltips(spec) | {"datasets": datasets, "config": CONFIGURATION | {"padding": ROOM}}
    svg = vl_convert.vegalite_to_svg(spec)
    svg = _without_idle_groups(_RUN.sub(_with_shared_style, _with_marks_once(_compact(svg))))
    own = re.sub(r"\W", "-", name)
    svg = _NAMED.sub(lambda found: f"{found[1]}{own}-{found[2]}", svg)
    # A picture for the eye; the caption and the data table beside it say the same to everybody
    # else.
    svg = svg.replace("<svg ", '<svg role="img" aria-hidden="true" focusable="false" ', 1)
    return Markup(svg)  # noqa: S704 - the renderer escapes every text it draws


def _compact(svg: str) -> str:
    """The same picture in two thirds of the bytes: nothing that is not seen, and places to a
    hundredth of a pixel. Texts stay as they are.
    """
    head, _, body = svg.partition(">")
    return f'{head} font-family="sans-serif">{_TAG.sub(lambda tag: _compact_tag(tag[0]), body)}'


def _with_shared_style(run: re.Match[str]) -> str:
    """The same group, where what all its parts state alike is stated once."""
    stated = [set(_INHERITED.findall(tag)) for tag in _TAG.findall(run[1])]
    shared = set.intersection(*stated)
    parts = _TAG.sub(lambda tag: _INHERITED.sub(lambda found: "" if found[0] in shared else found[0], tag[0]), run[1])
    return f"<g{''.join(sorted(shared))}>{parts}</g>"


def _without_idle_groups(svg: str) -> str:
    """The same picture without groups that state nothing."""
    stated: list[bool] = []

    def kept(tag: re.Match[str]) -> str:
        if tag[0] == "</g>":
            return tag[0] if stated.pop() else ""
        if tag[0].endswith("/>"):
            return ""
        stated.append(tag[0] != "<g>")
        return tag[0] if stated[-1] else ""

    return _GROUP.sub(kept, svg)


def _with_marks_once(svg: str) -> str:
    """The same picture, where each mark of a chart is written once and used at its places."""
    counts = Counter(_shape(found) for found in _MARK.finditer(svg))
    names = {shape: f"m{number}" for number, (shape, count) in enumerate(counts.items()) if count >= ALIKE_LEAST}

    def used(found: re.Match[str]) -> str:
        name = names.get(_shape(found))
        x, y = found[1] or found[3], found[2] or found[4]
        return found[0] if name is None else f'<use href="#{name}" x="{x}" y="{y}"/>'

    shapes = "".join(f'<path id="{name}" {shape}' for shape, name in names.items())
    head, _, body = _MARK.sub(used, svg).partition(">")
    return f"{head}><defs>{shapes}</defs>{body}" if shapes else svg


def _shape(found: re.Match[str]) -> str:
    """All of a mark but its place."""
    return f'd="{"" if found[3] is None else "M0,0"}{found[5]}'


def _compact_tag(tag: str) -> str:
    if re.fullmatch(r'<path(?: class="[^"]*")?(?: aria-hidden="true")? d="[^"]*"(?: [a-z-]+="none")*/>', tag):
        return ""  # neither stroke nor fill
    tag = _IDLE.sub("", tag)
    if " stroke=" not in tag:
        tag = re.sub(r' stroke-width="[^"]*"', "", tag)
    return _PLACE.sub(lambda found: _LONG.sub(_hundredth, found[0]), tag)


def _hundredth(number: re.Match[str]) -> str:
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def _without_tooltips(spec: Json) -> Json:
    """A still picture has no use for them, and each would be an attribute of every dot."""

    def strip(value: object) -> object:
        if isinstance(value, dict):
            return _without_tooltips(value)
        return [strip(each) for each in value] if isinstance(value, list | tuple) else value

    return {key: strip(each) for key, each in spec.items() if key != "tooltip"}
