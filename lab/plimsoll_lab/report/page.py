"""The report: one HTML file with everything inside, which opens from a disk with no network.

A Content-Security-Policy in the page forbids it to load anything, and lets only the scripts run whose hashes it names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import time
from collections.abc import Mapping, Sequence
from importlib import resources
from string import Template
from typing import cast

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report import network
from plimsoll_lab.report.charts import SHAPES, Chart, charts, rows, shape_of
from plimsoll_lab.report.knees import knee_charts, knees_section
from plimsoll_lab.report.scores import controls_section, scores_section
from plimsoll_lab.report.searches import page_section
from plimsoll_lab.report.trials import left_out_section, summaries_section
from plimsoll_lab.store.folder import RunFolder, write_atomically
from plimsoll_lab.store.records import Json

TABLE = (
    ("completed_rate", "completed"),
    ("response_time_us.p50", "p50"),
    ("response_time_us.p99", "p99"),
    ("establishment_time_us.p50", "establishment p50"),
    ("server.cpu_us_per_request", "CPU / request"),
    ("server.cpu_cores", "CPU"),
    ("server.memory_bytes", "memory"),
    ("generator.cpu_cores", "generator CPU"),
)
"""The columns of the table of medians."""
OUTCOMES = {
    "hard_limit": "hard limit",
    "failed": "failed",
    "generator_limited": "generator limited",
    "invalid": "invalid",
    None: "not measured",
}
GLYPHS = {
    "circle": "M0-5A5 5 0 1 1 0 5A5 5 0 1 1 0-5Z",
    "square": "M-4.4-4.4H4.4V4.4H-4.4Z",
    "triangle-up": "M0-5.4L5.4 4.4H-5.4Z",
    "diamond": "M0-6L4.6 0L0 6L-4.6 0Z",
    "cross": "M-1.8-5.4H1.8V-1.8H5.4V1.8H1.8V5.4H-1.8V1.8H-5.4V-1.8H-1.8Z",
    "triangle-down": "M0 5.4L5.4-4.4H-5.4Z",
    "triangle-right": "M5.4 0L-4.4 5.4V-5.4Z",
}
"""The charts' marks, drawn for the legend."""
DRAWN = (
    "Every trial is a dot; a bar is the median, the line through it its 95&nbsp;% interval. Left: against the load. "
    "Right: side by side at each load, <b>each panel on a scale of its own, which need not begin at zero</b>; "
    "&#10005; marks who stopped before it."
)
"""How the charts are read."""


def write_page(folder: RunFolder, summary: Json) -> None:
    """Write the report of a run."""
    write_atomically(folder.report, render_page(folder, summary))


def render_page(folder: RunFolder, summary: Json) -> str:
    """The report as text."""
    import vl_convert  # noqa: PLC0415 - 50 MB of renderer that only a report needs

    run = folder.read_run()
    figures = {cast("str", each["name"]): each for each in cast("list[Json]", run["figures"])}
    known = {point["number"] for point in cast("list[Json]", summary["points"])}
    drawn, trials = charts(run, summary), [trial for trial in folder.read_trials() if trial.point in known]
    data = {
        "rows": rows(run, summary, trials),
        "charts": [
            *({"name": chart.name, "spec": chart.spec} for chart in drawn),
            *knee_charts(cast("list[Json]", summary["knees"]), trials),
        ],
    }
    engine = vl_convert.javascript_bundle()  # type: ignore[call-arg] # its stub forgets the default
    page_script = _asset("page.js")
    scripts = " ".join(f"'sha256-{_digest(script)}'" for script in (engine, page_script))
    return Template(_asset("page.html")).substitute(
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {scripts}",
        style=_asset("page.css"),
        title=_text(f"{summary['suite']}, run {run['run']}"),
        suite=_text(summary["suite"]),
        run=_text(run["run"]),
        question=_text(summary["question"]),
        when=_text(_when(run)),
        scale=_text(_scale(summary)),
        status=_status(summary),
        answers=_answer(summary),
        capacity=page_section(summary, run),
        warnings=_warnings(summary),
        verdicts=_verdicts(summary, run, figures),
        scores=scores_section(summary, figures),
        controls=controls_section(cast("list[Json]", summary["controls"]), figures),
        knees=knees_section(cast("list[Json]", summary["knees"])),
        stops=_stops(summary, run),
        limits=_limits(summary, figures),
        network=_network(run),
        drawings=_drawings(drawn, run, figures),
        table=_table(summary, run, figures),
        summaries=summaries_section(summary, figures),
        left_out=left_out_section(cast("list[Json]", summary["left_out"])),
        environment=_environment(run),
        command=_text(summary["command"]),
        seed=_text(summary["seed"]),
        source=_text(cast("Json", run["suite"])["text"]),
        # `<` could end the element it stands in; JSON may write it otherwise.
        data=json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c"),
        engine=engine,
        script=page_script,
    )


def _asset(name: str) -> str:
    return resources.files("plimsoll_lab.report").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _text(value: object) -> str:
    return html.escape(str(value))


def _when(run: Json) -> str:
    return time.strftime("%-d %B %Y, %H:%M", time.localtime(cast("float", run["started_unix_s"])))


def _scale(summary: Json) -> str:
    trials = cast("dict[str, int]", summary["trials"])
    minutes, seconds = divmod(round(cast("float", summary["elapsed_s"])), 60)
    measured = f"{trials['measured']} of {trials['planned']} trials, {trials['valid']} of them results"
    return f"{measured}, {minutes} min {seconds} s"


def _status(summary: Json) -> str:
    if summary["status"] == "complete":
        return ""
    return '<p class="partial">This run was interrupted: what follows rests on the trials measured until then.</p>'


def _answer(summary: Json) -> str:
    return "".join(f"<p class='answer'>{_text(sentence)}</p>" for sentence in cast("list[str]", summary["answer"]))


def _warnings(summary: Json) -> str:
    lines = [
        f"<li><code>{_text(each['code'])}</code> {_text(each['message'])}; <em>{_text(each['remedy'])}</em></li>"
        for each in cast("list[Json]", summary["warnings"])
    ]
    if not lines:
        return "<p class='calm'>No doubts were raised about this run.</p>"
    return f"<div class='doubts'><h2>Doubts</h2><ul>{''.join(lines)}</ul></div>"


def _network(run: Json) -> str:
    rows = network.rows(run)
    if not rows:
        return ""
    head = "".join(f"<th scope='col'>{_text(each)}</th>" for each in network.HEADINGS)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return (
        f"<section><h2>Network</h2><p class='note'>{_text(network.EXPLANATION)}. Measured before the first trial.</p>"
        f"<div class='scroll'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></section>"
    )


def _verdicts(summary: Json, run: Json, figures: Mapping[str, Json]) -> str:
    verdicts = cast("list[Json]", summary["verdicts"])
    if not verdicts:
        return "<p>Nothing competes in this suite: its figures stand for themselves.</p>"
    places = list(dict.fromkeys(formatting.setting(cast("Json", each["at"])) for each in verdicts))
    cells = {(each["figure"], formatting.setting(cast("Json", each["at"]))): each for each in verdicts}
    contenders = shape_of(run).contenders
    head = "".join(f"<th scope='col'>{_text(place)}</th>" for place in places)
    body = []
    for name in dict.fromkeys(cast("str", each["figure"]) for each in verdicts):
        figure = figures[name]
        row = "".join(_verdict(cells[name, place], contenders) for place in places)
        body.append(
            f"<tr><th scope='row'>{_text(figure['label'])}<small>{figure['better']} is better</small></th>{row}</tr>"
        )
    return (
        f"<div class='scroll'><table class='verdicts'><thead><tr><th></th>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _verdict(verdict: Json, contenders: Sequence[str]) -> str:
    best = ", ".join(_name(name, contenders) for name in cast("list[str]", verdict["best"])) or "&ndash;"
    within = cast("float | None", verdict["best_within"])
    several = len(cast("list[str]", verdict["best"])) > 1
    apart = f" <small>within {(within - 1) * 100:.3g}&nbsp;%</small>" if several and within is not None else ""
    others = formatting.others(verdict)
    worse = f"<span class='ratio'>at least times worse: {_text(others)}</span>" if others else ""
    call = cast("str", verdict["call"])
    return (
        f"<td title='{_text(verdict['reason'])}'><span class='who'>{best}{apart}</span>{worse}"
        f"<span class='call {call.replace(' ', '-')}'>{call}</span></td>"
    )


def _stops(summary: Json, run: Json) -> str:
    stops = cast("list[Json]", summary["stops"])
    if summary["capacities"]:
        return "<p>At its capacity: every search goes on until a limit is missed.</p>"
    if not stops:
        return "<p>Nobody stopped: every contender carried every load it was given.</p>"
    contenders = shape_of(run).contenders
    lines = [
        f"<tr><th scope='row'>{_name(each['contender'], contenders)}</th>"
        f"<td>{_text(formatting.setting(cast('Json', each['at'])))}</td>"
        f"<td><span class='outcome {each['outcome']}'>{OUTCOMES[cast('str', each['outcome'])]}</span></td>"
        f"<td>{_text(each['reason'])}</td></tr>"
        for each in stops
    ]
    return f"<div class='scroll'><table class='stops'><tbody>{''.join(lines)}</tbody></table></div>"


def _limits(summary: Json, figures: Mapping[str, Json]) -> str:
    stated = [limit for point in cast("list[Json]", summary["points"]) for limit in cast("list[Json]", point["limits"])]
    if not stated:
        return ""
    lines = []
    for each in stated:
        unit = cast("str", figures[cast("str", each["figure"])]["unit"])
        median = formatting.number(cast("float | None", each["median"]), unit)
        mark = "met" if each["met"] else "missed"
        where = _text(formatting.setting(cast("Json", each["point"])))
        cells = (where, _text(each["limit"]), median, f"<span class='{mark}'>{mark}</span>")
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    head = "<thead><tr><th>point</th><th>limit</th><th>median</th><th></th></tr></thead>"
    return f"<h2>Limits</h2><div class='scroll'><table>{head}<tbody>{''.join(lines)}</tbody></table></div>"


def _drawings(drawn: Sequence[Chart], run: Json, figures: Mapping[str, Json]) -> str:
    """Nothing where nothing competes and no load varies: the table says it all."""
    if not drawn:
        return ""
    return (
        "<section><h2>Figures</h2>"
        f"<p class='note'>{DRAWN}</p><div class='legend'>{_legend(run)}</div>{_cards(drawn, figures)}</section>"
    )


def _legend(run: Json) -> str:
    contenders = shape_of(run).contenders
    return "".join(f"<span>{_name(each, contenders)}</span>" for each in contenders) if len(contenders) > 1 else ""


def _name(contender: object, contenders: Sequence[str]) -> str:
    """A contender with its mark, in its colour."""
    if contender not in contenders:
        return _text(contender)
    place = contenders.index(cast("str", contender))
    glyph = GLYPHS[SHAPES[place % len(SHAPES)]]
    return (
        f"<span class='name'><svg viewBox='-7 -7 14 14' aria-hidden='true' class='c{place % len(SHAPES)}'>"
        f"<path d='{glyph}'/></svg>{_text(contender)}</span>"
    )


def _cards(drawn: Sequence[Chart], figures: Mapping[str, Json]) -> str:
    names: dict[str, list[str]] = {}
    for chart in drawn:
        names.setdefault(chart.figure, []).append(chart.name)
    cards = []
    for figure, members in names.items():
        panels = "".join(f"<div class='chart' data-chart='{_text(name)}'></div>" for name in members)
        better = figures[figure]["better"]
        cards.append(
            f"<section class='card'><h3>{_text(figures[figure]['label'])} <small>{better} is better</small></h3>"
            f"<div class='panels'>{panels}</div></section>"
        )
    return "".join(cards)


def _table(summary: Json, run: Json, figures: Mapping[str, Json]) -> str:
    shape = shape_of(run)
    columns = [(name, heading) for name, heading in TABLE if name in figures]
    head = "".join(f"<th scope='col'>{heading}</th>" for _, heading in columns)
    groups: dict[str, list[str]] = {}
    for point in cast("list[Json]", summary["points"]):
        setting = dict(cast("Json", point["point"]))
        contender = formatting.value(setting.pop(shape.compare)) if shape.compare else formatting.setting(setting)
        group = formatting.setting(setting) if shape.compare else ""
        found = cast("dict[str, Json]", point["figures"])
        if point["outcome"] == "ok":
            cells = "".join(_cell(found.get(name), cast("str", figures[name]["unit"])) for name, _ in columns)
        else:
            outcome = cast("str", point["outcome"])
            cells = (
                f"<td colspan='{len(columns)}' class='none' title='{_text(point['reason'])}'>"
                f"<span class='outcome {outcome}'>{OUTCOMES[outcome]}</span></td>"
            )
        heading = f"<th scope='row'>{_name(contender, shape.contenders)}</th>"
        groups.setdefault(group, []).append(f"<tr>{heading}{cells}<td>{point['valid_n']}/{point['n']}</td></tr>")
    bodies = "".join(
        f"<tbody><tr class='group'><th colspan='{len(columns) + 2}'>{_text(group)}</th></tr>{''.join(members)}</tbody>"
        if group
        else f"<tbody>{''.join(members)}</tbody>"
        for group, members in groups.items()
    )
    return (
        f"<div class='scroll'><table class='medians'><thead><tr><th></th>{head}<th scope='col'>trials</th></tr></thead>"
        f"{bodies}</table></div>"
    )


def _cell(found: Json | None, unit: str) -> str:
    if found is None:
        return "<td>&ndash;</td>"
    interval = cast("tuple[float, float] | None", found["median_ci95"])
    title = f"n {found['n']}, mean {formatting.number(cast('float', found['mean']), unit)}"
    if found["stdev"] is not None:
        title += f", standard deviation {formatting.number(cast('float', found['stdev']), unit)}"
    if interval is not None:
        title += (
            f"; median within {formatting.number(interval[0], unit)} and {formatting.number(interval[1], unit)} (95 %)"
        )
    return f"<td title='{_text(title)}'>{formatting.number(cast('float', found['median']), unit)}</td>"


def _environment(run: Json) -> str:
    known = {**cast("Json", run["versions"]), **cast("Json", run["environment"])}
    lines = []
    for name, value in known.items():
        shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else str(value)
        lines.append(f"<dt>{_text(name.replace('_', ' '))}</dt><dd>{_text(shown)}</dd>")
    return f"<dl>{''.join(lines)}</dl>"
