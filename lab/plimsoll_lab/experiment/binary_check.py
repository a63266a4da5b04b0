"""Asks the binary whether it would refuse a plan's settings, before the first trial: its rules are
only in the binary.

A generator is started against a port where nothing listens, a server on a free port; each is ended
at its first event.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence

from plimsoll_lab.hosts.processes import Launcher, wait_for
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.flags import DESTINATIONS, FILES, as_arguments, without_csv
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Plan

USAGE = 2
"""The exit code by which the binary refuses its arguments."""
CLOSED = "127.0.0.1:1"
"""tcpmux (RFC 1078), which is out of use: a connection is refused at once."""
PATIENCE_S = 5.0
"""A generator or server says its first word within milliseconds; longer than this is no refusal."""


def refuse_what_the_binary_refuses(plan: Plan, binary: str) -> None:
    """Raise SuiteError for the first point whose server or load the binary refuses."""
    asked: set[tuple[str, ...]] = set()
    with Launcher() as launcher:
        for table, arguments in _commands(plan):
            if tuple(arguments) in asked:
                continue
            asked.add(tuple(arguments))
            said = _refusal(launcher, [binary, *arguments])
            if said is not None:
                raise SuiteError(f"{plan.suite.source}: [{table}]: plimsoll refuses this: {said}")


def _commands(plan: Plan) -> Iterator[tuple[str, list[str]]]:
    for point in plan.points:
        if "command" not in point.server and "address" not in point.server:
            protocol = str(point.server.get("protocol", "echo"))
            flags = _flags(point.server, plan, ())
            yield "server", ["serve", protocol, *flags, "--listen", "127.0.0.1:0", "--json"]
        protocol = str(point.load.get("protocol", "echo"))
        load = {**point.load}
        if plan.suite.search is not None:
            load[plan.suite.search.key] = plan.suite.search.lowest
        target = CLOSED if protocol == "echo" else f"http://{CLOSED}/"
        flags = _flags(load, plan, DESTINATIONS[protocol])
        warm_up = ["--warm-up", plan.suite.run.warm_up] if plan.suite.run.warm_up else []
        yield "load", ["load", protocol, target, *flags, *warm_up, "--json", "--quiet"]


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
