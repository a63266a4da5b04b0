"""What a run's searches have found: a sentence for each server, who carries most, and what broke
first.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.best import Question, Value
from plimsoll_lab.store.records import Json

UNITS = {"connections": "connections", "rate": "requests/s"}
OPEN = ("planned", "interrupted")
"""States of a search that has not ended."""
BEYOND_WIDTH = 1.25
"""The precision is an estimate; one beyond this many times the width is worth saying."""
LIMITERS = {"generator": "the generator was the limit", "environment": "the machine was the limit"}


def describe_searches(run: Json) -> list[Json]:
    """One entry for each point of the matrix: its capacity over the repeated searches."""
    groups: dict[str, list[Json]] = {}
    for each in cast("list[Json]", run.get("searches") or []):
        groups.setdefault(str(each["point"]), []).append(each)
    return [_capacity(run, group) for group in groups.values()]


def over(run: Json) -> str:
    """What was varied: `connections` or `rate`."""
    return cast("str", cast("Json", run["search"])["over"]).partition(".")[2]


def limits_text(run: Json) -> str:
    """The limits in one line."""
    return " and ".join(cast("str", limit["text"]) for limit in cast("list[Json]", run["limits"]))


def _capacity(run: Json, group: Sequence[Json]) -> Json:
    ended = [each for each in group if each["state"] not in OPEN]
    lowers = [cast("int", each["lower"]) for each in ended if each["lower"] is not None]
    uppers = [cast("int", each["upper"]) for each in ended if each["upper"] is not None]
    # Whole bounds that were really measured: of an even number of searches the lower of the two
    # middle ones.
    lower = statistics.median_low(lowers) if lowers and len(lowers) == len(ended) else None
    upper = statistics.median_high(uppers) if uppers and len(uppers) == len(ended) else None
    limiters = [cast("str", each["limited_by"]) for each in ended if each["limited_by"]]
    limited_by = statistics.mode(limiters) if limiters else None
    breaks = [text for each in ended if (text := first_break(cast("Json | None", each["broke"])))]
    precisions = [cast("float", each["precision"]) for each in ended if each.get("precision") is not None]
    confirmed = [each for each in ended if each.get("confirmed")]
    found: Json = {
        "held_s": statistics.median_low([cast("float", each["held_s"]) for each in confirmed]) if confirmed else 0.0,
        "point": group[0].get("setting") or {},
        "searches": len(group),
        "precision": max(precisions, default=None),
        "failed": any(each["state"] == "failed" for each in group),
        "ended": len(ended),
        "finished": all(each["state"] == "complete" for each in group),
        "lower": lower,
        "upper": upper,
        "lowers": lowers,
        "uppers": uppers,
        "spread": (max(lowers) - min(lowers)) / statistics.median(lowers) if len(lowers) > 1 else None,
        "limited_by": limited_by,
        "first_break": breaks[len(breaks) // 2] if breaks else None,
        "causes": _causes(ended),
        "generator_ceiling_per_s": next((each["generator_ceiling_per_s"] for each in ended), None),
    }
    return found | {"text": say(run, found, group)}


def capacity_family(run: Json, compare: str) -> list[Question]:
    """Who carries most, at each setting of the other axes; a search that the server did not end is
    no result. A capacity is the interval between its bounds.
    """
    places: dict[str, list[Json]] = {}
    for each in cast("list[Json]", run["searches"]):
        setting = cast("Json", each.get("setting") or {})
        if compare in setting:
            at = {path: value for path, value in setting.items() if path != compare}
            places.setdefault(repr(at), []).append(each)
    return [_question(here, compare) for here in places.values()]


def _question(here: Sequence[Json], compare: str) -> Question:
    setting = cast("Json", here[0]["setting"])
    names = list(dict.fromkeys(formatting.value(cast("Json", each["setting"])[compare]) for each in here))
    contenders: dict[str, dict[int, Value]] = {}
    for each in here:
        if each["state"] == "complete" and each["limited_by"] == "server" and each["lower"] is not None:
            name = formatting.value(cast("Json", each["setting"])[compare])
            upper = cast("int | None", each["upper"])
            bounds = (float(cast("int", each["lower"])), math.inf if upper is None else float(upper))
            contenders.setdefault(name, {})[cast("int", each["block"])] = bounds
    return Question(
        figure="capacity",
        better="higher",
        at={path: value for path, value in setting.items() if path != compare},
        contenders=contenders,
        absent=tuple(name for name in names if name not in contenders),
    )


def first_break(broke: Json | None) -> str | None:
    """What broke first, in words."""
    if broke is None:
        return None
    causes = [cast("str", each["text"]) for each in cast("list[Json]", broke["causes"])]
    near = [cast("str", broke["near_ceiling"])] if broke.get("near_ceiling") else []
    return "; ".join([cast("str", broke["missed"]), *causes, *near])


def _causes(ended: Sequence[Json]) -> list[str]:
    codes = [
        cast("str", cause["code"])
        for each in ended
        if each["broke"]
        for cause in cast("list[Json]", cast("Json", each["broke"])["causes"])
    ]
    return list(dict.fromkeys(codes))


def say(run: Json, found: Json, group: Sequence[Json]) -> str:
    """The answer, in one sentence."""
    unit, limits = UNITS[over(run)], limits_text(run)
    floor = cast("int", cast("Json", run["search"])["lowest"])
    lower, upper = cast("int | None", found["lower"]), cast("int | None", found["upper"])
    refusal = next((str(each["reason"]) for each in group if each["state"] == "failed"), None)
    if refusal is not None:
        return f"{_subject(run, found)} was not measured: {refusal}"
    if not found["ended"]:
        return f"{_subject(run, found)}: {_so_far(group[0], unit)}"
    near = _nearness(run, found)
    if lower is None and upper is None:
        carries = f"is not decided: its searches ended before {floor:,} {unit} had been"
    elif lower is None and found["finished"]:
        carries = f"carries less than {floor:,} {unit}"
    elif lower is None:
        carries = f"carries less than {upper:,} {unit}; the search ended before it knew how much less"
    elif upper is None and found["finished"]:
        carries = f"carries at least {lower:,} {unit}, the most that was tried"
    elif upper is None:
        carries = f"carries at least {lower:,} {unit}; the search ended before it knew how much more"
    else:
        carries = f"carries {lower:,} {unit}"
        carries += "" if found["finished"] else ", as near as the search came before it ended"
    lowers = cast("list[int]", found["lowers"])
    spread = f" (median of {len(lowers)} searches, {min(lowers):,} to {max(lowers):,})" if len(lowers) > 1 else ""
    held = cast("float", found["held_s"])
    carries += f", held for {formatting.duration(held).removeprefix('about ')}" if lower is not None and held else ""
    carries += near
    broke = f"; what breaks first: {found['first_break']}" if found["first_break"] else ""
    by = LIMITERS.get(str(found["limited_by"]))
    return f"{_subject(run, found)} {carries}{spread}, with {limits}{broke}{f'; {by}' if by else ''}"


def _nearness(run: Json, found: Json) -> str:
    """How near the answer is, where its trials could not be as long as the width asks for."""
    width = cast("float", cast("Json", run["search"])["width"])
    precision = cast("float | None", found["precision"])
    if found["lower"] is None or precision is None or precision <= BEYOND_WIDTH * width:
        return ""
    if precision >= 1:
        return ", of unknown precision: the limits vary more between trials than between loads"
    return f", known to within {precision:.0%}: nearer bounds take longer trials, and more patience"


def _so_far(search: Json, unit: str) -> str:
    lower, upper = cast("int | None", search.get("lower")), cast("int | None", search.get("upper"))
    known = [f"at least {lower:,}" if lower is not None else "", f"less than {upper:,}" if upper is not None else ""]
    said = " and ".join(each for each in known if each)
    return f"interrupted; until then it was seen to carry {said} {unit}" if said else "interrupted before any bound"


def _subject(run: Json, found: Json) -> str:
    setting = cast("Mapping[str, object]", found["point"])
    if setting:
        return formatting.setting(setting)
    return str(cast("Json", run["search"]).get("subject") or "the server")
