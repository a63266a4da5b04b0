"""What a forwarder adds to a direct echo, as a sentence of the chapter about port_fwd.

A difference and a ratio are of trials of one block, where the run is there to be read; else of the
points' means, without an interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.reasons import significant
from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.store.records import TrialRecord

TARGET = "load.target"
DIRECT = "server"
"""The part that is asked directly."""
OURS = {"forwarder": "forwarding"}
"""What our own part does; other parts keep their names."""

Json = Mapping[str, Any]


def echo_time(summary: Json) -> str | None:
    """The time of an echo that a run's suite has in its claims or references; none of a suite
    about other figures.
    """
    stated = (each["figure"] for each in (*summary["claims"], *summary["references"]))
    return next((figure for figure in stated if figure.endswith("_time_us.mean")), None)


def relay_of(setting: Json) -> str:
    """The part that the clients of a point ask, without its port; of several targets the first."""
    target = setting.get(TARGET, "")
    first = target if isinstance(target, str) else target[0]
    return str(first).removeprefix("role:").partition(":")[0]


def rest_of(setting: Json) -> str:
    """What else a point is set to, by which it is held against the direct one."""
    return formatting.setting({path: value for path, value in setting.items() if path != TARGET})


def paired_costs(trials: Sequence[TrialRecord], figure: str) -> list[dict[str, Any]]:
    """Of each point behind a relay the time that it adds and how many times the direct echo it
    takes, block by block, by a figure that is a time.
    """
    told = {
        (relay_of(trial.setting), rest_of(trial.setting), trial.block): trial.figures[figure]
        for trial in trials
        if trial.outcome == "ok" and figure in trial.figures
    }
    pairs: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (relay, rest, block), value in told.items():
        direct = told.get((DIRECT, rest, block))
        if relay != DIRECT and direct is not None and min(direct, value) > 0:
            pairs.setdefault((relay, rest), []).append((value, direct))
    found = []
    for (relay, rest), each in pairs.items():
        added = summarise([value - direct for value, direct in each])
        times = summarise([math.log(value / direct) for value, direct in each])
        found.append(
            {
                "relay": relay,
                "rest": rest,
                "added_us": [added.mean, *(added.mean_ci95 or ())],
                "times": [math.exp(number) for number in (times.mean, *(times.mean_ci95 or ()))],
            }
        )
    return found


def sentence(summary: Json) -> str:
    """What each relay costs at the most connections at which it and the direct echo have a
    result; empty of a suite that has no direct echo.
    """
    points = [point for point in summary["points"] if TARGET in point["point"]]
    figure = echo_time(summary)
    if figure is None or DIRECT not in {relay_of(point["point"]) for point in points}:
        return ""
    points = [{**point, "echo": point["figures"].get(figure)} for point in points]
    return " ".join(_of_size(points, summary.get("costs", ()), size) for size in _sizes(points))


def _sizes(points: Sequence[Json]) -> list[object]:
    """The sizes of messages, where the suite varies them."""
    return list(dict.fromkeys(point["point"].get("load.size") for point in points))


def _of_size(points: Sequence[Json], costs: Sequence[Json], size: object) -> str:
    here = [point for point in points if point["point"].get("load.size") == size]
    relays = dict.fromkeys(relay_of(point["point"]) for point in here)
    parts = [_cost(relay, here, costs) for relay in relays if relay != DIRECT]
    said = "; ".join(parts)
    where = f"{size}: " if size is not None else ""
    return f"{where}{said[:1].upper()}{said[1:]}." if not where else f"{where}{said}."


def _cost(relay: str, points: Sequence[Json], costs: Sequence[Json]) -> str:
    who = OURS.get(relay, relay)
    own = [point for point in points if relay_of(point["point"]) == relay]
    told = [(point, direct) for point in own for direct in _direct(point, points) if _told(point) and _told(direct)]
    if not told:
        reasons = [point["reason"] for point in own if point.get("reason")]
        return f"{who} has no result beside a direct one" + (f" ({reasons[-1]})" if reasons else "")
    point, direct = max(told, key=lambda each: int(each[0]["point"]["load.connections"]))
    count = int(point["point"]["load.connections"])
    paired = [each for each in costs if (each["relay"], each["rest"]) == (relay, rest_of(point["point"]))]
    if paired:
        added, times = paired[0]["added_us"], paired[0]["times"]
    else:
        value, beside = (each["echo"]["mean"] for each in (point, direct))
        added, times = [value - beside], [value / beside]
    said = f"{who} costs {_with_interval(added)} us and {_with_interval(times)} times the direct echo"
    failed = [each for each in own if int(each["point"]["load.connections"]) > count and each["outcome"] != "ok"]
    beyond = f", and has no result beyond ({failed[-1]['reason']})" if failed else ""
    few = [*_few("direct", direct), *_few(relay, point)]
    told_by = f" (told by {formatting.listed(few)} alone)" if few else ""
    return f"{said} at {count:,} connections{told_by}{beyond}"


def _few(which: str, point: Json) -> list[str]:
    """How many trials of a point tell their time, where not all with a result do: the rest may be
    the slowest.
    """
    valid = point["valid_n"]
    told = point["echo"].get("n", valid)
    return [f"{told} of {valid} {which} trials"] if told < valid else []


def _direct(point: Json, points: Sequence[Json]) -> Iterator[Json]:
    rest = rest_of(point["point"])
    return (each for each in points if relay_of(each["point"]) == DIRECT and rest_of(each["point"]) == rest)


def _told(point: Json) -> bool:
    return point["outcome"] == "ok" and point["echo"] is not None


def _with_interval(numbers: Sequence[float]) -> str:
    mean, *ends = (significant(each) for each in numbers)
    return f"{mean} [{', '.join(ends)}]" if ends else mean
