"""The flags of our own server and generator, as a suite may set them.

The binary is the authority; this table exists so that a bad setting is refused by `plan`, before
anything runs, and not after a hundred trials. A test compares it with the binary's `--help`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from plimsoll_lab.suite import units
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import suggest
from plimsoll_lab.suite.settings import Value

Kind = Literal["choice", "count", "duration", "rate", "size", "text", "switch", "texts", "file"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Flag:
    """One long flag, written with `_` in a suite."""

    kind: Kind
    """How its value is read; of a file, true or false: the lab gives each trial its own."""
    choices: tuple[str, ...] = ()
    """The values of a choice."""
    least: int = 0
    """The smallest count or size that makes sense."""
    drawn: bool = False
    """Whether a duration may be drawn: `exp:1s`."""


MODELS = ("threads", "fork", "select", "poll", "epoll", "epoll-et", "uring")

_ANY_SERVER = {
    "model": Flag(kind="choice", choices=MODELS),
    "workers": Flag(kind="count", least=1),
    "accept": Flag(kind="choice", choices=("single", "handoff", "exclusive", "reuseport")),
    "max_connections": Flag(kind="count", least=1),
    "work": Flag(kind="duration"),
    "drain": Flag(kind="duration"),
    "connection_log": Flag(kind="file"),
}
SERVER_FLAGS: dict[str, dict[str, Flag]] = {
    "echo": _ANY_SERVER
    | {
        "idle_timeout": Flag(kind="duration"),
        "postfix": Flag(kind="text"),
        "message_size": Flag(kind="size", least=1),
        "message_end": Flag(kind="text"),
    },
    "http": _ANY_SERVER
    | {
        "root": Flag(kind="text"),
        "synthetic": Flag(kind="switch"),
        "http": Flag(kind="choice", choices=("1.0", "1.1")),
        "keep_alive_timeout": Flag(kind="duration"),
        "request_timeout": Flag(kind="duration"),
        "send_timeout": Flag(kind="duration"),
        "work_path": Flag(kind="texts"),
    },
}

_ANY_LOAD = {
    "connections": Flag(kind="count", least=1),
    "duration": Flag(kind="duration"),
    "requests": Flag(kind="count", least=1),
    "each": Flag(kind="count", least=1),
    "think": Flag(kind="duration", drawn=True),
    "lockstep": Flag(kind="switch"),
    "rate": Flag(kind="rate"),
    "arrivals": Flag(kind="choice", choices=("poisson", "fixed")),
    "max_lag": Flag(kind="duration"),
    "spin": Flag(kind="duration"),
    "reconnect": Flag(kind="switch"),
    "seed": Flag(kind="count"),
    "engine": Flag(kind="choice", choices=("epoll", "uring", "threads", "fork")),
    "workers": Flag(kind="count", least=1),
    "threads": Flag(kind="count", least=1),
    "ipv4": Flag(kind="switch"),
    "ipv6": Flag(kind="switch"),
    "cpus": Flag(kind="text"),
    "connect_rate": Flag(kind="count", least=1),
    "barrier": Flag(kind="switch"),
    "source_ip": Flag(kind="texts"),
    "timeout": Flag(kind="duration"),
    "restart_sequence": Flag(kind="switch"),
    "attempts": Flag(kind="count", least=1),
    "countdown": Flag(kind="count"),
    "per_connection": Flag(kind="switch"),
    "csv": Flag(kind="choice", choices=("tcpbenchmark",)),
    "request_log": Flag(kind="file"),
    "timeseries": Flag(kind="file"),
    "hdr": Flag(kind="file"),
}
LOAD_FLAGS: dict[str, dict[str, Flag]] = {
    "echo": _ANY_LOAD
    | {
        "size": Flag(kind="size", least=1),
        "payload": Flag(kind="choice", choices=("text", "bytes")),
        "postfix": Flag(kind="text"),
        "verify": Flag(kind="choice", choices=("full", "length", "none")),
    },
    "http": _ANY_LOAD
    | {
        "http": Flag(kind="choice", choices=("1.0", "1.1")),
        "header": Flag(kind="texts"),
        "method": Flag(kind="text"),
        "body": Flag(kind="text"),
        "data": Flag(kind="text"),
        "follow": Flag(kind="switch"),
        "connect_to": Flag(kind="texts"),
        "insecure": Flag(kind="switch"),
        "cacert": Flag(kind="text"),
        "cert": Flag(kind="text"),
        "key": Flag(kind="text"),
        "tls_resume": Flag(kind="switch"),
    },
}

DESTINATIONS: dict[str, dict[str, Flag]] = {
    "echo": {"target": Flag(kind="texts")},
    "http": {"target": Flag(kind="texts"), "path": Flag(kind="text")},
}
"""What says where a load goes: `target`, an address or URL in place of the server's own; `path`,
what is asked for. A list of targets has one for each host of the generators.

No flags: the lab makes the generator's target of them."""

FORWARD_FLAGS: dict[str, Flag] = {
    "target": Flag(kind="text"),
    "mappings": Flag(kind="texts"),
    "workers": Flag(kind="count", least=1),
    "accept": Flag(kind="choice", choices=("single", "handoff", "exclusive", "reuseport")),
    "source_ip": Flag(kind="texts"),
    "drain": Flag(kind="duration"),
    "connection_log": Flag(kind="file"),
    "transfer_log": Flag(kind="file"),
}
"""The forwarder's; `target` is the destination of a port of the lab's choice, `mappings` are the
command's own."""

ELSEWHERE = {
    "load.warm_up": "it belongs under [run]",
    "load.limit": "it belongs under [limits]",
    "load.start_at": "the lab starts the generators of a trial together",
    "load.await_start": "the lab lets the generators of a trial begin together; write barrier = true",
    "load.await_end": "the lab lets connections close once it has read what the window ends with",
    "server.listen": "the lab chooses a free port for each trial",
    "forward.config": "write mappings, or any forwarder as a role of kind command",
    "forward.table": "write mappings, or any forwarder as a role of kind command",
    "forward.check": "it ends before anything is forwarded",
    "forward.watch": "no table changes during a trial",
    "forward.user": "every part of a trial runs as the user of the lab",
    "forward.upgrade": "each trial starts a forwarder of its own",
}
"""Settings that have another home than the one a person may look in first."""

OUTPUT = frozenset({"json", "quiet", "color", "help", "version"})
"""Flags of every command: of no use in a suite, and described once in the book."""
RECORDS = "{records}"
"""In a command: the folder that a trial's own files are written to."""


def check_setting(table: str, flags: dict[str, Flag], key: str, value: Value, *, source: str) -> None:
    """Refuse a setting that the binary would refuse."""
    flag = flags.get(key)
    if flag is None:
        reason = ELSEWHERE.get(f"{table}.{key}")
        raise SuiteError(
            f"{source}: [{table}] {key}: {reason}"
            if reason
            else f"{source}: [{table}] {key}: unknown key{suggest(key, flags)}"
        )
    try:
        _READERS[flag.kind](flag, value)
    except ValueError as refusal:
        raise SuiteError(f"{source}: [{table}] {key}: {refusal}") from None


FILES = {
    key: {"timeseries": "jsonl", "hdr": "hgrm"}.get(key, "csv")
    for table in (*SERVER_FLAGS.values(), *LOAD_FLAGS.values(), FORWARD_FLAGS)
    for key, flag in table.items()
    if flag.kind == "file"
}
"""The ending of each file that a part can write."""


def without_csv(settings: Mapping[str, Value]) -> dict[str, Value]:
    """A load's settings as the lab asks for them: tcpbenchmark's columns are made of what the
    generator says of each connection, for it writes a CSV or JSON.
    """
    flags = dict(settings)
    if flags.pop("csv", None) is not None:
        flags["per_connection"] = True
    return flags


def as_arguments(settings: Mapping[str, Value], part: str = "") -> list[str]:
    """The settings as the binary's arguments: `{"think": "1s", "barrier": True}` -> `--think 1s
    --barrier`.

    A file that is asked for has the part's name, below the folder `{records}`.
    """
    arguments: list[str] = []
    for key, value in settings.items():
        flag = "--" + key.replace("_", "-")
        if key in FILES and isinstance(value, bool):
            arguments += [flag, f"{RECORDS}/{part}.{key}.{FILES[key]}"] if value else []
        elif value is True:
            arguments.append(flag)
        elif isinstance(value, tuple):
            for each in value:
                arguments += [flag, each]
        elif value is not False:
            arguments += [flag, str(value)]
    return arguments


def _read_choice(flag: Flag, value: Value) -> None:
    if value not in flag.choices:
        raise ValueError(f"'{value}' is not one of them{suggest(str(value), flag.choices)}")


def _read_count(flag: Flag, value: Value) -> None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a count; write a whole number such as 1000, or '10k'")
    if units.count(value) < flag.least:
        raise ValueError(f"{value} is too few; the least is {flag.least}")


def _read_rate(_flag: Flag, value: Value) -> None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a rate; write requests a second such as 1000, or '10k', or '1k:10k'")
    for end in str(value).split(":", 1):
        if units.count(end) < 1:
            raise ValueError(f"{value} is too low; the least is 1 request a second")


def _read_size(flag: Flag, value: Value) -> None:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not a size; write bytes, or a text such as '64B'")
    if units.size_bytes(value) < flag.least:
        raise ValueError(f"{value} is too small; the least is {flag.least} byte")


def _read_duration(flag: Flag, value: Value) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} has no unit; write a text such as '250ms'")
    units.duration_s(value.removeprefix("exp:") if flag.drawn else value)


def _read_switch(_flag: Flag, value: Value) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")


def _read_text(_flag: Flag, value: Value) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a text")


def _read_texts(_flag: Flag, value: Value) -> None:
    if not isinstance(value, str | tuple):
        raise ValueError(f"{value!r} is neither a text nor a list of texts")


_READERS: dict[Kind, Callable[[Flag, Value], None]] = {
    "choice": _read_choice,
    "count": _read_count,
    "duration": _read_duration,
    "rate": _read_rate,
    "size": _read_size,
    "switch": _read_switch,
    "text": _read_text,
    "file": _read_switch,
    "texts": _read_texts,
}
