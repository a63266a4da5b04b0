"""Sockets of another network namespace: a socket belongs to the namespace of the thread that made
it, for good.

The thread returns to its own namespace before anything else runs. If it cannot return, the lab
ends.
"""

from __future__ import annotations

import ctypes
import os
import socket
from pathlib import Path

CLONE_NEWNET = 0x4000_0000
"""sched.h; setns(2) refuses a descriptor of another kind of namespace."""

_LIBC = ctypes.CDLL(None, use_errno=True)


def socket_inside(namespace: Path, family: int, kind: int, protocol: int = 0) -> socket.socket:
    """A socket of the network namespace of a file of /proc/PID/ns. Needs CAP_SYS_ADMIN over it."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        there = os.open(namespace, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _enter(there)
        finally:
            os.close(there)
        try:
            return socket.socket(family, kind, protocol)
        finally:
            try:
                _enter(home)
            except OSError as error:
                raise SystemExit(f"error: cannot leave the network namespace {namespace}: {error}") from None
    finally:
        os.close(home)


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
