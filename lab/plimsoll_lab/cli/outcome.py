"""How a run ends: its page is written, its summary printed, and its exit code derived."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from plimsoll_lab.cli.progress import Progress, SearchProgress
from plimsoll_lab.cli.verb import DONE, FAILED, INVALID, LIMIT_MISSED, colour, say
from plimsoll_lab.experiment.events import Events
from plimsoll_lab.experiment.run import carry_out
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.privilege import gain_networks
from plimsoll_lab.hosts.ray_cluster import RayCluster
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import CapacityRecord, GateOutcome, RunSummary
from plimsoll_lab.suite.prediction import predicted_s
from plimsoll_lab.suite.spec import Plan

Machines = LocalHost | RayCluster
"""What a run has to measure on."""


def open_machines(hosts: str, binary: str) -> Machines:
    """The cluster that `--hosts` names, else this machine; a context."""
    return RayCluster(hosts, binary) if hosts else LocalHost()


def enter_networks(plan: Plan) -> None:
    """Enter a user namespace where the plan has networks. Before the host: it must be a process of
    one thread.
    """
    backends = {point.network.backend for point in plan.points if point.network is not None}
    if backends:
        gain_networks(over_tap="tap" in backends)


def measure(
    folder: RunFolder, record: RunRecord, plan: Plan, machines: Machines, binary: str, options: argparse.Namespace
) -> int:
    """Measure what the folder does not hold yet, and report the run."""
    progress: Progress | SearchProgress
    quiet = options.quiet or options.json
    if plan.suite.search is not None:
        progress = SearchProgress(plan.suite.search, quiet=quiet)
    else:
        progress = Progress(plan, folder, quiet=quiet, json_lines=options.json)
    with Events(folder, [progress.on_event]) as events:
        events.publish(_begins(plan, folder))
        if plan.suite.search is not None:
            from plimsoll_lab.experiment.search_run import SearchRun  # noqa: PLC0415 - loads the search

            interrupted = SearchRun(folder, record, plan, machines, binary, events).carry_out()
        else:
            interrupted = carry_out(folder, record, plan, machines, binary, events)
        if isinstance(progress, Progress):
            progress.close()
        code = report_run(folder, options)
        events.publish({"event": "reported", "report": folder.report.name})
    return code if interrupted is None else 128 + interrupted.number


def _begins(plan: Plan, folder: RunFolder) -> Json:
    """The first event: what is asked, and how much there is to do."""
    search = plan.suite.search
    kept = sorted(folder.trial_numbers())
    return {
        "event": "run",
        "suite": plan.suite.name,
        "question": plan.suite.question,
        "search": None if search is None else search.over,
        "points": len(plan.points),
        "repeat": plan.suite.run.repeat,
        "trials": None if search is not None else len(plan.trials),
        "done": len(kept),
        "kept": kept,
        "predicted_s": predicted_s(plan),
    }


def report_run(folder: RunFolder, options: argparse.Namespace) -> int:
    """Write the page, print the summary, and return the exit code."""
    from plimsoll_lab.analysis.summary import summarise_run  # noqa: PLC0415
    from plimsoll_lab.report.page import write_page  # noqa: PLC0415 - the statistics and charts load in a second
    from plimsoll_lab.report.terminal import render  # noqa: PLC0415

    summary = summarise_run(folder)
    write_page(folder, summary)
    run = folder.read_run()
    # A suite may well be called `capacity`: a run of `lab capacity` says whose capacity it is.
    if run.search is not None and run.search.subject is not None and summary.capacities:
        from plimsoll_lab.analysis.capacity import capacity_summary  # noqa: PLC0415
        from plimsoll_lab.report.capacity import render_capacity  # noqa: PLC0415

        one = capacity_summary(run, summary)
        say(json.dumps(one.to_json()) if options.json else render_capacity(run, summary))
    else:
        say(json.dumps(summary.to_json()) if options.json else render(summary, run, colour=colour(options)))
    _write_gate(folder, summary, options)
    return exit_code(summary)


def _write_gate(folder: RunFolder, summary: RunSummary, options: argparse.Namespace) -> None:
    from plimsoll_lab.report.gate import FILES, write_gate  # noqa: PLC0415 - as above

    # A run that goes on brings up to date what it wrote when it was stopped.
    kinds = getattr(options, "summary", None) or [kind for kind, name in FILES.items() if (folder.path / name).exists()]
    for path in write_gate(folder.path, summary, folder.read_run(), kinds):
        print(path, file=sys.stderr)


GATE_CODES: dict[GateOutcome, int] = {"pass": DONE, "worse": LIMIT_MISSED, "undecided": INVALID, "failed": FAILED}
"""How a gate ends."""


def exit_code(summary: RunSummary) -> int:
    """The exit code that a run's summary ends in."""
    if summary.gate is not None:
        return GATE_CODES[summary.gate.outcome]
    if summary.capacities:
        doubtful = any(point.doubtful for point in summary.points)
        # A server that failed at a load that it is said to carry may not carry it.
        doubtful = doubtful or any(each.code == "stopped" for each in summary.warnings)
        code = _search_exit_code(summary.capacities)
        return INVALID if doubtful and code in {DONE, LIMIT_MISSED} else code
    outcomes = {point.outcome for point in summary.points}
    if "failed" in outcomes:
        return FAILED
    # Limits are judged at points that have a result, over the network that was asked for, whatever
    # the others lack.
    if any(limit.met is False for point in summary.points for limit in point.limits):
        return LIMIT_MISSED
    failed = any(each.outcome == "failed" for each in summary.stops)  # in some trials of a point with a result
    doubtful = any(point.doubtful for point in summary.points)
    if failed or doubtful or outcomes & {"generator_limited", "invalid"} or summary.limits_undecided:
        return INVALID
    measured = DONE if summary.status == "complete" else INVALID
    return measured if outcomes & {"ok", "hard_limit"} else FAILED


def _search_exit_code(found: Sequence[CapacityRecord]) -> int:
    if any(each.failed for each in found):
        return FAILED
    if any(each.limited_by in {"generator", "environment"} for each in found):
        return INVALID
    if any(not each.finished for each in found):
        return FAILED
    if any(each.lower is None and each.upper is None for each in found):
        return INVALID  # its searches contradict each other
    return LIMIT_MISSED if any(each.lower is None for each in found) else DONE
