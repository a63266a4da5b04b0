"""Why a suite is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class SuiteError(Exception):
    """A suite that cannot be run. Its message is one line: what is wrong, why, and how to fix
    it.
    """


@contextlib.contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Every refusal begins with the file."""
    try:
        yield
    except SuiteError as refusal:
        raise SuiteError(f"{source}: {refusal}") from None
