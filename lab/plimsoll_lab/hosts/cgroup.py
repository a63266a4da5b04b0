"""Control groups of our own, v1 or v2, where the machine allows them.

An agent has one folder, named after its process, and a group for each metered process below it.
Folders of processes that have ended are recognised by that name and removed at the next start.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from plimsoll_lab.hosts.samplers.out_of_memory import OF_A_GROUP, read_oom_kills
from plimsoll_lab.hosts.samplers.usage import CgroupV1Meter, CgroupV2Meter, Meter

_OURS = re.compile(r"plimsoll-(\d+)-(\d+)(?:-\d+)?")
_OPENED = itertools.count(1)
"""A process may have several agents, each with folders of its own."""
REMOVE_WITHIN_S = 2.0
"""A group can be removed once its last process has been reaped, milliseconds after it was
killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """A group for one process tree: one folder a controller in v1, a single one in v2."""

    folders: tuple[Path, ...]
    """Where the group is, cpuacct before memory."""

    def meter(self) -> Meter:
        """The meter that reads it."""
        if len(self.folders) == 1:
            return CgroupV2Meter(folder=self.folders[0])
        return CgroupV1Meter(cpuacct=self.folders[0], memory=self.folders[1])

    def pids(self) -> list[int]:
        """Every process in it, and in the groups that a process has made below it."""
        return _pids(self.folders[0])

    def oom_kills(self) -> int | None:
        """How many processes of it the kernel has ended for want of memory; None where that is not
        known.
        """
        counts = (read_oom_kills(self.folders[-1] / name) for name in OF_A_GROUP)
        return next((count for count in counts if count is not None), None)

    def kill(self) -> None:
        """End every process in it."""
        for folder in self.folders:
            kill_folder(folder)

    def remove(self) -> None:
        """End what is left and remove the folders."""
        for folder in self.folders:
            remove_folder(folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """The folders of one agent."""

    roots: tuple[Path, ...]
    """One a controller, cpuacct before memory; in v2 a single one."""

    def make(self, name: str) -> Group:
        """A group for one process tree."""
        folders = tuple(root / name for root in self.roots)
        for folder in folders:
            folder.mkdir()
        return Group(folders=folders)

    def remove(self) -> None:
        """Remove all of them."""
        for root in self.roots:
            remove_folder(root)


def open_groups() -> Groups | None:
    """Folders for one agent; None where the machine does not permit them."""
    name = f"plimsoll-{os.getpid()}-{_start_ticks(os.getpid())}-{next(_OPENED)}"
    for homes in _homes():
        for home in homes:
            _remove_stale(home)
        roots = tuple(home / name for home in homes)
        try:
            for root in roots:
                root.mkdir()
            if len(roots) == 1:
                # A new group of v2 hands no controller to those below it (cgroup-v2.rst, Enabling
                # and Disabling); CPU time is counted without one.
                (roots[0] / "cgroup.subtree_control").write_text("+memory", encoding="ascii")
            groups = Groups(roots=roots)
            trial = groups.make("probe")
            trial.meter().read(thorough=True)
            for folder in trial.folders:
                # Opening for writing shows the permission; nothing is moved.
                os.close(os.open(folder / "cgroup.procs", os.O_WRONLY))
            trial.remove()
        except OSError:
            for root in roots:
                with contextlib.suppress(OSError):
                    (root / "probe").rmdir()
                with contextlib.suppress(OSError):
                    root.rmdir()
        else:
            return groups
    return None


def _homes() -> list[tuple[Path, ...]]:
    """Folders in which a group of ours may live, the likeliest first."""
    own = {}
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            own[controller] = path
    v1: dict[str, Path] = {}
    v2: Path | None = None
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _source, options = rest.split()[:3]
        root, mount = fields.split()[3:5]
        if kind == "cgroup":
            for controller in {"cpuacct", "memory"} & set(options.split(",")):
                v1.setdefault(controller, _below(mount, root, own.get(controller, "/")))
        elif kind == "cgroup2":
            v2 = _below(mount, root, own.get("", "/"))
    homes: list[tuple[Path, ...]] = []
    if len(v1) == 2:  # noqa: PLR2004 - both controllers
        homes.append((v1["cpuacct"], v1["memory"]))
    while v2 is not None and (v2 / "cgroup.procs").exists():
        # A group that holds processes hands no controllers to its children, so a login shell's own
        # group will not do; the one above it, where the user may write there, will.
        homes.append((v2,))
        v2 = v2.parent
    return homes


def _below(mount: str, root: str, own: str) -> Path:
    """Our own group's folder as this mount shows it."""
    if own != root and own.startswith(root.rstrip("/") + "/"):
        return Path(mount) / own[len(root.rstrip("/")) + 1 :]
    return Path(mount)


def _start_ticks(pid: int) -> str | None:
    """When a process began, so that a name outlives the reuse of its number; proc_pid_stat(5),
    field 22.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19]
    except OSError:
        return None


def _remove_stale(home: Path) -> None:
    with contextlib.suppress(OSError):
        for folder in home.iterdir():
            match = _OURS.fullmatch(folder.name)
            if match and _start_ticks(int(match[1])) != match[2]:
                remove_folder(folder)


def _groups_of(folder: Path) -> list[Path]:
    """The groups below a group, the lowest first, and itself."""
    return [Path(each) for each, _, _ in os.walk(folder, topdown=False)]


def _pids(folder: Path) -> list[int]:
    found: list[int] = []
    for group in _groups_of(folder):
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in (group / "cgroup.procs").read_bytes().split()]
    return found


def kill_folder(folder: Path) -> bool:
    """Kill every process in a group and below it; whether there was any."""
    pids = _pids(folder)
    for pid in pids:
        if pid > 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return bool(pids)


def remove_folder(folder: Path) -> None:
    """Kill what is in a group and remove it with those below it; a group that will not go is left
    for the next start.
    """
    deadline = time.monotonic() + REMOVE_WITHIN_S
    while True:
        populated = kill_folder(folder)
        for below in _groups_of(folder)[:-1]:
            with contextlib.suppress(OSError):
                below.rmdir()
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                return
            time.sleep(0.02 if populated else 0.002)
        else:
            return
