"""Ends what a lab has started, after the lab itself has ended.

Each agent starts one guard, which reads lines from it. When the agent ends, in whatever way, the
pipe closes, and the guard kills every process group and control group that it was given, and every
process with a given mark in its environment: a server that became a daemon has left its process
group (setsid(2)). PR_SET_PDEATHSIG alone would not do: it reaches the direct child, not
what a foreign server has forked.

It runs as a script of its own, without the rest of the lab: `python -I -S guard.py`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time

MARK = "PLIMSOLL_PROCESS"
"""A variable in the environment of every process of an agent: the agent's own text, and the
process's number."""
ROUNDS = 100
"""Looks for marked processes, 10 ms apart: thousands that were killed take time to be reaped."""
GROUP_ROUNDS = 12_000
"""Attempts to empty and remove a control group, as far apart, so for two minutes: a killed process
stays in its group until the kernel has closed its sockets. 65,525 connections take some seconds."""


def main() -> None:
    """Read `group PGID`, `forget PGID`, `folder PATH`, `files PATH`, `mark TEXT` until the end of
    the input, then clear away.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    told: dict[str, list[str]] = {"folder": [], "files": [], "mark": []}
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
    for mark in told["mark"]:
        kill_marked(mark)
    for path in told["files"]:
        shutil.rmtree(path, ignore_errors=True)


def kill_marked(mark: str) -> int:
    """Kill every process whose environment has a variable of MARK that begins so; how many there
    were.

    A process that is forked meanwhile is found by the next look: it is over when one finds none.
    """
    begins = f"{MARK}={mark}".encode()
    killed = 0
    for _ in range(ROUNDS):
        found = 0
        for name in os.listdir("/proc"):  # noqa: PTH208 - this script imports as little as it can
            if name.isdigit() and int(name) != os.getpid():
                with contextlib.suppress(OSError):
                    with open(f"/proc/{name}/environ", "rb") as file:  # noqa: PTH123
                        variables = file.read().split(b"\0")
                    if any(each.startswith(begins) for each in variables):
                        os.kill(int(name), signal.SIGKILL)
                        found += 1
        if not found:
            break
        killed += found
        time.sleep(0.01)
    return killed


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
