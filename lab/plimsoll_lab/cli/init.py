"""`plimsoll lab init`: writes a commented suite for a person's own server, from flags or after
three questions.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from pathlib import Path

from plimsoll_lab.cli.verb import DONE, Verb, say
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text

DEFAULT_FILE = "my-server.toml"
DEFAULT_COMMAND = "python3 -m http.server {port}"
PORT = "{port}"

TEMPLATE = """\
# A question about my server. `plimsoll lab plan {file}` says what a run measures and how long it takes,
# `plimsoll lab run {file}` measures it and writes a page under runs/. Every key: docs/suite.md.
name     = {name}
question = {question}

[server]
{server}protocol = {protocol}

# To compare two builds or two settings, give each a name. Each table is laid over [server].
# [contender.old]
# command = ["./server-old", "{{port}}"]
# [contender.new]
# command = ["./server-new", "{{port}}"]

[load]
protocol = {protocol}
{target}duration = "2s"     # the measured window of each trial
# rate   = 1000     # an open loop: this many requests a second, whatever the server does
# think  = "100ms"  # a closed loop: the pause of a connection between an answer and its next request

[matrix]
# Every combination of these values is a point, and each point is measured once in each block.
"load.connections" = [1, 8, 64]

[run]
repeat  = 6         # blocks; six are the fewest that can show a difference
warm_up = "500ms"   # at the start of each trial, before the window

[limits]
# What a point has to keep; the exit code is 3 where one is missed, and 4 where it cannot be told.
failed_ratio = "<0.1%"
# "response_time.p99" = "<50ms"

# To search for the highest rate within the limits, take [matrix] out and this in:
# [search]
# over  = "load.rate"
# range = [100, 100000]
"""


STARTED = """\
# The lab starts this command anew for each trial, without a shell. {{port}} is a free port, {{dir}} this file's folder.
command  = {command}
# The server is ready once this port accepts a connection.
ready    = {ready}
"""
RUNNING = """\
# A server that already runs: the lab does not start it, and does not know its CPU and memory.
address  = {address}
"""
_ADDRESS = re.compile(r"[^\s/{}]+:\d{1,5}")
"""HOST:PORT, where a command is possible too."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", default=DEFAULT_FILE, metavar="FILE", help=f"where to write it (default: {DEFAULT_FILE})"
    )
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--command", metavar="CMD", help="how the server starts; {port} is a free port")
    server.add_argument("--address", metavar="HOST:PORT", help="a server that already runs")
    parser.add_argument("--protocol", choices=("http", "echo"), help="what the server speaks (default: http)")
    parser.add_argument("--path", metavar="PATH", help="http: what is asked for (default: /)")
    parser.add_argument("--ready", metavar="tcp:PORT", help="ready once this port accepts (default: tcp:{port})")
    parser.add_argument("--force", action="store_true", help="write over a file that exists")


def _init(options: argparse.Namespace) -> int:
    path = Path(options.file)
    if path.exists() and not options.force:
        raise LabError(f"{path} exists; choose another name, or --force to write over it", exit_code=USAGE)
    if options.address is not None and options.ready is not None:
        raise LabError("--ready is of a command: a server that already runs is not waited for", exit_code=USAGE)
    if options.protocol == "echo" and options.path is not None:
        raise LabError("--path is of http: leave it out, or write --protocol http", exit_code=USAGE)
    named = options.command if options.address is None else options.address
    asks = named is None and sys.stdin.isatty() and not options.json
    if named is None:
        if not asks:
            raise LabError(
                "there is no terminal to ask: say how the server starts, with --command CMD, or where it runs, with "
                "--address HOST:PORT",
                exit_code=USAGE,
            )
        named = _ask(
            "How does your server start? {port} is a free port; or HOST:PORT of one that runs", DEFAULT_COMMAND
        )
    protocol = options.protocol or (_ask("Does it speak http or echo?", "http") if asks else "http")
    wanted = options.path or (_ask("Which path is asked for?", "/") if asks and protocol == "http" else "/")
    if options.address is not None or (asks and _ADDRESS.fullmatch(named)):
        name, server = named, RUNNING.format(address=_toml(named))
    else:
        name, server = _started(named, options.ready or f"tcp:{PORT}")
    text = TEMPLATE.format(
        file=path,
        name=_toml(path.stem),
        question=_toml(f"How does {name} answer as more connections ask?"),
        server=server,
        protocol=_toml(protocol),
        target=f"path     = {_toml(wanted)}\n" if protocol == "http" else "",
    )
    # Whatever was answered, the file is one that `run` reads; a bad value is refused before it is
    # written.
    expand(read_text(text, source=str(path), directory=str(path.resolve().parent)), seed=0)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LabError(f"cannot write {path}: {error.strerror}; choose another name", exit_code=USAGE) from None
    say(json.dumps({"event": "written", "file": str(path)}) if options.json else f"{path} written; next:")
    if not options.json:
        say(f"  plimsoll lab plan {path}\n  plimsoll lab run {path}")
    return DONE


def _started(command: str, ready: str) -> tuple[str, str]:
    """The name of a server that the lab starts, and the lines of [server]."""
    try:
        words = shlex.split(command)
    except ValueError as fault:
        raise LabError(f"cannot read the command {command!r}: {fault}; close its quotes", exit_code=USAGE) from None
    if not words:
        raise LabError("the command is empty; write one such as './server {port}'", exit_code=USAGE)
    if PORT in ready and PORT not in command:
        raise LabError(
            f"'{command}' has no {PORT}, so its port is not known; write {PORT} where its port belongs, "
            "or name the port it always has: --ready tcp:8080",
            exit_code=USAGE,
        )
    return Path(words[0]).name.replace(" ", "-"), STARTED.format(command=_toml(words), ready=_toml(ready))


def _ask(question: str, default: str) -> str:
    print(f"{question} [{default}] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip() or default


def _toml(value: str | list[str]) -> str:
    """JSON's texts and lists of texts are TOML's too."""
    return json.dumps(value, ensure_ascii=False)


VERB = Verb(
    name="init",
    summary="write a commented suite for my own server",
    examples="""examples:
  plimsoll lab init                                          three questions, then my-server.toml
  plimsoll lab init api.toml --command './api --port {port}' --path /health
  plimsoll lab init live.toml --address 192.0.2.10:8080      a server that already runs
  plimsoll lab init nginx.toml --command 'nginx -c /etc/my/nginx.conf' --ready tcp:8080
""",
    arguments=_arguments,
    perform=_init,
)
