"""What a program printed, as text for a person or a file of ours: without colours and control
characters. A terminal would obey those, and XML has no place for them.
"""

from __future__ import annotations

import re

SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
"""An escape sequence: control sequences such as colours, titles of a window, and the short ones
(ECMA-48, 5.3 and 5.4)."""
NO_TEXT = re.compile("[^\t\n -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What is no text in XML 1.0 (2.2), and the control characters that it discourages."""


def plain(printed: str) -> str:
    """The text alone. A carriage return, by which a program writes over its line, begins another
    one.
    """
    return NO_TEXT.sub("", SEQUENCE.sub("", printed).replace("\r", "\n")).strip()
