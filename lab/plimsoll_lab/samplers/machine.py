"""What the whole machine did meanwhile: a measurement is only as good as the machine was quiet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plimsoll_lab.samplers.throttle import read_throttled_s
from plimsoll_lab.samplers.usage import TICKS_PER_S


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineUsage:
    """CPU time of the machine since it booted."""

    busy_s: float
    """CPU seconds spent on anything, interrupts included."""
    throttled_s: float | None
    """Seconds for which a CPU quota held threads of this container back; None where nothing tells."""
    steal_s: float
    """CPU seconds the hypervisor gave to somebody else while this machine wanted to run."""


def read_machine(stat: Path = Path("/proc/stat")) -> MachineUsage:
    """Read /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal (proc_stat(5))."""
    with stat.open("rb") as lines:
        fields = [int(field) for field in lines.readline().split()[1:9]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields
    busy = user + nice + system + irq + softirq
    return MachineUsage(busy_s=busy / TICKS_PER_S, steal_s=steal / TICKS_PER_S, throttled_s=read_throttled_s())
