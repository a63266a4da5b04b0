"""How many processes the kernel has ended for want of memory."""

from __future__ import annotations

from pathlib import Path

MACHINE = Path("/proc/vmstat")
"""Of the whole machine since it booted, whatever container they were in."""
OF_A_GROUP = ("memory.events", "memory.oom_control")
"""Of a control group, in version 2 and in version 1 (cgroup-v2.rst, cgroup-v1/memory.rst)."""
KEY = b"oom_kill"


def read_oom_kills(file: Path = MACHINE) -> int | None:
    """The count in one of these files; None where the kernel keeps none there."""
    try:
        lines = file.read_bytes().splitlines()
    except OSError:
        return None
    counts = (int(value) for name, _, value in (line.partition(b" ") for line in lines) if name == KEY)
    return next(counts, None)
