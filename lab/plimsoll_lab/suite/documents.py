"""What a document holds, once it has been read: figures at points, and conclusions that are put to
the test.
"""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll_lab.suite.settings import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A figure of a document."""

    figure: str
    """Its name, as in the records."""
    at: Settings
    """The settings by which the point differs from others."""
    value: float
    """In the figure's own unit."""
    source: str
    """Where the document says so."""
    text: str
    """What else there is to say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A conclusion of a document: a figure at a point, or how many times that at another point,
    lies in a range.
    """

    name: str
    """What is claimed, in our words."""
    source: str
    """Where the document says so."""
    figure: str
    """The figure it is about."""
    at: Settings
    """The point."""
    over: Settings | None
    """The point it is divided by; without it, the figure itself is claimed."""
    against: tuple[Settings, Settings] | None
    """Two points whose ratio that ratio is divided by: whether an effect is larger here than
    there."""
    least: float | None
    """The range's lower end: where there is none 0, and None of a difference."""
    most: float | None
    """Its upper end; None where there is none."""
    expect: str
    """The range as it was written."""
    free: str
    """Parameters that the document leaves open, and what was chosen."""
    portable: bool
    """Whether a figure itself can be expected of any hardware: a share, a count. A ratio always
    can."""
    difference: bool = False
    """Whether the point of `over` is subtracted, and the one pair from the other, in place of
    divisions."""
