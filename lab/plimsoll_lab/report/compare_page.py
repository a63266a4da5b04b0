"""Two builds side by side: what differs in their environments first, then every figure with its
change, interval and verdict, a forest plot, and the percentile curves over each other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.comparison import compare_runs, place_of
from plimsoll_lab.analysis.percentiles import curves
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.comparison import answer_of
from plimsoll_lab.report.drawing import draw
from plimsoll_lab.report.encoding import MatrixLayout
from plimsoll_lab.report.forest import ForestRow, forest
from plimsoll_lab.report.percentile_charts import percentile_charts
from plimsoll_lab.report.plain_page import Plain, render_plain
from plimsoll_lab.report.view import Cell, Drawing, Fold, Gallery, Part, Section, Table, Text
from plimsoll_lab.store.comparison_summary import ComparisonSummary
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.suite.figures import Figure

SIDES = ("A", "B")
EVER_CHANGING = {"load_average"}
"""What differs between any two runs: it describes a moment, not an environment."""
WIDTH = 310
"""Pixels of the forest plot: a still picture, which a phone shows whole."""
DIGEST = re.compile(r"[0-9a-f]{40,}")
DIGITS = 12
"""Of a digest: enough to distinguish two builds."""
MOST_CURVES = 12
"""Settings whose curves are drawn; the table has every figure of the rest."""


def _name(folder: RunFolder, every: Mapping[str, int]) -> str:
    """A run's number; with its path where another one has it too."""
    name = folder.path.resolve().name
    return name if every[name] == 1 else str(folder.path)


def render_compare_page(a: Sequence[RunFolder], b: Sequence[RunFolder], links: Sequence[tuple[str, str]] = ()) -> str:
    """The page of the runs of B beside those of A."""
    compared = compare_runs(a, b)
    record = b[0].read_run()
    figures = record.figures_by_name
    every = Counter(each.path.resolve().name for each in (*a, *b))
    names = [", ".join(_name(each, every) for each in side) for side in (a, b)]
    sections = [
        _environment(a[0].read_run(), record, compared),
        _figures(compared, figures),
        _forest(compared, figures),
        _curves(a[0], b[0]),
    ]
    return render_plain(
        Plain(
            title=f"{names[0]} and {names[1]}",
            line=f"{record.suite.name} · A is run {names[0]}, B is run {names[1]}",
            question="Is B worse than A?",
            answer=[answer_of(compared) + "."],
            contenders=SIDES,
            sections=[each for each in sections if each.parts],
            links=links,
        )
    )


def _environment(a: RunRecord, b: RunRecord, compared: ComparisonSummary) -> Section:
    """What differs, before any figure: a difference of machines is no difference of builds."""
    sides = [{**each.versions, **each.environment.to_json()} for each in (a, b)]
    names = (name for name in dict.fromkeys([*sides[0], *sides[1]]) if name not in EVER_CHANGING)
    differing = [name for name in names if sides[0].get(name) != sides[1].get(name)]
    parts: list[Part] = [Text(text=f"Not comparable: {each}.") for each in compared.not_comparable]
    if differing:
        told = {name: formatting.facts([side.get(name) for side in sides]) for name in differing}
        parts.append(_differing("What differs", {name: [_short(each) for each in own] for name, own in told.items()}))
        digests = {name: own for name, own in told.items() if any(DIGEST.fullmatch(each) for each in own)}
        if digests:
            parts.append(Fold(title="The digests in full", parts=(_differing("Digests", digests),)))
    else:
        parts.append(Text(text="Machine, settings and versions of both are the same."))
    parts += [Text(text=f"{each.message}; {each.remedy}.") for each in compared.warnings]
    return Section(name="environment", title="What differs in the environment", parts=parts)


def _differing(caption: str, told: Mapping[str, Sequence[str]]) -> Table:
    rows = tuple(
        (Cell(text=name.replace("_", " "), heading=True), *(Cell(text=each) for each in own))
        for name, own in told.items()
    )
    return Table(caption=caption, head=("", *SIDES), rows=rows)


def _short(text: str) -> str:
    return f"{text[:DIGITS]}…" if DIGEST.fullmatch(text) else text


def _figures(compared: ComparisonSummary, figures: Mapping[str, Figure]) -> Section:
    rows = []
    verdicts = compared.verdicts
    counts = Counter(each.reason for each in verdicts)
    shared = [reason for reason, count in counts.items() if count > 1]
    alike = shared[0] if len(shared) == len(counts) == 1 else ""
    for each in verdicts:
        ratio, interval, call = each.ratio, each.ratio_ci95, each.call
        label = figures[each.figure].label
        told = f"{each.winner} better" if call == "better" else call
        tone = "failed" if call == "better" and each.winner == "A" else call.replace(" ", "-")
        rows.append(
            (
                Cell(text=label, detail=f"{each.better} is better", heading=True),
                Cell(text=formatting.setting(each.at)),
                Cell(text="-" if ratio is None else formatting.change(ratio)),
                Cell(text="-" if interval is None else " to ".join(map(formatting.change, interval))),
                Cell(text="", badge=told, tone=tone, detail="" if alike else _reason(each.reason, shared)),
            )
        )
    parts: list[Part] = [
        Text(text=f"Lost: at {formatting.setting(each.point)} A has a result and B has none: "
             f"{each.reason}.")
        for each in compared.lost
    ]  # fmt: skip
    if alike:
        parts.append(Text(text=f"Of every figure: {alike}."))
    else:
        parts += [Text(text=f"Reason {number}: {reason}.") for number, reason in enumerate(shared, 1)]
    if rows:
        head = ("figure", "at", "B against A", "95 % interval", "verdict")
        parts.append(Table(caption="Every figure", head=head, rows=tuple(rows)))
    return Section(
        name="figures",
        title="Figures",
        note="The change is B over A, of the geometric means of the runs' medians. All verdicts together are wrong "
        "about a difference in at most 5 % of comparisons of equal builds.",
        parts=parts,
    )


def _reason(reason: str, shared: Sequence[str]) -> str:
    """The reason of a verdict; a reason that several have is printed once, above the table."""
    if reason not in shared:
        return reason
    return f"reason {shared.index(reason) + 1}"


def _forest(compared: ComparisonSummary, figures: Mapping[str, Figure]) -> Section:
    rows = [
        ForestRow(
            words=f"{figures[each.figure].label}, {formatting.setting(each.at)}",
            middle=round((each.ratio - 1) * 100, 3),
            low=None if interval is None else round((interval[0] - 1) * 100, 3),
            high=None if interval is None else round((interval[1] - 1) * 100, 3),
            group=f"{each.better} is better",
        )
        for each in compared.verdicts
        if each.ratio is not None
        for interval in [each.ratio_ci95]
    ]
    if not rows:
        return Section(name="forest", title="Changes and their intervals")
    above: Json = {"orient": "top", "direction": "vertical"}
    scale: Json = {"domain": ["higher is better", "lower is better"]}
    colour: Json = {"field": "contender", "type": "nominal", "title": None, "scale": scale, "legend": above}
    shape = colour | {"scale": {**scale, "range": ["triangle-up", "circle"]}}
    encoding: Json = {"color": colour, "shape": shape}
    spec = forest(rows, encoding, title="B against A, %", lines=(0.0,), width=WIDTH)
    caption = "The change of each figure from A to B; the line through a mark is its 95 % interval."
    drawing = Drawing(name="forest", svg=draw("forest", spec, {}), caption=caption)
    return Section(name="forest", title="Changes and their intervals", parts=[drawing])


def _curves(a: RunFolder, b: RunFolder) -> Section:
    """The first run of each side, where both asked the same of the server."""
    asked = [{point.number: place_of(point) for point in folder.read_run().points} for folder in (a, b)]
    shared = set(asked[0].values()) & set(asked[1].values())
    merged = [
        replace(each, point={**each.point, "side": name})
        for name, folder, places in zip(SIDES, (a, b), asked, strict=True)
        for each in curves(
            [point for point in summarise_run(folder).points if places.get(point.number) in shared],
            folder.read_trials(),
        )
    ]
    levels = dict.fromkeys(
        formatting.setting({path: value for path, value in each.point.items() if path != "side"}) for each in merged
    )
    layout = MatrixLayout(compare="side", contenders=SIDES, levels=tuple(levels))
    drawn = list(percentile_charts(merged, layout).items())
    parts: list[Part] = []
    if drawn:
        drawings = [
            Drawing(name=name, svg=draw(name, each.spec, {}), caption=each.caption, data=each.data)
            for name, each in drawn[:MOST_CURVES]
        ]
        parts.append(Gallery(drawings=tuple(drawings)))
    if len(drawn) > MOST_CURVES:
        parts.append(Text(text=f"The curves of {len(drawn) - MOST_CURVES} more settings are not drawn."))
    title = f"Response time by percentile, of {a.path.name} and {b.path.name} alone"
    return Section(name="curves", title=title, parts=parts)
