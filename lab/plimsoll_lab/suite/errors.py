"""Why a suite is refused."""

from __future__ import annotations

import contextlib
import unicodedata
from collections.abc import Iterator

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""General categories of Unicode: control and format characters, surrogates, and what ends a
line."""


def printable(text: str) -> str:
    r"""A text that holds what a person wrote, on one line: a line break is shown as `\n`, and a
    terminal has nothing to obey.
    """
    return "".join(
        each.encode("unicode_escape").decode("ascii") if unicodedata.category(each) in _UNSEEN else each
        for each in text
    )


class SuiteError(Exception):
    """A suite that cannot be run. Its message is one line: what is wrong, why, and how to fix
    it.
    """

    def __init__(self, said: str, *, line: int | None = None) -> None:
        super().__init__(printable(said))
        self.line = line
        """The line of the file that it names; None where it names none."""


@contextlib.contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Every refusal begins with the file."""
    try:
        yield
    except SuiteError as refusal:
        raise SuiteError(f"{source}: {refusal}") from None
