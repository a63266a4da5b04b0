"""A server that somebody else runs, in the place of a process: there is nothing to start, to meter or to stop."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from plimsoll_lab.hosts.samplers.usage import Usage


class Attached:
    """A process that is none of ours; its cost is not known."""

    pid = 0
    meter_source: str | None = "proc"

    def watched(self) -> Sequence[int]:
        """Nothing of it can be watched."""
        return ()

    def take_lines(self) -> list[str]:
        """It tells us nothing."""
        return []

    def exit_code(self) -> int | None:
        """It is taken to run."""
        return None

    def stderr_tail(self) -> str:
        """It tells us nothing."""
        return ""

    def stop(self, *, grace_s: float) -> int:
        """It goes on."""
        del grace_s
        return 0

    def usage(self, *, thorough: bool) -> Usage:
        """Not known; whoever asks has to leave these figures out."""
        del thorough
        return Usage(cpu_s=0.0, memory_bytes=None)

    def members(self) -> Sequence[int]:
        """Not known."""
        return ()


@contextlib.contextmanager
def attached() -> Iterator[Attached]:
    """The server for the length of a trial."""
    yield Attached()
