"""What the lab's tests share: suites in a few lines, a fake binary, and records without a run."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from forked_lab import run_forked
from hypothesis import settings

from plimsoll_lab.cli.program import main
from plimsoll_lab.hosts.scratch import ScratchFolder

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

_FOLDER = ScratchFolder()  # of a process that is killed, the next one removes it
atexit.register(_FOLDER.remove)
FAKE = Path(_FOLDER.path) / "plimsoll"
"""The stand-in as a program of the interpreter that runs the tests, without its site packages: it
is started thousands of times, and `env python3` may be a script that first looks for an
interpreter."""
_interpreter = Path(sys.executable).resolve()
FAKE.write_text(f"#!{_interpreter} -IS\n" + (Path(__file__).parent / "fake_plimsoll.py").read_text())
FAKE.chmod(0o755)


class Failures:
    """Says which test failed, and why, as it fails: a run of minutes may be cut off before its
    end.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A line for a failure."""
        if report.failed:
            said = report.longreprtext.splitlines()
            why = next((line for line in said if line.startswith("E ")), said[-1] if said else "")
            self.config.get_terminal_writer().line(f"\n{report.nodeid}: {why.removeprefix('E ').strip()}")


def pytest_configure(config: pytest.Config) -> None:
    """The process that prints has no `workerinput`, which each of its workers has."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes begin first: at the end each would run alone."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


SUITE = """
name = "small"
question = "Which one?"
[server]
model = "epoll"
[load]
duration = "20ms"
[matrix]
"server.model" = ["select", "epoll", "uring"]
"load.connections" = [100, 2000]
[run]
repeat = 2
seed = 7
"""

Done = subprocess.CompletedProcess[str]
Lab = Callable[..., Done]


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SUITE)
    return path


def lab_environment(**extra: str) -> dict[str, str]:
    """The environment of a lab that uses the fake binary."""
    return os.environ | {"PLIMSOLL_BIN": str(FAKE), "PYTHONPATH": str(Path(__file__).parent.parent)} | extra


def run_lab(folder: Path, *arguments: str, **environment: str) -> Done:
    """Run the program in a folder."""
    return run_forked(folder, arguments, lab_environment(**environment))


def lab_here(folder: Path, *arguments: str) -> Done:
    """The same program in this process, for verbs that only read and write records: starting the
    chart renderer takes longer than most of them.
    """
    said, refused = io.StringIO(), io.StringIO()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with (
            mock.patch.dict(os.environ, lab_environment()),
            contextlib.chdir(folder),
            contextlib.redirect_stdout(said),
            contextlib.redirect_stderr(refused),
        ):
            main(arguments)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return Done(arguments, code, said.getvalue(), refused.getvalue())


def summary_of(text: str) -> dict[str, Any]:
    """The record that a command prints last."""
    found: dict[str, Any] = json.loads(text.splitlines()[-1])
    return found


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Run the program against the fake binary."""
    return lambda *arguments, **environment: run_lab(tmp_path, *arguments, **environment)


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """A folder in which the suite has been run once, and what the program said; tests only read
    it.
    """
    folder = tmp_path_factory.mktemp("finished")
    (folder / "small.toml").write_text(SUITE)
    return folder, run_lab(folder, "run", "small.toml", "--json")
