"""Queues whose capacity is known: simulated exactly, customer by customer, and by theory."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plimsoll_lab.stats.backlog import UNKNOWN, Growth, batch_growth
from plimsoll_lab.stats.readings import Reading

Array = NDArray[np.float64]
RATE = 1000.0
"""Requests a second that every server here completes at most, when it does not pause."""
PAUSE_S, PAUSE_EVERY_S = 0.2, 5.0
DEGRADES_AFTER_S, DEGRADED = 30.0, 0.8
P99 = math.log(100)


@dataclass(frozen=True, kw_only=True, slots=True)
class Server:
    """A server known by construction."""

    fixed: bool = False
    """Whether every request takes the same time; else exponentially distributed times."""
    workers: int = 1
    """Which share the rate."""
    pauses: bool = False
    """Whether it stops for 200 ms every 5 s."""
    degrades: bool = False
    """Whether it is slower from 30 s after its start."""


def departures(server: Server, arrivals: Array, rng: np.random.Generator) -> Array:
    """When each request is answered; first come, first served."""
    count = len(arrivals)
    mean_s = server.workers / RATE
    services = np.full(count, mean_s) if server.fixed else rng.exponential(mean_s, count)
    if server.degrades:
        services = np.where(arrivals > DEGRADES_AFTER_S, services / DEGRADED, services)
    if server.workers > 1:
        return _several(arrivals, services, server.workers)
    if not server.pauses:
        return _one(arrivals, services)
    # On a clock that stops in every pause, the server never pauses.
    phase_s = rng.uniform(0, PAUSE_EVERY_S)
    worked = _one(_working(arrivals + phase_s), services)
    whole = np.floor(worked / (PAUSE_EVERY_S - PAUSE_S))
    return np.asarray(worked + (whole + 1) * PAUSE_S - phase_s)


def _working(at_s: Array) -> Array:
    """How long the server has worked by then; each period begins with its pause."""
    whole = np.floor(at_s / PAUSE_EVERY_S)
    inside = np.maximum(0.0, at_s - whole * PAUSE_EVERY_S - PAUSE_S)
    return np.asarray(whole * (PAUSE_EVERY_S - PAUSE_S) + inside)


def _one(arrivals: Array, services: Array) -> Array:
    # Lindley: a departure is the later of the arrival and the last departure, and the service.
    busy = np.cumsum(services)
    return np.asarray(busy + np.maximum.accumulate(arrivals - (busy - services)))


def _several(arrivals: Array, services: Array, workers: int) -> Array:
    free = [0.0] * workers
    found = np.empty(len(arrivals))
    for number, (arrival, service) in enumerate(zip(arrivals.tolist(), services.tolist(), strict=True)):
        done = max(arrival, free[0]) + service
        heapq.heapreplace(free, done)
        found[number] = done
    return found


def responses(
    server: Server, load: float, rng: np.random.Generator, *, window_s: float, warm_up_s: float, even: bool = False
) -> tuple[Array, Array, float]:
    """Arrival and response time of every request due in a window, and the window's start."""
    length_s = warm_up_s + window_s
    count = math.ceil(load * length_s + 6 * math.sqrt(load * length_s) + 10)
    gaps = np.full(count, 1 / load) if even else rng.exponential(1 / load, count)
    arrivals = np.cumsum(gaps) - (gaps[0] * rng.random() if even else 0.0)
    done = departures(server, arrivals, rng)
    inside = (arrivals >= warm_up_s) & (arrivals < length_s)
    return arrivals[inside], (done - arrivals)[inside], warm_up_s


def trial(
    server: Server, load: int, rng: np.random.Generator, *, window_s: float, limit_s: float, even: bool = False
) -> Reading:
    """One trial as the lab reads it: the 99th percentile of those answered, and the backlog second
    by second.
    """
    arrivals, times, start_s = responses(
        server, load, rng, window_s=window_s, warm_up_s=max(0.2, window_s / 2), even=even
    )
    done = arrivals + times - start_s
    answered = done < window_s
    if not answered.any():
        return Reading(met=False)
    excess = math.log(float(np.quantile(times[answered], 0.99)) / limit_s)
    seconds = int(window_s)
    growth = UNKNOWN if seconds < 2 else _growth(done[answered], times[answered], seconds, load)
    if excess >= 0 or growth.shown:
        return Reading(met=False, excess=excess)
    return Reading(met=True if growth.refuted else None, excess=excess)


def _growth(done: Array, times: Array, seconds: int, load: float) -> Growth:
    sums = np.bincount(done.astype(np.int64), weights=times, minlength=seconds)[1 : seconds - 1]
    return batch_growth(sums.tolist(), interval_s=1.0, offered_rate=load)


def p99_capacity(limit_s: float, p99_s: Callable[[float], float]) -> float:
    """The load at which the 99th percentile reaches the limit, by bisection; 0 where it always
    does.
    """
    low, high = 1e-3, RATE * (1 - 1e-9)
    if p99_s(low) >= limit_s:
        return 0.0
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if p99_s(middle) < limit_s else (low, middle)
    return low


def m_m_1(load: float) -> float:
    """Response times are exponential with the rate that is left."""
    return P99 / (RATE - load)


def d_m_1(load: float) -> float:
    """Even arrivals: exponential with mu (1 - s), s the root of s = exp(-mu (1 - s) / load)."""
    root = 0.0
    for _ in range(20_000):
        root = math.exp(-RATE * (1 - root) / load)
    return P99 / (RATE * (1 - root))


def m_d_1(load: float) -> float:
    """The tail of the waiting time is C exp(-h t) beyond two services: load (exp(h D) - 1) = h."""
    low, high = 1e-9, 100 * RATE
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if load * math.expm1(middle / RATE) < middle else (low, middle)
    rho = load / RATE
    share = (1 - rho) / (rho * math.exp(low / RATE) - 1)
    return 1 / RATE + max(0.0, math.log(share / 0.01) / low)


def m_m_4(load: float) -> float:
    """Erlang C: the response time is a service, and with the probability of waiting an exponential
    wait before it.
    """
    workers, each = 4, RATE / 4
    offered = load / each
    last = offered**workers / math.factorial(workers) * workers / (workers - offered)
    waits = last / (sum(offered**k / math.factorial(k) for k in range(workers)) + last)
    spare = workers - 1 - offered

    def beyond(t: float) -> float:
        if abs(spare) < 1e-9:
            return math.exp(-each * t) * (1 + waits * each * t)
        return math.exp(-each * t) + waits * (math.exp(-each * t) - math.exp(-each * t * (1 + spare))) / spare

    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle) > 0.01 else (low, middle)
    return low
