"""The runs of one suite in the order they were made: each figure at each point, with its interval,
and where its level changed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.change_points import LEAST_VALUES, change_points
from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json, TrialRecord

SEED = 1
"""Of the permutations: the same runs show the same changes."""


def find_history(folders: Sequence[RunFolder], suite: str) -> Json:
    """The history of a suite.

    `runs` has a row a run: number, time, build. `series` has a row a figure and point: `values`, a
    list of run, median, low, high and n; `changes`, the runs at which a new level begins. Runs that
    searched, and control points, are left out.
    """
    runs: list[Json] = []
    series: dict[tuple[str, str], Json] = {}
    for folder in folders:
        record = folder.read_run().to_json()
        if cast("Json", record["suite"])["name"] != suite or record.get("search"):
            continue
        runs.append(_run(folder, record))
        for figure, place, value in _values(record, folder.read_trials(), len(runs) - 1):
            key = (str(figure["name"]), place)
            row = series.setdefault(key, {"figure": figure, "at": place, "values": []})
            cast("list[Json]", row["values"]).append(value)
    for row in series.values():
        row["changes"] = _changes(cast("list[Json]", row["values"]))
    return {"suite": suite, "runs": runs, "series": list(series.values()), "least": LEAST_VALUES}


def _run(folder: RunFolder, record: Json) -> Json:
    versions = cast("dict[str, str]", record["versions"])
    return {
        "run": folder.path.name,
        "started_unix_s": record["started_unix_s"],
        "build": f"{versions.get('plimsoll', '')} {versions.get('plimsoll_sha256', '')[:8]}".strip(),
        "environment": record["environment"],
    }


def _values(record: Json, trials: Sequence[TrialRecord], order: int) -> list[tuple[Json, str, Json]]:
    """Each judged figure at each point: figure, point, value."""
    judged = cast("list[str]", cast("Json", record["family"])["figures"])
    figures = {str(each["name"]): each for each in cast("list[Json]", record["figures"])}
    found = []
    for point in cast("list[Json]", record["points"]):
        if point.get("control"):
            continue
        valid = [each for each in trials if each.point == point["number"] and each.outcome == "ok"]
        for name in judged:
            values = [each.figures[name] for each in valid if name in each.figures]
            if values and name in figures:
                place = formatting.setting(cast("Mapping[str, object]", point["setting"])) or "all"
                found.append((figures[name], place, _value(values, order)))
    return found


def _value(values: Sequence[float], order: int) -> Json:
    summary = summarise(values)
    low, high = summary.median_ci95 or (None, None)
    return {"order": order, "median": summary.median, "low": low, "high": high, "n": summary.n}


def _changes(values: Sequence[Json]) -> list[Json]:
    """Where a new level begins, and by how much; on a logarithmic scale, as figures differ by
    factors.
    """
    medians = [cast("float", each["median"]) for each in values]
    if min(medians) <= 0:
        return []
    places = change_points([math.log(each) for each in medians], seed=SEED)
    edges = [0, *places, len(medians)]
    levels = [
        math.exp(math.fsum(math.log(each) for each in medians[start:end]) / (end - start))
        for start, end in itertools.pairwise(edges)
    ]
    return [
        {"order": values[place]["order"], "ratio": after / before}
        for place, before, after in zip(places, levels, levels[1:], strict=False)
    ]
