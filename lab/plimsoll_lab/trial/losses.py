"""What is known of a closed loop whose links lost packets. Pure."""

from __future__ import annotations

from plimsoll_lab.stats.cut import without_slowest
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary
from plimsoll_lab.store.records import CutRecord
from plimsoll_lab.trial.disturbance import LOST_TOLERATED, RATES, TIMES, sums

LOST_UNSURE = 0.05
"""A response time is doubted where leaving out as many of the slowest requests as packets were lost
moves it by more."""


def loss_record(network: LinkWindow | None, load: LoadSummary, requests: int) -> CutRecord | None:
    """What is known of a closed loop whose links lost packets; None where they lost none, or were
    late too, or lost so many that the moments say more.
    """
    lost = sums(network)[2] if network is not None else 0
    if network is None or not 0 < lost <= LOST_TOLERATED * requests:
        return None
    if any(each.late_frames for each in network.disturbances):
        return None
    bounds, estimates, doubted = {}, {}, []
    waited = 1.0
    for kind in TIMES:
        told = getattr(load, kind)
        encoded = load.histograms.get(kind.removesuffix("_us") + "_ns")
        factors = without_slowest(_buckets(encoded), lost) if encoded else {}
        if kind == "response_time_us" and "mean" in factors:
            waited = _waited(load, factors["mean"] * (1 - lost / requests))
        for name, factor in factors.items():
            value = getattr(told, name, None)
            if value is None or factor < 1 - LOST_UNSURE:
                doubted.append(f"{kind}.{name}")
            else:
                bounds[f"{kind}.{name}"] = (value * factor, value)
                estimates[f"{kind}.{name}"] = value
    for name in RATES:
        rate = getattr(load, name)
        if rate is not None and waited > LOST_UNSURE:
            doubted.append(name)
        elif rate is not None:
            bounds[name] = (rate, rate / (1 - waited))
    return CutRecord(
        moments=0,
        share=0.0,
        requests=0,
        touched=lost,
        completed_rate=None,
        bounds=bounds,
        estimates=estimates,
        doubted=doubted,
    )


def _waited(load: LoadSummary, kept: float) -> float:
    """The part of all connections' time that waited for lost packets, at most, by Little's law;
    `kept` is the part of the response times' sum that other requests took.
    """
    mean_us, rate, count = load.response_time_us.mean, load.completed_rate, load.connections.established
    if mean_us is None or rate is None or not count:
        return 1.0
    return mean_us / 1e6 * (1 - kept) * rate / count


def _buckets(encoded: str) -> list[tuple[float, int]]:
    """The values of a histogram, in order, each with its count."""
    from hdrh.histogram import HdrHistogram  # noqa: PLC0415 - only losses need it

    found = HdrHistogram.decode(encoded)
    return [(each.value_iterated_to, each.count_added_in_this_iter_step) for each in found.get_recorded_iterator()]
