"""TCP over emulated links beside theory: goodput under loss, a shallow queue, the window, and a
path of four hosts with a bottleneck in its middle.

Needs root and iperf3. From the project's folder `PYTHONPATH=lab python bench/link_theory.py`
measures in about 18 minutes, keeps docs/results/link-theory.json and writes docs/link-theory.md
with its plots. `--write` only writes the chapter, from what is kept. `--quick` prints one setting
of Reno and keeps nothing.
"""

from __future__ import annotations

import itertools
import json
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chapter import wrapped
from link_grid import finish, ready, totals
from tcp_theory import bandwidth_delay_packets, payload_bits_per_s, reno_bits_per_s, reno_utilisation

from plimsoll_lab.hosts.binary import find_binary
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.netns import Network, open_network
from plimsoll_lab.suite.topology import Link, LinkSettings, Topology, join
from plimsoll_lab.suite.units import bits_per_s, ratio

KEPT = Path("docs/results/link-theory.json")
CHAPTER = Path("docs/link-theory.md")
CONTROLS = ("reno", "cubic", "bbr")
LOSSES = ("0.1%", "0.3%", "1%", "3%")
WITHIN = 1.5
"""Mathis is a bound on an average: an implementation of Reno is within this factor of it."""
LOSSY: LinkSettings = {"rate": "100Mbit", "delay": "10ms", "queue": 1000}
"""Wide enough that loss alone bounds the window; the way back loses nothing."""
REPEATS = 3
"""Each with losses of its own: at 0.1 % so short a time has some thirty of them."""
SHALLOW: LinkSettings = {"rate": "20Mbit", "delay": "20ms"}
QUEUES = (7, 17, 33, 66, 132)
"""Packets; the bandwidth x delay of that link is 66."""
WINDOWS = (("10Mbit", "5ms"), ("10Mbit", "50ms"), ("50Mbit", "10ms"), ("100Mbit", "5ms"), ("100Mbit", "25ms"))
EDGE: LinkSettings = {"rate": "100Mbit", "delay": "1ms"}
MIDDLE: LinkSettings = {"rate": "20Mbit", "delay": "10ms"}
BACK: LinkSettings = {"rate": "5Mbit", "delay": "10ms"}
"""The bottleneck in the middle of the path, forth and back."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Transfer:
    """One connection that sends for a while."""

    control: str
    """Its congestion control."""
    seconds: int
    """How long it is measured, after two seconds to get going."""
    ends: tuple[str, str] = ("h1", "h2")
    """Who sends, and who receives."""
    seed: int = 1
    """Of the losses."""


def measure(binary: str, topology: Topology, transfer: Transfer) -> Row:
    """What became of a transfer over links of its own."""
    addresses = {host: topology.addresses_of(host) for host in topology.hosts}
    config = topology.link_config(seed=transfer.seed)
    with LocalHost() as local, open_network(local, binary, config, addresses) as network:
        told = _iperf3(network, transfer)
        counted = totals(network)
    sender = told["streams"][0]["sender"]
    used = told.get("sender_tcp_congestion")
    if used != transfer.control:
        raise SystemExit(f"iperf3 used {used} and not {transfer.control}; load that module (modprobe tcp_{used})")
    return {
        "control": transfer.control,
        "from": transfer.ends[0],
        "to": transfer.ends[1],
        "round_trip_asked_s": topology.round_trip_s(*transfer.ends),
        "round_trip_s": sender["mean_rtt"] / 1e6,
        "goodput_bits_per_s": float(told["sum_received"]["bits_per_second"]),
        "window_most_bytes": sender["max_snd_cwnd"],
        "retransmitted": sender["retransmits"],
        "packets_lost": counted["packets_lost"],
        "lost_by_fault": counted["packets_lost_by_fault"],
    }


def _iperf3(network: Network, transfer: Transfer) -> Any:  # noqa: ANN401 - its report
    one, other = (network.hosts[name] for name in transfer.ends)
    address = f"10.0.0.{transfer.ends[1][1:]}"
    with other.start(["iperf3", "-s", "-1", "--forceflush"], role="server", metered=False) as server:
        ready(other, server, "listening")
        words = ["iperf3", "-c", address, "-J", "-C", transfer.control, "-O", "2", "-t", str(transfer.seconds)]
        told = json.loads("\n".join(finish(one, words, timeout_s=60.0 + transfer.seconds)))
    if "error" in told:
        raise SystemExit(f"iperf3: {told['error']}")
    return told["end"]


def pair(shape: LinkSettings, **forth: str | int) -> Topology:
    """Two hosts; what is said of the way forth is not said of the way back."""
    link = Link(ends=("h1", "h2"), shape={**shape, **forth, "reverse": dict(shape)})
    return Topology(hosts=("h1", "h2"), switches=(), links=(link,))


def four_hosts(loss: str) -> Topology:
    """Four hosts on four switches in a row: other rates each way, the narrowest link in the
    middle.
    """
    middle = {**MIDDLE, "loss": loss, "reverse": {**BACK, "loss": loss}}
    shapes: tuple[tuple[tuple[str, str], LinkSettings], ...] = (
        (("h1", "s1"), {**EDGE, "reverse": {**EDGE, "rate": "50Mbit"}}),
        (("h2", "s2"), EDGE),
        (("h3", "s3"), EDGE),
        (("h4", "s4"), {**EDGE, "reverse": {**EDGE, "rate": "50Mbit"}}),
        (("s1", "s2"), {"rate": "100Mbit", "delay": "2ms"}),
        (("s2", "s3"), middle),
        (("s3", "s4"), {"rate": "100Mbit", "delay": "2ms"}),
    )
    return join([Link(ends=ends, shape=shape) for ends, shape in shapes])


def under_loss(
    binary: str, losses: Sequence[str], controls: Sequence[str], seconds: int, repeats: int
) -> Iterator[Row]:
    """Goodput of each congestion control at each loss, beside Mathis."""
    for loss, control, seed in itertools.product(losses, controls, range(1, repeats + 1)):
        topology = pair(LOSSY, loss=loss)
        found = measure(binary, topology, Transfer(control=control, seconds=seconds, seed=seed))
        theory = reno_bits_per_s(bits_per_s(str(LOSSY["rate"])), found["round_trip_asked_s"], ratio(loss))
        yield {"loss": loss, "seed": seed, "theory_bits_per_s": theory} | found


def over_queues(binary: str, controls: Sequence[str], seconds: int) -> Iterator[Row]:
    """Goodput of each congestion control through each queue, beside Reno's in theory."""
    rate = bits_per_s(str(SHALLOW["rate"]))
    for queue, control in itertools.product(QUEUES, controls):
        found = measure(binary, pair(SHALLOW, queue=queue), Transfer(control=control, seconds=seconds))
        part = reno_utilisation(queue, bandwidth_delay_packets(rate, found["round_trip_asked_s"]))
        yield {"queue": queue, "theory_bits_per_s": payload_bits_per_s(rate) * part} | found


def windows(binary: str, seconds: int) -> Iterator[Row]:
    """Bytes under way of cubic, beside the link's bandwidth x delay."""
    for rate, delay in WINDOWS:
        found = measure(binary, pair({"rate": rate, "delay": delay}), Transfer(control="cubic", seconds=seconds))
        full = bits_per_s(rate) * found["round_trip_asked_s"] / 8
        under_way = found["goodput_bits_per_s"] * found["round_trip_s"] / 8
        yield {"rate": rate, "delay": delay, "bandwidth_delay_bytes": full, "under_way_bytes": under_way} | found


def along_path(binary: str, controls: Sequence[str], seconds: int) -> Iterator[Row]:
    """Goodput from the first of four hosts to the last, and back, without loss and with."""
    for loss, ends, control in itertools.product(("0%", "0.3%"), (("h1", "h4"), ("h4", "h1")), controls):
        topology = four_hosts(loss)
        found = measure(binary, topology, Transfer(control=control, seconds=seconds, ends=ends))
        narrowest = topology.narrowest_bits_per_s(*ends) or 0.0
        theory = reno_bits_per_s(narrowest, found["round_trip_asked_s"], ratio(loss))
        yield {"loss": loss, "narrowest_bits_per_s": narrowest, "theory_bits_per_s": theory} | found


def loss_lines(rows: Sequence[Row]) -> list[str]:
    """The table of goodput under loss, and whether Reno is as near to Mathis as it has to be."""
    lines = [
        "## Goodput under loss",
        "",
        (
            f"One connection over {LOSSY['rate']}, {LOSSY['delay']} each way; losses on the way forth alone. Mathis: "
            "1448 bytes a round trip, times sqrt(3/2) over the root of the loss."
        ),
        "",
        "| loss | Mathis, Mbit/s | " + " | ".join(CONTROLS) + " | Reno / Mathis |",
        "|---|---|" + "---|" * (len(CONTROLS) + 1),
    ]
    ratios = []
    for loss in dict.fromkeys(row["loss"] for row in rows):
        here = [row for row in rows if row["loss"] == loss]
        theory = here[0]["theory_bits_per_s"]
        found = {control: _median(row for row in here if row["control"] == control) for control in CONTROLS}
        reno = found["reno"]
        ratios += [reno / theory] if reno is not None else []
        cells = [_mbit(found[control]) for control in CONTROLS]
        near = "-" if reno is None else f"{reno / theory:.2f}"
        lines.append(f"| {loss} | {_mbit(theory)} | {' | '.join(cells)} | {near} |")
    held = bool(ratios) and all(1 / WITHIN <= each <= WITHIN for each in ratios)
    said = "lies" if held else "does not lie"
    verdict = f"Reno {said} within {WITHIN:g} times of Mathis at every loss."
    how = f"The goodputs are medians of {REPEATS} runs with other losses; the tables below have one run a row."
    return [*lines, "", f"{verdict} {how} Mathis is of the round trip that was asked for.", ""]


def queue_lines(rows: Sequence[Row]) -> list[str]:
    """The table of goodput through a shallow queue."""
    lines = [
        "## A shallow queue",
        "",
        (
            f"One connection over {SHALLOW['rate']}, {SHALLOW['delay']} each way, without loss on the wire: a round "
            "trip holds 66 packets. Theory: 3/4 (1 + b)² / (1 + b + b²) of the link for Reno, with b the queue over "
            "those 66."
        ),
        "",
        "| queue, packets | theory for Reno, Mbit/s | " + " | ".join(CONTROLS) + " | Reno / theory |",
        "|---|---|" + "---|" * (len(CONTROLS) + 1),
    ]
    for queue in dict.fromkeys(row["queue"] for row in rows):
        here = {row["control"]: row for row in rows if row["queue"] == queue}
        theory = next(iter(here.values()))["theory_bits_per_s"]
        cells = [_mbit(here[each]["goodput_bits_per_s"] if each in here else None) for each in CONTROLS]
        near = f"{here['reno']['goodput_bits_per_s'] / theory:.2f}" if "reno" in here else "-"
        lines.append(f"| {queue} | {_mbit(theory)} | {' | '.join(cells)} | {near} |")
    return [*lines, ""]


def window_lines(rows: Sequence[Row]) -> list[str]:
    """The table of windows."""
    lines = [
        "## The window",
        "",
        (
            "Cubic without loss on the wire, through the default queue, which holds as much as the round trip, and at "
            "least 100 packets. Under way is goodput x round trip (Little's law): at least the bandwidth x delay."
        ),
        "",
        "| link | bandwidth x delay, kB | under way, kB | under way / bandwidth x delay | largest window, kB |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        full, under_way = row["bandwidth_delay_bytes"], row["under_way_bytes"]
        lines.append(
            f"| {row['rate']}, {row['delay']} each way | {full / 1e3:,.0f} | {under_way / 1e3:,.0f} "
            f"| {under_way / full:.2f} | {row['window_most_bytes'] / 1e3:,.0f} |"
        )
    return [*lines, ""]


def path_lines(rows: Sequence[Row]) -> list[str]:
    """The table of the path of four hosts."""
    lines = [
        "## A path of four hosts",
        "",
        (
            f"h1 to h4 over four switches in a row. The link in the middle has {MIDDLE['rate']} forth and "
            f"{BACK['rate']} back, {MIDDLE['delay']} each way, and the loss; every other link has 50 or 100 Mbit. "
            "Theory is the lower of Mathis and the narrowest link's payload."
        ),
        "",
        "| way | loss | theory for Reno, Mbit/s | " + " | ".join(CONTROLS) + " | Reno / theory |",
        "|---|---|---|" + "---|" * (len(CONTROLS) + 1),
    ]
    for loss, start, end in dict.fromkeys((row["loss"], row["from"], row["to"]) for row in rows):
        here = {row["control"]: row for row in rows if (row["loss"], row["from"]) == (loss, start)}
        theory = next(iter(here.values()))["theory_bits_per_s"]
        cells = [_mbit(here[each]["goodput_bits_per_s"] if each in here else None) for each in CONTROLS]
        near = f"{here['reno']['goodput_bits_per_s'] / theory:.2f}" if "reno" in here else "-"
        lines.append(f"| {start} to {end} | {loss} | {_mbit(theory)} | {' | '.join(cells)} | {near} |")
    return [*lines, ""]


def plot(rows: Sequence[Row], across: str, title: str, *, logarithmic: bool) -> str:
    """Goodput of each congestion control over a setting, and theory as a dashed line."""
    import vl_convert  # noqa: PLC0415 - loads a renderer

    def place(row: Row) -> float:
        return ratio(row[across]) * 100 if across == "loss" else float(row[across])

    scale = {"type": "log" if logarithmic else "linear", "zero": False}
    x = {"field": "x", "type": "quantitative", "title": title, "scale": {"type": "log"}}
    y = {"field": "y", "type": "quantitative", "title": "goodput, Mbit/s", "scale": scale}
    theory = [{"x": place(row), "y": row["theory_bits_per_s"] / 1e6} for row in rows]
    found = [{"x": place(row), "y": row["goodput_bits_per_s"] / 1e6, "control": row["control"]} for row in rows]
    told = {"field": "control", "type": "nominal", "title": None}
    named = {"datum": "theory for Reno", "scale": {"range": [[4, 4]]}, "title": None}
    line = {"x": x, "y": y, "strokeDash": named}
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": 420,
        "height": 280,
        "layer": [
            {"data": {"values": theory}, "mark": {"type": "line", "color": "gray"}, "encoding": line},
            {
                "data": {"values": found},
                "mark": {"type": "point", "size": 60},
                "encoding": {"x": x, "y": y, "color": told, "shape": told},
            },
        ],
    }
    return str(vl_convert.vegalite_to_svg(json.dumps(spec)))


def write_chapter(kept: Row) -> None:
    """The chapter and its plots, from what is kept."""
    lines = [
        "# TCP over emulated links, beside theory",
        "",
        (
            f"Generated by `{kept['command']}`. Each goodput is the payload that iperf3 received, without its first "
            "two seconds; the links do [what they were asked for](networks.md#how-accurate-it-is)."
        ),
        "",
        *loss_lines(kept["loss"]),
        "![Goodput over loss](results/link-theory-loss.svg)",
        "",
        *queue_lines(kept["queue"]),
        "![Goodput over the queue](results/link-theory-queue.svg)",
        "",
        *window_lines(kept["window"]),
        *path_lines(kept["path"]),
    ]
    faults = sum(row["lost_by_fault"] for part in ("loss", "queue", "window", "path") for row in kept[part])
    runs = sum(len(kept[part]) for part in ("loss", "queue", "window", "path"))
    lines.append(f"The emulator itself lost {faults:,} packets in these {runs} runs.")
    folder = KEPT.parent
    loss = plot(kept["loss"], "loss", "loss, %", logarithmic=True)
    queue = plot(kept["queue"], "queue", "queue, packets", logarithmic=False)
    (folder / "link-theory-loss.svg").write_text(loss, encoding="utf-8")
    (folder / "link-theory-queue.svg").write_text(queue, encoding="utf-8")
    CHAPTER.write_text("\n".join(wrapped(lines)) + "\n", encoding="utf-8")


def _median(rows: Iterator[Row]) -> float | None:
    found = [row["goodput_bits_per_s"] for row in rows]
    return statistics.median(found) if found else None


def _mbit(bits: float | None) -> str:
    return "-" if bits is None else f"{bits / 1e6:.1f}"


def _told(rows: Iterator[Row]) -> list[Row]:
    """The rows, each printed as it comes."""
    found = []
    for row in rows:
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def main(arguments: Sequence[str]) -> None:
    """Measure, keep and write; or one of the three."""
    if list(arguments) == ["--write"]:
        write_chapter(json.loads(KEPT.read_text(encoding="utf-8")))
        return
    if arguments and list(arguments) != ["--quick"]:
        raise SystemExit("usage: bench/link_theory.py [--quick | --write]")
    binary = find_binary()
    if shutil.which("iperf3") is None:
        raise SystemExit("iperf3 is not installed, which sends and measures; install it with your package manager")
    if arguments:
        _told(under_loss(binary, ["1%"], ["reno"], seconds=5, repeats=1))
        return
    there = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()
    controls = [each for each in CONTROLS if each in there]
    kept = {
        "command": "PYTHONPATH=lab python bench/link_theory.py",
        "loss": _told(under_loss(binary, LOSSES, controls, seconds=15, repeats=REPEATS)),
        "queue": _told(over_queues(binary, controls, seconds=15)),
        "window": _told(windows(binary, seconds=8)),
        "path": _told(along_path(binary, controls, seconds=10)),
    }
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    write_chapter(kept)


if __name__ == "__main__":
    main(sys.argv[1:])
