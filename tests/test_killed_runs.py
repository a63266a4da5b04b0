"""A lab killed at any moment leaves nothing, loses at most the trial in flight, and is resumed to a
whole result.

PLIMSOLL_KILLS says how often; each time at another moment, drawn by lot from PLIMSOLL_KILL_SEED.
With PLIMSOLL_LARGEST the largest run of the five reports is killed too.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import time
from pathlib import Path

import pytest

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


# A trial of a search keeps no file in the run's folder.
SEARCH = """
name = "search"
question = "What is left?"
[server]
[load]
duration = "5s"
think = "20ms"
threads = 1
[limits]
failed_ratio = "<1%"
[search]
over = "load.connections"
range = [10, 100]
"""
LARGEST = ("--only", "load.connections=65525", "--only", "load.target=role:forwarder:7000 role:forwarder:8000")


def start(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    temporary(folder).mkdir(exist_ok=True)
    with (folder / "stderr").open("ab") as stderr:
        return subprocess.Popen(
            lab_command(*arguments),
            cwd=folder,
            env=environment(MARK=str(folder), TMPDIR=str(temporary(folder))),
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )


def temporary(folder: Path) -> Path:
    """The temporary folder of the labs that run in a folder."""
    return folder / "tmp"


def assert_nothing_left(folder: Path, lab: subprocess.Popen[bytes], held: set[Holder]) -> None:
    """Of a lab that was killed, with whoever was in its namespaces."""
    wait_until(lambda: not marked(folder), "a process is left")
    wait_until(lambda: not living(held), "a namespace is left")
    wait_until(lambda: not groups(lab.pid), "a control group is left")
    wait_until(lambda: not list(temporary(folder).iterdir()), "a temporary folder is left")


def kill_in_its_window(folder: Path, lab: subprocess.Popen[bytes]) -> set[Holder]:
    """Kill the lab while the window of a trial is open; who was in its namespaces."""

    def open_window() -> bool:
        assert lab.poll() is None, (folder / "stderr").read_text()
        told = [line for file in folder.glob("runs/*/events.jsonl") for line in file.read_text().splitlines()]
        return any(json.loads(line)["event"] == "cost" for line in told)

    wait_until(open_window, "no window was opened")
    held = holders(marked(folder))
    lab.kill()
    lab.wait()
    return held


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


def made_again(path: Path, content: bytes) -> bool:
    """Whether a stored trial was made again for a cause of the machine, which keeps what it was."""
    before, now = json.loads(content), json.loads(path.read_bytes())
    later = now["attempts"][len(before["attempts"]) :]
    return any(each["cause"] and each["figures"] == before["figures"] for each in later)


def test_a_killed_run_leaves_nothing_and_is_resumed_to_a_whole_result(tmp_path: Path) -> None:
    (tmp_path / "killed.toml").write_text(SUITE)
    draw = random.Random(SEED)
    verb: tuple[str, ...] = ("run", "killed.toml", "--quiet", "--repeat", str(2 * KILLS))
    for _ in range(KILLS):
        lab = start(tmp_path, *verb)
        done = {path: path.read_bytes() for path in trials(tmp_path)}
        held = kill_at(tmp_path, lab, draw)
        assert_nothing_left(tmp_path, lab, held)
        for path, content in done.items():
            assert path.read_bytes() == content or made_again(path, content), "a finished trial was touched"
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
    assert_nothing_left(tmp_path, last, set())


def test_a_search_that_is_killed_in_a_trial_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "search.toml").write_text(SEARCH)
    lab = start(tmp_path, "run", "search.toml", "--quiet")
    assert_nothing_left(tmp_path, lab, kill_in_its_window(tmp_path, lab))


@pytest.mark.skipif("PLIMSOLL_LARGEST" not in os.environ, reason="65,525 connections; PLIMSOLL_LARGEST=1 runs it")
def test_the_largest_run_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    lab = start(tmp_path, "run", "port-fwd-255", "--quiet", "--repeat", "1", *LARGEST)
    held = kill_in_its_window(tmp_path, lab)
    assert len(held) > 5, "five hosts and what runs on them"
    assert_nothing_left(tmp_path, lab, held)


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
