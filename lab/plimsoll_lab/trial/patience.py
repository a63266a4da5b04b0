"""How long a process may take, by a clock that stands still while the laboratory does not run."""

from __future__ import annotations

import time
from collections.abc import Callable

OVERSLEPT_S = 2.0
"""A wait that lasts so much longer than it was asked to: the machine was suspended, or others had
its CPUs. A busy machine wakes a program within a second."""


class Patience:
    """The time until a process is overdue."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def left_s(self) -> float:
        """Seconds that are left; 0 or less once it is overdue."""
        return self._until - time.monotonic()

    def shorten_to(self, seconds: float) -> None:
        """No longer than this from now on."""
        self._until = min(self._until, time.monotonic() + seconds)

    def wait(self, wait: Callable[[float], None], most_s: float) -> None:
        """Wait for news, for so long at most."""
        began = time.monotonic()
        wait(most_s)
        longer_s = time.monotonic() - began - most_s
        if longer_s > OVERSLEPT_S:
            # The process did not run meanwhile either.
            self._until += longer_s
