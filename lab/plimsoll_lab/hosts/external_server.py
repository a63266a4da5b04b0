"""A server that already runs, in the place of a process: there is nothing to start, to meter
or to stop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class ExternalServer:
    """A process that is none of ours; its cost is not known."""

    meter_source: str | None = "proc"

    def take_lines(self) -> list[str]:
        """It prints nothing that we could read."""
        return []

    def exit_code(self) -> int | None:
        """It is taken to run."""
        return None

    def lacked_memory(self) -> bool:
        """It is taken to run."""
        return False

    def stderr_tail(self) -> str:
        """It prints nothing that we could read."""
        return ""

    def stop(self, *, grace_s: float) -> int:
        """It goes on."""
        del grace_s
        return 0


@contextlib.contextmanager
def external_server() -> Iterator[ExternalServer]:
    """The server for the length of a trial."""
    yield ExternalServer()
