"""What TCP and the interface of a network namespace have counted: a few small reads of /proc/net.

Counters grow from the namespace's beginning; what a window did is the difference of its two ends.
On the local host they are the whole machine's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SNMP = {
    "active_opens": "ActiveOpens",
    "passive_opens": "PassiveOpens",
    "attempt_fails": "AttemptFails",
    "established_resets": "EstabResets",
    "resets_sent": "OutRsts",
    "segments_received": "InSegs",
    "segments_sent": "OutSegs",
    "retransmitted_segments": "RetransSegs",
}
"""Of the line `Tcp:` of snmp (RFC 4022). A reset over loopback is two of `established_resets`: each
end counts the connection that it ended with, whether it sent the reset or received it."""
NETSTAT = {
    "timeouts": "TCPTimeouts",
    "listen_overflows": "ListenOverflows",
    "listen_drops": "ListenDrops",
    "syn_retransmissions": "TCPSynRetrans",
    "aborts_on_timeout": "TCPAbortOnTimeout",
}
"""Of the line `TcpExt:` of netstat (Documentation/networking/snmp_counter.rst)."""
INTERFACE = {"bytes_received": 0, "packets_received": 1, "bytes_sent": 8, "packets_sent": 9}
"""Columns of net/dev (proc_pid_net(5))."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
"""What the kernel counts socket memory in."""


def read_counters(pid: int | None, interface: str) -> dict[str, int]:
    """Every counter by name, of the namespace of a process; None is this process's own."""
    folder = Path(f"/proc/{pid or 'self'}/net")
    tcp, extended = _table(folder / "snmp", "Tcp:"), _table(folder / "netstat", "TcpExt:")
    found = {name: tcp[key] for name, key in SNMP.items() if key in tcp}
    found |= {name: extended[key] for name, key in NETSTAT.items() if key in extended}
    columns = _interface(folder / "dev", interface)
    return found | {name: columns[place] for name, place in INTERFACE.items() if columns}


def read_states(pid: int | None) -> dict[str, int]:
    """Connections by state, as far as the kernel keeps totals: no walk over the connections. With
    them the segments retransmitted so far, which the same file has.
    """
    folder = Path(f"/proc/{pid or 'self'}/net")
    tcp = _table(folder / "snmp", "Tcp:")
    found = {
        name: tcp[key]
        for name, key in (("established", "CurrEstab"), ("retransmitted_segments", "RetransSegs"))
        if key in tcp
    }
    for line in _lines(folder / "sockstat"):
        # `TCP: inuse 27 orphan 0 tw 12 alloc 35 mem 3`: in use here, and of the whole machine
        # allocated and pages.
        words = line.split()
        if words and words[0] == "TCP:":
            pairs = dict(zip(words[1::2], map(int, words[2::2]), strict=True))
            found |= {"in_use": pairs["inuse"], "orphaned": pairs["orphan"], "time_wait": pairs["tw"]}
            found["socket_memory_bytes"] = pairs["mem"] * PAGE_BYTES
    return found


def difference(first: Mapping[str, int], last: Mapping[str, int]) -> dict[str, int]:
    """What was counted from one reading to another."""
    return {name: value - first.get(name, 0) for name, value in last.items()}


def _table(path: Path, kind: str) -> dict[str, int]:
    """A line of names and a line of values, both beginning with the kind."""
    lines = [line.split() for line in _lines(path) if line.startswith(kind)]
    if len(lines) != 2:  # noqa: PLR2004 - names and values
        return {}
    return {name: int(value) for name, value in zip(lines[0][1:], lines[1][1:], strict=True)}


def _interface(path: Path, interface: str) -> list[int]:
    for line in _lines(path):
        name, _, columns = line.partition(":")
        if name.strip() == interface:
            return [int(each) for each in columns.split()]
    return []


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
