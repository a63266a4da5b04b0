"""How far each axis of three reports goes on this machine, and what stops it: beyond the document's
own loads, step by step, until no point of a step has a result; where only patience would end it, as
far as one trial takes no more than some minutes.

`PYTHONPATH=lab python bench/axes.py --list` prints every step's command and its minutes, as planned
here. Without `--list` the steps run on a machine that does nothing else, those of one axis with
`--only AXIS`; each step is in docs/results/axes.json as soon as it has ended, so the script goes on
where it was stopped. An axis ends at the first step without a result. `bench/reports.py CHAPTER`
then writes the chapters' tables.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plimsoll_lab.analysis import formatting
from plimsoll_lab.cli.suite_arguments import add_suite_arguments, read_plan
from plimsoll_lab.suite.figures import BY_NAME
from plimsoll_lab.suite.prediction import predicted_s
from plimsoll_lab.suite.spec import Plan

KEPT = Path("docs/results/axes.json")
TOLD = ("connections.established", "completed_rate", "response_time_us.mean")
"""What is told of a point with a result."""

Json = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """One axis of a suite, beyond the document's loads."""

    name: str
    """By which `--only` knows it; it begins with the suite's name."""
    about: str
    """What varies."""
    steps: Mapping[str, str]
    """By the value, what is asked besides: flags of `plimsoll lab run`."""
    always: str
    """Flags of every step."""
    why_here: str = ""
    """Why the axis ends where it does, where its last step does not say so itself."""

    @property
    def suite(self) -> str:
        """The suite."""
        return self.name.partition(":")[0]

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """The value and the command of each step, after `plimsoll lab`."""
        for value, flags in self.steps.items():
            yield value, ["run", self.suite, *shlex.split(f"{self.always} {flags}")]


def clients(counts: Sequence[int], *, a_source: int = 0) -> dict[str, str]:
    """Steps of a number of clients; of generators with several addresses, so many from each."""
    steps = {}
    for count in counts:
        addresses = f" --set network.addresses={-(-count // a_source)}" if a_source else ""
        steps[f"{count:,}"] = f"--set load.connections={count}{addresses}"
    return steps


def values(path: str, each: Sequence[str]) -> dict[str, str]:
    """Steps of one setting."""
    return {value: f"--set {path}={value}" for value in each}


THREE_MODELS = "--repeat 3 --only server.model=threads,epoll,uring"
ONLY_LONGER = "a connection that asks more often holds no more of anything"
ONE_HOST, FOUR_HOSTS = 14_000, 56_000
"""Clients for which one address of each generator is enough (docs/scale.md)."""
AXES = (
    Axis(
        name="tcpbenchmark:clients",
        about="clients",
        steps=clients((4_000, 10_000, 15_000, 20_000)),
        always=THREE_MODELS,
        why_here="a thread a client takes its descriptors from one table, which has room for 19,936; at 15,000 the "
        "kernel ended one generator for want of memory, whose build had larger histograms",
    ),
    Axis(
        name="tcpbenchmark:size",
        about="bytes of a message, 100 clients with 10 echoes",
        steps=values("load.size", ("64KB", "1MB", "16MB")),
        always=f"{THREE_MODELS} --set load.connections=100 --set load.each=10",
        why_here="64 MB take four times as long: a message passes through buffers that do not grow with it",
    ),
    Axis(
        name="tcpbenchmark:count",
        about="echoes a client, 100 clients",
        steps=values("load.each", ("1000", "10000")),
        always=f"{THREE_MODELS} --set load.connections=100",
        why_here=f"100,000 take ten times as long: {ONLY_LONGER}",
    ),
    Axis(
        name="three-servers:clients-epoll",
        about="clients of epoll",
        steps=clients((40_000, 100_000, 200_000, 400_000), a_source=FOUR_HOSTS),
        always="--repeat 3 --only 'point=epoll at its load'",
    ),
    Axis(
        name="three-servers:clients-threads",
        about="clients of threads, from two hosts",
        steps=clients((12_000, 20_000, 28_000, 40_000), a_source=FOUR_HOSTS // 2),
        always="--repeat 3 --only 'point=threads at its load'",
    ),
    Axis(
        name="three-servers:clients-select",
        about="clients of select",
        steps=clients((1_000, 2_000, 4_000)),
        always="--repeat 3 --only 'point=select at its load'",
    ),
    Axis(
        name="three-servers:clients-others",
        about="clients of the other models",
        steps=clients((20_000, 40_000, 100_000), a_source=FOUR_HOSTS),
        always="--repeat 3 --only server.model=fork,poll,epoll-et,uring",
    ),
    Axis(
        name="three-servers:requests-epoll",
        about="requests a client of epoll, with a pause of 10 us",
        steps=values("load.each", ("100", "1000")),
        why_here=f"10,000, the document's, take 45 minutes at the rate of 1,000: {ONLY_LONGER}",
        always="--repeat 1 --only 'point=epoll at its load' --set load.think=10us",
    ),
    Axis(
        name="three-servers:requests-select",
        about="requests a client of select, 1,500 clients with a pause of 10 us; 5,000 are the document's",
        steps=values("load.each", ("100", "1000", "5000")),
        always="--repeat 1 --only 'point=select at its load' --set load.think=10us --set load.connections=1500",
    ),
    Axis(
        name="epoll-scaling:clients",
        about="clients with a pause of 1 s",
        steps=clients((20_000, 40_000, 80_000, 160_000), a_source=ONE_HOST),
        always="--repeat 3 --only 'point=case 5'",
        why_here="the queue of the listener: connects that found no room in it timed out, and the earliest clients had "
        "ended before the last were up",
    ),
    Axis(
        name="epoll-scaling:clients-1ms",
        about="clients with a pause of 1 ms",
        steps=clients((20_000, 40_000, 80_000, 160_000), a_source=ONE_HOST),
        always="--repeat 3 --only 'point=case 14'",
        why_here="the queue of the listener: connects that found no room in it timed out, and those that were tried "
        "again came from another port, so that there are more endpoints than clients",
    ),
    Axis(
        name="epoll-scaling:pause",
        about="pause of 2,500 clients",
        steps=values("load.think", ("100us", "10us")),
        always="--repeat 3 --only 'point=case 11'",
    ),
    Axis(
        name="epoll-scaling:requests",
        about="requests a client, 2,500 clients with a pause of 1 s",
        steps=values("load.each", ("600",)),
        always="--repeat 1 --only 'point=case 1'",
        why_here=f"3,600 take an hour, most of it pauses: {ONLY_LONGER}",
    ),
)


def lines(suite: str, kept: Path = KEPT) -> list[str]:
    """The axes of a suite as a table of its chapter: commands, and what stopped each."""
    ended = read(kept)
    rows = []
    for axis in (each for each in AXES if each.suite == suite):
        has_ended = False
        for value, command in axis.commands():
            called = shlex.join(["plimsoll", "lab", *command])
            step = ended.get(_key(axis, value))
            told = _told(step, has_ended=has_ended)
            has_ended = has_ended or (step is not None and not _has_result(step))
            rows.append(f"| {axis.about} | {value} | `{called}` | {planned_minutes(command):.1f} | {told} |")
        if axis.why_here:
            rows.append(f"| {axis.about} | why no further | | | {axis.why_here} |")
    if not rows:
        return []
    about = (
        "Beyond the document's loads, each axis until a step has no result or would only take longer (`bench/axes.py`, "
        "on a machine that does nothing else):"
    )
    return [
        about,
        "",
        "| axis | at | command | minutes, as planned | what came of it |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


def _has_result(step: Json) -> bool:
    """Whether any point of a step has one; else the axis ends there."""
    return any(point["outcome"] == "ok" for point in step["points"])


def _told(step: Json | None, *, has_ended: bool = False) -> str:
    if step is None:
        return "not run: the axis ends before" if has_ended else "not run yet"
    if step["error"]:
        return f"refused: {step['error']}"
    parts = []
    for point in step["points"]:
        told = [
            formatting.number(point["figures"][name], BY_NAME[name].unit) for name in TOLD if name in point["figures"]
        ]
        said = (
            ", ".join(told)
            if point["outcome"] == "ok"
            else f"{formatting.outcome(point['outcome'])}: {point['reason']}"
        )
        parts.append(f"{formatting.setting(point['point'])}: {said}")
    return "; ".join(parts) + f" ({step['minutes']:.0f} min)"


def read(kept: Path) -> dict[str, Json]:
    """The steps that have ended, by their key."""
    found: dict[str, Json] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    return found


def _key(axis: Axis, value: str) -> str:
    return f"{axis.name} {value}"


def run(command: Sequence[str]) -> dict[str, Any]:
    """One step to its end: the outcome of each point, or why none was measured."""
    began = time.monotonic()
    called = [sys.executable, "-m", "plimsoll_lab", *command, "--json", "--quiet"]
    done = subprocess.run(called, capture_output=True, text=True, check=False)
    minutes = (time.monotonic() - began) / 60
    said = done.stdout.strip().splitlines()
    summary: Json = json.loads(said[-1]) if said else {}
    points = [
        {key: point[key] for key in ("point", "outcome", "reason")}
        | {"figures": {name: point["figures"][name]["mean"] for name in TOLD if name in point["figures"]}}
        for point in summary.get("points", ())
    ]
    why = done.stderr.strip().splitlines()
    error = None if points else (why[-1].removeprefix("error: ") if why else f"exit code {done.returncode}")
    return {"minutes": minutes, "points": points, "error": error}


def plan_of(command: Sequence[str]) -> Plan:
    """What a step measures."""
    parser = argparse.ArgumentParser()
    add_suite_arguments(parser)
    return read_plan(parser.parse_args(command[1:]))[0]


def planned_minutes(command: Sequence[str]) -> float:
    """The minutes that the laboratory predicts for a step."""
    return predicted_s(plan_of(command)) / 60


def main() -> None:
    """Run the steps that have not ended yet, or list them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [axis.name for axis in AXES]
    parser.add_argument("--only", action="append", choices=names, metavar="AXIS", help=f"one of {', '.join(names)}")
    parser.add_argument("--list", action="store_true", help="print the commands and their planned minutes")
    parser.add_argument(
        "--most", type=float, metavar="MINUTES", help="end an axis before a step that is planned longer"
    )
    options = parser.parse_args()
    ended = read(KEPT)
    for axis in AXES:
        if options.only and axis.name not in options.only:
            continue
        for value, command in axis.commands():
            step = ended.get(_key(axis, value))
            if options.list:
                print(
                    f"{planned_minutes(command):6.1f} min  {axis.name:<30}  {shlex.join(['plimsoll', 'lab', *command])}"
                )
                continue
            if step is None and options.most is not None and planned_minutes(command) > options.most:
                break
            if step is None:
                step = ended[_key(axis, value)] = run(command)
                KEPT.write_text(json.dumps(ended, indent=1) + "\n", encoding="utf-8")
            print(f"{axis.name} {value}: {_told(step)}", flush=True)
            if not _has_result(step):
                break


if __name__ == "__main__":
    main()
