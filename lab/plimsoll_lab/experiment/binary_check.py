"""Asks the binary whether it would refuse a plan's settings, before the first trial: its rules are
only in the binary.

A generator is started against a port where nothing listens, a server on a free port; each is ended
at its first event.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from plimsoll_lab.hosts.processes import Launcher, wait_for
from plimsoll_lab.problem import USAGE
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.flags import DESTINATIONS, FILES, as_arguments, without_csv
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Plan, Role
from plimsoll_lab.trial.commands import with_warm_up

CLOSED = "127.0.0.1:1"
"""tcpmux (RFC 1078), which is out of use: a connection is refused at once."""
PATIENCE_S = 5.0
"""A generator or server says its first word within milliseconds; longer than this is no refusal."""


def refuse_what_the_binary_refuses(plan: Plan, binary: str) -> None:
    """Raise SuiteError for the first point of which the binary refuses a server, a load or a
    forwarder.
    """
    asked: set[tuple[str, ...]] = set()
    with Launcher() as launcher:
        for part, arguments in _commands(plan):
            if tuple(arguments) in asked:
                continue
            asked.add(tuple(arguments))
            said = _refusal(launcher, [binary, *arguments])
            if said is not None:
                raise SuiteError(f"{plan.suite.source}: {part}: plimsoll refuses this: {said}")


def _commands(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    """Each part that the binary has, by its table in the suite, and the command to ask."""
    search = plan.suite.search
    for point in plan.points:
        yield from _server("[server]", point.server, plan)
        yield _load("[load]", {**point.load, **({search.key: search.lowest} if search else {})}, plan, None)
        for role in point.roles:
            part = f"[role {role.name}]"
            if role.kind == "server":
                yield from _server(part, role.settings, plan)
            elif role.kind == "load":
                yield _load(part, role.settings, plan, role)
            elif role.kind == "forward":
                flags = _flags(role.settings, plan, ("target", "mappings"))
                yield part, ["forward", f"127.0.0.1:0={CLOSED}", *flags, "--json"]


def _server(part: str, settings: Settings, plan: Plan) -> Iterator[tuple[str, list[str]]]:
    if "command" not in settings and "address" not in settings:
        protocol = str(settings.get("protocol", "echo"))
        yield part, ["serve", protocol, *_flags(settings, plan, ()), "--listen", "127.0.0.1:0", "--json"]


def _load(part: str, settings: Settings, plan: Plan, role: Role | None) -> tuple[str, list[str]]:
    protocol = str(settings.get("protocol", "echo"))
    target = CLOSED if protocol == "echo" else f"http://{CLOSED}/"
    command = ["load", protocol, target, *_flags(settings, plan, DESTINATIONS[protocol])]
    return part, [*with_warm_up(command, plan.suite, settings, role), "--json", "--quiet"]


def _flags(settings: Settings, plan: Plan, ours: Collection[str]) -> list[str]:
    return as_arguments(
        {
            key: value.replace("{dir}", plan.suite.directory) if isinstance(value, str) else value
            for key, value in without_csv(settings).items()
            # A file has its place only once there is a trial.
            if key != "protocol" and key not in ours and key not in FILES
        }
    )


def _refusal(launcher: Launcher, command: Sequence[str]) -> str | None:
    """What the binary says, if it refuses its arguments."""
    deadline = time.monotonic() + PATIENCE_S
    with launcher.start(command, role="program", metered=False) as process:
        while (code := process.exit_code()) is None and not process.take_lines():
            if (left_s := deadline - time.monotonic()) <= 0:
                break
            wait_for([process], left_s)
        first = process.stderr_tail().splitlines()
    return (first[0].removeprefix("error: ") if first else "no reason given") if code == USAGE else None
