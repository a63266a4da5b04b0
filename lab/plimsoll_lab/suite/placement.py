"""Where the parts of a suite run, and what else takes part: [network], [place] and [[role]], typed
and checked.

A part runs as a process of its own: the server under test (named `server`), the generators
(`load`), and every role. Parts name each other by `role:NAME`, the address that the part listens
on, or by `role:NAME:PORT`, its host's address and that port.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from plimsoll_lab.suite import units
from plimsoll_lab.suite.contenders import CONTENDER, KEPT, PLACE_LOAD, POINT, STARTS
from plimsoll_lab.suite.errors import SuiteError, naming_source
from plimsoll_lab.suite.figures import suggest
from plimsoll_lab.suite.network import read_network
from plimsoll_lab.suite.network_keys import NETWORK, PLACE, ROLE
from plimsoll_lab.suite.settings import Settings, Value
from plimsoll_lab.suite.spec import Placement, Role, Suite
from plimsoll_lab.suite.tables import Table, as_setting, as_table, as_tables, not_tables, refuse_unknown
from plimsoll_lab.suite.topology import Topology
from plimsoll_lab.suite.whole_path import REPLACED, TOPOLOGY, links_of_each, read_whole_path

LOCAL = "local"
"""The one host of a suite without a network."""
PORT = "{port}"
"""In a command: a free port that the lab gives to it."""
SERVER, LOAD = "server", "load"
EMULATOR, CAPTURE = "link", "capture"
"""Parts that the laboratory adds."""
"""The parts that every suite has; no role takes their names."""
KINDS = ("load", "server", "forward", "command")
ACTIVE, WHEN_NAMED = "active", "when named"
"""Whether a role takes part in a trial: true, false, or where another part names it."""
_REFERENCE = re.compile(r"role:([A-Za-z0-9][A-Za-z0-9._-]*?)(?::(\d{1,5}))?(?=[^A-Za-z0-9._:-]|$)")
_COUNT = re.compile(r"([1-9]\d{0,3}) hosts(?: ([^ =]+=[^ ]+))?")
"""So many hosts for the generators, all with a label where one is given."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_FURTHER_LOAD = re.compile(r"load-\d+")
"""Of [load], the generators but the first."""


def read_place(table: Table, *, source: str) -> Placement:
    """Which hosts the server and the generators run on."""
    with naming_source(source):
        refuse_unknown(table, PLACE, "[place]")
        server, load = table.get(SERVER), table.get(LOAD)
        if server is not None and not isinstance(server, str):
            raise SuiteError(f"[place] server: {server!r} is not a host's name, such as 'h1'")
        place = Placement(server=server, cpus=_read_cpus(table.get("cpus", {})))
        return place if load is None else _with_load(place, load)


def _with_load(place: Placement, load: object) -> Placement:
    """The generators on these hosts."""
    hosts = [load] if isinstance(load, str) else load
    if not isinstance(hosts, list | tuple) or not hosts or not all(isinstance(each, str) for each in hosts):
        raise SuiteError(f"[place] load: {load!r} is neither a host's name, a list of such, nor a count: '8 hosts'")
    twice = next((each for number, each in enumerate(hosts) if each in hosts[:number]), None)
    if twice is not None:
        raise SuiteError(
            f"[place] load: '{twice}' stands twice; a host has one generator, with as many [load] threads as it needs"
        )
    counted = _COUNT.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if counted is not None:
        return replace(place, load=(), load_count=int(counted[1]), load_label=counted[2] or "")
    return replace(place, load=tuple(hosts), load_count=0, load_label="")


def place_of(suite: Suite, setting: Settings) -> Placement:
    """Where the server and the generators of one point run, as far as the suite says."""
    with naming_source(suite.source):
        return _with_load(suite.place, setting[PLACE_LOAD]) if PLACE_LOAD in setting else suite.place


def _read_cpus(raw: object) -> dict[str, tuple[int, ...]]:
    found = {}
    for part, text in as_table(raw, refusal=f'[place] cpus: {raw!r} is not a table; write {{ server = "0" }}').items():
        try:
            found[part] = units.cpus(str(text))
        except ValueError as error:
            raise SuiteError(f"[place] cpus: {part}: {error}") from None
    return found


def check_cpus(place: Placement, server: Settings, roles: Iterable[Role], *, source: str) -> None:
    """Refuse CPUs of parts that there are not, or that the lab does not start."""
    parts = (SERVER, LOAD, *(role.name for role in roles))
    for part in place.cpus:
        if part not in parts:
            raise SuiteError(f"{source}: [place] cpus: there is no part '{part}'{suggest(part, parts)}")
    if SERVER in place.cpus and "address" in server:
        raise SuiteError(
            f"{source}: [place] cpus: server: it already runs, and the lab does not start it; start it with "
            "taskset -c, and leave it out here"
        )


def read_roles(tables: object, *, source: str) -> tuple[Role, ...]:
    """The [[role]] tables."""
    with naming_source(source):
        every = as_tables(tables, refusal=not_tables("role"))
        roles = tuple(_role(table, number) for number, table in enumerate(every, start=1))
        names = [SERVER, LOAD, *(role.name for role in roles)]
        for name in names[2:]:
            if name in {EMULATOR, CAPTURE} or _FURTHER_LOAD.fullmatch(name):
                raise SuiteError(f"[[role]] {name}: a part of the laboratory's own is called so; choose another name")
        for name in names:
            if names.count(name) > 1:
                raise SuiteError(f"[[role]] {name}: the name '{name}' stands twice; each part has a name of its own")
        return roles


def _role(table: Table, number: int) -> Role:
    name, kind = table.get("name"), table.get("kind")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise SuiteError(f"[[role]] {number} name: {name!r} is not a plain name; use letters, digits and dashes")
    if not isinstance(kind, str) or kind not in KINDS:
        raise SuiteError(f"[[role]] {name}: kind: {kind!r} is none{suggest(str(kind), KINDS)}")
    on, measured = table.get("on"), table.get("measured", kind == LOAD)
    if on is not None and not isinstance(on, str):
        raise SuiteError(f"[[role]] {name}: on: {on!r} is not a host's name, such as 'h3'")
    if not isinstance(measured, bool) or (measured and kind != LOAD):
        raise SuiteError(f"[[role]] {name}: measured: {measured!r}; only a load is measured, by true or false")
    settings = {
        key: as_setting(value, f"[[role]] {name}: {key}")
        for key, value in table.items()
        if key not in ROLE or key == ACTIVE
    }
    return Role(name=name, kind=kind, on=on, measured=measured, settings=settings)


def assign_hosts(
    network: Topology | None, place: Placement, roles: Sequence[Role], *, source: str, cluster: bool = False
) -> tuple[Placement, tuple[Role, ...]]:
    """Give every part its host, and refuse hosts that there are not. Which hosts a cluster has is
    only seen once it has been joined.
    """
    if network is not None:
        return _assign_on_network(network, place, roles, source=source)
    return _assign_on_cluster(place, roles) if cluster else _assign_local(place, roles, source=source)


def _assign_local(place: Placement, roles: Sequence[Role], *, source: str) -> tuple[Placement, tuple[Role, ...]]:
    """Everything on this machine."""
    if place.load_count:
        raise SuiteError(
            f"{source}: [place] load: there is no network with {place.load_count} hosts for generators; add "
            "[network], or run on a cluster with --hosts ray:HEAD:PORT"
        )
    asked = [("[place] server", place.server), *(("[place] load", host) for host in place.load)]
    asked += [(f"[[role]] {role.name}: on", role.on) for role in roles]
    for where, host in asked:
        if host not in {None, LOCAL}:
            raise SuiteError(f"{source}: {where}: there is no network with a host '{host}'; add [network]")
    everywhere = replace(place, server=LOCAL, load=(LOCAL,))
    return everywhere, tuple(role.on_host(LOCAL) for role in roles)


def _assign_on_network(
    network: Topology, place: Placement, roles: Sequence[Role], *, source: str
) -> tuple[Placement, tuple[Role, ...]]:
    """On the network's hosts: the first is the server's, the second the generator's, unless the
    suite says.
    """
    hosts = network.hosts
    server = place.server or hosts[0]
    load = place.load or (hosts[min(1, len(hosts) - 1)],)
    if place.load_count:
        load = tuple(host for host in hosts if host != server)[: place.load_count]
        if len(load) < place.load_count or place.load_label:
            raise SuiteError(
                f"{source}: [place] load: '{place.load_count} hosts {place.load_label}'".rstrip()
                + f": beside the server's host the network has {len(hosts) - 1}, and none has labels"
            )
    for where, host in [("server", server), *(("load", each) for each in load)]:
        if host not in hosts:
            raise SuiteError(f"{source}: [place] {where}: there is no host '{host}'{suggest(host, hosts)}")
    for role in roles:
        if role.on is None or role.on not in hosts:
            said = f"there is no host '{role.on}'{suggest(role.on, hosts)}" if role.on else "say on which host it runs"
            raise SuiteError(f"{source}: [[role]] {role.name}: on: {said}")
    return replace(place, server=server, load=load), tuple(roles)


def _assign_on_cluster(place: Placement, roles: Sequence[Role]) -> tuple[Placement, tuple[Role, ...]]:
    """Names for every part's host: those of the suite, and else h1, h2, ..., each a host of its
    own.
    """
    server = place.server or "h1"
    named = {server, *place.load, *(role.on for role in roles if role.on is not None)}
    free = (name for name in (f"h{number}" for number in itertools.count(1)) if name not in named)
    load = place.load
    if place.load_label:
        more = tuple(f"{place.load_label} {number}" for number in range(2, place.load_count + 1))
        load = (place.load_label, *more)
    elif not load:
        load = tuple(itertools.islice(free, place.load_count or 1))
    return replace(place, server=server, load=load), tuple(
        role if role.on is not None else role.on_host(next(free)) for role in roles
    )


def references(settings: Settings) -> list[tuple[str, int | None]]:
    """The parts that a part names, with the port where it gives one."""
    found: list[tuple[str, int | None]] = []
    for key in ("target", "mappings", "command"):
        value = settings.get(key, ())
        # What is neither a text nor a list of them is refused where a point is checked.
        for text in (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ():
            found += [(match[1], int(match[2]) if match[2] else None) for match in _REFERENCE.finditer(text)]
    return found


def by_target(load: Settings) -> list[Settings]:
    """A load's settings, once for each target that it has: of several each host of the generators
    has its own, in their order.
    """
    target = load.get("target")
    return [{**load, "target": each} for each in target] if isinstance(target, tuple) else [load]


def way(load: Settings, roles: Iterable[Role]) -> list[str]:
    """The parts that a load's requests pass; the last one answers them. Of a part that names
    several others the first one counts.
    """
    own = {role.name: role.settings for role in roles}
    passed: list[str] = []
    named = [name for name, _ in references(load)] or [SERVER]
    while named and named[0] not in passed:
        passed.append(named[0])
        named = [name for name, _ in references(own.get(named[0], {}))]
    return passed


def resolve(text: str, addresses: Mapping[str, str]) -> str:
    """A text with the addresses of the parts that it names; `{role:x}` and `role:x` alike."""

    def address(match: re.Match[str]) -> str:
        own = addresses[match[1]]
        return own if match[2] is None else f"{own.rpartition(':')[0] or own}:{match[2]}"

    return _REFERENCE.sub(address, re.sub(r"\{(role:[^{}]*)\}", r"\1", text))


def start_order(server: Settings, roles: Iterable[Role], *, source: str) -> list[str]:
    """The parts but the generators, each after those that it names; the server as early as it
    may.
    """
    waiting: dict[str, Settings] = {SERVER: server, **{role.name: role.settings for role in roles if role.kind != LOAD}}
    order: list[str] = []
    while waiting:
        free = [name for name, own in waiting.items() if all(each in order for each, _ in references(own))]
        if not free:
            circle = ", ".join(waiting)
            raise SuiteError(f"{source}: the parts {circle} wait for each other, or for a part that there is not")
        order.append(free[0])
        del waiting[free[0]]
    return order


def check_references(server: Settings, load: Settings, roles: Sequence[Role], *, source: str) -> None:
    """Refuse names of parts that there are not, or that listen nowhere."""
    listening = [
        SERVER,
        *(role.name for role in roles if role.kind in {"server", "forward"} or "ready" in role.settings),
    ]
    # A port can be named on any part's host, whether or not the part is known to listen.
    parts = [SERVER, *(role.name for role in roles)]
    everybody: list[tuple[str, Settings]] = [("[server]", server), ("[load]", load)]
    everybody += [(f"[[role]] {role.name}:", role.settings) for role in roles]
    for where, settings in everybody:
        for name, port in references(settings):
            if name not in (listening if port is None else parts):
                raise SuiteError(
                    f"{source}: {where} role:{name}: no part of this name listens{suggest(name, listening)}"
                )


def paths(place: Placement, roles: Sequence[Role], load: Settings) -> list[tuple[str, str]]:
    """Between which hosts the generators, forwarders and commands talk: from, to, each pair
    once.
    """
    homes = {SERVER: place.server_host, **{role.name: role.host for role in roles}}
    loads = by_target(load)
    talks = [(host, loads[number % len(loads)]) for number, host in enumerate(place.load)]
    talks += [(role.host, role.settings) for role in roles]
    found: dict[tuple[str, str], None] = {}
    for number, (host, settings) in enumerate(talks):
        names = [name for name, _ in references(settings)] or ([SERVER] if number < len(place.load) else [])
        for name in names:
            if homes[name] != host:
                found[host, homes[name]] = None
    for role in roles:
        if role.kind == LOAD and not references(role.settings) and role.host != homes[SERVER]:
            found[role.host, homes[SERVER]] = None
    return list(found)


def with_ready(server: Settings) -> dict[str, Value]:
    """A server whose command names the port that is given to it is ready once that one accepts,
    unless it says otherwise.
    """
    command = server.get("command")
    names_it = isinstance(command, tuple) and any(PORT in word for word in command) and "address" not in server
    return {**({"ready": f"tcp:{PORT}"} if names_it else {}), **server}


def apply_setting(suite: Suite, setting: Settings) -> tuple[Settings, Settings, Topology | None, tuple[Role, ...]]:
    """Server, load, network and roles of one cell of the matrix."""
    server: dict[str, Value] = dict(suite.server)
    load: dict[str, Value] = dict(suite.load)
    network = dict(suite.network) if suite.network is not None else None
    roles = {role.name: role for role in suite.roles}
    for path, value in setting.items():
        table, _, key = path.partition(".")
        if path == CONTENDER:
            own = suite.contenders[str(value)]
            if own.keys() & STARTS:
                server = {key: value for key, value in server.items() if key in KEPT}
            server |= own
        elif path in {POINT, PLACE_LOAD}:
            continue
        elif table == SERVER:
            server[key] = value
        elif table == LOAD:
            load[key] = value
        elif table == "network":
            network = {**(network or {}), key: value}
        else:
            name, _, key = key.partition(".")
            if name not in roles:
                known = suggest(name, roles) if roles else ""
                raise SuiteError(f"{suite.source}: [matrix] {path}: there is no role '{name}'{known}")
            roles[name] = roles[name].with_setting(key, value)
    server = with_ready(server)
    roles = {
        name: replace(role, settings=with_ready(role.settings)) if role.kind == SERVER else role
        for name, role in roles.items()
    }
    taking_part = _taking_part(server, load, list(roles.values()), source=suite.source)
    place = place_of(suite, setting)
    topology = _network_of(suite, network, place, taking_part, load) if network is not None else None
    return server, load, topology, taking_part


def _taking_part(server: Settings, load: Settings, roles: Sequence[Role], *, source: str) -> tuple[Role, ...]:
    """The roles of one point: none that is not active, and those that are active when named if
    another part names them.
    """
    when = {role.name: role.settings.get(ACTIVE, True) for role in roles}
    for name, value in when.items():
        if not isinstance(value, bool) and value != WHEN_NAMED:
            raise SuiteError(f"{source}: [[role]] {name}: {ACTIVE}: {value!r} is none of true, false, '{WHEN_NAMED}'")
    own = {role.name: role.settings for role in roles}
    named: set[str] = set()
    waiting = [server, load, *(own[name] for name, value in when.items() if value is True)]
    while waiting:
        for name, _ in references(waiting.pop()):
            if when.get(name) == WHEN_NAMED and name not in named:
                named.add(name)
                waiting.append(own[name])
    return tuple(
        replace(role, settings={key: value for key, value in role.settings.items() if key != ACTIVE})
        for role in roles
        if when[role.name] is True or role.name in named
    )


def _network_of(suite: Suite, table: Table, placement: Placement, roles: Sequence[Role], load: Settings) -> Topology:
    """The network of one point; a whole path that it states is divided over the links."""
    with naming_source(suite.source):
        whole = read_whole_path(table)
    if whole is None:
        return read_network(table, source=suite.source)
    own = {key: value for key, value in table.items() if key not in REPLACED}
    own = {"topology": TOPOLOGY, **own}
    bare = read_network({key: own[key] for key in (*NETWORK, "link") if key in own}, source=suite.source)
    place, settled = assign_hosts(bare, placement, roles, source=suite.source)
    lengths = {(start, end): len(bare.path(start, end)) for start, end in paths(place, settled, load)}
    with naming_source(suite.source):
        shape = whole.shape_of_link(links_of_each(lengths))
    # Bridges alone cannot delay: the emulator does, on every kernel.
    return replace(read_network({**own, **shape, "backend": "tap"}, source=suite.source), one_line=True)
