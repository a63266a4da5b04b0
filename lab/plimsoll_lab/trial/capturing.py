"""`capture = true`: the packets of the server's host over a trial, into a file, and what they come
to.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from plimsoll_lab.hosts.host import Host, Process
from plimsoll_lab.problem import ENVIRONMENT, LabError
from plimsoll_lab.store.records import Json, ResultWarning
from plimsoll_lab.suite.placement import CAPTURE
from plimsoll_lab.trial.events import events, last_event
from plimsoll_lab.trial.validity import ending

READY_S = 30.0
"""Against hanging: opening the packet socket takes milliseconds."""
STOP_S = 10.0
"""What is with the kernel is waited for, then the file is closed."""
STEP_S = 0.1
"""Of a short run the length of an interval."""
LONG_S = 10.0
"""From this length on intervals are seconds: a tenth of the numbers."""


class Capture:
    """A capture under way on one host."""

    def __init__(self, host: Host, process: Process, file: Path) -> None:
        self.host, self.process, self.file = host, process, file

    def stop(self) -> Json:
        """End it; the record of what it saw."""
        code = self.process.exit_code()
        if code is None:
            code = self.process.stop(grace_s=STOP_S)
        summary = last_event(self.process.take_lines(), "summary")
        record: Json = {"host": self.host.name, "interface": self.host.interface, "file": self.file.name}
        record |= {"exit_code": code, "stderr_tail": self.process.stderr_tail(), "summary": in_seconds(summary)}
        if summary is not None and "error" in summary:
            # Its figures are of a part of the trial, and so figures of no trial.
            record |= {"summary": None, "partial": summary}
        return record


@contextlib.contextmanager
def capturing(host: Host, binary: str, file: Path) -> Iterator[Capture]:
    """Capture from here on; it is ready once this is entered."""
    there = f"{host.records}/{file.name}" if host.records is not None else str(file)
    command = [
        host.program(binary),
        "capture",
        "-i",
        host.interface,
        "-w",
        there,
        "--interval",
        f"{STEP_S:g}s",
        "--json",
    ]
    with host.start(command, role=CAPTURE, metered=True) as process:
        deadline = time.monotonic() + READY_S
        while not any(event.get("event") == "ready" for event in events(process.take_lines())):
            code = process.exit_code()
            if code is not None or time.monotonic() > deadline:
                why = f"no answer within {READY_S:g} s"
                if code is not None:
                    why = ending(code, process.stderr_tail(), lacked_memory=process.lacked_memory())
                raise LabError(f"cannot capture packets on {host.name}: {why}", exit_code=ENVIRONMENT)
            host.wait([process], 1.0)
        yield Capture(host, process, file)


def in_seconds(summary: Json | None) -> Json | None:
    """The summary of a capture; of a long one with an interval a second."""
    steps, size = (summary or {}).get("interval"), round(1 / STEP_S)
    if summary is None or summary.get("interval_s") != STEP_S or not isinstance(steps, list):
        return summary
    if len(steps) * STEP_S < LONG_S:
        return summary
    seconds = [_sum(steps[place : place + size]) for place in range(0, len(steps), size)]
    return summary | {"interval_s": 1.0, "interval": seconds}


def _sum(steps: Sequence[Mapping[str, Any]]) -> Json:
    """The counts of several intervals together."""
    found: Json = {}
    for key in dict.fromkeys(key for step in steps for key in step):
        own = [step[key] for step in steps if key in step]
        found[key] = _sum(own) if isinstance(own[0], dict) else sum(own)
    return found


def capture_warnings(record: Json) -> list[ResultWarning]:
    """A capture with gaps, or none at all."""
    summary = record["summary"]
    if not isinstance(summary, dict):
        what = str(record["stderr_tail"]) or f"exit code {record['exit_code']}"
        return [
            ResultWarning(code="capture_failed", message=f"the capture ended early: {what}", remedy="look at the disk")
        ]
    drops = summary.get("kernel_drops") or 0
    if not drops:
        return []
    message = f"the capture on {record['host']} missed {drops} packets: its retransmissions and gaps are not all real"
    return [ResultWarning(code="capture_drops", message=message, remedy="a lighter load, or a machine with more CPUs")]
