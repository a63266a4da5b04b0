"""What a process has said: JSON lines, and whatever else it printed, which is passed over."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from plimsoll_lab.hosts.host import Host
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.timelines import end_with_a_line
from plimsoll_lab.trial.disturbance import LoggedRequest, read_log


def events(lines: list[str]) -> list[Json]:
    """The events among the lines."""
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):  # brackets within brackets, a thousand deep
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def last_event(lines: list[str], kind: str) -> Json | None:
    """The last event of a kind."""
    return next((event for event in reversed(events(lines)) if event.get("event") == kind), None)


def seconds_of(name: str, records: Path) -> list[Json]:
    """A generator's rows of each second; none where its engine or the suite writes none."""
    file = records / f"{name}.timeseries.jsonl"
    return events(file.read_text(encoding="utf-8").splitlines()) if file.exists() else []


def in_own_time(told: Mapping[str, object], host: Host) -> Json:
    """What a generator on this host told, with its instants (`..unix_s`) by the lab's clock."""
    return {
        key: host.own_time(value) if key.endswith("unix_s") and isinstance(value, int | float) else value
        for key, value in told.items()
    }


def take_log(records: Path, generators: Sequence[str], *, keep: Collection[str]) -> LoggedRequest | None:
    """The requests of all generators together, of the logs that they wrote; None where one wrote
    none. A row that was not written to its end is cut off. The files are removed but for those of
    the generators in `keep`.
    """
    files = [records / f"{name}.request_log.csv" for name in generators]
    found: list[LoggedRequest] = []
    for file in files:
        if not file.exists():
            return None
        end_with_a_line(file)
        first = max((1 + max(each.connections, default=0) for each in found), default=0)
        with file.open(encoding="utf-8", newline="") as lines:
            found.append(read_log(lines, first))
    for name, file in zip(generators, files, strict=True):
        if name not in keep:
            file.unlink()
    return LoggedRequest(
        starts=[start for each in found for start in each.starts],
        times_s=[time_s for each in found for time_s in each.times_s],
        connections=[number for each in found for number in each.connections],
        under_way=[span for each in found for span in each.under_way],
        timed_out=[span for each in found for span in each.timed_out],
    )


def unix_s(event: Json) -> float:
    """When it happened, in seconds since 1970."""
    value = event.get("unix_s")
    return float(value) if isinstance(value, int | float) else time.time()


def held_until(at_unix_s: float, event: Json) -> float | None:
    """Until when a generator keeps its connections up that closed its window at that moment, unless
    it is let go; None where it closes them at once.
    """
    value = event.get("holds_s")
    return at_unix_s + value if isinstance(value, int | float) else None
