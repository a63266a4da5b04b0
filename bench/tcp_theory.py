"""What theory says of one TCP connection over a link: pure, with its sources.

Rates are bits a second of payload or on the wire as named, times are seconds, windows and queues
are full packets.
"""

from __future__ import annotations

import math

PAYLOAD_BYTES, FRAME_BYTES = 1448, 1514
"""Of a full packet with TCP's timestamps, and on the wire from the Ethernet header on."""
MATHIS = math.sqrt(3 / 2)
"""Where each packet is acknowledged (Mathis, Semke, Mahdavi and Ott, 1997). Linux counts what an
acknowledgement covers (tcp_cong.c: tcp_cong_avoid_ai), so delayed ones slow it down no further."""


def mathis_bits_per_s(round_trip_s: float, loss: float) -> float:
    """Payload rate of Reno where only random loss bounds its window."""
    return PAYLOAD_BYTES * 8 / round_trip_s * MATHIS / math.sqrt(loss)


def payload_bits_per_s(rate_bits_per_s: float) -> float:
    """Payload rate of a link of this rate that is always busy."""
    return rate_bits_per_s * PAYLOAD_BYTES / FRAME_BYTES


def reno_bits_per_s(rate_bits_per_s: float, round_trip_s: float, loss: float) -> float:
    """Payload rate of Reno over a link with random loss and queue enough: the lower of both
    bounds.
    """
    link = payload_bits_per_s(rate_bits_per_s)
    return min(link, mathis_bits_per_s(round_trip_s, loss)) if loss > 0 else link


def bandwidth_delay_packets(rate_bits_per_s: float, round_trip_s: float) -> float:
    """Full packets that fill the link's round trip."""
    return rate_bits_per_s * round_trip_s / 8 / FRAME_BYTES


def reno_utilisation(queue: float, bandwidth_delay: float) -> float:
    """The part of a link's rate that Reno uses with a drop-tail queue, both in packets.

    Its window goes from half of W + B to W + B, a packet each round trip, where W is the bandwidth
    x delay and B the queue. Below W a round trip takes no longer; above W the link is busy. With b
    = B / W the packets of such a cycle over its time are 3/4 (1 + b)^2 / (1 + b + b^2) of the link;
    from b = 1 on, all of it.
    """
    part = min(1.0, queue / bandwidth_delay)
    return 0.75 * (1 + part) ** 2 / (1 + part + part**2)
