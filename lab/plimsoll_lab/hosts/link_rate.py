"""Up to which packet rate the emulator is in time on this machine.

One host sends datagrams to another over two links, at a rate that doubles until the emulator says
that packets were late or lost. Sender and emulator share the CPUs, as the parts of a trial do.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.netns import Network, device_of, open_network
from plimsoll_lab.hosts.netns_socket import socket_inside
from plimsoll_lab.problem import ENVIRONMENT, LabError

RATES = (10_000, 20_000, 40_000, 80_000, 160_000)
"""Packets a second. A process of Python sends some 200,000."""
STEP_S = 0.15
"""How long each is sent."""
ATTEMPTS = 2
"""What else runs may disturb one of them."""
LATE_LEAST, LATE_TOLERATED = 3, 0.002
"""So many packets, and this part of them, may be late or lost, as in a trial."""
KEPT_UP = 0.9
"""The part of a rate that a sender has to reach to have tried it."""
ARRIVAL_S = 0.01
"""Until the last packet has arrived: five times the way there."""
COUNTS_S = 5.0
"""Against hanging: the emulator prints its counts five times a second."""
DATAGRAM = bytes(64)
HOSTS: Mapping[str, Sequence[str]] = {"h1": ["10.0.0.1"], "h2": ["10.0.0.2"]}
LINKS = {
    "devices": [device_of(name) for name in HOSTS],
    "switches": ["s1"],
    "links": [{"ends": [device_of(name), "s1"], "delay": "1ms"} for name in HOSTS],
}
"""A link for each host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptRate:
    """What was found."""

    per_s: float
    """The highest packet rate that the emulator carried in time; 0 where it carried none."""
    by_sender: bool
    """Whether the sender was the limit, so that the emulator may carry more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One rate, tried once."""

    asked_per_s: float
    """The rate that was tried."""
    sent_per_s: float
    """What came to the emulator."""
    packets: int
    """How many there were."""
    amiss: int
    """How many of them were late, or lost by a fault of the emulator."""

    @property
    def kept(self) -> bool:
        """Whether the emulator was in time."""
        return self.amiss <= max(LATE_LEAST, LATE_TOLERATED * self.packets)

    @property
    def by_sender(self) -> bool:
        """Whether the sender could not send as much."""
        return self.sent_per_s < KEPT_UP * self.asked_per_s


def measure_kept_rate(local: LocalHost, binary: str) -> KeptRate:
    """The highest rate of those tried that the emulator keeps up with; it takes about two
    seconds.
    """
    with contextlib.ExitStack() as stack:
        network = stack.enter_context(open_network(local, binary, LINKS, HOSTS))
        _, *keepers = network.pids
        source, sink = (
            stack.enter_context(socket_inside(Path(f"/proc/{pid}/ns/net"), socket.AF_INET, socket.SOCK_DGRAM))
            for pid in keepers
        )
        # Nobody reads it: what does not fit into its buffer is dropped there, without an answer.
        sink.bind((HOSTS["h2"][0], 0))
        source.connect(sink.getsockname())
        source.settimeout(0)
        _send(source, RATES[0], ARRIVAL_S)  # the first packet waits for the other's Ethernet address
        before = _counts(network, time.time())

        def tried(rate: float) -> Step:
            nonlocal before
            took_s = _send(source, rate, STEP_S)
            after = _counts(network, time.time() + ARRIVAL_S)
            grown = {key: after[key] - before[key] for key in before}
            before = after
            packets = grown.pop("offered") // len(HOSTS)  # each link counts it
            return Step(asked_per_s=rate, sent_per_s=packets / took_s, packets=packets, amiss=sum(grown.values()))

        return highest(tried)


def highest(tried: Callable[[float], Step]) -> KeptRate:
    """The highest rate that is kept, of steps that are tried until one is not."""
    best = KeptRate(per_s=0.0, by_sender=False)
    for rate in RATES:
        steps = (tried(rate) for _ in range(ATTEMPTS))
        kept = next((step for step in steps if step.kept), None)
        if kept is None:
            break
        best = KeptRate(per_s=kept.sent_per_s, by_sender=kept.by_sender)
        if kept.by_sender:
            break
    else:
        best = KeptRate(per_s=best.per_s, by_sender=True)
    return best


def _send(source: socket.socket, rate: float, length_s: float) -> float:
    """Send at a rate; in how many seconds."""
    sent, began = 0, time.monotonic()
    while (passed_s := time.monotonic() - began) < length_s:
        due = min(rate * passed_s, rate * length_s)
        while sent < due:
            # What does not fit into the sender's own queue never comes to the emulator.
            with contextlib.suppress(BlockingIOError):
                source.send(DATAGRAM)
            sent += 1
        time.sleep(0.0005)
    return time.monotonic() - began


def _counts(network: Network, after_unix_s: float) -> dict[str, int]:
    """What the emulator says of packets, and of those that were late or lost, over all links."""
    counters = network.counters(after_unix_s, COUNTS_S)
    links = counters.get("links") if counters is not None else None
    if not isinstance(links, list):
        raise LabError("the emulator printed no counts; use programs of one version", exit_code=ENVIRONMENT)
    return {key: sum(int(each[key]) for each in links) for key in ("offered", "released_late", "dropped_by_fault")}
