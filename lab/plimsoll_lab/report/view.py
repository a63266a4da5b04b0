"""What a page is made of: sections, and in them texts, tables, drawings and folds. The templates
turn these into HTML.

Text is plain here and escaped by the templates; the only markup is a drawing's SVG, which comes
from our own renderer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from markupsafe import Markup

from plimsoll_lab.store.records import Json, WarningRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """One cell of a table."""

    text: str
    """What it says."""
    detail: str = ""
    """A smaller second line: an interval, a reason."""
    badge: str = ""
    """A word in a coloured lozenge."""
    tone: str = ""
    """The badge's colour: a name of the style sheet, such as `better` or `hard_limit`."""
    mark: int | None = None
    """A contender's place, whose mark and colour are before the text."""
    heading: bool = False
    """Whether it names its row."""
    span: int = 1
    """Columns that it takes."""


Row = tuple[Cell, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """A table with a caption."""

    kind: ClassVar[str] = "table"
    caption: str
    """What the table shows; a screen reader says it first."""
    head: tuple[str, ...]
    """The columns' names."""
    rows: tuple[Row, ...]
    """The rows, each as long as the head."""
    style: str = ""
    """A name of the style sheet: `numbers` aligns to the right."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """A paragraph."""

    kind: ClassVar[str] = "text"
    text: str
    tone: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """Words for a terminal or a file, as they are."""

    kind: ClassVar[str] = "code"
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawing:
    """A chart: a static picture first, interactive where scripts run, and its data as a table."""

    kind: ClassVar[str] = "drawing"
    name: str
    """By which the script finds its specification."""
    svg: Markup
    """The static picture."""
    caption: str
    """What it shows, in a sentence."""
    data: Table | None = None
    """Its numbers; None where a table beside it has them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """A chart before it is drawn."""

    spec: Json
    """Vega-Lite."""
    caption: str
    """What it shows, in a sentence."""
    data: Table
    """Its numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gallery:
    """Charts beside each other, as many as the screen has room for."""

    kind: ClassVar[str] = "gallery"
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Warnings:
    """The warnings of one severity."""

    kind: ClassVar[str] = "warnings"
    title: str
    severity: str
    items: tuple[WarningRecord, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """Parts behind a line that opens them; open on paper."""

    kind: ClassVar[str] = "fold"
    title: str
    parts: tuple[Part, ...]
    is_open: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """A file inside the page."""

    kind: ClassVar[str] = "download"
    name: str
    """The file's name."""
    address: str
    """A `data:` address."""
    what: str
    """What it holds."""


Part = Text | Table | Code | Drawing | Gallery | Warnings | Fold | Download


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """A section of the page."""

    name: str
    """Its anchor."""
    title: str
    """Its heading, also in the list of contents."""
    note: str = ""
    """How to read it."""
    parts: Sequence[Part] = ()
    """What it shows."""
