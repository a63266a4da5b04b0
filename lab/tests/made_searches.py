"""Runs of searches as short as they may be."""

from __future__ import annotations

from collections.abc import Sequence

from made_records import run_record

from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.search_record import SearchRecord, SearchSettingsRecord

FLOOR, MOST = 100, 10_000

Bounds = tuple[int | None, int | None]


def run_of(bounds: Sequence[Bounds]) -> RunRecord:
    run = run_record()
    run.search = SearchSettingsRecord(over="load.connections", lowest=FLOOR, highest=MOST)
    run.searches = [
        SearchRecord(
            number=block,
            block=block,
            point=0,
            state="complete",
            setting={"server.model": "epoll"},
            lower=lower,
            upper=upper,
            is_held=lower is not None,
            limited_by="server",
        )
        for block, (lower, upper) in enumerate(bounds, start=1)
    ]
    return run
