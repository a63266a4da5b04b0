"""CPU time, memory, pressure and descriptors of the whole machine: other work on it disturbs a
measurement.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from plimsoll_lab.hosts.samplers.throttle import THROTTLED
from plimsoll_lab.hosts.samplers.usage import TICKS_PER_S

_LIBC = ctypes.CDLL(None, use_errno=True)
_KCMP, _KCMP_FILES = {"x86_64": 312}.get(platform.machine(), 272), 2
"""kcmp(2), which the C library does not wrap: its number there and in asm-generic/unistd.h, and the
question."""
DESCRIPTORS_PROCESSES = 64
"""A server's children are much alike: of thousands, this many represent all, and take half a
millisecond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineUsage:
    """CPU time of the machine since it booted."""

    busy_s: float
    """CPU seconds spent on anything, interrupts included."""
    softirq_threads_s: float
    """Those of them that belong to no program: what the kernel's threads for packets that arrive
    used (ksoftirqd/N), 0 where a container does not see them. Where the kernel keeps the time of
    interrupts apart from that of the programs they interrupt, all of that time."""
    throttled_s: float | None
    """Seconds for which a CPU quota held threads of this container back, since this process first
    asked; None where that cannot be read."""
    steal_s: float
    """CPU seconds the hypervisor gave to other guests while this machine wanted to run."""


def read_machine(stat: Path = Path("/proc/stat")) -> MachineUsage:
    """Read /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5))."""
    with stat.open("rb") as lines:
        fields = [int(field) for field in lines.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    busy = user + nice + system + irq + softirq
    return MachineUsage(
        busy_s=busy / TICKS_PER_S,
        # Only a kernel that keeps interrupts apart (CONFIG_IRQ_TIME_ACCOUNTING) counts any in irq,
        # and then in softirq those of ksoftirqd too (kernel/sched/cputime.c).
        softirq_threads_s=(irq + softirq) / TICKS_PER_S
        if irq
        else sum(read_cpu_s(thread) for thread in softirq_threads()),
        steal_s=steal / TICKS_PER_S,
        throttled_s=THROTTLED.read(),
    )


@functools.cache
def softirq_threads(proc: Path = Path("/proc")) -> tuple[Path, ...]:
    """`stat` of the kernel's threads for packets that arrive, one a CPU: children of kthreadd,
    which is process 2.
    """
    found = []
    for stat in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")
            if "(ksoftirqd/" in name and rest.split()[1] == "2":
                found.append(stat)
    return tuple(found)


def read_cpu_s(stat: Path) -> float:
    """User and system time (proc_pid_stat(5), fields 14 and 15); 0 of a thread that is gone."""
    with contextlib.suppress(OSError):
        fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    return 0.0


def read_memory(meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Bytes that programs may still take without swapping (MemAvailable, proc_meminfo(5))."""
    for line in _lines(meminfo):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def read_load_average(loadavg: Path = Path("/proc/loadavg")) -> float | None:
    """Tasks that ran or waited to, on average over the last minute (proc_loadavg(5))."""
    return next((float(line.split()[0]) for line in _lines(loadavg)), None)


def read_pressure(folder: Path = Path("/proc/pressure")) -> dict[str, float]:
    """Seconds since boot in which some task waited for CPU, memory or I/O
    (Documentation/accounting/psi.rst).
    """
    found = {}
    for kind in ("cpu", "memory", "io"):
        for line in _lines(folder / kind):
            if line.startswith("some "):
                found[f"{kind}_some_s"] = int(line.rpartition("total=")[2]) / 1e6
    return found


def read_open_files(number: Path = Path("/proc/sys/fs/file-nr")) -> int | None:
    """Open files of the whole machine (proc_sys_fs(5)): allocated ones, less those free again."""
    for line in _lines(number):
        allocated, free, _ = (int(each) for each in line.split())
        return allocated - free
    return None


def read_descriptors(pids: Sequence[int]) -> int | None:
    """Descriptors of a process tree, its leader first; None where none of its processes may be
    looked into.

    Of more processes only the leader and this many of the others are read, which are taken
    for the rest. Of threads with tables of their own (unshare(2), CLONE_FILES) each counts.
    """
    leader, others = _descriptors(pids[:1]), pids[1:]
    step = max(1, -(-len(others) // DESCRIPTORS_PROCESSES))
    read = _descriptors(others[::step])
    if not leader and not read:
        return None
    return sum(leader) + (round(sum(read) * len(others) / len(read)) if read else 0)


def _descriptors(pids: Sequence[int]) -> list[int]:
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            found.append(sum(_table_size(Path(f"/proc/{pid}/task/{thread}/fd")) for thread in _table_owners(pid)))
    return found


def _table_size(folder: Path) -> int:
    # The folder's size is their number since Linux 6.2; before, it has none.
    return folder.stat().st_size or len(os.listdir(folder))  # noqa: PTH208 - names alone will do


def _table_owners(pid: int) -> list[int]:
    """One thread for each descriptor table of a process; one alone where the kernel cannot compare
    tables (kcmp(2)).
    """
    owners = [pid]
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):  # noqa: PTH208 - names alone will do
        # Zero says that both have the same table, a negative number that it is unknown.
        if all(_LIBC.syscall(_KCMP, thread, owner, _KCMP_FILES, 0, 0) > 0 for owner in owners):
            owners.append(thread)
    return owners


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").splitlines()
    except OSError:
        return []
