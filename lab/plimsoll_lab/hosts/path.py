"""Measures a path between two places of this machine: the round trip of ICMP echoes, and the
goodput.

The round trip is that of ICMP echoes (RFC 792), one after another, from the moment they are handed
to the kernel to the moment that the kernel has the answer (SO_TIMESTAMPNS, socket(7)): no server
and no wake-up of a client is in it. The library icmplib reads the clock once it has been woken, so
its times would hold that wake-up. The goodput is the payload that arrives: of UDP datagrams of 1472
bytes, sent a tenth faster than the path can carry, or of four TCP connections.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from plimsoll_lab.problem import ENVIRONMENT, LabError

FULL_FRAME_BYTES = 1514
"""An Ethernet frame with 1500 bytes of payload, without its checksum."""
PINGS, PINGS_LEAST, PINGS_S = 200, 20, 2.0
"""Echoes, fewer where they would take longer than this."""
PING_FRAME_BYTES = 14 + 20 + 8 + 56
"""An Ethernet header, an IPv4 header, an ICMP header, and as much payload as ping(8) sends."""
PING_LOST_S = 1.0
"""More than this beyond the round trip asked for, and an echo is lost."""
DATAGRAM_BYTES = FULL_FRAME_BYTES - 14 - 20 - 8
SEGMENT_BYTES = FULL_FRAME_BYTES - 14 - 20 - 32
"""Payload of a full frame: of UDP, and of TCP with timestamps."""
ARRIVES_S, ARRIVES_PACKETS = 10.0, 500
"""The next packet arrives within this, and the time of so many full frames of the link: of a
hundred sent, one may get through."""
SETTLE_S, GOODPUT_S, GOODPUT_MOST_S = 0.3, 0.5, 3.0
"""Time to fill the queues, and over which goodput is measured, at least and at most."""
PACKETS_LEAST, PACKETS_LEAST_LOSSY = 200, 3000
"""Packets that make a rate within half a per cent; more where chance decides how many arrive."""
OVERLOAD = 1.1
CONNECTIONS = 4
CHUNK = bytes(1 << 18)
DISCARD = 9
"""A port that nothing here listens on (RFC 863)."""
CONTROL_NAME_BYTES = 16
"""TCP_CA_NAME_MAX, linux/tcp.h."""
SO_TIMESTAMPNS = 35
"""asm-generic/socket.h; the same on x86-64 and AArch64."""


class PathEnd(Protocol):
    """One end of a path."""

    name: str
    """In errors."""
    addresses: tuple[str, ...]
    """The first one is used."""
    interface: str
    """Whose packets are counted."""
    namespace_pid: int | None
    """A process in its network namespace; None where that is this process's."""

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """A socket of its network."""


def round_trips(pinger: socket.socket, address: str, expected_s: float) -> tuple[float, ...]:
    """Seconds that each of many ICMP echoes took over a raw socket; those that were lost are left
    out.
    """
    count = max(PINGS_LEAST, min(PINGS, round(PINGS_S / max(expected_s, 1e-4))))
    times: list[float] = []
    pinger.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    pinger.connect((address, 0))
    # The first ones find out the Ethernet address, and warm the caches.
    for number in range(-3, count):
        pinger.settimeout(expected_s + PING_LOST_S)
        took_s = _echo(pinger, number & 0xFFFF)
        if number >= 0 and took_s is not None:
            times.append(took_s)
    return tuple(times)


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
                        stamp: tuple[int, int] = struct.unpack("=qq", told)
                        return (stamp[0] * 1_000_000_000 + stamp[1] - sent_ns) / 1e9
    return None


def _echo_request(identity: int, number: int) -> bytes:
    body = bytes(PING_FRAME_BYTES - 14 - 20 - 8)
    words = struct.pack("!BBHHH", 8, 0, 0, identity, number) + body
    total = sum(struct.unpack(f"!{len(words) // 2}H", words))
    total = (total >> 16) + (total & 0xFFFF)
    return struct.pack("!BBHHH", 8, 0, ~(total + (total >> 16)) & 0xFFFF, identity, number) + body


def congestion_control(here: PathEnd, address: str) -> str:
    """What controls the congestion of a connection from here (TCP_CONGESTION, tcp(7)). The kernel
    chooses it with the route, as the connection begins: nobody has to answer.
    """
    with here.socket(socket.AF_INET, socket.SOCK_STREAM) as beginning:
        beginning.settimeout(0)
        beginning.connect_ex((address, DISCARD))
        name = beginning.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONTROL_NAME_BYTES)
    return name.partition(b"\0")[0].decode("ascii")


def udp_goodput(here: PathEnd, there: PathEnd, rate: float, round_trip_s: float, *, lossy: bool) -> float:
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
                # A full queue of the sender's own is a drop before the link, as the rate asks for
                # more than fits.
                with contextlib.suppress(BlockingIOError):
                    source.send(datagram, socket.MSG_DONTWAIT)
                sent += 1

        while time.monotonic() - began < SETTLE_S + round_trip_s:
            flood()
            time.sleep(0.001)
        patience_s = ARRIVES_S + ARRIVES_PACKETS * 8 * FULL_FRAME_BYTES / rate + round_trip_s
        first, first_at = _next_arrival(there, flood, patience_s)
        while time.monotonic() - first_at < length_s:
            flood()
            time.sleep(0.001)
        last, last_at = _next_arrival(there, flood, patience_s)
    return (last - first) * DATAGRAM_BYTES * 8 / (last_at - first_at)


def _next_arrival(there: PathEnd, meanwhile: Callable[[], None], patience_s: float) -> tuple[int, float]:
    """How many packets have arrived, at the moment that one has: a slow link lets few through."""
    before, began = _arrived(there), time.monotonic()
    while True:
        if time.monotonic() - began > patience_s:
            raise LabError(
                f"nothing arrives at {there.name}: its links lose every packet, or their emulator has ended; state a "
                "loss below 100 %, or run again",
                exit_code=ENVIRONMENT,
            )
        meanwhile()
        now = _arrived(there)
        if now > before:
            return now, time.monotonic()


def _arrived(there: PathEnd) -> int:
    """Packets that the host's interface has received (proc_net_dev: the second figure)."""
    for line in Path(f"/proc/{there.namespace_pid or 'self'}/net/dev").read_text(encoding="ascii").splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == there.interface:
            return int(figures.split()[1])
    raise LabError(f"{there.name} has no interface {there.interface}: it was taken away; run again")


def tcp_goodput(here: PathEnd, there: PathEnd, round_trip_s: float) -> float:
    """Payload bits a second of several connections together."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(there.socket(socket.AF_INET, socket.SOCK_STREAM))
        listener.bind((there.addresses[0], 0))
        listener.listen(CONNECTIONS)
        selector = stack.enter_context(selectors.DefaultSelector())
        ends: dict[int, socket.socket] = {}
        for _ in range(CONNECTIONS):
            source = stack.enter_context(here.socket(socket.AF_INET, socket.SOCK_STREAM))
            source.connect(listener.getsockname())
            sink, _ = listener.accept()
            stack.enter_context(sink)
            for each, event in ((source, selectors.EVENT_WRITE), (sink, selectors.EVENT_READ)):
                each.settimeout(0)
                selector.register(each, event)
                ends[each.fileno()] = each
        buffer = bytearray(len(CHUNK))
        opens = time.monotonic() + SETTLE_S + 10 * round_trip_s
        received, opened_at = 0, None
        while True:
            for key, event in selector.select(1.0):
                end = ends[key.fd]
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
