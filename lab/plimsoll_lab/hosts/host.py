"""The seam between a trial and the place its processes run."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from plimsoll_lab.hosts.samplers.usage import Usage


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

    def members(self) -> Sequence[int]:
        """The processes of its tree, itself first; itself alone where nothing tells the others cheaply."""


class Host(Protocol):
    """A place where processes run."""

    name: str
    """As it appears in records and errors."""
    addresses: tuple[str, ...]
    """Where the others reach it, the first one first."""
    interface: str
    """The network interface that the others reach it by."""
    namespace_pid: int | None
    """A process in the host's own network namespace; None where that is the lab's."""

    def start(self, argv: Sequence[str], *, role: str, metered: bool) -> AbstractContextManager[Process]:
        """Start a process; leaving the context ends its whole tree, however the context is left."""

    def wait(self, processes: Sequence[Process], timeout_s: float) -> None:
        """Sleep until one of them prints or ends, or the time is over."""

    def free_port(self) -> int:
        """A TCP port of its first address that nobody listens on."""

    def accepts(self, address: str) -> bool:
        """Whether a connection from this host itself to `ADDRESS:PORT` is taken."""

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """A socket of this host's network."""


CONNECT_S = 0.2
"""How long a server that is not up yet may leave an attempt to connect without an answer."""


def accepts(host: Host, address: str) -> bool:
    """What `Host.accepts` is where the host's sockets can be had."""
    name, _, port = address.rpartition(":")
    try:
        with host.socket(socket.AF_INET6 if ":" in name else socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.settimeout(CONNECT_S)
            probe.connect((name.strip("[]"), int(port)))
            return True
    except OSError:
        return False
