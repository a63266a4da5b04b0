"""`plimsoll lab suites`: lists the suites that ship with Plimsoll."""

from __future__ import annotations

import argparse
import json

from plimsoll_lab.cli.verb import DONE, Verb, no_arguments, say
from plimsoll_lab.suite import shipped


def _suites(options: argparse.Namespace) -> int:
    suites = shipped.suites()
    width = max(len(name) for name, _ in suites)
    for name, question in suites:
        say(json.dumps({"name": name, "question": question}) if options.json else f"{name:<{width}}  {question}")
    return DONE


VERB = Verb(
    name="suites",
    summary="list the suites that ship with Plimsoll",
    examples="""examples:
  plimsoll lab suites
""",
    arguments=no_arguments,
    perform=_suites,
)
