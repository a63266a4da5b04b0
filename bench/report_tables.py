"""The tables of a chapter: points, claims, what the document states, processes, what stopped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kept import DRAWN, TABLED, dots, figures_of, is_at, is_of_a_client, label, number, theirs
from report_plots import THEIRS, shown

from plimsoll_lab.analysis import formatting
from plimsoll_lab.suite.figures import figure_named

NAMED = 6
"""Of more points than this, one is named."""

Json = Mapping[str, Any]


def point_table(summary: Json) -> list[str]:
    """Every point: ours, and theirs in brackets where the document has the figure."""
    figures = list(dict.fromkeys([*figures_of(summary), *TABLED.get(summary["suite"], ())]))
    figures = [each for each in figures if not is_of_a_client(each)]
    # A run that was kept before a figure was asked for has none of it.
    figures = [each for each in figures if any(each in point["figures"] for point in summary["points"])] or figures[:1]
    scales = [shown(figure, [each["value"] for each in dots(summary, figure, None)]) for figure in figures]
    heads = [words for _, words in scales]
    lines = ["| point | " + " | ".join(heads) + " | trials |", "|---|" + "---|" * (len(figures) + 1)]
    for point in summary["points"]:
        cells = []
        for figure, (factor, _) in zip(figures, scales, strict=True):
            found = point["figures"].get(figure)
            others = [
                number(factor * value) + who.removeprefix(THEIRS)
                for who, value in theirs(summary, figure, point["point"]).items()
            ]
            cells.append(
                number(factor * found["mean"] if found else None)
                + (spread_of(found, factor) if found else "")
                + (of_fewer(found, point["valid_n"]) if found else "")
                + ("?" if found and point.get("doubtful") else "")
                + (f" ({'; '.join(others)})" if others else "")
            )
        if point["outcome"] != "ok":
            cells[0] += f" {point['outcome']}"
        lines.append(f"| {label(point['point'])} | {' | '.join(cells)} | {point['valid_n']}/{point['n']} |")
    return [*lines, ""]


def of_fewer(found: Json, results: int) -> str:
    """How many trials tell a figure, where not all with a result do."""
    told = found.get("n", results)
    return f" (of {told})" if told < results else ""


def spread_of(found: Json, factor: float) -> str:
    """The standard deviation, the median and its interval; nothing where all trials agree."""
    if not found.get("stdev"):
        return ""
    interval = found.get("median_ci95")
    within = f" [{', '.join(number(factor * end) for end in interval)}]" if interval else ""
    median = f"; {number(factor * found['median'])}{within}" if "median" in found else ""
    return f" ± {number(factor * found['stdev'])}{median}"


def claim_table(summary: Json) -> list[str]:
    """Every claim with its outcome; those of the suite of today that the run was not asked are
    open.
    """
    still_open = summary.get("open_claims", ())
    if not summary["claims"] and not still_open:
        return []
    lines = ["| claim | stated range | found, 95 % | outcome | free |", "|---|---|---|---|---|"]
    for each in summary["claims"]:
        interval = each["interval"]
        within = f" [{', '.join(map(number, interval))}]" if interval else ""
        found = each["reason"] if each["value"] is None else f"{number(each['value'])}{within}"
        # What the outcome says is not said twice; how many blocks tell it is.
        reason = each["reason"] or ""
        further = reason if each["outcome"] == "cannot be told" else reason.partition("; ")[2]
        if each["value"] is not None and further:
            found += f"; {further}"
        later = "asked after the run" if each.get("asked_later") else None
        free = "; ".join(filter(None, (each["free"], later)))
        lines.append(f"| {each['name']} | {each['expect']} | {found} | **{each['outcome']}** | {free} |")
    lines += [
        f"| {each.name} | {each.expect} | this run was not asked | **open** | {each.free} |" for each in still_open
    ]
    return [*lines, ""]


def open_points(summary: Json) -> list[str]:
    """The points of the suite of today that the run has not."""
    lacking = summary.get("open_points", ())
    if len(lacking) > NAMED:
        return [f"This run has none of {len(lacking)} points of the suite, such as {lacking[0]}.", ""]
    return [f"Points of the suite that this run has not: {'; '.join(lacking)}.", ""] if lacking else []


def reference_table(summary: Json) -> list[str]:
    """All that the document states of points, where it states more than the table of points can
    show.
    """
    if summary["suite"] not in DRAWN:
        return []
    lines = ["| the document | figure | theirs | ours | remark |", "|---|---|---|---|---|"]
    for each in summary["references"]:
        if is_of_a_client(each["figure"]):
            continue
        here = [point for point in summary["points"] if is_at(point["point"], each["at"])]
        own = here[0]["figures"].get(each["figure"]) if len(here) == 1 and here[0]["outcome"] == "ok" else None
        known = figure_named(each["figure"])
        unit = known.unit if known is not None else "count"
        about = f"{known.label if known is not None else each['figure']}, {label(each['at'])}"
        both = f"{_written(each['value'], unit)} | {_written(own['mean'], unit) if own else '-'}"
        lines.append(f"| {each['source']} | {about} | {both} | {each.get('text', '')} |")
    return ["Each figure that the document states:", "", *lines, ""]


def _written(value: float, unit: str) -> str:
    """A figure with its unit; of a count every digit."""
    return f"{value:,.0f}" if unit == "count" else formatting.number(value, unit)


def process_table(summary: Json) -> list[str]:
    """The server's processes, as the document has them in a table of top(1)."""
    told = summary.get("processes")
    if not told:
        return []
    listed = told["listed"]
    share = 100 * sum(each["cpu_cores"] for each in listed)
    in_all = 100 * told["cpu_cores"]
    said = f"{len(listed)} of the {told['seen']} processes of the server that were seen"
    used = f"used {share:.1f} % of a CPU together, and the server in all {in_all:.1f} %"
    known = "Of each is known what it had used as it was seen last, in whole clock ticks of 10 ms"
    lines = [
        f"Of the first trial at {told['point']}: {said} {used}. {known}.",
        "",
        "| PID | %CPU | command |",
        "|---|---|---|",
        *(f"| {each['pid']} | {100 * each['cpu_cores']:.1f} | {each['name']} |" for each in listed),
    ]
    return [*lines, ""]


def stopped(summary: Json) -> list[str]:
    """What has no result, and why."""
    lost = [point for point in summary["points"] if point["outcome"] not in {"ok", None}]
    lines = [f"- {label(point['point'])}: {point['outcome']}: {point['reason']}" for point in lost]
    return ["What stopped it:", "", *lines, ""] if lines else []
