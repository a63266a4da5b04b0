"""What is read on every host over a window, besides the server's own cost: seldom, and a few small
files at a time.

Together, with the server read ten times a second, this is to stay within a hundredth of a core
however many processes and connections there are; the lab's own CPU over the window is in every
record (`lab_cpu_cores`). The sample of connections and the descriptors of whole trees grow with
them: they are read the less often the more they cost.
"""

from __future__ import annotations

import itertools
import socket
import time
from collections.abc import Mapping, Sequence

from plimsoll_lab.hosts.host import Host, HostProcess, Process
from plimsoll_lab.hosts.messages import Connection, HostSample, TakeSample
from plimsoll_lab.hosts.samplers.network import difference
from plimsoll_lab.store.records import Json
from plimsoll_lab.trial.taken import is_much

EVERY_S = 1.0
"""Once a second shows a trend; a sample takes about a millisecond."""
EXPENSIVE_SHARE = 0.001
"""The part of a core that costly reads may take over a window, except at its two ends."""


class Sampler:
    """Reads hosts and parts over one window, with one message to each agent at a time."""

    def __init__(self, hosts: Mapping[str, Host], server_host: Host, server_address: str) -> None:
        self._hosts = hosts
        self._server_host = server_host
        self._port = int(server_address.rpartition(":")[2]) if ":" in server_address else None
        self._families = (socket.AF_INET6,) if "[" in server_address else (socket.AF_INET, socket.AF_INET6)
        self._first: dict[str, Mapping[str, int]] = {}
        self._last: dict[str, Mapping[str, int]] = {}
        self._opened_at = 0.0
        self._due_at = float("inf")
        self._expensive_at = float("inf")
        self._own_s = 0.0
        self._timeline: list[Json] = []
        self._steal: list[tuple[float, float]] = []
        self._connections: list[Json] = []

    def foresee(self) -> None:
        """The window will open, and nothing crosses the network until then."""
        self._first = self._sample({}, 0.0, counters=True, expensive=False)
        self._timeline.clear()
        self._steal.clear()

    def begin(self, parts: Mapping[str, Process]) -> None:
        """The window opens."""
        self._opened_at = time.monotonic()
        self._due_at = self._opened_at + EVERY_S
        self._own_s = time.process_time()
        first = self._sample(parts, self._opened_at, counters=True, expensive=True)
        self._first = self._first or first

    def poll(self, parts: Mapping[str, Process], now: float) -> float:
        """Read where it is due; seconds until the next."""
        if now >= self._due_at:
            self._due_at = now + EVERY_S
            self._sample(parts, now, counters=False, expensive=now >= self._expensive_at)
        return max(0.0, self._due_at - now)

    def end(self, parts: Mapping[str, Process]) -> None:
        """The window closes."""
        self._last = self._sample(parts, time.monotonic(), counters=True, expensive=True)
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

    def withheld_s(self) -> float:
        """CPU seconds that the hypervisor withheld from the server's machine in the window, of
        moments in which it withheld much.
        """
        return withheld_s(self._steal)

    def _sample(
        self, parts: Mapping[str, Process], now: float, *, counters: bool, expensive: bool
    ) -> dict[str, Mapping[str, int]]:
        """Ask every agent; the counters of each host, where they were asked for."""
        at_s = now - self._opened_at
        costs: dict[str, Json] = {name: {} for name in parts}
        states: dict[str, Mapping[str, int]] = {}
        totals: dict[str, Mapping[str, int]] = {}
        machine: Mapping[str, float | int | None] = {}
        expensive_s = 0.0
        for connection, hosts in self._agents():
            own = {
                each.number: name
                for name, each in parts.items()
                if isinstance(each, HostProcess) and each.connection is connection
            }
            found = connection.ask(self._question(connection, hosts, own, counters=counters, expensive=expensive))
            # The machine of a trial is the one its server runs on.
            if connection is self._server_host.connection:
                machine = found.machine
            states |= {name: found.states[place] for place, name in hosts.items()}
            totals |= {name: found.counters[place] for place, name in hosts.items() if counters}
            for number, name in own.items():
                costs[name] = _cost(found, number)
            if found.connections is not None:
                if found.connections_family is not None:
                    # A server has one family: asking for the other walks over every connection for
                    # nothing.
                    self._families = (socket.AddressFamily(found.connections_family),)
                self._connections.append({"at_s": at_s, "host": self._server_host.name, **found.connections})
            expensive_s = max(expensive_s, found.expensive_s)
        if expensive:
            self._expensive_at = now + expensive_s / EXPENSIVE_SHARE
        steal_s = machine.get("steal_s")
        if steal_s is not None:
            self._steal.append((at_s, steal_s))
        self._timeline.append({"at_s": at_s, "machine": dict(machine), "hosts": states, "parts": costs})
        return totals

    def _agents(self) -> list[tuple[Connection, dict[int, str]]]:
        """Every agent once, the server's among them, with the hosts it serves by their numbers."""
        found: dict[int, tuple[Connection, dict[int, str]]] = {}
        for name, host in self._hosts.items():
            found.setdefault(id(host.connection), (host.connection, {}))[1][host.place] = name
        found.setdefault(id(self._server_host.connection), (self._server_host.connection, {}))
        return list(found.values())

    def _question(
        self,
        connection: Connection,
        hosts: Mapping[int, str],
        parts: Mapping[int, str],
        *,
        counters: bool,
        expensive: bool,
    ) -> TakeSample:
        serves = connection is self._server_host.connection
        return TakeSample(
            places=tuple(hosts),
            processes=tuple(parts),
            counters=counters,
            expensive=expensive,
            server_place=self._server_host.place if serves else None,
            server_port=self._port if serves else None,
            server_families=tuple(int(each) for each in self._families),
        )


def withheld_s(read: Sequence[tuple[float, float]]) -> float:
    """CPU seconds that a hypervisor withheld, of moments in which it withheld much. A moment lies
    between two readings: when they were made, and what it had withheld by then.
    """
    moments = [(last_at - at, last - steal) for (at, steal), (last_at, last) in itertools.pairwise(read)]
    return sum(steal for long_s, steal in moments if is_much(steal, long_s))


def _cost(sample: HostSample, number: int) -> Json:
    found: Json = {}
    if number in sample.costs:
        found |= {"cpu_s": sample.costs[number].cpu_s, "memory_bytes": sample.costs[number].memory_bytes}
    if number in sample.descriptors:
        found["descriptors"] = sample.descriptors[number]
    return found
