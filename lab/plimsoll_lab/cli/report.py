"""`plimsoll lab report`: makes the report of a run anew."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

from plimsoll_lab.cli.outcome import report_run
from plimsoll_lab.cli.verb import USAGE, Verb
from plimsoll_lab.problem import LabError
from plimsoll_lab.store.folder import open_run
from plimsoll_lab.suite.figures import suggest


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, such as runs/0007")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument("--export", metavar="KINDS", default="", help="also write svg, png, csv (comma-separated)")


def _report(options: argparse.Namespace) -> int:
    folder = open_run(Path(options.run))
    kinds = [kind for kind in options.export.split(",") if kind]
    for kind in kinds:
        if kind not in {"svg", "png", "csv"}:
            raise LabError(f"--export {kind}: no such kind{suggest(kind, ('svg', 'png', 'csv'))}", exit_code=USAGE)
    code = report_run(folder, options)
    if kinds:
        from plimsoll_lab.report.export import export  # noqa: PLC0415 - loads the chart renderer

        for path in export(folder, kinds):
            print(path, file=sys.stderr)
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
