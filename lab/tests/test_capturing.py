"""What a capture's end leaves in a trial's record."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from plimsoll_lab.hosts.host import Host, Process
from plimsoll_lab.store.records import Json
from plimsoll_lab.trial.capturing import Capture, capture_warnings, in_seconds


class Ended:
    """A capture that has ended, and said this."""

    def __init__(self, code: int, said: str, **summary: object) -> None:
        self._code, self._said = code, said
        self._lines = [json.dumps({"event": "summary", "kernel_drops": 0} | summary)]

    def exit_code(self) -> int:
        """How it ended."""
        return self._code

    def take_lines(self) -> list[str]:
        """What it printed."""
        return self._lines

    def stderr_tail(self) -> str:
        """What it said."""
        return self._said


def record_of(process: Ended) -> Json:
    host = cast("Host", SimpleNamespace(name="h1", interface="h1-eth0"))
    return Capture(host, cast("Process", process), Path("captures/0001.pcapng")).stop()


def test_a_whole_capture_has_its_summary_and_no_warning() -> None:
    record = record_of(Ended(0, "", packets=9))
    assert cast("Json", record["summary"])["packets"] == 9
    assert "partial" not in record
    assert capture_warnings(record) == []


def test_a_long_capture_is_told_by_seconds_and_a_short_one_by_tenths() -> None:
    steps: list[Json] = [{"packets": 3, "flags": {"syn": 1, "ack": number}} for number in range(125)]
    told = in_seconds({"interval_s": 0.1, "packets": 375, "interval": steps})
    assert told is not None
    assert told["interval_s"] == 1.0
    seconds = json.loads(json.dumps(told["interval"]))
    assert [each["packets"] for each in seconds] == [*[30] * 12, 15]
    assert seconds[1]["flags"] == {"syn": 10, "ack": sum(range(10, 20))}
    short: Json = {"interval_s": 0.1, "packets": 297, "interval": steps[:99]}
    assert in_seconds(short) == short
    assert in_seconds(None) is None


def test_figures_of_a_capture_that_failed_midway_stand_apart_from_those_of_trials() -> None:
    said = "plimsoll: cannot write `0001.pcapng`: No space left on device"
    record = record_of(Ended(1, said, packets=5, error="cannot write `0001.pcapng`: No space left on device"))
    assert record["summary"] is None
    assert cast("Json", record["partial"])["packets"] == 5
    [warning] = capture_warnings(record)
    assert warning.code == "capture_failed"
    assert "No space left" in warning.message
