"""Why a suite is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class SuiteError(Exception):
    """A suite that cannot be run. Its message is one line: what is wrong, why, and how to fix
    it.
    """

    def __init__(self, said: str, *, line: int | None = None) -> None:
        super().__init__(said)
        self.line = line
        """The line of the file that it names; None where it names none."""


@contextlib.contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Every refusal begins with the file."""
    try:
        yield
    except SuiteError as refusal:
        raise SuiteError(f"{source}: {refusal}") from None
