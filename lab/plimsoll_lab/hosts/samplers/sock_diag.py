"""tcp_info of a sample of connections, by sock_diag(7).

The kernel fills a dump piece by piece as it is read, in the order of its hash table, which is as
good as drawn by lot; so reading the first two pieces alone costs little however many connections
there are. What is read is the sending side's own view: its round-trip time, what it had to send
again, and how fast data was delivered.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

NETLINK_SOCK_DIAG = 4
"""linux/netlink.h."""
SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, NLM_F_DUMP, NLMSG_DONE = 20, 1, 0x300, 3
"""linux/sock_diag.h and linux/netlink.h."""
INET_DIAG_INFO = 2
"""linux/inet_diag.h: the attribute that holds a tcp_info."""
ESTABLISHED = 1 << 1
"""A bit for each state, TCP_ESTABLISHED alone (net/tcp_states.h)."""
PIECE_BYTES = 32 << 10
"""A piece of a dump: some seventy connections."""
HEADER, REQUEST, MESSAGE = struct.Struct("=IHHII"), struct.Struct("=BBBxI2s2s16s16sI8s"), 72
"""nlmsghdr, inet_diag_req_v2, and the length of an inet_diag_msg before its attributes."""
RTT_AT, RTTVAR_AT, TOTAL_RETRANS_AT, DELIVERY_RATE_AT = 68, 72, 100, 160
"""Offsets in a tcp_info (linux/tcp.h): two times in microseconds, a count, and bytes a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TcpInfo:
    """The state of one end of a connection."""

    rtt_us: int
    """Smoothed round-trip time (RFC 6298)."""
    rttvar_us: int
    """Its variation."""
    total_retransmissions: int
    """Segments sent again since the connection began."""
    delivery_rate_bytes_per_s: int
    """How fast data was delivered, as last measured; 0 where it was not."""


def sample_connections(diag: socket.socket, family: socket.AddressFamily, port: int) -> list[TcpInfo]:
    """Some established connections of a family whose local port is this one, of which there is at
    most one dump.

    The socket is of NETLINK_SOCK_DIAG, and used once. A connection over IPv4 to a server that
    listens on IPv6 (`[::]`) is of the server's family (RFC 3493, section 3.7).
    """
    wanted = 1 << (INET_DIAG_INFO - 1)
    local, any_cookie = struct.pack("!H", port), b"\xff" * 8
    body = REQUEST.pack(
        *(family, socket.IPPROTO_TCP, wanted, ESTABLISHED),
        *(local, bytes(2), bytes(16), bytes(16), 0, any_cookie),
    )
    header = HEADER.pack(HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST | NLM_F_DUMP, 1, 0)
    diag.send(header + body)
    found = read_dump(diag.recv(PIECE_BYTES))
    # The first piece was filled before the size of a read was known, so it holds few; the
    # second waits already.
    diag.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        found += read_dump(diag.recv(PIECE_BYTES))
    return found


def read_dump(piece: bytes) -> list[TcpInfo]:
    """The connections of one piece of a dump."""
    found = []
    place = 0
    while place + HEADER.size <= len(piece):
        length, kind, _, _, _ = HEADER.unpack_from(piece, place)
        if length < HEADER.size or kind == NLMSG_DONE:
            break
        if kind == SOCK_DIAG_BY_FAMILY:
            info = _attribute(piece[place + HEADER.size + MESSAGE : place + length])
            if len(info) >= TOTAL_RETRANS_AT + 4:
                found.append(_read(info))
        place += (length + 3) & ~3
    return found


def summarise(infos: Sequence[TcpInfo]) -> dict[str, float]:
    """A sample in a few figures; medians are the middle one, for a sample of a sample needs no
    more.
    """
    if not infos:
        return {"connections": 0}
    rtts = sorted(info.rtt_us for info in infos)
    rates = sorted(info.delivery_rate_bytes_per_s for info in infos)
    return {
        "connections": len(infos),
        "rtt_us_p50": rtts[len(rtts) // 2],
        "rtt_us_max": rtts[-1],
        "total_retransmissions": sum(info.total_retransmissions for info in infos),
        "delivery_rate_bytes_per_s_p50": rates[len(rates) // 2],
    }


def _attribute(attributes: bytes) -> bytes:
    place = 0
    while place + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, place)
        if length < 4:  # noqa: PLR2004 - the header of an attribute
            break
        if kind == INET_DIAG_INFO:
            return attributes[place + 4 : place + length]
        place += (length + 3) & ~3
    return b""


def _read(info: bytes) -> TcpInfo:
    def word(at: int) -> int:
        return int(struct.unpack_from("=I", info, at)[0])

    rate = int(struct.unpack_from("=Q", info, DELIVERY_RATE_AT)[0]) if len(info) >= DELIVERY_RATE_AT + 8 else 0
    return TcpInfo(
        rtt_us=word(RTT_AT),
        rttvar_us=word(RTTVAR_AT),
        total_retransmissions=word(TOTAL_RETRANS_AT),
        delivery_rate_bytes_per_s=rate,
    )
