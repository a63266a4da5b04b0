"""The templates of pages, and the files that pages carry inside."""

from __future__ import annotations

import jinja2
from markupsafe import Markup

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


def render(template: str, **values: object) -> str:
    """A page from its template; what is no `Markup` among the values is escaped."""
    style = Markup(asset("page.css"))  # noqa: S704 - ours
    glyphs = [GLYPHS[each] for each in SHAPES]
    return _TEMPLATES.get_template(template).render(style=style, glyphs=glyphs, **values)


def asset(name: str) -> str:
    """A file of ours, as it is."""
    return _LOADER.get_source(_TEMPLATES, name)[0]
