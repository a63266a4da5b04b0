"""Suites over emulated networks, from file to report. Each test says so where this machine lets
none be made.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from laboratory import BINARY, needs_networks, run_lab, run_trial

pytestmark = needs_networks

# Without a rate or a delay there is nothing that a busy machine could miss.
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
duration = "500ms"
threads = 1
[network]
"""
SLOW = SUITE + 'rate = "20Mbit"\ndelay = "10ms"\n'
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

PAIR = 'topology = "dumbbell,1"\n[place]\nserver = "h1"\nload = "h2"\n'
ONCE = "[run]\nrepeat = 1\nseed = 1\n"
PATIENT = ONCE + 'ready_timeout = "60s"\n'


@pytest.mark.measures
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_a_suite_runs_on_every_topology_and_tells_its_round_trip(tmp_path: Path, name: str) -> None:
    network, round_trip_us, generators = TOPOLOGIES[name]
    measured = run_trial(tmp_path, SLOW + network + ONCE, "--json")
    trial = measured.trial
    assert trial["figures"]["connections.established"] == 4
    assert trial["figures"]["response_time_us.p50"] >= round_trip_us
    assert len(trial["load"].get("generators", [0])) == generators
    summary = json.loads(measured.done.stdout.splitlines()[-1])
    for path in summary["network"]:
        assert path["asked"]["round_trip_delay_us"] == pytest.approx(round_trip_us)
        assert path["measured"]["round_trip_us"]["min"] >= round_trip_us
        assert path["within"]
    assert len(summary["network"]) == generators
    page = (measured.folder / "report.html").read_text()
    for path in summary["network"]:
        assert f"{path['asked']['one_way_us'] / 1e3:.3f} ms" in page


@pytest.mark.measures
def test_a_suite_without_a_network_runs_over_a_path_of_one_line(tmp_path: Path) -> None:
    bare = SUITE.partition("[network]")[0] + ONCE
    measured = run_trial(tmp_path, bare, "--rtt", "60ms", "--loss", "0.1%", "--json")
    assert measured.trial["figures"]["response_time_us.p50"] >= 60_000
    summary = json.loads(measured.done.stdout.splitlines()[-1])
    assert [path["asked"]["round_trip_delay_us"] for path in summary["network"]] == [pytest.approx(60_000)]
    assert "--rtt 60ms --loss 0.1%" in summary["command"]


@pytest.mark.measures
def test_generators_start_at_one_instant_from_all_their_addresses(tmp_path: Path) -> None:
    network, _, _ = TOPOLOGIES["single"]
    trial = run_trial(tmp_path, SUITE + network + ONCE).trial
    commands = [generator["command"] for generator in trial["load"]["generators"]]
    instants = {command[command.index("--start-at") + 1] for command in commands}
    assert len(instants) == 1
    sources = [[command[at + 1] for at, word in enumerate(command) if word == "--source-ip"] for command in commands]
    assert sources == [[f"10.{place}.0.{host}" for place in range(3)] for host in (2, 3)]


def test_a_saturator_and_a_forwarder_run_where_they_are_put_and_cost_what_they_cost(tmp_path: Path) -> None:
    relay = '[[role]]\nname = "relay"\nkind = "forward"\non = "h2"\ntarget = "role:server"\nworkers = 1\n'
    text = SUITE.replace("[network]", 'target = "role:relay"\n[network]')
    text += 'topology = "single,3"\naddresses = 2\ncongestion = "cubic"\n'
    text += '[place]\nserver = "h1"\nload = "h3"\n' + SATURATOR + relay + ONCE
    measured = run_trial(tmp_path, text)
    trial = measured.trial
    roles = {role["name"]: role for role in trial["roles"]}
    assert (roles["relay"]["host"], roles["saturator"]["host"]) == ("h2", "h3")
    words = roles["relay"]["command"]
    assert [words[at + 1] for at, word in enumerate(words) if word == "--source-ip"] == ["10.0.0.2", "10.1.0.2"]
    assert roles["relay"]["cpu_cores"] > 0
    assert roles["saturator"]["summary"]["requests"]["completed"] > 0
    assert roles["relay"]["summary"]["bytes_down"] > 0
    (calibration,) = json.loads((measured.folder / "run.json").read_text())["calibrations"]
    events = [json.loads(line)["event"] for line in (measured.folder / "events.jsonl").read_text().splitlines()]
    assert events[:3] == ["run", "paths", "trial_started"], "nothing was said while the paths were measured"
    assert calibration["congestion"] == {"h1": "cubic", "h2": "cubic", "h3": "cubic"}
    assert "Congestion control of TCP: cubic." in (measured.folder / "report.html").read_text()
    # The saturator's requests are the server's, but not the figures'.
    completed = trial["load"]["summary"]["requests"]["completed"]
    assert trial["server"]["summary"]["requests"] > completed


def test_hosts_tell_what_their_tcp_and_interfaces_counted(tmp_path: Path) -> None:
    # By the end of a warm-up every handshake has reached the server too, and the first reading sees
    # all of them. The window is longer than the laboratory may be kept from its CPU.
    text = SUITE.replace('"500ms"', '"4s"') + PAIR + ONCE + 'warm_up = "500ms"\n'
    trial = run_trial(tmp_path, text).trial
    counted = trial["hosts"]["counters"]
    assert set(counted) == {"h1", "h2"}
    assert counted["h1"]["bytes_received"] > 0
    assert counted["h1"]["packets_sent"] > 0
    assert counted["h1"]["listen_overflows"] == 0
    # As the window closes the generator closes its connections: the laboratory may come to its last
    # reading late.
    sample = max(trial["hosts"]["connections"], key=lambda each: each["connections"])
    assert (sample["host"], sample["connections"]) == ("h1", 4)
    assert sample["rtt_us_p50"] > 0
    timeline = trial["hosts"]["timeline"]
    assert max(each["hosts"]["h1"]["established"] for each in timeline) >= 4
    # Not every row has them: they are read so much the more seldom the busier the machine is.
    assert max(each["parts"]["server"].get("descriptors", 0) for each in timeline) > 4
    links = trial["network"]["links"]
    assert sum(way["delivered"] for way in links) > 0
    assert {way["dropped_by_fault"] for way in links} == {0}


def test_the_kernel_carries_what_no_link_shapes_and_counts_it(tmp_path: Path) -> None:
    done = subprocess.run(
        ["unshare", "--net", "ip", "link", "add", "name", "b", "type", "bridge"], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("this kernel has no bridges")
    # With the pauses: two counts of some milliseconds may miss one another on a busy machine.
    text = SUITE.replace('duration = "500ms"', "each = 25")
    network = 'backend = "kernel"\ntopology = "single,3"\n[place]\nserver = "h1"\nload = ["h2", "h3"]\n'
    trial = run_trial(tmp_path, text + network + ONCE).trial
    assert trial["server"]["summary"]["requests"] == trial["figures"]["requests.completed"] == 100
    ways = {(way["from"], way["to"]): way for way in trial["network"]["links"]}
    assert len(ways) == 6
    for way in ways.values():
        assert way["offered"] == way["delivered"] > 0
        assert way["dropped"] == way["dropped_by_fault"] == 0
    # All that comes to the server's host has left the generators': no switch speaks for itself.
    to_server, from_server = ways["s1", "h1-eth0"], ways["h1-eth0", "s1"]
    assert from_server["delivered_bytes"] >= 100 * 64
    assert to_server["offered"] <= ways["h2-eth0", "s1"]["offered"] + ways["h3-eth0", "s1"]["offered"]


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed")
def test_nginx_is_a_server_on_a_host(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text(
        "daemon off; worker_processes 1; pid nginx.pid; error_log stderr;\n"
        "events {}\nhttp { access_log off; server { listen 8080; location / { return 200 hello; } } }\n"
    )
    command = '[server]\ncommand = ["nginx", "-p", "{dir}", "-c", "{dir}/nginx.conf"]\nready = "tcp:8080"\n'
    start, end = SUITE.index("[server]"), SUITE.index("[load]")
    trial = run_trial(tmp_path, SUITE[:start] + command + SUITE[end:] + PAIR + ONCE).trial
    assert trial["server"]["ready"]["addresses"] == ["10.0.0.1:8080"]
    assert trial["figures"]["requests.completed"] > 0


def role(name: str, on: str, *command: str) -> str:
    """A command that others wait for until its port answers."""
    words = json.dumps(command)
    return f'[[role]]\nname = "{name}"\nkind = "command"\non = "{on}"\ncommand = {words}\nready = "tcp:5201"\n'


# The trial waits for the port that a program opens once its work is done: so it has been, before
# anything ends.
THEN_READY = f"exec {BINARY} serve echo --listen {{address}}:5201"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_curl_fetches_across_the_network(tmp_path: Path) -> None:
    fetch = "curl -sS -f http://{role:server}/bytes/1000 -o {dir}/fetched && " + THEN_READY
    trial = run_trial(tmp_path, SUITE + PAIR + role("curl", "h2", "sh", "-c", fetch) + PATIENT).trial
    (curl,) = trial["roles"]
    assert (curl["name"], curl["host"], curl["ready"]) == ("curl", "h2", {"addresses": ["10.0.0.2:5201"]})
    assert (tmp_path / "fetched").stat().st_size == 1000


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
def test_iperf3_sends_from_one_host_to_another(tmp_path: Path) -> None:
    # It refuses while it is still busy with the connection that tried its port.
    send = "at={role:sink}; until iperf3 -c ${at%:*} -p ${at#*:} -n 100K -J > {dir}/sent; do sleep 0.1; done; "
    roles = role("sink", "h1", "iperf3", "-s", "-B", "{address}", "-p", "5201")
    roles += role("source", "h2", "sh", "-c", send + THEN_READY)
    trial = run_trial(tmp_path, SUITE + PAIR + roles + PATIENT).trial
    assert [(each["name"], each["host"]) for each in trial["roles"]] == [("sink", "h1"), ("source", "h2")]
    sent = json.loads((tmp_path / "sent").read_text())["end"]["streams"][0]["sender"]
    assert sent["bytes"] >= 100 * 1024


def test_packets_are_captured_where_the_server_is(tmp_path: Path) -> None:
    measured = run_trial(tmp_path, "capture = true\n" + SUITE + PAIR + ONCE)
    trial = measured.trial
    (capture,) = trial["hosts"]["captures"]
    assert (capture["host"], capture["interface"], capture["file"]) == ("h1", "h1-eth0", "0001.pcapng")
    summary = capture["summary"]
    # Each client's address and port, and the server's.
    assert summary["endpoints"] == 4 + 1
    assert summary["packets"] > 0
    assert summary["tcp"]["unanswered_syn"] == 0
    file = measured.folder / "captures/0001.pcapng"
    if shutil.which("tshark") is not None:
        shown = subprocess.run(["tshark", "-r", str(file)], capture_output=True, text=True, check=True, timeout=300)
        assert len(shown.stdout.splitlines()) == summary["packets"]


def test_a_role_that_fails_fails_the_trial(tmp_path: Path) -> None:
    role = '[[role]]\nname = "broken"\nkind = "command"\ncommand = ["sh", "-c", "echo no luck >&2; exit 3"]\n'
    (tmp_path / "suite.toml").write_text(SUITE.partition("[network]")[0] + role + ONCE)
    run_lab(tmp_path, "run", "suite.toml")
    trial = json.loads((tmp_path / "runs/0001/trials/0001.json").read_text())
    assert trial["outcome"] == "failed"
    assert "the role broken ended during the trial: exit code 3, saying: no luck" in trial["reason"]
