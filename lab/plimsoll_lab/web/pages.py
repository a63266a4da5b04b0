"""The pages of `lab serve`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.history import find_history
from plimsoll_lab.problem import LabError
from plimsoll_lab.report.compare_page import render_compare_page
from plimsoll_lab.report.history_page import render_history_page
from plimsoll_lab.store.folder import RunFolder, list_runs
from plimsoll_lab.store.records import Json
from plimsoll_lab.web.follow import read_events, tail

LINKS = (("/", "All runs"),)
_TEMPLATES = jinja2.Environment(
    loader=jinja2.ChoiceLoader([jinja2.PackageLoader("plimsoll_lab.web"), jinja2.PackageLoader("plimsoll_lab.report")]),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters["outcome"] = formatting.outcome
_TEMPLATES.filters["setting"] = formatting.setting


def run_list(out: Path, asked: Mapping[str, str]) -> str:
    """Every run, the newest first; `suite`, `status` and `q`, words of the question, select."""
    rows = [_row(folder) for folder in reversed(list_runs(out))]
    suites = sorted({str(row["suite"]) for row in rows})
    states = sorted({str(row["status"]) for row in rows})
    suite, status, words = asked.get("suite", ""), asked.get("status", ""), asked.get("q", "")
    shown = [
        row
        for row in rows
        if (not suite or row["suite"] == suite)
        and (not status or row["status"] == status)
        and words.lower() in f"{row['number']} {row['suite']} {row['question']}".lower()
    ]
    return _TEMPLATES.get_template("runs.html").render(
        rows=shown, total=len(rows), out=out, suites=suites, states=states, suite=suite, status=status, words=words
    )


def _row(folder: RunFolder) -> Json:
    number = int(folder.path.name)
    try:
        run = folder.read_run()
    except LabError as reason:
        why = str(reason)
        return {"number": number, "suite": "", "question": why, "status": "unreadable", "began": "", "trials": ""}
    searching = run.search is not None
    return {
        "number": number,
        "suite": run.suite.name,
        "question": run.suite.question,
        "status": folder.status(run),
        "began": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(run.started_unix_s)),
        "trials": str(folder.count_trials()) + ("" if searching else f" of {len(run.trials)}"),
    }


def live(folder: RunFolder) -> str:
    """The run under way; opened late, or without scripts, it shows what has happened."""
    run = folder.read_run()
    found = read_events(folder)
    known = {
        "offset": found[-1].offset if found else 0,
        "events": tail(found),
        "number": int(folder.path.name),
        "folder": str(folder.path),
        "trials": len(run.trials),
    }
    # `<` could end the HTML element around it; JSON may write it otherwise.
    data = Markup(json.dumps(known).replace("<", "\\u003c"))  # noqa: S704 - see above
    done = [each for each in tail(found) if each["event"] == "trial"]
    return _TEMPLATES.get_template("live.html").render(
        number=int(folder.path.name),
        suite=run.suite.name,
        question=run.suite.question,
        status=folder.status(run),
        done=done,
        on_disk=folder.count_trials(),
        has_report=folder.report.is_file(),
        data=data,
    )


def comparison(a: Sequence[RunFolder], b: Sequence[RunFolder]) -> str:
    """The runs of B beside those of A."""
    return render_compare_page(a, b, LINKS)


def history(out: Path, suite: str) -> str:
    """The runs of a suite over time."""
    return render_history_page(find_history(list_runs(out), suite), LINKS)


def problem(text: str) -> str:
    """What could not be shown, and why."""
    return _TEMPLATES.get_template("problem.html").render(text=text)


def asset(name: str) -> str:
    """A file beside the pages."""
    return _TEMPLATES.get_template(name).render()
