"""What a process has said: JSON lines, and whatever else it printed, which is passed over."""

from __future__ import annotations

import json
import time

from plimsoll_lab.store.records import Json


def events(lines: list[str]) -> list[Json]:
    """The events among the lines."""
    found = []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            found.append(event)
    return found


def last_event(lines: list[str], kind: str) -> Json | None:
    """The last event of a kind."""
    return next((event for event in reversed(events(lines)) if event.get("event") == kind), None)


def unix_s(event: Json) -> float:
    """When it happened, in seconds since 1970."""
    value = event.get("unix_s")
    return float(value) if isinstance(value, int | float) else time.time()
