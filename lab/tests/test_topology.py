"""Mininet's words for topologies, and the networks that they mean."""

from __future__ import annotations

import tracemalloc

import pytest

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.topology import Link, join, read_topology


@pytest.mark.parametrize(
    ("words", "hosts", "ends"),
    [
        ("single,3", 3, [("h1", "s1"), ("h2", "s1"), ("h3", "s1")]),
        ("linear,3", 3, [("h1", "s1"), ("h2", "s2"), ("h3", "s3"), ("s1", "s2"), ("s2", "s3")]),
        ("dumbbell,2", 4, [("h1", "s1"), ("h2", "s1"), ("h3", "s2"), ("h4", "s2"), ("s1", "s2")]),
        ("single, 1", 1, [("h1", "s1")]),
    ],
)
def test_the_words_make_the_links_that_mininet_makes(words: str, hosts: int, ends: list[tuple[str, str]]) -> None:
    topology = read_topology(words, {"rate": "100Mbit", "delay": "1ms"})
    assert len(topology.hosts) == hosts
    assert [link.ends for link in topology.links] == ends


def test_a_link_delay_of_d_is_four_d_of_round_trip_under_single() -> None:
    shape = {"delay": "1ms"}
    assert read_topology("single,3", shape).round_trip_s("h1", "h3") == pytest.approx(0.004)
    assert read_topology("dumbbell,2", shape).round_trip_s("h1", "h4") == pytest.approx(0.006)
    assert read_topology("linear,4", shape).round_trip_s("h1", "h4") == pytest.approx(0.010)
    assert read_topology("single,3", {}).round_trip_s("h1", "h2") == 0


def test_each_direction_of_a_link_may_be_another() -> None:
    links = [
        Link(ends=("h1", "s1"), shape={"rate": "10Mbit", "delay": "1ms"}),
        Link(
            ends=("h2", "s1"),
            shape={
                "rate": "8Mbit",
                "delay": "5ms",
                "loss": "1%",
                "reverse": {"rate": "1Mbit", "delay": "2ms", "loss": "10%"},
            },
        ),
    ]
    topology = join(links)
    assert topology.one_way_s("h2", "h1") == pytest.approx(0.006)
    assert topology.one_way_s("h1", "h2") == pytest.approx(0.003)
    assert topology.one_way_s("h1", "h2", frame_bytes=1250) == pytest.approx(0.003 + 0.001 + 0.010)
    assert topology.round_trip_s("h1", "h2") == topology.round_trip_s("h2", "h1") == pytest.approx(0.009)
    assert topology.narrowest_bits_per_s("h1", "h2") == 1e6
    assert topology.narrowest_bits_per_s("h2", "h1") == 8e6
    assert topology.delivered_ratio("h1", "h2") == pytest.approx(0.9)
    assert topology.delivered_ratio("h2", "h1") == pytest.approx(0.99)


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ([("h1", "x1")], "'x1' is no host"),
        ([("h1", "s1"), ("h1", "s2")], "h1 is in 2 links"),
        ([("s1", "s2"), ("s2", "s3"), ("s3", "s1")], "closes a loop"),
        ([("h251", "s1")], "'h251' is no host"),
    ],
)
def test_links_that_make_no_network_are_refused(ends: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(SuiteError, match=said):
        join([Link(ends=each, shape={}) for each in ends])


def test_hosts_keep_their_numbers_in_their_addresses() -> None:
    topology = join([Link(ends=("h7", "s1"), shape={}), Link(ends=("h10", "s1"), shape={})])
    assert topology.hosts == ("h7", "h10")
    assert topology.addresses_of("h10") == ["10.0.0.10"]


def test_the_emulator_is_told_interfaces_and_switches_and_hosts_have_addresses_of_their_own() -> None:
    topology = read_topology("single,2", {"rate": "10Mbit", "queue": 7}, addresses=3)
    assert topology.link_config(seed=5) == {
        "seed": 5,
        "devices": ["h1-eth0", "h2-eth0"],
        "switches": ["s1"],
        "links": [
            {"ends": ["h1-eth0", "s1"], "rate": "10Mbit", "queue": 7},
            {"ends": ["h2-eth0", "s1"], "rate": "10Mbit", "queue": 7},
        ],
    }
    assert topology.addresses_of("h2") == ["10.0.0.2", "10.1.0.2", "10.2.0.2"]


@pytest.mark.parametrize(
    ("words", "shape", "said"),
    [
        ("ring,3", {}, "'ring,3' is no topology"),
        ("single", {}, "write 'single,3'"),
        ("single,0", {}, "is no topology"),
        ("dumbbell,126", {}, "252 hosts"),
        (f"single,{'9' * 5000}", {}, "is no topology"),
        ("single,3", {"bandwidth": "1Mbit"}, "bandwidth: unknown key"),
        ("single,3", {"rate": "100MB"}, "'100MB' is not a rate"),
        ("single,3", {"delay": "1"}, "'1' is not a duration"),
        ("single,3", {"delay": "1ms", "jitter": "2ms"}, "more than the delay"),
        ("single,3", {"loss": "101%"}, "more than 100%"),
        ("single,3", {"queue": 5}, "add a rate"),
        ("single,3", {"rate": "1Mbit", "queue": 0}, "write 1 or more"),
        ("single,3", {"order": "free"}, "without jitter"),
    ],
)
def test_what_is_no_topology_is_refused(words: str, shape: dict[str, str], said: str) -> None:
    with pytest.raises(SuiteError, match=said):
        read_topology(words, shape)


def test_too_many_hosts_are_refused_before_any_is_made() -> None:
    """A network of a thousand million hosts took all memory."""
    tracemalloc.start()
    try:
        with pytest.raises(SuiteError, match="200000 hosts"):
            read_topology("dumbbell,100000", {})
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
