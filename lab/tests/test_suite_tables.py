"""A value of another kind than its place in a suite asks for is refused in one line that names the
place: in the suite, in its [fast], and where --set changes it.
"""

from __future__ import annotations

import pytest

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Value

NAME = 'name = "it"\nquestion = "Well?"\n'
PARTS = '[server]\n[load]\nduration = "1s"\n'
SUITE = NAME + PARTS
ROLE = '[[role]]\nname = "x"\nkind = "load"\n'
NETWORK = '[network]\ntopology = "single,2"\n'
NOT_ROLES = "role: not a list of tables; write [[role]] and its settings below"

IN_A_SUITE = {
    "addresses of none": (SUITE + NETWORK + "addresses = 0\n", "[network] addresses: 0 is out of range"),
    "addresses in a text": (SUITE + NETWORK + 'addresses = "4"\n', "[network] addresses: '4' is out of range"),
    "a queue of true": (SUITE + NETWORK + 'rate = "1Mbit"\nqueue = true\n', "queue: True is not a number of packets"),
    "a rate without a unit": (SUITE + NETWORK + "rate = 3\n", "rate: 3 is not a text with a unit"),
    "a link": (SUITE + "[network]\nlink = [3]\n", "[[network.link]]: not a table"),
    "a way back": (
        SUITE + '[[network.link]]\nends = ["h1", "s1"]\nreverse = 3\n',
        "[[network.link]] h1 - s1: reverse: 3 is not a table",
    ),
    "a role": (NAME + "role = [3]\n" + PARTS, NOT_ROLES),
    "a role's setting": (SUITE + ROLE + "think = { a = 1 }\n", "[[role]] x: think: {'a': 1} is neither a plain value"),
    "a date": (SUITE + "think = 2026-01-01\n", "[load] think: datetime.date(2026, 1, 1) is neither a plain value"),
    "a claim's point": (
        SUITE
        + '[[claim]]\nname = "c"\nsource = "s"\nfigure = "completed_rate"\nexpect = "> 1"\n'
        + 'at = { "load.connections" = { a = 1 } }\n',
        "[[claim]] 1 at load.connections: {'a': 1} is neither a plain value",
    ),
    "a chart": (NAME + "chart = [3]\n" + PARTS, "chart: not a list of tables"),
}


@pytest.mark.parametrize("name", IN_A_SUITE)
def test_a_value_of_another_kind_is_refused(name: str) -> None:
    text, said = IN_A_SUITE[name]
    assert said in refusal(text)


IN_FAST = {
    "run as a list": (SUITE + "[[fast.run]]\nrepeat = 1\n", "run: not a table; write [run]"),
    "run of the suite": (NAME + "run = 3\n" + PARTS, "run: not a table; write [run]"),
    "a table over a list": (
        SUITE + '[[point]]\n"load.connections" = 3\n[fast.point]\n"load.connections" = 1\n',
        "fast.point: 'point' is a list of tables; write [[fast.point]]",
    ),
    "a table over a number": (NAME + "load = 3\n[server]\n[fast.load]\neach = 1\n", "load: not a table; write [load]"),
    "roles as a list": (SUITE + ROLE + '[[fast.role]]\nname = "x"\n', "fast.role: write [fast.role.NAME]"),
    "roles of the suite": (NAME + "role = 3\n" + PARTS + '[fast.role.x]\non = "h1"\n', NOT_ROLES),
    "a role": (SUITE + ROLE + "[fast.role]\nx = 3\n", "fast.role.x: not a table; write [fast.role.x]"),
    "a role that there is not": (SUITE + ROLE + "[fast.role.y]\neach = 1\n", "there is no role 'y'"),
}


@pytest.mark.parametrize("name", IN_FAST)
def test_what_fast_cannot_be_laid_over_is_refused(name: str) -> None:
    text, said = IN_FAST[name]
    assert said in refusal(text, fast=True)


IN_A_CHANGE: dict[str, tuple[str, dict[str, Value], str]] = {
    "no roles": ("role = 3\n", {"role.x.on": "h1"}, NOT_ROLES),
    "no role": ("role = [3]\n", {"role.x.on": "h1"}, NOT_ROLES),
    "no contenders": ("contender = 3\n", {"contender.x.model": "poll"}, "contender: not a table; write [contender]"),
    "no contender": (
        "contender = { x = 3 }\n",
        {"contender.x.model": "poll"},
        "contender.x: not a table; write [contender.x]",
    ),
    "no network": ("network = 3\n", {"network.rate": "1Mbit"}, "network: not a table; write [network]"),
}


@pytest.mark.parametrize("name", IN_A_CHANGE)
def test_a_change_of_what_is_no_table_is_refused(name: str) -> None:
    text, changes, said = IN_A_CHANGE[name]
    assert said in refusal(NAME + text + PARTS, changes=changes)


IN_VAIN: dict[str, tuple[str, dict[str, Value], str]] = {
    "what each contender says": (
        '[contender.a]\ncommand = ["a"]\nready = "tcp:1"\n[contender.b]\nmodel = "poll"\n',
        {"server.model": "epoll"},
        "--set server.model: each contender says this itself, or is a server of its own; write contender.NAME.model",
    ),
    "what no contender takes": (
        '[contender.a]\ncommand = ["a"]\nready = "tcp:1"\n[contender.b]\naddress = "127.0.0.1:1"\n',
        {"server.workers": 2},
        "each contender says this itself, or is a server of its own; write contender.NAME.workers",
    ),
    "what has been laid over": ("[fast.run]\nrepeat = 1\n", {"fast.run.repeat": 3}, "write run.repeat"),
}


@pytest.mark.parametrize("name", IN_VAIN)
def test_a_change_that_would_change_nothing_is_refused(name: str) -> None:
    """The old binaries were measured, and the record said that the new ones had been."""
    text, changes, said = IN_VAIN[name]
    assert said in refusal(SUITE + text, changes=changes)


def test_a_change_holds_for_the_contenders_that_take_it() -> None:
    text = SUITE + '[contender.a]\ncommand = ["a"]\nready = "tcp:1"\n[contender.b]\nmodel = "poll"\n'
    changes: dict[str, Value] = {"server.workers": 2, "server.protocol": "http"}
    plan = expand(read_text(text, source="it.toml", directory="/here", changes=changes), seed=1)
    servers = {str(point.setting["contender"]): point.server for point in plan.points}
    assert (servers["b"]["workers"], "workers" in servers["a"]) == (2, False)
    assert [each["protocol"] for each in servers.values()] == ["http", "http"]


def test_a_change_of_what_the_matrix_or_a_point_says_holds_whatever_contenders_say() -> None:
    contenders = '[contender.a]\nmodel = "poll"\n'
    for where in ('[matrix]\n"server.model" = ["select", "poll"]\n', '[[point]]\n"server.model" = "select"\n'):
        changes: dict[str, Value] = {"server.model": "epoll"}
        plan = expand(
            read_text(SUITE + contenders + where, source="it.toml", directory="/here", changes=changes), seed=1
        )
        assert "epoll" in {str(point.server["model"]) for point in plan.points}


def refusal(text: str, *, fast: bool = False, changes: dict[str, Value] | None = None) -> str:
    with pytest.raises(SuiteError) as refused:
        expand(read_text(text, source="it.toml", directory="/here", fast=fast, changes=changes), seed=1)
    message = str(refused.value)
    assert message.startswith("it.toml: ")
    assert "\n" not in message
    return message
