"""Pages without scripts: a heading, sections of parts, still pictures. For comparisons, histories
and the local web page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jinja2
from markupsafe import Markup

from plimsoll_lab.report.charts import SHAPES
from plimsoll_lab.report.glyphs import GLYPHS
from plimsoll_lab.report.view import Section

TEMPLATES = jinja2.Environment(
    loader=jinja2.PackageLoader("plimsoll_lab.report"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True, kw_only=True, slots=True)
class Plain:
    """A page without scripts."""

    title: str
    """The window's title."""
    line: str
    """What it is about, above the heading."""
    question: str
    """The heading."""
    answer: Sequence[str]
    """Sentences under it."""
    contenders: Sequence[str]
    """What the colours and marks mean."""
    sections: Sequence[Section]
    """The rest."""
    links: Sequence[tuple[str, str]] = ()
    """Addresses and words, above everything."""


def render_plain(page: Plain) -> str:
    """The page as text."""
    template = TEMPLATES.get_template("plain.html")
    style = TEMPLATES.get_template("page.css").render()
    glyphs = [GLYPHS[each] for each in SHAPES]
    return template.render(page=page, policy=POLICY, style=Markup(style), glyphs=glyphs)  # noqa: S704 - ours
