"""`plimsoll lab plan`: says what a suite would measure."""

from __future__ import annotations

import argparse
import json

from plimsoll_lab.cli.suite_arguments import add_suite_arguments, read_plan
from plimsoll_lab.cli.verb import DONE, Verb, colour, say
from plimsoll_lab.experiment.binary_check import refuse_what_the_binary_refuses
from plimsoll_lab.hosts.binary import find_binary


def _plan(options: argparse.Namespace) -> int:
    from plimsoll_lab.experiment.plan_summary import describe_plan  # noqa: PLC0415 - loads the statistics
    from plimsoll_lab.report.plan import render_plan  # noqa: PLC0415

    plan, _ = read_plan(options)
    refuse_what_the_binary_refuses(plan, find_binary())
    described = describe_plan(plan)
    say(json.dumps(described) if options.json else render_plan(described, colour=colour(options)))
    return DONE


VERB = Verb(
    name="plan",
    summary="show what a suite would measure, and whether it could tell a winner",
    examples="""examples:
  plimsoll lab plan demo
  plimsoll lab plan my-suite.toml --repeat 20 --json
""",
    arguments=add_suite_arguments,
    perform=_plan,
)
