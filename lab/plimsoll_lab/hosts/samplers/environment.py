"""What a result depends on besides the question: a list of what is wanted, never the environment
wholesale.
"""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Mapping
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


def read_environment(metering: str) -> dict[str, object]:
    """The environment of a run, without what cannot be read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found: dict[str, object] = {
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _named("/proc/cpuinfo", "model name"),
        "cpus": len(os.sched_getaffinity(0)),
        "memory": _named("/proc/meminfo", "MemTotal"),
        "hypervisor": "yes" if " hypervisor" in (_named("/proc/cpuinfo", "flags") or "") else "none seen",
        "open_files_limit": {"soft": soft, "hard": hard},
        "metering": metering,
        "python": platform.python_version(),
    }
    found |= {name: text for name, path in FILES.items() if (text := _text(path)) is not None}
    return {name: value for name, value in found.items() if value is not None}


def lacks(connections: int, environment: Mapping[str, object]) -> list[str]:
    """What this machine lacks for this many connections, each with what helps."""
    missing = []
    limit = environment.get("open_files_limit")
    hard = limit["hard"] if isinstance(limit, dict) else resource.RLIM_INFINITY
    if hard not in {resource.RLIM_INFINITY, -1} and connections + 64 > hard:
        missing.append(
            f"{connections} connections need as many descriptors at each end, and a process may have {hard}; "
            "raise the hard limit (ulimit -Hn), or ask for fewer"
        )
    return missing


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
