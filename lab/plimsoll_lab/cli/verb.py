"""What every verb is made of: its name, help and action; exit codes; what it may print."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from plimsoll_lab.problem import USAGE
from plimsoll_lab.suite.errors import printable

DONE, FAILED, LIMIT_MISSED, INVALID = 0, 1, 3, 4
EXIT_CODES = """exit codes:
  0         done
  1         failed: a server, a generator or another part of the run
  2         the arguments or the suite are wrong
  3         a limit was missed, or what was compared is worse
  4         measured, but not valid: the generator or the machine was the limit, trials failed, or it cannot be told
  5         this machine cannot run it
  130, 143  interrupted by SIGINT or SIGTERM; 'plimsoll lab resume RUN' continues
"""
"""The end of the program's help and of each verb's."""
RUNS = "runs"
"""The folder of runs, unless --out names another."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """One verb of the program."""

    name: str
    """The word on the command line."""
    summary: str
    """One line of help, without a capital or a full stop."""
    examples: str
    """Commands to copy, after its arguments."""
    arguments: Callable[[argparse.ArgumentParser], None]
    """Adds its own arguments to a parser."""
    perform: Callable[[argparse.Namespace], int]
    """Does it, and returns the exit code."""
    exit_codes: str = EXIT_CODES
    """The end of its help."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        sys.exit(refuse(f"{message}; '{self.prog} --help' shows what there is", USAGE))


def no_arguments(_: argparse.ArgumentParser) -> None:
    """Add nothing: for a verb without arguments of its own."""


def add_out(parser: argparse.ArgumentParser, about: str) -> None:
    """Add --out, the folder of runs: `about` says what the verb does there."""
    parser.add_argument("--out", default=RUNS, metavar="DIR", help=f"{about} (default: {RUNS})")


def colour(options: argparse.Namespace) -> bool:
    """Whether the terminal gets colour."""
    if options.color == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return bool(options.color == "always")


def say(text: str) -> None:
    """Print what was asked for on stdout."""
    print(text, flush=True)


def refuse(message: str, code: int) -> int:
    """Print an error as one line on stderr, and return the exit code."""
    print(f"error: {printable(message)}", file=sys.stderr)
    return code
