"""What documents claim, beside what a run found.

A claim is *confirmed* where the whole interval of what was measured lies in the claimed range,
*contradicted* where it lies wholly outside, and *cannot be told* where it does neither. Where one
of its points has no result it is *not reachable here*, with what stopped it. A figure itself, such
as a time, belongs to its hardware: inside the range it is *other hardware*, never confirmed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.stats.summary import summarise
from plimsoll_lab.store.records import Json, TrialRecord

CONFIRMED, CONTRADICTED = "confirmed", "contradicted"
UNTOLD, UNREACHED, ELSEWHERE = "cannot be told", "not reachable here", "other hardware"

Series = Mapping[int, float]
"""A figure by block."""


def judge_claims(run: Json, points: Sequence[Json], trials: Sequence[TrialRecord]) -> list[Json]:
    """Every claim of a run's suite, with its outcome."""
    found = []
    for claim in cast("list[Json]", run.get("claims") or []):
        told = {key: claim[key] for key in ("name", "source", "figure", "at", "over", "against", "expect", "free")}
        found.append({**told, **_judge(claim, points, trials)})
    return found


def hold_references(run: Json, points: Sequence[Json]) -> list[Json]:
    """Each figure of a document beside ours at that point, and ours as a multiple of theirs."""
    found = []
    for reference in cast("list[Json]", run.get("references") or []):
        here = _matching(points, cast("Json", reference["at"]))
        figures = cast("Json", here[0]["figures"]) if len(here) == 1 and here[0]["outcome"] == "ok" else {}
        summary = cast("Json | None", figures.get(cast("str", reference["figure"])))
        ours = cast("float", summary["mean"]) if summary else None
        ratio = ours / cast("float", reference["value"]) if ours is not None and reference["value"] else None
        found.append({**reference, "ours": ours, "ratio": ratio})
    return found


def decide_claim(interval: tuple[float, float] | None, least: float, most: float, *, portable: bool) -> str:
    """The outcome of a claim whose points all have results."""
    if interval is None:
        return UNTOLD
    # No figure is below zero, though Student's interval may be.
    low, high = max(0.0, interval[0]), interval[1]
    if high < least or low > most:
        return CONTRADICTED
    if low < least or high > most:
        return UNTOLD
    return CONFIRMED if portable else ELSEWHERE


def _judge(claim: Json, points: Sequence[Json], trials: Sequence[TrialRecord]) -> Json:
    places = [claim["at"], claim["over"], *cast("list[object]", claim["against"] or [])]
    series = []
    for place in (each for each in places if each is not None):
        here = _matching(points, cast("Json", place))
        why = _unreached(here)
        values = {} if why else _series(here[0], trials, cast("str", claim["figure"]))
        if not values:
            return _answer(UNREACHED, None, None, why or "no trial of this point has the figure")
        series.append(values)
    value, interval = _value(series)
    least, most = cast("float", claim["least"]), cast("float | None", claim["most"])
    outcome = decide_claim(interval, least, math.inf if most is None else most, portable=bool(claim["portable"]))
    reasons = {
        CONFIRMED: "the whole interval lies in the claimed range",
        CONTRADICTED: "the whole interval lies outside the claimed range",
        ELSEWHERE: "it lies in the claimed range, and such a figure belongs to its hardware",
        UNTOLD: "the interval reaches beyond the claimed range"
        if interval is not None
        else "one repetition has no interval",
    }
    return _answer(outcome, value, interval, reasons[outcome])


def _value(series: Sequence[Series]) -> tuple[float, tuple[float, float] | None]:
    """The figure, or the ratio or ratio of ratios, with its interval of 95 % (Student's t; of
    ratios, over logarithms).

    Blocks pair what is compared, so what disturbs a whole block cancels out.
    """
    if len(series) == 1:
        summary = summarise(list(series[0].values()))
        return summary.mean, summary.mean_ci95
    common = set.intersection(*(set(each) for each in series))
    signs = (1, -1, -1, 1)
    logs = [
        sum(sign * math.log(each[block]) for sign, each in zip(signs, series, strict=False))
        for block in sorted(common)
        if all(each[block] > 0 for each in series)
    ]
    if not logs:
        return math.nan, None
    summary = summarise(logs)
    interval = summary.mean_ci95
    return math.exp(summary.mean), (math.exp(interval[0]), math.exp(interval[1])) if interval else None


def _matching(points: Sequence[Json], place: Mapping[str, object]) -> list[Json]:
    return [
        point
        for point in points
        if all(cast("Json", point["point"]).get(path) == value for path, value in place.items())
    ]


def _unreached(here: Sequence[Json]) -> str | None:
    if not here:
        return "no such point was measured in this run"
    if len(here) > 1:
        return f"{len(here)} points of this run agree with it; the claim has to name one"
    if here[0]["outcome"] != "ok":
        return f"{str(here[0]['outcome'] or 'not measured').replace('_', ' ')}: {here[0]['reason']}"
    return None


def _series(point: Json, trials: Sequence[TrialRecord], figure: str) -> Series:
    return {
        trial.block: trial.figures[figure]
        for trial in trials
        if trial.point == point["number"] and trial.outcome == "ok" and figure in trial.figures
    }


def _answer(outcome: str, value: float | None, interval: tuple[float, float] | None, reason: str) -> Json:
    finite = None if value is None or math.isnan(value) else value
    return {"outcome": outcome, "value": finite, "interval": interval, "reason": reason}
