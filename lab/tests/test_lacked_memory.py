"""A part of a trial that the kernel ended as no memory was left: it was "killed by SIGKILL"."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from conftest import FAKE

from plimsoll_lab.hosts import processes
from plimsoll_lab.hosts.cgroup import Group
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.processes import Launcher, LocalProcess, wait_for
from plimsoll_lab.hosts.samplers.out_of_memory import read_oom_kills
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.trial.lifecycle import run_trial
from plimsoll_lab.trial.validity import NO_MEMORY

FILES = {
    "vmstat": ("pgfault 7\noom_kill 3\noom_kill_other 9\n", 3),
    "memory.events": ("low 0\noom 5\noom_kill 2\noom_group_kill 0\n", 2),
    "memory.oom_control": ("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", 1),
    "of an older kernel": ("oom_kill_disable 0\nunder_oom 0\n", None),
}


@pytest.mark.parametrize("name", FILES)
def test_the_kernels_count_is_read(tmp_path: Path, name: str) -> None:
    text, count = FILES[name]
    file = tmp_path / name
    assert read_oom_kills(file) is None
    file.write_text(text)
    assert read_oom_kills(file) == count


def test_a_control_group_has_a_count_of_its_own(tmp_path: Path) -> None:
    group = Group(folders=(tmp_path / "cpuacct", tmp_path / "memory"))
    (tmp_path / "memory").mkdir()
    assert group.oom_kills() is None
    for name in ("memory.oom_control", "memory.events"):
        (tmp_path / "memory" / name).write_text(FILES[name][0])
        assert group.oom_kills() == FILES[name][1]


def count(monkeypatch: pytest.MonkeyPatch, counts: Iterator[int | None]) -> None:
    """Let the kernel's count of the machine be these, one after another; groups have none."""
    monkeypatch.setattr(processes, "open_groups", lambda: None)
    monkeypatch.setattr(processes, "read_oom_kills", lambda: next(counts))


def wait_for_end(process: LocalProcess) -> None:
    while process.exit_code() is None:
        wait_for([process], 60)


@pytest.mark.parametrize(
    ("script", "counts", "lacked"),
    [
        ("kill -KILL $$", (3, 4), True),
        ("kill -KILL $$", (3, 3), False),
        ("kill -KILL $$", (None, None), False),
        ("kill -TERM $$", (3, 4), False),
        ("exit 1", (3, 4), False),
    ],
)
def test_a_process_that_was_killed_as_the_count_rose_lacked_memory(
    monkeypatch: pytest.MonkeyPatch, script: str, counts: tuple[int | None, int | None], *, lacked: bool
) -> None:
    """What the machine counts later is of others."""
    count(monkeypatch, itertools.chain(counts, itertools.repeat(9)))
    with Launcher() as launcher, launcher.start(["sh", "-c", script], role="a", metered=True) as process:
        wait_for_end(process)
        assert [process.lacked_memory() for _ in range(2)] == [lacked, lacked]


def test_a_process_that_the_laboratory_killed_did_not_lack_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    count(monkeypatch, itertools.count())
    with Launcher() as launcher, launcher.start(["sleep", "600"], role="a", metered=True) as process:
        assert not process.lacked_memory()
        process.kill()
        wait_for_end(process)
        assert not process.lacked_memory()


@pytest.mark.parametrize(("own", "lacked"), [(0, False), (1, True)])
def test_the_count_of_its_own_group_decides_however_it_ended(
    monkeypatch: pytest.MonkeyPatch, own: int, *, lacked: bool
) -> None:
    """A shell ends with 137 where its program was killed."""
    count(monkeypatch, itertools.count())
    group = SimpleNamespace(oom_kills=lambda: own, remove=lambda: None)
    started = subprocess.Popen(["sh", "-c", "exit 137"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process = LocalProcess(started, cast("Group", group), 0, metered=False)
    try:
        wait_for_end(process)
        assert process.lacked_memory() is lacked
    finally:
        process.close()


def trial(monkeypatch: pytest.MonkeyPatch, fake: str, counts: Iterator[int | None]) -> TrialRecord:
    count(monkeypatch, counts)
    monkeypatch.setenv("FAKE", fake)
    suite = 'name = "it"\nquestion = "?"\n[server]\n[load]\nduration = "20ms"\nconnections = 10\n'
    plan = expand(read_text(suite, source="it.toml", directory="."), seed=1)
    with LocalHost() as host:
        return run_trial(host, str(FAKE), plan.suite, plan.points[0], plan.trials[0])


@pytest.mark.parametrize(
    ("fake", "part", "said"),
    [
        ("load_killed", "load", "the generator ended without a summary: killed by SIGKILL"),
        ("server_killed", "server", "the server ended before it was ready: killed by SIGKILL"),
    ],
)
def test_a_trial_says_that_no_memory_was_left_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, fake: str, part: str, said: str
) -> None:
    record = trial(monkeypatch, fake, itertools.count())
    assert (record.outcome, record.reason) == ("failed", f"{said}: {NO_MEMORY}")
    assert trial(monkeypatch, fake, itertools.repeat(7)).reason == said
    if part == "load":
        assert record.load.get("lacked_memory") is True
        assert "lacked_memory" not in record.server
