"""docs/suite.md and docs/commands.md: the pages are what types and help make, and each example is a
suite's.
"""

from __future__ import annotations

import argparse
import re
import subprocess
from functools import cache
from typing import get_args

import pytest

from laboratory import BINARY
from plimsoll_lab.cli import reference
from plimsoll_lab.cli.program import VERBS
from plimsoll_lab.cli.verb import Verb
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.flags import Flag
from plimsoll_lab.suite.key import REQUIRED, Kind
from plimsoll_lab.suite.network_keys import LINK, WHOLE_PATH
from plimsoll_lab.suite.program_help import FlagHelp, keys_of, read_help
from plimsoll_lab.suite.read import TABLES, read_text
from plimsoll_lab.suite.reference import PAGE, WRITTEN, Section, page, sections
from plimsoll_lab.suite.whole_path import REPLACED

Blocks = dict[str, dict[str, str]]

BASE: Blocks = {
    "": {"name": '"it"', "question": '"Well?"'},
    "[server]": {},
    "[load]": {"duration": '"1s"'},
    "[matrix]": {'"load.connections"': "[1, 8, 64]"},
}
TWO_BUILDS: Blocks = {"[contender.old]": {"workers": "1"}, "[contender.new]": {"workers": "2"}}
RACK: Blocks = {"[network]": {"topology": '"single,3"'}, "[matrix]": {'"load.connections"': "[8]"}}
A_LIMIT: Blocks = {"[limits]": {'"response_time.p99"': '"<50ms"'}, "[matrix]": {}}
BESIDE: dict[str, Blocks] = {
    "[server] command": {"[server]": {"ready": '"tcp:8080"'}},
    "[server] ready": {"[server]": {"command": '["./server", "{port}"]'}},
    "[[point]] name": {"[[point]]": {'"load.connections"': "64"}},
    "[[reference]] values": {"[[reference]]": {"figure": "", "value": ""}},
    "[[claim]] difference": {"[[claim]]": {"expect": '"> 1ms"'}},
    "[verdict] compare": {"[matrix]": {'"server.model"': '["epoll", "uring"]'}},
    "[verdict] baseline": TWO_BUILDS,
    "[verdict] tolerance": {**TWO_BUILDS, "[verdict]": {"baseline": '"old"'}},
    "[network] jitter": {"[network]": {"delay": '"2ms"'}},
    "[network] order": {"[network]": {"delay": '"2ms"', "jitter": '"1ms"'}},
    "[network] queue": {"[network]": {"rate": '"1Mbit"'}},
    "[place] server": RACK,
    "[place] load": RACK,
    "[[role]] on": RACK,
    "[[role]] measured": {"[[role]]": {"kind": '"load"', "duration": '"1s"'}},
    '[[role]]: only with kind = "forward" mappings': {"[[role]]": {"target": ""}},
}
"""What a key needs beside it; an empty value takes a key away."""


@cache
def help_of(command: str) -> str:
    return subprocess.run(
        [BINARY, *command.split(), "--help"], capture_output=True, text=True, check=True, timeout=60
    ).stdout


SECTIONS = sections(help_of)
KEYS = [pytest.param(section, key, id=f"{section.title} {key}") for section in SECTIONS for key in section.keys]


def suite_with(section: Section, key: str) -> str:
    """A suite that has this key's example, and what the key needs."""
    header = "" if section.title == "The suite" else section.title.partition(":")[0]
    blocks: Blocks = {name: dict(keys) for name, keys in BASE.items()}
    own = blocks.setdefault(header, {})
    own |= {name: each.example for name, each in section.keys.items() if each.default == REQUIRED}
    if header == "[[role]]":
        own |= {"name": '"forwarder"', "kind": '"forward"', "target": '"role:server"'}
    if header == "[network]" and key not in WHOLE_PATH:
        own["topology"] = '"single,2"'
    if header == "[[claim]]":
        own["over"] = section.keys["over"].example
    if header == "[search]":
        blocks |= A_LIMIT
    if key in {"requests", "each"}:
        del blocks["[load]"]["duration"]
    if 'protocol = "http"' in section.title:
        own["protocol"] = '"http"'
    for name, keys in BESIDE.get(f"{section.title} {key}", BESIDE.get(f"{header} {key}", {})).items():
        blocks[name] = {**blocks.get(name, {}), **keys}
    blocks[header][key] = section.keys[key].example
    text = "\n".join(
        "\n".join([name, *(f"{each} = {value}" for each, value in keys.items() if value)])
        for name, keys in blocks.items()
    )
    return text + ('\n[[network.link]]\nends = ["h2", "s1"]' if header == "[[network.link]]" else "")


def test_the_page_is_the_one_that_its_types_make() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(help_of), "a key or a flag has other words: run make reference"


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_each_example_is_accepted(section: Section, key: str) -> None:
    text = suite_with(section, key)
    assert f"{key} = {section.keys[key].example}" in text
    assert expand(read_text(text, source="it.toml", directory="/here"), seed=0).points


def test_the_page_of_commands_is_the_one_that_their_help_makes() -> None:
    assert reference.PAGE.read_text(encoding="utf-8") == reference.page(help_of), "run make reference"


def test_the_page_of_commands_is_the_same_from_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    made = reference.page(help_of)
    monkeypatch.setenv("COLUMNS", "60")
    assert reference.page(help_of.__wrapped__) == made
    assert page(help_of.__wrapped__) == page(help_of)


def test_every_command_has_a_part_of_the_page() -> None:
    found = set(reference.commands(help_of))
    assert {"serve echo", "serve http", "load echo", "load http", "forward", "link", "capture", "merge"} <= found
    titles = set(re.findall(r"^## plimsoll (.*)$", reference.page(help_of), re.MULTILINE))
    assert titles == found | {f"lab {verb.name}" for verb in VERBS}


def test_every_table_of_a_suite_has_a_section() -> None:
    titles = " ".join(section.title for section in SECTIONS)
    top = SECTIONS[0].keys
    for table in TABLES:
        assert table in top or f"[{table}" in titles, table


def test_every_type_is_explained() -> None:
    assert set(WRITTEN) == set(get_args(Kind))


def test_a_whole_path_replaces_keys_of_a_link() -> None:
    assert WHOLE_PATH.keys() == REPLACED.keys()
    assert set(REPLACED.values()) <= LINK.keys()


def test_help_of_either_form_is_read() -> None:
    told = read_help(
        "Options:\n"
        "  -H, --header <FIELD>\n          A field (repeatable). See --work\n          path\n          \n"
        "          [default: none at all]\n\n"
        "      --work <D>      Burn with -H so long\n                      as told [default: 0] [alias: --burn]\n"
        "\nExamples:\n      --not-a-flag   of an example\n"
    )
    assert told.keys() == {"header", "work", "burn"}
    assert told["header"] == FlagHelp(
        flag="-H, --header <FIELD>", text="A field (repeatable). See --work path", default="none at all", letter="H"
    )
    assert told["work"] == FlagHelp(flag="--work <D>", text="Burn with -H so long as told", default="0")
    keys = keys_of({"header": Flag(kind="texts"), "work": Flag(kind="duration")}, told)
    assert keys["header"].means == "A field. See `work` path."
    assert (keys["work"].means, keys["work"].default) == ("Burn with `header` so long as told.", '"0"')


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_help_says_the_default_of_each_argument(verb: Verb) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    verb.arguments(parser)
    told = [each for each in parser._actions if each.nargs != 0 and each.default not in (None, "", [])]
    assert [each.dest for each in told if "(default: " not in str(each.help)] == []


@pytest.mark.parametrize(("service", "address"), [("echo", "127.0.0.1:7000"), ("http", "127.0.0.1:8000")])
def test_help_says_where_a_server_listens_unless_told(service: str, address: str) -> None:
    assert read_help(help_of(f"serve {service}"))["listen"].default == address
