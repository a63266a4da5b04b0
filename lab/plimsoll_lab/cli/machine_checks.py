"""What a machine has for a suite, before anything runs: ok, warn or refuse, with the figures and
the fix.

It reads, and tries what leaves nothing behind; it changes nothing.
"""

from __future__ import annotations

import math
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from plimsoll_lab.experiment.programs import PROGRAM_REMEDY, missing_programs, settings_of
from plimsoll_lab.hosts.netns import AVAILABLE
from plimsoll_lab.hosts.privilege import TUN, may_make_networks
from plimsoll_lab.hosts.processes import available_cpus, listed
from plimsoll_lab.hosts.samplers.environment import DESCRIPTORS_BESIDE, descriptors
from plimsoll_lab.hosts.samplers.machine import read_machine, read_memory
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite.placement import references
from plimsoll_lab.suite.prediction import (
    connections,
    connections_at_once,
    connections_at_server,
    loads,
    most_connections,
    predicted_s,
)
from plimsoll_lab.suite.spec import Plan, Point

Level = Literal["ok", "warn", "refuse"]

PORTS_A_SOURCE = 14_000
"""Connections from one source address to one destination, past which the kernel's search for a port
falls off a cliff (measured; docs/scale.md)."""
SERVER_BYTES = {"threads": 24 << 10, "fork": 200 << 10}
"""User and kernel memory that a connection costs the server by its model, about; event loops need
almost none."""
LOAD_BYTES = {"threads": 40 << 10, "fork": 500 << 10}
"""Memory that a connection costs the generator by its engine, about: 495 MB with 15,000 threads,
and 532 MB with 1,000 processes, page tables and kernel stacks included."""
CONNECTION_BYTES = 10 << 10
"""Kernel memory of both ends of a connection over loopback."""
MEMORY_SPARE = 0.8
"""The part of the available memory that a run may plan with."""
MAPPINGS = "vm.max_map_count, of which each takes four"
"""The limit of the threads of one process; each process of `fork` has its own."""
LOAD_A_CPU = 0.2
"""A load average above this per CPU is the work of other programs."""
STEAL_WARNED = 0.01
"""The part of the time since boot that the hypervisor withheld, above which results will
scatter."""
CAPTURE_BYTES_A_PACKET, CAPTURE_PACKETS_PER_S = 128 + 32, 100_000
"""A captured packet, cut at its snap length, in pcapng; and as many a second as a busy host
passes."""
QUIET_CLOCKS = {"tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page"}
"""Clock sources that are read without leaving user space."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing looked at."""

    check: str
    """What was looked at."""
    level: Level
    """`ok`, `warn`: results may suffer, or `refuse`: it cannot run."""
    message: str
    """What there is and what is needed, in figures."""
    fix: str = ""
    """What to do about it; empty where all is well."""


def preflight(plan: Plan | None) -> list[Finding]:
    """Look at everything that a suite needs; without one, at what every suite needs."""
    points = plan.points if plan is not None else ()
    findings = [*_descriptors(points), *_relays(points), *_ports(points), *_somaxconn(points)]
    findings += [*_tasks(points), *_memory(points), *_cpus(points)]
    networks = any(point.network is not None for point in points)
    findings += [*_network(points, wanted=networks), *_capture(plan), *_commands(plan)]
    findings += [*_governor(), *_clock(), *_steal(), *_busy()]
    return findings


def report(findings: list[Finding]) -> Json:
    """The findings as data."""
    level = next((each for each in ("refuse", "warn") if any(one.level == each for one in findings)), "ok")
    return {"event": "preflight", "level": level, "findings": [asdict(each) for each in findings]}


def render(findings: list[Finding], *, colour: bool) -> str:
    """The findings as lines."""
    codes = {"ok": "32", "warn": "33", "refuse": "31"}
    width = max(len(each.check) for each in findings)
    lines = []
    for each in findings:
        mark = f"\x1b[{codes[each.level]}m{each.level:<6}\x1b[0m" if colour else f"{each.level:<6}"
        lines.append(f"{mark}  {each.check.ljust(width)}  {each.message}" + (f"; {each.fix}" if each.fix else ""))
    return "\n".join(lines)


def _descriptors(points: tuple[Point, ...]) -> Iterator[Finding]:
    found = descriptors(*most_connections(points))
    level: Level = "refuse" if found.of_machine else "warn" if found.remedy else "ok"
    yield Finding(check="descriptors", level=level, message=found.said, fix=found.remedy)


def _commands(plan: Plan | None) -> Iterator[Finding]:
    """The programs that the suite starts. One that is missing is its contender's outcome: others
    are measured all the same.
    """
    points = plan.points if plan is not None else ()
    if plan is None or not any("command" in each for point in points for each in (point.server, *settings_of(point))):
        return
    missing = missing_programs(plan)
    if missing:
        said = f"this machine has no {' and no '.join(missing)}, which the suite starts"
        yield Finding(check="commands", level="warn", message=said, fix=PROGRAM_REMEDY)
    else:
        yield Finding(check="commands", level="ok", message="this machine has every program that the suite starts")


def _cpus(points: tuple[Point, ...]) -> Iterator[Finding]:
    """CPUs that parts are to keep to."""
    wanted = {cpu for point in points for cpus in point.place.cpus.values() for cpu in cpus}
    if not wanted:
        return
    has = available_cpus(wanted)
    said = f"parts keep to the CPUs {listed(wanted)}, and this machine gives {listed(has) or 'none of them'}"
    if has == wanted:
        yield Finding(check="CPUs", level="ok", message=said)
    else:
        yield Finding(check="CPUs", level="refuse", message=said, fix="correct [place] cpus, or take it out")


def _relays(points: tuple[Point, ...]) -> Iterator[Finding]:
    """Commands between generator and server: a process holds both ends of each connection, where
    our forwarder goes past the limit by descriptor tables. How many processes and addresses a
    command has, it alone knows.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ports = _ports_of_an_address()
    most: dict[str, int] = {}
    to_one_server: dict[str, int] = {}
    for point in points:
        named = [name for name, _ in references(point.load)]
        for name in (role.name for role in point.roles if role.kind == "command" and role.name in named):
            of_each = -(-connections(point.load) // len(named))
            most[name] = max(most.get(name, 0), of_each * named.count(name))
            to_one_server[name] = max(to_one_server.get(name, 0), of_each)
    for name, relayed in most.items():
        need = 2 * relayed + DESCRIPTORS_BESIDE
        if hard != resource.RLIM_INFINITY and need > hard:
            yield Finding(
                check=f"descriptors of {name}",
                level="warn",
                message=f"{name} needs {need:,} descriptors, two for each of the {relayed:,} connections that it "
                f"relays, and a process may have {hard:,} (ulimit -Hn): where it is a single process, trials with more "
                "connections than that will fail",
                fix=f"have the command start {-(-need // hard)} processes that share its port, or raise the hard limit "
                f"to {need:,}, or leave these points out",
            )
    for name, relayed in to_one_server.items():
        if relayed > ports:
            yield Finding(
                check=f"ports of {name}",
                level="warn",
                message=f"{name} opens {relayed:,} connections to one server, and an address has {ports:,} ports for "
                "them: where it uses a single address, the rest will wait for an answer",
                fix=f"have the command take turns with {-(-relayed // PORTS_A_SOURCE)} addresses ([network] "
                "addresses), or leave these points out",
            )


def _ports_of_an_address() -> int:
    """How many ports the kernel gives one address for connections to one server (ip(7),
    ip_local_port_range).
    """
    low, high = (int(each) for each in _read("/proc/sys/net/ipv4/ip_local_port_range", "32768 60999").split())
    return high - low + 1


def _ports(points: tuple[Point, ...]) -> Iterator[Finding]:
    ports = _ports_of_an_address()
    # Of all points the one that asks most of an address.
    asked = [
        (connections(point.load) / max(1, len(point.place.load)), point.network.addresses)
        for point in points
        if point.network is not None
    ]
    if asked:
        need, addresses = max(asked, key=lambda each: each[0] / each[1])
        said = f"{need:,.0f} connections a generator, from {addresses} addresses of {ports:,} ports each"
        if need > ports * addresses:
            fix = f"ask for [network] addresses = {-(-need // PORTS_A_SOURCE):.0f}, or place the load on more hosts"
            yield Finding(check="ports", level="refuse", message=said, fix=fix)
        elif need > PORTS_A_SOURCE * addresses:
            fix = f"[network] addresses = {-(-need // PORTS_A_SOURCE):.0f} spares the kernel a long search for ports"
            yield Finding(check="ports", level="warn", message=said, fix=fix)
        else:
            yield Finding(check="ports", level="ok", message=said)
        return
    yield Finding(
        check="ports", level="ok", message=f"{ports:,} a source address; on the local host generators rotate addresses"
    )


def _somaxconn(points: tuple[Point, ...]) -> Iterator[Finding]:
    has, need = int(_read("/proc/sys/net/core/somaxconn", "4096")), most_connections(points)[0]
    said = f"{has:,} connections may wait to be accepted (net.core.somaxconn)"
    burst = any("connect_rate" not in load for point in points for load in loads(point)) and need > has
    if burst:
        fix = f"sysctl net.core.somaxconn={need}, or [load] connect_rate, for {need:,} are opened as fast as they go"
        yield Finding(check="somaxconn", level="warn", message=said, fix=fix)
    else:
        yield Finding(check="somaxconn", level="ok", message=said)


def _tasks(points: tuple[Point, ...]) -> Iterator[Finding]:
    limits = {
        "kernel.pid_max": int(_read("/proc/sys/kernel/pid_max", "32768")),
        "kernel.threads-max": int(_read("/proc/sys/kernel/threads-max", "32768")),
    }
    user = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if user != resource.RLIM_INFINITY and os.geteuid() != 0:
        limits["ulimit -u"] = user
    limits |= {f"pids limit of {path}": most for path, most in _pids_limits()}
    of_points = [_tasks_by_kind(point) for point in points]
    asked = dict.fromkeys(limits, max((sum(count for _, count in parts) for parts in of_points), default=0))
    threaded = max((count for parts in of_points for kind, count in parts if kind == "threads"), default=0)
    if threaded:
        mappings = int(_read("/proc/sys/vm/max_map_count", "65530"))
        limits[MAPPINGS], asked[MAPPINGS] = (mappings - mappings // 32) // 4, threaded
    name = min(limits, key=lambda each: limits[each] - asked[each])
    least, need = limits[name], asked[name]
    said = f"{least:,} threads and processes at most ({name})"
    if need:
        said += f", and {need:,} are needed: one for each connection, of the server, the generator or both"
    if need >= least:
        yield Finding(check="threads and pids", level="warn", message=said, fix=f"raise {name.partition(',')[0]}")
    else:
        yield Finding(check="threads and pids", level="ok", message=said)


def _tasks_by_kind(point: Point) -> list[tuple[object, int]]:
    """What has a thread or a process for each connection, the server or a generator: which of both,
    and how many.
    """
    server = (point.server.get("model"), connections_at_server(point))
    parts = [server, *((load.get("engine"), connections(load)) for load in loads(point))]
    return [part for part in parts if part[0] in {"fork", "threads"}]


def _pids_limits() -> Iterator[tuple[str, int]]:
    for path in ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"):
        text = _read(path, "max")
        if text.isdigit():
            yield path, int(text)


def _memory(points: tuple[Point, ...]) -> Iterator[Finding]:
    has = read_memory() or 0
    need = 0
    for point in points:
        of_server = SERVER_BYTES.get(str(point.server.get("model", "epoll")), 1 << 10) * connections_at_server(point)
        of_loads = [
            LOAD_BYTES.get(str(load.get("engine", "epoll")), 1 << 10) * connections(load) for load in loads(point)
        ]
        need = max(need, of_server + CONNECTION_BYTES * connections_at_once(point) + sum(of_loads))
    said = f"{has / 2**30:.1f} GiB available"
    if need:
        said += f", and the connections take about {_size(need)}"
    if need > MEMORY_SPARE * has:
        yield Finding(check="memory", level="refuse", message=said, fix="ask for fewer connections, or free memory")
    else:
        yield Finding(check="memory", level="ok", message=said)


def _size(count: int) -> str:
    """Bytes in the unit that shows them."""
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{math.ceil(count / 2**20):,} MiB"


def _network(points: tuple[Point, ...], *, wanted: bool) -> Iterator[Finding]:
    missing: Level = "refuse" if wanted else "warn"
    if may_make_networks():
        yield Finding(check="privileges", level="ok", message="this process may make network namespaces")
    elif _succeeds(["unshare", "--user", "--map-root-user", "--net", "--", "true"]):
        yield Finding(check="privileges", level="ok", message="network namespaces in a user namespace of one's own")
    else:
        fix = "run as root, or allow user namespaces (sysctl user.max_user_namespaces); local suites need neither"
        yield Finding(check="privileges", level=missing, message="network namespaces cannot be made", fix=fix)
    if os.access(TUN, os.R_OK | os.W_OK):
        yield Finding(check="tun", level="ok", message=f"{TUN} can be opened")
    else:
        over_tap = any(point.network is not None and point.network.backend == "tap" for point in points)
        said = f"{TUN} cannot be opened, and the emulator over TAP needs it"
        fix = 'load the module tun, chmod 666 it, or write backend = "kernel" where no link is shaped'
        yield Finding(check="tun", level="refuse" if over_tap else "warn", message=said, fix=fix)
    lacking = [program for program in ("ip", "unshare", "nsenter") if shutil.which(program) is None]
    if lacking:
        said = f"{', '.join(lacking)} missing"
        yield Finding(check="programs", level=missing, message=said, fix="install iproute2 and util-linux")
    else:
        yield Finding(check="programs", level="ok", message="ip, unshare and nsenter are there")
    yield from _links(points)
    yield from _congestion(points)


def _links(points: tuple[Point, ...]) -> Iterator[Finding]:
    """What the kernel must have for the backend `kernel`."""
    by_kernel = [point.network for point in points if point.network is not None and point.network.backend == "kernel"]
    if by_kernel:
        if _succeeds([*_in_namespace(), "ip", "link", "add", "name", "b0", "type", "bridge"]):
            yield Finding(check="bridges", level="ok", message="the kernel has bridges")
        else:
            fix = "load the modules bridge and veth, or leave [network] backend out"
            yield Finding(check="bridges", level="refuse", message="the kernel has no bridges", fix=fix)
    netem = {kind: _has_qdisc(kind) for kind in ("netem", "htb")}
    said = ", ".join(f"{kind} {'there' if has else 'missing'}" for kind, has in netem.items())
    if all(netem.values()):
        yield Finding(check="qdiscs", level="ok", message=said)
    elif any(network.is_shaped for network in by_kernel):
        fix = "load the modules sch_netem and sch_htb, or leave [network] backend out"
        yield Finding(check="qdiscs", level="refuse", message=said, fix=fix)
    else:
        yield Finding(check="qdiscs", level="ok", message=f"{said}; the emulator over TAP needs neither")


def _congestion(points: tuple[Point, ...]) -> Iterator[Finding]:
    """Whether the kernel has the congestion controls that hosts are to use: tried on a route of a
    namespace of its own, which loads a module where there is one.
    """
    asked = sorted({each for point in points if point.network and (each := point.network.congestion) is not None})
    for name in asked:
        route = f"ip link set lo up && ip route replace local 127.0.0.1 dev lo table local congctl {name}"
        if _succeeds([*_in_namespace(), "sh", "-c", route]):
            yield Finding(check="congestion control", level="ok", message=f"the kernel has {name}")
        else:
            has = _read(AVAILABLE, "none that it tells")
            said = f"the kernel has no {name} for the hosts of the network, it has {has}"
            fix = f"modprobe tcp_{name}, or name another as [network] congestion"
            yield Finding(check="congestion control", level="refuse", message=said, fix=fix)


def _has_qdisc(kind: str) -> bool:
    """Whether the kernel has a queueing discipline: tried on the loopback device of a namespace of
    its own.
    """
    return _succeeds([*_in_namespace(), "tc", "qdisc", "add", "dev", "lo", "root", kind])


def _in_namespace() -> list[str]:
    """The prefix that runs a command in a network namespace of its own."""
    whose = [] if may_make_networks() else ["--user", "--map-root-user"]
    return ["unshare", *whose, "--net", "--"]


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _capture(plan: Plan | None) -> Iterator[Finding]:
    if plan is None or not plan.suite.capture:
        return
    free = shutil.disk_usage(".").free
    need = predicted_s(plan) * CAPTURE_PACKETS_PER_S * CAPTURE_BYTES_A_PACKET
    said = f"{free / 2**30:.1f} GiB free, and captures take up to {need / 2**30:.1f} GiB at 100,000 packets/s"
    level: Level = "ok" if need < free else "warn"
    fix = "" if need < free else "free some, or use --out on another disk"
    yield Finding(check="disk for captures", level=level, message=said, fix=fix)


def _governor() -> Iterator[Finding]:
    governor = _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "")
    if not governor:
        yield Finding(check="CPU governor", level="ok", message="the machine shows none: a hypervisor's, or fixed")
    elif governor == "performance":
        yield Finding(check="CPU governor", level="ok", message=governor)
    else:
        fix = "cpupower frequency-set -g performance makes trials alike"
        yield Finding(check="CPU governor", level="warn", message=governor, fix=fix)


def _clock() -> Iterator[Finding]:
    source = _read("/sys/devices/system/clocksource/clocksource0/current_clocksource", "unknown")
    if source in QUIET_CLOCKS:
        yield Finding(check="clock source", level="ok", message=source)
    else:
        fix = "each reading of the time is a system call; a kernel with tsc or kvm-clock has cheaper ones"
        yield Finding(check="clock source", level="warn", message=source, fix=fix)


def _steal() -> Iterator[Finding]:
    machine = read_machine()
    whole = machine.busy_s + machine.steal_s
    part = machine.steal_s / whole if whole else 0.0
    said = f"the hypervisor withheld {part * 100:.2f} % of the CPU time wanted since boot"
    if part > STEAL_WARNED:
        yield Finding(check="steal", level="warn", message=said, fix="use a machine with CPUs of its own")
    else:
        yield Finding(check="steal", level="ok", message=said)


def _busy() -> Iterator[Finding]:
    # The load is that of the whole machine, however few of its CPUs the laboratory may use.
    load, cpus = os.getloadavg()[0], os.cpu_count() or 1
    said = f"a load average of {load:.2f} on {cpus} CPUs"
    if load > LOAD_A_CPU * cpus:
        yield Finding(check="other load", level="warn", message=said, fix="close what else runs on this machine")
    else:
        yield Finding(check="other load", level="ok", message=said)


def _read(path: str, otherwise: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return otherwise
