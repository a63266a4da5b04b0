"""What the binary's `--help` says of each flag, as keys of a suite."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_lab.suite.flags import Flag
from plimsoll_lab.suite.key import Key, Keys, Kind

_OPTION = re.compile(r" {2}(?:-(?P<letter>\w), | {4})--(?P<name>[a-z][a-z0-9-]*)(?:[ =[]*<[^>]*>\]?)?\s*(?P<text>.*)")
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
class Told:
    """What help says of one flag."""

    text: str
    """Its sentences, without remarks."""
    default: str
    """What holds without it; empty where it does not say."""


def read_help(text: str) -> dict[str, Told]:
    """Every flag of a command's help, by its name in a suite; an alias too."""
    words: dict[str, list[str]] = {}
    letters: dict[str, str] = {}
    name = ""
    for line in text.partition("\nExamples:")[0].splitlines():
        option = _OPTION.fullmatch(line)
        if option is not None:
            name = option["name"].replace("-", "_")
            words[name] = [option["text"]]
            if option["letter"]:
                letters[option["letter"]] = name
        elif line.startswith(" " * 10) and name:
            words[name].append(line.strip())
        elif line and not line.startswith(" "):
            name = ""
    found: dict[str, Told] = {}
    for flag, lines in words.items():
        said = " ".join(line for line in lines if line).partition(" Possible values:")[0]
        remarks = {match[1]: match[2] for match in _REMARK.finditer(said)}
        found[flag] = Told(
            text=_in_a_suite(_REMARK.sub("", said).replace(" (repeatable)", ""), letters),
            default=_in_a_suite(remarks.get("default", ""), letters),
        )
        alias = remarks.get("alias", "").removeprefix("--").replace("-", "_")
        if alias:
            found[alias] = Told(text=f"Another name of `{flag}`", default="")
    return found


def keys_of(flags: Mapping[str, Flag], told: Mapping[str, Told]) -> Keys:
    """The keys of flags, with what help says of them; KeyError where it says nothing."""
    return {name: _key(name, flag, told[name]) for name, flag in flags.items()}


def _in_a_suite(text: str, letters: Mapping[str, str]) -> str:
    """Flags as keys: `--each` and `-H` are `each` and `header` in a suite."""
    text = _LONG.sub(lambda match: f"`{match[1].replace('-', '_')}`", text)
    return _SHORT.sub(lambda match: f"`{letters[match[1]]}`" if match[1] in letters else match[0], text).strip()


def _key(name: str, flag: Flag, told: Told) -> Key:
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
