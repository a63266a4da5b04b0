"""The seam between a trial and the place its processes run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from plimsoll_lab.samplers.usage import Usage


class Process(Protocol):
    """A started process, and the tree below it."""

    pid: int
    """Its process id on its host."""
    meter_source: str | None
    """Where `usage` reads from; None for a process that is not metered."""

    def watched(self) -> Sequence[int]:
        """Descriptors that become readable when it prints or ends."""

    def take_lines(self) -> list[str]:
        """The whole lines it has printed to stdout since the last call."""

    def exit_code(self) -> int | None:
        """None while it runs; a negative number is the signal that ended it."""

    def stderr_tail(self) -> str:
        """The end of what it has printed to stderr."""

    def stop(self, *, grace_s: float) -> int:
        """Ask it to end, wait, and kill what is left of the tree; its exit code."""

    def usage(self, *, thorough: bool) -> Usage:
        """What its whole tree has used."""


class Host(Protocol):
    """A place where processes run."""

    name: str
    """As it appears in records and errors."""

    def start(self, argv: Sequence[str], *, role: str, metered: bool) -> AbstractContextManager[Process]:
        """Start a process; leaving the context ends its whole tree, however the context is left."""

    def wait(self, processes: Sequence[Process], timeout_s: float) -> None:
        """Sleep until one of them prints or ends, or the time is over."""

    def free_port(self) -> int:
        """A TCP port on 127.0.0.1 that nobody listens on."""
