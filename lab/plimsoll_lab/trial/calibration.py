"""Whether an emulated network is what was asked for: each path's round trip and goodput, before the
first trial.

The agent measures them (`hosts/path.py`): the goodput of UDP datagrams where the links cut large
segments, of TCP connections where they keep them whole.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence

from plimsoll_lab.hosts.path import DATAGRAM_BYTES, OVERLOAD, PING_FRAME_BYTES, SEGMENT_BYTES
from plimsoll_lab.problem import ENVIRONMENT, LabError
from plimsoll_lab.store.network_record import (
    CalibrationRecord,
    PathDeviationRecord,
    PathMeasurementRecord,
    PathRecord,
    PathTargetRecord,
)
from plimsoll_lab.suite.placement import paths
from plimsoll_lab.suite.spec import Plan, Point
from plimsoll_lab.suite.topology import FULL_FRAME_BYTES, Topology
from plimsoll_lab.suite.units import bits_per_s, ratio
from plimsoll_lab.trial.testbed import Testbed, network_key

ROUND_TRIP_TOLERATED, GOODPUT_TOLERATED = 0.06, 0.03
"""How far the median round trip and the goodput may be off what was asked for."""
FAR_OFF = 0.1
"""Beside one busy program the emulator loses 5 % of goodput on two CPUs: contenders that share the
path are still compared, and their figures marked."""
ATTEMPTS = 3
"""A passing disturbance of the machine is over by then."""


def calibrate(plan: Plan, testbeds: Mapping[int, Testbed]) -> list[CalibrationRecord]:
    """A record of each distinct network of a run, with the paths that its parts use."""
    records = []
    for key, points in _by_network(plan, testbeds).items():
        testbed = testbeds[points[0].number]
        if testbed.network is None or testbed.topology is None or not key:
            continue
        used = dict.fromkeys(pair for point in points for pair in paths(point.place, point.roles, point.load))
        ready = testbed.network.ready
        records.append(
            CalibrationRecord.model_validate(
                {
                    "unix_s": time.time(),
                    "points": [point.number for point in points],
                    "backend": testbed.topology.backend,
                    "large_segments": ready.get("large_segments"),
                    "priority": ready.get("priority"),
                    "congestion": _congestion(testbed, testbed.topology, used),
                    "paths": [_calibrate_path(testbed, testbed.topology, start, end) for start, end in used],
                }
            )
        )
    return records


def refuse_far_off(records: Sequence[CalibrationRecord], points: Sequence[Point]) -> None:
    """Stop the run where a path is far from what was asked for. A path that is off by less, or
    belongs to a network stated in one line, makes figures doubtful, and the summary warns of it.
    """
    in_one_line = {point.number for point in points if point.network is not None and point.network.one_line}
    for path in (each for record in records if not in_one_line.issuperset(record.points) for each in record.paths):
        if _far_off(path):
            raise LabError(
                f"the emulated path from {path.start} to {path.end} is not what was asked for on this machine: "
                f"{path.in_words()}; use a quieter machine, or ask for a longer delay or a lower rate",
                exit_code=ENVIRONMENT,
            )


def _far_off(path: PathRecord) -> bool:
    """Whether nothing is to be measured over a path: no echo came back, or it is off by a tenth."""
    off = (path.off.round_trip or 0.0, path.off.goodput or 0.0)
    return not path.within and (not path.measured.round_trip_us or max(map(abs, off)) >= FAR_OFF)


def _by_network(plan: Plan, testbeds: Mapping[int, Testbed]) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for point in plan.points:
        if point.number in testbeds:
            found.setdefault(network_key(point), []).append(point)
    return found


def _calibrate_path(testbed: Testbed, topology: Topology, start: str, end: str) -> PathRecord:
    asked_rtt_s = topology.round_trip_s(start, end, frame_bytes=PING_FRAME_BYTES)
    delay_s = topology.round_trip_s(start, end)
    asked_goodput = asked_goodput_bits_per_s(topology, start, end, whole=_carries_large_segments(testbed))
    asked = PathTargetRecord(
        one_way_us=topology.one_way_s(start, end) * 1e6,
        round_trip_delay_us=delay_s * 1e6,
        round_trip_us=asked_rtt_s * 1e6,
        goodput_bits_per_s=asked_goodput,
    )
    for attempt in itertools.count(1):
        times = testbed.hosts[start].round_trips(testbed.hosts[end], asked_rtt_s)
        goodput = _goodput(testbed, topology, start, end) if asked_goodput is not None else None
        off = PathDeviationRecord(
            # Without a delay there is no round trip to compare with.
            round_trip=statistics.median(times) / asked_rtt_s - 1 if times and delay_s else None,
            goodput=goodput / asked_goodput - 1 if goodput is not None and asked_goodput else None,
        )
        within = (
            bool(times)
            and abs(off.round_trip or 0.0) <= ROUND_TRIP_TOLERATED
            and abs(off.goodput or 0.0) <= GOODPUT_TOLERATED
        )
        if within or attempt == ATTEMPTS:
            break
    return PathRecord(
        start=start,
        end=end,
        asked=asked,
        measured=PathMeasurementRecord(round_trip_us=summary_of_times(times), goodput_bits_per_s=goodput),
        off=off,
        within=within,
        attempts=attempt,
    )


def asked_goodput_bits_per_s(topology: Topology, start: str, end: str, *, whole: bool) -> float | None:
    """The payload rate of a path, sent a tenth faster than its narrowest link; None where no link
    has a rate.
    """
    narrowest = topology.narrowest_bits_per_s(start, end)
    if narrowest is None:
        return None
    carried = OVERLOAD * narrowest
    for shape in topology.path(start, end):
        rate = bits_per_s(str(shape["rate"])) if "rate" in shape else math.inf
        delivered = 1 - ratio(str(shape.get("loss", "0")))
        # netem loses a packet as it is enqueued, before htb charges the rate; our emulator loses it
        # behind that.
        carried = min(carried * delivered, rate) if topology.backend == "kernel" else min(carried, rate) * delivered
    return carried * (SEGMENT_BYTES if whole else DATAGRAM_BYTES) / FULL_FRAME_BYTES


def _congestion(testbed: Testbed, topology: Topology, used: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What controls the congestion of connections between hosts, by host; stops the run where it is
    not what was asked for.
    """
    ways = [way for start, end in used for way in ((start, end), (end, start))]
    found = {here: testbed.hosts[here].congestion_control(testbed.hosts[there]) for here, there in ways}
    for host, control in found.items():
        if topology.congestion not in {None, control}:
            raise LabError(
                f"[network] congestion: connections of {host} use {control} and not {topology.congestion}: something "
                "has changed the routes of its namespace; run again",
                exit_code=ENVIRONMENT,
            )
    return found


def _carries_large_segments(testbed: Testbed) -> bool:
    return testbed.network is not None and testbed.network.ready.get("large_segments") == "whole"


def summary_of_times(times: Sequence[float]) -> dict[str, float]:
    """Round trips in us: how many, and their percentiles; nothing of none."""
    if not times:
        return {}
    ordered = sorted(times)
    middle = statistics.median(ordered)
    p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]  # the nearest rank, as everywhere
    return {
        "count": len(ordered),
        **{key: value * 1e6 for key, value in (("min", ordered[0]), ("p50", middle), ("p99", p99))},
    }


def _goodput(testbed: Testbed, topology: Topology, start: str, end: str) -> float:
    here, there = testbed.hosts[start], testbed.hosts[end]
    return here.goodput(
        there,
        round_trip_s=topology.round_trip_s(start, end),
        rate_bits_per_s=None if _carries_large_segments(testbed) else topology.narrowest_bits_per_s(start, end) or 0.0,
        lossy=topology.delivered_ratio(start, end) < 1,
    )
