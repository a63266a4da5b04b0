"""`plimsoll lab serve`: a local web page over the runs folder."""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import os
import socket
from pathlib import Path

from plimsoll_lab.cli.verb import DONE, Verb, add_out, say
from plimsoll_lab.problem import USAGE, Interrupted, LabError

LISTEN = "127.0.0.1:8090"
BACKLOG = 128
MOST_PORT = 65535
CLOSING_S = 1
"""Seconds that open event streams are given when the program is stopped."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_out(parser, "where the runs are")
    parser.add_argument(
        "--listen",
        default=LISTEN,
        metavar="ADDR:PORT",
        help=f"where to listen; port 0 picks a free one (default: {LISTEN})",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name that is answered besides the loopback ones; an address beyond loopback needs one",
    )


def _serve(options: argparse.Namespace) -> int:
    host, port = _address(options.listen)
    if not ipaddress.ip_address(host).is_loopback and not options.allow_host:
        raise LabError(
            f"--listen {options.listen} is open to other machines, and anyone who reaches it can read every run: "
            "name the host that they may use with --allow-host NAME, or listen on 127.0.0.1",
            exit_code=USAGE,
        )
    import uvicorn  # noqa: PLC0415 - only this verb needs a web server

    from plimsoll_lab.web.app import application  # noqa: PLC0415 - the statistics and charts load in a second
    from plimsoll_lab.web.guard import allowed_hosts  # noqa: PLC0415

    with _listener(host, port) as listener:
        port = listener.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            application(Path(options.out), allowed_hosts([*options.allow_host, shown], port)),
            log_level="warning",
            access_log=False,
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=CLOSING_S,
        )
        if options.json:
            say(json.dumps({"event": "ready", "addresses": [f"{shown}:{port}"], "pid": os.getpid()}))
        else:
            say(f"listening on http://{shown}:{port}/ (the runs in {options.out})")
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except (Interrupted, KeyboardInterrupt):
            return DONE
    return DONE


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    with contextlib.suppress(ValueError):
        ipaddress.ip_address(host)
        if 0 <= int(port) <= MOST_PORT:
            return host, int(port)
    raise LabError(
        f"--listen {text}: write an address and a port from 0 to {MOST_PORT}, such as {LISTEN}", exit_code=USAGE
    )


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise LabError(f"cannot listen on {host}:{port}: {error.strerror}; choose another with --listen") from None


VERB = Verb(
    name="serve",
    summary="show the runs as local web pages: list, live view, comparison, history",
    examples="""examples:
  plimsoll lab serve
  plimsoll lab serve --out elsewhere/ --listen 127.0.0.1:0
""",
    arguments=_arguments,
    perform=_serve,
)
