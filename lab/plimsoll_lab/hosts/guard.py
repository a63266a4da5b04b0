"""Ends what a lab has started, after the lab itself has ended.

Each agent starts one guard, which reads lines from it. When the agent ends, in whatever way, the
pipe closes, and the guard kills every process group and control group that it was given, and every
process with a given mark: a server that became a daemon has left its process group (setsid(2)).
PR_SET_PDEATHSIG alone would not do: it reaches the direct child, not what a foreign server has
forked.

A mark is the soft limit of a process on its CPU time under a real-time policy (RLIMIT_RTTIME,
getrlimit(2)), in microseconds, and so large that it limits nothing. What a process forks inherits
it, and neither a new session nor another program changes it. A variable would not do: a server
that sets its title (nginx) overwrites its environment.

It runs as a script of its own, without the rest of the lab: `python -I -S guard.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

FIRST_MARK = 1 << 62
"""The first of all marks: 146,000 years."""
LIMIT = b"Max realtime timeout"
"""The name of RLIMIT_RTTIME in /proc/PID/limits."""
ROUNDS = 100
"""Looks for marked processes, 10 ms apart: thousands that were killed take time to be reaped."""
GROUP_ROUNDS = 12_000
"""Attempts to empty and remove a control group, as far apart, so for two minutes: a killed process
stays in its group until the kernel has closed its sockets. 65,525 connections take some seconds."""


def main() -> None:
    """Read `group PGID`, `forget PGID`, `folder PATH`, `files PATH`, `marks FIRST END` until the
    end of the input, then clear away.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    told: dict[str, list[str]] = {"folder": [], "files": [], "marks": []}
    for line in sys.stdin:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "group":
            groups.add(int(rest))
        elif word == "forget":
            groups.discard(int(rest))
        elif word in told:
            told[word].append(rest)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    for folder in told["folder"]:
        clear(folder)
    for marks in told["marks"]:
        first, end = map(int, marks.split())
        kill_marked(range(first, end))
    for path in told["files"]:
        shutil.rmtree(path, ignore_errors=True)


def kill_marked(marks: range) -> int:
    """Kill every process with one of these marks; how many there were.

    A process that is forked meanwhile is found by the next look: it is over when one finds none.
    """
    killed = 0
    for _ in range(ROUNDS):
        found = 0
        for name in os.listdir("/proc"):  # noqa: PTH208 - this script imports as little as it can
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    if _is_marked(name, marks):
                        found += not _is_zombie(name)
                        os.kill(int(name), signal.SIGKILL)
        if not found:
            break
        killed += found
        time.sleep(0.01)
    return killed


def _is_marked(pid: str, marks: range) -> bool:
    with open(f"/proc/{pid}/limits", "rb") as file:  # noqa: PTH123
        for line in file:
            if line.startswith(LIMIT):
                soft = line.removeprefix(LIMIT).split()[0]
                return soft.isdigit() and int(soft) in marks
    return False


def _is_zombie(pid: str) -> bool:
    """Whether a process has ended, and waits for its parent; proc_pid_stat(5), field 3."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return file.read().rpartition(b") ")[2].startswith(b"Z")


def clear(root: str) -> None:
    """Empty and remove a control group and all below it: a server may make some in its own."""
    for _ in range(GROUP_ROUNDS):
        if not os.path.isdir(root):  # noqa: PTH112 - this script imports as little as it can
            return
        for folder, _folders, _files in os.walk(root, topdown=False):
            with contextlib.suppress(OSError), open(os.path.join(folder, "cgroup.procs")) as pids:  # noqa: PTH118, PTH123
                for pid in filter(int, pids):  # 0 is a process of another namespace, and to kill(2) our own group
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.rmdir(folder)  # noqa: PTH106
        time.sleep(0.01)


if __name__ == "__main__":
    main()
