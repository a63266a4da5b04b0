"""`plimsoll lab init`: what it writes is a suite that runs, and what it refuses it says why."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from conftest import Lab

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
    ],
)
def test_what_could_not_run_is_refused_and_nothing_written(
    lab: Lab, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    done = lab("init", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_kept_unless_forced(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "my-server.toml").write_text("mine")
    assert lab("init", "--command", "./api {port}").returncode == 2
    assert (tmp_path / "my-server.toml").read_text() == "mine"
    assert lab("init", "--command", "./api {port}", "--force").returncode == 0
    assert read_file(tmp_path / "my-server.toml").name == "my-server"
