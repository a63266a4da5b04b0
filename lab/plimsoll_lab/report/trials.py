"""What the figures rest on: trials left out or made again, with their reasons, and every summary in full."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.records import Json


def left_out_section(rows: Sequence[Json]) -> str:
    """The section of the page; empty where every trial is a result at its first attempt."""
    if not rows:
        return ""
    lines = []
    for row in rows:
        discarded = cast("list[Json]", row["discarded"])
        again = "; ".join(f"{_outcome(each['outcome'])}: {each['reason']}" for each in discarded)
        made = f"made {len(discarded) + 1} times; discarded: {again}" if discarded else ""
        cells = (
            str(row["trial"]),
            formatting.setting(cast("Json", row["point"])),
            "a result" if row["outcome"] == "ok" else _outcome(row["outcome"]),
            "; ".join(str(each) for each in (row["reason"], made) if each),
        )
        lines.append(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>")
    head = "<thead><tr><th>trial</th><th>point</th><th>outcome</th><th>reason</th></tr></thead>"
    return (
        f"<details><summary>{len(rows)} trials were left out, or made again</summary>"
        f"<div class='scroll'><table>{head}<tbody>{''.join(lines)}</tbody></table></div></details>"
    )


def summaries_section(summary: Json, figures: Mapping[str, Json]) -> str:
    """Every summary of every figure that a verdict or a limit looks at, in full."""
    shown = dict.fromkeys(
        name
        for point in cast("list[Json]", summary["points"])
        for name in cast("dict[str, Json]", point["figures"])
        if name in figures
    )
    tables = "".join(_summaries(name, figures[name], cast("list[Json]", summary["points"])) for name in shown)
    return f"<details><summary>Every summary in full</summary>{tables}</details>" if tables else ""


def _summaries(name: str, figure: Json, points: Sequence[Json]) -> str:
    unit = cast("str", figure["unit"])
    rows = []
    for point in points:
        found = cast("dict[str, Json]", point["figures"]).get(name)
        if found is None:
            continue
        cells = (
            formatting.setting(cast("Json", point["point"])),
            f"{found['n']} of {point['n']}",
            formatting.number(cast("float", found["mean"]), unit),
            formatting.number(cast("float | None", found["stdev"]), unit),
            formatting.number(cast("float | None", found["cv"]), "ratio"),
            _interval(found["mean_ci95"], unit),
            formatting.number(cast("float", found["median"]), unit),
            _interval(found["median_ci95"], unit),
            _interval((found["least"], found["greatest"]), unit),
        )
        rows.append(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in cells)}</tr>")
    names = (
        "point", "n", "mean", "standard deviation", "coefficient of variation", "mean, 95 % (Student's t)", "median",
        "median, 95 % (order statistics)", "range",
    )  # fmt: skip
    head = f"<thead><tr>{''.join(f'<th>{each}</th>' for each in names)}</tr></thead>"
    title = f"<caption>{html.escape(str(figure['label']))}</caption>"
    return f"<div class='scroll'><table class='scores'>{title}{head}<tbody>{''.join(rows)}</tbody></table></div>"


def _interval(interval: object, unit: str) -> str:
    if interval is None:
        return "-"
    low, high = cast("tuple[float, float]", interval)
    return f"{formatting.number(low, unit)} to {formatting.number(high, unit)}"


def _outcome(outcome: object) -> str:
    return str(outcome).replace("_", " ")
