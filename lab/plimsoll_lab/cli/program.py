"""The program itself: reads the arguments, performs a verb, and turns errors and signals into exit
codes.

It also answers to `plimsoll lab ...`, which runs it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

from plimsoll_lab import __version__
from plimsoll_lab.cli import (
    capacity,
    compare,
    gate,
    import_results,
    init,
    list_runs,
    plan,
    preflight,
    prune,
    query,
    report,
    resume,
    run,
    serve,
    suites,
)
from plimsoll_lab.cli.verb import EXIT_CODES, FAILED, Parser, refuse
from plimsoll_lab.problem import FULL, GOES_ON, USAGE, Interrupted, LabError
from plimsoll_lab.suite.errors import SuiteError

PROGRAM = "plimsoll lab"
TRACEBACK_VARIABLE = "PLIMSOLL_TRACEBACK"
VERBS = tuple(
    each.VERB
    for each in (
        run,
        plan,
        resume,
        report,
        compare,
        gate,
        capacity,
        preflight,
        init,
        suites,
        list_runs,
        serve,
        query,
        import_results,
        prune,
    )
)
EXAMPLES = """examples:
  plimsoll lab run demo                 which I/O model should my server use, and where does each one stop?
  plimsoll lab plan my-suite.toml       what would be measured, in what order, and how long it takes
  plimsoll lab report runs/0007 --open  the page of a run, made anew
"""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    # Whoever starts the lab may ignore it: the kernel would then reap processes, and nobody know
    # how they ended (wait(2)).
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        sys.exit(_run(sys.argv[1:] if arguments is None else arguments))
    except SuiteError as refusal:
        sys.exit(refuse(str(refusal), USAGE))
    except LabError as problem:
        sys.exit(refuse(str(problem), problem.exit_code))
    except Interrupted as interrupted:
        sys.exit(128 + interrupted.number)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort: a person gets a line, not a traceback
        if isinstance(error, OSError) and error.errno in FULL:
            where = error.filename or "a file of the run"
            sys.exit(refuse(f"cannot write {where}: {error.strerror}; free some space there, then {GOES_ON}", FAILED))
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exc()
        sys.exit(
            refuse(
                f"internal error: {type(error).__name__}: {' '.join(str(error).split())}; this is a fault of the lab: "
                f"run it again with {TRACEBACK_VARIABLE}=1 and report what it prints",
                FAILED,
            )
        )


def _run(arguments: Sequence[str]) -> int:
    made = parser()
    options = made.parse_args(arguments)
    if options.verb is None:
        made.print_help()
        return USAGE
    perform: Callable[[argparse.Namespace], int] = options.perform
    return perform(options)


def parser() -> Parser:
    """The arguments of the program, with those of each verb."""
    whole = Parser(
        prog=PROGRAM,
        description="Turns a question into a run, and a run into a report that can be believed.",
        epilog=f"{EXAMPLES}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    whole.add_argument("--version", action="version", version=f"plimsoll-lab {__version__}")
    verbs = whole.add_subparsers(dest="verb", metavar="COMMAND", parser_class=Parser)
    for verb in VERBS:
        made = verbs.add_parser(
            verb.name,
            help=verb.summary,
            description=verb.summary[0].upper() + verb.summary[1:] + ".",
            epilog=f"{verb.examples}\n{verb.exit_codes}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        made.add_argument("--json", action="store_true", help="JSON lines on stdout and nothing else there")
        made.add_argument("--quiet", action="store_true", help="no progress on stderr")
        made.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour in the terminal")
        made.add_argument("--version", action="version", version=f"plimsoll-lab {__version__}")
        made.set_defaults(perform=verb.perform)
        verb.arguments(made)
    return whole


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    # Once: clearing up must not be interrupted by an impatient second key press.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)
