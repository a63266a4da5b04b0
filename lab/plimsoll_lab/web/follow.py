"""Follows the events of a run, as they come, until no program works on the run."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json

OFFSET_DIGITS = 18
"""No file's length needs more than 64 bits."""
EVERY_S = 0.25
"""Between two looks at the file."""
SIGN_OF_LIFE_TURNS = 40
"""Looks without an event after which a comment is sent: a browser that is gone is noticed so."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event, and where it ends in the file: a browser that reconnects continues from there."""

    offset: int
    event: Json


def read_events(folder: RunFolder, offset: int = 0) -> list[StoredEvent]:
    """The whole lines behind an offset in bytes; none where the run has no events."""
    try:
        with folder.events.open("rb") as file:
            file.seek(offset)
            added = file.read()
    except FileNotFoundError:
        return []
    found = []
    for line in added.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            break
        offset += len(line)
        # A full disk may have cut a line off, to which the next one is joined.
        with contextlib.suppress(ValueError):
            event: Json = json.loads(line)
            found.append(StoredEvent(offset, event))
    return found


def event_offset(folder: RunFolder, seen: str) -> int:
    """The offset that a browser has seen; the beginning where no event ends there."""
    if not (seen.isascii() and seen.isdigit() and len(seen) <= OFFSET_DIGITS):
        return 0
    offset = int(seen)
    return offset if any(each.offset == offset for each in read_events(folder)) else 0


async def follow(folder: RunFolder, offset: int = 0) -> AsyncIterator[str]:
    """The events as a stream of server-sent events (HTML Living Standard, 9.2).

    The last one is `closed`, with the run's status: `complete`, `interrupted`, `failed`, or
    `killed` where the run's program ended without recording a status.
    """
    silent = 0
    while True:
        # In this order: what a run writes last is there before its lock is gone.
        under_way = folder.is_locked()
        found = read_events(folder, offset)
        for each in found:
            offset = each.offset
            yield message(each.event, offset)
        if not under_way:
            yield message({"event": "closed", "status": folder.status(folder.read_run())}, offset)
            return
        silent = 0 if found else silent + 1
        if silent >= SIGN_OF_LIFE_TURNS:
            silent = 0
            yield ": still there\n\n"
        await asyncio.sleep(EVERY_S)


def message(event: Json, offset: int) -> str:
    """One event on the wire. JSON has no line breaks, which would end it."""
    return f"id: {offset}\ndata: {json.dumps(event)}\n\n"


def tail(events: Sequence[StoredEvent]) -> list[Json]:
    """The events since the run was last begun or resumed."""
    begun = [place for place, each in enumerate(events) if each.event["event"] == "run"]
    return [each.event for each in events[begun[-1] if begun else 0 :]]
