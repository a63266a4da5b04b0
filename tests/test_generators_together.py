"""Generators whose connections take differently long to open measure one window all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from laboratory import needs_networks, run_trial

# The second generator takes four seconds to open its connections. Windows of two seconds, each
# opened when a generator's own connections are up, have nothing in common.
SUITE = """
name = "together"
question = "Do they begin together?"
[server]
protocol = "echo"
[load]
protocol = "echo"
connections = 2
think = "20ms"
duration = "2s"
threads = 1
[[role]]
name = "slow"
kind = "load"
protocol = "echo"
target = "role:server"
connections = 200
connect_rate = 50
think = "20ms"
duration = "2s"
threads = 1
"""
NETWORK = """
[network]
topology = "single,3"
[place]
server = "h1"
load = "h2"
"""
ONCE = "[run]\nrepeat = 1\nseed = 1\n"
WINDOW_S = 2.0


@pytest.mark.parametrize("network", ["", pytest.param(NETWORK, marks=needs_networks)], ids=["local", "network"])
def test_the_windows_open_together_however_long_each_takes_to_connect(tmp_path: Path, network: str) -> None:
    text = SUITE.replace('name = "slow"', 'name = "slow"\non = "h3"') if network else SUITE
    trial = run_trial(tmp_path, text + network + ONCE).trial
    generators = trial["load"]["generators"]
    assert [each["name"] for each in generators] == ["load", "slow"]
    # They are one instant, unless a generator was late to read it.
    opened = [each["summary"]["window"]["opened_unix_s"] for each in generators]
    assert max(opened) - min(opened) < WINDOW_S / 2
    assert trial["hosts"]["start_spread_s"] < WINDOW_S
    assert trial["figures"]["connections.established"] == 202
    assert all("--await-start" in each["command"] for each in generators)


def test_with_a_barrier_of_false_each_begins_when_its_own_connections_are_up(tmp_path: Path) -> None:
    text = SUITE.replace("connect_rate = 50\n", "").replace("connections = 2\n", "connections = 2\nbarrier = false\n")
    generators = run_trial(tmp_path, text + ONCE).trial["load"]["generators"]
    assert len(generators) == 2
    assert not any("--await-start" in each["command"] for each in generators)


def test_http_generators_that_connect_at_a_rate_begin_apart_and_the_trial_says_so(tmp_path: Path) -> None:
    """A server ends connections that ask for nothing for long, so none of them is held back."""
    text = SUITE.replace('protocol = "echo"\n', 'protocol = "http"\n').replace("connections = 200", "connections = 50")
    text = text.replace('protocol = "http"\n[load]', 'protocol = "http"\nsynthetic = true\n[load]')
    text = text.replace("think =", 'path = "/bytes/10"\nthink =').replace('duration = "2s"', 'duration = "4s"')
    text = text.replace("connections = 2\n", "connections = 2\nconnect_rate = 50\n")
    trial = run_trial(tmp_path, text + ONCE).trial
    assert not any("--await-start" in each["command"] for each in trial["load"]["generators"])
    # One has its last connection a second after the other.
    assert trial["hosts"]["start_spread_s"] > WINDOW_S / 5
    assert "windows_apart" in [each["code"] for each in trial["warnings"]]
    [told] = [each for each in trial["load"]["summary"]["warnings"] if each["code"] == "windows_apart"]
    assert "measured together for" in told["message"]
