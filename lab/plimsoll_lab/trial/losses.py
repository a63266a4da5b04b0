"""What is known of a closed loop whose links lost packets. Pure.

A lost packet delays one request, and its connection sends nothing meanwhile. So three things
differ from a run without losses: as many requests as packets were lost are too slow, the others
had fewer competing connections and may be too fast, and fewer requests were made.
"""

from __future__ import annotations

import heapq
import operator

from plimsoll_lab.stats.cut import QUANTILES, Shift, without_slowest
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary, Times
from plimsoll_lab.store.records import CutRecord
from plimsoll_lab.trial.disturbance import LOST_TOLERATED, RATES, TIMES, LoggedRequest, sums

LOST_UNSURE = 0.05
"""A figure is doubted where its bounds lie further apart than this part of it."""
PER_SECOND = (*RATES, "packets_per_s", "server.cpu_cores", "host.cpu_cores")
"""Figures that fall as connections wait."""
KNOWN = (*QUANTILES, "mean")
"""What is known of times: of a maximum nothing is."""

Bounds = dict[str, tuple[float, float]]


def loss_record(
    network: LinkWindow | None,
    load: LoadSummary,
    requests: int,
    log: LoggedRequest | None = None,
    *,
    counted: bool = False,
) -> CutRecord | None:
    """What is known of a closed loop whose links lost packets; None where they lost none, or were
    late too, or lost so many that the moments say more.

    `counted` says that the window lasts until a number of requests is made.
    """
    lost = sums(network)[2] if network is not None else 0
    if network is None or not 0 < lost <= LOST_TOLERATED * requests:
        return None
    if any(each.late_frames for each in network.disturbances):
        return None
    shifts = {kind: shift_of(load, kind, lost) for kind in TIMES}
    response = shifts["response_time_us"]
    growth = response.slow / response.left if response is not None and response.left > 0 else float("inf")
    waited = _waited(load, response)
    bounds: Bounds = {}
    for kind, shift in shifts.items():
        bounds |= _times(kind, getattr(load, kind), shift, growth, late=waited if counted else 0.0)
    kept = 1 - waited
    if counted:
        kept *= _shortest(load, log, lost)
    every_rate = {name: value for name in RATES if (value := getattr(load, name)) is not None}
    if kept > 0:
        bounds |= {name: (value, value / kept) for name, value in every_rate.items()}
    if counted:
        bounds["elapsed_s"] = (load.elapsed_s * kept, load.elapsed_s)
    doubted = [f"{kind}.{name}" for kind in TIMES for name in KNOWN if getattr(load, kind).count]
    doubted += [*(PER_SECOND if kept < 1 - LOST_UNSURE else every_rate), *(["elapsed_s"] if counted else [])]
    sure = {name: each for name, each in bounds.items() if each[0] >= (1 - LOST_UNSURE) * each[1]}
    return CutRecord(
        moments=0,
        share=0.0,
        requests=0,
        touched=lost,
        completed_rate=None,
        bounds=sure,
        estimates={name: value for name in sure if (value := _measured(load, name)) is not None},
        doubted=[name for name in doubted if name not in sure],
    )


def shift_of(load: LoadSummary, kind: str, lost: int) -> Shift | None:
    """What leaving out so many of the slowest requests does to a time; None where its histogram is
    not kept, or none is left.
    """
    encoded = load.histograms.get(kind.removesuffix("_us") + "_ns")
    return without_slowest(_buckets(encoded), lost) if encoded else None


def _times(kind: str, told: Times, shift: Shift | None, growth: float, *, late: float) -> Bounds:
    """Between the time without as many of the slowest requests as packets were lost, and that of
    all connections together.

    By Little's law the mean of all requests is an upper bound of the mean without losses: the same
    connections made no fewer requests. The others' times grow to that mean at most. `late` is the
    part of a counted run's requests that were made after most connections had ended, beside few
    others.
    """
    if shift is None or told.mean is None:
        return {}
    mean = told.mean * shift.factors["mean"]
    bounds: Bounds = {f"{kind}.mean": (mean, told.mean * (1 + late))}
    for name in QUANTILES:
        value = getattr(told, name)
        if value is not None:
            bounds[f"{kind}.{name}"] = (value * shift.factors[name], value + max(value, mean) * (growth + late))
    return bounds


def _waited(load: LoadSummary, response: Shift | None) -> float:
    """The part of all connections' time that waited for lost packets, at most."""
    count = load.connections.established
    if response is None or not count or not load.elapsed_s:
        return 1.0
    return min(1.0, response.slow / 1e9 / (count * load.elapsed_s))


def _shortest(load: LoadSummary, log: LoggedRequest | None, lost: int) -> float:
    """The part of the window that a counted run would have taken at least: until the last
    connection had made its requests, without the slowest of them and with no late begin.

    0 where it cannot be known.
    """
    if log is None or not log.starts or load.requests.lost:
        return 0.0
    begun: dict[int, float] = {}
    ended: dict[int, float] = {}
    for connection, start, time_s in zip(log.connections, log.starts, log.times_s, strict=True):
        begun[connection] = min(start, begun.get(connection, start))
        ended[connection] = max(start + time_s, ended.get(connection, start))
    slowest = heapq.nlargest(lost, zip(log.times_s, log.connections, strict=True), key=operator.itemgetter(0))
    for time_s, connection in slowest:
        ended[connection] -= time_s
    # A lost SYN holds up a connection's first request, and is in no response time.
    usual = sorted(begun.values())[max(0, len(begun) - lost - 1)]
    last = max(ended[each] - max(0.0, start - usual) for each, start in begun.items())
    opened = max(start + time_s for start, time_s in zip(log.starts, log.times_s, strict=True)) - load.elapsed_s
    return max(0.0, min(1.0, (last - opened) / load.elapsed_s))


def _buckets(encoded: str) -> list[tuple[float, int]]:
    """The values of a histogram, in order, each with its count."""
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415 - only losses need it

    found = HdrHistogram.decode(encoded)
    return [(each.value_iterated_to, each.count_added_in_this_iter_step) for each in found.get_recorded_iterator()]


def _measured(load: LoadSummary, name: str) -> float | None:
    """A time as it was measured; None of any other figure."""
    kind, _, part = name.partition(".")
    return getattr(getattr(load, kind), part) if part else None
