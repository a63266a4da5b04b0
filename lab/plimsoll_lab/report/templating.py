"""The templates of pages, and the files that pages contain."""

from __future__ import annotations

import re

import jinja2
from markupsafe import Markup, escape

from plimsoll_lab.report.encoding import SHAPES
from plimsoll_lab.report.glyphs import GLYPHS

_LOADER = jinja2.PackageLoader("plimsoll_lab.report")
_TEMPLATES = jinja2.Environment(
    loader=_LOADER,
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_CODE = re.compile(r"`([^`'\n]+)`")
"""A pair of backticks; older programs quote `so', which is no code."""


def with_code(text: str) -> Markup:
    """A text escaped, with text between two backticks as code."""
    parts = _CODE.split(text)
    shown = (Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts))
    return Markup("").join(shown)


_TEMPLATES.filters["with_code"] = with_code


def render(template: str, **values: object) -> str:
    """A page from its template; what is no `Markup` among the values is escaped."""
    style = Markup(asset("page.css"))  # noqa: S704 - ours
    glyphs = [GLYPHS[each] for each in SHAPES]
    return _TEMPLATES.get_template(template).render(style=style, glyphs=glyphs, **values)


def legend_mark(place: int) -> str:
    """The mark of the contender at this place, as the legends of a page show it."""
    parts = _TEMPLATES.get_template("parts.html").make_module({"glyphs": SHAPES})
    return str(parts.mark(place))  # type: ignore[attr-defined]


def asset(name: str) -> str:
    """A file of ours, as it is."""
    return _LOADER.get_source(_TEMPLATES, name)[0]
