"""A rack of hosts, switches and links, from Mininet's words: what `plimsoll link` is told, and who has which address.

Names and addresses are Mininet's: hosts h1, h2, ... with the interface hN-eth0 and the address 10.0.0.N in 10.0.0.0/8,
switches s1, s2, ... A host's further addresses are 10.1.0.N, 10.2.0.N and so on.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_lab.suite.spec import SuiteError
from plimsoll_lab.suite.units import duration_s

HOSTS_MAX = 250
"""The last part of an address tells hosts apart."""
ADDRESSES_MAX = 250
"""The second part tells a host's addresses apart."""

LINK_KEYS = ("rate", "delay", "jitter", "order", "loss", "queue")
"""What a link can be told, as in docs/networks.md; `plimsoll link` checks the values."""

_WORDS = re.compile(r"(single|linear|dumbbell),(\d+)")

Shape = Mapping[str, str | int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A link between two of a topology's parts."""

    ends: tuple[str, str]
    """A host or switch, and a switch or host."""
    shape: Shape
    """Rate, one-way delay and the rest, of each direction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """Hosts and switches, and the links that make a tree of them."""

    hosts: tuple[str, ...]
    """Their names, in the order of their addresses."""
    switches: tuple[str, ...]
    """Their names."""
    links: tuple[Link, ...]
    """How they are joined."""
    addresses: int = 1
    """Addresses a host."""

    def addresses_of(self, host: str) -> list[str]:
        """A host's addresses, the first one first."""
        number = self.hosts.index(host) + 1
        return [f"10.{place}.0.{number}" for place in range(self.addresses)]

    def link_config(self, *, seed: int) -> dict[str, object]:
        """The configuration of `plimsoll link`."""
        return {
            "seed": seed,
            "devices": [interface(host) for host in self.hosts],
            "switches": list(self.switches),
            "links": [{"ends": [self._plug(end) for end in link.ends], **link.shape} for link in self.links],
        }

    def path(self, start: str, end: str) -> list[Link]:
        """The links between two hosts, in order."""
        reached: dict[str, list[Link]] = {start: []}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            for link in self.links:
                if here in link.ends:
                    there = link.ends[1 - link.ends.index(here)]
                    if there not in reached:
                        reached[there] = [*reached[here], link]
                        waiting.append(there)
        if end not in reached:
            raise SuiteError(f"[network]: no links lead from {start} to {end}; join them by a link")
        return reached[end]

    def round_trip_s(self, start: str, end: str) -> float:
        """What the delays of the links alone make of a round trip: under `single,3`, four times a link's."""
        return 2 * sum(duration_s(str(link.shape.get("delay", "0"))) for link in self.path(start, end))

    def _plug(self, end: str) -> str:
        return interface(end) if end in self.hosts else end


def interface(host: str) -> str:
    """The name of a host's interface."""
    return f"{host}-eth0"


def read_topology(words: str, shape: Shape, *, addresses: int = 1) -> Topology:
    """What `single,3`, `linear,4` or `dumbbell,4` stands for, each link of the same shape.

    single,N: N hosts on one switch. linear,N: N switches in a row with a host each. dumbbell,N: N hosts on each of two
    switches, and one link between these.
    """
    match = _WORDS.fullmatch(words.replace(" ", ""))
    if match is None or int(match[2]) == 0:
        raise SuiteError(f"[network] topology: '{words}' is no topology; write 'single,3', 'linear,4' or 'dumbbell,2'")
    if not 1 <= addresses <= ADDRESSES_MAX:
        raise SuiteError(f"[network] addresses: {addresses} is out of range; write 1 to {ADDRESSES_MAX}")
    for key in shape:
        if key not in LINK_KEYS:
            raise SuiteError(f"[network] {key}: unknown key; a link has {', '.join(LINK_KEYS)}")
    kind, count = match[1], int(match[2])
    hosts = [f"h{number + 1}" for number in range(2 * count if kind == "dumbbell" else count)]
    if len(hosts) > HOSTS_MAX:
        raise SuiteError(f"[network] topology: '{words}' has {len(hosts)} hosts; at most {HOSTS_MAX} have an address")
    switches = [f"s{number + 1}" for number in range({"single": 1, "dumbbell": 2, "linear": count}[kind])]
    ends = [
        (host, switches[{"single": 0, "dumbbell": number // count, "linear": number}[kind]])
        for number, host in enumerate(hosts)
    ]
    ends += itertools.pairwise(switches)
    return Topology(
        hosts=tuple(hosts),
        switches=tuple(switches),
        links=tuple(Link(ends=each, shape=shape) for each in ends),
        addresses=addresses,
    )
