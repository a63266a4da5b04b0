"""Hosts in network namespaces with the real emulator between them. Needs root; without, each test
says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from laboratory import BINARY, ROOT, environment, holders, living, needs_networks, wait_until
from plimsoll_lab.hosts.host import Host, Process
from plimsoll_lab.hosts.link_rate import RATES, measure_kept_rate
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.netns import AVAILABLE, COPIED, Network, open_network
from plimsoll_lab.problem import LabError
from plimsoll_lab.suite.topology import read_topology

pytestmark = needs_networks

# Ten milliseconds a link: what a busy machine adds to the fastest of many requests is little beside
# them.
SINGLE = read_topology("single,3", {"rate": "100Mbit", "delay": "10ms"}, addresses=2)

DEFAULT_CONTROL = "/proc/sys/net/ipv4/tcp_congestion_control"

KILLED = """
import sys
from plimsoll_lab.hosts.local import LocalHost
sys.path[:0] = {folders!r}
from test_netns import open_single
with LocalHost() as local, open_single(local) as network:
    print(*network.pids, flush=True)
    sys.stdin.read()
"""
"""A lab that makes a network and waits to be killed."""
BESIDE_A_HOST = """
import json, sys
from plimsoll_lab.hosts.local import LocalHost
sys.path[:0] = {folders!r}
from test_netns import lines_of, open_single
from plimsoll_lab.hosts.netns import COPIED
with LocalHost() as local, open_single(local) as network:
    for host in (local, network.hosts["h1"]):
        print(json.dumps(lines_of(host, "cat", *COPIED)))
"""
"""A lab that prints its own kernel settings and those of a host."""


def open_single(local: LocalHost) -> AbstractContextManager[Network]:
    addresses = {host: SINGLE.addresses_of(host) for host in SINGLE.hosts}
    return open_network(local, BINARY, SINGLE.link_config(seed=1), addresses)


@pytest.fixture
def local() -> Iterator[LocalHost]:
    with LocalHost() as host:
        yield host


def event(host: Host, process: Process, kind: str) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        ended = process.exit_code() is not None
        for line in process.take_lines():
            found: dict[str, Any] = json.loads(line)
            if found.get("event") == kind:
                return found
        assert not ended, process.stderr_tail()
        host.wait([process], 1.0)
    raise AssertionError(f"no {kind}: {process.stderr_tail()}")


def load_across(network: Network, listen: str) -> dict[str, Any]:
    """Load a server on h1 from h3, and return the summary."""
    server_host, load_host = network.hosts["h1"], network.hosts["h3"]
    address = f"{listen}:{server_host.free_port()}"
    serve = [BINARY, "serve", "echo", "--listen", address, "--workers", "1", "--json"]
    with server_host.start(serve, role="server", metered=True) as server:
        assert event(server_host, server, "ready")["addresses"] == [address]
        load = [BINARY, "load", "echo", address, "-c", "2", "-n", "20", "--json", "--quiet"]
        with load_host.start(load, role="load", metered=False) as process:
            return event(load_host, process, "summary")


def test_a_round_trip_between_hosts_takes_four_link_delays_to_each_of_the_addresses(local: LocalHost) -> None:
    with open_single(local) as network:
        for listen in SINGLE.addresses_of("h1"):
            # The fastest of all: a busy machine may delay any one, or all for a while, but hurries
            # none. A fifth delay would make it fifty milliseconds.
            assert any(fastest_us(network, listen) < 50_000 for _ in range(20))


def fastest_us(network: Network, listen: str) -> float:
    summary = load_across(network, listen)
    assert summary["requests"]["completed"] == 20
    fastest = float(summary["response_time_us"]["min"])
    assert fastest >= 40_000
    return fastest


def test_two_networks_at_once_do_not_collide(local: LocalHost) -> None:
    with open_single(local) as one, open_single(local) as other:
        assert load_across(one, "10.0.0.1")["requests"]["completed"] == 20
        assert load_across(other, "10.0.0.1")["requests"]["completed"] == 20


def test_connections_of_all_hosts_use_the_congestion_control_that_is_asked_for(local: LocalHost) -> None:
    available = Path(AVAILABLE).read_text().split()
    asked = next(each for each in available if each != Path(DEFAULT_CONTROL).read_text().strip())
    addresses = {host: SINGLE.addresses_of(host) for host in SINGLE.hosts}
    with open_network(local, BINARY, SINGLE.link_config(seed=1), addresses, congestion=asked) as network:
        own, other = network.hosts["h1"], network.hosts["h3"]
        for listen in SINGLE.addresses_of("h1"):
            address = f"{listen}:{own.free_port()}"
            serve = [BINARY, "serve", "echo", "--listen", address, "--workers", "1", "--json"]
            load = [BINARY, "load", "echo", address, "-c", "2", "-d", "24h", "--think", "10ms", "--json", "--quiet"]
            with own.start(serve, role="server", metered=False) as server:
                event(own, server, "ready")
                with (
                    other.start(load, role="load", metered=False) as across,
                    own.start(load, role="load", metered=False) as within,
                ):
                    event(other, across, "window_opened")
                    event(own, within, "window_opened")
                    # Two ends there and four ends here: the server's, and those within the host.
                    for host, ends in ((other, 2), (own, 6)):
                        lines = controls_of(host, address)
                        assert len(lines) == ends, lines
                        assert all(asked in line.split() for line in lines), lines


def controls_of(host: Host, address: str) -> list[str]:
    """What ss(8) says of each established connection's inside, of those with an address."""
    words = ["ss", "-Htni", "state", "established", "src", address, "or", "dst", address]
    return [line for line in lines_of(host, *words) if "cwnd:" in line]


def lines_of(host: Host, *command: str) -> list[str]:
    """What a command on a host prints."""
    with host.start(command, role="shown", metered=False) as process:
        lines = []
        while process.exit_code() is None:
            host.wait([process], 1.0)
            lines += process.take_lines()
        return lines + process.take_lines()


def test_a_host_has_the_ports_and_queues_of_the_machine() -> None:
    """It had the kernel's defaults, and run.json said the machine's."""
    # A network namespace with settings of its own stands for a machine that has been tuned.
    tuned = "; ".join(f"echo {value} > {path}" for value, path in zip(("20000 30000", 777, 888), COPIED, strict=True))
    source = BESIDE_A_HOST.format(folders=[str(ROOT / "tests"), str(ROOT / "lab" / "tests")])
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", f'{tuned}; exec "$0" "$@"', sys.executable, "-c", source],
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    machine, host = (json.loads(line) for line in done.stdout.splitlines())
    assert machine == host
    assert machine[0].split() == ["20000", "30000"]


def test_a_congestion_control_that_the_kernel_lacks_is_refused_with_those_that_it_has(local: LocalHost) -> None:
    config, addresses = SINGLE.link_config(seed=1), {"h1": SINGLE.addresses_of("h1")}
    with (
        pytest.raises(LabError, match=r"this kernel has no nosuch, it has .*modprobe tcp_nosuch") as refusal,
        open_network(local, BINARY, config, addresses, congestion="nosuch"),
    ):
        raise AssertionError("it was accepted")
    assert refusal.value.exit_code == 5


def test_a_free_port_is_one_that_nobody_on_that_host_listens_on(local: LocalHost) -> None:
    with open_single(local) as network:
        host = network.hosts["h1"]
        first = host.free_port()
        serve = [BINARY, "serve", "echo", "--listen", f"10.0.0.1:{first + 1}", "--json"]
        with host.start(serve, role="server", metered=False) as server:
            event(host, server, "ready")
            assert host.free_port() == first + 2


def test_a_free_port_is_none_of_a_connection_either(local: LocalHost) -> None:
    """A machine may give connections the ports that servers are given."""
    with open_single(local) as network:
        host = network.hosts["h1"]
        first = host.free_port()
        source = (
            "import json, socket, time\n"
            "server = socket.create_server(('10.0.0.1', 0))\n"
            f"client = socket.create_connection(server.getsockname(), source_address=('10.0.0.1', {first + 1}))\n"
            "print(json.dumps({'event': 'connected'}), flush=True)\n"
            "time.sleep(600)\n"
        )
        with host.start([sys.executable, "-c", source], role="client", metered=False) as client:
            event(host, client, "connected")
            assert host.free_port() == first + 2


def test_the_emulators_packet_rate_is_measured(local: LocalHost) -> None:
    found = measure_kept_rate(local, BINARY)
    # How much it is depends on the machine, and on what else it does.
    assert 0 <= found.per_s < 2 * RATES[-1]
    assert found.per_s or not found.by_sender


def test_a_broken_configuration_is_told_as_the_emulator_tells_it(local: LocalHost) -> None:
    config = SINGLE.link_config(seed=1) | {"late": "1ms"}
    with pytest.raises(LabError, match="unknown field `late`"), open_network(local, BINARY, config, {}):
        raise AssertionError("it was accepted")


def test_nothing_is_left_when_the_network_closes(local: LocalHost) -> None:
    with open_single(local) as network:
        held = holders(list(network.pids))
        assert {pid for pid, _ in held} == set(network.pids)
    assert not living(held)


def test_nothing_is_left_when_the_lab_is_killed(tmp_path: Path) -> None:
    source = KILLED.format(folders=[str(ROOT / "tests"), str(ROOT / "lab" / "tests")])
    with subprocess.Popen(
        [sys.executable, "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment() | {"TMPDIR": str(tmp_path)},
    ) as lab:
        assert lab.stdout is not None
        inside = [int(word) for word in lab.stdout.readline().split()]
        held = holders(inside)
        assert {pid for pid, _ in held} == set(inside)
        lab.kill()
    wait_until(lambda: not living(held), "a namespace is left")
    wait_until(lambda: not list(tmp_path.iterdir()), "a folder is left")


def test_a_kernel_without_netem_refuses_and_names_it(tmp_path: Path) -> None:
    (tmp_path / "links.json").write_text(json.dumps(SINGLE.link_config(seed=1)))
    link = [BINARY, "link", "--backend", "kernel", "--config", str(tmp_path / "links.json"), "--json"]
    has = subprocess.run(
        ["unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1us"],
        capture_output=True,
        check=False,
    )
    if has.returncode == 0:
        pytest.skip("this kernel has netem")
    done = subprocess.run(["unshare", "--net", *link], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 5
    assert "--backend kernel needs what is missing here: netem (module sch_netem)" in done.stderr
