"""How many generators a target needs, from what the generators of a run used.

The cost of a request is taken where the run's generators were busiest: at a low rate most of it is
the price of being awake.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.store.records import Json, TrialRecord

CPU_SHARE = 0.7
"""Of a host's CPUs, what a generator may use: busier, it begins to send late, and is the limit
itself."""
MEMORY_SHARE = 0.5
"""Of a host's memory, what connections may take."""
KERNEL_BYTES = 4096
"""Kernel memory of one end of an idle connection, as measured (docs/scale.md: 8 KiB for two
ends)."""


def generators_needed(
    run: Json, trials: Sequence[TrialRecord], *, connections: int, rate: float, addresses: int = 1
) -> Json:
    """Hosts like those of the run that `connections` and `rate` requests a second need for their
    generators, by what each of them is bounded by; None where the run has no valid trial.
    """
    cost = _cost(trials)
    if cost is None:
        return {"measured": None, "needs": {}, "generators": None}
    host = _host(run, trials)
    cpus, memory = cast("int", host["cpus"]), _bytes(str(host["memory"]))
    low, high = (int(each) for each in str(host["ip_local_port_range"]).split())
    each_bytes = cast("float", cost["bytes_each"]) + KERNEL_BYTES
    needs = {
        "cpu": math.ceil(rate * cast("float", cost["cpu_us_per_request"]) / 1e6 / (CPU_SHARE * cpus)),
        "memory": math.ceil(connections * each_bytes / (MEMORY_SHARE * memory)),
        "ports": math.ceil(connections / ((high - low + 1) * addresses)),
    }
    return {
        "connections": connections,
        "rate": rate,
        "addresses": addresses,
        "measured": cost,
        "host": {"cpus": cpus, "memory_bytes": memory, "ports": high - low + 1},
        "needs": needs,
        "generators": max(1, *needs.values()),
    }


def _cost(trials: Sequence[TrialRecord]) -> Json | None:
    """What a request and a connection cost a generator, at the point where each was busiest."""
    by_point: dict[int, list[tuple[float, float, float]]] = {}
    for trial in trials:
        if trial.outcome == "ok":
            by_point.setdefault(trial.point, []).extend(_costs(trial))
    measured = [
        tuple(statistics.median(values) for values in zip(*rows, strict=True)) for rows in by_point.values() if rows
    ]
    if not measured:
        return None
    rate, cpu_us, bytes_each = max(measured)
    return {"rate_per_generator": rate, "cpu_us_per_request": cpu_us, "bytes_each": bytes_each}


def _costs(trial: TrialRecord) -> list[tuple[float, float, float]]:
    """Rate, CPU us per request and bytes per connection of each generator of a trial."""
    several = [each["summary"] for each in trial.load.get("generators") or ()]
    found = []
    for summary in several or [trial.load.get("summary")]:
        own = cast("Mapping[str, float]", (summary or {}).get("generator") or {})
        connected = cast("Mapping[str, float]", (summary or {}).get("connections") or {})
        rate = cast("float | None", (summary or {}).get("completed_rate"))
        if rate and "cpu_us_per_request" in own:
            found.append((rate, own["cpu_us_per_request"], float(connected.get("bytes_each", 0))))
    return found


def _host(run: Json, trials: Sequence[TrialRecord]) -> Mapping[str, object]:
    """The environment of a generator's host: on a cluster the smallest of them."""
    names = {each["host"] for trial in trials for each in trial.load.get("generators") or ()}
    hosts = cast("list[Json]", run.get("hosts") or [])
    here = [cast("Json", each["environment"]) for each in hosts if not names or each["name"] in names]
    return min(here, key=lambda each: cast("int", each["cpus"])) if here else cast("Json", run["environment"])


def _bytes(memory: str) -> int:
    """MemTotal of /proc/meminfo (proc_meminfo(5)), in KiB there."""
    return int(memory.removesuffix(" kB")) * 1024
