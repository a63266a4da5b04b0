"""`plimsoll lab preflight`: says what this machine lacks for a suite, and up to which packet rate
the emulator is in time here.
"""

from __future__ import annotations

import argparse
import json

from plimsoll_lab.cli import machine_checks
from plimsoll_lab.cli.emulator_check import check_emulator
from plimsoll_lab.cli.verb import DONE, Verb, colour, say
from plimsoll_lab.problem import ENVIRONMENT
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_file


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", nargs="?", metavar="SUITE", help="a TOML file, or the name of a suite that ships")


def _preflight(options: argparse.Namespace) -> int:
    plan = None
    if options.suite is not None:
        suite = read_file(shipped.find(options.suite))
        plan = expand(suite, seed=suite.run.seed or 0)
    findings = [*machine_checks.preflight(plan), *check_emulator(plan)]
    told = machine_checks.report(findings)
    say(json.dumps(told) if options.json else machine_checks.render(findings, colour=colour(options)))
    return ENVIRONMENT if told["level"] == "refuse" else DONE


VERB = Verb(
    name="preflight",
    summary="say what this machine lacks for a suite; changes nothing",
    examples="""examples:
  plimsoll lab preflight                 what every suite needs
  plimsoll lab preflight my-suite.toml   what this one needs: exit 5 if it cannot run here
""",
    arguments=_arguments,
    perform=_preflight,
)
