"""`plimsoll lab run`: measures a suite."""

from __future__ import annotations

import argparse
import shlex
from functools import partial
from pathlib import Path

from plimsoll_lab.cli.outcome import enter_networks, measure, open_machines
from plimsoll_lab.cli.suite_arguments import add_suite_arguments, read_plan
from plimsoll_lab.cli.verb import Verb, add_out
from plimsoll_lab.experiment.binary_check import refuse_what_the_binary_refuses
from plimsoll_lab.experiment.plan import RunRequest
from plimsoll_lab.experiment.run import begin
from plimsoll_lab.hosts.binary import find_binary
from plimsoll_lab.store.folder import new_run
from plimsoll_lab.suite.secrets import redact, secrets_of
from plimsoll_lab.suite.spec import Plan


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_suite_arguments(parser)
    add_out(parser, "where the run's folder is made")


def _run(options: argparse.Namespace) -> int:
    return run_plan(*read_plan(options), options)


def run_plan(plan: Plan, request: RunRequest, options: argparse.Namespace) -> int:
    """Measure a plan in a new folder, report it, and return the exit code."""
    binary = find_binary()
    refuse_what_the_binary_refuses(plan, binary)
    enter_networks(plan)
    with open_machines(request.hosts, binary) as machines:
        # The command that makes a gate again says how a revision is built, and the plan does not.
        secrets = secrets_of(plan, *map(shlex.split, request.gate))
        folder = new_run(Path(options.out), hide=partial(redact, secrets=secrets))
        with folder.lock():
            record = begin(folder, plan, request, binary, machines.metering)
            return measure(folder, record, plan, machines, binary, options)


VERB = Verb(
    name="run",
    summary="measure a suite",
    examples="""examples:
  plimsoll lab run demo
  plimsoll lab run demo --only server.model=epoll,uring --set load.connections=2500 --repeat 20
  plimsoll lab run my-suite.toml --json > summary.json
""",
    arguments=_arguments,
    perform=_run,
)
