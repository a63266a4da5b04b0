"""The book's page of every key of a suite (docs/suite.md), made of the types that read suites and
of what the binary says of its flags.

`make reference` writes it anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from plimsoll_lab.suite import units
from plimsoll_lab.suite.expand import POINTS_MOST
from plimsoll_lab.suite.figures import FIGURES, PART_FIGURES, Figure, limit_name
from plimsoll_lab.suite.flags import DESTINATIONS, FORWARD_FLAGS, LOAD_FLAGS, SERVER_FLAGS, Flag
from plimsoll_lab.suite.key import REQUIRED, Key, Keys, Kind
from plimsoll_lab.suite.keys import (
    ATTACHED,
    CHART,
    CLAIM,
    COMMAND,
    EXCLUDE,
    POINT,
    REFERENCE,
    RUN,
    SEARCH,
    TOP,
    VERDICT,
)
from plimsoll_lab.suite.network_keys import LINK, NETWORK, NETWORK_LINK, PLACE, ROLE, WHOLE_PATH
from plimsoll_lab.suite.program_help import FlagHelp, Help, help_of_binary, keys_of, read_help, wrapped

PAGE = Path(__file__).resolve().parents[3] / "docs" / "suite.md"
"""Where the page is kept."""

WRITTEN: Mapping[Kind, str] = {
    "text": 'a text: `"..."`',
    "texts": 'a list of texts: `["a", "b"]`; of a flag also one text alone',
    "name": "a text of letters, digits, dots and dashes",
    "switch": "`true` or `false`",
    "choice": "one of the values that its sentence lists",
    "count": 'a whole number, `1000`, or a text with k or M: `"10k"`',
    "cpus": 'a table of texts, each a list of CPUs by the kernel\'s numbers: `{ server = "0,2-3" }`',
    "duration": "a text, a number with " + ", ".join(units.SECONDS) + ': `"250ms"`; `think` also takes '
    '`"exp:1s"`, drawn from an exponential distribution of that mean',
    "size": "bytes, `4096`, or a text with " + ", ".join(units.BYTES) + ': `"64KB"`',
    "rate": 'requests a second: `1000`, `"20k"`, or evenly from one to another: `"1k:10k"`',
    "bit rate": "a text with " + ", ".join(units.BITS_PER_S) + ', a second: `"100Mbit"`',
    "share": 'a text with a percentage, `"5%"`, or a fraction, `"0.05"`',
    "port": 'a text: `"tcp:8080"`, or `"tcp:{port}"` for a port that the lab chooses',
    "address": 'a text: `"HOST:PORT"`',
    "path": 'a dotted path of a setting: `"load.connections"`',
    "point": 'a table of settings by dotted path: `{ "load.connections" = 64 }`',
    "points": "a list of such tables",
    "setting": "what that setting takes",
    "values": "a list of what that setting takes",
    "figure": "a text, the name of a [figure](#figures) in the records",
    "figures": "a list of such names",
    "value": "a text, a number with the figure's unit",
    "row": "a table of such values by figure",
    "condition": "a text, `<`, `<=`, `>` or `>=` (for a count `==` and `!=` too) and a value with the figure's unit: "
    '`"<50ms"`',
    "expression": "a text, a comparison (`==` and `!=` too) and numbers or dotted paths joined by +, - and *: "
    '`"== load.connections + 1"`',
    "range": 'a text: `"< 2"`, `">= 250ms"` or `"1.5 to 3"`',
    "loads": "a list of two counts, the lower one first: `[100, 60000]`",
    "host": 'a host\'s name: `"h1"`',
    "hosts": 'a host\'s name, a list of such, or a number of hosts: `"8 hosts"`; on a cluster also with a label',
    "pair": "a list of two names",
    "link": "a table of a link's keys",
    "file": "`true` or `false`: whether the lab keeps this file in the trial's folder",
}
"""How a value of each kind is written."""

_LENGTH = "one of `duration`, `requests` and `each` is required"
_OF_THE_LAB: Mapping[str, Mapping[str, str]] = {
    "load": {
        "duration": _LENGTH,
        "requests": _LENGTH,
        "each": _LENGTH,
        "timeseries": 'true, but for `engine = "fork"`',
    },
}
"""Defaults that the lab has in place of the binary's."""
_LOAD = {
    "csv": FlagHelp(
        text="Figures `tcpbenchmark.*` too: tcpbenchmark's columns, of which its threads are our connections. "
        'The one form here is `"tcpbenchmark"`'
    ),
    "target": FlagHelp(
        text="An address, a URL, or `role:NAME`, in place of the server's address. In `[load]` also a list: one for "
        "each host of `[place] load`, in its order",
        default="the server",
    ),
    "path": FlagHelp(text="The path that is asked for", default="/"),
}
_FORWARD = {
    "target": FlagHelp(text="The part that a port of the lab's choice leads to"),
    "mappings": FlagHelp(text="The command's own mappings, in place of `target`", default=""),
    "connection_log": FlagHelp(text="Write a CSV row for each closed connection", default=""),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One table of a suite."""

    title: str
    """Its heading."""
    about: str
    """A paragraph before its keys, not yet wrapped; empty where none is needed."""
    keys: Keys
    """Its keys; none where others have them."""


def sections(help_of: Help) -> list[Section]:
    """Every table of a suite, in the order in which a person writes one."""
    return [*_of_server(help_of), *_of_load(help_of), *_of_points(), *_of_places(help_of), *_of_documents()]


def _of_server(help_of: Help) -> list[Section]:
    told = {name: read_help(help_of(f"serve {name}")) for name in SERVER_FLAGS}
    both, own = _common(SERVER_FLAGS)
    protocol = replace(COMMAND["protocol"], means='What the server speaks: "echo" or "http".')
    return [
        Section(title="The suite", about="Keys above the first table.", keys=TOP),
        Section(
            title="[server]: a command",
            about=(
                "The server under test is a command of yours. In its words `{port}` is a free port, `{address}` the "
                "host's address, `{dir}` the suite's folder, `{records}` the trial's own folder, and `{role:NAME}` "
                "the address of another part."
            ),
            keys=COMMAND,
        ),
        Section(title="[server]: a running server", about="", keys=ATTACHED),
        Section(
            title="[server]: one of Plimsoll's",
            about="Without `command` and `address` the server is `plimsoll serve`. Its flags are keys.",
            keys={"protocol": protocol, **keys_of(both, told["echo"])},
        ),
        *(
            Section(title=f'[server]: only with protocol = "{name}"', about="", keys=keys_of(own[name], told[name]))
            for name in SERVER_FLAGS
        ),
        Section(
            title="[contender.NAME]",
            about=(
                "One table for each server that competes. Its keys are those of [server], and it replaces those that "
                "[server] has. A contender with `command` or `address` keeps only `ready` and `protocol` of [server]."
            ),
            keys={},
        ),
    ]


def _of_load(help_of: Help) -> list[Section]:
    told = {name: {**read_help(help_of(f"load {name}")), **_LOAD} for name in LOAD_FLAGS}
    flags = {name: {**LOAD_FLAGS[name], **DESTINATIONS[name]} for name in LOAD_FLAGS}
    both, own = _common(flags)
    protocol = replace(COMMAND["protocol"], means='What the generator speaks: "echo" or "http".')
    keys = {"protocol": protocol, **keys_of(both, told["echo"])}
    for name, default in _OF_THE_LAB["load"].items():
        keys[name] = replace(keys[name], default=default)
    return [
        Section(
            title="[load]",
            about=(
                "The generator is `plimsoll load`. Its flags are keys. The window of a trial has one length: "
                "`duration`, `requests` or `each`."
            ),
            keys=keys,
        ),
        *(
            Section(title=f'[load]: only with protocol = "{name}"', about="", keys=keys_of(own[name], told[name]))
            for name in LOAD_FLAGS
        ),
    ]


def _of_points() -> list[Section]:
    axis = Key(
        kind="values",
        example="[1, 8, 64]",
        means="An axis: a quoted path of [server], [load], [network] or a role, and its values.",
    )
    setting = replace(axis, kind="setting", example="100", means="A setting of this point, by its quoted path.")
    limit = Key(
        kind="condition",
        example='"<50ms"',
        means="What every point has to keep. The exit code is 3 where one is missed, and 4 where it cannot be told.",
    )
    expected = Key(
        kind="expression",
        example='"== load.connections"',
        means="What holds in every trial of a working measurement; a trial in which it does not has no result.",
    )
    return [
        Section(
            title="[matrix]",
            about=f"Every combination of the values of all axes is a point. There are at most {POINTS_MOST:,}.",
            keys={'"load.connections"': axis, **EXCLUDE},
        ),
        Section(
            title="[[point]]",
            about="A point beside the matrix, or in place of one.",
            keys={'"load.connections"': setting, **POINT},
        ),
        Section(title="[run]", about="", keys=RUN),
        Section(
            title="[limits]",
            about="Each key is a figure by its name in limits.",
            keys={'"response_time.p99"': limit},
        ),
        Section(
            title="[expect]",
            about="Each key is a figure, by its name in records or in limits, or any other path in the records of a "
            "trial. A duration is compared in the unit of the name in records.",
            keys={'"connections.established"': expected},
        ),
        Section(
            title="[verdict]",
            about="What is compared with what is stated before the run.",
            keys=VERDICT,
        ),
        Section(
            title="[search]",
            about=(
                "In place of a list of loads: the highest load that meets the [limits]. "
                "See [the capacity of a server](capacity.md)."
            ),
            keys=SEARCH,
        ),
    ]


def _of_places(help_of: Help) -> list[Section]:
    forward = {**read_help(help_of("forward")), **_FORWARD}
    return [
        Section(
            title="[network]",
            about=(
                "Hosts that are network namespaces of this machine, with emulated links between them. "
                "See [Networks on one machine](networks.md)."
            ),
            keys={**NETWORK, **LINK, **WHOLE_PATH},
        ),
        Section(
            title="[[network.link]]",
            about=(
                "The links one by one, in place of a topology. A link also takes the keys rate, delay, jitter, order, "
                "loss and queue; what it does not say it takes from [network]."
            ),
            keys=NETWORK_LINK,
        ),
        Section(title="[place]", about="", keys=PLACE),
        Section(
            title="[[role]]",
            about=(
                'A further part of each trial. A role of kind "server" or "load" also takes the keys of [server] or '
                '[load]. One of kind "command" takes `command`, and `ready` if others wait for it.'
            ),
            keys=ROLE,
        ),
        Section(
            title='[[role]]: only with kind = "forward"',
            about="`plimsoll forward`, with `target` or `mappings`.",
            keys=keys_of(FORWARD_FLAGS, forward),
        ),
    ]


def _of_documents() -> list[Section]:
    return [
        Section(
            title="[[reference]]",
            about="A figure of a document, drawn beside yours. See [What documents say](data.md#what-documents-say).",
            keys=REFERENCE,
        ),
        Section(
            title="[[claim]]",
            about="A conclusion of a document, which the run puts to the test.",
            keys=CLAIM,
        ),
        Section(title="[[chart]]", about="A further chart of the report.", keys=CHART),
        Section(
            title="[fast.TABLE]",
            about=(
                "What [TABLE] is with `--fast`. A table replaces the keys that it names, `[[fast.point]]` replaces all "
                "points, and `[fast.role.NAME]` replaces keys of one role. Unless [fast.run] names `repeat`, `--fast` "
                "makes two repetitions."
            ),
            keys={},
        ),
    ]


def _common(flags: Mapping[str, Mapping[str, Flag]]) -> tuple[dict[str, Flag], dict[str, dict[str, Flag]]]:
    """The flags that all protocols have, and those of each alone."""
    first, *others = flags.values()
    both = {name: flag for name, flag in first.items() if all(other.get(name) == flag for other in others)}
    return both, {
        protocol: {name: flag for name, flag in own.items() if name not in both} for protocol, own in flags.items()
    }


def page(help_of: Help) -> str:
    """The whole page, as the text of its file."""
    lines = [
        "# Every key of a suite",
        "",
        *wrapped(
            "A suite is a TOML file. `plimsoll lab init` writes one with comments, and `plimsoll lab plan SUITE` says "
            "what is wrong with one, and where. A key that is not here is refused."
        ),
        "",
        "Generated by `make reference` from the types that read suites and from the program's own help.",
        "",
    ]
    for section in sections(help_of):
        lines += [f"## {section.title}", ""]
        if section.about:
            lines += [*wrapped(section.about), ""]
        if section.keys:
            lines += [*_table(section.keys), ""]
    lines += ["## How values are written", "", "| type | written |", "|---|---|"]
    lines += [f"| {kind} | {text} |" for kind, text in WRITTEN.items()]
    return "\n".join([*lines, "", *_figure_lines()]) + "\n"


def _table(keys: Keys) -> list[str]:
    rows = [
        f"| `{name}` | {key.kind} | {_default(key)} | `{key.example}` | {_cell(key.means)} |"
        for name, key in keys.items()
    ]
    return ["| key | type | default | example | what it does |", "|---|---|---|---|---|", *rows]


def _default(key: Key) -> str:
    if key.default == REQUIRED:
        return "**required**"
    if key.default in {"", "none"}:
        return "none"
    one_word = " " not in key.default and "`" not in key.default
    return f"`{key.default}`" if one_word else _cell(key.default)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _figure_lines() -> list[str]:
    """All figures, by both of their names."""
    units_of: Mapping[str, str] = {
        "per_s": "a second",
        "bits_per_s": "bits a second",
        "us": "us; a duration in limits",
        "s": "s; a duration in limits",
        "s2": "s squared",
        "bytes": "bytes; a size in limits",
        "cores": "cores",
        "ratio": "ratio; a share in limits",
        "count": "",
        "number": "",
    }

    def row(figure: Figure) -> str:
        limit = limit_name(figure)
        short = f"`{limit}`" if limit != figure.name else "the same"
        return f"| `{figure.name}` | {short} | {figure.label} | {units_of[figure.unit]} | {figure.better} |"

    return [
        "## Figures",
        "",
        *wrapped(
            "A figure has its name in records in `figures`, `figure` and [expect], and its name in limits in "
            "[limits]. *Better* says which way is better for the server."
        ),
        "",
        "| name in records | name in limits | figure | unit | better |",
        "|---|---|---|---|---|",
        *map(row, FIGURES),
        "",
        *wrapped(
            "A role has figures `role.NAME.FIGURE`, and each of several generators `client.HOST.FIGURE`, where FIGURE "
            "is one of " + ", ".join(f"`{each.name}`" for each in PART_FIGURES) + "."
        ),
        "",
        *wrapped(
            "`host.memory_bytes` is the most memory that the server and the roles on its host held together. If the "
            "lab reads memory by cgroup v2 (`server.metering` in the record of a trial), their TCP buffers are part of "
            "it. If it reads by cgroup v1, the TCP buffers of the whole machine are added; without a network these are "
            "the generator's too. On an emulated network none are added: the kernel has one total for all hosts of a "
            "machine. From /proc memory is read at the ends of the window alone, and there is no `host.memory_bytes`."
        ),
    ]


if __name__ == "__main__":
    PAGE.write_text(page(help_of_binary), encoding="utf-8")
