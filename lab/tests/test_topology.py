"""Mininet's words for a rack, and what they stand for."""

from __future__ import annotations

import pytest

from plimsoll_lab.suite.spec import SuiteError
from plimsoll_lab.suite.topology import read_topology


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
    ("words", "shape", "addresses", "said"),
    [
        ("ring,3", {}, 1, "'ring,3' is no topology"),
        ("single", {}, 1, "write 'single,3'"),
        ("single,0", {}, 1, "is no topology"),
        ("dumbbell,126", {}, 1, "252 hosts"),
        ("single,3", {"bandwidth": "1Mbit"}, 1, "bandwidth: unknown key"),
        ("single,3", {}, 0, "addresses: 0 is out of range"),
    ],
)
def test_what_is_no_topology_is_refused(words: str, shape: dict[str, str], addresses: int, said: str) -> None:
    with pytest.raises(SuiteError, match=said):
        read_topology(words, shape, addresses=addresses)
