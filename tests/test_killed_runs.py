"""A lab killed at any moment leaves nothing, loses at most the trial in flight, and is resumed to a
whole result.

PLIMSOLL_KILLS says how often; each time at another moment, drawn by lot from PLIMSOLL_KILL_SEED.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path

from laboratory import Holder, environment, holders, lab_command, living, marked, needs_networks, wait_until

KILLS = int(os.environ.get("PLIMSOLL_KILLS", "3"))
SEED = int(os.environ.get("PLIMSOLL_KILL_SEED", "1"))

HANGS_S = 300 + 30 * KILLS
"""Against hanging: a trial takes two seconds, on a busy machine ten."""

pytestmark = needs_networks

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
    with (folder / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            lab_command(*arguments),
            cwd=folder,
            env=environment(MARK=str(folder)),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )


def groups(pid: int) -> list[Path]:
    """Control groups of a lab, which bear its process id."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if " cgroup" in line]
    return [folder for mount in mounts for folder in Path(mount).rglob(f"plimsoll-{pid}-*")]


def trials(folder: Path) -> list[Path]:
    return sorted(folder.glob("runs/*/trials/*.json"))


def kill_at(folder: Path, lab: subprocess.Popen[bytes], draw: random.Random) -> set[Holder]:
    """Kill the lab between its first process and a trial or so later; who was in the namespaces
    that it had made.
    """
    before = len(trials(folder))
    # By progress and then by lot, not by the clock alone: the moment is another one on every
    # machine.
    wait_until(lambda: len(marked(folder)) > 2 or lab.poll() is not None, "nothing was started")
    if draw.random() < 0.7:
        wait_until(lambda: len(trials(folder)) > before or lab.poll() is not None, "no trial was written")
    time.sleep(draw.random() * 0.5)
    held = holders(marked(folder))
    lab.kill()
    lab.wait()
    return held


def test_a_killed_run_leaves_nothing_and_is_resumed_to_a_whole_result(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(SUITE)
    draw = random.Random(SEED)
    verb: tuple[str, ...] = ("run", "killed.toml", "--quiet", "--repeat", str(2 * KILLS))
    for _ in range(KILLS):
        lab = start(tmp_path, *verb)
        done = {path: path.read_bytes() for path in trials(tmp_path)}
        held = kill_at(tmp_path, lab, draw)
        wait_until(lambda: not marked(tmp_path), "a process is left")
        wait_until(lambda held=held: not living(held), "a namespace is left")  # type: ignore[misc]
        wait_until(lambda lab=lab: not groups(lab.pid), "a control group is left")  # type: ignore[misc]
        for path, content in done.items():
            assert path.read_bytes() == content, "a finished trial was touched"
        # Killed before its record was written, a run has not begun, and the next one has another
        # number.
        for record in tmp_path.glob("runs/*/run.json"):
            verb = ("resume", str(record.parent), "--quiet")
    last = start(tmp_path, *verb)
    assert last.wait(timeout=HANGS_S) in {0, 4}, (tmp_path / "stderr").read_text()
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
        assert lab.wait(timeout=HANGS_S) in {0, 4}, (tmp_path / "stderr").read_text()
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
    assert survivor.wait(timeout=HANGS_S) in {0, 4}, (other_folder / "stderr").read_text()
    assert len(trials(other_folder)) == 3
    wait_until(lambda: not marked(tmp_path), "a process is left")
