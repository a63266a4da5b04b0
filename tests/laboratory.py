"""The laboratory as a person starts it, for tests of the whole: with the binary that was just
built, in a folder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from forked_lab import run_forked

ROOT = Path(__file__).resolve().parent.parent
BINARY = str(os.environ.get("PLIMSOLL_BIN") or ROOT / "target" / "release" / "plimsoll")
HANGS_S = 120
"""Against hanging: what is waited for takes a second or two, on a busy machine ten."""

needs_networks = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="needs root and /dev/net/tun"
)

Done = subprocess.CompletedProcess[str]
Holder = tuple[int, str]
"""A process that holds a network namespace: its number, and when it began, as numbers are used
again."""


def environment(**extra: str) -> dict[str, str]:
    """The environment of a lab that uses the real binary."""
    return os.environ | {"PLIMSOLL_BIN": BINARY, "PYTHONPATH": str(ROOT / "lab")} | extra


def lab_command(*arguments: str) -> list[str]:
    """The laboratory's command line."""
    return [sys.executable, "-m", "plimsoll_lab", *arguments]


def run_lab(folder: Path, *arguments: str, **extra: str) -> Done:
    """Run the laboratory in a folder to its end, with more in its environment."""
    return run_forked(folder, arguments, environment(**extra))


def run_bench(folder: Path, script: str, *arguments: str) -> Done:
    """Run a script of `bench/` in a folder to its end."""
    command = [sys.executable, str(ROOT / "bench" / script), *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600, check=False
    )


def bench_module(name: str) -> ModuleType:
    """A file of `bench/` alone: the folder has modules that are named as some of Python's."""
    found = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A run of one trial."""

    folder: Path
    """The run's folder."""
    trial: dict[str, Any]
    """The trial's record."""
    done: Done
    """What the laboratory said."""


def run_trial(folder: Path, text: str, *arguments: str) -> Measured:
    """Run a suite of one trial.

    The trial may be no result, as on a busy machine: its record has every field even so.
    """
    (folder / "suite.toml").write_text(text)
    done = run_lab(folder, "run", "suite.toml", *arguments)
    run = folder / "runs" / "0001"
    assert (run / "trials/0001.json").exists(), done.stderr
    trial: dict[str, Any] = json.loads((run / "trials/0001.json").read_text())
    assert trial["outcome"] in {"ok", "invalid", "generator_limited"}, trial["reason"]
    return Measured(folder=run, trial=trial, done=done)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that is sure to come."""
    deadline = time.monotonic() + HANGS_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def marked(mark: Path) -> list[int]:
    """The processes that have MARK and a folder's name in their environment."""
    wanted = f"MARK={mark}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def holders(pids: list[int]) -> set[Holder]:
    """The processes in the network namespaces of these processes, except those in this process's
    own.
    """
    spaces = {space for pid in pids if (space := _network_namespace(Path(f"/proc/{pid}"))) is not None}
    spaces.discard(_network_namespace(Path("/proc/self")))
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        began = _began(process)
        if began is not None and _network_namespace(process) in spaces:
            found.add((int(process.name), began))
    return found


def living(those: set[Holder]) -> set[Holder]:
    """The holders that are still there. A namespace's own number would not do: it is used again at
    once.
    """
    return {(pid, began) for pid, began in those if _began(Path(f"/proc/{pid}")) == began}


def _network_namespace(process: Path) -> int | None:
    try:
        return (process / "ns" / "net").stat().st_ino
    except OSError:
        return None


def _began(process: Path) -> str | None:
    """proc_pid_stat(5), field 22; the second, the name, may hold spaces and brackets."""
    try:
        return (process / "stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]
    except OSError:
        return None
