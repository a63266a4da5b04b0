"""What a trial shows while it runs: each generator's seconds as they end, and the server's cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from plimsoll_lab.store.program_output import Second, read_output
from plimsoll_lab.store.records import Json, Sample
from plimsoll_lab.trial.window import Window

Notify = Callable[[Json], None]
"""Takes an event: a record with the key `event`."""
EVERY_S = 0.5
"""Between two looks at the files: generators write a line a second."""
SUFFIX = ".timeseries.jsonl"
"""The end of the name of a generator's file of seconds."""


class LiveEvents:
    """Follows one trial, and sends an event for each second once."""

    def __init__(self, records: Path, notify: Notify | None) -> None:
        self._records, self._notify = records, notify
        self._due_at = 0.0
        self._read: dict[Path, int] = {}
        self._sample = Sample(at_s=0.0, cpu_s=0.0, memory_bytes=None)

    def poll(self, window: Window, now: float) -> None:
        """Send new events, if it is time to look. `now` is in seconds."""
        if self._notify is None or now < self._due_at:
            return
        self._due_at = now + EVERY_S
        self.end(window)

    def end(self, window: Window) -> None:
        """Send new events."""
        if self._notify is None:
            return
        for file in sorted(self._records.glob(f"*{SUFFIX}")):
            for line in self._lines(file):
                self._notify(second_event(read_output(Second, line, "a generator"), file.name.removesuffix(SUFFIX)))
        if window.samples:
            self._cost(window.samples, self._notify)

    def _lines(self, file: Path) -> list[Json]:
        """The whole lines that a generator has added; half a line waits for its other half."""
        with file.open("rb") as opened:
            opened.seek(self._read.get(file, 0))
            added = opened.read()
        whole = added[: added.rfind(b"\n") + 1]
        self._read[file] = self._read.get(file, 0) + len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _cost(self, samples: list[Sample], notify: Notify) -> None:
        """The server's CPU since the last time, in cores."""
        if self._sample.at_s == 0.0:
            self._sample = samples[0]
        last, before = samples[-1], self._sample
        if last.at_s - before.at_s >= EVERY_S:
            cores = (last.cpu_s - before.cpu_s) / (last.at_s - before.at_s)
            cost = {"at_s": last.at_s, "server_cpu_cores": cores, "server_memory_bytes": last.memory_bytes}
            notify({"event": "cost", **cost})
            self._sample = last


def second_event(second: Second, part: str) -> Json:
    """A generator's second as an event: counts of that second, response times in microseconds.

    A second in which nothing was completed has no response time.
    """
    times = second.response_time_us
    known = bool(times.count)
    return {
        "event": "second",
        "part": part,
        "at_s": second.second,
        "phase": second.phase,
        "completed": second.completed,
        "failed": second.failed + second.timed_out,
        "p50_us": times.p50 if known else None,
        "p99_us": times.p99 if known else None,
    }
