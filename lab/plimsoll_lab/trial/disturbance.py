"""How far the emulator was from the network that was asked for, during a trial. Pure."""

from __future__ import annotations

from plimsoll_lab.store.program_output import LinkWindow
from plimsoll_lab.store.records import Doubt

LATE_TOLERATED = 0.002
"""The part of the packets that may be late by the emulator's fault. A request is two packets or
more, so one in five hundred is half a per cent of the requests: the 99th percentile stands."""

LATE_LEAST = 3
"""So few packets move no figure of a trial that is long enough to have any."""


def too_disturbed(network: LinkWindow | None) -> str | None:
    """Why the trial is no result, where the emulator was at fault too often; such a trial is made
    again.
    """
    if network is None:
        return None
    if network.silent:
        return "the emulator of the links said nothing after the window: it hung, or ended"
    delivered, late, lost = _sums(network)
    if lost:
        return f"the emulator lost {lost} packets by its own fault during the window"
    if late > max(LATE_LEAST, LATE_TOLERATED * delivered):
        return f"the emulator was late for {late} of {delivered} packets during the window"
    return None


def network_doubts(network: LinkWindow | None) -> list[Doubt]:
    """The moments that are marked in a trial."""
    if network is None or not network.disturbances:
        return []
    moments = network.disturbances
    delivered, late, _ = _sums(network)
    worst_us = max(each.worst_us for each in moments)
    return [
        Doubt(
            code="link_disturbed",
            message=(
                f"the emulator of the links was late {len(moments)} times during the window, for {late} of {delivered} "
                f"packets, by {worst_us / 1e3:.1f} ms at worst"
            ),
            remedy="the record has the moments; a quieter machine, or one with more CPUs, has fewer",
        )
    ]


def _sums(network: LinkWindow) -> tuple[int, int, int]:
    """Packets handed to hosts, those of them that were late, and packets lost by the emulator's
    fault on any link.
    """
    # Only a packet for a host can be late: between links a frame goes on at the moment it was due.
    to_hosts = [way for way in network.links if way.end.endswith("-eth0")]
    delivered, late = sum(way.delivered for way in to_hosts), sum(way.released_late for way in to_hosts)
    return delivered, late, network.backlog_drops + sum(way.dropped_by_fault for way in network.links)
