"""`plimsoll lab capacity`: finds the highest load that meets its limits."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path

from plimsoll_lab.cli.capacity_question import NAME as CAPACITY_SUITE
from plimsoll_lab.cli.capacity_question import capacity_arguments, read_capacity_question
from plimsoll_lab.cli.outcome import measure
from plimsoll_lab.cli.verb import Verb
from plimsoll_lab.experiment.binary_check import refuse_what_the_binary_refuses
from plimsoll_lab.experiment.plan import RunRequest, make_plan
from plimsoll_lab.experiment.run import begin
from plimsoll_lab.hosts.binary import find_binary
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.store.folder import new_run
from plimsoll_lab.suite.secrets import redact, secrets_of


def _capacity(options: argparse.Namespace) -> int:
    asked = read_capacity_question(options)
    request = RunRequest(suite=CAPACITY_SUITE, out=options.out)
    plan = make_plan(asked.text, source="capacity", directory=str(Path.cwd()), request=request, seed=1)
    binary = find_binary()
    refuse_what_the_binary_refuses(plan, binary)
    with LocalHost() as host:
        secrets = secrets_of(plan, asked.command, asked.subject)
        folder = new_run(Path(options.out), hide=partial(redact, secrets=secrets))
        with folder.lock():
            record = begin(folder, plan, request, binary, host.metering)
            record.command = asked.command
            if record.search is not None:
                record.search = replace(record.search, subject=asked.subject)
            return measure(folder, record, plan, host, binary, options)


VERB = Verb(
    name="capacity",
    summary="find the highest load that meets its limits",
    examples="""examples:
  plimsoll lab capacity echo 127.0.0.1:7000 --limit 'response_time.p99 < 20ms'
  plimsoll lab capacity http http://127.0.0.1:8080/ --over rate --limit 'response_time.p99 < 50ms'
  plimsoll lab capacity http http://127.0.0.1:8080/ --limit 'response_time.p99 < 50ms' \\
      --command 'nginx -c /path/to/nginx.conf' --ready tcp:8080
""",
    arguments=capacity_arguments,
    perform=_capacity,
)
