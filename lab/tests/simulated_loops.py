"""Open and closed loops before simulated servers that stall for some moments, and the summary of a
generator that measured them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import numpy as np
from hdrh.histogram import HdrHistogram
from numpy.typing import NDArray

from plimsoll_lab.stats.cut import QUANTILES, Span
from plimsoll_lab.store.program_output import LoadSummary

Array = NDArray[np.float64]

WINDOWS = min(400, int(os.environ.get("PLIMSOLL_FAMILIES", "40")))
"""Simulated windows of each kind; `make soak` asks for 400."""
WINDOW: Span = (1.0, 11.0)


def open_loop(luck: np.random.Generator, load: float, stalls: list[Span]) -> tuple[Array, Array, Array]:
    """Poisson arrivals at one server of 1,000/s: starts, response times with the stalls, and
    without.
    """
    starts = np.cumsum(luck.exponential(1 / load, math.ceil(load * 13)))
    starts = starts[starts < WINDOW[1]]
    services = luck.exponential(1e-3, len(starts))
    return starts, _served(starts, services, stalls), _served(starts, services, [])


def _served(starts: Array, services: Array, stalls: list[Span]) -> Array:
    done = np.empty(len(starts))
    free = 0.0
    for number, (start, service) in enumerate(zip(starts.tolist(), services.tolist(), strict=True)):
        free = _worked(max(start, free), service, stalls)
        done[number] = free
    return np.asarray(done - starts)


def _worked(at: float, service: float, stalls: list[Span]) -> float:
    """When a service ends that may begin at this instant: a stalled server does nothing."""
    for start, end in stalls:
        if at >= end:
            continue
        if at + service <= start:
            break
        service -= max(0.0, start - at)
        at = end
    return at + service


def closed_loop(seed: int, connections: int, stalls: list[Span]) -> tuple[Array, Array]:
    """Connections that think for 50 ms, each before a worker of its own whose service takes 2 ms
    and sometimes far longer: starts and response times.

    Nobody queues, so that the same requests take the same times with stalls and without.
    """
    found = []
    for number in range(connections):
        luck = np.random.default_rng([seed, number])
        at = luck.uniform(0, 0.05)
        while at < WINDOW[1]:
            service = 0.002 * math.exp(luck.normal(0, 1))
            done = _worked(at, service, stalls)
            found.append((at, done - at))
            at = done + luck.uniform(0.04, 0.06)
    starts, times = np.array(sorted(each for each in found if each[0] >= WINDOW[0])).T
    return starts, times


def in_window(starts: Array, times: Array) -> Array:
    return times[(starts >= WINDOW[0]) & (starts < WINDOW[1])]


def told(times_s: Sequence[float], completed: int, elapsed_s: float, connections: int) -> LoadSummary:
    """The summary of a generator with these response times."""
    times_s = sorted(times_s)
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    for each in times_s:
        histogram.record_value(round(each * 1e9))
    times = {name: times_s[math.ceil(q * len(times_s)) - 1] * 1e6 for name, q in QUANTILES.items()}
    times |= {"mean": sum(times_s) / len(times_s) * 1e6, "count": len(times_s), "max": times_s[-1] * 1e6}
    return LoadSummary.model_validate(
        {
            "elapsed_s": elapsed_s,
            "completed_rate": completed / elapsed_s,
            "requests": {"completed": completed, "scheduled": len(times_s)},
            "connections": {"established": connections},
            "response_time_us": times,
            "histograms": {"response_time_ns": histogram.encode().decode()},
        }
    )
