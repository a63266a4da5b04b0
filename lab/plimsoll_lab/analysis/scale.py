"""How many generators a target needs, from what the generators of a run used.

The cost of a request is taken where the run's generators were busiest: at a low rate most of it is
the price of being awake.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from plimsoll_lab.store.program_output import LoadSummary, read_output
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.run_record import RunRecord

CPU_SHARE = 0.7
"""Of a host's CPUs, what a generator may use: busier, it begins to send late, and is the limit
itself."""
MEMORY_SHARE = 0.5
"""Of a host's memory, what connections may take."""
KEPT = 0.99
"""Of the requests that were due, what a generator that keeps to its rate completes at least: the
last ones are under way as the window closes."""
KERNEL_BYTES = 4096
"""Kernel memory of one end of an idle connection, as measured (docs/scale.md: 8 KiB for two
ends)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostPerRequest:
    """What generators used: a request at the point where they were busiest, a connection at any."""

    rate_per_generator: float
    """Requests a second."""
    cpu_us_per_request: float
    bytes_each: float
    """Memory per connection, the most of any point."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GeneratorHost:
    """A host of a generator; on a cluster the least that any of them has of each."""

    cpus: int
    memory_bytes: int
    ports: int
    """To one address of the server, from one of theirs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScaleEstimate:
    """How many generators a target needs."""

    connections: int
    rate: float
    """Requests a second."""
    addresses: int
    """Of each generator."""
    measured: CostPerRequest
    host: GeneratorHost
    needs: Mapping[str, int]
    """Hosts, by what bounds each of them: `cpu`, `memory`, `ports`."""
    generators: int
    """The largest of these."""

    def to_json(self) -> Json:
        """As it is printed."""
        return asdict(self)


def generators_needed(
    run: RunRecord, trials: Sequence[TrialRecord], *, connections: int, rate: float, addresses: int = 1
) -> ScaleEstimate:
    """Hosts like those of the run that `connections` and `rate` requests a second need for their
    generators. ValueError says why a run is of no use for that.
    """
    cost, host = _cost(trials), _host(run, trials)
    if cost is None:
        raise ValueError("in no trial of it the generators kept up, so what a request costs is not known")
    if host is None:
        raise ValueError("it does not record the memory and the ports of its generators' hosts")
    needs = {
        "cpu": math.ceil(rate * cost.cpu_us_per_request / 1e6 / (CPU_SHARE * host.cpus)),
        "memory": math.ceil(connections * (cost.bytes_each + KERNEL_BYTES) / (MEMORY_SHARE * host.memory_bytes)),
        "ports": math.ceil(connections / (host.ports * addresses)),
    }
    return ScaleEstimate(
        connections=connections,
        rate=rate,
        addresses=addresses,
        measured=cost,
        host=host,
        needs=needs,
        generators=max(1, *needs.values()),
    )


def _cost(trials: Sequence[TrialRecord]) -> CostPerRequest | None:
    """What a request cost the generators where they were busiest, and a connection at most."""
    by_point: dict[int, list[tuple[float, float, float]]] = {}
    for trial in trials:
        by_point.setdefault(trial.point, []).extend(_costs(trial))
    measured = [
        tuple(statistics.median(values) for values in zip(*rows, strict=True)) for rows in by_point.values() if rows
    ]
    if not measured:
        return None
    rate, cpu_us, _ = max(measured)
    # Below 10,000 connections a generator tells the size of its slot for one, and no buffers.
    bytes_each = max(each for _, _, each in measured)
    return CostPerRequest(rate_per_generator=rate, cpu_us_per_request=cpu_us, bytes_each=bytes_each)


def _costs(trial: TrialRecord) -> list[tuple[float, float, float]]:
    """Rate, CPU us per request and bytes per connection of each generator of a trial.

    A generator that was the limit sends several requests at once, which costs less: its trial says
    nothing here, unless all were merely late for the response times to be told, and kept to their
    rate.
    """
    several = [each["summary"] for each in trial.load.get("generators") or ()]
    summaries = [
        read_output(LoadSummary, printed or {}, "the generator") for printed in several or [trial.load.get("summary")]
    ]
    late = trial.outcome == "generator_limited" and all(_kept_to_rate(each) for each in summaries)
    if trial.outcome != "ok" and not late:
        return []
    return [
        (each.completed_rate, each.generator.cpu_us_per_request, each.connections.bytes_each)
        for each in summaries
        if each.completed_rate and each.generator.cpu_us_per_request is not None
    ]


def _kept_to_rate(summary: LoadSummary) -> bool:
    due = summary.requests.scheduled
    return summary.intended_rate is not None and due > 0 and summary.requests.completed >= KEPT * due


def _host(run: RunRecord, trials: Sequence[TrialRecord]) -> GeneratorHost | None:
    """The host of a generator: on a cluster the fewest CPUs, the least memory and the fewest ports,
    which need not be one host's.
    """
    names = {each["host"] for trial in trials for each in trial.load.get("generators") or ()}
    # A single generator's record names no host.
    placed = {point.number: point.place.load for point in run.points}
    names = names or {name for trial in trials for name in placed.get(trial.point, ())}
    environments = [each.environment for each in run.hosts if not names or each.name in names]
    found = [_host_of(each) for each in environments or [run.environment.to_json()]]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    return GeneratorHost(
        cpus=min(each.cpus for each in known),
        memory_bytes=min(each.memory_bytes for each in known),
        ports=min(each.ports for each in known),
    )


def _host_of(environment: Mapping[str, object]) -> GeneratorHost | None:
    cpus, memory, ports = (environment.get(key) for key in ("cpus", "memory", "ip_local_port_range"))
    if not isinstance(cpus, int) or not isinstance(memory, str) or not isinstance(ports, str):
        return None
    low, high = (int(each) for each in ports.split())
    return GeneratorHost(cpus=cpus, memory_bytes=_bytes(memory), ports=high - low + 1)


def _bytes(memory: str) -> int:
    """MemTotal of /proc/meminfo (proc_meminfo(5)), in KiB there."""
    return int(memory.removesuffix(" kB")) * 1024
