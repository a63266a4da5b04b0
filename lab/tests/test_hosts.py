"""Processes on this machine: metered as a whole tree, and always cleaned up."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import lab_environment

from plimsoll_lab.hosts import cgroup, guard, processes
from plimsoll_lab.hosts.processes import Launcher, LocalProcess, wait_for
from plimsoll_lab.hosts.samplers.usage import ProcMeter, Usage
from plimsoll_lab.problem import LabError, StartError

FAMILY = """
import os, sys, time
block = bytearray(60 * 2**20)
def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
reaped = os.fork()
if reaped == 0:
    burn(0.6); os._exit(0)
os.waitpid(reaped, 0)
for _ in range(4):
    if os.fork() == 0:
        burn(0.1); print("done", flush=True); time.sleep(600)
print("parent", flush=True)
time.sleep(600)
"""
"""A tree that has burnt 1 s of CPU, 0.6 of them in a child that is gone, and shares 60 MiB among
five processes."""


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    with Launcher() as launcher:
        yield launcher


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def lines(process: LocalProcess, wanted: int) -> list[str]:
    found: list[str] = []
    deadline = time.monotonic() + 120
    while len(found) < wanted:
        assert time.monotonic() < deadline, (found, process.stderr_tail())
        wait_for([process], 1.0)
        found += process.take_lines()
    return found


def test_every_meter_sees_the_whole_tree_and_shared_pages_once(launcher: Launcher) -> None:
    with launcher.start(python(FAMILY), role="server", metered=True) as process:
        lines(process, 5)
        for usage in (process.usage(thorough=True), ProcMeter(session=process.pid).read(thorough=True)):
            assert 0.95 < usage.cpu_s < 2.5
            assert usage.memory_bytes is not None
            assert 60 * 2**20 < usage.memory_bytes < 110 * 2**20


def test_a_walk_over_processes_leaves_memory_alone_unless_thorough(launcher: Launcher) -> None:
    with launcher.start(python(FAMILY), role="server", metered=True) as process:
        lines(process, 5)
        assert ProcMeter(session=process.pid).read(thorough=False).memory_bytes is None


def test_stopping_ends_the_whole_tree(launcher: Launcher) -> None:
    with launcher.start(python(FAMILY), role="server", metered=True) as process:
        lines(process, 5)
        assert process.stop(grace_s=60) == -15
        wait_until(lambda: ProcMeter(session=process.pid).read(thorough=False) == Usage(cpu_s=0.0, memory_bytes=None))


def test_a_process_that_ignores_sigterm_is_killed(launcher: Launcher) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    with launcher.start(python(stubborn), role="server", metered=False) as process:
        lines(process, 1)
        assert process.stop(grace_s=0.1) == -9


def test_a_process_that_floods_its_pipes_is_not_stopped_by_them(launcher: Launcher) -> None:
    flood = "import sys\nfor _ in range(3):\n    sys.stderr.write('x' * 200_000)\nprint('through', flush=True)"
    with launcher.start(python(flood), role="server", metered=False) as process:
        assert lines(process, 1) == ["through"]
        assert len(process.stderr_tail()) <= 4096


def test_last_words_have_no_colours_and_no_control_characters(launcher: Launcher) -> None:
    said = r"\033]0;title\007\033[2Kstep 1\rstep 2\n\033[1;31mError:\033[0m caf\303\251 \000\001\033(B\200"
    with launcher.start(["sh", "-c", f"printf '{said}' >&2; echo"], role="server", metered=False) as process:
        lines(process, 1)
        assert process.stderr_tail() == "step 1\nstep 2\nError: caf\u00e9 \ufffd"


def test_the_last_words_begin_with_a_whole_line(launcher: Launcher) -> None:
    """They began within a line, and what was left of a secret there was not recognised."""
    logged = "print('GET /?access_token=s3cr3t-9', file=sys.stderr)\n"
    later = "print('x' * 4090, file=sys.stderr)\nsys.stderr.flush()\nprint()"
    with launcher.start(python(f"import sys\n{logged}{later}"), role="server", metered=False) as process:
        lines(process, 1)
        assert process.stderr_tail() == "x" * 4090


@pytest.mark.parametrize("end", ["", r"\n"])
def test_of_a_line_too_long_to_be_kept_the_last_words_say_only_that(launcher: Launcher, end: str) -> None:
    said = f"sys.stderr.write('GET /?access_token=' + 's3cr3t-9' * 1000 + '{end}')\nsys.stderr.flush()\nprint()"
    with launcher.start(python(f"import sys\n{said}"), role="server", metered=False) as process:
        lines(process, 1)
        assert process.stderr_tail() == processes.LONG_LINE


READER = "import sys\nfor line in sys.stdin:\n    print('read', line, end='', flush=True)\nprint('end', flush=True)"
"""Repeats its input, and says when there is no more."""


def test_a_process_that_prints_without_end_holds_up_nobody(launcher: Launcher) -> None:
    with launcher.start(["cat", "/dev/zero"], role="server", metered=False) as process:
        # Against hanging: reading to the end returns only once it is killed.
        rescue = threading.Timer(60, process.kill)
        rescue.start()
        for _ in range(3):
            assert process.take_lines() == []
        rescue.cancel()
        assert process.exit_code() is None


def test_of_a_line_without_end_the_end_is_kept(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "STDOUT_KEPT", 100_000)
    script = "head -c 3000000 /dev/zero; echo; echo last; sleep 60"
    with launcher.start(["sh", "-c", script], role="server", metered=False) as process:
        endless, last = lines(process, 2)
    assert 0 < len(endless) <= 100_000
    assert last == "last"


def test_a_process_that_takes_lines_is_told_them(launcher: Launcher) -> None:
    with launcher.start(python(READER), role="a", metered=False, takes_lines=True) as process:
        for line in ("one", "2.5"):
            process.tell(line)
            assert lines(process, 1) == [f"read {line}"]
        assert process.exit_code() is None


def test_the_standard_input_of_any_other_process_is_empty(launcher: Launcher) -> None:
    with launcher.start(python(READER), role="a", metered=False) as process:
        assert lines(process, 1) == ["end"]


@pytest.mark.parametrize("found_by", ["control group", "session"])
def test_each_process_of_a_tree_is_listed_with_its_own_cpu(found_by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if found_by == "session":
        monkeypatch.setattr(processes, "open_groups", lambda: None)
    with Launcher() as launcher, launcher.start(python(FAMILY), role="server", metered=True) as process:
        lines(process, 5)
        found = {each.pid: each for each in process.tree()}
        assert len(found) == 5
        assert all(each.name.startswith("python") for each in found.values())
        # The parent reaped a child that burnt 0.6 s: they are not its own.
        assert found.pop(process.pid).cpu_s < 0.6
        assert all(0.09 <= each.cpu_s < 0.6 for each in found.values())


def test_a_process_keeps_to_its_cpus_with_all_that_it_starts(launcher: Launcher) -> None:
    ours = os.sched_getaffinity(0)
    own = max(ours)
    tree = "import os; print(os.sched_getaffinity(0)); os.fork() or print(os.sched_getaffinity(0), flush=True)"
    with launcher.start(python(tree), role="a", metered=True, cpus=(own,)) as process:
        assert lines(process, 2) == [f"{{{own}}}"] * 2
    assert os.sched_getaffinity(0) == ours
    with launcher.start(python(tree), role="a", metered=True) as process:
        assert lines(process, 2) == [str(ours)] * 2


def test_cpus_that_there_are_not_are_refused_also_beside_one_that_there_is(launcher: Launcher) -> None:
    ours = os.sched_getaffinity(0)
    own = min(ours)
    refusal = rf"cannot start the server on the CPUs {own}, 8191: of these this machine gives {own}; correct"
    with (
        pytest.raises(LabError, match=refusal),
        launcher.start(["true"], role="server", metered=False, cpus=(own, 8191)),
    ):
        raise AssertionError("it was started")
    assert os.sched_getaffinity(0) == ours


def test_a_line_for_a_process_that_has_ended_is_no_fault(launcher: Launcher) -> None:
    with launcher.start(python("print('gone')"), role="a", metered=False, takes_lines=True) as process:
        wait_until(lambda: process.exit_code() is not None)
        process.tell("late")
        assert (process.exit_code(), process.take_lines(), process.stderr_tail()) == (0, ["gone"], "")


DAEMON = """
import os, sys, time
stays = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve(sys.executable, [sys.executable, "-IS", "-c", stays], {})
    os._exit(0)
os.wait()
time.sleep(float(sys.argv[1]))
"""
"""A server that becomes a daemon: in a session of its own, a child of nobody, and without the
environment that it was started in, which a server that sets its title overwrites."""


@pytest.mark.parametrize("stays_s", ["0", "600"])
def test_a_daemon_without_a_control_group_ends_with_its_process(launcher: Launcher, stays_s: str) -> None:
    with launcher.start([*python(DAEMON), stays_s], role="server", metered=False) as process:
        daemon = Path(f"/proc/{lines(process, 1)[0]}")
        assert daemon.exists()
    wait_until(lambda: not daemon.exists())


def test_a_daemon_ends_with_the_lab_that_is_killed() -> None:
    lab = (
        "import sys, time\n"
        "from plimsoll_lab.hosts.processes import Launcher, wait_for\n"
        "with Launcher() as launcher:\n"
        f"    with launcher.start([sys.executable, '-c', {DAEMON!r}, '0'], role='server', metered=False) as daemon:\n"
        "        found = []\n"
        "        while not found:\n"
        "            wait_for([daemon], 60.0)\n"
        "            found = daemon.take_lines()\n"
        "        print(found[0], flush=True)\n"
        "        time.sleep(600)\n"
    )
    with subprocess.Popen(python(lab), stdout=subprocess.PIPE, text=True, env=lab_environment()) as killed:
        assert killed.stdout is not None
        daemon = Path(f"/proc/{killed.stdout.readline().strip()}")
        assert daemon.exists()
        killed.kill()
    wait_until(lambda: not daemon.exists())


def test_a_program_that_is_missing_is_said(launcher: Launcher) -> None:
    with (
        pytest.raises(LabError, match="cannot start the server '/no/such': No such file"),
        launcher.start(["/no/such"], role="server", metered=True),
    ):
        pass


def test_groups_of_dead_labs_are_removed_at_the_next_start() -> None:
    first = cgroup.open_groups()
    if first is None:
        pytest.skip("this machine lets us have no control groups")
    left = [root.with_name("plimsoll-4194305-1") for root in first.roots]
    first.remove()
    for folder in left:
        (folder / "1-server").mkdir(parents=True)
    second = cgroup.open_groups()
    assert second is not None
    second.remove()
    assert not any(folder.exists() for folder in left)


def test_our_own_group_is_found_below_the_mount() -> None:
    assert cgroup._below("/sys/fs/cgroup/memory", "/", "/box/7") == Path("/sys/fs/cgroup/memory/box/7")
    assert cgroup._below("/sys/fs/cgroup", "/box/7", "/box/7") == Path("/sys/fs/cgroup")
    assert cgroup._below("/sys/fs/cgroup", "/box", "/box/7") == Path("/sys/fs/cgroup/7")
    assert cgroup._below("/sys/fs/cgroup/cpuacct", "/", "/") == Path("/sys/fs/cgroup/cpuacct")


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_group_whose_processes_take_long_to_end_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 65,525 connections the kernel closed the last some seconds after the kill; the guard had
    given up by then.
    """
    group = tmp_path / "plimsoll-1"
    (group / "server").mkdir(parents=True)
    held = group / "server" / "held"
    held.touch()
    rounds = itertools.count(1)

    def sleep(_seconds: float) -> None:
        if next(rounds) == 1000:
            held.unlink()

    monkeypatch.setattr(time, "sleep", sleep)
    guard.clear(str(group))
    assert not group.exists()


def test_groups_that_a_server_makes_within_its_own_are_removed_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that keeps to its group makes two below it. They stayed, and so did their
    processes; the lab waited two minutes for the guard.
    """
    by_both: list[Callable[[Path], None]] = [lambda path: guard.clear(str(path)), cgroup.remove_folder]
    for clear in by_both:
        group = tmp_path / "plimsoll-1"
        (group / "server" / "payload" / "container").mkdir(parents=True)
        monkeypatch.setattr(guard, "GROUP_ROUNDS", 1)
        monkeypatch.setattr(cgroup, "REMOVE_WITHIN_S", 0.0)
        clear(group)
        assert not group.exists()
    (tmp_path / "group" / "below").mkdir(parents=True)
    (tmp_path / "group" / "below" / "cgroup.procs").write_text("0\n")
    assert cgroup.kill_folder(tmp_path / "group"), "a process below is one of the group"


def test_groups_of_version_2_are_handed_the_controller_of_memory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A new group hands none on, so that no group of a process could be read."""
    make = cgroup.Groups.make

    def made_by_a_kernel(groups: cgroup.Groups, name: str) -> cgroup.Group:
        (folder,) = (group := make(groups, name)).folders
        (folder / "cgroup.procs").touch()
        (folder / "cpu.stat").write_text("usage_usec 5000000\n")
        handed = folder.parent / "cgroup.subtree_control"
        if handed.exists() and handed.read_text() == "+memory":
            (folder / "memory.current").write_text("4096\n")
            (folder / "memory.stat").write_text("file 1024\nshmem 0\n")
        return group

    monkeypatch.setattr(cgroup.Groups, "make", made_by_a_kernel)
    monkeypatch.setattr(cgroup, "_homes", lambda: [(tmp_path,)])
    monkeypatch.setattr(cgroup, "remove_folder", shutil.rmtree)
    groups = cgroup.open_groups()
    assert groups is not None
    meter = groups.make("1-server").meter()
    assert (meter.source, meter.read(thorough=True)) == ("cgroup v2", Usage(cpu_s=5.0, memory_bytes=3072))


@pytest.mark.parametrize(
    ("number", "kind", "said"),
    [
        (errno.EAGAIN, LabError, "has no room for another process"),
        (errno.EMFILE, LabError, "has no room for another process"),
        (errno.EACCES, StartError, "make it executable"),
    ],
)
def test_a_machine_without_room_for_a_process_is_no_fault_of_the_program(
    launcher: Launcher, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[LabError], said: str
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(LabError, match=said) as refused, launcher.start(["x"], role="server", metered=False):
        pass
    assert type(refused.value) is kind


def test_a_process_that_cannot_be_waited_for_is_ended(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a descriptor for that it was left, and signals stayed blocked."""
    started: list[subprocess.Popen[bytes]] = []

    def refuse(popen: subprocess.Popen[bytes], *_: object, **__: object) -> None:
        started.append(popen)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(processes, "LocalProcess", refuse)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with (
        pytest.raises(LabError, match="has no room for another process"),
        launcher.start(python("import time; time.sleep(600)"), role="server", metered=False),
    ):
        pass
    assert started[0].returncode == -9
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
