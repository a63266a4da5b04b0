"""`plimsoll lab query`: SQL over the runs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from plimsoll_lab.cli.verb import Verb, add_out
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.query import Answer, ask


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sql", metavar="SQL", help="a query over runs, points, trials, processes, timelines, connections and requests"
    )
    add_out(parser, "where the runs are")


def _run(options: argparse.Namespace) -> int:
    found = ask(Path(options.out), options.sql)
    if options.json:
        twice = next((name for name in found.columns if found.columns.count(name) > 1), None)
        if twice is not None:
            raise LabError(f"two columns are called {twice}; give them names: {twice} AS other", exit_code=USAGE)
        for row in found.rows:
            print(json.dumps(dict(zip(found.columns, row, strict=True)), default=str))
    else:
        sys.stdout.write(_table(found))
    return 0


def _table(found: Answer) -> str:
    """Columns side by side, numbers to six figures."""
    cells = [list(found.columns), *([_cell(each) for each in row] for row in found.rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(found.columns))]
    return "".join(_line(row, widths) for row in cells)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() + "\n"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


VERB = Verb(
    name="query",
    summary="ask the runs in SQL",
    examples="""examples:
  plimsoll lab query 'SELECT run, suite, status FROM runs'
  plimsoll lab query "SELECT run, point, median(value) FROM trials WHERE figure = 'completed_rate' GROUP BY ALL"
  plimsoll lab query "SELECT at_s, value FROM timelines WHERE run = '0007' AND figure = 'established' ORDER BY ALL"
  plimsoll lab query "SELECT connections_up, avg(response_time_us) FROM requests \\
      WHERE phase = 'window' AND outcome = 'ok' GROUP BY ALL ORDER BY ALL" --json
""",
    arguments=_arguments,
    perform=_run,
)
