"""`plimsoll lab import`: makes a run of the results of other load generators."""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path

from plimsoll_lab.cli.outcome import report_run
from plimsoll_lab.cli.suite_arguments import read_settings
from plimsoll_lab.cli.verb import Verb, add_out
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.suite import units

LOAD = "load."


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="[NAME=]FILE", help="a result; files of one name are repetitions")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="a load that no file names")
    parser.add_argument(
        "--unit",
        choices=("ns", "us", "ms", "s"),
        help="the unit of HdrHistogram's values, of files that do not name it",
    )
    parser.add_argument("--duration", metavar="D", help="how long a .hgrm was measured, such as 30s")
    parser.add_argument("--tag", metavar="TAG", help="the tag of a histogram log to import")
    parser.add_argument("--suite", metavar="NAME", help="a name, for a history of runs (default: the tools' names)")
    parser.add_argument("--question", metavar="TEXT", help="what the results are about")
    add_out(parser, "where the runs are")


def _import(options: argparse.Namespace) -> int:
    from plimsoll_lab.foreign.make_run import ImportRequest, ImportSource, import_run  # noqa: PLC0415 - loads the readers
    from plimsoll_lab.foreign.result import Options  # noqa: PLC0415

    sources = []
    for text in options.files:
        name, equals, path = text.partition("=")
        whole = Path(text).is_file() or not equals
        if not whole and not name.strip():
            raise LabError(f"import: {text}: a name is missing before '='", exit_code=USAGE)
        sources.append(ImportSource(path=Path(text if whole else path), name=None if whole else name))
    changes = read_settings(options.set)
    for key in changes:
        if not key.startswith(LOAD) or key == LOAD:
            raise LabError(f"import: --set {key}: only settings of the load, such as load.connections", exit_code=USAGE)
    folder = import_run(
        Path(options.out),
        sources,
        ImportRequest(
            options=Options(unit=options.unit, duration_s=_duration(options.duration), tag=options.tag),
            load={key.removeprefix(LOAD): value for key, value in changes.items()},
            suite=options.suite,
            question=options.question,
            command=_command(options),
            now_unix_s=time.time(),
        ),
    )
    return report_run(folder, options)


def _duration(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        found = units.duration_s(text)
    except ValueError as refusal:
        raise LabError(f"import: --duration: {refusal}", exit_code=USAGE) from None
    if found <= 0:
        raise LabError(f"import: --duration {text}: write a time above 0", exit_code=USAGE)
    return found


def _command(options: argparse.Namespace) -> str:
    words = ["plimsoll", "lab", "import", *options.files]
    for each in options.set:
        words += ["--set", each]
    for flag in ("unit", "duration", "tag", "suite", "question"):
        value = getattr(options, flag)
        words += [f"--{flag}", value] if value is not None else []
    return shlex.join(words)


VERB = Verb(
    name="import",
    summary="make a run of the results of k6, oha, fortio, wrk2, wrk or HdrHistogram",
    examples="""examples:
  plimsoll lab import summary.json                              one result, as a page
  plimsoll lab import old=a1.json old=a2.json new=b1.json       repetitions of two contenders, drawn together
  plimsoll lab import day/*.json --set load.connections=50      what the files do not tell
  plimsoll lab import times.hgrm --unit us --duration 30s       values and a rate from a distribution

The summary says what a file lacks. Verdicts need several imported runs a side: plimsoll lab compare.
""",
    arguments=_arguments,
    perform=_import,
)
