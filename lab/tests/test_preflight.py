"""What a machine is said to have for a suite: each check in one of three words, with figures and
the fix.
"""

from __future__ import annotations

import json
import os
import re
import resource
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from plimsoll_lab.cli import machine_checks
from plimsoll_lab.experiment.plan_summary import describe_plan
from plimsoll_lab.hosts import privilege
from plimsoll_lab.hosts.samplers import environment
from plimsoll_lab.problem import LabError
from plimsoll_lab.report.plan import render_plan
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import Plan

if TYPE_CHECKING:
    from conftest import Lab

SUITE = 'name = "it"\nquestion = "?"\n[server]\n[load]\nduration = "1s"\nconnections = {connections}\n{rest}'
GATE = (
    "[run]\nrepeat = {repeat}\n"
    '[contender.old]\nmodel = "epoll"\n[contender.new]\nmodel = "poll"\n'
    '[verdict]\nbaseline = "old"\ntolerance = "{tolerance}"\n'
)
NETWORK = '[network]\ntopology = "single,2"\nbackend = "{backend}"\naddresses = {addresses}\n'


def plan(connections: int = 10, rest: str = "") -> Plan:
    return expand(read_text(SUITE.format(connections=connections, rest=rest), source="it.toml", directory="."), seed=1)


def findings(of: Plan | None) -> dict[str, machine_checks.Finding]:
    return {each.check: each for each in machine_checks.preflight(of)}


def test_every_check_is_there_with_a_message_and_a_fix_where_one_is_due() -> None:
    found = findings(plan())
    expected = {
        *("descriptors", "ports", "somaxconn", "threads and pids", "memory", "privileges", "tun", "programs", "qdiscs"),
        *("CPU governor", "clock source", "steal", "other load"),
    }
    assert set(found) == expected
    for each in found.values():
        assert each.message
        assert (each.level == "ok") or each.fix, each


def test_without_a_suite_nothing_is_said_to_be_needed() -> None:
    """It said that "0 connections need one each at each end" and "take about 0.00 GiB"."""
    found = findings(None)
    said = {name: found[name].message for name in ("descriptors", "threads and pids", "memory")}
    assert not [message for message in said.values() if " and " in message.replace("threads and processes", "")], said


@pytest.mark.parametrize(
    ("forked", "threaded", "level", "limit", "need"),
    [
        # 65,530 mappings are enough for 15,870 threads of one process.
        (20_000, 100, "ok", "kernel.pid_max", "20,000"),
        (100, 20_000, "warn", "vm.max_map_count, of which each takes four", "20,000"),
        (40_000, 15_000, "warn", "kernel.pid_max", "40,000"),
    ],
)
def test_processes_of_fork_do_not_share_the_mappings_of_one(
    monkeypatch: pytest.MonkeyPatch, forked: int, threaded: int, level: str, limit: str, need: str
) -> None:
    """Of 20,000 processes it was said that there can be 15,870, as threads were asked for too."""
    told = {"pid_max": "32768", "threads-max": "100000", "max_map_count": "65530"}
    monkeypatch.setattr(machine_checks, "_read", lambda path, default: told.get(path.rpartition("/")[2], default))
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    rows = "".join(
        f'[[point]]\n"server.model" = "{model}"\n"load.connections" = {count}\n'
        for model, count in (("fork", forked), ("threads", threaded))
    )
    found = findings(plan(rest=rows))["threads and pids"]
    assert found.level == level
    assert f"({limit}), and {need} are needed: one for each connection" in found.message


def test_threads_of_a_server_and_of_its_generator_are_tasks_of_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each of 15,000 connections both ends have one, and no mapping of the other."""
    told = {"pid_max": "20000", "threads-max": "100000", "max_map_count": "65530"}
    monkeypatch.setattr(machine_checks, "_read", lambda path, default: told.get(path.rpartition("/")[2], default))
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    rows = '[[point]]\n"server.model" = "threads"\n"load.engine" = "threads"\n"load.connections" = 15_000\n'
    found = findings(plan(rest=rows))["threads and pids"]
    assert found.level == "warn"
    assert "(kernel.pid_max), and 30,000 are needed: one for each connection" in found.message


COMMAND = 'command = ["true"]\nready = "tcp:80"\n'


@pytest.mark.parametrize(
    ("connections", "server", "level", "said"),
    [
        (19_000, "", "ok", "19,000 connections need one each at each end"),
        (60_000, "", "ok", "ours use several tables"),
        (60_000, COMMAND, "warn", "60,000 of them at a server that may have no more"),
    ],
)
def test_a_plan_says_of_descriptors_what_the_preflight_says(
    monkeypatch: pytest.MonkeyPatch, connections: int, server: str, level: str, said: str
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 20_000))
    text = SUITE.format(connections=connections, rest="").replace("[server]\n", "[server]\n" + server)
    asked = expand(read_text(text, source="it.toml", directory="."), seed=1)
    found = findings(asked)["descriptors"]
    assert found.level == level
    assert said in found.message
    warned = [each for each in describe_plan(asked).warnings if each.code == "machine_lacks"]
    assert [(each.message, each.remedy) for each in warned] == ([(found.message, found.fix)] if found.fix else [])


@pytest.mark.parametrize(
    ("repeat", "tolerance", "warned"), [(6, "1%", True), (12, "5%", False), (5, "50%", True), (200, "1%", False)]
)
def test_a_plan_of_a_gate_says_where_it_could_decide_nothing(*, repeat: int, tolerance: str, warned: bool) -> None:
    """It spoke of differences that it shows, and a gate has to show that there is none."""
    asked = plan(rest=GATE.format(repeat=repeat, tolerance=tolerance))
    # Of five nothing can be said at all; of more, most gates decide nothing.
    code = ["too_few_repetitions" if repeat < 6 else "gate_often_undecided"]
    assert [each.code for each in describe_plan(asked).warnings] == (code if warned else [])


def test_more_connections_than_the_machine_has_descriptors_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_text", lambda _path: "100000")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = findings(plan(60_000))["descriptors"]
    assert found.level == "refuse"
    assert "120,000 in all, where the machine has 100,000 (fs.file-max)" in found.message
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert findings(plan(60_000))["descriptors"].level == "ok", "what is privileged goes past it"


def test_cpus_that_there_are_not_are_refused() -> None:
    own = min(os.sched_getaffinity(0))
    here, far = (
        findings(plan(rest=f'[place]\ncpus = {{ server = "{own}", load = "{cpu}" }}\n')) for cpu in (own, 8191)
    )
    assert here["CPUs"].level == "ok"
    assert (far["CPUs"].level, far["CPUs"].fix) == ("refuse", "correct [place] cpus, or take it out")
    assert f"CPUs {own}, 8191, and this machine gives {own}" in far["CPUs"].message


def test_the_load_of_the_machine_is_held_against_all_of_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 it was called busy where the laboratory may use two."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    for load, level in ((3.0, "ok"), (60.0, "warn")):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, load, load))
        found = findings(None)["other load"]
        assert (found.level, found.message) == (level, f"a load average of {load:.2f} on 64 CPUs")


def test_more_connections_than_ports_are_refused_with_the_addresses_that_would_do() -> None:
    found = findings(plan(100_000, NETWORK.format(backend="tap", addresses=2)))["ports"]
    assert found.level == "refuse"
    assert "addresses = 8" in found.fix
    assert findings(plan(100_000, NETWORK.format(backend="tap", addresses=8)))["ports"].level == "ok"


def test_ports_are_counted_at_the_point_that_asks_most() -> None:
    rest = NETWORK.format(backend="tap", addresses=2) + '[matrix]\n"load.connections" = [100, 100_000]\n'
    assert findings(plan(1, rest))["ports"].level == "refuse"


RELAYED = """
[[role]]
name = "haproxy"
kind = "command"
command = ["haproxy"]
active = "when named"
ready = "tcp:{port}"
[matrix]
"load.target" = ["role:server", "role:haproxy"]
"""


def test_a_relay_of_others_needs_two_descriptors_a_connection_and_is_told_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (1024, 20_000))
    few = SUITE.format(connections=9_000, rest=RELAYED.replace("{port}", "7777"))
    many = SUITE.format(connections=60_000, rest=RELAYED.replace("{port}", "7777"))
    plans = [expand(read_text(text, source="it.toml", directory="."), seed=1) for text in (few, many)]
    assert "descriptors of haproxy" not in findings(plans[0])
    found = findings(plans[1])["descriptors of haproxy"]
    assert found.level == "warn"
    assert "120,064" in found.message
    assert "20,000 (ulimit -Hn)" in found.message
    assert "start 7 processes that share its port, or raise the hard limit to 120,064" in found.fix


def test_a_relay_of_others_has_an_address_for_so_many_connections_to_a_server_and_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(machine_checks, "_ports_of_an_address", lambda: 28_232)
    rest = RELAYED.replace("{port}", "7777")
    fits, over = (
        expand(read_text(SUITE.format(connections=each, rest=rest), source="it.toml", directory="."), seed=1)
        for each in (28_232, 60_000)
    )
    assert "ports of haproxy" not in findings(fits)
    found = findings(over)["ports of haproxy"]
    assert found.level == "warn"
    assert "60,000 connections to one server, and an address has 28,232 ports" in found.message
    assert "take turns with 5 addresses" in found.fix


def test_memory_that_is_not_there_is_refused() -> None:
    assert findings(plan(2_000_000_000))["memory"].level == "refuse"


def test_few_connections_are_not_said_to_take_nothing() -> None:
    """It said "about 0.00 GiB" of 64 connections, and of any number below 450."""
    assert findings(plan(64))["memory"].message.endswith("and the connections take about 1 MiB")
    assert findings(plan(100_000, 'engine = "threads"\n'))["memory"].message.endswith("about 4.9 GiB")


def test_what_the_loads_beside_the_measured_one_need_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a saturator's 30,000 connections nothing was said, nor of its threads."""
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 20, 1 << 20))
    role = '[[role]]\nname = "saturator"\nkind = "load"\nmeasured = false\nconnections = 30000\nengine = "threads"\n'
    found = findings(plan(10, role))
    assert "30,010 connections need one each" in found["descriptors"].message
    assert "for 30,010 are opened" in found["somaxconn"].fix
    assert "30,000 are needed" in found["threads and pids"].message
    assert found["memory"].message.endswith("about 1.5 GiB")


def test_threads_of_the_generator_take_memory_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 15,000 threads of the generator nothing was counted; they take about half a GB."""
    monkeypatch.setattr(machine_checks, "read_memory", lambda: 500 << 20)
    rows = '[[point]]\n"load.engine" = "{}"\n"load.connections" = 15_000\n'
    levels = [findings(plan(rest=rows.format(engine)))["memory"].level for engine in ("epoll", "threads")]
    assert levels == ["ok", "refuse"]


def test_processes_of_the_generator_take_memory_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 5,000 processes of the generator 5 MB were counted; they take 2.5 GB."""
    monkeypatch.setattr(machine_checks, "read_memory", lambda: 2 << 30)
    rows = '[[point]]\n"load.engine" = "{}"\n"load.connections" = 5_000\n'
    levels = [findings(plan(rest=rows.format(engine)))["memory"].level for engine in ("epoll", "threads", "fork")]
    assert levels == ["ok", "ok", "refuse"]


def test_without_rights_a_network_is_refused_and_a_local_suite_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "may_make_networks", lambda: False)
    monkeypatch.setattr(machine_checks, "_succeeds", lambda _command: False)
    network = findings(plan(10, NETWORK.format(backend="kernel", addresses=1) + 'delay = "1ms"\n'))
    assert network["privileges"].level == network["qdiscs"].level == "refuse"
    assert "run as root" in network["privileges"].fix
    local = findings(plan())
    assert local["privileges"].level == "warn"
    assert "refuse" not in {each.level for each in local.values()}


def test_a_network_of_the_kernels_needs_its_bridges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_checks, "_succeeds", lambda command: "bridge" not in command)
    asked = findings(plan(10, NETWORK.format(backend="kernel", addresses=1)))["bridges"]
    assert (asked.level, asked.message) == ("refuse", "the kernel has no bridges")
    assert "bridges" not in findings(plan(10, NETWORK.format(backend="tap", addresses=1)))
    monkeypatch.setattr(machine_checks, "_succeeds", lambda _command: True)
    assert findings(plan(10, NETWORK.format(backend="kernel", addresses=1)))["bridges"].level == "ok"


def test_a_congestion_control_that_the_kernel_lacks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = plan(10, NETWORK.format(backend="tap", addresses=1) + 'congestion = "vegas"\n')
    monkeypatch.setattr(machine_checks, "_succeeds", lambda command: "vegas" not in command[-1])
    found = findings(asked)["congestion control"]
    assert (found.level, found.fix) == ("refuse", "modprobe tcp_vegas, or name another as [network] congestion")
    assert "the kernel has no vegas for the hosts of the network, it has " in found.message
    monkeypatch.setattr(machine_checks, "_succeeds", lambda _command: True)
    assert findings(asked)["congestion control"].level == "ok"
    assert "congestion control" not in findings(plan(10, NETWORK.format(backend="tap", addresses=1)))


def test_only_the_emulator_over_tap_needs_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine_checks, "TUN", tmp_path / "tun")
    monkeypatch.setattr(privilege, "TUN", tmp_path / "tun")
    for backend, level in (("tap", "refuse"), ("kernel", "warn"), ("netem", "warn")):
        assert findings(plan(10, NETWORK.format(backend=backend, addresses=1)))["tun"].level == level
    with pytest.raises(
        LabError, match=r'tun, which is missing: load the kernel module tun. Without it, write backend = "kernel"'
    ):
        privilege.gain_networks(over_tap=True)
    monkeypatch.setattr(privilege, "may_make_networks", lambda: True)
    assert privilege.gain_networks(over_tap=False) == "root"


def test_the_program_says_it_and_changes_nothing(lab: Lab, suite_file: Path) -> None:
    before = sorted(suite_file.parent.iterdir())
    done = lab("preflight", suite_file.name, "--json")
    told = json.loads(done.stdout)
    assert told["event"] == "preflight"
    assert done.returncode == (5 if told["level"] == "refuse" else 0)
    assert sorted(suite_file.parent.iterdir()) == before
    assert "descriptors" in lab("preflight").stdout


def test_a_program_that_the_suite_starts_and_the_machine_lacks_is_told_before() -> None:
    """`plan` and `preflight` said nothing of it, and the run failed."""
    text = SUITE.format(connections=10, rest="").replace(
        "[server]\n", '[server]\ncommand = ["no-such-server", "{{port}}"]\n'.replace("{{", "{").replace("}}", "}")
    )
    asked = expand(read_text(text, source="it.toml", directory="."), seed=1)
    found = findings(asked)["commands"]
    assert (found.level, found.message) == ("warn", "this machine has no no-such-server, which the suite starts")
    (warned,) = describe_plan(asked).warnings
    assert (warned.code, warned.severity) == ("machine_lacks", "widens")
    assert warned.message == "this machine has no program 'no-such-server', which the suite starts"
    assert describe_plan(asked, on_a_cluster=True).warnings == []
    beside = '[[role]]\nname = "beside"\nkind = "command"\ncommand = ["no-such-role"]\n'
    role = expand(read_text(SUITE.format(connections=10, rest=beside), source="it.toml", directory="."), seed=1)
    assert findings(role)["commands"].message == "this machine has no no-such-role, which the suite starts"
    there = expand(read_text(text.replace("no-such-server", "sh"), source="it.toml", directory="."), seed=1)
    assert findings(there)["commands"].level == "ok"
    assert describe_plan(there).warnings == []


@pytest.mark.parametrize(("repeat", "shown"), [(5, None), (9, "5.9 %"), (20, "3.4 %")])
def test_a_plan_says_which_difference_it_shows_in_four_of_five_runs(repeat: int, shown: str | None) -> None:
    """Eight repetitions were called enough for a difference of a tenth."""
    text = SUITE.format(connections=10, rest=GATE.partition("[verdict]")[0].format(repeat=repeat))
    described = describe_plan(expand(read_text(text, source="it.toml", directory="."), seed=1))
    said = render_plan(described, colour=False)
    told = re.findall(
        r"with (\d+), a difference of (.*) is shown in four of five runs, if a figure varies by 3 %", said
    )
    assert told == ([] if shown is None else [(str(repeat), shown)])
