"""The laboratory with the real binary: what either believes of the other holds."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from laboratory import BINARY, Done, environment, lab_command, marked, run_lab, wait_until
from plimsoll_lab.cli.program import VERBS
from plimsoll_lab.cli.reference import COMMANDS, known_commands
from plimsoll_lab.suite.flags import ELSEWHERE, FORWARD_FLAGS, LOAD_FLAGS, MODELS, OUTPUT, SERVER_FLAGS, Flag
from plimsoll_lab.suite.prediction import connections, message_bytes
from plimsoll_lab.suite.program_help import help_of_binary, read_help


def test_the_binary_knows_every_command_and_flag_of_the_laboratory() -> None:
    assert COMMANDS.read_text() == known_commands(), "make reference"


def test_completions_know_every_command_of_the_laboratory() -> None:
    done = subprocess.run([BINARY, "completions", "fish"], capture_output=True, text=True, check=True, timeout=60)
    for verb in VERBS:
        # fish(1): `complete -a WORD -d ABOUT`; what follows a semicolon in a summary is detail.
        found = re.search(rf"subcommand lab; .* -a \"{verb.name}\" -d '([^']*)'", done.stdout)
        assert found is not None, f"{verb.name} is not known"
        assert verb.summary.lower().startswith(found[1].lower()), verb.name


SUITE = """
name = "whole"
question = "Do all of them work?"
[server]
[load]
duration = "300ms"
think = "20ms"
connections = 300
[matrix]
"server.model" = ["threads", "fork", "select", "poll", "epoll", "epoll-et", "uring"]
[run]
repeat = 1
warm_up = "100ms"
seed = 1
"""

Lab = Callable[..., Done]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    (tmp_path / "whole.toml").write_text(SUITE)
    return lambda *arguments: run_lab(tmp_path, *arguments)


@contextlib.contextmanager
def lasting(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run that lasts, once two hundred children are up."""
    (folder / "whole.toml").write_text(SUITE.replace('"300ms"', '"60s"'))
    with subprocess.Popen(
        lab_command("run", "whole.toml", "--quiet", "--only", "server.model=fork"),
        cwd=folder,
        env=environment(MARK=str(folder)),
        stdout=subprocess.PIPE,
    ) as run:
        try:
            wait_until(lambda: len(marked(folder)) > 200, "no two hundred children came up")
            yield run
        finally:
            run.kill()


def points(done: Done) -> dict[str, Any]:
    assert done.stdout, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    return {point["point"]["server.model"]: point for point in summary["points"]}


def test_every_model_is_measured_whole(lab: Lab, tmp_path: Path) -> None:
    found = points(lab("run", "whole.toml", "--json"))
    assert list(found) == list(MODELS)
    # On a busy machine a generator may be late, which is an outcome too; a failure is none that may
    # happen.
    assert {each["outcome"] for each in found.values()} <= {"ok", "generator_limited", "invalid"}, found
    trials = [json.loads(file.read_text()) for file in sorted((tmp_path / "runs/0001/trials").glob("*.json"))]
    assert len(trials) == len(MODELS)
    for trial in trials:
        model, figures = trial["setting"]["server.model"], trial["figures"]
        assert figures["connections.established"] == 300, model
        assert 0 < figures["completed_rate"] < 16_000, model
        assert 1 < figures["server.cpu_us_per_request"] < 1_000, model
        assert 0 < figures["server.cpu_cores"] < os.cpu_count(), model
        # A generator late at its tail leaves that untold.
        assert figures["response_time_us.p50"] <= figures.get("response_time_us.p99", math.inf), model


@pytest.mark.measures
def test_the_cost_of_children_is_the_servers(lab: Lab) -> None:
    found = points(lab("run", "whole.toml", "--json", "--only", "server.model=fork,epoll"))
    assert {point["outcome"] for point in found.values()} == {"ok"}
    fork, epoll = (
        {name: each["median"] for name, each in found[model]["figures"].items()} for model in ("fork", "epoll")
    )
    # A forked child costs at least its kernel stack, its page tables and a few pages of its own.
    assert fork["server.memory_bytes"] > epoll["server.memory_bytes"] + 300 * 32 * 1024
    assert fork["server.cpu_us_per_request"] > 1


def test_select_past_its_descriptors_is_a_hard_limit(lab: Lab) -> None:
    only = ("--only", "server.model=select", "--set", "server.workers=1", "--set", "load.connections=1500")
    done = lab("run", "whole.toml", "--json", *only)
    assert done.returncode == 0
    point = points(done)["select"]
    assert point["outcome"] == "hard_limit"
    assert "FD_SETSIZE" in point["reason"]


FLAGS = [
    (("serve", "echo"), SERVER_FLAGS["echo"]),
    (("serve", "http"), SERVER_FLAGS["http"]),
    (("load", "echo"), LOAD_FLAGS["echo"]),
    (("load", "http"), LOAD_FLAGS["http"]),
    (("forward",), FORWARD_FLAGS),
]


@pytest.mark.parametrize(("verb", "flags"), FLAGS)
def test_the_flags_of_a_suite_and_of_the_binary_are_the_same(verb: tuple[str, ...], flags: dict[str, object]) -> None:
    shown = subprocess.run([BINARY, *verb, "--help"], capture_output=True, text=True, check=True).stdout
    offered = set(re.findall(r"^ *(?:-\w, )?--([a-z][a-z0-9-]+)", shown.partition("Examples:")[0], re.MULTILINE))
    table = {"serve": "server"}.get(verb[0], verb[0])
    elsewhere = {path.partition(".")[2] for path in ELSEWHERE if path.startswith(f"{table}.")}
    ours = {"target", "path", "mappings"}
    settable = {flag.replace("_", "-") for flag in flags if flag not in ours}
    aliases = set(re.findall(r"--([a-z][a-z0-9-]+)", " ".join(re.findall(r"\[alias(?:es)?:\s+([^]]*)\]", shown))))
    assert settable <= offered | aliases, "a suite may set what the binary does not have"
    left_out = offered - settable - aliases - OUTPUT - {flag.replace("_", "-") for flag in elsewhere}
    assert not left_out, "the binary has what a suite can neither set nor is told where it belongs"


@pytest.mark.parametrize(("verb", "flags"), FLAGS)
def test_the_choices_of_a_flag_are_those_of_the_binary(verb: tuple[str, ...], flags: Mapping[str, Flag]) -> None:
    shown = " ".join(help_of_binary(" ".join(verb)).partition("Examples:")[0].split())
    for name, flag in flags.items():
        if flag.kind == "choice":
            said = re.split(r" (?:-\w, )?--[a-z]", shown.partition(f" --{name.replace('_', '-')}")[2])[0]
            listed = re.search(r"\[possible values: ([^]]*)\]", said)
            if listed is not None:
                assert set(listed[1].split(", ")) == set(flag.choices), name
            # Help tells of some in its sentence; a table of CSV the lab makes itself.
            assert [each for each in flag.choices if not re.search(rf"(?<![\w-]){each}(?![\w-])", said)] == [], name


def test_what_a_load_does_unless_told_is_known_to_the_laboratory() -> None:
    told = read_help(help_of_binary("load echo"))
    assert told["connections"].default == str(connections({}))
    assert told["size"].default == f"{message_bytes({})}B"


def test_nothing_outlives_a_killed_lab_not_even_forked_children(tmp_path: Path) -> None:
    with lasting(tmp_path) as run:
        run.kill()
    wait_until(lambda: not marked(tmp_path), "a process is left")


def test_an_interrupted_fork_server_leaves_nothing(tmp_path: Path) -> None:
    with lasting(tmp_path) as run:
        run.send_signal(signal.SIGTERM)
        said, _ = run.communicate(timeout=300)
    assert run.returncode == 143
    assert b"incomplete" in said
    wait_until(lambda: not marked(tmp_path), "a process is left")


def test_a_load_of_which_nothing_connects_is_a_failure_and_no_missed_window(tmp_path: Path) -> None:
    """Its window opened and closed at one instant, and was said to have been missed."""
    (tmp_path / "once.py").write_text(
        "import socket, sys, time\n"
        "with socket.create_server(('127.0.0.1', int(sys.argv[1]))) as probed:\n"
        "    probed.accept()\n"
        "time.sleep(60)\n"
    )
    suite = f"""
name = "once"
question = "What if it stops to listen?"
[server]
command = ["{sys.executable}", "{tmp_path / "once.py"}", "{{port}}"]
ready = "tcp:{{port}}"
[load]
protocol = "echo"
connections = 20
duration = "300ms"
timeout = "200ms"
[run]
repeat = 1
seed = 1
"""
    (tmp_path / "once.toml").write_text(suite)
    done = run_lab(tmp_path, "run", "once.toml", "--json")
    (point,) = json.loads(done.stdout.splitlines()[-1])["points"]
    why = "only 0 of 20 connections were established, and the server names no limit of its own"
    assert (point["outcome"], point["reason"]) == ("failed", why), done.stderr


MOUNT = ["unshare", "--mount", "sh", "-c"]


def may_mount() -> bool:
    """Whether a file system of a test's own can be made (mount(8), unshare(1))."""
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*MOUNT, "mount -t tmpfs none /tmp"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not may_mount(), reason="needs unshare(1), and leave to mount a file system")
def test_a_full_disk_stops_a_search_whose_requests_it_cuts_off(tmp_path: Path) -> None:
    """The part of a log that had room made a result."""
    (tmp_path / "full.toml").write_text(
        """
name = "full"
question = "What becomes of a log without room?"
[server]
[load]
duration = "300ms"
request_log = true
[limits]
"response_time.p99" = "<1s"
[search]
over = "load.connections"
range = [8, 16]
"""
    )
    small = tmp_path / "small"
    small.mkdir()
    # Two pages: some 150 requests.
    mount = f'mount -t tmpfs -o size=8k none {small} && exec "$@"'
    done = subprocess.run(
        [*MOUNT, mount, "sh", *lab_command("run", "full.toml", "--quiet")],
        cwd=tmp_path, env=environment(TMPDIR=str(small)), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    record = rf"{small}/\S+/load\.request_log\.csv"
    said = rf"error: load: the record {record} is incomplete: No space left on device .*; free some space there, then"
    assert done.returncode == 1, done.stderr
    assert re.match(said, done.stderr), done.stderr
    assert list((tmp_path / "runs/0001/trials").iterdir()) == []


def test_a_load_beside_the_measured_one_that_cannot_connect_fails_its_trial(tmp_path: Path) -> None:
    """The measured one had the server for itself, and the trial was a result."""
    (tmp_path / "it.toml").write_text(
        """name = "it"
question = "What does a server do beside others?"
[server]
[load]
duration = "2s"
think = "20ms"
[[role]]
name = "saturator"
kind = "load"
measured = false
target = "127.0.0.1:1"
[run]
repeat = 1
"""
    )
    done = run_lab(tmp_path, "run", "it.toml", "--json")
    (point,) = json.loads(done.stdout.splitlines()[-1])["points"]
    assert (point["outcome"], done.returncode) == ("failed", 1), done.stderr
    assert point["reason"] == "the role saturator had no connection: connect"


def test_what_the_binary_refuses_of_a_capacity_is_refused_before_its_first_trial(lab: Lab, tmp_path: Path) -> None:
    """Each trial failed with the binary's words."""
    words = ("--cpus", "4095", "--limit", "response_time.p99 < 1s")
    done = lab("capacity", "echo", "127.0.0.1:1", *words)
    assert (done.returncode, "[load]: plimsoll refuses this: " in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "runs").exists()
