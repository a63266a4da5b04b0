"""What a result depends on besides the question: a list of what is wanted, never the environment
wholesale.
"""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path

FILES = {
    "tcp_congestion_control": "/proc/sys/net/ipv4/tcp_congestion_control",
    "ip_local_port_range": "/proc/sys/net/ipv4/ip_local_port_range",
    "somaxconn": "/proc/sys/net/core/somaxconn",
    "tcp_max_syn_backlog": "/proc/sys/net/ipv4/tcp_max_syn_backlog",
    "pid_max": "/proc/sys/kernel/pid_max",
    "io_uring_disabled": "/proc/sys/kernel/io_uring_disabled",
    "transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
    "cpu_governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "clocksource": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "load_average": "/proc/loadavg",
}
"""Kernel settings that move the figures, and the load of the machine as the run began."""
DESCRIPTORS_BESIDE = 64
"""Descriptors of a process that are not connections: its listeners, files and wake-ups."""


def read_environment(metering: str) -> dict[str, object]:
    """The environment of a run, without what cannot be read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found: dict[str, object] = {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _named("/proc/cpuinfo", "model name"),
        "cpus": len(os.sched_getaffinity(0)),
        "cpus_online": os.cpu_count(),
        "memory": _named("/proc/meminfo", "MemTotal"),
        "hypervisor": "yes" if " hypervisor" in (_named("/proc/cpuinfo", "flags") or "") else "none seen",
        "open_files_limit": {"soft": soft, "hard": hard},
        "metering": metering,
        "python": platform.python_version(),
    }
    found |= {name: text for name, path in FILES.items() if (text := _text(path)) is not None}
    return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True, slots=True)
class Descriptors:
    """What connections need of descriptors beside what there is."""

    said: str
    """Both, in figures."""
    remedy: str = ""
    """What helps where there are too few; empty where there are enough."""
    of_machine: bool = False
    """Whether the machine has too few in all, so that no program of this user can hold them."""


def descriptors(connections: int, of_commands: int) -> Descriptors:
    """Whether the descriptors are enough for the most connections of a suite, and for the most of
    a server that is no program of ours: ours go past the limit of a process by tables of their own
    (docs/scale.md). Without connections what there is.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    has = "any number" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    said = f"a process may have {has} (ulimit -Hn)"
    if not connections:
        return Descriptors(said=said)
    said += f", and {connections:,} connections need one each at each end"
    every = _text("/proc/sys/fs/file-max")
    # What is privileged goes past this one (proc_sys_fs(5)).
    if every is not None and 2 * connections > int(every) and os.geteuid() != 0:
        said += f", {2 * connections:,} in all, where the machine has {int(every):,} (fs.file-max)"
        return Descriptors(said=said, remedy=f"sysctl fs.file-max={4 * connections}, or ask for fewer", of_machine=True)
    if hard == resource.RLIM_INFINITY or connections + DESCRIPTORS_BESIDE <= hard:
        return Descriptors(said=said)
    if of_commands + DESCRIPTORS_BESIDE <= hard:
        return Descriptors(said=f"{said}; ours use several tables")
    said += f"; {of_commands:,} of them at a server that may have no more"
    return Descriptors(said=said, remedy=f"raise the hard limit to {of_commands + DESCRIPTORS_BESIDE:,}")


def _text(path: str) -> str | None:
    try:
        return " ".join(Path(path).read_text(encoding="utf-8").split())
    except OSError:
        return None


def _named(path: str, key: str) -> str | None:
    """The first value of a `key : value` file."""
    try:
        with Path(path).open(encoding="utf-8") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), None)
    except OSError:
        return None
