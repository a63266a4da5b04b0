"""Where the parts of a trial run: the local host alone, several hosts with an emulated network
between them, or the hosts of a cluster.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from plimsoll_lab.hosts.host import Host, Process, wait_for_any
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.netns import Network, open_network
from plimsoll_lab.hosts.ray_cluster import RayCluster
from plimsoll_lab.problem import ENVIRONMENT, LabError
from plimsoll_lab.suite.placement import LOCAL
from plimsoll_lab.suite.spec import Plan, Point
from plimsoll_lab.suite.topology import Topology
from plimsoll_lab.trial.validity import ending

START_IN_S, START_REMOTE_IN_S = 0.6, 2.0
"""A process is up within some 20 ms, on a busy machine ten times that; on another machine a message
has to go there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Testbed:
    """Hosts by name, and what joins them."""

    hosts: Mapping[str, Host]
    """Every host that a part may be placed on."""
    network: Network | None = None
    """The emulator; None for the local host alone."""
    topology: Topology | None = None
    """What the network was asked to be."""
    cluster: RayCluster | None = None
    """Whose nodes the hosts are; None on this machine."""
    start_in_s: float = START_IN_S
    """From the start of several generators to their common instant."""

    def host(self, name: str | None) -> Host:
        """A host by its name; the only one, where a part has no place."""
        return self.hosts[name or LOCAL]

    def shares_machine(self, name: str | None) -> bool:
        """Whether another host is on the machine of this one."""
        own = self.host(name)
        return any(each.machine == own.machine for each in self.hosts.values() if each is not own)

    def refuse_lost_links(self) -> None:
        """Raise LabError where the emulator has ended: its links went with it, and over none of
        them a server shows what it can.
        """
        emulator = None if self.network is None else self.network.emulator
        code = None if emulator is None else emulator.exit_code()
        if emulator is not None and code is not None:
            how = ending(code, emulator.stderr_tail(), lacked_memory=emulator.lacked_memory())
            raise LabError(
                f"the emulator of the links ended in mid-run, and the links with it ({how}); "
                "'plimsoll lab resume' goes on over new ones",
                exit_code=ENVIRONMENT,
            )

    def wait(self, processes: Sequence[Process], timeout_s: float) -> None:
        """Sleep until one of them prints or ends, or the time is over."""
        wait_for_any(processes, timeout_s)


Machines = LocalHost | RayCluster
"""What a run has to measure on: this machine, or a cluster."""


def place_point(testbed: Testbed, point: Point) -> Testbed:
    """The testbed with the hosts of one point. On a cluster these are given nodes now, as a host
    may have been lost since; raises `NoHost` where there are too few.
    """
    if testbed.cluster is None:
        return testbed
    hosts = testbed.cluster.place(names_of(point))
    for name, host in hosts.items():
        if len(host.all_addresses) < point.addresses:
            raise LabError(
                f"[network] addresses: {name} ({host.addresses[0]}) has {len(host.all_addresses)} of the "
                f"{point.addresses} asked for; give its interface more, or run with --set network.addresses=1",
                exit_code=ENVIRONMENT,
            )
        host.addresses = host.all_addresses[: point.addresses]
    return replace(testbed, hosts=hosts)


def names_of(point: Point) -> tuple[str, ...]:
    """The hosts that a point's parts run on."""
    names = (point.place.server, *point.place.load, *(role.on for role in point.roles))
    return tuple(dict.fromkeys(name for name in names if name is not None))


def local_testbed(host: Host) -> Testbed:
    """The testbed of a suite without a network."""
    return Testbed(hosts={LOCAL: host})


def as_testbed(place: Host | Testbed) -> Testbed:
    """A single host is a testbed."""
    return place if isinstance(place, Testbed) else local_testbed(place)


@contextlib.contextmanager
def open_testbeds(machines: Machines, binary: str, plan: Plan) -> Iterator[Mapping[int, Testbed]]:
    """A testbed for each point, by its number; points whose networks are alike share one."""
    if isinstance(machines, RayCluster):
        names = tuple(dict.fromkeys(name for point in plan.points for name in names_of(point)))
        testbed = Testbed(hosts=machines.place(names), cluster=machines, start_in_s=START_REMOTE_IN_S)
        yield {point.number: testbed for point in plan.points}
        return
    local = machines
    with contextlib.ExitStack() as stack:
        by_network: dict[str, Testbed] = {}
        testbeds = {}
        for point in plan.points:
            key = network_key(point)
            if key not in by_network:
                by_network[key] = stack.enter_context(_open(local, binary, point, plan.seed))
            testbeds[point.number] = by_network[key]
        yield testbeds


def network_key(point: Point) -> str:
    """What two points with the same network have in common."""
    if point.network is None:
        return ""
    config = point.network.link_config(seed=0)
    network = point.network
    return json.dumps([config, network.addresses, network.backend, network.congestion], sort_keys=True)


@contextlib.contextmanager
def _open(local: LocalHost, binary: str, point: Point, seed: int) -> Iterator[Testbed]:
    topology = point.network
    if topology is None:
        yield local_testbed(local)
        return
    addresses = {name: topology.addresses_of(name) for name in topology.hosts}
    # The link's generator takes 64 bits; so does the seed of every run.
    config = topology.link_config(seed=seed)
    opened = open_network(local, binary, config, addresses, backend=topology.backend, congestion=topology.congestion)
    with opened as network:
        yield Testbed(hosts={LOCAL: local, **network.hosts}, network=network, topology=topology)
