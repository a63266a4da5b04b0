"""The program `plimsoll-lab`: arguments in, a run and a report out.

It also answers to `plimsoll lab ...`, which runs it.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
import time
import tomllib
import traceback
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn, cast

from plimsoll_lab import __version__
from plimsoll_lab.capacity_question import NAME as CAPACITY_SUITE
from plimsoll_lab.capacity_question import capacity_arguments, read_question
from plimsoll_lab.hosts.binary import find_binary
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.privilege import gain_networks
from plimsoll_lab.problem import ENVIRONMENT, Interrupted, LabError
from plimsoll_lab.progress import Progress, SearchProgress
from plimsoll_lab.run import FAST_REPEAT, Request, begin, carry_out, make_plan, plan_again
from plimsoll_lab.store.folder import RunFolder, list_runs, new_run, open_run
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.figures import suggest
from plimsoll_lab.suite.read import read_file
from plimsoll_lab.suite.spec import Plan, SuiteError, Value

PROGRAM = "plimsoll lab"
DONE, FAILED, USAGE, LIMIT_MISSED, INVALID = 0, 1, 2, 3, 4
TRACEBACK_VARIABLE = "PLIMSOLL_TRACEBACK"

EXAMPLES = {
    "": """examples:
  plimsoll lab run demo                 which I/O model should my server use, and where does each one stop?
  plimsoll lab plan my-suite.toml       what would be measured, in what order, and how long it takes
  plimsoll lab report runs/0007 --open  the page of a run, made anew
""",
    "run": """examples:
  plimsoll lab run demo
  plimsoll lab run demo --only server.model=epoll,uring --set load.connections=2500 --repeat 20
  plimsoll lab run my-suite.toml --json > summary.json
""",
    "plan": """examples:
  plimsoll lab plan demo
  plimsoll lab plan my-suite.toml --repeat 20 --json
""",
    "resume": """examples:
  plimsoll lab resume runs/0007
""",
    "report": """examples:
  plimsoll lab report runs/0007 --open
  plimsoll lab report runs/0007 --export svg,csv
""",
    "compare": """examples:
  plimsoll lab compare runs/0007 runs/0008          exit 3 if 0008 is worse beyond the noise
  plimsoll lab compare runs/0007 runs/0008 --json
""",
    "capacity": """examples:
  plimsoll lab capacity echo 127.0.0.1:7000 --limit 'response_time.p99 < 20ms'
  plimsoll lab capacity http http://127.0.0.1:8080/ --over rate --limit 'response_time.p99 < 50ms'
  plimsoll lab capacity http http://127.0.0.1:8080/ --limit 'response_time.p99 < 50ms' \\
      --command 'nginx -c /path/to/nginx.conf' --ready tcp:8080
""",
    "preflight": """examples:
  plimsoll lab preflight                 what every suite needs
  plimsoll lab preflight my-suite.toml   what this one needs: exit 5 if it cannot run here
""",
    "suites": """examples:
  plimsoll lab suites
""",
    "list": """examples:
  plimsoll lab list
  plimsoll lab list --out elsewhere/
""",
}


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and exits with 2."""

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments."""
        sys.exit(_refuse(f"{message}; '{self.prog} --help' shows what there is", USAGE))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and exit."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        sys.exit(_run(sys.argv[1:] if arguments is None else arguments))
    except SuiteError as refusal:
        sys.exit(_refuse(str(refusal), USAGE))
    except LabError as problem:
        sys.exit(_refuse(str(problem), problem.exit_code))
    except Interrupted as interrupted:
        sys.exit(128 + interrupted.number)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort: a person gets a line, not a traceback
        if os.environ.get(TRACEBACK_VARIABLE):
            traceback.print_exc()
        sys.exit(
            _refuse(
                f"internal error: {type(error).__name__}: {error}; this is a fault of the lab: "
                f"run it again with {TRACEBACK_VARIABLE}=1 and report what it prints",
                FAILED,
            )
        )


def _run(arguments: Sequence[str]) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.verb is None:
        parser.print_help()
        return USAGE
    action = cast("Callable[[argparse.Namespace], int]", options.action)
    return action(options)


def _parser() -> Parser:
    parser = Parser(
        prog=PROGRAM,
        description="Turns a question into a run, and a run into a report that can be believed.",
        epilog=EXAMPLES[""],
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"plimsoll-lab {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="COMMAND", parser_class=Parser)

    def verb(name: str, summary: str, action: Callable[[argparse.Namespace], int]) -> Parser:
        made = verbs.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            epilog=EXAMPLES[name],
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        made.add_argument("--json", action="store_true", help="JSON lines on stdout and nothing else there")
        made.add_argument("--quiet", action="store_true", help="no progress on stderr")
        made.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colour in the terminal")
        made.add_argument("--version", action="version", version=f"plimsoll-lab {__version__}")
        made.set_defaults(action=action)
        return made

    run = verb("run", "measure a suite", _verb_run)
    _suite_arguments(run)
    run.add_argument("--out", default="runs", metavar="DIR", help="where the run's folder is made (default: runs)")
    plan = verb("plan", "show what a suite would measure, and whether it could tell a winner", _verb_plan)
    _suite_arguments(plan)
    resume = verb("resume", "go on with a run that was interrupted", _verb_resume)
    resume.add_argument("run", metavar="RUN", help="a run's folder, such as runs/0007")
    report = verb("report", "make the report of a run anew", _verb_report)
    report.add_argument("run", metavar="RUN", help="a run's folder, such as runs/0007")
    report.add_argument("--open", action="store_true", help="open the page in a browser")
    report.add_argument("--export", metavar="KINDS", default="", help="also write svg, png, csv (comma-separated)")
    compare = verb("compare", "hold run B against run A; exit 3 if B is worse beyond the noise", _verb_compare)
    compare.add_argument("run_a", metavar="RUN_A", help="the run to hold against, such as runs/0007")
    compare.add_argument("run_b", metavar="RUN_B", help="the run in question, such as runs/0008")
    capacity_arguments(verb("capacity", "find the highest load that meets its limits", _verb_capacity))
    flight = verb("preflight", "say what this machine lacks for a suite; changes nothing", _verb_preflight)
    flight.add_argument("suite", nargs="?", metavar="SUITE", help="a TOML file, or the name of a suite that ships")
    verb("suites", "list the suites that ship with Plimsoll", _verb_suites)
    listing = verb("list", "list the runs", _verb_list)
    listing.add_argument("--out", default="runs", metavar="DIR", help="where the runs are (default: runs)")
    return parser


def _suite_arguments(parser: Parser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="a TOML file, or the name of a suite that ships with Plimsoll")
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions of each point")
    parser.add_argument("--only", action="append", default=[], metavar="PATH=VALUE[,VALUE]", help="keep these points")
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="change a setting")
    parser.add_argument("--seed", type=int, metavar="N", help="where the order comes from")
    parser.add_argument("--fast", action="store_true", help=f"{FAST_REPEAT} repetitions: for a look, not for a verdict")


def _verb_run(options: argparse.Namespace) -> int:
    plan, request = _plan(options)
    binary = find_binary()
    _gain_networks(plan)
    with LocalHost() as host:
        folder = new_run(Path(options.out))
        with folder.lock():
            record = begin(folder, plan, request, binary, host.metering)
            return _carry_out(folder, record, plan, host, binary, options)


def _verb_resume(options: argparse.Namespace) -> int:
    folder = open_run(Path(options.run))
    binary = find_binary()
    with folder.lock():
        record = folder.read_run()
        plan = plan_again(record)
        # Before the host: a user namespace is entered by a process of one thread, and its children with it.
        _gain_networks(plan)
        with LocalHost() as host:
            return _resume(folder, record, plan, host, binary, options)


def _resume(
    folder: RunFolder, record: Json, plan: Plan, host: LocalHost, binary: str, options: argparse.Namespace
) -> int:
    metering = cast("Json", record["environment"])["metering"]
    if metering != host.metering:
        raise LabError(
            f"{folder.path} was metered by {metering}, which would now be {host.metering}; "
            "the two do not mix: begin a new run"
        )
    return _carry_out(folder, record, plan, host, binary, options)


def _gain_networks(plan: Plan) -> None:
    backends = {point.network.backend for point in plan.points if point.network is not None}
    if backends:
        gain_networks(over_tap="tap" in backends)


def _carry_out(
    folder: RunFolder, record: Json, plan: Plan, host: LocalHost, binary: str, options: argparse.Namespace
) -> int:
    if plan.suite.search is not None:
        from plimsoll_lab.searching import SearchRun  # noqa: PLC0415 - loads the search

        told = SearchProgress(plan.suite.search, quiet=options.quiet or options.json)
        interrupted = SearchRun(folder, record, plan, host, binary, told.trial_done).carry_out()
    else:
        progress = Progress(plan, folder, quiet=options.quiet or options.json, json_lines=options.json)
        interrupted = carry_out(folder, record, plan, host, binary, progress.trial_done)
        progress.close()
    code = _report(folder, options)
    return code if interrupted is None else 128 + interrupted.number


def _verb_plan(options: argparse.Namespace) -> int:
    from plimsoll_lab.outlook import describe_plan, render_plan  # noqa: PLC0415 - loads the statistics

    plan, _ = _plan(options)
    described = describe_plan(plan)
    _say(json.dumps(described) if options.json else render_plan(described, colour=_colour(options)))
    return DONE


def _verb_report(options: argparse.Namespace) -> int:
    folder = open_run(Path(options.run))
    kinds = [kind for kind in options.export.split(",") if kind]
    for kind in kinds:
        if kind not in {"svg", "png", "csv"}:
            raise LabError(f"--export {kind}: no such kind{suggest(kind, ('svg', 'png', 'csv'))}", exit_code=USAGE)
    code = _report(folder, options)
    if kinds:
        from plimsoll_lab.report.export import export  # noqa: PLC0415 - loads the chart renderer

        for path in export(folder, kinds):
            print(path, file=sys.stderr)
    if options.open:
        webbrowser.open(folder.report.resolve().as_uri())
    return code


def _report(folder: RunFolder, options: argparse.Namespace) -> int:
    from plimsoll_lab.report.page import write_page  # noqa: PLC0415 - the statistics and charts load in a second
    from plimsoll_lab.report.summary import summarise_run  # noqa: PLC0415
    from plimsoll_lab.report.terminal import render  # noqa: PLC0415

    summary = summarise_run(folder)
    write_page(folder, summary)
    run = folder.read_run()
    if run.get("search") and cast("Json", run["suite"])["name"] == CAPACITY_SUITE:
        from plimsoll_lab.capacity import capacity_summary, render_capacity  # noqa: PLC0415

        one = capacity_summary(folder, summary)
        _say(json.dumps(one) if options.json else render_capacity(folder, summary))
    else:
        _say(json.dumps(summary) if options.json else render(summary, run, colour=_colour(options)))
    return _exit_code(summary)


def _exit_code(summary: Json) -> int:
    found = cast("list[Json]", summary["capacities"])
    if found:
        return _search_exit_code(found)
    outcomes = {point["outcome"] for point in cast("list[Json]", summary["points"])}
    if outcomes & {"generator_limited", "invalid"}:
        return INVALID
    if not outcomes & {"ok", "hard_limit"}:
        return FAILED
    return LIMIT_MISSED if summary["limits_missed"] else DONE


def _search_exit_code(found: Sequence[Json]) -> int:
    if any(each["limited_by"] in {"generator", "environment"} for each in found):
        return INVALID
    if any(not each["finished"] for each in found):
        return FAILED
    return LIMIT_MISSED if any(each["lower"] is None for each in found) else DONE


def _verb_compare(options: argparse.Namespace) -> int:
    from plimsoll_lab.report.compared import compare_runs, render_comparison  # noqa: PLC0415 - loads the statistics

    summary = compare_runs(open_run(Path(options.run_a)), open_run(Path(options.run_b)))
    _say(json.dumps(summary) if options.json else render_comparison(summary, colour=_colour(options)))
    if summary["worse"]:
        return LIMIT_MISSED
    return DONE if summary["valid"] else INVALID


def _verb_capacity(options: argparse.Namespace) -> int:
    asked = read_question(options)
    request = Request(suite=CAPACITY_SUITE, out=options.out)
    plan = make_plan(asked.text, source="capacity", directory=str(Path.cwd()), request=request, seed=1)
    binary = find_binary()
    with LocalHost() as host:
        folder = new_run(Path(options.out))
        with folder.lock():
            record = begin(folder, plan, request, binary, host.metering)
            record["command"] = asked.command
            record["search"] = cast("Json", record["search"]) | {"subject": asked.subject}
            return _carry_out(folder, record, plan, host, binary, options)


def _verb_preflight(options: argparse.Namespace) -> int:
    from plimsoll_lab import preflight  # noqa: PLC0415 - of no use to the other verbs

    plan = None
    if options.suite is not None:
        suite = read_file(shipped.find(options.suite))
        plan = expand(suite, seed=suite.run.seed or 0)
    findings = preflight.preflight(plan)
    told = preflight.report(findings)
    _say(json.dumps(told) if options.json else preflight.render(findings, colour=_colour(options)))
    return ENVIRONMENT if told["level"] == "refuse" else DONE


def _verb_suites(options: argparse.Namespace) -> int:
    suites = shipped.suites()
    width = max(len(name) for name, _ in suites)
    for name, question in suites:
        _say(json.dumps({"name": name, "question": question}) if options.json else f"{name:<{width}}  {question}")
    return DONE


def _verb_list(options: argparse.Namespace) -> int:
    for folder in list_runs(Path(options.out)):
        run = folder.read_run()
        suite = cast("Json", run["suite"])
        done, planned = folder.count_trials(), len(cast("list[object]", run["trials"]))
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(cast("float", run["started_unix_s"])))
        if options.json:
            row = {"run": str(folder.path), "suite": suite["name"], "status": run["status"]}
            _say(json.dumps(row | {"trials": done, "planned": planned, "started_unix_s": run["started_unix_s"]}))
        else:
            _say(f"{folder.path}  {began}  {suite['name']:<16} {run['status']:<12} {done}/{planned} trials")
    return DONE


def _plan(options: argparse.Namespace) -> tuple[Plan, Request]:
    path = shipped.find(options.suite)
    changes: dict[str, Value] = {}
    for text in options.set:
        key, value = _assignment("--set", text)
        changes[key] = _toml_value(value)
    if options.repeat is not None:
        changes["run.repeat"] = options.repeat
    if options.fast:
        changes["run.repeat"] = FAST_REPEAT
    if options.seed is not None:
        changes["run.seed"] = options.seed
    only: dict[str, list[str]] = {}
    for text in options.only:
        key, value = _assignment("--only", text)
        only.setdefault(key, []).extend(value.split(","))
    request = Request(
        suite=options.suite, changes=changes, only=only, fast=options.fast, out=getattr(options, "out", "")
    )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: cannot read the suite: {error}") from None
    plan = make_plan(
        text, source=str(path), directory=str(path.resolve().parent), request=request, seed=secrets.randbits(32)
    )
    return plan, request


def _assignment(flag: str, text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key or not value:
        raise SuiteError(f"{flag} {text}: write {flag} PATH=VALUE, such as {flag} load.connections=2500")
    return key.strip(), value.strip()


def _toml_value(text: str) -> Value:
    """`2500` is a number and `true` a truth value, as in the file; anything else is a text."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    if isinstance(value, list):
        return tuple(str(each) for each in value)
    return value if isinstance(value, str | int | float | bool) else text


def _colour(options: argparse.Namespace) -> bool:
    if options.color == "auto":
        return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return bool(options.color == "always")


def _say(text: str) -> None:
    print(text, flush=True)


def _refuse(message: str, code: int) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return code


def _interrupt(number: int, _frame: FrameType | None) -> NoReturn:
    # Once: clearing up must not be interrupted by an impatient second key press.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise Interrupted(number)
