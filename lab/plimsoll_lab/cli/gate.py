"""`plimsoll lab gate`: measures a baseline and a new build in one run, and says whether the new
build is worse.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tomllib
from dataclasses import replace

from plimsoll_lab.cli.run import run_plan
from plimsoll_lab.cli.suite_arguments import add_suite_arguments, read_plan, words_of
from plimsoll_lab.cli.verb import Verb, add_out
from plimsoll_lab.experiment.plan import RunRequest
from plimsoll_lab.experiment.revision import PREFIX, checked_out
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.report.gate import FILES
from plimsoll_lab.stats.reasons import percent
from plimsoll_lab.suite import shipped, units
from plimsoll_lab.suite.contenders import CONTENDER
from plimsoll_lab.suite.read import read_file
from plimsoll_lab.suite.settings import Value
from plimsoll_lab.suite.spec import Plan

BASE, NEW = "base", "new"
THESE = f"{CONTENDER}={BASE},{NEW}"
"""Of `--only`: the two that a gate is between."""
NOISE = "3%"
"""Where nothing else states the number of blocks."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_suite_arguments(parser)
    parser.add_argument("--base", required=True, metavar="COMMAND", help="the baseline's server command, or git:REV")
    parser.add_argument("--new", required=True, metavar="COMMAND", help="the new server command, or git:REV")
    parser.add_argument(
        "--build",
        metavar="COMMAND",
        help="how a git revision is built, in its checkout; its input is empty and it has no terminal, so it cannot "
        "ask for anything",
    )
    parser.add_argument(
        "--tolerance", metavar="PART", help="the loss that is tolerated (default: the suite's, which is 5%% unless set)"
    )
    parser.add_argument(
        "--noise",
        metavar="PART",
        help="how much a figure varies from block to block; the number of blocks follows from it, whatever the suite's "
        "repeat is (default: 3%%)",
    )
    parser.add_argument(
        "--summary", action="append", default=[], choices=sorted(FILES), help="also write summary.md or junit.xml"
    )
    add_out(parser, "where the run's folder is made")


def _gate(options: argparse.Namespace) -> int:
    if options.build is not None:
        words_of("--build", options.build)
    if any(text.partition("=")[0].strip() == CONTENDER for text in options.only if text != THESE):
        raise LabError(f"--only {CONTENDER}: a gate is between --base and --new alone", exit_code=USAGE)
    flags = [
        word
        for flag, given in (("--tolerance", options.tolerance), ("--build", options.build))
        if given is not None
        for word in (flag, given)
    ]
    with contextlib.ExitStack() as stack:
        changes: dict[str, Value] = {"verdict.baseline": BASE}
        if options.tolerance is not None:
            changes["verdict.tolerance"] = options.tolerance
        for name, given in ((BASE, options.base), (NEW, options.new)):
            command, again = _command(stack, f"--{name}", given, options)
            changes[f"contender.{name}.command"] = command
            if any("{port}" in word for word in command):
                changes[f"contender.{name}.ready"] = "tcp:{port}"
            flags += [f"--{name}", again]
        # Nobody asked about the contenders of the suite.
        options.only = options.only if THESE in options.only else [*options.only, THESE]
        plan, request = _sized(options, changes)
        return run_plan(plan, replace(request, gate=flags, implied=changes), options)


def _command(
    stack: contextlib.ExitStack, flag: str, given: str, options: argparse.Namespace
) -> tuple[tuple[str, ...], str]:
    """The words of a contender's command, and what asks for the same again; of a revision, the
    suite's command in its checkout, and the commit.
    """
    if not given.startswith(PREFIX):
        return words_of(flag, given), given
    path = shipped.find(options.suite)
    # With a baseline of any command: the suite may state a tolerance, which needs one.
    suite = read_file(path, changes={"verdict.baseline": BASE, f"contender.{BASE}.command": ("true",)})
    command = suite.server.get("command")
    if not isinstance(command, tuple):
        raise LabError(f"{given}: the suite's [server] has no command to run in the checkout", exit_code=USAGE)
    checkout = stack.enter_context(checked_out(given.removeprefix(PREFIX), options.build, path.resolve().parent))
    return tuple(word.replace("{dir}", str(checkout.folder)) for word in command), PREFIX + checkout.commit


def _sized(options: argparse.Namespace, changes: dict[str, Value]) -> tuple[Plan, RunRequest]:
    """The plan, with as many blocks as the noise needs where no flag states their number."""
    from plimsoll_lab.stats.gate import MOST_BLOCKS, blocks_for  # noqa: PLC0415 - loads the statistics

    plan, request = read_plan(options, changes)
    stated = "--repeat" if "run.repeat" in request.changes else "--fast" if options.fast else None
    if stated is not None:
        if options.noise is not None:
            raise LabError(
                f"--noise {options.noise}: {stated} states the number of blocks too; leave one of them out",
                exit_code=USAGE,
            )
        return plan, request
    try:
        noise = units.part(NOISE if options.noise is None else options.noise)
    except ValueError as refusal:
        raise LabError(f"--noise: {refusal}", exit_code=USAGE) from None
    if noise <= 0:
        raise LabError("--noise: it has to be above 0, such as 3%; or state the blocks by --repeat", exit_code=USAGE)
    # Each contender but the baseline, at each setting.
    others = [point for point in plan.points if not point.control and point.setting.get(CONTENDER) != BASE]
    comparisons = len(plan.suite.verdict.figures) * max(1, len(others))
    tolerance = plan.suite.verdict.tolerance
    blocks = blocks_for(noise=noise, tolerance=tolerance, comparisons=comparisons)
    if blocks is None:
        raise LabError(
            f"a noise of {percent(noise)} needs more than {MOST_BLOCKS} blocks for a tolerance of {percent(tolerance)}"
            "; use a longer window, a quieter machine or a larger tolerance",
            exit_code=USAGE,
        )
    repeat = plan.suite.run.repeat
    if "repeat" in tomllib.loads(plan.suite.text).get("run", {}) and repeat != blocks and not options.quiet:
        print(
            f"the gate makes {blocks} blocks, for a noise of {percent(noise)}, and not the {repeat} of the suite; "
            f"--repeat {repeat} makes these",
            file=sys.stderr,
        )
    return read_plan(options, changes | {"run.repeat": blocks})


VERB = Verb(
    name="gate",
    summary="measure a baseline and a new build in one run; exit 3 if the new one is worse beyond the tolerance",
    examples="""examples:
  plimsoll lab gate api.toml --base './server-1.4 {port}' --new './server {port}'
  plimsoll lab gate api.toml --base git:v1.4 --new git:HEAD --build 'make server' --summary md --summary junit
""",
    exit_codes="""exit codes:
  0         not worse by more than the tolerance
  1         failed: a server, the generator or another part of the run
  2         the arguments or the suite are wrong
  3         worse by more than the tolerance (3 wins over 4)
  4         it cannot be told
  5         this machine cannot run it
  130, 143  interrupted by SIGINT or SIGTERM; 'plimsoll lab resume RUN' continues
""",
    arguments=_arguments,
    perform=_gate,
)
