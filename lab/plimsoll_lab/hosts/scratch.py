"""Folders in the temporary folder, none of which outlives its owner for long.

The owner holds a lock on its folder (flock(2)), which the kernel releases when the owner ends, in
whatever way, and whatever ended with it. Making the next folder on the machine removes folders that
are not locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

PREFIX = "plimsoll-scratch-"


class ScratchFolder:
    """A new folder, empty. A context: leaving it removes the folder."""

    def __init__(self) -> None:
        _remove_unheld()
        while True:
            self.path = tempfile.mkdtemp(prefix=PREFIX)
            """Where it is."""
            try:
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                # Another found it before it was open.
                continue
            # Where a file system has no locks, none can be taken to remove a folder either.
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX)
            if Path(self.path).is_dir():
                return
            # Another found it before it was locked.
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it, with what is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def _remove_unheld() -> None:
    """Remove the folders whose owners have ended."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
