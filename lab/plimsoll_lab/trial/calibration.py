"""Whether an emulated network is what was asked for: each path's round trip and goodput, before the first trial.

The round trip is that of ICMP echoes (RFC 792), one after another, from the moment they are handed to the kernel to the
moment that the kernel has the answer (SO_TIMESTAMPNS, socket(7)): no server and no wake-up of a client is in it. The
goodput is the payload that arrives: of UDP datagrams of 1472 bytes, sent a tenth faster than the path can carry, where
the links cut large segments; of four TCP connections where they carry them whole.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import statistics
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from plimsoll_lab.hosts.host import Host
from plimsoll_lab.problem import ENVIRONMENT, LabError
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite.rack import paths
from plimsoll_lab.suite.spec import Plan, Point
from plimsoll_lab.suite.topology import FULL_FRAME_BYTES, Topology
from plimsoll_lab.suite.units import bits_per_s, ratio
from plimsoll_lab.trial.stage import Stage, network_key

ROUND_TRIP_TOLERATED, GOODPUT_TOLERATED = 0.06, 0.03
"""How far the median round trip and the goodput may be off what was asked for."""
ATTEMPTS = 3
"""A passing disturbance of the machine is over by then."""
PINGS, PINGS_LEAST, PINGS_S = 200, 20, 2.0
"""Echoes, fewer where they would take longer than this."""
PING_FRAME_BYTES = 14 + 20 + 8 + 56
"""An Ethernet header, an IPv4 header, an ICMP header, and as much payload as ping(8) sends."""
PING_LOST_S = 1.0
"""More than this beyond the round trip asked for, and an echo is lost."""
DATAGRAM_BYTES = FULL_FRAME_BYTES - 14 - 20 - 8
SEGMENT_BYTES = FULL_FRAME_BYTES - 14 - 20 - 32
"""Payload of a full frame: of UDP, and of TCP with timestamps."""
SETTLE_S, GOODPUT_S, GOODPUT_MOST_S = 0.3, 0.5, 3.0
"""Time to fill the queues, and over which goodput is measured, at least and at most."""
PACKETS_LEAST, PACKETS_LEAST_LOSSY = 200, 3000
"""Packets that make a rate within half a per cent; more where chance decides how many arrive."""
OVERLOAD = 1.1
CONNECTIONS = 4
CHUNK = bytes(1 << 18)
SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; the same on x86-64 and AArch64."""


def calibrate(plan: Plan, stages: Mapping[int, Stage]) -> list[Json]:
    """A record of each distinct network of a run, with the paths that its parts use."""
    records: list[Json] = []
    for key, points in _by_network(plan, stages).items():
        stage = stages[points[0].number]
        if stage.network is None or stage.topology is None or not key:
            continue
        used = dict.fromkeys(pair for point in points for pair in paths(point.place, point.roles, point.load))
        ready = stage.network.ready
        records.append(
            {
                "unix_s": time.time(),
                "points": [point.number for point in points],
                "backend": stage.topology.backend,
                "large_segments": ready.get("large_segments"),
                "priority": ready.get("priority"),
                "paths": [_calibrate_path(stage, stage.topology, start, end) for start, end in used],
            }
        )
    return records


def refuse_untrue(records: Sequence[Json]) -> None:
    """Stop the run where a path is not what was asked for."""
    for record in records:
        for path in cast("list[Json]", record["paths"]):
            if not path["within"]:
                raise LabError(
                    f"the emulated path from {path['from']} to {path['to']} is not what was asked for on this machine: "
                    f"{says(path)}; use a quieter machine, or ask for a longer delay or a lower rate",
                    exit_code=ENVIRONMENT,
                )


def says(path: Json) -> str:
    """What was asked for and what was measured, in words."""
    asked, measured = cast("Json", path["asked"]), cast("Json", path["measured"])
    times = cast("dict[str, float]", measured["round_trip_us"])
    parts = []
    if times:
        wanted_ms = cast("float", asked["round_trip_us"]) / 1e3
        parts.append(f"a round trip of {times['p50'] / 1e3:.3f} ms for {wanted_ms:.3f} ms asked")
    else:
        parts.append("no echo came back")
    if asked["goodput_bits_per_s"] is not None and measured["goodput_bits_per_s"] is not None:
        rates = [cast("float", each["goodput_bits_per_s"]) / 1e6 for each in (measured, asked)]
        parts.append(f"a goodput of {rates[0]:.2f} Mbit/s for {rates[1]:.2f} Mbit/s asked")
    return ", ".join(parts)


def _by_network(plan: Plan, stages: Mapping[int, Stage]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in plan.points:
        if point.number in stages:
            found.setdefault(network_key(point), []).append(point)
    return found


def _calibrate_path(stage: Stage, topology: Topology, start: str, end: str) -> Json:
    asked_rtt_s = topology.round_trip_s(start, end, frame_bytes=PING_FRAME_BYTES)
    delay_s = topology.round_trip_s(start, end)
    asked_goodput = asked_goodput_bits_per_s(topology, start, end, whole=_whole(stage))
    record: Json = {
        "from": start,
        "to": end,
        "asked": {
            "one_way_us": topology.one_way_s(start, end) * 1e6,
            "round_trip_delay_us": delay_s * 1e6,
            "round_trip_us": asked_rtt_s * 1e6,
            "goodput_bits_per_s": asked_goodput,
        },
    }
    for attempt in range(1, ATTEMPTS + 1):
        times = round_trips(stage.hosts[start], stage.hosts[end], asked_rtt_s)
        goodput = _goodput(stage, topology, start, end) if asked_goodput is not None else None
        measured: Json = {"round_trip_us": _told(times), "goodput_bits_per_s": goodput}
        off = {
            # Without any delay there is nothing that a round trip could be held against.
            "round_trip": statistics.median(times) / asked_rtt_s - 1 if times and delay_s else None,
            "goodput": goodput / asked_goodput - 1 if goodput is not None and asked_goodput else None,
        }
        within = (
            bool(times)
            and abs(off["round_trip"] or 0.0) <= ROUND_TRIP_TOLERATED
            and abs(off["goodput"] or 0.0) <= GOODPUT_TOLERATED
        )
        record |= {"measured": measured, "off": off, "within": within, "attempts": attempt}
        if within:
            break
    return record


def asked_goodput_bits_per_s(topology: Topology, start: str, end: str, *, whole: bool) -> float | None:
    """What a path carries of payload, sent a tenth faster than its narrowest link; None where no link has a rate."""
    narrowest = topology.narrowest_bits_per_s(start, end)
    if narrowest is None:
        return None
    carried = OVERLOAD * narrowest
    for shape in topology.path(start, end):
        if "rate" in shape:
            carried = min(carried, bits_per_s(str(shape["rate"])))
        carried *= 1 - ratio(str(shape.get("loss", "0")))
    return carried * (SEGMENT_BYTES if whole else DATAGRAM_BYTES) / FULL_FRAME_BYTES


def _whole(stage: Stage) -> bool:
    return stage.network is not None and stage.network.ready.get("large_segments") == "whole"


def _told(times: Sequence[float]) -> Json:
    if not times:
        return {}
    ordered = sorted(times)
    middle = statistics.median(ordered)
    last = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))]
    return {
        "count": len(ordered),
        **{key: value * 1e6 for key, value in (("min", ordered[0]), ("p50", middle), ("p99", last))},
    }


def round_trips(here: Host, there: Host, asked_s: float) -> list[float]:
    """Seconds that each of many ICMP echoes took; those that were lost are left out."""
    count = max(PINGS_LEAST, min(PINGS, round(PINGS_S / max(asked_s, 1e-4))))
    times: list[float] = []
    with here.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as pinger:
        pinger.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        pinger.connect((there.addresses[0], 0))
        # The first ones find out the Ethernet address, and warm the caches.
        for number in range(-3, count):
            pinger.settimeout(asked_s + PING_LOST_S)
            took_s = _echo(pinger, number & 0xFFFF)
            if number >= 0 and took_s is not None:
                times.append(took_s)
    return times


def _echo(pinger: socket.socket, number: int) -> float | None:
    own = os.getpid() & 0xFFFF
    sent_ns = time.time_ns()
    pinger.send(_echo_request(own, number))
    with contextlib.suppress(TimeoutError):
        while True:
            packet, extra, _, _ = pinger.recvmsg(256, 64)
            kind, _, _, identity, sequence = struct.unpack_from("!BBHHH", packet, (packet[0] & 0xF) * 4)
            if (kind, identity, sequence) == (0, own, number):
                for level, what, told in extra:
                    if (level, what) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                        seconds, nanoseconds = cast("tuple[int, int]", struct.unpack("=qq", told))
                        return (seconds * 1_000_000_000 + nanoseconds - sent_ns) / 1e9
    return None


def _echo_request(identity: int, number: int) -> bytes:
    body = bytes(PING_FRAME_BYTES - 14 - 20 - 8)
    words = struct.pack("!BBHHH", 8, 0, 0, identity, number) + body
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    total = (total >> 16) + (total & 0xFFFF)
    return struct.pack("!BBHHH", 8, 0, ~(total + (total >> 16)) & 0xFFFF, identity, number) + body


def _goodput(stage: Stage, topology: Topology, start: str, end: str) -> float:
    here, there = stage.hosts[start], stage.hosts[end]
    round_trip_s = topology.round_trip_s(start, end)
    if _whole(stage):
        return _tcp_goodput(here, there, round_trip_s)
    narrowest = topology.narrowest_bits_per_s(start, end) or 0.0
    lossy = topology.arriving(start, end) < 1
    return _udp_goodput(here, there, narrowest, round_trip_s, lossy=lossy)


def _udp_goodput(here: Host, there: Host, rate: float, round_trip_s: float, *, lossy: bool) -> float:
    """Payload bits a second that reach the other host's interface, while more is sent than fits."""
    datagram = bytes(DATAGRAM_BYTES)
    per_s = OVERLOAD * rate / (8 * FULL_FRAME_BYTES)
    wanted = PACKETS_LEAST_LOSSY if lossy else PACKETS_LEAST
    length_s = min(GOODPUT_MOST_S, max(GOODPUT_S, wanted / per_s))
    with (
        there.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink,
        here.socket(socket.AF_INET, socket.SOCK_DGRAM) as source,
    ):
        sink.bind((there.addresses[0], 0))
        source.connect(sink.getsockname())
        sent, began = 0, time.monotonic()

        def flood() -> None:
            nonlocal sent
            due = (time.monotonic() - began) * per_s
            while sent < due:
                # A full queue of the sender's own is a drop before the link, as the rate asks for more than fits.
                with contextlib.suppress(BlockingIOError):
                    source.send(datagram, socket.MSG_DONTWAIT)
                sent += 1

        while time.monotonic() - began < SETTLE_S + round_trip_s:
            flood()
            time.sleep(0.001)
        first, first_at = _next_arrival(there, flood)
        while time.monotonic() - first_at < length_s:
            flood()
            time.sleep(0.001)
        last, last_at = _next_arrival(there, flood)
    return (last - first) * DATAGRAM_BYTES * 8 / (last_at - first_at)


def _next_arrival(there: Host, meanwhile: Callable[[], None]) -> tuple[int, float]:
    """How many packets have arrived, at the moment that one has: a slow link lets few through."""
    before = _arrived(there)
    while True:
        meanwhile()
        now = _arrived(there)
        if now > before:
            return now, time.monotonic()


def _arrived(there: Host) -> int:
    """Packets that the host's interface has received (proc_net_dev: the second figure)."""
    for line in Path(f"/proc/{there.namespace_pid or 'self'}/net/dev").read_text(encoding="ascii").splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == there.interface:
            return int(figures.split()[1])
    raise LabError(f"{there.name} has no interface {there.interface}: it was taken away; run again")


def _tcp_goodput(here: Host, there: Host, round_trip_s: float) -> float:
    """Payload bits a second that several connections carry together."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(there.socket(socket.AF_INET, socket.SOCK_STREAM))
        listener.bind((there.addresses[0], 0))
        listener.listen(CONNECTIONS)
        selector = stack.enter_context(selectors.DefaultSelector())
        for _ in range(CONNECTIONS):
            source = stack.enter_context(here.socket(socket.AF_INET, socket.SOCK_STREAM))
            source.connect(listener.getsockname())
            sink, _ = listener.accept()
            stack.enter_context(sink)
            for each, event in ((source, selectors.EVENT_WRITE), (sink, selectors.EVENT_READ)):
                each.settimeout(0)
                selector.register(each, event)
        buffer = bytearray(len(CHUNK))
        opens = time.monotonic() + SETTLE_S + 10 * round_trip_s
        received, opened_at = 0, None
        while True:
            for key, event in selector.select(1.0):
                end = cast("socket.socket", key.fileobj)
                with contextlib.suppress(BlockingIOError):
                    if event & selectors.EVENT_READ:
                        received += end.recv_into(buffer)
                    else:
                        end.send(CHUNK)
            now = time.monotonic()
            if opened_at is None and now >= opens:
                received, opened_at = 0, now
            elif opened_at is not None and now - opened_at >= GOODPUT_S:
                return received * 8 / (now - opened_at)
