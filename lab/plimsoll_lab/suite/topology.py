"""Hosts, switches and links, from Mininet's words: the configuration of `plimsoll link`, and the
hosts' addresses.

Names and addresses are Mininet's: hosts h1, h2, ... with the interface hN-eth0 and the address
10.0.0.N in 10.0.0.0/8, switches s1, s2, ... A host's further addresses are 10.1.0.N, 10.2.0.N and
so on.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.network_keys import LINK
from plimsoll_lab.suite.units import bits_per_s, duration_s, ratio

HOSTS_MAX = 250
"""The last part of an address numbers hosts."""
ADDRESSES_MAX = 250
"""The second part numbers a host's addresses."""

FULL_FRAME_BYTES = 1514
"""The longest frame of Ethernet without its checksum, as tc(8) counts it."""

_WORDS = re.compile(r"(single|linear|dumbbell),(\d{1,9})")
_CONTROL = re.compile(r"[a-z0-9_-]{1,15}")
"""The kernel's names have up to 15 bytes (TCP_CA_NAME_MAX, linux/tcp.h)."""
_PART = re.compile(r"([hs])([1-9]\d{0,4})")

LinkSettings = Mapping[str, "str | int | LinkSettings"]
"""A link's settings by key; under `reverse` those of the other direction, where they differ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A link between two of a topology's parts."""

    ends: tuple[str, str]
    """A host or switch, and a switch or host."""
    shape: LinkSettings
    """Rate, one-way delay and the rest, of each direction."""

    def settings_from(self, start: str) -> LinkSettings:
        """What the link does to packets that come from one of its ends."""
        back = self.shape.get("reverse")
        if start == self.ends[1] and isinstance(back, Mapping):
            return back
        return self.shape


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
    backend: str = "tap"
    """Who carries packets: `tap`, our own emulator, or `kernel`, its bridges, with its netem where
    a link is shaped."""
    congestion: str | None = None
    """TCP's congestion control on every host; None for the machine's own."""
    one_line: bool = False
    """Whether the delays and losses follow from those of a whole path: such a run has figures even
    where a path is not quite what was asked for, with a warning."""

    @property
    def is_shaped(self) -> bool:
        """Whether any link is more than a bare wire."""
        return any(link.shape for link in self.links)

    def addresses_of(self, host: str) -> list[str]:
        """A host's addresses, the first one first."""
        number = int(host[1:])
        return [f"10.{place}.0.{number}" for place in range(self.addresses)]

    def link_config(self, *, seed: int) -> dict[str, object]:
        """The configuration of `plimsoll link`."""
        return {
            "seed": seed,
            "devices": [interface(host) for host in self.hosts],
            "switches": list(self.switches),
            "links": [{"ends": [self._plug(end) for end in link.ends], **link.shape} for link in self.links],
        }

    def path(self, start: str, end: str) -> list[LinkSettings]:
        """What each link between two hosts does to packets on their way, in order."""
        reached: dict[str, list[LinkSettings]] = {start: []}
        waiting = [start]
        while waiting:
            here = waiting.pop()
            for link in self.links:
                if here in link.ends:
                    there = link.ends[1 - link.ends.index(here)]
                    if there not in reached:
                        reached[there] = [*reached[here], link.settings_from(here)]
                        waiting.append(there)
        if end not in reached:
            raise SuiteError(f"[network]: no links lead from {start} to {end}; join them by a link")
        return reached[end]

    def one_way_s(self, start: str, end: str, *, frame_bytes: int = 0) -> float:
        """From host to host by the delays of the links, and by what a frame of this length takes to
        send on each.
        """
        return sum(
            duration_s(str(shape.get("delay", "0")))
            + (frame_bytes * 8 / bits_per_s(str(shape["rate"])) if "rate" in shape else 0.0)
            for shape in self.path(start, end)
        )

    def round_trip_s(self, start: str, end: str, *, frame_bytes: int = 0) -> float:
        """There and back: under `single,3`, four times a link's delay."""
        return self.one_way_s(start, end, frame_bytes=frame_bytes) + self.one_way_s(end, start, frame_bytes=frame_bytes)

    def narrowest_bits_per_s(self, start: str, end: str) -> float | None:
        """The lowest rate on the way; None where no link has one."""
        rates = [bits_per_s(str(shape["rate"])) for shape in self.path(start, end) if "rate" in shape]
        return min(rates, default=None)

    def delivered_ratio(self, start: str, end: str) -> float:
        """The part of the packets that no link loses on the way."""
        return math.prod(1 - ratio(str(shape.get("loss", "0"))) for shape in self.path(start, end))

    def _plug(self, end: str) -> str:
        return interface(end) if end in self.hosts else end


def interface(host: str) -> str:
    """The name of a host's interface."""
    return f"{host}-eth0"


def read_topology(
    words: str, shape_table: Mapping[str, object], *, addresses: int = 1, backend: str = "tap"
) -> Topology:
    """The network of `single,3`, `linear,4` or `dumbbell,4`, with equal links.

    single,N: N hosts on one switch. linear,N: N switches in a row with a host each. dumbbell,N: N
    hosts on each of two switches, and one link between these.
    """
    match = _WORDS.fullmatch(words.replace(" ", ""))
    if match is None or int(match[2]) == 0:
        raise SuiteError(f"[network] topology: '{words}' is no topology; write 'single,3', 'linear,4' or 'dumbbell,2'")
    kind, count = match[1], int(match[2])
    total = 2 * count if kind == "dumbbell" else count
    if total > HOSTS_MAX:
        raise SuiteError(f"[network] topology: '{words}' has {total} hosts; at most {HOSTS_MAX} have an address")
    shape = read_shape(shape_table, where="[network]")
    hosts = [f"h{number + 1}" for number in range(total)]
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
        backend=backend,
    )


def join(links: Sequence[Link], *, addresses: int = 1, backend: str = "tap") -> Topology:
    """Hosts and switches as their links name them: hN is a host, sN a switch."""
    names = {end for link in links for end in link.ends}
    for name in sorted(names):
        match = _PART.fullmatch(name)
        if match is None or (match[1] == "h" and int(match[2]) > HOSTS_MAX):
            raise SuiteError(
                f"[[network.link]] ends: '{name}' is no host, h1 to h{HOSTS_MAX}, and no switch, s1, s2 .."
            )
    hosts, switches = (
        tuple(sorted((name for name in names if name[0] == letter), key=lambda name: int(name[1:]))) for letter in "hs"
    )
    for host in hosts:
        count = sum(host in link.ends for link in links)
        if count > 1:
            raise SuiteError(f"[[network.link]] ends: {host} is in {count} links; a host has one: join by a switch")
    _refuse_loops(links)
    return Topology(hosts=hosts, switches=switches, links=tuple(links), addresses=addresses, backend=backend)


def read_shape(table: Mapping[str, object], *, where: str) -> dict[str, str | int]:
    """What one direction of a link does; refuses what `plimsoll link` would refuse, before anything
    runs.
    """
    try:
        shape = {key: _link_setting(key, value) for key, value in table.items()}
        _check_together(shape)
    except ValueError as refusal:
        raise SuiteError(f"{where} {refusal}") from None
    return shape


def _link_setting(key: str, value: object) -> str | int:
    if key not in LINK:
        raise ValueError(f"{key}: unknown key; a link has {', '.join(LINK)}")
    if key == "queue":
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        raise ValueError(f"queue: {value!r} is not a number of packets; write 1 or more")
    if isinstance(value, str):
        return value
    raise ValueError(f"{key}: {value!r} is not a text with a unit, such as '100Mbit', '1ms' or '0.1%'")


def _check_together(shape: LinkSettings) -> None:
    seconds = {key: duration_s(str(shape.get(key, "0"))) for key in ("delay", "jitter")}
    if "rate" in shape:
        bits_per_s(str(shape["rate"]))
    elif "queue" in shape:
        raise ValueError("queue: nothing waits where nothing takes time to send; add a rate, or leave the queue out")
    if seconds["jitter"] > seconds["delay"]:
        raise ValueError("jitter: it is more than the delay, and nothing arrives before it was sent; lower it")
    if ratio(str(shape.get("loss", "0"))) > 1:
        raise ValueError("loss: it is more than 100%; write a percentage such as 0.1%")
    if shape.get("order", "kept") not in {"kept", "free"}:
        raise ValueError(f"order: '{shape['order']}' is neither 'kept' nor 'free'")
    if shape.get("order") == "free" and not seconds["jitter"]:
        raise ValueError("order: without jitter nothing changes places; add a jitter, or leave the order out")


def read_addresses(raw: object) -> int:
    """How many addresses each host has."""
    if isinstance(raw, bool) or not isinstance(raw, int) or not 1 <= raw <= ADDRESSES_MAX:
        raise SuiteError(f"[network] addresses: {raw!r} is out of range; write 1 to {ADDRESSES_MAX}")
    return raw


def read_congestion(raw: object) -> str | None:
    """The congestion control that hosts use. Which of them a kernel has is only seen there."""
    if raw is None or (isinstance(raw, str) and _CONTROL.fullmatch(raw)):
        return raw
    raise SuiteError(f"[network] congestion: {raw!r} is no name of a congestion control, such as 'cubic'")


def _refuse_loops(links: Sequence[Link]) -> None:
    """The switches have no spanning tree protocol: in a loop a broadcast would circle for ever."""
    tree = {end: end for link in links for end in link.ends}
    for link in links:
        one, other = (tree[end] for end in link.ends)
        if one == other:
            raise SuiteError(
                f"[[network.link]] ends: {' - '.join(link.ends)} closes a loop; leave one of its links out"
            )
        tree = {end: other if root == one else root for end, root in tree.items()}
