"""A lab killed at any moment leaves nothing, loses at most the trial in flight, and is resumed to a whole result.

PLIMSOLL_KILLS says how often; each time at another moment, drawn by lot from PLIMSOLL_KILL_SEED.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
BINARY = str(os.environ.get("PLIMSOLL_BIN") or ROOT / "target" / "release" / "plimsoll")
KILLS = int(os.environ.get("PLIMSOLL_KILLS", "3"))
SEED = int(os.environ.get("PLIMSOLL_KILL_SEED", "1"))

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/dev/net/tun").exists(), reason="needs root and /dev/net/tun"
)

# Nothing is asked of the links that a busy machine could miss: this is about processes and files.
SUITE = """
name = "killed"
question = "What is left?"
[server]
model = "fork"
[load]
connections = 20
each = 2
think = "20ms"
threads = 1
[network]
topology = "single,3"
[place]
server = "h1"
load = ["h2", "h3"]
[run]
repeat = 6
seed = 1
"""


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PLIMSOLL_BIN": BINARY, "PYTHONPATH": str(ROOT / "lab"), "MARK": str(folder)}
    with (folder / "stderr").open("wb") as stderr:
        return subprocess.Popen(
            [sys.executable, "-m", "plimsoll_lab", *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )


def marked(folder: Path) -> dict[int, int]:
    """The processes that carry this test's mark in their environment, and the network namespace of each."""
    wanted = f"MARK={folder}".encode()
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "ns" / "net").stat().st_ino
        except OSError:
            continue
    return found


def living_namespaces() -> set[int]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.add((process / "ns" / "net").stat().st_ino)
        except OSError:
            continue
    return found


def groups(pid: int) -> list[Path]:
    """Control groups of a lab, which bear its process id."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup" in line]
    return [folder for mount in mounts for folder in Path(mount).rglob(f"plimsoll-{pid}-*")]


def trials(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/*/trials/*.json"))


def wait_until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def kill_at(folder: Path, lab: subprocess.Popen[bytes], draw: random.Random) -> set[int]:
    """Kill the lab between its first process and a trial or so later; the namespaces that it had made."""
    before = len(trials(folder))
    # By progress and then by lot, not by the clock alone: the moment is another one on every machine.
    wait_until(lambda: len(marked(folder)) > 2 or lab.poll() is not None, "nothing was started")
    if draw.random() < 0.7:
        wait_until(lambda: len(trials(folder)) > before or lab.poll() is not None, "no trial was written")
    time.sleep(draw.random() * 0.5)
    made = set(marked(folder).values()) - {Path("/proc/self/ns/net").stat().st_ino}
    lab.kill()
    lab.wait()
    return made


def test_a_killed_run_leaves_nothing_and_is_resumed_to_a_whole_result(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(SUITE)
    draw = random.Random(SEED)
    verb: tuple[str, ...] = ("run", "killed.toml", "--quiet", "--repeat", str(2 * KILLS))
    for _ in range(KILLS):
        lab = start(tmp_path, *verb)
        done = {path: path.read_bytes() for path in trials(tmp_path)}
        made = kill_at(tmp_path, lab, draw)
        wait_until(lambda: not marked(tmp_path), "a process is left")
        wait_until(lambda made=made: not made & living_namespaces(), "a namespace is left")  # type: ignore[misc]
        wait_until(lambda lab=lab: not groups(lab.pid), "a control group is left")  # type: ignore[misc]
        for path, content in done.items():
            assert path.read_bytes() == content, "a finished trial was touched"
        # Killed before its record was written, a run has not begun, and the next one has another number.
        for record in tmp_path.glob("runs/*/run.json"):
            verb = ("resume", str(record.parent), "--quiet")
    last = start(tmp_path, *verb)
    assert last.wait(timeout=300) in {0, 4}, (tmp_path / "stderr").read_text()
    numbers = [json.loads(path.read_text())["number"] for path in trials(tmp_path)]
    assert numbers == list(range(1, 2 * KILLS + 1))
    (record,) = tmp_path.glob("runs/*/run.json")
    assert json.loads(record.read_text())["status"] == "complete"
    assert not marked(tmp_path)
    assert not groups(last.pid)


def test_two_runs_at_once_do_not_collide(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(SUITE)
    both = [start(tmp_path, "run", "killed.toml", "--quiet", "--repeat", "2") for _ in range(2)]
    for lab in both:
        assert lab.wait(timeout=300) in {0, 4}, (tmp_path / "stderr").read_text()
    for number in ("0001", "0002"):
        assert len(list((tmp_path / "runs" / number / "trials").glob("*.json"))) == 2
        assert json.loads((tmp_path / "runs" / number / "run.json").read_text())["status"] == "complete"


def test_a_run_that_is_killed_beside_another_leaves_that_one_alone(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(SUITE)
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "killed.toml").write_text(SUITE)
    victim = start(tmp_path, "run", "killed.toml", "--quiet")
    survivor = start(other_folder, "run", "killed.toml", "--quiet", "--repeat", "3")
    kill_at(tmp_path, victim, random.Random(SEED))
    assert survivor.wait(timeout=300) in {0, 4}, (other_folder / "stderr").read_text()
    assert len(trials(other_folder)) == 3
    wait_until(lambda: not marked(tmp_path), "a process is left")
