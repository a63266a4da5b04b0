"""Chapters of the book from stored runs of the suites of the five reports.

`PYTHONPATH=lab python bench/reports.py CHAPTER RUN...` keeps each run's summary, without captures,
in docs/results/report-SUITE.json, and writes docs/report-CHAPTER.md and its plots anew from all
summaries of that chapter. Without a run it only writes the chapter. `make reference` then brings
README.md and the book's contents up to date. CHAPTER is one of tcpbenchmark, three-servers,
epoll-scaling, port-fwd, http-saturation.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import axes
import courses
import three_servers
from chapter import wrapped
from kept import DRAWN, TABLED, along_of, dots, figures_of, is_at, is_of_a_client, label
from relay_costs import echo_time, paired_costs, sentence
from report_plots import OURS, THEIRS, law_plot, plot
from report_tables import claim_table, open_points, point_table, process_table, reference_table, stopped

from plimsoll_lab.analysis.claims import judge_claims
from plimsoll_lab.analysis.closed_loop import Case, fit
from plimsoll_lab.analysis.network import congestion_controls
from plimsoll_lab.analysis.summary import points_of
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.suite import units
from plimsoll_lab.suite.expand import expand
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
DEFAULT_CONTROL = "bbr"
"""The default of the kernel that runs were made on which do not say what their hosts used."""

ABOUT_POINTS = (
    "Mean and standard deviation, median and its interval of 95 % of our trials, and of how many where not all tell "
    "it; the document's in brackets."
)

Json = Mapping[str, Any]


def summary_of(run: str) -> dict[str, Any]:
    """The summary of a stored run, as `lab report` tells it."""
    done = subprocess.run(
        [sys.executable, "-m", "plimsoll_lab", "report", run, "--json"], capture_output=True, text=True, check=False
    )
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{") and json.loads(line).get("event") == "summary":
            summary = {key: value for key, value in json.loads(line).items() if key in KEPT}
            folder = RunFolder(path=Path(run))
            record = folder.read_run()
            summary |= {"processes": processes_of(folder), "suite_text": record.suite.text}
            summary["claims"] += asked_later(summary, folder)
            kept = {*figures_of(summary), *TABLED.get(summary["suite"], ()), *SHOWN}
            for point in summary["points"]:
                own = [name for name in kept if not is_of_a_client(name) or "point" in point["point"]]
                point["figures"] = {name: found for name, found in point["figures"].items() if name in own}
            summary |= courses.courses_of(run)
            figure = echo_time(summary) if summary["suite"] in CHAPTERS["port-fwd"] else None
            costs = paired_costs(folder.read_trials(), figure) if figure is not None else []
            return summary | {"congestion": congestion_controls(record), "costs": costs}
    raise SystemExit(f"{run}: it has no summary: {done.stderr.strip() or done.stdout[-200:]}")


def asked_later(summary: Json, folder: RunFolder) -> list[dict[str, Any]]:
    """The claims that the suite of today has and that of the run had not, judged from the same
    trials; none where the suite measures otherwise today.
    """
    if changed_keys(summary):
        return []
    run, trials = folder.read_run(), folder.read_trials()
    asked = {each.name for each in run.claims}
    new = [each for each in read_file(find(summary["suite"])).claims if each.name not in asked]
    found = judge_claims(run.model_copy(update={"claims": new}), points_of(run, trials), trials)
    return [each.model_dump(mode="json") | {"asked_later": True} for each in found]


def processes_of(folder: RunFolder) -> dict[str, Any]:
    """The server's processes that used any CPU, of the first trial at a point of which the document
    states something, beside the CPU of the server in all; empty where the suite does not ask for
    them.
    """
    stated = [dict(each.at) for each in folder.read_run().references]
    for trial in folder.read_trials():
        seen = trial.server.get("processes", ())
        listed = [dict(each) for each in seen if each["cpu_cores"] > 0]
        if listed and trial.outcome == "ok" and any(is_at(trial.setting, place) for place in stated):
            in_all = trial.figures["server.cpu_cores"]
            return {"point": label(trial.setting), "cpu_cores": in_all, "seen": len(seen), "listed": listed}
    return {}


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


def missed_control(summary: Json) -> str | None:
    """The congestion control that the suite asks for, of a run that was made before it did."""
    asked = settings_of(find(summary["suite"]).read_text(encoding="utf-8")).get("[network] congestion")
    return None if summary.get("congestion") or asked is None else str(asked)


def congestion_of(summary: Json) -> list[str]:
    """Which congestion control the hosts of a run used, where its suite has a network."""
    if summary.get("congestion"):
        return [f"Congestion control of TCP: {', '.join(summary['congestion'])}.", ""]
    missed = missed_control(summary)
    if missed is None:
        return []
    said = "The suite set no congestion control when this run was made: its hosts used "
    return [f"{said}{DEFAULT_CONTROL}, the default of that machine, and not {missed}. It has to be run again.", ""]


def todays(summary: Json) -> dict[str, Any]:
    """A kept summary with all that the document says by the suite of today, and what of it this run
    was not asked.
    """
    suite = read_file(find(summary["suite"]))
    stated = [_as_kept(asdict(each) | {"at": dict(each.at)}) for each in suite.references]
    kept = [each for each in summary["references"] if _said(each) not in [_said(other) for other in stated]]
    answered = {each["name"] for each in summary["claims"]}
    there = [point["point"] for point in summary["points"]]
    lacking = [point.setting for point in expand(suite, seed=0).points if _as_kept(point.setting) not in there]
    return dict(summary) | {
        "references": [*stated, *kept],
        "open_claims": [each for each in suite.claims if each.name not in answered],
        "open_points": [label(each) for each in lacking],
    }


def _said(reference: Json) -> tuple[str, str]:
    return reference["figure"], str(dict(reference["at"]))


def _as_kept(stated: Json) -> Json:
    """What a suite states as it is read back from a file: its lists are tuples until then."""
    kept: Json = json.loads(json.dumps(dict(stated)))
    return kept


def file_of(suite: str) -> Path:
    """Where a suite's summary is kept."""
    return RESULTS / f"report-{suite}.json"


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
        ABOUT_POINTS,
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
