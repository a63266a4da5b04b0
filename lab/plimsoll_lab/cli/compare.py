"""`plimsoll lab compare`: whether one run is worse than another."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from plimsoll_lab.cli.verb import DONE, FAILED, INVALID, LIMIT_MISSED, Verb, colour, say
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.folder import open_run


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="runs of A, such as runs/0007; or one of A and one of B")
    parser.add_argument("--with", nargs="+", default=[], dest="others", metavar="RUN", help="runs of B")
    parser.add_argument("--page", metavar="FILE", help="where to write the page (default: in B's folder)")


def _compare(options: argparse.Namespace) -> int:
    from plimsoll_lab.analysis.comparison import compare_runs  # noqa: PLC0415 - loads the statistics
    from plimsoll_lab.report.compare_page import render_compare_page  # noqa: PLC0415
    from plimsoll_lab.report.comparison import render_comparison  # noqa: PLC0415

    a, b = (options.runs, options.others) if options.others else (options.runs[:1], options.runs[1:])
    if not b or (not options.others and len(options.runs) > PAIR):
        raise LabError("name the runs of both sides: plimsoll lab compare A... --with B...", exit_code=USAGE)
    of_a, of_b = ([open_run(Path(each)) for each in side] for side in (a, b))
    page = Path(options.page) if options.page else of_b[0].path / f"compare-{of_a[0].path.resolve().name}.html"
    summary = compare_runs(of_a, of_b).model_copy(update={"report": str(page)})
    _write(page, render_compare_page(of_a, of_b))
    say(json.dumps(summary.to_json()) if options.json else render_comparison(summary, colour=colour(options)))
    if summary.worse:
        return LIMIT_MISSED
    return DONE if summary.valid else INVALID


def _write(page: Path, text: str) -> None:
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(
            f"cannot write {page}: {error.strerror}; name another file with --page", exit_code=FAILED
        ) from None


PAIR = 2
"""Runs without --with: one a side, for a table without a verdict."""

VERB = Verb(
    name="compare",
    summary="compare stored runs of A with stored runs of B; exit 3 if B is worse beyond what runs differ by",
    examples="""examples:
  plimsoll lab compare runs/0001 runs/0003 ... --with runs/0002 runs/0004 ...    at least five a side for a verdict
  plimsoll lab compare runs/0007 runs/0008          the table alone, exit 4: one run a side tells no difference

It writes a page: the environments, every figure with its interval, a forest plot, the percentile curves.
Two builds are better compared in one run: plimsoll lab gate.
""",
    arguments=_arguments,
    perform=_compare,
)
