"""The charts' marks as paths, for legends and tables."""

from __future__ import annotations

GLYPHS = {
    "circle": "M0-5A5 5 0 1 1 0 5A5 5 0 1 1 0-5Z",
    "square": "M-4.4-4.4H4.4V4.4H-4.4Z",
    "triangle-up": "M0-5.4L5.4 4.4H-5.4Z",
    "diamond": "M0-6L4.6 0L0 6L-4.6 0Z",
    "cross": "M-1.8-5.4H1.8V-1.8H5.4V1.8H1.8V5.4H-1.8V1.8H-5.4V-1.8H-1.8Z",
    "triangle-down": "M0 5.4L5.4-4.4H-5.4Z",
    "triangle-right": "M5.4 0L-4.4 5.4V-5.4Z",
}
"""The charts' marks, drawn for legends and tables."""
