"""The generators of a trial before it begins: their commands, and what each may wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plimsoll_lab.hosts.host import Host, HostProcess
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite.placement import LOAD, LOCAL
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Point, Role, Suite
from plimsoll_lab.trial.commands import in_records, load_command, share, with_log, with_warm_up
from plimsoll_lab.trial.testbed import Testbed

IdleUntil = Literal["start", "begin", "never"]
"""Until when a generator asks nothing: it is started, or it is given the instant that it awaits."""


@dataclass(kw_only=True, slots=True)
class Generator:
    """One generator."""

    name: str
    """`load`, `load-2`, ... or its role's name."""
    role: Role | None
    """None for generators of [load]."""
    host: Host
    """Where it runs."""
    command: list[str]
    """Its command, but for the instant it starts at."""
    measured: bool
    """Whether its requests are part of the figures."""
    may_wait: bool
    """Whether it may wait for the connections of others once its own are up."""
    stays_up: bool = False
    """Whether its connections stay up after its window until it is let go."""
    idle_until: IdleUntil = "never"
    """Until when it asks the server nothing, where its window opens right after."""
    cpus: tuple[int, ...] = ()
    """The CPUs of its host that it keeps to; none for all of them."""
    process: HostProcess | None = None
    """Its process, once started."""
    awaits_start: bool = False
    """Whether it waits, once its connections are up, for the instant at which all begin."""
    is_up: bool = False
    """Whether its connections are up, and it waits."""
    last_event: str | None = None
    """What it said last."""
    last_event_at: float = 0.0
    """When the lab took that, on its own monotonic clock."""
    summary: Json | None = None
    """Its summary."""
    ended: bool = False
    """Whether it has ended."""
    was_stopped: bool = False
    """Whether the laboratory ended it, as the measured ones had ended."""
    window: dict[str, float] = field(default_factory=dict)
    """The ends of its window that it has reported, by the lab's clock, in seconds since 1970."""
    holds_until: float | None = None
    """Until when its connections stay up after its window, by the lab's clock, as it has said; None
    where they close with it."""
    record: Json = field(default_factory=dict)
    """Its record."""
    connections: list[Json] = field(default_factory=list)
    """What became of each of its connections, where that is asked for."""


def plan_generators(
    testbed: Testbed, binary: str, suite: Suite, point: Point, addresses: Mapping[str, str], records: Path
) -> list[Generator]:
    """Every generator of a trial: generators of [load] share its load, each other one has its
    own.
    """
    planned = []
    places = point.place.load or (LOCAL,)
    # The machines of a cluster are a network already, whatever the suite says of one.
    emulated = testbed.network is not None
    for number, name in enumerate(places):
        host = testbed.host(name)
        settings = with_log(share(point.load, number, len(places)), emulated=emulated)
        own = LOAD if number == 0 else f"{LOAD}-{number + 1}"
        command = load_command(host, binary, suite, settings, addresses, own)
        planned.append(
            Generator(
                name=own,
                role=None,
                host=host,
                command=in_records(with_warm_up(command, suite, settings, None), host, records),
                measured=True,
                may_wait=may_wait(settings),
                stays_up=stays_up(settings),
                idle_until=idle_until(settings, suite),
                cpus=point.place.cpus.get(LOAD, ()),
            )
        )
    for role in point.roles:
        if role.kind == "load":
            host = testbed.host(role.on)
            settings = with_log(role.settings, emulated=emulated) if role.measured else role.settings
            command = load_command(host, binary, suite, settings, addresses, role.name)
            command = in_records(with_warm_up(command, suite, settings, role), host, records)
            planned.append(
                Generator(
                    name=role.name,
                    role=role,
                    host=host,
                    command=command,
                    measured=role.measured,
                    may_wait=may_wait(role.settings),
                    stays_up=role.measured and stays_up(role.settings),
                    idle_until=idle_until(role.settings, suite) if role.measured else "never",
                    cpus=point.place.cpus.get(role.name, ()),
                )
            )
    return planned


def may_wait(load: Settings) -> bool:
    """Whether a generator may hold its requests until the connections of others are up: as the
    suite says, and else where its window opens after its own connections are up anyhow.

    A count has its window from the first connect on, and all connect at one instant. Processes that
    share nothing cannot wait, nor do connections that are opened anew for each request.
    """
    if "barrier" in load:
        return load["barrier"] is True
    if load.get("protocol") == "http" and "connect_rate" in load and "rate" not in load:
        # A server ends connections that ask for nothing for some seconds.
        return False
    return stays_up(load)


def stays_up(load: Settings) -> bool:
    """Whether the connections of a generator last until its window has closed, and may be kept up a
    little longer: not those of a count, of processes that share nothing, or of one request each.
    """
    return "duration" in load and load.get("engine") != "fork" and load.get("reconnect") is not True


def idle_until(load: Settings, suite: Suite) -> IdleUntil:
    """Until when a generator leaves the server idle before its window: a count in a closed loop has
    its window from the first connect on, and one that waits for others from the instant at which
    all begin.
    """
    if suite.run.warm_up:
        return "never"
    if may_wait(load):
        return "begin"
    # At a rate the window of a count opens once its connections are up, too.
    return "start" if {"duration", "rate"}.isdisjoint(load) else "never"
