"""What a typed suite has to keep as a whole, and what each of its points has to: refused before
anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from plimsoll_lab.suite import units
from plimsoll_lab.suite.claims import check_paths
from plimsoll_lab.suite.contenders import CONTENDER
from plimsoll_lab.suite.drawn import check_drawn
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expect import as_number
from plimsoll_lab.suite.figures import LAST_OVER_LINE, status_figure, suggest
from plimsoll_lab.suite.flags import DESTINATIONS, FORWARD_FLAGS, LOAD_FLAGS, SERVER_FLAGS, check_setting
from plimsoll_lab.suite.keys import ATTACHED, COMMAND
from plimsoll_lab.suite.placement import SERVER, check_cpus, check_references, start_order
from plimsoll_lab.suite.prediction import connections
from plimsoll_lab.suite.settings import Settings, quantity
from plimsoll_lab.suite.spec import Point, Suite
from plimsoll_lab.suite.tables import refuse_unknown

_SERVER_KEYS = frozenset(key for flags in SERVER_FLAGS.values() for key in flags)
_READY = re.compile(r"tcp:(\d+|\{port\})")


def check_compare(suite: Suite) -> None:
    """What competes has to be an axis, and stated by every point beside the matrix."""
    source, compare = suite.source, suite.verdict.compare
    axes = [axis.path for axis in suite.axes]
    if compare is not None and compare not in axes:
        raise SuiteError(
            f"{source}: [verdict] compare: '{compare}' is not an axis of the matrix{suggest(compare, axes)}"
        )
    path = compete_along(suite)
    baseline = suite.verdict.baseline
    names = {str(value) for axis in suite.axes if axis.path == path for value in axis.values}
    if baseline is not None and baseline not in names:
        if CONTENDER in axes and path != CONTENDER:
            raise SuiteError(
                f"{source}: [verdict] compare: the suite compares the values of {path} ({', '.join(sorted(names))}), "
                f"and '{baseline}' is a contender; compare contenders with [verdict] compare = \"{CONTENDER}\" "
                f"(--set verdict.compare={CONTENDER})"
            )
        known = suggest(baseline, names) if names else "; give the contenders names with [contender.NAME]"
        raise SuiteError(f"{source}: [verdict] baseline: '{baseline}' is no contender{known}")
    if path in {None, CONTENDER}:
        return
    for number, settings in enumerate(suite.single_points, start=1):
        if path not in settings:
            raise SuiteError(f'{source}: [[point]] {number}: the contenders differ in {path}; add "{path}" = ...')


def compete_along(suite: Suite) -> str | None:
    """The path whose values compete: as stated, else the contenders, else the first axis if it
    varies the server.
    """
    if suite.verdict.compare is not None:
        return suite.verdict.compare
    first = suite.axes[0].path if suite.axes else ""
    return first if first == CONTENDER or first.startswith("server.") else None


def check_documents(suite: Suite, settings: Sequence[Settings]) -> None:
    """Refuse a reference, a claim or a chart over what does not vary."""
    paths = {path for setting in settings for path in setting}
    for number, reference in enumerate(suite.references, start=1):
        check_paths([reference.at], paths, f"{suite.source}: [[reference]] {number} at")
    for number, claim in enumerate(suite.claims, start=1):
        own = {"at": [claim.at], "over": [claim.over] if claim.over is not None else [], "against": claim.against or ()}
        for key, places in own.items():
            check_paths(places, paths, f"{suite.source}: [[claim]] {number} {key}")
    check_drawn(suite.drawn, settings, source=suite.source)


def check_point(suite: Suite, point: Point) -> None:
    """Refuse a point that could not be started: its tables as a whole, after the matrix has been
    applied.
    """
    name = str(point.setting.get(CONTENDER, ""))
    own = suite.contenders.get(name, {})
    is_own = "ready" in own or ("command" in own and "ready" not in point.server)
    owner = f"contender.{name}" if is_own else SERVER
    _check_server(suite.source, SERVER, point.server, owner)
    _check_load(suite.source, "load", point.load)
    _check_shares(suite, point)
    _check_start(suite.source, point)
    for role in point.roles:
        where = f"role {role.name}"
        if role.kind == "load":
            _check_load(suite.source, where, role.settings, endless=not role.measured)
            if isinstance(role.settings.get("target"), tuple):
                raise SuiteError(f"{suite.source}: [{where}] target: a role has one host, and so one target")
        elif role.kind == "server":
            _check_server(suite.source, where, role.settings)
        elif role.kind == "command":
            _check_command(suite.source, where, role.settings, must_listen=False)
        else:
            _check_forward(suite.source, where, role.settings)
    check_references(point.server, point.load, point.roles, source=suite.source)
    # A role that takes no part in this point may keep to its CPUs in another one.
    check_cpus(point.place, point.server, suite.roles, source=suite.source)
    start_order(point.server, point.roles, source=suite.source)
    _check_expectations(suite, point)


DEFAULTS = {"load.connections": 64.0}
"""Settings that a generator has by default (`plimsoll load --help`)."""


def setting_at(point: Point, path: str) -> object:
    """The setting of a point at a dotted path; None where it has none."""
    table, _, key = path.rpartition(".")
    own: dict[str, Mapping[str, object]] = {f"role.{role.name}": role.settings for role in point.roles}
    own |= {"server": point.server, "load": point.load}
    return point.setting.get(path, own.get(table, {}).get(key, DEFAULTS.get(path)))


def _check_expectations(suite: Suite, point: Point) -> None:
    """Refuse an expression that no trial of a point could meet, for it has no value."""
    over = suite.search.over if suite.search is not None else None
    for each in suite.expectations:
        if each.figure.removeprefix("load.") == LAST_OVER_LINE:
            raise SuiteError(
                f"{suite.source}: [expect] {each.figure}: it is computed after the trial; state it under [limits]"
            )
        for path in each.paths:
            if path != over and as_number(setting_at(point, path), each.figure) is None:
                raise SuiteError(
                    f"{suite.source}: [expect] {each.figure}: {path} is no number at every point; state it there, or "
                    "name another setting"
                )


def _check_server(source: str, table: str, server: Settings, owner: str = "") -> None:
    if "address" in server:
        _check_attached(source, table, server)
    elif "command" in server:
        _check_command(source, table, server, owner=owner)
    else:
        if "ready" in server:
            raise SuiteError(f"{source}: [{table}] ready: of a command alone; our own servers say when they are")
        for key in server:
            near = suggest(key, ("command", "address"))
            if near.startswith("; did you mean"):
                raise SuiteError(f"{source}: [{table}] {key}: unknown key{near}")
        _check_flags(source, table, SERVER_FLAGS, server)


def _check_load(source: str, table: str, load: Settings, *, endless: bool = False) -> None:
    _check_flags(source, table, LOAD_FLAGS, load)
    windows = [key for key in ("duration", "requests", "each") if key in load]
    if len(windows) > 1:
        raise SuiteError(f"{source}: [{table}] {' and '.join(windows)}: a window has one length; keep one of them")
    if not windows and not endless:
        raise SuiteError(f'{source}: [{table}]: no length of the window; give it one, such as duration = "1s"')


def _check_shares(suite: Suite, point: Point) -> None:
    """Each of several generators needs a part of what they share, at the lowest load of a search
    too, and a target of its own where they have several.
    """
    source, count = suite.source, len(point.place.load)
    targets = point.load.get("target")
    if isinstance(targets, tuple) and len(targets) != count:
        raise SuiteError(
            f"{source}: [load] target: {len(targets)} targets for {count} hosts of generators; write one for each host "
            "of [place] load, or one alone"
        )
    if suite.search is not None and suite.search.key == "connections" and suite.search.lowest < count:
        raise SuiteError(
            f"{source}: [search] range: {suite.search.lowest} connections are too few for {count} generators to share"
        )
    for key, least in (("connections", connections(point.load)), ("requests", count)):
        shared = quantity(point.load, key, least)
        if count > 1 and units.count(shared) < count:
            raise SuiteError(f"{source}: [load] {key}: {shared} are too few for {count} generators to share")


def _check_start(source: str, point: Point) -> None:
    """Several generators are given one instant to start at, and `plimsoll load` takes no other with
    that.
    """
    loads = {"load": point.load} | {f"role {each.name}": each.settings for each in point.roles if each.kind == "load"}
    counted = next((table for table, settings in loads.items() if "countdown" in settings), None)
    if counted is not None and len(point.place.load) + len(loads) - 1 > 1:
        raise SuiteError(f"{source}: [{counted}] countdown: several generators start at one instant; leave it out")


def _check_forward(source: str, table: str, settings: Settings) -> None:
    for key, value in settings.items():
        check_setting(table, FORWARD_FLAGS, key, value, source=source)
    if ("target" in settings) == ("mappings" in settings):
        raise SuiteError(
            f'{source}: [{table}]: say where it forwards to; write target = "role:server", '
            'or mappings = ["8080=role:server"], one of both'
        )


def _check_flags(source: str, table: str, known: Mapping[str, Mapping[str, object]], settings: Settings) -> None:
    protocol = settings.get("protocol", "echo")
    if not isinstance(protocol, str) or protocol not in known:
        raise SuiteError(f"{source}: [{table}] protocol: '{protocol}' is not supported{suggest(str(protocol), known)}")
    flags = LOAD_FLAGS[protocol] | DESTINATIONS[protocol] if known is LOAD_FLAGS else SERVER_FLAGS[protocol]
    for key, value in settings.items():
        if key != "protocol":
            check_setting(table, flags, key, value, source=source)


def _check_attached(source: str, table: str, server: Settings) -> None:
    """A server that already runs: there is nothing to start."""
    refuse_unknown(server, ATTACHED, f"{source}: [{table}]")
    if not isinstance(server["address"], str) or ":" not in server["address"]:
        raise SuiteError(f"{source}: [{table}] address: {server['address']!r} is no address; write HOST:PORT")


def _check_command(source: str, table: str, server: Settings, *, must_listen: bool = True, owner: str = "") -> None:
    ours = next((key for key in server if key not in COMMAND and key in _SERVER_KEYS), None)
    if ours is not None:
        raise SuiteError(
            f"{source}: [{table}] {ours}: a flag of our own servers, and this server is a command; leave it out of "
            f'[{table}] and "{table}.{ours}" out of the matrix, or write it into the command'
        )
    refuse_unknown(server, COMMAND, f"{source}: [{table}]")
    command, ready = server.get("command"), server.get("ready")
    if not isinstance(command, tuple) or not command:
        raise SuiteError(
            f'{source}: [{table}] command: {command!r} is not a list of texts; write ["program", "argument"], no shell'
        )
    if ready is None and not must_listen:
        return
    if not isinstance(ready, str) or not _READY.fullmatch(ready):
        raise SuiteError(
            f"{source}: [{owner or table}] ready: a command needs to say when it can be connected to; "
            'write ready = "tcp:8080", or "tcp:{port}" with {port} in the command for a port that is free'
        )


def check_statuses(suite: Suite) -> None:
    """Only HTTP has statuses: generators of echoes alone could neither meet nor miss such a limit,
    miss every such expectation, and have nothing to compare.
    """
    measured = {f"role.{role.name}": role.settings for role in suite.roles if role.kind == "load" and role.measured}
    generators: dict[str, Settings] = {"load": suite.load, **measured}
    varied = {path for paths in ({axis.path for axis in suite.axes}, *suite.single_points) for path in paths}
    if any(own.get("protocol") == "http" or f"{name}.protocol" in varied for name, own in generators.items()):
        return
    for figure, where in _judged(suite):
        if status_figure(figure.removeprefix("load.")) is not None:
            why = "only HTTP has statuses, and no measured load speaks it; set [load] protocol"
            raise SuiteError(f"{suite.source}: {where}: {why}")


def check_roles(suite: Suite) -> None:
    """Refuse to judge by a figure of a role that there is not: no trial would have it."""
    roles = [role.name for role in suite.roles]
    for figure, where in _judged(suite):
        name = figure.split(".")[1] if figure.startswith("role.") else None
        if name is not None and name not in roles:
            known = suggest(name, roles) if roles else "; the suite has no [[role]]"
            raise SuiteError(f"{suite.source}: {where}: no role is called '{name}'{known}")


def _judged(suite: Suite) -> list[tuple[str, str]]:
    """Each figure that trials are judged by, and where the suite says so."""
    stated = [(each.figure, f"[limits] {each.text}") for each in suite.limits]
    stated += [(each.figure, f"[expect] {each.figure} {each.text}") for each in suite.expectations]
    return stated + [(each, f"[verdict] figures: {each}") for each in suite.verdict.figures]
