"""CPU that a quota withheld: from the lab and from everything it starts, which live in the same
container.
"""

from __future__ import annotations

from pathlib import Path

FIELDS = {b"throttled_usec": 1e-6, b"throttled_time": 1e-9}
"""Of cpu.stat, by version 2 and 1 of control groups, and the second in their unit."""


class Throttled:
    """For how long threads were held back by a CPU quota, from one reading to the next.

    There may be a quota at each level above, and each counts for itself since it was made: of each
    time between two readings the level counts that held them back longest in it.
    """

    def __init__(self, own: Path = Path("/proc/self/cgroup"), mounts: Path = Path("/sys/fs/cgroup")) -> None:
        self._own, self._mounts = own, mounts
        self._before: dict[Path, float] = {}
        self._total_s = 0.0

    def read(self) -> float | None:
        """Seconds since the first reading; None where no control group counts them."""
        now = {
            folder: seconds
            for folder in _folders(self._own, self._mounts)
            if (seconds := _throttled_s(folder / "cpu.stat")) is not None
        }
        if not now:
            return None
        self._total_s += max(0.0, *(seconds - self._before.get(folder, seconds) for folder, seconds in now.items()))
        self._before = now
        return self._total_s


THROTTLED = Throttled()
"""Of this process."""


def _folders(own: Path, mounts: Path) -> list[Path]:
    folders = []
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # In a container the mount shows its own group as the root, whatever the path says.
        for root in (mounts / controllers, mounts / "cpu", mounts):
            folder = root / path.lstrip("/")
            while folder != root.parent:
                folders.append(folder)
                folder = folder.parent
    return list(dict.fromkeys(folders))


def _throttled_s(path: Path) -> float | None:
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(b" ")
        if name in FIELDS:
            return int(value) * FIELDS[name]
    return None
