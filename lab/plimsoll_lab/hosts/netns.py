"""Hosts that are network namespaces of this machine, and the emulated links between them.

The namespaces have no name: each exists as long as a process is in it, so that the kernel clears it
away with the last one, however that ends. Every process is started by the local host's agent, whose
guard outlives the lab. The emulator has a namespace of its own, so that the devices of two runs
never meet.

ip(8) does here what pyroute2 could: nsenter(1) is the prefix of every command in a namespace
anyway, as it keeps the process id, and a person can repeat a command that ip(8) refused.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from plimsoll_lab.hosts.agent import ServedHost, enter
from plimsoll_lab.hosts.host import Host, HostProcess
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.problem import ENVIRONMENT, LabError

Json = dict[str, object]

READY_S = 30.0
"""Making a namespace takes milliseconds, and a hundred devices a second."""
KEEP = (
    "ip link set lo up && echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save && {{ {copies}true; }} 2> /dev/null && "
    "echo kept && exec sleep infinity"
)
"""Holds a host's namespace. TCP there keeps no metrics from trial to trial (tcp_no_metrics_save,
ip-sysctl.rst)."""
COPIED = (
    "/proc/sys/net/ipv4/ip_local_port_range",
    "/proc/sys/net/core/somaxconn",
    "/proc/sys/net/ipv4/tcp_max_syn_backlog",
)
"""Settings that a host takes over from the lab's own namespace: the kernel gives a new one its
defaults."""
AVAILABLE = "/proc/sys/net/ipv4/tcp_available_congestion_control"
"""The congestion controls that the kernel has, by name."""
LOOPBACK = ("127.0.0.0/8", "127.0.0.1")
"""The routes of the loopback device, which TCP within a host takes."""
COUNTS_EVERY = "200ms"
"""How often the emulator prints its counts: a trial waits for those that follow its window."""


class Network:
    """Hosts that are up, and the emulator between them."""

    def __init__(
        self, local: LocalHost, hosts: Mapping[str, Host], emulator: HostProcess, ready: Json, pids: Sequence[int]
    ) -> None:
        self._local = local
        self.pids = tuple(pids)
        """The processes that hold the namespaces, on this machine."""
        self.hosts = hosts
        """By name."""
        self.emulator = emulator
        """`plimsoll link`, whose lines state when it was late."""
        self.ready = ready
        """The emulator's ready line: its backend, and whether its links keep large segments
        whole."""
        self.latest: Json | None = None
        """The counts it printed last."""
        self._disturbances: list[Json] = []

    def listen(self) -> None:
        """Read what the emulator has printed since; it leaves lines out where its pipe is full."""
        for line in self.emulator.take_lines():
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if event.get("event") == "counters":
                    self.latest = event
                elif event.get("event") == "disturbance":
                    self._disturbances.append(event)

    def counters(self, after_unix_s: float, timeout_s: float) -> Json | None:
        """The first counts from a moment on of whose late and lost packets it is told when; where
        that is not told in time, the last ones. None where the emulator has ended, or has printed
        none from that moment on.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self.listen()
            found = self.latest
            if found is not None and _unix_s(found, "unix_s") < after_unix_s:
                found = None
            if found is not None and not found.get("disturbed"):
                return found
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self.emulator.exit_code() is not None:
                return found
            self._local.wait([self.emulator], left_s)

    def disturbances(self, from_unix_s: float, to_unix_s: float) -> list[Json]:
        """When the emulator was not the network asked for, of those moments that overlap with a
        time.
        """
        return [
            each
            for each in self._disturbances
            if _unix_s(each, "from_unix_s") <= to_unix_s and _unix_s(each, "to_unix_s") >= from_unix_s
        ]


def _unix_s(event: Json, key: str) -> float:
    """A time in an emulator's event, in seconds since 1970."""
    value = event.get(key)
    if not isinstance(value, int | float):
        raise LabError(f"the emulator's event {event.get('event')} has no {key}; use programs of one version")
    return value


@contextlib.contextmanager
def open_network(
    local: LocalHost,
    binary: str,
    config: Mapping[str, object],
    addresses: Mapping[str, Sequence[str]],
    *,
    backend: str = "tap",
    congestion: str | None = None,
) -> Iterator[Network]:
    """Hosts with these addresses, joined as `config` tells `plimsoll link`; the host hN has the
    device hN-eth0. TCP there uses the congestion control that is named, else the machine's.
    """
    with contextlib.ExitStack() as stack:
        with local.folder() as folder:
            file = folder / "links.json"
            file.write_text(json.dumps(config), encoding="utf-8")
            link = [binary, "link", "--config", str(file), "--backend", backend, "--json", "--interval", COUNTS_EVERY]
            emulator = stack.enter_context(local.start(["unshare", "--net", "--", *link], role="link", metered=True))
            # Once it is ready it has read the file.
            ready = _await(local, emulator, "the emulated links", '"ready"')
        hosts = {}
        keep = _keep()
        pids = [local.agent.pid(emulator.number)]
        for name, own in addresses.items():
            keeper = stack.enter_context(
                local.start(["unshare", "--net", "--", "sh", "-c", keep], role=f"host-{name}", metered=False)
            )
            _await(local, keeper, f"the host {name}", "kept")
            keeper_pid = local.agent.pid(keeper.number)
            pids.append(keeper_pid)
            _plug(local, pids[0], keeper_pid, name, own)
            if congestion is not None:
                _control(local, keeper_pid, name, own, congestion)
            place = ServedHost(name=name, addresses=tuple(own), interface=device_of(name), namespace_pid=keeper_pid)
            number = local.agent.add(place)
            stack.callback(local.agent.remove, number)
            hosts[name] = Host(local.agent, number)
        yield Network(local, hosts, emulator, json.loads(ready), pids)


def _keep() -> str:
    """The script that holds a host's namespace. Where the kernel does not let a setting be written,
    as for some in a user namespace, the host keeps its default.
    """
    copies = ""
    for path in COPIED:
        with contextlib.suppress(OSError):
            value = " ".join(Path(path).read_text(encoding="ascii").split())
            copies += f"echo {value} > {path}; "
    return KEEP.format(copies=copies)


def device_of(host: str) -> str:
    """The name of a host's interface."""
    return f"{host}-eth0"


def _plug(local: LocalHost, emulator_pid: int, keeper_pid: int, name: str, addresses: Sequence[str]) -> None:
    """Move a host's device to it, and bring it up."""
    device = device_of(name)
    _finish(local, enter(emulator_pid, ["ip", "link", "set", device, "netns", str(keeper_pid)]), f"plug in {name}")
    steps = [f"ip address add {address}/8 dev {device}" for address in addresses]
    script = " && ".join([*steps, f"ip link set {device} up"])
    _finish(local, enter(keeper_pid, ["sh", "-c", script]), f"bring up {name}")


def _control(local: LocalHost, keeper_pid: int, name: str, addresses: Sequence[str], congestion: str) -> None:
    """Set TCP's congestion control in a host, by its routes (ip-route(8), congctl): the setting of
    a new namespace (net.ipv4.tcp_congestion_control) cannot be written on every machine.
    """
    device = device_of(name)
    local_routes = [f"local {address} dev {device} proto kernel scope host table local" for address in addresses]
    local_routes += [f"local {address} dev lo proto kernel scope host table local" for address in LOOPBACK]
    routes = [f"10.0.0.0/8 dev {device} proto kernel scope link", *local_routes]
    sources = [addresses[0], *addresses, *(["127.0.0.1"] * len(LOOPBACK))]
    script = " && ".join(
        f"ip route replace {route} src {source} congctl {congestion}"
        for route, source in zip(routes, sources, strict=True)
    )
    try:
        _finish(local, enter(keeper_pid, ["sh", "-c", script]), f"set the congestion control of {name}")
    except LabError as refusal:
        has = Path(AVAILABLE).read_text(encoding="ascii").split()
        if congestion in has:
            raise
        raise LabError(
            f"[network] congestion: this kernel has no {congestion}, it has {', '.join(has)}; load its module "
            f"(modprobe tcp_{congestion}), or name one of these",
            exit_code=ENVIRONMENT,
        ) from refusal


def _finish(local: LocalHost, argv: Sequence[str], purpose: str) -> None:
    """Run a short command to its end, which must be a good one."""
    deadline = time.monotonic() + READY_S
    with local.start(argv, role="ip", metered=False) as process:
        while (code := process.exit_code()) is None and (left_s := deadline - time.monotonic()) > 0:
            local.wait([process], left_s)
            process.take_lines()
        if code != 0:
            said = " ".join(process.stderr_tail().split()) or "nothing"
            raise LabError(f"cannot {purpose}: `{' '.join(argv)}` said: {said}", exit_code=ENVIRONMENT)


def _await(local: LocalHost, process: HostProcess, what: str, word: str) -> str:
    """The first line with a word in it."""
    deadline = time.monotonic() + READY_S
    while True:
        for line in process.take_lines():
            if word in line:
                return line
        # After each wait there is another look: a lab without a CPU may have slept past the end.
        if process.exit_code() is not None or (left_s := deadline - time.monotonic()) <= 0:
            break
        local.wait([process], left_s)
    said = " ".join(process.stderr_tail().split()) or "no answer"
    raise LabError(f"cannot make {what}: {said}", exit_code=ENVIRONMENT)
