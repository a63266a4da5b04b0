"""Every figure of one trial, from what its parts printed and what was read of them. Nothing is read
here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.stats.backlog import batch_growth
from plimsoll_lab.store.program_output import (
    CaptureSummary,
    ConnectionResult,
    HostRow,
    LoadSummary,
    Second,
    pick,
    read_output,
)
from plimsoll_lab.store.records import HostsRecord, Json, MeasuredLoadRecord, RoleRecord, Sample, ServerRecord
from plimsoll_lab.suite import units
from plimsoll_lab.suite.figures import FIGURES, PART_FIGURES, status_figure
from plimsoll_lab.suite.placement import LOAD, LOCAL, SERVER, by_target, way
from plimsoll_lab.suite.prediction import connections, message_bytes
from plimsoll_lab.suite.settings import Settings, quantity
from plimsoll_lab.suite.spec import Point
from plimsoll_lab.trial.window import Window

TCP = tuple(each.name.removeprefix("tcp.") for each in FIGURES if each.name.startswith("tcp."))
"""Counters of the server's host."""
CAPTURED = ("retransmissions", "out_of_order", "duplicate_acks", "zero_windows", "resets", "unanswered_syn")
"""What a capture's summary has under `tcp`."""

ENDS = 10
"""Of a capture this part at either end is left out of its swing."""
DIP_S = 0.5
"""How long a server's CPU has to be low to count as a dip: five samples, so that the moment at
which one is read matters little."""
ENDS_ALONE = 2
"""Samples of a window of which no more was read than its ends."""

Figures = dict[str, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureSources:
    """The records that a trial's figures are made of."""

    load: MeasuredLoadRecord
    """Of the measured generators, together."""
    connections: Sequence[Json]
    """What became of each connection, where the suite asks for that."""
    seconds: Sequence[Sequence[Json]]
    """Of each measured generator, what it completed in each second."""
    server: ServerRecord
    """Of the server under test."""
    roles: Sequence[RoleRecord]
    """Of each further part."""
    hosts: HostsRecord
    """Of every host over the window."""
    captures: Sequence[Json]
    """Of each capture."""
    window: Window
    """Of the window."""
    shares_machine: bool = False
    """Whether another host of the trial is on the server's machine."""
    asked: Collection[str] = ()
    """Figures that the suite's limits and expectations name."""


def trial_figures(sources: FigureSources, point: Point) -> Figures:
    """Each figure by its path; one without a source is absent."""
    printed = _table(sources.load, "summary")
    figures = pick(printed, (each.name for each in FIGURES))
    summary = read_output(LoadSummary, printed, "the generator")
    if printed:
        figures |= _due(summary, point) | _fetches(summary)
    figures |= sequences(sources.connections, figures.get("elapsed_s")) | _backlog(sources.seconds, summary)
    figures |= _statuses(printed, sources.asked)
    figures |= pick({"server": sources.server.get("summary")}, (each.name for each in FIGURES))
    # The cost of a server that already ran is not known.
    if "address" not in point.server:
        figures |= _server_cost(sources.window)
        cpu_cores = figures.get("server.cpu_cores")
        # CPU time for requests that do not count is not a cost of requests that do, nor of requests
        # that another server answers.
        alone = not _serves_others(point) and not _answered_elsewhere(point)
        if cpu_cores is not None and summary.requests.completed and alone:
            cpu_us = cpu_cores * sources.window.length_s * 1e6
            figures["server.cpu_us_per_request"] = cpu_us / summary.requests.completed
    if not sources.server.get("elsewhere"):
        host = point.place.server or LOCAL
        figures |= _host(sources, host) | _network(sources, host)
    figures |= _captured(sources.captures)
    for each in sources.roles:
        figures |= _part(f"role.{each['name']}", _table(each, "summary"), each)
    roles = {each["name"] for each in sources.roles}
    # A role that is measured is none of those that share the load, and has figures of its own.
    for generator in (each for each in sources.load.get("generators") or () if each["name"] not in roles):
        own = _table(generator, "summary")
        figures |= _part(f"client.{generator['host']}", own, _table(own, "generator"))
    return figures


def late_of_parts(load: MeasuredLoadRecord, roles: Sequence[RoleRecord]) -> list[str]:
    """The figures of single generators that are each one's own lateness by half or more, as it says
    itself: those of all together may be the server's, and the other way round.
    """
    known = {each["name"] for each in roles}
    parts = {f"role.{each['name']}": _table(each, "summary") for each in roles}
    generators = (each for each in load.get("generators") or () if each["name"] not in known)
    parts |= {f"client.{each['host']}": _table(each, "summary") for each in generators}
    # Of a role that generates no load the summary has no such names.
    doubted = {prefix: summary.get("doubted") for prefix, summary in parts.items()}
    told = {prefix: names for prefix, names in doubted.items() if isinstance(names, list | tuple)}
    return [f"{prefix}.{name}" for prefix, names in told.items() for name in names]


def sequences(connections: Sequence[Json], elapsed_s: float | None = None) -> Figures:
    """Tcpbenchmark's counters and times, of one result a connection; times are of those that
    succeeded alone. Their sum over the elapsed time tells how many clients were at work at once.
    """
    if not connections:
        return {}
    results = [read_output(ConnectionResult, each, "the generator") for each in connections]
    succeeded = [each for each in results if each.success]
    figures: Figures = {"tcpbenchmark.success": len(succeeded)}
    figures["tcpbenchmark.failed_connect"] = sum(each.failed_connects for each in results)
    figures["tcpbenchmark.failed_send_recv_loop"] = sum(each.failed_sequences for each in results)
    figures["tcpbenchmark.failed_send_recv"] = sum(each.failed_requests for each in results)
    times = {
        "connect": [each.establishment_time_us for each in succeeded],
        "send_recv": [each.service_time_total_us for each in succeeded],
    }
    for name, times_us in times.items():
        seconds = [each / 1e6 for each in times_us]
        figures |= {f"tcpbenchmark.{name}_time_s.{part}": value for part, value in _statistics(seconds).items()}
    if elapsed_s:
        figures["tcpbenchmark.times_over_elapsed"] = sum(sum(each) for each in times.values()) / 1e6 / elapsed_s
    return figures


def _statistics(samples: Sequence[float]) -> Figures:
    total = sum(samples)
    average = total / len(samples) if samples else 0.0
    squares = sum((each - average) ** 2 for each in samples)
    variance = squares / (len(samples) - 1) if len(samples) > 1 else 0.0
    found = {"total": total, "average": average, "sample_variance": variance, "max": max(samples, default=0.0)}
    return found | ({"variation": math.sqrt(variance) / average} if average > 0 and len(samples) > 1 else {})


def _statuses(printed: Json, asked: Collection[str]) -> Figures:
    """Answers by status, of statuses that the suite names; a status without answers is not
    printed.
    """
    names = [name for name in asked if status_figure(name) is not None and name.partition(".")[0] in printed]
    return dict.fromkeys(names, 0.0) | pick(printed, names)


def is_read(name: str) -> bool:
    """Whether a figure is of what the lab reads over the window, of the server, its host and the
    roles; any other is of what programs print.
    """
    of_role = name.startswith("role.") and name.endswith(".cpu_cores")
    return of_role or name.startswith(("server.cpu_", "server.memory_", "host.", "packets", "tcp."))


def measured_loads(point: Point) -> list[Settings]:
    """The loads whose requests are the trial's figures, together."""
    return [point.load, *(role.settings for role in point.roles if role.kind == LOAD and role.measured)]


def _due(summary: LoadSummary, point: Point) -> Figures:
    """What the suite asked for beside what was done; a window of a stated length has no number of
    requests due.
    """
    loads = measured_loads(point)
    asked = [connections(load) for load in loads]
    established = summary.connections.established
    figures: Figures = {}
    if established is not None:
        figures["connections.never_established"] = max(0, sum(asked) - established)
    due = [_requests_due(load, count) for load, count in zip(loads, asked, strict=True)]
    counts = [each for each in due if each is not None]
    if len(counts) == len(due):
        figures["requests.due"] = sum(counts)
        if all(load.get("protocol", "echo") == "echo" for load in loads):
            sizes = (message_bytes(load) for load in loads)
            figures["bytes_due"] = sum(count * size for count, size in zip(counts, sizes, strict=True))
    return figures


def _requests_due(load: Settings, asked: int) -> int | None:
    if "each" in load:
        return asked * units.count(quantity(load, "each"))
    return units.count(quantity(load, "requests")) if "requests" in load else None


def _backlog(generators: Sequence[Sequence[Json]], summary: LoadSummary) -> Figures:
    """The growth of an open loop's backlog, as a part of the offered rate.

    The mean backlog of a second is the sum of the response times of the requests answered in it, as
    by Little's law. The window's first and last second are seldom whole, and left out.
    """
    offered = summary.offered_rate
    if summary.intended_rate is None or offered is None or not all(generators):
        return {}
    sums: dict[int, float] = {}
    for rows in generators:
        for row in (read_output(Second, each, "the generator") for each in rows):
            if row.phase == "window":
                times = row.response_time_us
                sums[row.second] = sums.get(row.second, 0.0) + times.count * (times.mean or 0.0) / 1e6
    first, last = min(sums, default=0), max(sums, default=0)
    backlog = [sums.get(second, 0.0) for second in range(first + 1, last)]
    growth = batch_growth(backlog, interval_s=1.0, offered_rate=offered)
    if not math.isfinite(growth.high):
        return {}
    return {"backlog_growth.low": growth.low, "backlog_growth.high": growth.high}


def _fetches(summary: LoadSummary) -> Figures:
    """Connection and transmission time per fetch: all fetches of a connection share the time of the
    connect.
    """
    opened, sent = summary.establishment_time_us, summary.transmission_time_us
    if not sent.count or sent.mean is None:
        return {}
    connecting = (opened.mean or 0.0) * opened.count
    return {"connection_and_transmission_us": connecting / sent.count + sent.mean}


def _serves_others(point: Point) -> bool:
    """Whether a load that is not measured asks the server too."""
    others = (role for role in point.roles if role.kind == LOAD and not role.measured)
    return any(SERVER in way(role.settings, point.roles) for role in others)


def _answered_elsewhere(point: Point) -> bool:
    """Whether a further server of ours answers a load that is measured."""
    roles = {role.name: role for role in point.roles}
    loads = (each for load in measured_loads(point) for each in by_target(load))
    last = (roles.get(way(load, point.roles)[-1]) for load in loads)
    # Of a command nobody knows where it sends what it is asked.
    return any(each is not None and each.kind == SERVER and "command" not in each.settings for each in last)


def _server_cost(window: Window) -> Figures:
    if window.length_s <= 0:
        return {}
    cores = window.server_cores()
    figures = {} if cores is None else {"server.cpu_cores": cores}
    least = least_cores(window.samples)
    if least is not None:
        figures["server.cpu_cores_min"] = least
    memory = [sample.memory_bytes for sample in window.samples if sample.memory_bytes is not None]
    if memory:
        figures["server.memory_bytes"] = max(memory)
    return figures


def least_cores(samples: Sequence[Sample]) -> float | None:
    """The least that a server used over any time of DIP_S, or a little more; None of a shorter
    window, and where only its ends were read.
    """
    found: list[float] = []
    ends = iter(samples)
    end = next(ends, None)
    for begin in samples:
        while end is not None and end.at_s - begin.at_s < DIP_S:
            end = next(ends, None)
        if end is None:
            break
        found.append((end.cpu_s - begin.cpu_s) / (end.at_s - begin.at_s))
    return min(found, default=None) if len(samples) > ENDS_ALONE else None


def _host(sources: FigureSources, host: str) -> Figures:
    """Of the server's host: the machine's CPU; the memory of the parts that run there, with that of
    their sockets as far as it is known.
    """
    figures: Figures = {}
    busy = sources.window.machine().get("busy_cores")
    if busy is not None:
        figures["host.cpu_cores"] = busy
    here = {each["name"] for each in sources.roles if (each.get("host") or LOCAL) == host} | {"server"}
    # The kernel's total is of all sockets of the machine, also of other hosts on it; a group of
    # cgroup v2 is charged for its own (cgroup-v2.rst, memory.stat).
    takes_total = not sources.shares_machine and sources.server.get("metering") != "cgroup v2"
    peaks, loads = [], []
    for row in (read_output(HostRow, each, "a host") for each in sources.hosts.get("timeline") or ()):
        sockets = row.hosts.get(host, {}).get("socket_memory_bytes") if takes_total else 0
        parts = [row.parts.get(name, {}).get("memory_bytes") for name in here]
        known = [each for each in parts if each is not None]
        if sockets is not None and len(known) == len(parts):
            peaks.append(sockets + sum(known))
        loads.append(row.machine.get("load_average"))
    if peaks:
        figures["host.memory_bytes"] = max(peaks)
    averages = [each for each in loads if each is not None]
    if averages:
        figures["host.load_average"] = max(averages)
    return figures


def _network(sources: FigureSources, host: str) -> Figures:
    """What TCP and the interface of the server's host counted; on the local host, the whole
    machine's.
    """
    counters = sources.hosts.get("counters", {}).get(host, {})
    figures: Figures = {f"tcp.{name}": counters[name] for name in TCP if name in counters}
    if "packets_sent" in counters:
        # Loopback counts a packet on either side of it.
        received = 0 if host == LOCAL else counters["packets_received"]
        figures["packets"] = counters["packets_sent"] + received
        if sources.window.length_s > 0:
            figures["packets_per_s"] = figures["packets"] / sources.window.length_s
    return figures


def _captured(captures: Sequence[Json]) -> Figures:
    summary = _table(captures[0], "summary") if captures else {}
    known = read_output(CaptureSummary, summary, "the capture")
    figures = pick(summary, ("endpoints",))
    figures |= {f"capture.{name}": value for name, value in pick(summary, ("packets",)).items()}
    figures |= {f"capture.{name}": value for name, value in pick(_table(summary, "tcp"), CAPTURED).items()}
    length_s = known.interval_s or 1.0
    rates = [each.packets / length_s for each in known.interval]
    if rates:
        # Of a short capture intervals are tenths of a second, of which the busiest one says more.
        size = max(1, round(1 / length_s))
        seconds = [rates[place : place + size] for place in range(0, max(1, len(rates) - size + 1), size)]
        figures["capture.packets_per_s_max"] = max(sum(each) for each in seconds) / size
    # At either end connections open and close, and an interval may be a part of one.
    end = max(1, len(rates) // ENDS)
    inner = rates[end:-end]
    if len(inner) > 1 and max(inner) > 0:
        figures["capture.packets_per_s_swing"] = (max(inner) - min(inner)) / max(inner)
    return figures


def _part(prefix: str, summary: Json, cost: Mapping[str, object]) -> Figures:
    names = [each.name for each in PART_FIGURES]
    return {f"{prefix}.{name}": value for name, value in (pick(summary, names) | pick(cost, names)).items()}


def _table(record: Mapping[str, object], key: str) -> Json:
    value = record.get(key)
    return value if isinstance(value, dict) else {}
