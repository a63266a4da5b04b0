"""The line that a refusal of a suite names: where the refused value was written."""

from __future__ import annotations

import pytest

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Value

SUITE = '''name = "it"       # a remark with a [bracket and a "quote
question = """Of
[load] many lines?
"""
[server]
protocol = "echo"
[load]
each = 2
[matrix]
"server.model"     = [
    "threads",    # ]
    "epoll",
]
"load.connections" = [1, 2]
'''
CLAIM = '[[claim]]\nname = "x"\nsource = "y"\nfigure = "elapsed_s"\nat = { "load.connections" = 1 }\nexpect = "< 1s"\n'
CONTENDERS = '[contender.a]\nmodel = "poll"\n[contender.b]\nworkers = "many"\n'
POINT = '[[point]]\n"server.model" = "poll"\n"load.connections" = 3\n'
ROLES = '[[role]]\nname = "one"\nkind = "forward"\nmappings = ["*:1=role:server"]\n'

CASES: dict[str, tuple[str, str]] = {
    "a table below a text of many lines": ("lod = 3\n", "lod = 3"),
    "a value of the matrix": (SUITE.replace('"epoll"', '"epol"'), '"server.model"     = ['),
    "the point with it": (POINT + POINT.replace('"load.connections" = 3', '"load.size" = "3 apples"'), '"load.size"'),
    "an axis of a point": ('[[point]]\n"server.model" = "poll"\n"server.modl" = "poll"\n', '"server.modl" = "poll"'),
    "the figure of a claim": (CLAIM + CLAIM.replace("elapsed_s", "elapsed"), 'figure = "elapsed"'),
    "the point of a claim": (CLAIM.replace("load.connections", "load.size"), 'at = { "load.size" = 1 }'),
    "a claim without its source": (CLAIM.replace('source = "y"\n', ""), "[[claim]]"),
    "an axis that does not vary": ('[[chart]]\nfigure = "elapsed_s"\nover = "load.size"\n', 'over = "load.size"'),
    "one of two roles": (ROLES + ROLES.replace("one", "two").replace("mappings", "mapings"), "mapings"),
    "a contender's setting": (CONTENDERS, 'workers = "many"'),
    "a key of several words": ("[run]\n'warm_up' = \"3\"\n", "'warm_up' = \"3\""),
}


def refusal(text: str, changes: dict[str, Value] | None = None, *, fast: bool = False) -> SuiteError:
    with pytest.raises(SuiteError) as refused:
        expand(read_text(text, source="it.toml", directory=".", changes=changes, fast=fast), seed=1)
    return refused.value


@pytest.mark.parametrize("name", CASES)
def test_a_refusal_ends_with_the_line_that_it_is_about(name: str) -> None:
    added, written = CASES[name]
    text = added if added.startswith("name") else SUITE + added
    said = refusal(text)
    assert said.line is not None
    assert text.splitlines()[said.line - 1].startswith(written), said
    assert str(said).endswith(f"(line {said.line})")


def test_with_fast_the_line_is_the_one_that_holds_then() -> None:
    text = SUITE + '[fast.load]\neach = "two"\n[[point]]\n"load.size" = "1B"\n[[fast.point]]\n"load.size" = "1 apple"\n'
    assert refusal(text, fast=True).line == text.splitlines().index("[[fast.point]]") + 1
    text = SUITE + '[fast.load]\nsize = "1B"\neach = "two"\n'
    assert refusal(text, fast=True).line == text.splitlines().index('each = "two"') + 1
    assert refusal(SUITE.replace("each = 2", 'each = "two"') + "[fast.load]\n", fast=True).line == 8


def test_what_no_line_of_the_file_says_has_none() -> None:
    assert refusal(SUITE, {"load.each": "two"}).line is None
    assert refusal(SUITE, {"load.connections": "two"}).line is None
    assert refusal(SUITE.replace("[load]\n", "")).line is None
