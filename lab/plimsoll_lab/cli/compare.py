"""`plimsoll lab compare`: tells whether one run is worse than another."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from plimsoll_lab.cli.verb import DONE, INVALID, LIMIT_MISSED, Verb, colour, say
from plimsoll_lab.store.folder import open_run


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_a", metavar="RUN_A", help="the run to hold against, such as runs/0007")
    parser.add_argument("run_b", metavar="RUN_B", help="the run in question, such as runs/0008")


def _compare(options: argparse.Namespace) -> int:
    from plimsoll_lab.analysis.comparison import compare_runs  # noqa: PLC0415 - loads the statistics
    from plimsoll_lab.report.comparison import render_comparison  # noqa: PLC0415

    summary = compare_runs(open_run(Path(options.run_a)), open_run(Path(options.run_b)))
    say(json.dumps(summary) if options.json else render_comparison(summary, colour=colour(options)))
    if summary["worse"]:
        return LIMIT_MISSED
    return DONE if summary["valid"] else INVALID


VERB = Verb(
    name="compare",
    summary="hold run B against run A; exit 3 if B is worse beyond the noise",
    examples="""examples:
  plimsoll lab compare runs/0007 runs/0008          exit 3 if 0008 is worse beyond the noise
  plimsoll lab compare runs/0007 runs/0008 --json
""",
    arguments=_arguments,
    perform=_compare,
)
