"""Hosts, places and roles of a suite: what is refused, what follows from it, and the arguments of
each part.
"""

from __future__ import annotations

import pytest

from plimsoll_lab.analysis import formatting
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.placement import paths, resolve, start_order
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Plan
from plimsoll_lab.trial.commands import share
from plimsoll_lab.trial.testbed import network_key

HEAD = """
name = "it"
question = "Well?"
[server]
protocol = "http"
synthetic = true
[load]
protocol = "http"
path = "/bytes/64"
duration = "1s"
connections = 10
"""
SINGLE = '[network]\ntopology = "single,3"\nrate = "100Mbit"\ndelay = "1ms"\n'
PLACE = '[place]\nserver = "h1"\nload = ["h2", "h3"]\n'
SATURATOR = """
[[role]]
name = "saturator"
kind = "load"
on = "h3"
protocol = "http"
target = "role:server"
path = "/burn/1ms/75672"
connections = 15
measured = false
"""
FORWARDER = '[[role]]\nname = "relay"\nkind = "forward"\non = "h3"\ntarget = "role:server"\n'

REFUSALS = {
    "a host that is not there": (SINGLE + '[place]\nserver = "h9"\n', "[place] server: there is no host 'h9'"),
    "a place without a network": (PLACE, "there is no network with a host 'h1'; add [network]"),
    "the place of the server in the matrix": (
        SINGLE + '[matrix]\n"place.server" = ["h1", "h2"]\n',
        '[matrix] place.server: not a path that can vary; write "server.KEY"',
    ),
    "hosts of a point that there are not": (
        SINGLE + '[[point]]\n"place.load" = ["h2", "h9"]\n',
        "[place] load: there is no host 'h9'; known are h1, h2, h3 (line 17)",
    ),
    "a role without a place": (SINGLE + SATURATOR.replace('on = "h3"\n', ""), "say on which host it runs"),
    "a role of no kind": (SINGLE + SATURATOR.replace('"load"', '"laod"'), "kind: 'laod' is none; did you mean 'load'?"),
    "a role twice": (SINGLE + SATURATOR + SATURATOR, "'saturator' stands twice"),
    "the name of the server": (SINGLE + SATURATOR.replace('"saturator"', '"server"'), "'server' stands twice"),
    "the name of the emulator": (SINGLE + SATURATOR.replace('"saturator"', '"link"'), "[[role]] link: a part of the"),
    "the name of a capture": (SINGLE + SATURATOR.replace('"saturator"', '"capture"'), "choose another name"),
    "the name of a second generator": (SINGLE + SATURATOR.replace('"saturator"', '"load-2"'), "choose another name"),
    "a target that is not there": (SINGLE + SATURATOR.replace("role:server", "role:sever"), "did you mean 'server'?"),
    "an unknown flag": (SINGLE + SATURATOR + "conections = 1\n", "[role saturator] conections: unknown key"),
    "a measured server": (SINGLE + FORWARDER + "measured = true\n", "only a load is measured"),
    "a forwarder to nowhere": (SINGLE + FORWARDER.replace('target = "role:server"\n', ""), "say where it forwards to"),
    "parts that wait for each other": (
        SINGLE
        + FORWARDER.replace("role:server", "role:b")
        + FORWARDER.replace("relay", "b").replace("server", "relay"),
        "wait for each other",
    ),
    "an unknown key of the network": (SINGLE + 'bandwidth = "1Mbit"\n', "[network] bandwidth: unknown key"),
    "an unknown key of a link": ('[[network.link]]\nends = ["h1", "s1"]\nspeed = "1Mbit"\n', "speed: unknown key"),
    "a link with one end": ('[[network.link]]\nends = ["h1"]\n', "ends: ['h1'] is not a pair"),
    "both a word and links": (SINGLE + '[[network.link]]\nends = ["h1", "s1"]\n', "one of both"),
    "too few connections to share": (
        SINGLE + PLACE + '[matrix]\n"load.connections" = [1]\n',
        "connections: 1 are too few for 2 generators",
    ),
    "a countdown of several generators": (
        SINGLE + PLACE + '[matrix]\n"load.countdown" = [3]\n',
        "[load] countdown: several generators start at one instant; leave it out",
    ),
    "a countdown of a role beside the generator": (
        SINGLE + SATURATOR + "countdown = 3\n",
        "[role saturator] countdown: several generators start at one instant; leave it out",
    ),
    "a search that begins below a connection for each": (
        SINGLE + PLACE + '[limits]\nfailed_ratio = "<1%"\n[search]\nover = "load.connections"\nrange = [1, 100]\n',
        "[search] range: 1 connections are too few for 2 generators to share",
    ),
    "an axis of a role that is not there": (
        SINGLE + SATURATOR + '[matrix]\n"role.satrator.connections" = [1]\n',
        "there is no role 'satrator'; did you mean 'saturator'?",
    ),
    "a role that takes part now and then": (
        SINGLE + SATURATOR + 'active = "sometimes"\n',
        "[[role]] saturator: active: 'sometimes' is none of true, false, 'when named'",
    ),
    "a target that takes no part": (
        SINGLE + FORWARDER + 'active = false\n[matrix]\n"load.target" = ["role:relay"]\n',
        "role:relay: no part of this name listens",
    ),
    "a congestion control that cannot be one": (
        SINGLE + 'congestion = "cubic; reboot"\n',
        "[network] congestion: 'cubic; reboot' is no name of a congestion control, such as 'cubic'",
    ),
    "a congestion control that is a number": (SINGLE + "congestion = 3\n", "[network] congestion: 3 is no name"),
    "two generators on one host": (
        SINGLE + PLACE.replace("h3", "h2"),
        "[place] load: 'h2' stands twice; a host has one generator",
    ),
    "more targets than hosts": (
        SINGLE + PLACE + FORWARDER + '[matrix]\n"load.target" = [["role:relay", "role:server", "role:relay"]]\n',
        "[load] target: 3 targets for 2 hosts of generators",
    ),
    "several targets of a role": (
        SINGLE + SATURATOR.replace('"role:server"', '["role:server", "role:server"]'),
        "[role saturator] target: a role has one host, and so one target",
    ),
    "a target that is a number": (SINGLE + '[matrix]\n"load.target" = [3]\n', "[load] target: 3 is neither a text nor"),
    "a backend that is none": (SINGLE + 'backend = "ns3"\n', "[network] backend: 'ns3' is none"),
    "CPUs of nobody": ('[place]\ncpus = { sever = "0" }\n', "cpus: there is no part 'sever'; did you mean 'server'?"),
    "CPUs that are none": ('[place]\ncpus = { load = "1-0" }\n', "cpus: load: '1-0' is not a list of CPUs"),
    "CPUs without a part": ('[place]\ncpus = "0"\n', "[place] cpus: '0' is not a table; write { server = \"0\" }"),
    "a capture that is no switch": (SINGLE + "[run]\ncapture = true\n", "[run] capture: unknown key"),
}


def plan(text: str) -> Plan:
    return expand(read_text(HEAD + text, source="it.toml", directory="/here"), seed=1)


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_placed_is_refused_in_one_line(name: str) -> None:
    text, said = REFUSALS[name]
    with pytest.raises(SuiteError) as refusal:
        plan(text)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith("it.toml: ")
    assert "\n" not in str(refusal.value)


def test_more_generators_than_a_load_has_connections_unless_told_are_refused() -> None:
    head = HEAD.replace("connections = 10\n", "")
    text = '[network]\ntopology = "single,66"\n[place]\nload = "65 hosts"\n'
    with pytest.raises(SuiteError, match="connections: 64 are too few for 65 generators"):
        expand(read_text(head + text, source="it.toml", directory="/here"), seed=1)


def test_cpus_are_read_as_the_kernel_numbers_them_and_stay_with_every_point() -> None:
    text = '[place]\ncpus = { server = "3,0-1, 1", saturator = "2" }\n'
    for network in (SINGLE, ""):
        role = SATURATOR if network else SATURATOR.replace('on = "h3"\n', "")
        never = role + "active = false\n"
        for each in (role, never):
            assert plan(network + text + each).points[0].place.cpus == {"server": (0, 1, 3), "saturator": (2,)}


def test_a_server_that_already_runs_keeps_to_no_cpus_of_ours() -> None:
    attached = HEAD.replace("synthetic = true", 'address = "127.0.0.1:80"') + '[place]\ncpus = { server = "0" }\n'
    with pytest.raises(SuiteError, match="the lab does not start it; start it with taskset -c"):
        expand(read_text(attached, source="it.toml", directory="/here"), seed=1)


def test_without_a_network_everything_is_on_the_local_host() -> None:
    point = plan(SATURATOR.replace('on = "h3"\n', "")).points[0]
    assert (point.network, point.place.server, point.place.load) == (None, "local", ("local",))
    assert [role.on for role in point.roles] == ["local"]


def test_without_a_place_the_server_is_on_the_first_host_and_the_load_on_the_second() -> None:
    point = plan(SINGLE).points[0]
    assert (point.place.server, point.place.load) == ("h1", ("h2",))


def test_the_hosts_of_the_generators_vary_from_point_to_point() -> None:
    points = plan(SINGLE + PLACE + '[matrix]\n"place.load" = ["h2", ["h2", "h3"], "2 hosts"]\n').points
    assert [(each.place.server, each.place.load) for each in points] == [
        ("h1", ("h2",)),
        ("h1", ("h2", "h3")),
        ("h1", ("h2", "h3")),
    ]
    assert formatting.setting(points[1].setting) == "generators on h2 h3"


def test_the_network_and_the_roles_vary_like_server_and_load() -> None:
    text = (
        SINGLE + SATURATOR + '[matrix]\n"network.rate" = ["10Mbit", "1Gbit"]\n"role.saturator.connections" = [3, 15]\n'
    )
    points = plan(text).points
    assert [point.network.links[0].shape["rate"] for point in points if point.network] == [
        *("10Mbit", "10Mbit"),
        *("1Gbit", "1Gbit"),
    ]
    assert [point.roles[0].settings["connections"] for point in points] == [3, 15, 3, 15]
    assert dict(points[0].setting) == {"network.rate": "10Mbit", "role.saturator.connections": 3}


def test_networks_with_other_congestion_controls_are_not_shared() -> None:
    text = SINGLE + '[matrix]\n"network.congestion" = ["cubic", "reno"]\n"load.connections" = [4, 5]\n'
    points = plan(text).points
    assert [point.network.congestion for point in points if point.network] == ["cubic", "cubic", "reno", "reno"]
    assert [network_key(point) for point in points].count(network_key(points[0])) == 2
    over_links = plan('[network]\ncongestion = "reno"\n[[network.link]]\nends = ["h1", "h2"]\n').points[0].network
    assert over_links is not None
    assert over_links.congestion == "reno"


def test_a_role_takes_part_where_it_is_active_or_named() -> None:
    named = FORWARDER + 'active = "when named"\n'
    behind = FORWARDER.replace("relay", "outer").replace("role:server", "role:relay") + 'active = "when named"\n'
    targets = '[matrix]\n"load.target" = ["role:server", "role:relay", "role:outer"]\n'
    points = plan(SINGLE + named + behind + targets).points
    assert [[role.name for role in point.roles] for point in points] == [[], ["relay"], ["relay", "outer"]]
    assert all("active" not in role.settings for point in points for role in point.roles)
    switched = plan(SINGLE + SATURATOR + '[matrix]\n"role.saturator.active" = [true, false]\n').points
    assert [[role.name for role in point.roles] for point in switched] == [["saturator"], []]


def test_explicit_links_take_what_they_do_not_say_from_the_network() -> None:
    text = '[network]\nrate = "10Mbit"\ndelay = "1ms"\n'
    text += (
        '[[network.link]]\nends = ["h1", "s1"]\n[[network.link]]\nends = ["h2", "s1"]\ndelay = "20ms"\nloss = "1%"\n'
    )
    network = plan(text).points[0].network
    assert network is not None
    assert [dict(link.shape) for link in network.links] == [
        {"rate": "10Mbit", "delay": "1ms"},
        {"rate": "10Mbit", "delay": "20ms", "loss": "1%"},
    ]


def test_paths_are_those_on_which_parts_talk() -> None:
    point = plan(SINGLE + PLACE + SATURATOR + FORWARDER.replace("h3", "h2")).points[0]
    assert paths(point.place, point.roles, point.load) == [("h2", "h1"), ("h3", "h1")]


def test_each_of_several_generators_may_have_a_target_of_its_own() -> None:
    second = '[[role]]\nname = "second"\nkind = "server"\non = "h3"\n'
    relay = FORWARDER.replace('target = "role:server"', 'mappings = ["*:7000=role:server", "*:8000=role:second"]')
    text = SINGLE.replace("single,3", "single,4") + PLACE + relay.replace("h3", "h4") + second
    direct, forwarded = plan(
        text + '[matrix]\n"load.target" = [["role:server", "role:second"], ["role:relay:7000", "role:relay:8000"]]\n'
    ).points
    assert [share(direct.load, number, 2)["target"] for number in (0, 1)] == ["role:server", "role:second"]
    assert share(forwarded.load, 1, 2)["target"] == "role:relay:8000"
    # From h3 to itself there is no path.
    assert paths(direct.place, direct.roles, direct.load) == [("h2", "h1"), ("h4", "h1"), ("h4", "h3")]
    assert paths(forwarded.place, forwarded.roles, forwarded.load) == [
        ("h2", "h4"), ("h3", "h4"), ("h4", "h1"), ("h4", "h3"),
    ]  # fmt: skip


def test_parts_start_after_those_that_they_name() -> None:
    text = FORWARDER.replace("role:server", "role:db").replace('on = "h3"\n', "")
    text += '[[role]]\nname = "db"\nkind = "command"\ncommand = ["db", "{port}"]\nready = "tcp:{port}"\n'
    point = plan(text).points[0]
    assert start_order(point.server, point.roles, source="it.toml") == ["server", "db", "relay"]


def test_names_of_parts_stand_for_their_addresses() -> None:
    addresses = {"server": "10.0.0.1:80", "db": "10.0.0.2"}
    assert resolve("role:server", addresses) == "10.0.0.1:80"
    assert resolve("role:server:8080", addresses) == "10.0.0.1:8080"
    assert resolve("http://{role:db:5432}/x", addresses) == "http://10.0.0.2:5432/x"
    assert resolve("8080=role:server", addresses) == "8080=10.0.0.1:80"


def test_generators_share_connections_and_rate_and_draw_apart() -> None:
    settings: Settings = {"connections": 10, "rate": "9k:3k", "each": 5}
    shares = [share(settings, number, 3) for number in range(3)]
    assert [each["connections"] for each in shares] == [4, 3, 3]
    assert [each["rate"] for each in shares] == ["3000:1000"] * 3
    assert [each["each"] for each in shares] == [5, 5, 5]
    assert not any("seed" in each for each in shares), "each draws its own"
    assert share(settings, 0, 1) == settings


def test_generators_of_one_seed_have_seeds_that_no_neighbouring_seed_gives() -> None:
    seeds = [share({"seed": seed}, number, 3)["seed"] for seed in range(8) for number in range(3)]
    assert len(set(seeds)) == len(seeds)
    assert share({"seed": 5}, 1, 3) == share({"seed": 5}, 1, 3)


@pytest.mark.parametrize(
    ("whole", "of", "each"),
    [("2M", 2, "1000000"), ("10M", 3, "3333333.333333"), (1, 4, "0.25"), ("5M:2", 2, "2500000:1")],
)
def test_a_part_of_a_rate_is_written_as_the_generator_reads_it_and_none_is_added(
    whole: str | int, of: int, each: str
) -> None:
    settings: Settings = {"rate": whole, "connect_rate": whole}
    for number in range(of):
        own = share(settings, number, of)
        assert (own["rate"], own["connect_rate"]) == (each, each)
