"""What the emulated link does beside what it was asked for, over a grid of settings, as a table. Needs root and iperf3.

Run it from the project's folder: `PYTHONPATH=lab python bench/link_grid.py`.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from typing import Any

from plimsoll_lab.hosts.binary import find_binary
from plimsoll_lab.hosts.local import LocalHost, LocalProcess
from plimsoll_lab.hosts.netns import NetnsHost, Network, open_network
from plimsoll_lab.suite.topology import Link, Topology
from plimsoll_lab.suite.units import duration_s

PAYLOAD_SHARE = 1448 / 1514
"""Payload in a full frame, with TCP's timestamps."""
SMALL_FRAME_BITS = 8 * (66 + 64)
"""A request, or a reply, of 64 bytes with its headers."""
GRID = [
    ("10Mbit", "1ms", "0%"),
    ("10Mbit", "10ms", "0%"),
    ("100Mbit", "100us", "0%"),
    ("100Mbit", "1ms", "0%"),
    ("100Mbit", "10ms", "0%"),
    ("1Gbit", "100us", "0%"),
    ("1Gbit", "1ms", "0%"),
    ("1Gbit", "10ms", "0%"),
    ("100Mbit", "1ms", "0.1%"),
    ("100Mbit", "1ms", "1%"),
    ("100Mbit", "1ms", "5%"),
]
BITS = {"10Mbit": 10e6, "100Mbit": 100e6, "1Gbit": 1e9}


def finish(host: NetnsHost, argv: Sequence[str], timeout_s: float = 60.0) -> list[str]:
    """Run a command to its end; its lines."""
    deadline = time.monotonic() + timeout_s
    lines: list[str] = []
    with host.start(argv, role="measure", metered=False) as process:
        while process.exit_code() is None and time.monotonic() < deadline:
            host.wait([process], 1.0)
            lines += process.take_lines()
        return lines + process.take_lines()


def ready(host: NetnsHost, process: LocalProcess, word: str) -> None:
    """Wait until it has printed a word."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if any(word in line for line in process.take_lines()):
            return
        host.wait([process], 1.0)
    raise SystemExit(f"no {word}: {process.stderr_tail()}")


def round_trip(network: Network, binary: str) -> dict[str, float]:
    """Response times of single requests of 64 bytes, in microseconds."""
    one, other = network.hosts["h1"], network.hosts["h2"]
    address = f"10.0.0.2:{other.free_port()}"
    with other.start([binary, "serve", "echo", "--listen", address, "--json"], role="server", metered=False) as server:
        ready(other, server, '"ready"')
        load = [binary, "load", "echo", address, "-c", "1", "-n", "300", "-t", "1", "--json", "--quiet"]
        summary: dict[str, Any] = json.loads(finish(one, load)[-1])
        return dict(summary["response_time_us"])


def goodput(network: Network) -> float:
    """Payload bits a second of one connection in two seconds, after one to get going."""
    one, other = network.hosts["h1"], network.hosts["h2"]
    with other.start(["iperf3", "-s", "-1", "--forceflush"], role="server", metered=False) as server:
        ready(other, server, "listening")
        report = "\n".join(finish(one, ["iperf3", "-c", "10.0.0.2", "-C", "cubic", "-O", "1", "-t", "2", "-J"]))
        return float(json.loads(report)["end"]["sum_received"]["bits_per_second"])


def lost(network: Network) -> tuple[int, int]:
    """Packets lost on the wire and packets offered, both ways together."""
    network.emulator.stop(grace_s=5.0)
    summary = json.loads(network.emulator.take_lines()[-1])
    return (
        sum(way["dropped_by_loss"] for way in summary["links"]),
        sum(way["offered"] - way["dropped_by_queue"] for way in summary["links"]),
    )


def main() -> None:
    """Measure the grid and print it."""
    binary = find_binary()
    if shutil.which("iperf3") is None:
        raise SystemExit("iperf3 is not installed, which measures the goodput; install it with your package manager")
    print("| rate | delay | loss | RTT asked | RTT p50 | p99 | goodput asked | measured | loss measured |")
    print("|---|---|---|---|---|---|---|---|---|")
    for rate, delay, loss in GRID:
        link = Link(ends=("h1", "h2"), shape={"rate": rate, "delay": delay, "loss": loss})
        topology = Topology(hosts=("h1", "h2"), switches=(), links=(link,))
        addresses = {host: topology.addresses_of(host) for host in topology.hosts}
        with LocalHost() as local, open_network(local, binary, topology.link_config(seed=1), addresses) as network:
            times = round_trip(network, binary)
            rate_bits = goodput(network)
            dropped, offered = lost(network)
        asked_ms = 2e3 * (duration_s(delay) + SMALL_FRAME_BITS / BITS[rate])
        asked_bits = BITS[rate] * PAYLOAD_SHARE
        off = f" ({rate_bits / asked_bits - 1:+.1%})" if loss == "0%" else ""
        print(
            f"| {rate} | {delay} | {loss} | {asked_ms:.2f} ms | {times['p50'] / 1e3:.2f} ms "
            f"({times['p50'] / 1e3 / asked_ms - 1:+.1%}) | {times['p99'] / 1e3:.2f} ms | {asked_bits / 1e6:.1f} Mbit/s "
            f"| {rate_bits / 1e6:.1f}{off} | {dropped / offered:.2%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
