"""The paths of emulated networks: what was asked of each and what its last calibration measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.store.records import Json


def paths(run: Json) -> list[Json]:
    """Every path of the last calibration of each network of a run, with the points that use it."""
    latest: dict[tuple[int, ...], Json] = {}
    for record in cast("list[Json]", run.get("calibrations") or []):
        latest[tuple(cast("list[int]", record["points"]))] = record
    points = {cast("int", each["number"]): cast("Json", each["setting"]) for each in cast("list[Json]", run["points"])}
    found: list[Json] = []
    for numbers, record in latest.items():
        setting = _common([points[number] for number in numbers if number in points])
        own = {"setting": setting, "backend": record["backend"]}
        found.extend({**path, **own} for path in cast("list[Json]", record["paths"]))
    return found


def _common(settings: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """What the points of one network have in common of its own settings."""
    if not settings:
        return {}
    own = {key: value for key, value in settings[0].items() if key.startswith("network.")}
    return {key: value for key, value in own.items() if all(each.get(key) == value for each in settings)}
