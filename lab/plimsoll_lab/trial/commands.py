"""The command of each part of a trial, and what several generators share. Nothing is started
here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from plimsoll_lab.hosts.host import Host
from plimsoll_lab.suite import units
from plimsoll_lab.suite.flags import DESTINATIONS, RECORDS, as_arguments, without_csv
from plimsoll_lab.suite.placement import LOAD, SERVER, by_target, resolve
from plimsoll_lab.suite.prediction import connections
from plimsoll_lab.suite.settings import Settings, Value, quantity, texts
from plimsoll_lab.suite.spec import Role, Suite

SHARED = ("connections", "requests")
"""What several generators share evenly; the window's length, and requests on each connection, are
each one's own."""
SHARED_RATES = ("rate", "connect_rate")
"""The same a second: a part of a rate need not be whole."""
ENDLESS = "24h"
"""A generator that is not measured goes on until the others have ended."""

Addresses = Mapping[str, str]
"""Where each part listens, by its name."""


def server_command(
    host: Host, binary: str, suite: Suite, settings: Settings, addresses: Addresses, name: str = SERVER
) -> tuple[list[str], str | None]:
    """A server's command, and the address to try where it prints no ready line."""
    if "address" in settings:
        return [], str(settings["address"])
    if "command" in settings:
        return foreign_command(host, suite, settings, addresses)
    flags = {key: _in_folder(value, suite) for key, value in settings.items() if key != "protocol"}
    protocol = str(settings.get("protocol", "echo"))
    listen = ["--listen", f"{host.addresses[0]}:0", "--json"]
    return [host.program(binary), "serve", protocol, *as_arguments(flags, name), *listen], None


def foreign_command(host: Host, suite: Suite, settings: Settings, addresses: Addresses) -> tuple[list[str], str | None]:
    """Any command with its words filled in, and the address to try until it answers."""
    port = host.free_port()
    words = {"{dir}": suite.directory, "{port}": str(port), "{address}": host.addresses[0]}
    command = []
    for word in texts(settings, "command"):
        filled = resolve(word, addresses) if "{role:" in word else word
        for name, text in words.items():
            filled = filled.replace(name, text)
        command.append(filled)
    if "ready" not in settings:
        return command, None
    ready = str(settings["ready"]).replace("{port}", str(port))
    return command, f"{host.addresses[0]}:{ready.removeprefix('tcp:')}"


def forward_command(host: Host, binary: str, settings: Settings, addresses: Addresses, name: str) -> list[str]:
    """The forwarder's command."""
    flags = {key: value for key, value in settings.items() if key not in {"target", "mappings"}}
    flags = _from_all_addresses(flags, host)
    if "mappings" in settings:
        mappings = list(texts(settings, "mappings"))
    else:
        mappings = [f"{host.addresses[0]}:0={settings['target']}"]
    resolved = [resolve(each, addresses) for each in mappings]
    return [host.program(binary), "forward", *resolved, *as_arguments(flags, name), "--json"]


def _from_all_addresses(flags: dict[str, Value], host: Host) -> dict[str, Value]:
    """Connections come from each address of their host in turn: one alone has not ports enough."""
    return {"source_ip": tuple(host.addresses), **flags} if len(host.addresses) > 1 else flags


def load_command(
    host: Host, binary: str, suite: Suite, settings: Settings, addresses: Addresses, name: str = LOAD
) -> list[str]:
    """A generator's command. It writes a line a second, where its engine can: the trial's timeline
    is made of them.
    """
    protocol = str(settings.get("protocol", "echo"))
    target = resolve(str(settings.get("target", "{address}")), addresses).replace("{address}", addresses[SERVER])
    if protocol == "http" and "://" not in target:
        target = f"http://{target}/{str(settings.get('path', '/')).lstrip('/')}"
    ours = {"protocol", *DESTINATIONS[protocol]}
    flags = {key: _in_folder(value, suite) for key, value in settings.items() if key not in ours}
    flags = without_csv(_from_all_addresses(flags, host))
    if settings.get("engine") != "fork":
        flags.setdefault("timeseries", True)
    return [host.program(binary), "load", protocol, target, *as_arguments(flags, name), "--json", "--quiet"]


def in_records(command: list[str], host: Host, records: Path) -> list[str]:
    """A command whose files go to the folder of its trial; on another machine to one there."""
    return [word.replace(RECORDS, host.records or str(records)) for word in command]


def share(settings: Settings, number: int, of: int) -> Settings:
    """What one of several generators, numbered from 0, does of what they share; the first take what
    is left over. Of several targets it has its own.
    """
    loads = by_target(settings)
    settings = loads[number % len(loads)]
    if of == 1:
        return settings
    own = dict(settings)
    own.setdefault("connections", connections(settings))
    for key in SHARED:
        if key in own:
            whole = units.count(quantity(own, key))
            own[key] = max(1, whole // of + (1 if number < whole % of else 0))
    for key in (each for each in SHARED_RATES if each in own):
        ends = [units.count(end) / of for end in str(own[key]).split(":", 1)]
        own[key] = ":".join(f"{end:.6f}".rstrip("0").rstrip(".") for end in ends)
    if "seed" in own:
        own["seed"] = _own_seed(units.count(quantity(own, "seed")), number)
    return own


def _own_seed(seed: int, number: int) -> int:
    """A generator's seed, of 32 bits, from that of all: without one each draws its own. A sum would
    give neighbouring seeds the same streams.
    """
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4])


def with_log(settings: Settings, *, emulated: bool) -> Settings:
    """The settings of a measured generator. Over an emulated network it logs each request, where
    its engine can: what the emulator disturbs is cut out by the request's start.
    """
    if not emulated or settings.get("engine") == "fork":
        return settings
    return {"request_log": True, **settings}


def with_warm_up(command: list[str], suite: Suite, settings: Settings, role: Role | None) -> list[str]:
    """A generator's command with the run's warm-up. A generator that is not measured goes on until
    it is stopped.
    """
    if role is not None and not role.measured:
        ends = any(key in settings for key in ("duration", "requests", "each"))
        return command if ends else [*command, "--duration", ENDLESS]
    return [*command, "--warm-up", suite.run.warm_up] if suite.run.warm_up else command


def _in_folder(value: Value, suite: Suite) -> Value:
    return value.replace("{dir}", suite.directory) if isinstance(value, str) else value
