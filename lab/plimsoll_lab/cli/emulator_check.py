"""Up to which packet rate the emulator is in time here, beside what a suite may ask of it: a
measurement of about two seconds, which leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence

from plimsoll_lab.cli.machine_checks import Finding
from plimsoll_lab.hosts.binary import find_binary
from plimsoll_lab.hosts.link_rate import KeptRate, measure_kept_rate
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.privilege import TUN, gain_networks
from plimsoll_lab.problem import LabError
from plimsoll_lab.suite.placement import paths
from plimsoll_lab.suite.spec import Plan, Point
from plimsoll_lab.suite.topology import FULL_FRAME_BYTES

CHECK = "emulator"
ACKNOWLEDGED = 1.5
"""Packets for each full frame: TCP acknowledges every second one (RFC 9293, section 3.8.6.3)."""
FIX = "lower the links' rates, or expect trials that the links disturbed"


def check_emulator(plan: Plan | None) -> Iterator[Finding]:
    """Measure the emulator where a suite needs it, or no suite is named. Enters a user namespace
    where this process is not root: nothing may be looked at after it.
    """
    points = [point for point in plan.points if _over_tap(point)] if plan is not None else []
    possible = os.access(TUN, os.R_OK | os.W_OK) and all(map(shutil.which, ("ip", "unshare", "nsenter")))
    # What is missing for a network at all is said already.
    if not possible or (plan is not None and not points):
        return
    try:
        gain_networks(over_tap=True)
        with LocalHost() as local:
            found = measure_kept_rate(local, find_binary())
    except LabError as error:
        said = f"its packet rate could not be measured: {error}"
        yield Finding(check=CHECK, level="warn", message=said, fix="mend that, and look again")
        return
    yield judge(found, points)


def judge(found: KeptRate, points: Sequence[Point]) -> Finding:
    """What was measured beside what the points of a suite may ask."""
    asked = [rate for point in points for rate in _packets_per_s(point)]
    if not found.per_s:
        said = "the emulator is late or loses packets at the lowest packet rate tried"
        return Finding(check=CHECK, level="warn", message=said, fix="close what else runs on this machine")
    said = f"the emulator is in time up to {found.per_s:,.0f} packets/s here"
    said += ", which is all that could be sent" if found.by_sender else ""
    known = [each for each in asked if each is not None]
    if not points:
        return Finding(check=CHECK, level="ok", message=said)
    if len(known) < len(asked):
        said += "; a path of the suite has no rate that bounds its packets"
        return Finding(check=CHECK, level="ok", message=said)
    most = max(known, default=0.0)
    said += f", and a full path of the suite has {most:,.0f}"
    if most > found.per_s and not found.by_sender:
        return Finding(check=CHECK, level="warn", message=said, fix=FIX)
    return Finding(check=CHECK, level="ok", message=said)


def _over_tap(point: Point) -> bool:
    return point.network is not None and point.network.backend == "tap"


def _packets_per_s(point: Point) -> Iterator[float | None]:
    """Of each path the packets a second that fill it; None of one without a rate."""
    for start, end in paths(point.place, point.roles, point.load):
        ways = ((start, end), (end, start))
        rates = [point.network.narrowest_bits_per_s(*way) for way in ways] if point.network is not None else []
        known = [rate for rate in rates if rate is not None]
        whole = len(known) == len(ways)
        yield ACKNOWLEDGED * max(known) / (8 * FULL_FRAME_BYTES) if whole else None
