"""What is read on every host over a window, besides the server's own cost: seldom, and a few small files at a time.

Together, with the server read ten times a second, this is to stay within a hundredth of a core however many processes
and connections there are; the lab's own CPU over the window stands in every record (`lab_cpu_cores`). What grows with
them, the sample of connections and the descriptors of whole trees, is read so much the more seldom the dearer it is.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Mapping
from typing import cast

from plimsoll_lab.hosts.host import Host, Process
from plimsoll_lab.hosts.samplers.machine import (
    read_descriptors,
    read_machine,
    read_memory,
    read_open_files,
    read_pressure,
)
from plimsoll_lab.hosts.samplers.network import difference, read_counters, read_states
from plimsoll_lab.hosts.samplers.sock_diag import NETLINK_SOCK_DIAG, TcpInfo, sample_connections, summarise
from plimsoll_lab.store.records import Json

EVERY_S = 1.0
"""Once a second shows a trend; a turn takes about a millisecond."""
DEAR_SHARE = 0.001
"""Of a core, what is dear may take over a window, but for its two ends."""


class Sampler:
    """Reads hosts and parts over one window."""

    def __init__(self, hosts: Mapping[str, Host], server_host: Host, server_address: str) -> None:
        self._hosts = hosts
        self._server_host = server_host
        self._port = int(server_address.rpartition(":")[2]) if ":" in server_address else None
        self._families = [socket.AF_INET6] if "[" in server_address else [socket.AF_INET, socket.AF_INET6]
        self._first: dict[str, dict[str, int]] = {}
        self._last: dict[str, dict[str, int]] = {}
        self._opened_at = 0.0
        self._due_at = float("inf")
        self._dear_at = float("inf")
        self._own_s = 0.0
        self._timeline: list[Json] = []
        self._connections: list[Json] = []

    def begin(self, parts: Mapping[str, Process]) -> None:
        """The window opens."""
        self._opened_at = time.monotonic()
        self._due_at = self._opened_at + EVERY_S
        self._own_s = time.process_time()
        self._first = self._counters()
        self._turn(parts, 0.0)
        self._dear_turn(parts, self._opened_at)

    def turn(self, parts: Mapping[str, Process], now: float) -> float:
        """Read where it is due; seconds until the next."""
        if now >= self._due_at:
            self._due_at = now + EVERY_S
            self._turn(parts, now - self._opened_at)
            if now >= self._dear_at:
                self._dear_turn(parts, now)
        return max(0.0, self._due_at - now)

    def end(self, parts: Mapping[str, Process]) -> None:
        """The window closes."""
        now = time.monotonic()
        self._last = self._counters()
        self._turn(parts, now - self._opened_at)
        self._dear_turn(parts, now)
        self._own_s = time.process_time() - self._own_s
        self._due_at = float("inf")

    def record(self, window_s: float) -> Json:
        """What was read; counters as what the window added to them."""
        if not self._last or window_s <= 0:
            return {}
        return {
            "lab_cpu_cores": self._own_s / window_s,
            "counters": {name: difference(self._first[name], last) for name, last in self._last.items()},
            "connections": self._connections,
            "timeline": self._timeline,
        }

    def _counters(self) -> dict[str, dict[str, int]]:
        return {name: read_counters(host.namespace_pid, host.interface) for name, host in self._hosts.items()}

    def _turn(self, parts: Mapping[str, Process], at_s: float) -> None:
        machine = read_machine()
        row: Json = {
            "at_s": at_s,
            "machine": {
                "busy_s": machine.busy_s,
                "steal_s": machine.steal_s,
                "memory_available_bytes": read_memory(),
                "open_files": read_open_files(),
                **read_pressure(),
            },
            "hosts": {name: read_states(host.namespace_pid) for name, host in self._hosts.items()},
            "parts": {name: _part(process) for name, process in parts.items()},
        }
        self._timeline.append(row)

    def _dear_turn(self, parts: Mapping[str, Process], now: float) -> None:
        """What belongs to the turn just taken."""
        began_s = time.thread_time()
        rows = cast("Mapping[str, Json]", self._timeline[-1]["parts"])
        for name, process in parts.items():
            rows[name]["descriptors"] = read_descriptors(process.members())
        # A kernel without sock_diag has no sample: the record then says so by its absence.
        with contextlib.suppress(OSError):
            self._sample_connections(now - self._opened_at)
        self._dear_at = now + (time.thread_time() - began_s) / DEAR_SHARE

    def _sample_connections(self, at_s: float) -> None:
        if self._port is None:
            return
        infos: list[TcpInfo] = []
        for family in self._families:
            with self._server_host.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as diag:
                diag.settimeout(1.0)
                infos = sample_connections(diag, family, self._port)
            if infos:
                # A server has one family: asking for the other walks over every connection for nothing.
                self._families = [family]
                break
        self._connections.append({"at_s": at_s, "host": self._server_host.name, **summarise(infos)})


def _part(process: Process) -> Json:
    found: Json = {}
    if process.meter_source is not None and process.meter_source != "proc":
        usage = process.usage(thorough=False)
        found |= {"cpu_s": usage.cpu_s, "memory_bytes": usage.memory_bytes}
    return found
