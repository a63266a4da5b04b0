"""What `plimsoll lab capacity` is asked: arguments in, a typed question out."""

from __future__ import annotations

import argparse
import re
import shlex
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from plimsoll_lab.stats.capacity import Goal
from plimsoll_lab.suite import units
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.spec import Limit, Settings, SuiteError, Value

RANGES = {"connections": "1:10k", "rate": "100:200k"}
PATIENCE_S = 3600.0
"""A search of 2 % takes some fifty trials; an hour means that something else is wrong."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """How much load a server carries within limits: what is asked."""

    protocol: str
    """`echo` or `http`."""
    target: str
    """An address, or a URL."""
    server: Settings
    """The address to attach to, or the command to start for each trial and its readiness."""
    over: Literal["connections", "rate"]
    """What is varied."""
    load: Settings
    """The rest of the load."""
    limits: tuple[Limit, ...]
    """What has to be met, all of it."""
    goal: Goal
    """Where and how finely to search."""
    warm_up: str
    """Before each window."""
    command: str
    """The command line that asks the same again."""


def capacity_arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("protocol", choices=("echo", "http"), help="what the server speaks")
    parser.add_argument("target", metavar="ADDR:PORT|URL", help="where it listens")
    parser.add_argument("--command", metavar="CMD", help="start the server anew for each trial")
    parser.add_argument("--ready", metavar="tcp:PORT", help="with --command: it is ready once this port accepts")
    parser.add_argument("--over", choices=("connections", "rate"), default="connections", help="what is varied")
    parser.add_argument("--limit", action="append", default=[], metavar="EXPR", help="repeatable; all have to be met")
    parser.add_argument("--range", metavar="LOW:HIGH", help="where to search (default: 1:10k, or 100:200k for a rate)")
    parser.add_argument("--width", default="2%", metavar="RATIO", help="how near the bounds shall be (default: 2%%)")
    parser.add_argument("--duration", default="1s", metavar="D", help="window of each trial (default: 1s)")
    parser.add_argument("--trials", type=int, default=11, metavar="N", help="trials that decide a load (default: 11)")
    parser.add_argument("--warm-up", default="200ms", metavar="D", help="before each window (default: 200ms)")
    parser.add_argument("--think", metavar="D", help="over connections: pause between completion and next send")
    parser.add_argument("--connections", metavar="N", default="256", help="over a rate: connections (default: 256)")
    parser.add_argument("--out", default="runs", metavar="DIR", help="where the run's folder is made (default: runs)")


def read_question(options: argparse.Namespace) -> Question:
    """Check and type the arguments."""
    try:
        goal, load = _goal(options), _load(options)
        units.duration_s(options.warm_up)
    except ValueError as refusal:
        raise SuiteError(f"capacity: {refusal}") from None
    if not options.limit:
        raise SuiteError(
            "capacity: no limit; say what the server has to keep, such as --limit 'response_time.p99 < 50ms'"
        )
    words = ["plimsoll", "lab", "capacity", options.protocol, options.target, "--over", options.over]
    words += ["--range", f"{goal.lowest}:{goal.highest}", "--width", options.width, "--duration", options.duration]
    words += ["--trials", str(options.trials), "--warm-up", options.warm_up]
    optional = (("--command", options.command), ("--ready", options.ready), ("--think", options.think))
    words += [word for flag, value in optional if value for word in (flag, value)]
    words += ["--connections", options.connections] if options.over == "rate" else []
    words += [word for limit in options.limit for word in ("--limit", limit)]
    return Question(
        protocol=options.protocol,
        target=options.target,
        server=_server(options),
        over=options.over,
        load=load,
        limits=tuple(_limit(text) for text in options.limit),
        goal=goal,
        warm_up=options.warm_up,
        command=shlex.join(words),
    )


def _goal(options: argparse.Namespace) -> Goal:
    low, colon, high = (options.range or RANGES[options.over]).partition(":")
    if not colon:
        raise ValueError(f"--range {options.range}: write LOW:HIGH, such as 100:60k")
    lowest, highest = units.count(low), units.count(high)
    width = units.ratio(options.width)
    if not 0 < lowest < highest:
        raise ValueError(f"--range {low}:{high}: the low end has to be at least 1 and below the high end")
    if not 0 < width < 1:
        raise ValueError(f"--width {options.width}: has to lie between 0 % and 100 %")
    trial_s = units.duration_s(options.duration)
    if trial_s <= 0 or options.trials < 1:
        raise ValueError("--duration and --trials have to be above zero")
    return Goal(
        lowest=lowest, highest=highest, width=width, trial_s=trial_s, trials=options.trials, patience_s=PATIENCE_S
    )


def _load(options: argparse.Namespace) -> Settings:
    load: dict[str, Value] = {"protocol": options.protocol, "target": options.target, "duration": options.duration}
    if options.over == "rate":
        load["connections"] = units.count(options.connections)
        if options.think:
            raise ValueError("--think: a rate has no think time; leave it out, or search --over connections")
    elif options.think:
        units.duration_s(options.think.removeprefix("exp:"))
        load["think"] = options.think
    return load


def _server(options: argparse.Namespace) -> Settings:
    if (options.command is None) != (options.ready is None):
        raise SuiteError("capacity: --command and --ready go together, such as --command './server' --ready tcp:8080")
    if options.command is not None:
        if not re.fullmatch(r"tcp:\d+", options.ready):
            raise SuiteError(f"capacity: --ready {options.ready}: write tcp:PORT, such as tcp:8080")
        return {"command": tuple(shlex.split(options.command)), "ready": options.ready}
    if options.protocol == "echo":
        return {"address": options.target}
    parts = urlsplit(options.target)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SuiteError(f"capacity: {options.target} is no URL; write one such as http://127.0.0.1:8080/")
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    return {"address": f"{parts.hostname}:{port}"}


def _limit(text: str) -> Limit:
    match = re.fullmatch(r"\s*([\w.]+)\s*([<>].*)", text)
    if match is None:
        raise SuiteError(
            f"capacity: --limit {text}: write a figure, an operator and a value: 'response_time.p99 < 50ms'"
        )
    return read_limit(match[1], match[2], source="capacity")
