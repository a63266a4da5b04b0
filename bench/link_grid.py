"""What the emulated link does beside what it was asked for, over a grid of settings: a table, its
figures and a plot.

Needs root and iperf3. Run it from the project's folder: `PYTHONPATH=lab python bench/link_grid.py`.
The figures go to docs/results/links.json, the plot to docs/results/links.svg.
"""

from __future__ import annotations

import json
import shutil
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness import PLIMSOLL

from plimsoll_lab.hosts.host import Host, Process
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.netns import Network, open_network
from plimsoll_lab.hosts.path import PING_FRAME_BYTES
from plimsoll_lab.suite.topology import Link, Topology
from plimsoll_lab.suite.units import ratio

PAYLOAD_SHARE = 1448 / 1514
"""Payload in a full frame, with TCP's timestamps."""
RESULTS = Path("docs/results")
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


def finish(host: Host, argv: Sequence[str], timeout_s: float = 60.0) -> list[str]:
    """Run a command to its end; its lines."""
    deadline = time.monotonic() + timeout_s
    lines: list[str] = []
    with host.start(argv, role="measure", metered=False) as process:
        while process.exit_code() is None and time.monotonic() < deadline:
            host.wait([process], 1.0)
            lines += process.take_lines()
        return lines + process.take_lines()


def ready(host: Host, process: Process, word: str) -> None:
    """Wait until it has printed a word."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if any(word in line for line in process.take_lines()):
            return
        host.wait([process], 1.0)
    raise SystemExit(f"no {word}: {process.stderr_tail()}")


def iperf3(network: Network, *arguments: str) -> Any:  # noqa: ANN401 - its report
    """What iperf3 reports of one transfer."""
    one, other = network.hosts["h1"], network.hosts["h2"]
    with other.start(["iperf3", "-s", "-1", "--forceflush"], role="server", metered=False) as server:
        ready(other, server, "listening")
        return json.loads("\n".join(finish(one, ["iperf3", "-c", "10.0.0.2", "-J", *arguments])))["end"]


def goodput(network: Network) -> float:
    """Payload bits a second of one connection in two seconds, after one to get going."""
    return float(iperf3(network, "-C", "cubic", "-O", "1", "-t", "2")["sum_received"]["bits_per_second"])


def totals(network: Network) -> dict[str, Any]:
    """Packets that came to the wire, both ways together, those lost on it and by the emulator's
    fault, and what emulating cost.
    """
    network.emulator.stop(grace_s=5.0)
    summary = json.loads(network.emulator.take_lines()[-1])
    links, emulator = summary["links"], summary["emulator"]
    packets = sum(way["offered"] - way["dropped_by_queue"] for way in links)
    lost = sum(way["dropped_by_loss"] for way in links)
    return {
        "packets": packets,
        "packets_lost": lost,
        "loss_measured": lost / packets,
        "packets_lost_by_fault": sum(way["dropped_by_fault"] for way in links),
        "cpu_us_per_packet": emulator["cpu_us_per_packet"],
        "standby_cpu_us_per_packet": emulator["standby_cpu_s"] * 1e6 / emulator["packets"],
        "run_queue_wait_s": emulator["run_queue_wait_s"],
    }


def measure(binary: str, rate: str, delay: str, loss: str) -> dict[str, Any]:
    """One link between two hosts: what was asked for, and what came of it."""
    link = Link(ends=("h1", "h2"), shape={"rate": rate, "delay": delay, "loss": loss})
    topology = Topology(hosts=("h1", "h2"), switches=(), links=(link,))
    addresses = {host: topology.addresses_of(host) for host in topology.hosts}
    asked_s = topology.round_trip_s("h1", "h2", frame_bytes=PING_FRAME_BYTES)
    with LocalHost() as local, open_network(local, binary, topology.link_config(seed=1), addresses) as network:
        times = sorted(network.hosts["h1"].round_trips(network.hosts["h2"], asked_s))
        rate_bits = goodput(network)
        if loss != "0%":
            # TCP slows down with loss; datagrams do not, and the more there are the surer is their
            # share.
            iperf3(network, "-u", "-b", str(0.9 * BITS[rate]), "-l", "1400", "-t", "4")
        counted = totals(network)
    return {
        "rate": rate,
        "delay": delay,
        "loss": loss,
        "round_trip_asked_us": asked_s * 1e6,
        "round_trip_us_p50": statistics.median(times) * 1e6,
        "round_trip_us_p99": times[round(0.99 * (len(times) - 1))] * 1e6,
        "goodput_asked_bits_per_s": BITS[rate] * PAYLOAD_SHARE,
        "goodput_bits_per_s": rate_bits,
        **counted,
    }


def row(found: dict[str, Any]) -> str:
    """One line of the table."""
    asked, p50 = found["round_trip_asked_us"], found["round_trip_us_p50"]
    wanted, got = found["goodput_asked_bits_per_s"], found["goodput_bits_per_s"]
    # With loss, goodput is what TCP makes of it.
    off = f" ({got / wanted - 1:+.1%})" if found["loss"] == "0%" else ""
    return (
        f"| {found['rate']} | {found['delay']} | {found['loss']} | {asked / 1e3:.2f} ms | {p50 / 1e3:.2f} ms "
        f"({p50 / asked - 1:+.1%}) | {found['round_trip_us_p99'] / 1e3:.2f} ms | {wanted / 1e6:.1f} Mbit/s "
        f"| {got / 1e6:.1f}{off} | {found['loss_measured']:.2%} of {found['packets']:,} "
        f"| {found['cpu_us_per_packet']:.1f} + {found['standby_cpu_us_per_packet']:.1f} us, "
        f"{found['packets_lost_by_fault']} lost |"
    )


def plot(found: list[dict[str, Any]]) -> str:
    """Measured over asked, of round trips, goodput and loss, each setting a row."""
    import vl_convert  # noqa: PLC0415 - loads a renderer

    dots = []
    for each in found:
        lossy = each["loss"] != "0%"
        name = f"{each['rate']}, {each['delay']}" + (f", {each['loss']} lost" if lossy else "")
        ratios = {"round trip, median": each["round_trip_us_p50"] / each["round_trip_asked_us"]}
        if lossy:
            ratios["loss"] = each["loss_measured"] / ratio(each["loss"])
        else:
            # With loss it is what TCP makes of it.
            ratios["goodput of TCP"] = each["goodput_bits_per_s"] / each["goodput_asked_bits_per_s"]
        dots += [{"link": name, "figure": figure, "ratio": value} for figure, value in ratios.items()]
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": dots},
        "width": 520,
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [4, 4]}, "encoding": {"x": {"datum": 1}}},
            {
                "mark": {"type": "point", "filled": True, "size": 80},
                "encoding": {
                    "x": {
                        "field": "ratio",
                        "type": "quantitative",
                        "title": "measured / asked",
                        "scale": {"zero": False},
                    },
                    "y": {"field": "link", "type": "nominal", "title": None, "sort": None},
                    "color": {"field": "figure", "type": "nominal", "title": None},
                },
            },
        ],
    }
    return str(vl_convert.vegalite_to_svg(json.dumps(spec)))


def main() -> None:
    """Measure the grid and print it."""
    if shutil.which("iperf3") is None:
        raise SystemExit("iperf3 is not installed, which measures the goodput; install it with your package manager")
    print("| rate | delay | loss | RTT asked | RTT p50 | p99 | goodput asked | measured | loss measured | CPU/packet |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    found = []
    for rate, delay, loss in GRID:
        found.append(measure(PLIMSOLL, rate, delay, loss))
        print(row(found[-1]), flush=True)
    RESULTS.mkdir(exist_ok=True)
    record = {"command": "PYTHONPATH=lab python bench/link_grid.py", "links": found}
    (RESULTS / "links.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (RESULTS / "links.svg").write_text(plot(found), encoding="utf-8")


if __name__ == "__main__":
    main()
