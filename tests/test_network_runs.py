"""Suites over emulated networks, from file to report. Each test says so where this machine lets none be made."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
BINARY = str(os.environ.get("PLIMSOLL_BIN") or ROOT / "target" / "release" / "plimsoll")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="needs root and /dev/net/tun"
)

# Ten milliseconds a link: a busy machine is late by little beside them, and few packets are late by a millisecond.
SUITE = """
name = "rack"
question = "Do its parts find each other?"
[server]
protocol = "http"
synthetic = true
workers = 1
[load]
protocol = "http"
path = "/bytes/64"
connections = 4
think = "20ms"
duration = "300ms"
threads = 1
[network]
rate = "20Mbit"
delay = "10ms"
"""
TOPOLOGIES = {
    "single": ('topology = "single,3"\naddresses = 3\n[place]\nserver = "h1"\nload = ["h2", "h3"]\n', 40_000, 2),
    "linear": ('topology = "linear,3"\n[place]\nserver = "h1"\nload = "h3"\n', 80_000, 1),
    "dumbbell": ('topology = "dumbbell,1"\n[place]\nserver = "h1"\nload = "h2"\n', 60_000, 1),
    "links": (
        '[[network.link]]\nends = ["h1", "h2"]\nreverse = { rate = "10Mbit", delay = "30ms" }\n',
        40_000,
        1,
    ),
}
SATURATOR = """
[[role]]
name = "saturator"
kind = "load"
on = "h3"
protocol = "http"
target = "role:server"
path = "/burn/1ms/1000"
connections = 1
think = "50ms"
threads = 1
measured = false
"""

Lab = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    environment = os.environ | {"PLIMSOLL_BIN": BINARY, "PYTHONPATH": str(ROOT / "lab")}

    def run(text: str, *arguments: str, verb: str = "run") -> subprocess.CompletedProcess[str]:
        (tmp_path / "rack.toml").write_text(text)
        return subprocess.run(
            [sys.executable, "-m", "plimsoll_lab", verb, "rack.toml", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    return run


def trial_of(tmp_path: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The first trial; a run that this machine was too busy for says so, and tells nothing more."""
    if done.returncode == 5 and "is not what was asked for on this machine" in done.stderr:
        pytest.skip(f"the machine was too busy for a network: {done.stderr.strip()}")
    assert (tmp_path / "runs/0001/trials/0001.json").exists(), done.stderr
    trial: dict[str, Any] = json.loads((tmp_path / "runs/0001/trials/0001.json").read_text())
    # On a busy machine the emulator or the generator may have been late, and the trial is no result. Its record tells
    # of everything all the same; a failure is none that may happen.
    assert trial["outcome"] in {"ok", "invalid", "generator_limited"}, trial["reason"]
    return trial


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_suite_runs_on_every_topology_and_tells_its_round_trip(lab: Lab, tmp_path: Path, name: str) -> None:
    network, round_trip_us, generators = TOPOLOGIES[name]
    done = lab(SUITE + network + "[run]\nrepeat = 1\nseed = 1\n", "--json")
    trial = trial_of(tmp_path, done)
    assert trial["figures"]["connections.established"] == 4
    assert trial["figures"]["response_time_us.p50"] >= round_trip_us
    assert len(trial["load"].get("generators", [0])) == generators
    summary = json.loads(done.stdout.splitlines()[-1])
    for path in summary["network"]:
        assert path["asked"]["round_trip_delay_us"] == pytest.approx(round_trip_us)
        assert path["measured"]["round_trip_us"]["min"] >= round_trip_us
        assert path["within"]
    assert len(summary["network"]) == generators
    page = (tmp_path / "runs/0001/report.html").read_text()
    for path in summary["network"]:
        assert f"{path['asked']['one_way_us'] / 1e3:.3f} ms" in page


def test_generators_start_at_one_instant_from_all_their_addresses(lab: Lab, tmp_path: Path) -> None:
    network, _, _ = TOPOLOGIES["single"]
    trial = trial_of(tmp_path, lab(SUITE + network + "[run]\nrepeat = 1\n"))
    commands = [generator["command"] for generator in trial["load"]["generators"]]
    instants = {command[command.index("--start-at") + 1] for command in commands}
    assert len(instants) == 1
    sources = [[command[at + 1] for at, word in enumerate(command) if word == "--source-ip"] for command in commands]
    assert sources == [[f"10.{place}.0.{host}" for place in range(3)] for host in (2, 3)]


def test_a_saturator_and_a_forwarder_run_where_they_are_put_and_cost_what_they_cost(lab: Lab, tmp_path: Path) -> None:
    relay = '[[role]]\nname = "relay"\nkind = "forward"\non = "h2"\ntarget = "role:server"\nworkers = 1\n'
    text = SUITE.replace("[network]", 'target = "role:relay"\n[network]')
    text += 'topology = "single,3"\n[place]\nserver = "h1"\nload = "h3"\n' + SATURATOR + relay + "[run]\nrepeat = 1\n"
    trial = trial_of(tmp_path, lab(text))
    roles = {role["name"]: role for role in trial["roles"]}
    assert (roles["relay"]["host"], roles["saturator"]["host"]) == ("h2", "h3")
    assert roles["relay"]["cpu_cores"] > 0
    assert roles["saturator"]["summary"]["requests"]["completed"] > 0
    # Through the relay each request crosses four links each way in place of two.
    assert trial["figures"]["response_time_us.p50"] >= 80_000
    # The saturator's requests are the server's, but not the figures'.
    completed = trial["load"]["summary"]["requests"]["completed"]
    assert trial["server"]["summary"]["requests"] > completed


def test_hosts_tell_what_their_tcp_and_interfaces_counted(lab: Lab, tmp_path: Path) -> None:
    network, _, _ = TOPOLOGIES["dumbbell"]
    trial = trial_of(tmp_path, lab(SUITE + network + "[run]\nrepeat = 1\n"))
    counted = trial["hosts"]["counters"]
    assert set(counted) == {"h1", "h2"}
    assert counted["h1"]["bytes_received"] > 0
    assert counted["h1"]["packets_sent"] > 0
    assert counted["h1"]["listen_overflows"] == 0
    sample = trial["hosts"]["connections"][0]
    assert (sample["host"], sample["connections"]) == ("h1", 4)
    assert sample["rtt_us_p50"] >= 60_000
    last = trial["hosts"]["timeline"][-1]
    assert last["hosts"]["h1"]["established"] >= 4
    assert last["parts"]["server"]["descriptors"] > 4
    links = trial["network"]["links"]
    assert sum(way["delivered"] for way in links) > 0
    assert {way["dropped_by_fault"] for way in links} == {0}


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_is_a_server_on_a_host(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text(
        "daemon off; worker_processes 1; pid nginx.pid; error_log stderr;\n"
        "events {}\nhttp { access_log off; server { listen 8080; location / { return 200 hello; } } }\n"
    )
    command = '[server]\ncommand = ["nginx", "-p", "{dir}", "-c", "{dir}/nginx.conf"]\nready = "tcp:8080"\n'
    start, end = SUITE.index("[server]"), SUITE.index("[load]")
    network = 'topology = "dumbbell,1"\n[place]\nserver = "h1"\nload = "h2"\n[run]\nrepeat = 1\n'
    trial = trial_of(tmp_path, lab(SUITE[:start] + command + SUITE[end:] + network))
    assert trial["server"]["ready"]["addresses"] == ["10.0.0.1:8080"]
    assert trial["figures"]["response_time_us.p50"] >= 60_000


@pytest.mark.parametrize(
    ("program", "command"),
    [
        ("curl", '["curl", "-sS", "-f", "http://{role:server}/bytes/10"]'),
        ("iperf3", '["iperf3", "-s", "-B", "{address}", "-p", "5201"]\nready = "tcp:5201"'),
    ],
)
def test_foreign_programs_are_roles(lab: Lab, tmp_path: Path, program: str, command: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    role = f'[[role]]\nname = "foreign"\nkind = "command"\non = "h2"\ncommand = {command}\n'
    network = 'topology = "dumbbell,1"\n[place]\nserver = "h1"\nload = "h2"\n' + role + "[run]\nrepeat = 1\n"
    trial = trial_of(tmp_path, lab(SUITE + network))
    (foreign,) = trial["roles"]
    assert (foreign["name"], foreign["host"]) == ("foreign", "h2")
    if program == "curl":
        assert (foreign["exit_code"], foreign["stderr_tail"]) == (0, "")
    else:
        assert foreign["ready"] == {"addresses": ["10.0.0.2:5201"]}


def test_packets_are_captured_where_the_server_is(lab: Lab, tmp_path: Path) -> None:
    network = 'topology = "dumbbell,1"\n[place]\nserver = "h1"\nload = "h2"\n[run]\nrepeat = 1\n'
    trial = trial_of(tmp_path, lab("capture = true\n" + SUITE + network))
    (capture,) = trial["hosts"]["captures"]
    assert (capture["host"], capture["interface"], capture["file"]) == ("h1", "h1-eth0", "0001.pcapng")
    summary = capture["summary"]
    # Each client's address and port, and the server's.
    assert summary["endpoints"] == 4 + 1
    assert summary["packets"] > 0
    assert summary["tcp"]["unanswered_syn"] == 0
    file = tmp_path / "runs/0001/captures/0001.pcapng"
    if shutil.which("tshark") is not None:
        shown = subprocess.run(["tshark", "-r", str(file)], capture_output=True, text=True, check=True, timeout=60)
        assert len(shown.stdout.splitlines()) == summary["packets"]


def test_a_role_that_fails_fails_the_trial(lab: Lab, tmp_path: Path) -> None:
    role = '[[role]]\nname = "broken"\nkind = "command"\ncommand = ["sh", "-c", "echo no luck >&2; exit 3"]\n'
    text = SUITE.partition("[network]")[0] + role + "[run]\nrepeat = 1\n"
    lab(text)
    trial = json.loads((tmp_path / "runs/0001/trials/0001.json").read_text())
    assert trial["outcome"] == "failed"
    assert "the role broken ended during the trial: exit code 3, saying: no luck" in trial["reason"]
