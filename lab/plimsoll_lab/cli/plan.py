"""`plimsoll lab plan`: says what a suite would measure."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

from plimsoll_lab.cli.suite_arguments import add_suite_arguments, read_plan
from plimsoll_lab.cli.verb import DONE, RUNS, Verb, colour, say
from plimsoll_lab.experiment.binary_check import refuse_what_the_binary_refuses
from plimsoll_lab.hosts.binary import find_binary
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.folder import RunFolder, list_runs, open_run
from plimsoll_lab.suite.units import count

if TYPE_CHECKING:
    from plimsoll_lab.analysis.scale import ScaleEstimate


TARGET_CONNECTIONS, TARGET_RATE = "10M", "5M"
NEWEST = ""
"""What --scale is without a run."""


def _plan(options: argparse.Namespace) -> int:
    if options.scale is None and (options.target_connections, options.target_rate) != (None, None):
        raise LabError("--target-connections and --target-rate need --scale, a run to scale from", exit_code=USAGE)
    plan, request = read_plan(options)
    # Before the statistics, which start threads: the binary is forked from a process of one.
    refuse_what_the_binary_refuses(plan, find_binary())
    from plimsoll_lab.experiment.plan_summary import describe_plan  # noqa: PLC0415 - loads the statistics
    from plimsoll_lab.report.plan import render_plan, render_scale  # noqa: PLC0415

    run = None if options.scale is None else _run_to_scale_from(options.scale, plan.suite.name)
    scaled = None if run is None else _scale(run, options)
    described = describe_plan(plan, on_a_cluster=bool(request.hosts))
    if options.json:
        scale = {} if run is None or scaled is None else {"scale": {"run": str(run.path)} | scaled.to_json()}
        say(json.dumps(described.to_json() | scale))
    else:
        said = render_plan(described, colour=colour(options))
        say(said if run is None or scaled is None else f"{said}\n{render_scale(scaled, str(run.path))}")
    return DONE


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_suite_arguments(parser)
    parser.add_argument(
        "--scale",
        nargs="?",
        const=NEWEST,
        metavar="RUN",
        help=f"say how many generators a target needs, by what this run used (default: the newest in {RUNS})",
    )
    parser.add_argument("--target-connections", metavar="N", help=f"of --scale (default: {TARGET_CONNECTIONS})")
    parser.add_argument("--target-rate", metavar="N", help=f"of --scale, requests/s (default: {TARGET_RATE})")


def _run_to_scale_from(named: str, suite: str) -> RunFolder:
    """The run that was named, or the newest of the suite that ended."""
    if named != NEWEST:
        return open_run(Path(named))
    for run in reversed(list_runs(Path(RUNS))):
        with contextlib.suppress(LabError):  # of a damaged record, which says nothing of the others
            record = run.read_run()
            if record.suite.name == suite and run.status(record) == "complete":
                return run
    raise LabError(f"no run of {suite} in {RUNS} has ended; run it, or name another run after --scale", exit_code=USAGE)


def _scale(run: RunFolder, options: argparse.Namespace) -> ScaleEstimate:
    """How many generators the target needs, each with one address."""
    from plimsoll_lab.analysis.scale import generators_needed  # noqa: PLC0415 - only where it is asked for

    connections = _target("--target-connections", options.target_connections or TARGET_CONNECTIONS)
    rate = _target("--target-rate", options.target_rate or TARGET_RATE)
    try:
        return generators_needed(run.read_run(), run.read_trials(), connections=connections, rate=rate)
    except ValueError as refusal:
        raise LabError(f"{run.path}: {refusal}; name another run after --scale") from None


def _target(flag: str, text: str) -> int:
    try:
        return count(text)
    except ValueError as refusal:
        raise LabError(f"{flag}: {refusal}", exit_code=USAGE) from None


VERB = Verb(
    name="plan",
    summary="show what a suite would measure, and whether it could tell a winner",
    examples="""examples:
  plimsoll lab plan demo
  plimsoll lab plan my-suite.toml --repeat 20 --json
  plimsoll lab plan my-suite.toml --scale             how many generators ten million connections would need
  plimsoll lab plan three-servers --scale runs/0007 --target-connections 10M --target-rate 5M
""",
    arguments=_arguments,
    perform=_plan,
)
