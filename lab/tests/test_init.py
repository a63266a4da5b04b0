"""`plimsoll lab init`: what it writes is a suite that runs, and what it refuses it says why."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import Lab, lab_environment

from plimsoll_lab.suite.read import read_file


@pytest.mark.parametrize("protocol", ["http", "echo"])
def test_the_suite_can_be_read_and_says_what_was_asked_for(lab: Lab, tmp_path: Path, protocol: str) -> None:
    command = "./my server/api --port {port} --name 'a \"quoted\" word'"
    done = lab("init", "api.toml", "--command", command.replace("my server", "mine"), "--protocol", protocol)
    assert (done.returncode, done.stderr) == (0, "")
    suite = read_file(tmp_path / "api.toml")
    assert suite.server["command"] == ("./mine/api", "--port", "{port}", "--name", 'a "quoted" word')
    assert suite.load["protocol"] == protocol
    assert ("path" in suite.load) == (protocol == "http")
    assert "plimsoll lab run api.toml" in done.stdout


def test_a_server_that_already_runs_is_named_by_its_address(lab: Lab, tmp_path: Path) -> None:
    done = lab("init", "--address", "127.0.0.1:8080", "--path", "/health")
    assert (done.returncode, done.stderr) == (0, "")
    suite = read_file(tmp_path / "my-server.toml")
    assert suite.server == {"address": "127.0.0.1:8080", "protocol": "http"}
    assert suite.load["path"] == "/health"


@pytest.mark.parametrize(
    ("answers", "server"),
    [
        ("\n\n\n", {"command": ("python3", "-m", "http.server", "{port}"), "ready": "tcp:{port}", "protocol": "http"}),
        ("localhost:7000\necho\n", {"address": "localhost:7000", "protocol": "echo"}),
    ],
)
def test_three_questions_at_a_terminal_write_a_suite(tmp_path: Path, answers: str, server: dict[str, object]) -> None:
    person, terminal = pty.openpty()
    with contextlib.closing(os.fdopen(person, "wb", buffering=0)) as typing:
        typing.write(answers.encode())
        done = subprocess.run(
            [sys.executable, "-m", "plimsoll_lab", "init"],
            cwd=tmp_path,
            env=lab_environment(),
            stdin=terminal,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
    os.close(terminal)
    assert done.returncode == 0, done.stderr
    assert "How does your server start?" in done.stderr
    assert read_file(tmp_path / "my-server.toml").server == server


def test_every_line_that_is_commented_out_is_valid_too(lab: Lab, tmp_path: Path) -> None:
    assert lab("init", "--command", "./api {port}").returncode == 0
    lines = (tmp_path / "my-server.toml").read_text().splitlines()
    hidden = [line.removeprefix("# ") for line in lines if line.startswith(("# [", '# "', "# command", "# rate"))]
    assert len(hidden) >= 5
    tomllib.loads("\n".join(line for line in hidden if not line.startswith('"')))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--command", "./api"), "has no {port}"),
        (("--command", ""), "the command is empty"),
        ((), "no terminal to ask"),
        (("--command", "./api {port}", "--ready", "8080"), "ready"),
        (("--command", "./api '{port}"), "close its quotes"),
        (("--command", "./api {port}", "--address", "127.0.0.1:80"), "not allowed with"),
        (("--address", "nowhere"), "write HOST:PORT"),
        (("none/api.toml", "--command", "./api {port}"), "cannot write none/api.toml: No such file or directory"),
    ],
)
def test_what_could_not_run_is_refused_and_nothing_written(
    lab: Lab, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = lab("init", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--address", "127.0.0.1:80", "--ready", "tcp:80"), "--ready is of a command"),
        (("--command", "./echo {port}", "--protocol", "echo", "--path", "/x"), "--path is of http"),
    ],
)
def test_a_flag_that_would_be_dropped_is_refused(
    lab: Lab, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = lab("init", "it.toml", *arguments)
    assert (done.returncode, (tmp_path / "it.toml").exists()) == (2, False)
    assert said in done.stderr


def test_a_file_that_exists_is_kept_unless_forced(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "my-server.toml").write_text("mine")
    assert lab("init", "--command", "./api {port}").returncode == 2
    assert (tmp_path / "my-server.toml").read_text() == "mine"
    assert lab("init", "--command", "./api {port}", "--force").returncode == 0
    assert read_file(tmp_path / "my-server.toml").name == "my-server"
