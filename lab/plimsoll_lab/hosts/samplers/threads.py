"""What the threads of a process tree are doing: how long each has waited for a CPU, and where one
sleeps.

The kernel counts a wait once it is over: of a thread that waits now, only its state says so.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

MOST_THREADS = 64
"""Of more threads the oldest are read, which are a server's event loops: 64 take about a
millisecond."""
READY = "R"
"""The state of a thread that runs, or waits for a CPU (proc_pid_stat(5), field 3)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunQueue:
    """What the scheduler has counted of a thread since it began (proc_pid_schedstat,
    Documentation/scheduler/sched-stats.rst).
    """

    ran_s: float
    """Time on a CPU."""
    waited_s: float
    """Time for which it was ready, and had no CPU; the wait that lasts is not in it."""
    turns: int
    """How often it got a CPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadReading:
    """A thread, at one moment."""

    process: int
    """The process id."""
    thread: int
    """The thread's own."""
    name: str
    """Its name (proc_pid_comm(5))."""
    state: str
    """A letter: R ready, S asleep, D in a sleep that no signal ends, Z ended."""
    run_queue: RunQueue | None
    """None where the kernel keeps no such counts."""
    sleeps_in: str
    """The kernel's function and the number of the system call that it sleeps in, as far as they can
    be read; empty where not asked for."""


def read_threads(pids: Iterable[int], *, sleeps: bool, proc: Path = Path("/proc")) -> tuple[ThreadReading, ...]:
    """The threads of these processes, without those that have ended."""
    found: list[ThreadReading] = []
    for pid in sorted(pids):
        left = MOST_THREADS - len(found)
        if not left:
            break
        # In the order in which they began; of thousands no more are listed than are read.
        with contextlib.suppress(OSError), os.scandir(proc / str(pid) / "task") as threads:
            for each in itertools.islice(threads, left):
                with contextlib.suppress(OSError):
                    found.append(_read(pid, Path(each), sleeps=sleeps))
    return tuple(found)


def _read(pid: int, folder: Path, *, sleeps: bool) -> ThreadReading:
    head, _, rest = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(") ")
    return ThreadReading(
        process=pid,
        thread=int(folder.name),
        name=head.partition("(")[2],
        state=rest[:1],
        run_queue=_run_queue(folder / "schedstat"),
        sleeps_in=_sleeps_in(folder) if sleeps else "",
    )


def _run_queue(file: Path) -> RunQueue | None:
    fields = _text(file).split()
    if len(fields) != 3:  # noqa: PLR2004 - as the kernel documents it
        return None
    ran_ns, waited_ns, turns = map(int, fields)
    return RunQueue(ran_s=ran_ns / 1e9, waited_s=waited_ns / 1e9, turns=turns)


def _sleeps_in(folder: Path) -> str:
    """`ep_poll, system call 232`: proc_pid_wchan(5), else the innermost of proc_pid_stack(5), and
    proc_pid_syscall(5), which a kernel may lack, or keep from this user.
    """
    stack = _text(folder / "stack").partition("\n")[0].rpartition(" ")[2].partition("+")[0]
    function = next((each for each in (_text(folder / "wchan"), stack) if each not in {"", "0"}), "")
    call = _text(folder / "syscall").partition(" ")[0].strip()
    return ", ".join(each for each in (function, f"system call {call}" if call.isdigit() else "") if each)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
