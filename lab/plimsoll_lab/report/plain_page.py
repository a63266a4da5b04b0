"""Pages without scripts: a heading, sections of parts, still pictures. For comparisons, histories
and the local web page.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_lab.report.templating import render
from plimsoll_lab.report.view import Section

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
    return render(
        "plain.html",
        policy=POLICY,
        title=page.title,
        line=page.line,
        question=page.question,
        answer=page.answer,
        contenders=page.contenders,
        sections=page.sections,
        links=page.links,
    )
