"""One stream of events per run: it goes to the terminal as it comes, and to a file in the run's
folder.

`events.jsonl` in the run's folder has an event a line, each with `event` and `unix_s`: `run` (it
begins or goes on), `paths` (those of an emulated network are measured), `trial_started`, `second`
and `cost` (of the trial under way), `trial` (it is on disk) and `end`. The file is for watching:
records and figures are in `trials/`, and a run without it is complete.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json, TrialRecord

Listener = Callable[[Json], None]
FIGURES = (
    "completed_rate",
    "response_time_us.p50",
    "response_time_us.p99",
    "failed_ratio",
    "server.cpu_cores",
    "server.cpu_us_per_request",
    "server.memory_bytes",
)
"""Figures of a trial that its event has, where the trial has them."""


class Events:
    """Writes events into a run's folder, and passes them on. A context manager."""

    def __init__(self, folder: RunFolder, listeners: Sequence[Listener] = ()) -> None:
        self._path: Path = folder.events
        self._hide, self._listeners = folder.hide, tuple(listeners)
        self._file: TextIO | None = None

    def __enter__(self) -> Self:
        # A full disk is reported where the trial's record is written: watching needs no file.
        with contextlib.suppress(OSError):
            self._file = self._path.open("a", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()

    def publish(self, event: Json) -> None:
        """Write one event, and pass it on, without secrets: what listens may print it."""
        event = {key: self._hide(each) for key, each in event.items()}
        if self._file is not None:
            line = json.dumps(event | {"unix_s": time.time()}, ensure_ascii=False)
            with contextlib.suppress(OSError):
                self._file.write(line + "\n")
                self._file.flush()
        for listener in self._listeners:
            listener(event)


def trial_event(trial: TrialRecord, total: int | None) -> Json:
    """A trial that is on disk; `total` is how many there will be, where that is known."""
    return {
        "event": "trial",
        "number": trial.number,
        "of": total,
        "block": trial.block,
        "point": dict(trial.setting),
        "outcome": trial.outcome,
        "reason": trial.reason,
        "figures": {name: trial.figures[name] for name in FIGURES if name in trial.figures},
        "repeated": len(trial.attempts),
        "warnings": sorted({warning.code for warning in trial.warnings}),
    }
