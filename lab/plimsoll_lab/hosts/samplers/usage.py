"""CPU and memory of a whole process tree.

Where the kernel offers control groups, the tree has one of its own, and both figures are two small
reads, however many processes it holds. Without them the agent reads /proc, rarely: a walk over
thousands of processes disturbs what is measured (about 15 us a process for the CPU, 95 us with its
memory).

`memory_bytes` from a control group is everything charged to the tree but the page cache: anonymous
pages and shared memory, each page counted once however many processes share it, and the kernel
memory the tree causes: stacks, page tables, sockets. TCP's buffers are among it under v2 alone: v1
counts them apart (memory.kmem.tcp, cgroup-v1/memory.rst). The kernel charges in batches, so the
figure may be off by up to 256 KiB a CPU. From /proc it is the proportional set size (PSS): user
memory only. A run never mixes the two.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PSS_PROCESSES = 64
"""Of more processes, the memory of this many is read, and scaled: 64 reads take about 6 ms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What a process tree has used."""

    cpu_s: float
    """CPU time of the tree since it began, in seconds."""
    memory_bytes: int | None
    """Memory of the tree at this moment; None where this meter would have to walk too many
    processes, or may read none of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessUsage:
    """One process of a tree, as top(1) lists it."""

    pid: int
    """Its process id."""
    name: str
    """Its name: of its program, unless it has changed it (proc_pid_comm(5))."""
    cpu_s: float
    """CPU time since it began, of all its threads and without its children's, in steps of a clock
    tick."""


class Meter(Protocol):
    """Reads the usage of one process tree."""

    @property
    def source(self) -> str:
        """Where the figures come from: `cgroup v1`, `cgroup v2` or `proc`."""

    def read(self, *, thorough: bool) -> Usage:
        """The usage now; `thorough` allows a walk over the processes, for the ends of a window."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CgroupV1Meter:
    """Reads the cpuacct and memory controllers, each mounted by itself."""

    cpuacct: Path
    """The group's folder under the cpuacct controller."""
    memory: Path
    """The group's folder under the memory controller."""
    source: str = "cgroup v1"
    """Where the figures come from."""

    def read(self, *, thorough: bool) -> Usage:  # noqa: ARG002 - two reads are as thorough as it gets
        """Two files, about half a millisecond."""
        cpu_ns = int((self.cpuacct / "cpuacct.usage").read_bytes())
        charged = int((self.memory / "memory.usage_in_bytes").read_bytes())
        return Usage(cpu_s=cpu_ns / 1e9, memory_bytes=max(0, charged - _page_cache(self.memory, b"cache")))


@dataclass(frozen=True, kw_only=True, slots=True)
class CgroupV2Meter:
    """Reads a group of the unified hierarchy."""

    folder: Path
    """The group's folder."""
    source: str = "cgroup v2"
    """Where the figures come from."""

    def read(self, *, thorough: bool) -> Usage:  # noqa: ARG002 - three reads are as thorough as it gets
        """Three files."""
        cpu_us = _keyed(self.folder / "cpu.stat", b"usage_usec")
        charged = int((self.folder / "memory.current").read_bytes())
        return Usage(cpu_s=cpu_us / 1e6, memory_bytes=max(0, charged - _page_cache(self.folder, b"file")))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcMeter:
    """Reads /proc for every process of a session: the living, and what they have reaped."""

    session: int
    """The session the tree was started in; its leader's process id."""
    source: str = "proc"
    """Where the figures come from."""

    def read(self, *, thorough: bool) -> Usage:
        """CPU time in steps of a clock tick; memory only where thorough."""
        ticks = 0
        members = []
        for pid in _processes():
            fields = _stat(pid)
            if fields is not None and int(fields[3]) == self.session:
                members.append(pid)
                # utime, stime, cutime and cstime, the last two of reaped children:
                # proc_pid_stat(5), fields 14 to 17.
                ticks += sum(int(field) for field in fields[11:15])
        return Usage(cpu_s=ticks / TICKS_PER_S, memory_bytes=_pss(members) if thorough else None)


def read_processes(pids: Iterable[int]) -> tuple[ProcessUsage, ...]:
    """These processes, but those that have ended."""
    found = []
    for pid in pids:
        fields = _stat(pid)
        if fields is not None:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").rstrip("\n")
                # utime and stime: proc_pid_stat(5), fields 14 and 15.
                ticks = int(fields[11]) + int(fields[12])
                found.append(ProcessUsage(pid=pid, name=name, cpu_s=ticks / TICKS_PER_S))
    return tuple(found)


def session_members(session: int) -> list[int]:
    """The processes of a session."""
    return [pid for pid in _processes() if (fields := _stat(pid)) is not None and int(fields[3]) == session]


def _processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _stat(pid: int) -> list[bytes] | None:
    """The fields of /proc/PID/stat from the third on; the second, the name, may hold spaces and
    brackets.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def _pss(pids: list[int]) -> int | None:
    """None where no process of them may be read: of one with capabilities of its file, root alone
    may (ptrace(2)).
    """
    step = max(1, len(pids) // PSS_PROCESSES)
    read = total = 0
    for pid in pids[::step]:
        try:
            total += _keyed(Path(f"/proc/{pid}/smaps_rollup"), b"Pss:") * 1024
            read += 1
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return round(total * len(pids) / read) if read else None


def _page_cache(group: Path, key: bytes) -> int:
    """Bytes of a group's page cache. The kernel counts shared memory among them, which is the
    server's own (cgroup-v2.rst, memory.stat).
    """
    lines = (group / "memory.stat").read_bytes().splitlines()
    bytes_of = {name: int(value) for name, value in (line.split() for line in lines)}
    return max(0, bytes_of.get(key, 0) - bytes_of.get(b"shmem", 0))


def _keyed(path: Path, key: bytes) -> int:
    """The number after a key in a file of `key number` lines; 0 where the key is missing."""
    for line in path.read_bytes().splitlines():
        fields = line.split()
        if fields and fields[0] == key:
            return int(fields[1])
    return 0
