"""Connections that found a full listen queue, in the lab's own network namespace."""

from __future__ import annotations

from pathlib import Path


def read_listen_overflows(netstat: Path = Path("/proc/net/netstat")) -> int | None:
    """TcpExt ListenOverflows since the namespace began; None where the kernel does not tell.

    The file has a line of names and a line of values for each group (net/ipv4/proc.c).
    """
    try:
        lines = [line.split() for line in netstat.read_text(encoding="ascii").splitlines()]
    except OSError:
        return None
    for names, values in zip(lines[::2], lines[1::2], strict=False):
        if names and names[0] == "TcpExt:" and "ListenOverflows" in names:
            return int(values[names.index("ListenOverflows")])
    return None
