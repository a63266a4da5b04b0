"""`plimsoll lab resume`: continues a run that was interrupted."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from plimsoll_lab.cli.outcome import Machines, enter_networks, measure, open_machines, report_run
from plimsoll_lab.cli.verb import Verb
from plimsoll_lab.experiment.plan import plan_again
from plimsoll_lab.experiment.programs import changed_programs, programs_of
from plimsoll_lab.experiment.revision import refuse_lost_checkouts
from plimsoll_lab.experiment.run import changed_since, is_whole
from plimsoll_lab.hosts.binary import find_binary
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.folder import RunFolder, open_run
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.suite.errors import naming_source
from plimsoll_lab.suite.secrets import redact, secrets_of
from plimsoll_lab.suite.spec import Plan


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's folder, such as runs/0007")
    parser.add_argument(
        "--anyway",
        action="store_true",
        help="continue although the build, the machine, its kernel or a program of the suite has changed",
    )


def _resume(options: argparse.Namespace) -> int:
    folder = open_run(Path(options.run))
    with folder.lock():
        record = folder.read_run()
        if record.imported is not None:
            raise LabError(f"{folder.path} was imported: it has nothing to go on with", exit_code=USAGE)
        if is_whole(folder, record):
            return report_run(folder, options)
        binary = find_binary()
        changed = changed_since(record, binary)
        _refuse(changed, folder, options)
        # The suite's file may be in order: its text is read from the record.
        with naming_source(str(folder.path / "run.json")):
            plan = plan_again(record)
        refuse_lost_checkouts(plan)
        folder = replace(folder, hide=partial(redact, secrets=secrets_of(plan)))
        _note_mixed(changed, folder, record)
        # Before the host: a user namespace is entered by a process of one thread, and its children
        # with it.
        enter_networks(plan)
        hosts = record.request.hosts or ""
        with open_machines(hosts, binary) as machines:
            return _go_on(folder, record, plan, machines, binary, options)


def _refuse(changed: Sequence[str], folder: RunFolder, options: argparse.Namespace) -> None:
    if changed and not options.anyway:
        raise LabError(
            f"{folder.path}: its trials would not be alike: {'; '.join(changed)}; "
            "resume with the build, the machine and the programs that began it, begin a new run, or add --anyway"
        )


def _note_mixed(changed: Sequence[str], folder: RunFolder, record: RunRecord) -> None:
    """Keep what has changed."""
    if changed:
        record.mixed = list(dict.fromkeys([*record.mixed, *changed]))
        folder.write_run(record)


def _go_on(
    folder: RunFolder, record: RunRecord, plan: Plan, machines: Machines, binary: str, options: argparse.Namespace
) -> int:
    metering = record.environment.metering
    # Of a cluster it is seen, and compared, once its hosts are joined.
    if isinstance(machines, LocalHost) and metering != machines.metering:
        raise LabError(
            f"{folder.path} reads CPU and memory by {metering}, and the lab would now read them by "
            f"{machines.metering}: the figures would not be comparable; begin a new run"
        )
    if record.programs is not None:
        changed = changed_programs(record.programs, programs_of(plan, machines))
        _refuse(changed, folder, options)
        _note_mixed(changed, folder, record)
    return measure(folder, record, plan, machines, binary, options)


VERB = Verb(
    name="resume",
    summary="continue a run that was interrupted",
    examples="""examples:
  plimsoll lab resume runs/0007
""",
    arguments=_arguments,
    perform=_resume,
)
