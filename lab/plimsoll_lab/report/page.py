"""The report: one HTML file with everything inside, which opens from a disk with no network.

A Content-Security-Policy in the page forbids it to load anything, and lets only the scripts run
whose hashes it names. Without scripts every chart is a still picture, and nothing is missing but
sorting and tooltips. What only scripts read is compressed; all else is plain text.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import deflate
from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.failures import nothing_worked
from plimsoll_lab.analysis.points import STOPPED
from plimsoll_lab.analysis.severity import CONSEQUENCES
from plimsoll_lab.report import (
    by_connections,
    clients,
    distribution_charts,
    documents,
    environment,
    figures,
    gate,
    hosts,
    method,
    network,
    packets,
    timelines,
    trials,
)
from plimsoll_lab.report.all_charts import HEADLINE, AllCharts, all_charts
from plimsoll_lab.report.drawing import draw
from plimsoll_lab.report.engine import chart_engine
from plimsoll_lab.report.export import capacities_csv, points_csv, trials_csv
from plimsoll_lab.report.knees import knees_section
from plimsoll_lab.report.scores import controls_fold, scores_tables
from plimsoll_lab.report.searches import searches_section
from plimsoll_lab.report.stops import limits_table, stops_table
from plimsoll_lab.report.templating import asset, render
from plimsoll_lab.report.verdicts import verdicts_tables
from plimsoll_lab.report.view import Code, Download, Drawing, Fold, Part, Section, Text, Warnings
from plimsoll_lab.store.folder import RunFolder, write_atomically
from plimsoll_lab.store.records import Severity, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary

SEVERITIES: dict[Severity, str] = {
    "voids": "Warnings that void a result",
    "widens": "Warnings that make a result less certain",
    "note": "Good to know",
}


CSV_PLAIN = ",:;/=()* "
"""What a `data:` address has as it is, besides letters, digits and `_.-~` (RFC 3986, 2.3)."""

CSV_MOST = 100_000
"""Bytes of a table that a page has as it is. A larger one is there in the gzip format (RFC 1952),
with a third to half of the bytes."""
PACKED_MOST = 300_000
"""Bytes of a table that a page has at all: a page has at most 2.5 MiB."""

LEVEL = 9
"""Of compression: the higher ones take six times as long for 3 % less."""


SHARED = frozenset({"machine_busy", "cpu_contended"})
"""Warnings of a valid result that the machine was short of CPUs for all that ran on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validity:
    """The badge beside the answer."""

    badge: str
    tone: str
    text: str


def write_page(folder: RunFolder, summary: RunSummary) -> None:
    """Write the report of a run."""
    write_atomically(folder.report, render_page(folder, summary))


def render_page(folder: RunFolder, summary: RunSummary) -> str:
    """The report as text. The same run gives the same bytes with the same versions of the libraries
    that `requirements.lock` names, on any machine and in any time zone.
    """
    run = folder.read_run()
    known = {point.number for point in summary.points}
    trials = folder.read_trials()
    # A control is measured to be compared with, and is drawn nowhere.
    made = [trial for trial in trials if trial.point in known]
    drawn = all_charts(folder, run, summary, made)
    layout, first = drawn.layout, drawn.headline
    # Short names: a chart has its own before each of its marks.
    stills = {name: draw(f"c{place}", drawn.specs[name], drawn.rows) for place, name in enumerate(drawn.specs)}
    opening: list[Part] = []
    if first is not None:
        opening.append(Drawing(name=HEADLINE, svg=stills[HEADLINE], caption=first.caption, data=first.data))
    elif drawn.opening is not None:
        curves = drawn.percentiles[drawn.opening]
        opening.append(Drawing(name=drawn.opening, svg=stills[drawn.opening], caption=curves.caption, data=curves.data))
    engine = chart_engine()
    script = asset("page.js")
    allowed = " ".join(f"'sha256-{_digest(each)}'" for each in (engine, script))
    specs = [{"name": name, "spec": spec} for name, spec in drawn.specs.items()]
    embedded = {"rows": drawn.rows, "charts": specs}
    return render(
        "page.html",
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; script-src {allowed}",
        title=f"{summary.suite}, run {run.run}",
        line=f"{summary.suite} · run {run.run} · {_when(run)} · {_scale(run, summary)}",
        question=summary.question,
        answer=summary.answer,
        validity=_validity(run, summary, trials),
        contenders=layout.contenders,
        opening=opening,
        sections=_sections(run, summary, made, drawn, stills),
        data=_packed(json.dumps(embedded, ensure_ascii=False, separators=(",", ":"))),
        engine=_packed(engine),
        script=Markup(script),  # noqa: S704 - ours
    )


def _sections(
    run: RunRecord,
    summary: RunSummary,
    made: Sequence[TrialRecord],
    drawn: AllCharts,
    stills: Mapping[str, Markup],
) -> list[Section]:
    """The sections that have something to show, in the order of a reader's questions."""
    layout = drawn.layout
    spread = distribution_charts.parts(run, summary.points, drawn.spread, drawn.distributions, stills, layout)
    measured = {each.name: each for each in figures.sections(run, summary, drawn, spread, stills)}
    found = [
        Section(name="warnings", title="Warnings", parts=_warnings(summary)),
        gate.section(summary.gate, run),
        Section(
            name="verdicts",
            title="Verdicts and scores",
            note="Every contender is compared with the best, whichever that is; all bounds hold together with 95 %. "
            "Best: cannot be distinguished from the best; in brackets, by how much several of them may differ. "
            "Level: at most the suite's margin worse. There is no score over all figures.",
            parts=[
                *(verdicts_tables(summary, layout, run) or [Text(text=_without_verdict(run, summary))]),
                *scores_tables(summary, layout, run),
                *controls_fold(summary.controls, run),
            ],
        ),
        documents.section(summary, run),
        Section(
            name="limits",
            title="Limits and capacity",
            parts=[*searches_section(summary, run), *stops_table(summary, layout), *limits_table(summary, run)],
        ),
        *(measured[name] for name in ("response", "rate") if name in measured),
        timelines.section(run, drawn.courses, drawn.timelines, stills),
        clients.section(drawn.strips, drawn.clients, stills),
        by_connections.section(drawn.by_connections, stills),
        *(measured[name] for name in ("efficiency", "more") if name in measured),
        packets.section(drawn.traffic, drawn.packets, stills, layout),
        knees_section(summary.knees, made, stills),
        network.section(run),
        Section(name="trials", title="Every trial", parts=trials.parts(run, summary, made, layout)),
        hosts.section(run, made),
        environment.section(run),
        Section(
            name="method",
            title="Method and glossary",
            parts=[
                *_again(run, summary),
                *(method.parts() if run.imported is None else method.glossary()),
            ],
        ),
        Section(name="downloads", title="Data to download", parts=_downloads(run, summary, made)),
    ]
    return [each for each in found if each.parts]


def _again(run: RunRecord, summary: RunSummary) -> list[Part]:
    """How to make the run again."""
    if run.imported is not None:
        return [Text(text="Imported by:"), Code(text=summary.command)]
    return [
        Text(text=f"The same order of trials, from the same seed ({summary.seed}):"),
        Code(text=summary.command),
        Fold(title="The suite", parts=(Code(text=run.suite.text),)),
    ]


def _without_verdict(run: RunRecord, summary: RunSummary) -> str:
    if not any(point.outcome == "ok" for point in summary.points):
        return "No verdict: no point has a valid result."
    if run.imported is not None:
        return (
            "No verdict: imported files do not tell whether their measurements alternated. `plimsoll lab compare` "
            "compares several imported runs a side."
        )
    if run.family.compare is not None and not run.family.figures:
        return "No verdict: this suite compares no figure."
    return "No verdict: this suite has one contender, so its figures have nothing to be compared with."


def _warnings(summary: RunSummary) -> list[Part]:
    groups: list[Part] = []
    for kind, title in SEVERITIES.items():
        items = tuple(each for each in summary.warnings if each.severity == kind)
        if not items:
            continue
        block = Warnings(title=f"{title}: {CONSEQUENCES[kind]}", severity=kind, items=items)
        groups.append(Fold(title=f"{title} ({len(items)})", parts=(block,)) if kind == "note" else block)
    return groups or [Text(text="There are no warnings about this run.")]


def _validity(run: RunRecord, summary: RunSummary, made: Sequence[TrialRecord]) -> Validity:
    trials = summary.trials
    if run.imported is not None and trials.valid:
        text = f"{trials.valid} of {trials.measured} files have a result; nobody checked it here."
        return Validity(badge="not checked", tone="doubtful", text=text)
    base = f"{trials.valid} of {trials.measured} trials are valid results"
    if nothing_worked(run, made):
        told = f"Every point failed, so the run ended early; {base} of {trials.planned} planned."
        return Validity(badge="no result", tone="void", text=told)
    if summary.status != "complete":
        badge = "failed" if run.status == "failed" else "interrupted"
        # How many trials a search takes is not known before.
        planned = "" if run.search is not None else f" of {trials.planned} planned"
        return Validity(badge=badge, tone="doubtful", text=f"The run did not end; {base}{planned}.")
    if summary.valid:
        told = "neither the generator nor the machine was the limit"
        if lost := sum(each.outcome in {"generator_limited", "invalid"} for each in made):
            told = f"{lost} others are no results, and the warnings say why"
        elif any(each.code in SHARED for each in summary.warnings):
            told = "the warnings say what else had the machine's CPUs"
        return Validity(badge="valid", tone="ok", text=f"{base}; {told}.")
    return _in_part(summary, base)


def _in_part(summary: RunSummary, base: str) -> Validity:
    """Of a run that ended, and has points or searches without a result of their own."""
    limited = sum(each.limited_by not in {None, "server"} for each in summary.capacities)
    if limited:
        settings = len(summary.capacities)
        where = f" at {limited} of {settings} settings" if settings > 1 else ""
        told = f"the generator or the machine, and not the server, was the limit{where}"
        return Validity(badge="valid in part", tone="doubtful", text=f"{base}; {told}.")
    doubtful = sum(point.doubtful for point in summary.points)
    if doubtful and all(point.outcome == "ok" for point in summary.points):
        told = f"the figures of {doubtful} of {len(summary.points)} points are doubtful, and the warnings say why"
        return Validity(badge="doubtful", tone="doubtful", text=f"{base}; {told}.")
    if summary.trials.valid == 0:
        return Validity(badge="no result", tone="void", text=f"{base}; the warnings say why.")
    failing = sum(stop.outcome == "failed" and stop.trials is not None for stop in summary.stops)
    if failing and all(point.outcome in {"ok", *STOPPED} for point in summary.points):
        told = f"some trials of {failing} of {len(summary.points)} points failed"
        return Validity(badge="valid in part", tone="doubtful", text=f"{base}; {told}.")
    return Validity(badge="valid in part", tone="doubtful", text=f"{base}; the warnings say which points have none.")


def _downloads(run: RunRecord, summary: RunSummary, made: Sequence[TrialRecord]) -> list[Part]:
    files = [
        ("points.csv", points_csv(run, summary), "a row for each point: number, mean, standard deviation, median"),
        ("trials.csv", trials_csv(run, made), "a row for each trial, with every figure"),
    ]
    if summary.capacities:
        files.insert(0, ("capacities.csv", capacities_csv(summary), "a row for each setting that was searched"))
    parts = [_download(name, text, what, summary.run) for name, text, what in files]
    told = f"plimsoll lab report {summary.run} --json prints the summary; trials/ has every record."
    return [*parts, Text(text=told)]


def _download(name: str, text: str, what: str, run: str) -> Part:
    if len(text) > PACKED_MOST:
        told = f"`plimsoll lab report {run} --export csv` writes {name}, which is too large for a page"
        return Text(text=f"{told} ({len(text) // 1000} kB): {what}")
    if len(text) <= CSV_MOST:
        return Download(name=name, address="data:text/csv;charset=utf-8," + quote(text, safe=CSV_PLAIN), what=what)
    packed = base64.b64encode(deflate.gzip_compress(text.encode(), LEVEL)).decode()
    return Download(name=f"{name}.gz", address=f"data:application/gzip;base64,{packed}", what=what)


def _packed(text: str) -> str:
    """A text as `page.js` reads it: the zlib format (RFC 1950) in Base64, a third of the bytes."""
    return base64.b64encode(deflate.zlib_compress(text.encode(), LEVEL)).decode()


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _when(run: RunRecord) -> str:
    when = time.strftime("%-d %B %Y, %H:%M UTC", time.gmtime(run.started_unix_s))
    return when if run.imported is None else f"imported on {when}"


def _scale(run: RunRecord, summary: RunSummary) -> str:
    trials = summary.trials
    if run.imported is not None:
        return f"{trials.measured} file{'' if trials.measured == 1 else 's'}"
    planned = "" if run.search is not None else f" of {trials.planned}"
    return f"{trials.measured}{planned} trials, {formatting.elapsed(summary.elapsed_s)}"
