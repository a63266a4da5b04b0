"""Chapters of the book from stored runs of the suites of the five reports.

`PYTHONPATH=lab python bench/reports.py CHAPTER RUN...` keeps each run's summary, without captures,
in docs/results/report-SUITE.json, and writes docs/report-CHAPTER.md and its plots anew from all
summaries of that chapter. Without a run it only writes the chapter. `make reference` then brings
README.md and the book's contents up to date. CHAPTER is one of tcpbenchmark, three-servers,
epoll-scaling, port-fwd, http-saturation.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import axes
import courses
import three_servers
from chapter import wrapped
from relay_costs import paired_costs, sentence
from report_plots import OURS, THEIRS, law_plot, plot, shown

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.closed_loop import Case, fit
from plimsoll_lab.analysis.network import congestion_controls
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.suite import units
from plimsoll_lab.suite.drawn import TIMES, quantity
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.figures import figure_named
from plimsoll_lab.suite.read import read_file
from plimsoll_lab.suite.shipped import find

RESULTS = Path("docs/results")
BOOK = Path("docs")
CHAPTERS = {
    "tcpbenchmark": ("tcpbenchmark",),
    "three-servers": ("three-servers",),
    "epoll-scaling": ("epoll-scaling",),
    "port-fwd": ("port-fwd-255", "port-fwd-4000", "port-fwd-closed", "port-fwd-accept"),
    "http-saturation": (
        "http-saturation-size",
        "http-saturation-bandwidth",
        "http-saturation-versions",
        "http-saturation-ladder",
    ),
}
KEPT = (
    *("suite", "question", "status", "valid", "trials", "elapsed_s", "command", "seed", "answer"),
    *("points", "claims", "references", "stops", "warnings"),
)
"""What is kept of a summary: no figure that only its own folder explains."""
SHOWN = (
    *("completed_rate", "goodput_bits_per_s", "response_time_us.mean", "response_time_us.p50", "response_time_us.p99"),
    *("connections.established", "elapsed_s", "server.cpu_us_per_request", "server.memory_bytes"),
)
"""Figures that are kept beside those that the document names."""

MEASURED = ("server", "load", "matrix", "run", "network", "place", "role", "point", "capture", "processes")
"""Tables and keys of a suite that say what is measured."""
TABLED = {
    "epoll-scaling": ("requests.completed", "bytes_sent", "endpoints", "capture.packets_per_s_swing"),
    "three-servers": three_servers.KEPT,
}
"""Figures of a suite that its table has besides: what the document tells of each case."""
DRAWN = {
    "tcpbenchmark": ("tcpbenchmark.connect_time_s.average", "tcpbenchmark.send_recv_time_s.average", "elapsed_s"),
    "three-servers": (
        *("connections.established", "response_time_us.mean", "server.cpu_us_per_request", "server.memory_bytes"),
    ),
    "epoll-scaling": ("response_time_us.mean", "elapsed_s", "packets_per_s"),
}
"""Of a suite whose document states many figures those that are drawn over its axes."""
FETCHED = (
    *("completed_rate", "goodput_bits_per_s", "establishment_time_us.mean", "transmission_time_us.mean"),
    "connection_and_transmission_us",
)
"""Both readings of throughput; connection and transmission time apart and together."""
FURTHER = {
    "http-saturation-size": FETCHED,
    "http-saturation-bandwidth": FETCHED,
    "http-saturation-versions": FETCHED,
    "http-saturation-ladder": ("server.cpu_cores", "server.cpu_cores_min", "host.load_average"),
    "port-fwd-255": ("completed_rate", "role.forwarder.cpu_cores"),
    "port-fwd-4000": ("completed_rate", "role.forwarder.cpu_cores"),
}
"""Figures of a suite that are drawn and tabled besides those that it states or claims."""
LEGS = "read as legs"
"""How the remark of a reference begins whose connections were counted at the forwarder, two for
each of a client."""
DEFAULT_CONTROL = "bbr"
"""The default of the kernel that runs were made on which do not say what their hosts used."""
LEAST_ALONG = 3
"""An axis with fewer values is no line."""

Json = Mapping[str, Any]


def summary_of(run: str) -> dict[str, Any]:
    """The summary of a stored run, as `lab report` tells it."""
    done = subprocess.run(
        [sys.executable, "-m", "plimsoll_lab", "report", run, "--json"], capture_output=True, text=True, check=False
    )
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{") and json.loads(line).get("event") == "summary":
            summary = {key: value for key, value in json.loads(line).items() if key in KEPT}
            kept = {*figures_of(summary), *TABLED.get(summary["suite"], ()), *SHOWN}
            for point in summary["points"]:
                own = [name for name in kept if not _is_of_a_client(name) or "point" in point["point"]]
                point["figures"] = {name: found for name, found in point["figures"].items() if name in own}
            summary |= courses.courses_of(run)
            folder = RunFolder(path=Path(run))
            record = folder.read_run()
            summary |= {"processes": processes_of(run), "suite_text": record.suite.text}
            costs = paired_costs(folder.read_trials()) if summary["suite"] in CHAPTERS["port-fwd"] else []
            return summary | {"congestion": congestion_controls(record), "costs": costs}
    raise SystemExit(f"{run}: it has no summary: {done.stderr.strip() or done.stdout[-200:]}")


def _is_of_a_client(figure: str) -> bool:
    """Whether a figure is of one host of the generators: those are kept of points with a name."""
    return figure.startswith("client.")


def processes_of(run: str) -> list[dict[str, Any]]:
    """The server's processes in the trial with the most of them that used any CPU, and its point;
    none where the suite does not ask for them.
    """
    found: tuple[str, list[dict[str, Any]]] = ("", [])
    for trial in RunFolder(path=Path(run)).read_trials():
        listed = [dict(each) for each in trial.server.get("processes", ()) if each["cpu_cores"] > 0]
        if trial.outcome == "ok" and len(listed) > len(found[1]):
            found = (label(trial.setting), listed)
    return [{"point": found[0], **each} for each in found[1]]


def settings_of(text: str) -> dict[str, object]:
    """What a suite measures, by table and key: without the words around it and its small form."""
    tables = tomllib.loads(text)
    found: dict[str, object] = {}
    for name, table in tables.items():
        if name in MEASURED and isinstance(table, dict):
            found |= {f"[{name}] {key}": value for key, value in table.items()}
        elif name in MEASURED:
            found[name if not isinstance(table, list) else f"[[{name}]]"] = table
    return found


def changed_keys(summary: Json) -> list[str]:
    """What the suite of today sets otherwise than that of the run."""
    if "suite_text" not in summary:
        return []
    shipped = find(summary["suite"]).read_text(encoding="utf-8")
    then, now = settings_of(summary["suite_text"]), settings_of(shipped)
    return [key for key in sorted({**then, **now}) if then.get(key) != now.get(key)]


def changed_since(summary: Json) -> list[str]:
    """The same in a sentence."""
    changed = ", ".join(f"`{key}`" for key in changed_keys(summary))
    return [f"The suite has changed since this run: {changed}.", ""] if changed else []


def command_of(summary: Json) -> list[str]:
    """The command of a run: not to be copied, where its points may be none of the suite's today."""
    command = summary["command"]
    if any(key.startswith("[matrix]") or key == "[[point]]" for key in changed_keys(summary)):
        return [f"The suite had other points then: `{command.removeprefix('plimsoll ')}`.", ""]
    return ["```console", f"$ {command}", "```", ""]


def congestion_of(summary: Json) -> list[str]:
    """Which congestion control the hosts of a run used, where its suite has a network."""
    network = settings_of(find(summary["suite"]).read_text(encoding="utf-8")).get("[network] congestion")
    if summary.get("congestion"):
        return [f"Congestion control of TCP: {', '.join(summary['congestion'])}.", ""]
    if network is None:
        return []
    said = "The suite set no congestion control when this run was made: its hosts used "
    return [f"{said}{DEFAULT_CONTROL}, the default of that machine, and not {network}. It has to be run again.", ""]


def todays(summary: Json) -> dict[str, Any]:
    """A kept summary with all that the document says by the suite of today, and what of it this run
    was not asked.
    """
    suite = read_file(find(summary["suite"]))
    stated = [asdict(each) for each in suite.references]
    kept = [each for each in summary["references"] if _said(each) not in [_said(other) for other in stated]]
    answered = {each["name"] for each in summary["claims"]}
    there = [point["point"] for point in summary["points"]]
    lacking = [point.setting for point in expand(suite, seed=0).points if dict(point.setting) not in there]
    return dict(summary) | {
        "references": [*stated, *kept],
        "open_claims": [each for each in suite.claims if each.name not in answered],
        "open_points": [label(each) for each in lacking],
    }


def _said(reference: Json) -> tuple[str, str]:
    return reference["figure"], str(dict(reference["at"]))


def file_of(suite: str) -> Path:
    """Where a suite's summary is kept."""
    return RESULTS / f"report-{suite}.json"


def figures_of(summary: Json) -> list[str]:
    """The figures that the document states or claims, in the order of the suite, and further ones;
    else the rate and the response time.
    """
    named = [each["figure"] for each in (*summary["references"], *summary["claims"])]
    named += FURTHER.get(summary["suite"], ())
    return list(dict.fromkeys(named)) or ["completed_rate", "response_time_us.mean"]


def label(setting: Json) -> str:
    """A point's setting in one line, as the page has it."""
    return formatting.setting(setting)


def number(value: float | None) -> str:
    """Three significant digits, with thousands in groups."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004 - three digits


def theirs(summary: Json, figure: str, setting: Json) -> dict[str, float]:
    """The document's figure at a point, where it states one of this point alone, by whose it is: a
    figure may be read in two ways.
    """
    found: dict[str, float] = {}
    for each in (reference for reference in summary["references"] if reference["figure"] == figure):
        here = [point["point"] for point in summary["points"] if is_at(point["point"], each["at"])]
        if here == [setting]:
            legs = str(each.get("text", "")).startswith(LEGS)
            found.setdefault(f"{THEIRS}, {LEGS}" if legs else THEIRS, float(each["value"]))
    return found


def point_table(summary: Json) -> list[str]:
    """Every point: ours, and theirs in brackets where the document has the figure."""
    figures = list(dict.fromkeys([*figures_of(summary), *TABLED.get(summary["suite"], ())]))
    figures = [each for each in figures if not _is_of_a_client(each)]
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
                + ("?" if found and point.get("doubtful") else "")
                + (f" ({'; '.join(others)})" if others else "")
            )
        if point["outcome"] != "ok":
            cells[0] += f" {point['outcome']}"
        lines.append(f"| {label(point['point'])} | {' | '.join(cells)} | {point['valid_n']}/{point['n']} |")
    return [*lines, ""]


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
        lines.append(f"| {each['name']} | {each['expect']} | {found} | **{each['outcome']}** | {each['free'] or ''} |")
    lines += [
        f"| {each.name} | {each.expect} | this run was not asked | **open** | {each.free} |" for each in still_open
    ]
    return [*lines, ""]


def open_points(summary: Json) -> list[str]:
    """The points of the suite of today that the run has not."""
    lacking = summary.get("open_points", ())
    return [f"Points of the suite that this run has not: {'; '.join(lacking)}.", ""] if lacking else []


def reference_table(summary: Json) -> list[str]:
    """All that the document states of points, where it states more than the table of points can
    show.
    """
    if summary["suite"] not in DRAWN:
        return []
    lines = ["| the document | figure | theirs | ours | remark |", "|---|---|---|---|---|"]
    for each in summary["references"]:
        if _is_of_a_client(each["figure"]):
            continue
        here = [point for point in summary["points"] if is_at(point["point"], each["at"])]
        own = here[0]["figures"].get(each["figure"]) if len(here) == 1 and here[0]["outcome"] == "ok" else None
        known = figure_named(each["figure"])
        said = _counted if known is None or known.unit == "count" else partial(formatting.number, unit=known.unit)
        about = f"{known.label if known is not None else each['figure']}, {label(each['at'])}"
        both = f"{said(each['value'])} | {said(own['mean']) if own else '-'}"
        lines.append(f"| {each['source']} | {about} | {both} | {each.get('text', '')} |")
    return ["Each figure that the document states:", "", *lines, ""]


def _counted(value: float) -> str:
    return f"{value:,.0f}"


def is_at(setting: Json, place: Json) -> bool:
    """Whether a point is the one that a document speaks of."""
    return all(str(setting.get(path)) == str(at) for path, at in place.items())


def process_table(summary: Json) -> list[str]:
    """The server's processes, as the document has them in a table of top(1)."""
    listed = summary.get("processes") or []
    if not listed:
        return []
    share = 100 * sum(each["cpu_cores"] for each in listed)
    said = f"{len(listed)} processes of the server used {share:.1f} % of a CPU together"
    lines = [
        f"Of one trial, {listed[0]['point']}: {said}.",
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


def axis_of(summary: Json) -> tuple[str, str] | None:
    """The path of the points' settings along which a figure is drawn, and its unit: the one with
    most values, all of them numbers; None where no path has three. Most points have it: those that
    do not are left out of the picture.
    """
    found: dict[str, tuple[int, str]] = {}
    for path in {path for point in summary["points"] for path in point["point"]}:
        read = [quantity(path, point["point"][path]) for point in summary["points"] if path in point["point"]]
        known = [each for each in read if each is not None]
        if len(known) == len(read) > len(summary["points"]) / 2 and len({each[1] for each in known}) == 1:
            found[path] = (len({each[0] for each in known}), known[0][1])
    path = max(found, key=lambda each: found[each][0], default=None)
    return (path, found[path][1]) if path is not None and found[path][0] >= LEAST_ALONG else None


def axes_of(summary: Json, figure: str) -> tuple[str, str] | None:
    """What a figure is drawn along: the product that the suite draws it over, where there is one;
    else the axis of the points.
    """
    charts = tomllib.loads(find(summary["suite"]).read_text(encoding="utf-8")).get("chart", [])
    products = [each["over"] for each in charts if each["figure"] == figure and TIMES in each["over"]]
    found = [at for point in summary["points"] for path in products if (at := place_along(path, point["point"]))]
    return (products[0], found[0][1]) if found else axis_of(summary)


def along_of(summary: Json, figure: str) -> list[tuple[str, str] | None]:
    """All that a figure is drawn along: each path that the suite draws it over, where there are
    several; else one axis.
    """
    charts = tomllib.loads(find(summary["suite"]).read_text(encoding="utf-8")).get("chart", [])
    paths = [each["over"] for each in charts if each["figure"] == figure and TIMES not in each["over"]]
    places = {path: [at for point in summary["points"] if (at := place_along(path, point["point"]))] for path in paths}
    found = [(path, here[0][1]) for path, here in places.items() if len(set(here)) >= LEAST_ALONG]
    return [*found] if len(found) > 1 else [axes_of(summary, figure)]


def place_along(path: str, setting: Json) -> tuple[float, str] | None:
    """Where a point stands along a path, or along the product of two, and in which unit; None of
    one that lacks it.
    """
    found = [quantity(each, setting[each]) for each in path.split(TIMES) if each in setting]
    known = [each for each in found if each is not None]
    if len(known) < len(path.split(TIMES)):
        return None
    there = sorted(unit for _, unit in known if unit)
    return math.prod(value for value, _ in known), "bit" if there == ["bit/s", "s"] else " ".join(there)


def dots(summary: Json, figure: str, along: str | None) -> list[dict[str, Any]]:
    """Ours and theirs of one figure, a dot a point; `along` is the path of the axis."""
    found = []
    for point in summary["points"]:
        at = place_along(along, point["point"]) if along is not None else None
        if along is not None and at is None:
            continue
        # A point without a result may have figures of a few of its trials.
        own = point["figures"].get(figure) if point["outcome"] == "ok" else None
        whose = f"{OURS}, doubtful" if point.get("doubtful") else OURS
        values = ({whose: own["mean"]} if own else {}) | theirs(summary, figure, point["point"])
        for who, value in values.items():
            if value <= 0:
                continue
            # Of a product the first path is drawn along: points that differ in the second are no
            # line.
            drawn = along.partition(TIMES)[0] if along is not None else None
            rest = {path: each for path, each in point["point"].items() if path not in {drawn, "point"}}
            dot = {"point": label(point["point"]), "series": label(rest) if rest else "", "whose": who, "value": value}
            found.append(dot | ({"at": at[0]} if at is not None else {}))
    return found


def cases_of(summary: Json) -> list[Case]:
    """The cases of epoll-scaling that have a result."""
    found = []
    for point in summary["points"]:
        response, rate = (point["figures"].get(name) for name in ("response_time_us.mean", "completed_rate"))
        if response and rate and point["outcome"] == "ok" and not point.get("doubtful"):
            found.append(
                Case(
                    clients=units.count(point["point"]["load.connections"]),
                    pause_s=units.duration_s(str(point["point"]["load.think"])),
                    response_s=response["mean"] / 1e6,
                    rate=rate["mean"],
                )
            )
    return found


def law_lines(summary: Json) -> list[str]:
    """The cases on one curve, and what follows from it."""
    cases = cases_of(summary)
    if not cases:
        return []
    law = fit(cases)
    (RESULTS / "report-epoll-scaling-law.svg").write_text(law_plot(cases, law), encoding="utf-8")
    clients = sorted({case.clients for case in cases})
    bounds = f"R0 is {law.unqueued_s * 1e3:.3g} ms and X {law.highest_rate:,.0f} requests a second"
    return [
        f"R = max(R0, N/X - Z): {bounds}, each the best of any case.",
        "",
        "![Response time that was seen over the least that the law allows](results/report-epoll-scaling-law.svg)",
        "",
        *(f"- {law.sentence(each)}" for each in clients),
        "",
    ]


def section(suite: str) -> list[str]:
    """One suite of a chapter, from its kept summary."""
    if not file_of(suite).exists():
        return [f"## {suite}", "", f"No run is kept: `plimsoll lab run {suite}` makes one.", ""]
    summary = todays(json.loads(file_of(suite).read_text(encoding="utf-8")))
    trials = summary["trials"]
    said = (
        f"{trials['valid']} of {trials['planned']} trials have a result, in {summary['elapsed_s']:,.0f} s of trials; "
        f"the run is {summary['status']}."
    )
    if "--fast" in summary["command"]:
        said += " The small form shows shapes only."
    lines = [
        *(f"## {suite}", "", summary["question"], "", *command_of(summary), said),
        *(
            "",
            *changed_since(summary),
            *open_points(summary),
            *congestion_of(summary),
            *(f"- {each}" for each in summary["answer"]),
            "",
        ),
        *([costs, ""] if (costs := sentence(summary)) else []),
        *claim_table(summary),
    ]
    for figure in DRAWN.get(suite) or figures_of(summary):
        for place, axis in enumerate(along_of(summary, figure)):
            values = dots(summary, figure, axis[0] if axis else None)
            if values:
                over = f"-over-{axis[0].rpartition('.')[2]}" if axis and place else ""
                name = f"report-{suite}-{figure.replace('.', '-')}{over}.svg"
                (RESULTS / name).write_text(plot(values, figure, axis), encoding="utf-8")
                both = any(each["whose"].startswith(THEIRS) for each in values)
                title = f"{figure}, {OURS} and {THEIRS}" if both else figure
                lines += [f"![{title}](results/{name})", ""]
    if suite == "three-servers":
        lines += three_servers.lines(summary, RESULTS)
    lines += courses.lines(summary, RESULTS)
    if suite == "epoll-scaling":
        lines += law_lines(summary)
    return [
        *lines,
        "Mean and standard deviation, median and its interval of 95 % of our trials; the document's in brackets.",
        "",
        *point_table(summary),
        *reference_table(summary),
        *process_table(summary),
        *stopped(summary),
        *axes.lines(suite, RESULTS / axes.KEPT.name),
    ]


def write_chapter(chapter: str) -> Path:
    """The chapter anew, from the summaries that are kept."""
    lines = [
        f"# {chapter}, run again",
        "",
        "Generated by `bench/reports.py` from the summaries in `docs/results/`.",
        "",
    ]
    for suite in CHAPTERS[chapter]:
        for picture in RESULTS.glob(f"report-{suite}-*.svg"):
            picture.unlink()
        lines += section(suite)
    path = BOOK / f"report-{chapter}.md"
    path.write_text("\n".join(wrapped(lines)).rstrip("\n") + "\n", encoding="utf-8")
    return path


def main(arguments: Sequence[str]) -> None:
    """Keep the runs that are named, and write their chapter."""
    if not arguments or arguments[0] not in CHAPTERS:
        raise SystemExit(f"usage: bench/reports.py CHAPTER [RUN...]; CHAPTER is one of {', '.join(CHAPTERS)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    for run in arguments[1:]:
        summary = summary_of(run)
        if summary["suite"] not in CHAPTERS[arguments[0]]:
            raise SystemExit(f"{run}: a run of {summary['suite']}, which is no part of {arguments[0]}")
        file_of(summary["suite"]).write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(write_chapter(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
