"""`plimsoll lab report`: makes the report of a run anew."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

from plimsoll_lab.cli.outcome import report_run
from plimsoll_lab.cli.verb import Verb
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.folder import open_run
from plimsoll_lab.suite.figures import suggest

KINDS = ("svg", "png", "csv", "parquet", "json", "md", "hgrm", "openmetrics")
"""What a run can be written as, beside its page."""

NEEDS = {
    "svg": "no chart can be drawn of this run",
    "png": "no chart can be drawn of this run",
    "hgrm": "no valid trial of this run has a histogram of response times, of a steady network and generator",
}
"""Kinds that not every run has, and why."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, such as runs/0007")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--export", metavar="KINDS", default="", help=f"also write {', '.join(KINDS)} (comma-separated)"
    )


def _report(options: argparse.Namespace) -> int:
    folder = open_run(Path(options.run))
    kinds = [kind for kind in options.export.split(",") if kind]
    for kind in kinds:
        if kind not in KINDS:
            raise LabError(f"--export {kind}: no such kind{suggest(kind, KINDS)}", exit_code=USAGE)
    code = report_run(folder, options)
    if kinds:
        from plimsoll_lab.report.export import export  # noqa: PLC0415 - loads the chart renderer

        written = export(folder, kinds)
        for path in written:
            print(path, file=sys.stderr)
        for kind, missing in NEEDS.items():
            if kind in kinds and not any(path.suffix == f".{kind}" for path in written):
                raise LabError(f"--export {kind}: {missing}; the other kinds were written")
    if options.open:
        webbrowser.open(folder.report.resolve().as_uri())
    return code


VERB = Verb(
    name="report",
    summary="make the report of a run anew",
    examples="""examples:
  plimsoll lab report runs/0007 --open
  plimsoll lab report runs/0007 --export svg,csv
""",
    arguments=_arguments,
    perform=_report,
)
