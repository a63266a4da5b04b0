"""How long a trial and a run take, roughly: from the requests asked for, their bytes, the links on
the way and the CPU that others ask of the server.

Pure: a prediction, and the generous time limit that follows from it, need nothing to run.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from plimsoll_lab.suite import units
from plimsoll_lab.suite.placement import LOAD, SERVER, way
from plimsoll_lab.suite.settings import Settings, texts
from plimsoll_lab.suite.spec import Plan, Point, SearchSettings, Suite
from plimsoll_lab.suite.topology import LinkSettings
from plimsoll_lab.suite.units import bits_per_s, duration_s

TRIAL_OVERHEAD_S = 0.03
"""Start, readiness, connecting and stopping of a trial with few connections, as measured on two
cores."""
OTHER_LOAD_S = 1.0
"""What a load that is not measured adds: it begins before the measured one and ends after it."""
CONNECTION_COST_S = 60e-6
"""What one more connection adds to a trial: it is established and closed at about 16,000 a
second."""
BUSY_RATE = 20_000.0
"""Requests a second that a closed loop without think time is taken to complete: of this no more
than a guess."""
BYTES_PER_S = 800e6
"""Payload that generator and server are taken to move together, as measured on two cores."""
LINKED_BYTES_PER_S = 120e6
"""The same where links between hosts move it packet by packet, on either backend: 8 MiB answers
came at 14.6 a second over bridges, on two cores. The CPU that sends a packet moves it over the
bridges, so a server on one CPU sends half as much."""
CORES = 2
"""CPUs that a server is taken to have: the plan of a suite is the same on every machine."""
FRAME_OVERHEAD = 1514 / 1448
"""Bytes of full frames of Ethernet over their bytes of payload, with TCP's time stamps."""
INITIAL_WINDOW_BYTES = 10 * 1448
"""What a new connection sends in its first round trip (RFC 6928); twice as much in each further
one."""
RISE = 4.0
"""How many times higher each load of a search is than the last that passed, until one fails."""
CONFIRMING_TRIALS, LONG_TRIALS = 8, 2
"""At the answer; a trial longer than the first ones warms up for half its length."""
LONGER = 1.5

ONE_PROCESS_A_CONNECTION = ("fork", "threads")
"""Models whose connections share the CPUs alike; every other one serves them in turn."""

_SYNTHETIC = re.compile(r"/(?:bytes|burn/(?P<burn>[^/]+))/(?P<size>\d+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestCost:
    """What one request of a load asks of links and server."""

    sent_bytes: int
    """Payload to the server."""
    received_bytes: int
    """Payload from it."""
    work_s: float
    """CPU that it burns on purpose."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Saturation:
    """What the loads that are not measured ask of the server, as long as they find CPU and link."""

    connections: int = 0
    """How many they have."""
    work_s: float = 0.0
    """CPU that one round of all of them burns on purpose."""
    bits_per_s: float = 0.0
    """What the server sends them, where the CPU alone limits them."""


def connections(load: Settings) -> int:
    """How many connections a generator opens: the binary's default where the suite does not say."""
    return units.count(str(load.get("connections", 64)))


def loads(point: Point) -> list[Settings]:
    """Every generator of a point: the measured one, and those beside it."""
    return [point.load, *(role.settings for role in point.roles if role.kind == LOAD)]


def connections_at_once(point: Point) -> int:
    """How many connections all generators of a point open."""
    return sum(map(connections, loads(point)))


def connections_at_server(point: Point) -> int:
    """How many of them end at the server, and not at another one."""
    return sum(connections(load) for load in loads(point) if SERVER in way(load, point.roles))


def most_connections(points: Sequence[Point]) -> tuple[int, int]:
    """The most of any point, and the most at a server that is a command."""
    every = [connections_at_once(point) for point in points]
    of_commands = [connections_at_server(point) for point in points if "command" in point.server]
    return max(every, default=0), max(of_commands, default=0)


def message_bytes(load: Settings) -> int:
    """The payload of an echo; where the suite does not say, the binary's default."""
    return units.size_bytes(str(load.get("size", 64)))


def think_s(load: Settings) -> float:
    """The mean pause of a connection before its next request, in seconds."""
    return duration_s(str(load.get("think", "0")).removeprefix("exp:"))


def predicted_s(plan: Plan) -> float:
    """How long the run will take, roughly."""
    search = plan.suite.search
    if search is not None:
        middle = {search.key: round(math.sqrt(search.lowest * search.highest))}
        points = {each.number: replace(each, load={**each.load, **middle}) for each in plan.points}
        return sum(_search_s(plan.suite, search, points[each.point]) for each in plan.trials)
    times = {point.number: trial_s(plan.suite, point) for point in plan.points}
    return sum(times[trial.point] for trial in plan.trials)


def _search_s(suite: Suite, search: SearchSettings, point: Point) -> float:
    """How long a search takes at least: its trials become longer where they have to, and its
    patience ends it.
    """
    first_s = duration_s(str(point.load["duration"])) if "duration" in point.load else 1.0
    searching_s = _searching_trials(search) * trial_s(suite, point)
    confirming_s = LONGER * (CONFIRMING_TRIALS * search.least_s(first_s) + LONG_TRIALS * search.lasting_s)
    return min(search.patience_s, searching_s + confirming_s)


def _searching_trials(search: SearchSettings) -> int:
    """First, short trials: the load rises fourfold each time, and then its logarithm is halved."""
    rises = math.ceil(math.log(search.highest / search.lowest, RISE))
    halvings = math.ceil(math.log2(max(2.0, math.log(RISE) / math.log1p(search.width))))
    return (rises + halvings) * (search.trials // 2 + 1)


def trial_s(suite: Suite, point: Point) -> float:
    """How long one trial of a point will take, with its warm-up, roughly."""
    load = point.load
    warm_up = duration_s(suite.run.warm_up) if suite.run.warm_up else 0.0
    window = 0.0
    if "duration" in load:
        window = duration_s(str(load["duration"]))
    elif "each" in load:
        window = connections(load) * units.count(str(load["each"])) / requests_per_s(point)
    elif "requests" in load:
        window = units.count(str(load["requests"])) / requests_per_s(point)
    others = sum(role.kind == LOAD and not role.measured for role in point.roles)
    return TRIAL_OVERHEAD_S + OTHER_LOAD_S * others + connections(load) * CONNECTION_COST_S + warm_up + window


def requests_per_s(point: Point) -> float:
    """The rate of a server that keeps up: the rate asked for, or less where CPU or links limit
    it.
    """
    load = point.load
    if "rate" in load:
        low, _, high = str(load["rate"]).partition(":")
        return max(1e-3, (units.count(low) + units.count(high or low)) / 2)
    count, asked, other = connections(load), _request_cost(point, load), _saturation(point)
    pause_s = think_s(load)
    alone_s = pause_s + _alone_s(point, asked)
    rates = [_cpu_rate(point, asked, other, count, pause_s)]
    rates += [count / alone_s] if alone_s else []
    forth, back = _narrowest(_path(point)), _narrowest(_path(point, back=True))
    if forth is not None:
        rates.append(forth / _bits(asked.sent_bytes))
    if back is not None:
        # The saturator's answers take their part of the link, and at most their connections' share.
        share = count / (count + other.connections)
        rates.append(max(share * back, back - other.bits_per_s) / _bits(asked.received_bytes))
    return min(rates)


def _cpu_rate(point: Point, asked: RequestCost, other: Saturation, count: int, pause_s: float) -> float:
    """What the CPUs leave to the measured load."""
    bytes_per_s = BYTES_PER_S if point.network is None else LINKED_BYTES_PER_S * min(1, _cores(point) / CORES)
    base_s = 1 / BUSY_RATE + (asked.sent_bytes + asked.received_bytes) / bytes_per_s
    rate = 1 / (base_s + asked.work_s / _cores(point))
    if not other.connections:
        return rate
    if point.server.get("model", "epoll") in ONE_PROCESS_A_CONNECTION:
        return rate * count / (count + other.connections)
    # An event loop serves every connection once before it serves one twice, and an answer longer
    # than the window needs several turns.
    turns_s = _trips(point, asked) * other.work_s / _loops(point)
    return min(rate, count / (pause_s + turns_s + count / rate))


def _cores(point: Point) -> int:
    return len(point.place.cpus.get(SERVER, range(CORES)))


def _loops(point: Point) -> int:
    cores = _cores(point)
    return min(cores, units.count(str(point.server.get("workers", cores))))


def _request_cost(point: Point, load: Settings) -> RequestCost:
    work_s = duration_s(str(point.server.get("work", "0")))
    if load.get("protocol", point.server.get("protocol")) == "http":
        path = str(load.get("path", ""))
        found = _SYNTHETIC.fullmatch(path)
        if found is None:
            # How long a file is only its host knows.
            return RequestCost(sent_bytes=0, received_bytes=0, work_s=work_s + _work_of_file_s(point.server, path))
        burnt_s = duration_s(found["burn"]) if found["burn"] else 0.0
        return RequestCost(sent_bytes=0, received_bytes=int(found["size"]), work_s=work_s + burnt_s)
    size = message_bytes(load)
    return RequestCost(sent_bytes=size, received_bytes=size, work_s=work_s)


def _work_of_file_s(server: Settings, path: str) -> float:
    """CPU that a server of ours burns for each answer about one file."""
    listed = texts(server, "work_path") if "work_path" in server else ()
    found = (each.rpartition("=") for each in listed)
    return next((duration_s(work) for name, _, work in found if name == path), 0.0)


def _saturation(point: Point) -> Saturation:
    """Of the closed loops without think time that burn the server's CPU beside the measured one."""
    found = Saturation()
    for role in point.roles:
        if role.kind != LOAD or role.measured or not {"rate", "think"}.isdisjoint(role.settings):
            continue
        asked, count = _request_cost(point, role.settings), connections(role.settings)
        if SERVER in way(role.settings, point.roles) and asked.work_s:
            found = Saturation(
                connections=found.connections + count,
                work_s=found.work_s + count * asked.work_s,
                bits_per_s=found.bits_per_s + _cores(point) / asked.work_s * _bits(asked.received_bytes),
            )
    return found


def _alone_s(point: Point, asked: RequestCost) -> float:
    """What a request takes with the links and the server to itself."""
    forth, back = _path(point), _path(point, back=True)
    round_trip_s = sum(duration_s(str(shape.get("delay", "0"))) for shape in (*forth, *back))
    sending_s = sum(
        _bits(size) / rate
        for size, path in ((asked.sent_bytes, forth), (asked.received_bytes, back))
        if (rate := _narrowest(path)) is not None
    )
    return _trips(point, asked) * round_trip_s + sending_s + asked.work_s


def _trips(point: Point, asked: RequestCost) -> float:
    """Round trips of a request; a new connection each has a handshake too, and its window grows
    from the first one again.
    """
    if point.load.get("http") != "1.0" and not point.load.get("reconnect"):
        return 1.0
    return 2 + math.log2(1 + max(asked.sent_bytes, asked.received_bytes) / INITIAL_WINDOW_BYTES)


def _path(point: Point, *, back: bool = False) -> list[LinkSettings]:
    """The links from the first generator to the server, by way of the parts that it aims at."""
    if point.network is None or point.place.server is None or not point.place.load:
        return []
    homes = {SERVER: point.place.server, **{role.name: role.host for role in point.roles}}
    hosts = [point.place.load[0], *(homes[name] for name in way(point.load, point.roles))]
    pairs = [(start, end) for start, end in itertools.pairwise(hosts) if start != end]
    return [shape for start, end in pairs for shape in point.network.path(*((end, start) if back else (start, end)))]


def _narrowest(path: Sequence[LinkSettings]) -> float | None:
    return min((bits_per_s(str(shape["rate"])) for shape in path if "rate" in shape), default=None)


def _bits(payload_bytes: int) -> float:
    """On the wire; a message without payload is a frame of headers all the same."""
    return 8 * (payload_bytes * FRAME_OVERHEAD + 66)
