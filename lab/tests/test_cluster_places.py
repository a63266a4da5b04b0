"""Which node of a cluster gets which name of a suite, without any cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import FAKE
from made_records import run_record

from plimsoll_lab.experiment.programs import programs_of
from plimsoll_lab.experiment.run import note_hosts
from plimsoll_lab.hosts import ray_cluster
from plimsoll_lab.hosts.agent import Agent, ServedHost
from plimsoll_lab.hosts.host import Host
from plimsoll_lab.hosts.messages import Inspection
from plimsoll_lab.hosts.ray_cluster import Placed, RayCluster, refuse_other_build
from plimsoll_lab.hosts.ray_connection import RayConnection
from plimsoll_lab.hosts.ray_nodes import Node, choose
from plimsoll_lab.problem import HostLost, LabError, NoHost
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import Plan
from plimsoll_lab.trial.commands import with_log
from plimsoll_lab.trial.generator_plan import plan_generators

SUITE = 'name = "c"\nquestion = "?"\n[server]\nmodel = "epoll"\n[load]\nduration = "1s"\n'


def node(number: int, name: str = "", *, set_apart: bool = False, **labels: str) -> Node:
    address = f"10.0.0.{number}"
    return Node(
        number=str(number),
        address=address,
        names=frozenset({address, name or f"m{number}"}),
        labels=labels,
        set_apart=set_apart,
    )


NODES = [node(9, "head", set_apart=True), node(10, rack="a"), node(2), node(3, "db-1"), node(4, rack="a")]


def addresses(*names: str, taken: tuple[str, ...] = ()) -> dict[str, str]:
    return {name: each.address for name, each in choose(names, NODES, taken).items()}


def test_any_host_is_the_next_by_address_and_never_the_head() -> None:
    assert addresses("h1", "h2", "h3", "h4") == {
        "h1": "10.0.0.2",
        "h2": "10.0.0.3",
        "h3": "10.0.0.4",
        "h4": "10.0.0.10",
    }
    assert addresses("h4", "h10", "h1", "h2") == {
        "h1": "10.0.0.2",
        "h2": "10.0.0.3",
        "h4": "10.0.0.10",
        "h10": "10.0.0.4",
    }
    assert addresses("h3") == {"h3": "10.0.0.4"}
    assert addresses("h1", "h2", "h3", "h4", "h5").keys() == {"h1", "h2", "h3", "h4"}


def test_names_and_labels_come_before_any_host() -> None:
    found = addresses("h1", "rack=a", "db-1", "rack=a 2", "10.0.0.9")
    assert found == {
        "db-1": "10.0.0.3",
        "10.0.0.9": "10.0.0.9",
        "rack=a": "10.0.0.4",
        "rack=a 2": "10.0.0.10",
        "h1": "10.0.0.2",
    }
    assert addresses("rack=b", "rack=a 3", "nobody") == {"rack=a 3": "10.0.0.4"}


def test_a_node_has_one_name() -> None:
    assert addresses("h1", taken=("2",)) == {"h1": "10.0.0.3"}
    assert addresses("db-1", "10.0.0.3") == {"db-1": "10.0.0.3"}


class Clock:
    """Time that only waiting moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """The time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class JoiningCluster(RayCluster):
    """A cluster whose nodes join and go at given seconds; nothing runs there."""

    def __init__(self, clock: Clock, joined_s: dict[int, float]) -> None:
        super().__init__("ray:10.0.0.9:6379", "plimsoll")
        self.clock, self.joined_s = clock, joined_s

    def _nodes(self) -> list[Node]:
        return [node(number) for number, at_s in self.joined_s.items() if self.clock.now >= at_s]

    def _begin(self, name: str, node: Node) -> RayConnection:
        return cast("RayConnection", SimpleNamespace(name=name, address=node.address, lost=None, close=lambda: None))

    def _open(self, name: str, node: Node, connection: RayConnection) -> Placed:
        host = cast("Host", SimpleNamespace(name=name, machine=node.number))
        inspection = Inspection(binary="", versions={}, environment={"cpus": int(node.number)})
        return Placed(node=node, host=host, connection=connection, inspection=inspection)

    def lose(self, name: str) -> None:
        """Have a host end."""
        placed = self._placed[name]
        del self.joined_s[int(placed.node.number)]
        placed.connection.lost = HostLost(name, "the node died")  # type: ignore[misc]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(ray_cluster, "time", made)
    return made


def test_hosts_are_told_in_the_order_in_which_they_were_asked_for(clock: Clock) -> None:
    class FirstLost(JoiningCluster):
        """The first node that is asked has just gone, and Ray does not know yet."""

        def _open(self, name: str, node: Node, connection: RayConnection) -> Placed:
            if node.number == "2":
                self.joined_s.pop(2, None)
                raise HostLost(name, "the node died")
            return super()._open(name, node, connection)

    cluster = FirstLost(clock, {2: 0.0, 3: 0.0, 4: 0.0})
    cluster.place(["h1", "h2"])
    assert [(name, placed.node.address) for name, placed in cluster.hosts.items()] == [
        ("h1", "10.0.0.4"),
        ("h2", "10.0.0.3"),
    ]


def test_a_machine_that_joins_late_is_waited_for_but_not_for_ever(clock: Clock) -> None:
    cluster = JoiningCluster(clock, {2: 0.0, 3: 19.0, 4: 30.0})
    cluster.place(["h1", "h2"])
    assert {name: placed.node.address for name, placed in cluster.hosts.items()} == {"h1": "10.0.0.2", "h2": "10.0.0.3"}
    assert clock.now == pytest.approx(19.0)
    clock.now = 0.0
    with pytest.raises(
        NoHost, match=r"has no host for h2: its nodes are 10\.0\.0\.2 \(m2\), a node is one host"
    ) as said:
        JoiningCluster(clock, {2: 0.0, 3: 60.0}).place(["h1", "h2"])
    assert said.value.exit_code == 5
    assert 20.0 <= clock.now <= 21.0


def test_agents_that_start_slowly_take_nothing_from_the_time_for_joining(clock: Clock) -> None:
    """On two CPUs that started ten agents every node was there, and no host was found."""

    class Slow(JoiningCluster):
        """Each agent takes 15 s to start."""

        def _open(self, name: str, node: Node, connection: RayConnection) -> Placed:
            self.clock.now += 15.0
            return super()._open(name, node, connection)

    cluster = Slow(clock, {2: 0.0, 3: 0.0, 4: 0.0})
    assert list(cluster.place(["h1", "h2", "h3"])) == ["h1", "h2", "h3"]
    assert clock.now == pytest.approx(45.0)


def test_a_node_that_starts_no_agent_is_replaced_or_named_with_the_reason(clock: Clock) -> None:
    class Mute(JoiningCluster):
        """No agent starts on one node."""

        def _open(self, name: str, node: Node, connection: RayConnection) -> Placed:
            if node.number == "2":
                self.clock.now += 60.0
                raise HostLost(name, "its agent did not start within 60 s")
            return super()._open(name, node, connection)

    cluster = Mute(clock, {2: 0.0, 3: 0.0})
    cluster.place(["h1"])
    assert [placed.node.address for placed in cluster.hosts.values()] == ["10.0.0.3"]
    reason = (
        r"no host for h1: .*; no agent could be started on 10\.0\.0\.2: its agent did not start within 60 s; start Ray"
    )
    with pytest.raises(NoHost, match=reason):
        Mute(clock, {2: 0.0}).place(["h1"])


def test_a_late_joiner_takes_the_name_of_a_lost_host_and_the_run_says_what_both_are(
    clock: Clock, tmp_path: Path
) -> None:
    """The page had the machine alone that the name was given to first."""
    cluster, record = JoiningCluster(clock, {2: 0.0, 3: 0.0, 4: 5.0}), run_record()
    cluster.place(["h1", "h2"])
    note_hosts(RunFolder(path=tmp_path), record, cluster)
    note_hosts(RunFolder(path=tmp_path), record, cluster)
    assert [(each.name, each.address) for each in record.hosts] == [("h1", "10.0.0.2"), ("h2", "10.0.0.3")]
    cluster.lose("h2")
    clock.now = 6.0
    cluster.place(["h1", "h2"])
    note_hosts(RunFolder(path=tmp_path), record, cluster)
    stored = RunFolder(path=tmp_path).read_run().hosts
    assert [(each.name, each.address, each.environment["cpus"]) for each in stored] == [
        ("h1", "10.0.0.2", 2),
        ("h2", "10.0.0.3", 3),
        ("h2", "10.0.0.4", 4),
    ]
    assert cluster.replaced == [{"name": "h2", "address": "10.0.0.3", "reason": "the node died"}]


def plan(text: str, *, cluster: bool = True) -> Plan:
    return expand(read_text(SUITE + text, source="c.toml", directory="."), seed=1, cluster=cluster)


def places(text: str) -> tuple[str | None, tuple[str, ...], tuple[str | None, ...]]:
    point = plan(text).points[0]
    return point.place.server, point.place.load, tuple(role.on for role in point.roles)


RELAY = '[[role]]\nname = "relay"\nkind = "forward"\ntarget = "role:server"\n'


def test_a_suite_without_places_has_a_host_for_each_part() -> None:
    assert places("") == ("h1", ("h2",), ())
    assert places(RELAY) == ("h1", ("h2",), ("h3",))


def test_generators_are_counted_and_never_on_the_servers_host() -> None:
    assert places('[place]\nload = "3 hosts"\n') == ("h1", ("h2", "h3", "h4"), ())
    assert places('[place]\nserver = "h2"\nload = "2 hosts"\n' + RELAY) == ("h2", ("h1", "h3"), ("h4",))
    assert places('[place]\nserver = "db-1"\nload = "2 hosts rack=a"\n') == ("db-1", ("rack=a", "rack=a 2"), ())
    text = '[network]\ntopology = "single,4"\n[place]\nserver = "h2"\nload = "3 hosts"\n'
    for cluster in (True, False):
        assert plan(text, cluster=cluster).points[0].place.load == ("h1", "h3", "h4")


def test_a_network_of_a_cluster_is_what_it_is() -> None:
    point = plan('[network]\ntopology = "single,3"\naddresses = 4\n').points[0]
    assert (point.network, point.addresses, point.place.load) == (None, 4, ("h2",))
    with pytest.raises(SuiteError, match=r"c.toml: \[network\] delay: links are emulated on one machine only"):
        plan('[network]\ntopology = "single,3"\ndelay = "1ms"\n')
    with pytest.raises(SuiteError, match=r"c.toml: \[network\] congestion: it is set for hosts that are namespaces"):
        plan('[network]\ntopology = "single,3"\ncongestion = "cubic"\n')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[place]\nload = "3 hosts"\n', "no network with 3 hosts"),
        ('[network]\ntopology = "single,3"\n[place]\nload = "3 hosts"\n', "beside the server's host the network has 2"),
    ],
)
def test_a_count_that_one_machine_cannot_meet_is_refused(text: str, said: str) -> None:
    with pytest.raises(SuiteError, match=said):
        plan(text, cluster=False)


def test_another_build_is_refused_with_both_named() -> None:
    theirs = {"plimsoll": "plimsoll 9.9.9 (0123456789)", "lab": "0.1.0"}
    with pytest.raises(
        LabError, match=r"h2 has another build: its plimsoll is plimsoll 9.9.9 .* here it is .*0\.0\.0-fake"
    ):
        refuse_other_build("h2", theirs, str(FAKE))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "RAY_AUTH_MODE is not set"),
        ({"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE is disabled"),
        ({"RAY_AUTH_MODE": "token"}, "RAY_AUTH_TOKEN is not set, and .*auth_token cannot be read"),
    ],
)
def test_without_a_token_no_cluster_is_joined(
    settings: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(LabError, match=said) as refused, RayCluster("ray:127.0.0.1:1", str(FAKE)):
        raise AssertionError("it was joined")
    assert refused.value.exit_code == 5


class Placing(RayCluster):
    """Gives every name a host that knows the files of any command."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def place(self, names: Sequence[str]) -> dict[str, Host]:
        """A host for each name."""

        def host(name: str) -> Host:
            def digests(argv: tuple[str, ...]) -> dict[str, str]:
                self.asked.append(argv)
                return {argv[0]: f"of {name}"}

            return cast("Host", SimpleNamespace(program_digests=digests))

        return {name: host(name) for name in names}


def test_the_programs_of_a_suite_are_digested_on_the_hosts_that_run_them() -> None:
    text = (
        SUITE.replace('model = "epoll"', 'command = ["./server", "{dir}/own.conf", "{port}"]\nready = "tcp:{port}"')
        + '[place]\nserver = "h1"\nload = "h2"\n'
        + '[[role]]\nname = "helper"\nkind = "command"\non = "h2"\ncommand = ["./helper"]\n'
    )
    cluster = Placing()
    plan = expand(read_text(text, source="c.toml", directory="/here"), seed=1, cluster=True)
    assert programs_of(plan, cluster) == {"h1:./server": "of h1", "h2:./helper": "of h2"}
    assert sorted(cluster.asked) == [("./helper",), ("./server", "/here/own.conf", "{port}")]


def test_requests_are_logged_where_a_network_is_emulated_and_the_engine_can() -> None:
    """On a cluster a suite with [network] logged each, at the generators' cost and for nothing."""
    assert with_log({}, emulated=True) == {"request_log": True}
    assert with_log({"request_log": False}, emulated=True) == {"request_log": False}
    assert with_log({"engine": "fork"}, emulated=True) == {"engine": "fork"}
    assert with_log({"rate": 9}, emulated=False) == {"rate": 9}


@pytest.mark.parametrize("emulated", [False, True])
def test_a_cluster_logs_no_requests_for_a_network_that_its_suite_describes(tmp_path: Path, *, emulated: bool) -> None:
    suite = read_text(
        'name = "it"\nquestion = "?"\n[server]\n[load]\nduration = "1s"\n[network]\ntopology = "single,3"\n'
        '[[role]]\nname = "more"\nkind = "load"\nduration = "1s"\non = "h3"\n',
        source="it.toml",
        directory="/here",
    )
    (point,) = expand(suite, seed=1).points
    with Agent() as agent:
        host = Host(agent, agent.add(ServedHost(name="h1", addresses=("127.0.0.1",), interface="lo")))
        stands_in = SimpleNamespace(network=object() if emulated else None, host=lambda _: host)
        planned = plan_generators(cast("Any", stands_in), "it", suite, point, {"server": "127.0.0.1:1"}, tmp_path)
    assert [each.name for each in planned] == ["load", "more"]
    assert ["--request-log" in " ".join(each.command) for each in planned] == [emulated, emulated]
