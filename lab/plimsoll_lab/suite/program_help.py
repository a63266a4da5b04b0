"""What the binary's `--help` says of each flag, for the pages of the book that are made of it; and
the same as keys of a suite.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from plimsoll_lab.suite.flags import Flag
from plimsoll_lab.suite.key import Key, Keys, Kind

Help = Callable[[str], str]
"""The binary's help about a command, such as `load http`."""

_OPTION = re.compile(
    r" {2}(?: {4})?(?P<flag>(?:-(?P<letter>\w), )?--(?P<name>[a-z][a-z0-9-]*)(?:[ =[]*<[^>]*>\]?)?)\s*(?P<text>.*)"
)
_REMARK = re.compile(r"\s*\[(default|alias|aliases|possible values): ([^]]*)\]")
_LONG = re.compile(r"--([a-z][a-z-]+)")
_SHORT = re.compile(r"(?<![\w-])-([A-Za-z])(?![\w-])")
_EXAMPLES: dict[str, str] = {
    "attempts": "3",
    "body": '"{dir}/body.json"',
    "cacert": '"{dir}/authority.pem"',
    "cert": '"{dir}/client.pem"',
    "connect_to": '["example.org:443:127.0.0.1:8443"]',
    "countdown": "3",
    "cpus": '"0,2-3"',
    "data": "'{\"a\": 1}'",
    "each": "60",
    "header": '["Accept: text/html"]',
    "key": '"{dir}/client.key"',
    "max_lag": '"1ms"',
    "mappings": '["8080=role:server"]',
    "message_end": '"\\\\n"',
    "method": '"HEAD"',
    "path": '"/index.html"',
    "postfix": '"!"',
    "root": '"{dir}/public"',
    "seed": "7",
    "source_ip": '["127.0.0.0/29"]',
    "spin": '"100us"',
    "target": '"role:server"',
    "threads": "2",
    "work_path": '["/large.bin=1ms"]',
    "workers": "2",
}
_OF_KIND = {
    "count": "1000",
    "duration": '"5s"',
    "file": "true",
    "rate": '"20k"',
    "size": '"4KiB"',
    "switch": "true",
}
"""Examples where a flag has none of its own; of a choice it is the last that is no default."""
_KINDS: Mapping[str, Kind] = {
    "choice": "choice",
    "count": "count",
    "duration": "duration",
    "file": "file",
    "rate": "rate",
    "size": "size",
    "switch": "switch",
    "text": "text",
    "texts": "texts",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FlagHelp:
    """What help says of one flag."""

    flag: str = ""
    """As it is written, with its value: `-c, --connections <N>`; empty of an alias."""
    text: str
    """Its sentences, without remarks."""
    default: str = ""
    """What holds without it; empty where it does not say."""
    letter: str = ""
    """Its one letter, if it has one."""


def help_of_binary(command: str) -> str:
    """The help of the binary that PLIMSOLL_BIN names."""
    return subprocess.run(
        [os.environ["PLIMSOLL_BIN"], *command.split(), "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout


def wrapped(text: str) -> list[str]:
    """A paragraph in lines of at most 100 columns."""
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + 1 + len(word) > 100 and lines[-1]:  # noqa: PLR2004 - as every document here
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def read_help(text: str) -> dict[str, FlagHelp]:
    """Every flag of a command's help, by its name in a suite; an alias too."""
    words: dict[str, list[str]] = {}
    options: dict[str, re.Match[str]] = {}
    name = ""
    for line in text.partition("\nExamples:")[0].splitlines():
        option = _OPTION.fullmatch(line)
        if option is not None:
            name = option["name"].replace("-", "_")
            words[name], options[name] = [option["text"]], option
        elif line.startswith(" " * 10) and name:
            words[name].append(line.strip())
        elif line and not line.startswith(" "):
            name = ""
    found: dict[str, FlagHelp] = {}
    for flag, lines in words.items():
        said = " ".join(line for line in lines if line).partition(" Possible values:")[0]
        remarks = {match[1]: match[2] for match in _REMARK.finditer(said)}
        found[flag] = FlagHelp(
            flag=options[flag]["flag"],
            text=_REMARK.sub("", said).strip(),
            default=remarks.get("default", ""),
            letter=options[flag]["letter"] or "",
        )
        alias = remarks.get("alias", "").removeprefix("--").replace("-", "_")
        if alias:
            found[alias] = FlagHelp(text=f"Another name of --{flag}")
    return found


def keys_of(flags: Mapping[str, Flag], told: Mapping[str, FlagHelp]) -> Keys:
    """The keys of flags, with what help says of them; KeyError where it says nothing."""
    letters = {each.letter: name for name, each in told.items() if each.letter}
    return {name: _key(name, flag, _in_a_suite(told[name], letters)) for name, flag in flags.items()}


def _in_a_suite(told: FlagHelp, letters: Mapping[str, str]) -> FlagHelp:
    """Flags as keys: `--each` and `-H` are `each` and `header` in a suite, and a list replaces
    repetition.
    """

    def keys(text: str) -> str:
        text = _LONG.sub(lambda match: f"`{match[1].replace('-', '_')}`", text)
        return _SHORT.sub(lambda match: f"`{letters[match[1]]}`" if match[1] in letters else match[0], text)

    return replace(told, text=keys(told.text.replace(" (repeatable)", "")), default=keys(told.default))


def _key(name: str, flag: Flag, told: FlagHelp) -> Key:
    other = next((f'"{each}"' for each in reversed(flag.choices) if each != told.default), "")
    example = _EXAMPLES.get(name) or _OF_KIND.get(flag.kind) or other
    means = told.text.rstrip(".") + "."
    if flag.choices and not all(choice in means for choice in flag.choices):
        means += " One of " + ", ".join(f'"{choice}"' for choice in flag.choices) + "."
    off = flag.kind == "file" or (flag.kind == "switch" and not told.default)
    default = "false" if off else _as_toml(flag, told.default)
    return Key(kind=_KINDS[flag.kind], means=means, example=example, default=default)


def _as_toml(flag: Flag, default: str) -> str:
    """A default in one word as a suite has it; a default in a sentence as it is."""
    if not default or " " in default or flag.kind in {"count", "rate", "texts"} or default.startswith('"'):
        return default
    return f'"{default}"'
