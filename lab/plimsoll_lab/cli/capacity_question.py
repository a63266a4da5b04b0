"""What `plimsoll lab capacity` is asked: arguments in, the text of a suite with a `[search]` out.

So a question on the command line and one in a file are read, refused, run, resumed and reported in
the same way.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from plimsoll_lab.cli.suite_arguments import words_of
from plimsoll_lab.cli.verb import add_out
from plimsoll_lab.suite.errors import SuiteError

RANGES = {"connections": "1:10k", "rate": "100:200k"}
CONNECTIONS = "256"
"""Over a rate."""
NAME = "capacity"
"""Of the suite, which has no file."""

Value = str | int | list[str] | list[int] | list[str | int]


@dataclass(frozen=True, kw_only=True, slots=True)
class CapacityQuestion:
    """The highest load that a server completes within limits."""

    text: str
    """The suite."""
    command: str
    """The command line that asks the same again."""
    subject: str
    """Whose capacity it is, in a sentence."""


def capacity_arguments(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("protocol", choices=("echo", "http"), help="what the server speaks")
    parser.add_argument("target", metavar="ADDR:PORT|URL", help="where it listens")
    parser.add_argument("--command", metavar="CMD", help="start the server anew for each trial; {port} is a free port")
    parser.add_argument(
        "--ready",
        metavar="tcp:PORT",
        help="with --command: it is ready once this port accepts (default: tcp:{port}, of a command with {port})",
    )
    parser.add_argument(
        "--over", choices=("connections", "rate"), default="connections", help="what is varied (default: connections)"
    )
    parser.add_argument("--limit", action="append", default=[], metavar="EXPR", help="repeatable; all have to be met")
    parser.add_argument("--range", metavar="LOW:HIGH", help="where to search (default: 1:10k, or 100:200k for a rate)")
    parser.add_argument("--width", default="5%", metavar="RATIO", help="how far apart the bounds may be (default: 5%%)")
    parser.add_argument("--duration", default="1s", metavar="D", help="window of the first trials (default: 1s)")
    parser.add_argument("--trials", type=int, default=5, metavar="N", help="trials that decide a load (default: 5)")
    parser.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="whole searches, for their spread (default: 1)"
    )
    parser.add_argument("--patience", default="1h", metavar="D", help="end a search after this long (default: 1h)")
    parser.add_argument("--hold", default="1m", metavar="D", help="two trials this long at the answer (default: 1m)")
    parser.add_argument("--warm-up", default="200ms", metavar="D", help="before each window (default: 200ms)")
    parser.add_argument(
        "--think", metavar="D", help="over connections: pause between completion and next send (default: 0)"
    )
    parser.add_argument("--connections", metavar="N", help=f"over a rate: connections (default: {CONNECTIONS})")
    parser.add_argument("--cpus", metavar="LIST", help="CPUs to keep the generator on, such as 1 or 2-3 (default: all)")
    add_out(parser, "where the run's folder is made")


def read_capacity_question(options: argparse.Namespace) -> CapacityQuestion:
    """Write the suite; reading it checks the values, so only what a suite cannot say is refused
    here.
    """
    if not options.limit:
        raise SuiteError(
            "capacity: no limit; say what the server has to keep, such as --limit 'response_time.p99 < 50ms'"
        )
    limits = dict(_limit(text) for text in options.limit)
    if len(limits) < len(options.limit):
        raise SuiteError("capacity: two limits on the same figure; keep the stricter one")
    command = None if options.command is None else words_of("--command", options.command)
    subject = options.target if command is None else command[0].rpartition("/")[2]
    if options.command is not None and "{port}" not in options.target:
        subject = f"{subject} at {options.target}"
    what = "many connections" if options.over == "connections" else "high a rate"
    kept = " and ".join(f"{name} {condition}" for name, condition in limits.items())
    tables: dict[str, dict[str, Value]] = {
        "server": _server(options, command),
        "load": _load(options),
        "run": {"repeat": options.repeat, "warm_up": options.warm_up, "seed": 1},
        "limits": dict(limits),
        "search": {
            "over": f"load.{options.over}",
            "range": _range(options),
            "width": options.width,
            "trials": options.trials,
            "patience": options.patience,
            "hold": options.hold,
        },
    }
    lines = [f"name = {_toml(NAME)}", f"question = {_toml(f'How {what} does {subject} carry with {kept}?')}"]
    for table, values in tables.items():
        lines += ["", f"[{table}]", *(f"{_toml(key)} = {_toml(value)}" for key, value in values.items())]
    return CapacityQuestion(text="\n".join(lines) + "\n", command=_command(options), subject=subject)


def _toml(value: Value) -> str:
    """JSON's texts, whole numbers and lists of them are TOML's too."""
    return json.dumps(value, ensure_ascii=False)


def _command(options: argparse.Namespace) -> str:
    words = ["plimsoll", "lab", "capacity", options.protocol, options.target, "--over", options.over]
    words += ["--range", options.range or RANGES[options.over], "--width", options.width]
    words += ["--duration", options.duration, "--trials", str(options.trials), "--warm-up", options.warm_up]
    words += ["--repeat", str(options.repeat)] if options.repeat != 1 else []
    words += ["--patience", options.patience] if options.patience != "1h" else []
    words += ["--hold", options.hold] if options.hold != "1m" else []
    optional = ("command", "ready", "think", "cpus")
    words += [word for key in optional if getattr(options, key) for word in (f"--{key}", getattr(options, key))]
    words += ["--connections", options.connections or CONNECTIONS] if options.over == "rate" else []
    words += [word for limit in options.limit for word in ("--limit", limit)]
    return shlex.join(words)


def _range(options: argparse.Namespace) -> list[str | int]:
    given = options.range or RANGES[options.over]
    low, colon, high = given.partition(":")
    if not colon:
        raise SuiteError(f"capacity: --range {given}: write LOW:HIGH, such as 100:60k")
    return [low, high]


def _load(options: argparse.Namespace) -> dict[str, Value]:
    load: dict[str, Value] = {"protocol": options.protocol, "duration": options.duration}
    if "{port}" not in options.target:
        load["target"] = options.target
    elif options.protocol == "http":
        parts = _url(options.target.replace("{port}", "1"))
        if parts.scheme == "https":
            raise SuiteError(
                f"capacity: {options.target}: a server at a port of the lab's choice is asked over plain HTTP; start "
                "it yourself, and name its own port"
            )
        load["path"] = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if options.over == "rate":
        load["connections"] = options.connections or CONNECTIONS
    elif options.connections:
        raise SuiteError(
            "capacity: --connections is for a search over a rate; add --over rate, or say where to search: --range 1:N"
        )
    if options.think:
        load["think"] = options.think
    if options.cpus:
        load["cpus"] = options.cpus
    return load


def _server(options: argparse.Namespace, command: tuple[str, ...] | None) -> dict[str, Value]:
    if command is not None:
        if options.ready is None and not any("{port}" in word for word in command):
            raise SuiteError(
                "capacity: --command: say when it can be connected to, such as --command './server' --ready tcp:8080; "
                "of a command with {port} that is tcp:{port}"
            )
        return {"command": list(command), **({"ready": options.ready} if options.ready is not None else {})}
    if options.ready is not None:
        raise SuiteError("capacity: --ready is of a command; add --command, or leave it out")
    if options.protocol == "echo":
        return {"address": options.target}
    parts = _url(options.target)
    port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    host = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return {"address": f"{host}:{port}"}


def _url(text: str) -> SplitResult:
    """A URL of a server, with a host and a port that may be."""
    try:
        parts = urlsplit(text)
        sound = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise SuiteError(f"capacity: {text} is no URL; write one such as http://127.0.0.1:8080/")
    return parts


def _limit(text: str) -> tuple[str, str]:
    match = re.fullmatch(r"\s*([\w.]+)\s*((?:[<>]|==|!=).*?)\s*", text)
    if match is None:
        raise SuiteError(
            f"capacity: --limit {text}: write a figure, an operator and a value: 'response_time.p99 < 50ms'"
        )
    return match[1], match[2]
