"""Reading and expanding: whatever cannot be run is refused before anything runs."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_suites import GOOD, SEARCH, plan, suite

from plimsoll_lab.suite import shipped, units
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import contender_path, expand
from plimsoll_lab.suite.flags import MODELS, as_arguments
from plimsoll_lab.suite.read import read_file
from plimsoll_lab.suite.sample_size import windows_too_short
from plimsoll_lab.suite.settings import Value

CONTENDERS = (
    GOOD.replace('[server]\nprotocol = "echo"\n', "")
    + """
[contender.old]
command = ["./old", "{port}"]
ready = "tcp:{port}"
[contender.new]
command = ["./new", "{port}"]
ready = "tcp:{port}"
"""
)

REFUSALS = {
    "a contender's unknown key": (
        CONTENDERS + 'comand = ["./new"]\n',
        "[server] comand: unknown key; did you mean 'command'?",
    ),
    "a misspelt command": (
        GOOD.replace('protocol = "echo"', 'comand = ["a"]'),
        "[server] comand: unknown key; did you mean 'command'?",
    ),
    "a contender without a table": (GOOD + "[contender]\nold = 1\n", "contender.old: not a table"),
    "a point that sets nothing": (GOOD + "[[point]]\nname = 'a'\n", "[[point]] 1: it sets nothing"),
    "an unquoted path in a point": (GOOD + "[[point]]\nload.connections = 1\n", "a path has to be quoted"),
    "a path of a point": (GOOD + '[[point]]\n"run.repeat" = 1\n', "[[point]] 1 run.repeat: not a path that can vary"),
    "a point without the contender": (
        GOOD + '[matrix]\n"server.model" = ["epoll"]\n[[point]]\n"load.connections" = 1\n',
        '[[point]] 1: the contenders differ in server.model; add "server.model" = ...',
    ),
    "an exclusion of nothing": (
        GOOD + '[matrix]\n"load.connections" = [1, 2]\nexclude = [{ "load.connections" = 3 }]\n',
        "'load.connections' never is 3; its values are 1, 2",
    ),
    "an exclusion along no axis": (
        GOOD + '[matrix]\n"load.connections" = [1, 2]\nexclude = [{ "load.connection" = 3 }]\n',
        "not an axis of the matrix; did you mean 'load.connections'?",
    ),
    "an expectation without an operator": (
        GOOD + '[expect]\nendpoints = "3"\n',
        "[expect] endpoints: '3' is not a condition",
    ),
    "an expectation that cannot be read": (
        GOOD + '[expect]\nendpoints = "== 3 / 4"\n',
        "[expect] endpoints: cannot read",
    ),
    "unknown table": (GOOD + "[serverr]\n", "it.toml: 'serverr': unknown key; did you mean 'server'?"),
    "unknown run key": (GOOD + "[run]\nrepeats = 3\n", "[run] repeats: unknown key; did you mean 'repeat'?"),
    "unknown load key": (GOOD + "conections = 3\n", "[load] conections: unknown key; did you mean 'connections'?"),
    "unknown model": (GOOD.replace('"echo"', '"echo"\nmodel = "epol"'), "[server] model: 'epol' is not one of them"),
    "model in the matrix": (GOOD + '[matrix]\n"server.model" = ["epoll", "upoll"]\n', "[server] model: 'upoll'"),
    "path of the matrix": (GOOD + '[matrix]\n"run.repeat" = [1, 2]\n', "[matrix] run.repeat: not a path that can vary"),
    "unquoted path": (GOOD + "[matrix]\nserver.model = ['epoll']\n", "[matrix] server: not a path"),
    "a point that is a cell too": (
        GOOD
        + '[matrix]\n"server.model" = ["poll"]\n"load.connections" = [1]\n'
        + '[[point]]\n"load.connections" = 1\n"server.model" = "poll"\n',
        "load.connections=1, server.model=poll is a cell of the matrix too",
    ),
    "an exclusion of everything": (
        GOOD + '[matrix]\n"load.connections" = [1]\nexclude = [{ "load.connections" = 1 }]\n',
        "[matrix] exclude leaves no point of the matrix",
    ),
    "values of one name": (GOOD + '[matrix]\n"load.connections" = [1, "1"]\n', "a value is listed twice"),
    "value twice": (GOOD + '[matrix]\n"load.connections" = [1, 1]\n', "a value is listed twice"),
    "no window": (GOOD.replace('duration = "1s"', ""), "no length of the window"),
    "two windows": (GOOD + "each = 5\n", "duration and each: a window has one length"),
    "duration without unit": (GOOD.replace('"1s"', "5"), "[load] duration: 5 has no unit"),
    "zero payload": (GOOD + "size = 0\n", "[load] size: 0 is too small"),
    "warm-up in load": (GOOD + 'warm_up = "1s"\n', "[load] warm_up: it belongs under [run]"),
    "listen": (GOOD.replace('"echo"', '"echo"\nlisten = "x"'), "[server] listen: the lab chooses a free port"),
    "network without a shape": (
        GOOD + '[network]\nrate = "1Mbit"\n',
        "[network]: give it a topology, such as 'single,3'",
    ),
    "search over nothing": (GOOD + "[search]\n", "[search] over: None is nothing that can be searched over"),
    "search key": (SEARCH + "step = 3\n", "[search] step: unknown key"),
    "search range": (SEARCH.replace("[1, 60000]", "[5, 2]"), "[search] range: the low end has to be at least 1"),
    "repeat": (GOOD + "[run]\nrepeat = 100001\n", "[run] repeat: 100001 is more than a plan can hold"),
    "seed": (GOOD + "[run]\nseed = 9223372036854775808\n", "[run] seed: 9223372036854775808 is more than"),
    "command of no words": (GOOD.replace("[server]", "[server]\ncommand = 5", 1), "command: 5 is not a list of texts"),
    "search range of parts": (SEARCH.replace("[1, 60000]", "[1.5, 60000]"), "[search] range: '1.5' is not a count"),
    "search range of one": (SEARCH.replace("[1, 60000]", "[5]"), "[search] range: [5] is no pair of loads"),
    "search width": (SEARCH + 'width = "0%"\n', "[search] width: it has to lie between"),
    "search without limits": (SEARCH.replace('"response_time.p99" = "<50ms"', ""), "[search]: no limit"),
    "a search for what is captured": (
        SEARCH.replace('"response_time.p99" = "<50ms"', '"capture.resets" = "< 1"'),
        "[limits] capture.resets: a search captures no packets; leave it out",
    ),
    "a search that captures": ("capture = true\n" + SEARCH, "capture: a search captures no packets; leave it out"),
    "a search for the memory of a server that runs": (
        SEARCH.replace("[server]\n", '[server]\naddress = "127.0.0.1:1"\n').replace(
            '"response_time.p99" = "<50ms"', '"server.memory_bytes" = "< 1GB"'
        ),
        "[limits] server.memory_bytes: nothing is read of a server that already runs",
    ),
    "a search for the memory of a contender that runs": (
        SEARCH.replace('"response_time.p99" = "<50ms"', '"server.cpu_cores" = "< 1"')
        + '[contender.it]\naddress = "127.0.0.1:1"\n',
        "[limits] server.cpu_cores: nothing is read of a server that already runs",
    ),
    "search over an axis": (SEARCH + '[matrix]\n"load.connections" = [1, 2]\n', "is an axis of the matrix too"),
    "search over a rate that thinks": (
        SEARCH.replace("load.connections", "load.rate").replace("[limits]", 'think = "1s"\n[limits]'),
        "a rate has no think time",
    ),
    "limit's figure": (GOOD + '[limits]\n"response_time.p98" = "<1s"\n', "no such figure; did you mean"),
    "limit of five times everything": (
        GOOD + '[limits]\nfailed_ratio = "<5"\n',
        "'5' would be 500%: write a percentage",
    ),
    "limit's value": (GOOD + '[limits]\n"response_time.p99" = "<5"\n', "is not a duration"),
    "a status of an echo": (GOOD + '[limits]\n"statuses.404" = "== 0"\n', "only HTTP has statuses"),
    "an expected status of an echo": (GOOD + '[expect]\n"statuses.404" = "== 0"\n', "only HTTP has statuses"),
    "a status of an echo that is compared": (
        GOOD + '[verdict]\nfigures = ["statuses.404"]\n',
        "[verdict] figures: statuses.404: only HTTP has statuses",
    ),
    "a figure twice": (
        GOOD + '[verdict]\nfigures = ["completed_rate", "completed_rate"]\n',
        "[verdict] figures: 'completed_rate' is listed twice",
    ),
    "a limit on no role": (
        GOOD + '[limits]\n"role.forwarder.cpu_cores" = "< 1"\n',
        "no role is called 'forwarder'; the suite has no [[role]]",
    ),
    "a comparison of no role": (
        GOOD + '[verdict]\nfigures = ["role.other.cpu_cores"]\n[[role]]\nname = "another"\nkind = "load"\n',
        "[verdict] figures: role.other.cpu_cores: no role is called 'other'; did you mean 'another'?",
    ),
    "an expectation of a setting that there is not": (
        GOOD + '[expect]\n"connections.established" = "== load.conections"\n',
        "[expect] connections.established: load.conections is no number at every point",
    ),
    "an expectation of a setting that is no number": (
        GOOD + '[expect]\n"connections.established" = "== server.protocol"\n',
        "[expect] connections.established: server.protocol is no number at every point",
    ),
    "an expected status of an echo's load": (
        GOOD + '[expect]\n"load.statuses.404" = "== 0"\n',
        "only HTTP has statuses",
    ),
    "an expectation of what is computed after the trial": (
        GOOD + '[expect]\nresponse_time_with_last_connections = "< 2"\n',
        "[expect] response_time_with_last_connections: it is computed after the trial",
    ),
    "a search for what it cannot compute": (
        SEARCH.replace('"response_time.p99" = "<50ms"', 'response_time_with_last_connections = "<200%"'),
        "[limits] response_time_with_last_connections: a search keeps no requests",
    ),
    "limit's operator": (GOOD + '[limits]\n"response_time.p99" = "5ms"\n', "is not a limit; write an operator"),
    "command without ready": (GOOD.replace('protocol = "echo"\n[load]', 'command = ["x"]\n[load]'), "ready"),
    "command as a text": (
        GOOD.replace('protocol = "echo"\n[load]', 'command = "x y"\nready = "tcp:1"\n[load]'),
        "is not a list of texts",
    ),
    "address without port": (GOOD.replace('protocol = "echo"\n[load]', 'address = "here"\n[load]'), "write HOST:PORT"),
    "address and model": (
        GOOD.replace('protocol = "echo"\n[load]', 'address = "127.0.0.1:1"\nmodel = "epoll"\n[load]'),
        "[server] model: unknown key",
    ),
    "path over echo": (GOOD + 'path = "/x"\n', "[load] path: unknown key"),
    "control characters in a value": (
        GOOD.replace('"echo"', r'"go\nph\u001b[31mer"'),
        r"[server] protocol: 'go\nph\x1b[31mer' is not supported",
    ),
    "protocol": (GOOD.replace('"echo"', '"gopher"'), "[server] protocol: 'gopher' is not supported"),
    "not TOML": ("name = ", "not valid TOML"),
    "no question": ('name = "x"\n[server]\n[load]\n', "'question': missing or empty"),
    "no load": ('name = "x"\nquestion = "?"\n[server]\n', "[load]: missing"),
    "compare": (GOOD + '[verdict]\ncompare = "server.model"\n', "is not an axis of the matrix"),
    "verdict's figure": (GOOD + '[verdict]\nfigures = ["speed"]\n', "'speed' is no figure"),
    "a word that no program can be given": (
        GOOD.replace('protocol = "echo"\n[load]', 'command = ["a\\u0000b"]\nready = "tcp:1"\n[load]'),
        r"[server] command: 'a\x00b' holds U+0000",
    ),
    "a setting that no program can be given": (GOOD + 'target = "a\\u0000b"\n', r"[load] target: 'a\x00b' holds"),
    "lists in lists": (GOOD + f"lists = {'[' * 5000}{']' * 5000}\n", "more than 30 tables or lists lie within"),
    "tables in tables": (f"{GOOD}[expect]\n{'a.' * 40}a = 1\n", "more than 30 tables or lists lie within"),
    "a number that nobody counts to": (GOOD + f"connections = {'9' * 5000}\n", "not valid TOML: Exceeds the limit"),
    "too many points": (
        f'{GOOD}[matrix]\n"load.connections" = {list(range(1, 318))}\n"load.size" = {list(range(1, 318))}\n',
        "[matrix]: its axes have more than 100,000 combinations",
    ),
    "too many trials": (
        f'{GOOD}[matrix]\n"load.connections" = {list(range(1, 12))}\n[run]\nrepeat = 100000\n',
        "[run] repeat: 100,000 repetitions of 11 points are more trials than a plan can hold",
    ),
}


NOWHERE = {
    *("not TOML", "no question", "no load"),
    *("lists in lists", "tables in tables", "a number that nobody counts to"),
}
"""Refusals of what no line says; `tomllib` tells the line of what is no TOML."""


@pytest.mark.parametrize("name", REFUSALS)
def test_a_suite_that_cannot_be_run_is_refused_in_one_line_with_the_line_of_the_file(name: str) -> None:
    text, said = REFUSALS[name]
    with pytest.raises(SuiteError) as refusal:
        expand(suite(text), seed=1)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("it.toml: ")
    assert (refusal.value.line is None) == (name in NOWHERE)


def test_the_first_axis_is_the_slowest() -> None:
    points = plan(GOOD + '[matrix]\n"server.model" = ["poll", "epoll"]\n"load.connections" = [1, 2]\n').points
    assert [tuple(point.setting.values()) for point in points] == [("poll", 1), ("poll", 2), ("epoll", 1), ("epoll", 2)]
    assert points[1].server == {"protocol": "echo", "model": "poll"}
    assert points[1].load == {"duration": "1s", "connections": 2}


def test_a_change_replaces_a_setting_or_a_whole_axis() -> None:
    text = GOOD + '[matrix]\n"load.connections" = [1, 2]\n'
    points = plan(text, load__connections=7, load__size="1KB", run__repeat=3)
    assert [point.load for point in points.points] == [{"duration": "1s", "size": "1KB", "connections": 7}]
    assert len(points.trials) == 3


def test_a_change_replaces_what_points_say_and_makes_one_of_those_that_it_makes_alike() -> None:
    """A case of epoll-scaling with a number of clients of one's own kept the suite's number."""
    text = GOOD + '[[point]]\nname = "a"\n"load.connections" = 3\n"load.size" = "1B"\n'
    text += '[[point]]\n"load.connections" = 4\n[[point]]\n"load.connections" = 5\n'
    points = plan(text, load__connections=7).points
    assert [(point.setting.get("point"), point.load["connections"]) for point in points] == [("a", 7), (None, 7)]
    both = text + '[matrix]\n"load.connections" = [1, 2]\n'
    assert len(plan(both, load__connections=7).points) == 2
    with pytest.raises(SuiteError, match="the same point is listed twice"):
        plan(text.replace("= 5", "= 4"), load__size="1KB")


def test_a_change_of_an_axis_holds_for_the_points_beside_the_matrix_and_takes_exclusions_along() -> None:
    """A point that does not state the axis kept what [load] says, and an exclusion of another cell
    refused the change.
    """
    text = GOOD + 'connections = 9\n[matrix]\n"load.connections" = [1, 2]\n"server.model" = ["poll", "epoll"]\n'
    text += 'exclude = [{ "load.connections" = 2, "server.model" = "poll" }, { "server.model" = "epoll" }]\n'
    text += '[[point]]\nname = "a"\n"load.size" = "1B"\n'
    found = plan(text, load__connections=7).points
    assert [(point.setting.get("point"), point.load["connections"]) for point in found] == [(None, 7), ("a", 7)]
    kept = plan(text, load__connections=2).points
    assert [point.setting.get("point") for point in kept] == ["a"], "this cell is excluded"


def test_only_keeps_some_points_and_their_numbers() -> None:
    text = GOOD + '[matrix]\n"server.model" = ["poll", "epoll", "uring"]\n'
    kept = expand(suite(text), seed=1, only={"server.model": ["uring"]})
    assert [(point.number, point.setting["server.model"]) for point in kept.points] == [(2, "uring")]
    with pytest.raises(SuiteError, match="did you mean 'epoll'"):
        expand(suite(text), seed=1, only={"server.model": ["epol"]})
    with pytest.raises(SuiteError, match="not an axis"):
        expand(suite(text), seed=1, only={"server.modell": ["epoll"]})


axes = st.lists(st.integers(1, 10**6), min_size=1, max_size=5, unique=True)


@given(
    models=st.lists(st.sampled_from(MODELS), min_size=1, unique=True),
    loads=axes,
    repeat=st.integers(1, 6),
    seed=st.integers(0, 2**32),
)
def test_every_block_holds_every_point_once_and_the_seed_tells_the_order(
    models: list[str], loads: list[int], repeat: int, seed: int
) -> None:
    text = GOOD + f'[matrix]\n"server.model" = {models}\n"load.connections" = {loads}\n[run]\nrepeat = {repeat}\n'
    first = expand(suite(text), seed=seed)
    assert len(first.points) == len(models) * len(loads)
    assert [trial.number for trial in first.trials] == list(range(1, len(first.trials) + 1))
    for block in range(1, repeat + 1):
        counts = Counter(trial.point for trial in first.trials if trial.block == block)
        assert counts == Counter(point.number for point in first.points)
    assert [trial.block for trial in first.trials] == sorted(trial.block for trial in first.trials)
    assert expand(suite(text), seed=seed) == first


def test_orders_differ_from_block_to_block() -> None:
    text = GOOD + '[matrix]\n"load.connections" = [1, 2, 3, 4, 5, 6, 7, 8]\n[run]\nrepeat = 4\n'
    trials = plan(text).trials
    orders = {tuple(trial.point for trial in trials if trial.block == block) for block in range(1, 5)}
    assert len(orders) == 4


@given(st.integers(1, 10**9))
def test_counts_read_back(number: int) -> None:
    assert units.count(str(number)) == number
    assert units.count(f"{number}k") == number * 1000
    assert units.count(f"{number // 1000}.{number % 1000:03}k") == number
    assert units.size_bytes(f"{number}KiB") == number * 1024
    assert units.duration_s(f"{number}ms") == pytest.approx(number / 1000)
    assert units.ratio(f"{number}%") == pytest.approx(number / 100)


@given(st.text(max_size=12))
@example("9" * 400)
@example("9" * 400 + "KB")
@example("9" * 400 + "s")
@example("9" * 308 + "GiB")
@example("9" * 308 + "M")
@example("9" * 308 + "h")
@example("nan")
@example("inf")
def test_a_quantity_is_read_or_refused_with_a_value_error(text: str) -> None:
    for read in (units.duration_s, units.size_bytes, units.bits_per_s, units.count, units.rate, units.ratio):
        try:
            assert 0 <= read(text) < math.inf
        except ValueError:
            continue


def test_a_size_is_of_whole_bytes_as_the_binary_has_it() -> None:
    assert units.size_bytes("1.5KB") == 1500
    for text in ("1.5B", "1.5", "0.0001KiB"):
        with pytest.raises(ValueError, match="whole number"):
            units.size_bytes(text)


def test_settings_become_arguments() -> None:
    settings: dict[str, Value] = {"think": "1s", "barrier": True, "lockstep": False, "connections": 5}
    assert as_arguments(settings) == ["--think", "1s", "--barrier", "--connections", "5"]
    assert as_arguments({"source_ip": ("a", "b")}) == ["--source-ip", "a", "--source-ip", "b"]


def test_no_shipped_server_keeps_its_pid_in_a_device() -> None:
    """As it ends, nginx removes that file; as root, it would remove the device."""
    home = shipped.folder()
    assert home is not None
    configurations = [
        path.read_text(encoding="utf-8")
        for path in sorted(home.glob("**/*"))
        if path.suffix != ".py" and path.is_file()
    ]
    assert any("pid " in each for each in configurations)
    assert not [each for each in configurations if "pid /dev/" in each]


@pytest.mark.parametrize("name", [name for name, _ in shipped.suites()])
def test_every_shipped_suite_can_be_run(name: str) -> None:
    assert expand(read_file(shipped.find(name)), seed=1).trials


TOO_SHORT = {
    # Without a failure among n requests the ratio is below 3 / n: 0.001 % needs 300,000.
    "a strict ratio": ('failed_ratio = "<0.001%"', 'duration = "1s"', [300_000]),
    "a ratio the window is long enough for": ('failed_ratio = "<0.1%"', 'duration = "1s"', []),
    "a ratio in an open loop": ('failed_ratio = "<0.1%"', 'duration = "1s"\nrate = 2000', [3000]),
    "a percentile of a few": ('"response_time.p99" = "<1s"', 'duration = "1s"\nthink = "1s"', [1000]),
    "a percentile of enough": ('"response_time.p99" = "<1s"', "each = 60", []),
    "no limit on anything rare": ('completed_rate = ">1k"', 'duration = "1s"', []),
}


@pytest.mark.parametrize("name", TOO_SHORT)
def test_a_window_too_short_for_its_limits_is_told_beforehand(name: str) -> None:
    limit, load, needed = TOO_SHORT[name]
    text = GOOD.replace('duration = "1s"', load) + f"[limits]\n{limit}\n"
    assert [each for _, each, _ in windows_too_short(plan(text))] == needed


def test_an_order_comes_again_from_its_seed() -> None:
    text = GOOD + '[matrix]\n"load.connections" = [1, 2, 3, 4, 5]\n[run]\nrepeat = 4\n'
    orders = [tuple(trial.point for trial in expand(suite(text), seed=seed).trials) for seed in (7, 7, 8)]
    assert orders[0] == orders[1] != orders[2]
    # Written down once: whoever changes how an order is drawn breaks the resuming of every run that
    # was begun.
    assert orders[0] == (3, 1, 0, 4, 2, 3, 1, 0, 4, 2, 0, 1, 4, 2, 3, 0, 4, 3, 1, 2)


def test_contenders_have_names_and_their_tables_lie_over_the_server() -> None:
    planned = plan(CONTENDERS + '[matrix]\n"load.connections" = [1, 2]\n')
    assert [dict(point.setting) for point in planned.points] == [
        {"contender": "old", "load.connections": 1},
        {"contender": "old", "load.connections": 2},
        {"contender": "new", "load.connections": 1},
        {"contender": "new", "load.connections": 2},
    ]
    assert [point.server["command"][0] for point in planned.points if isinstance(point.server["command"], tuple)] == [
        "./old", "./old", "./new", "./new"
    ]  # fmt: skip
    assert contender_path(planned) == "contender"
    mixed = plan(GOOD + '[contender.a]\nmodel = "poll"\n[contender.b]\nmodel = "uring"\n')
    assert [(dict(point.setting), point.server["model"]) for point in mixed.points] == [
        ({"contender": "a"}, "poll"),
        ({"contender": "b"}, "uring"),
    ]


def test_points_have_their_paths_in_one_order_so_that_contenders_meet_at_a_place() -> None:
    points = plan(
        GOOD
        + '[matrix]\n"server.model" = ["poll", "epoll"]\n"load.connections" = [1]\n'
        + '[[point]]\n"load.connections" = 9\n"load.think" = "1ms"\n"server.model" = "poll"\n'
        + '[[point]]\n"server.model" = "epoll"\n"load.think" = "1ms"\n"load.connections" = 9\n'
    ).points
    orders = [list(point.setting) for point in points]
    cell = ["server.model", "load.connections"]
    assert orders == [cell, cell, [*cell, "load.think"], [*cell, "load.think"]]


def test_points_stand_beside_the_matrix_less_what_is_excluded_each_with_every_contender() -> None:
    planned = plan(
        CONTENDERS
        + '[matrix]\n"load.connections" = [1, 2]\nexclude = [{ contender = "old", "load.connections" = 2 }]\n'
        + '[[point]]\nname = "case 5"\n"load.connections" = 3000\n"load.think" = "250ms"\n'
    )
    assert [tuple(point.setting.values()) for point in planned.points] == [
        ("old", 1),
        ("new", 1),
        ("new", 2),
        ("old", "case 5", 3000, "250ms"),
        ("new", "case 5", 3000, "250ms"),
    ]
    assert len({point.number for point in planned.points}) == 5
    assert planned.points[-1].load["think"] == "250ms"
    alone = plan(GOOD + '[[point]]\n"load.connections" = 7\n[[point]]\n"load.connections" = 9\n')
    assert [dict(point.setting) for point in alone.points] == [{"load.connections": 7}, {"load.connections": 9}]


@pytest.mark.parametrize("tenths", [1, 7, 14, 28, 57, 999, 1000])
def test_a_percentage_is_the_ratio_of_whole_numbers_that_it_names(tenths: int) -> None:
    """7 failed of 1,000 were more than 0.7 %."""
    assert units.ratio(f"{tenths / 10}%") == tenths / 1000


def test_a_command_that_names_its_port_is_ready_once_that_accepts() -> None:
    """A contender with a command asked for `ready`, and by the name of another table."""
    own = '[contender.ours]\nmodel = "epoll"\n[contender.node]\ncommand = ["node", "server.js", "{port}"]\n'
    beside = '[[role]]\nname = "second"\nkind = "server"\ncommand = ["node", "{port}"]\n'
    ours, node = plan(GOOD + own + beside).points
    assert ("ready" in ours.server, node.server["ready"]) == (False, "tcp:{port}")
    assert [role.settings["ready"] for role in node.roles] == ["tcp:{port}"]
    stated = GOOD.replace("[server]", '[server]\nready = "tcp:8080"').replace('protocol = "echo"\n', "", 1)
    (node,) = plan(stated + '[contender.node]\ncommand = ["node", "{port}"]\n').points
    assert node.server["ready"] == "tcp:8080"
    with pytest.raises(SuiteError, match=r"\[contender.node\] ready: a command needs to say"):
        plan(GOOD + own.replace(', "{port}"', ""))
    with pytest.raises(SuiteError, match=r"\[server\] ready: of a command alone"):
        plan(stated)
    bad = stated.replace('"tcp:8080"', '"8080"') + '[contender.node]\ncommand = ["node"]\n'
    with pytest.raises(SuiteError, match=r"\[server\] ready: a command needs to say"):
        plan(bad)
    with pytest.raises(SuiteError, match=r"\[contender.node\] ready: a command needs to say"):
        plan(stated + '[contender.node]\ncommand = ["node"]\nready = "8080"\n')
    with pytest.raises(SuiteError, match=r'leave it out of \[server\] and "server.model" out of the matrix'):
        plan(GOOD + own + '[matrix]\n"server.model" = ["epoll", "poll"]\n')
    with pytest.raises(SuiteError, match=r"\[server\] command: unknown key"):
        plan(GOOD.replace('protocol = "echo"\n', 'address = "h:1"\ncommand = ["a", "{port}"]\n', 1))
