"""A network in one line: a round trip and a loss of a whole path become those of its links."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from plimsoll_lab.cli.suite_arguments import add_suite_arguments, read_plan
from plimsoll_lab.experiment.plan import Request, reproducing_command
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.spec import Plan

HEAD = """
name = "it"
question = "Well?"
[server]
protocol = "echo"
[load]
protocol = "echo"
duration = "1s"
connections = 10
"""


def asked(folder: Path, text: str, *words: str) -> tuple[Plan, Request]:
    """What a command line plans of a suite with these further tables."""
    file = folder / "it.toml"
    file.write_text(HEAD + text)
    return read(str(file), *words)


def read(*words: str) -> tuple[Plan, Request]:
    parser = argparse.ArgumentParser()
    add_suite_arguments(parser)
    return read_plan(parser.parse_args(words))


@pytest.mark.parametrize(
    ("network", "ends", "links"),
    [
        ("", ("h2", "h1"), 2),
        ('[network]\ntopology = "single,3"\ndelay = "1ms"\nloss = "3%"\nrate = "10Mbit"\n', ("h2", "h1"), 2),
        ('[network]\ntopology = "linear,4"\n[place]\nserver = "h4"\nload = "h1"\n', ("h1", "h4"), 5),
        ('[network]\ntopology = "dumbbell,1"\n', ("h2", "h1"), 3),
    ],
)
def test_the_path_has_the_round_trip_and_the_loss_that_were_asked_for(
    tmp_path: Path, network: str, ends: tuple[str, str], links: int
) -> None:
    plan, _ = asked(tmp_path, network, "--rtt", "50ms", "--loss", "1%")
    topology = plan.points[0].network
    assert topology is not None
    assert len(topology.path(*ends)) == links
    assert topology.round_trip_s(*ends) == pytest.approx(0.05)
    for start, end in (ends, ends[::-1]):
        assert topology.arriving(start, end) == pytest.approx(0.99)


def test_either_is_enough_and_leaves_the_other_as_the_suite_has_it(tmp_path: Path) -> None:
    network = '[network]\ntopology = "single,2"\ndelay = "1ms"\nloss = "10%"\n'
    slow = asked(tmp_path, network, "--rtt", "8ms")[0].points[0].network
    lossy = asked(tmp_path, network, "--loss", "19%")[0].points[0].network
    assert slow is not None
    assert lossy is not None
    assert (slow.round_trip_s("h2", "h1"), slow.arriving("h2", "h1")) == pytest.approx((0.008, 0.81))
    assert (lossy.round_trip_s("h2", "h1"), lossy.arriving("h2", "h1")) == pytest.approx((0.004, 0.81))


def test_a_suite_may_vary_the_round_trip_of_its_path(tmp_path: Path) -> None:
    plan, _ = asked(tmp_path, '[matrix]\n"network.rtt" = ["10ms", "100ms"]\n')
    found = [point.network.round_trip_s("h2", "h1") for point in plan.points if point.network is not None]
    assert found == pytest.approx([0.01, 0.1])


def test_the_command_that_makes_the_run_again_says_it_in_the_same_words(tmp_path: Path) -> None:
    plan, request = asked(tmp_path, "", "--rtt", "50ms", "--loss", "1%", "--repeat", "3")
    command = reproducing_command(request, plan.seed)
    assert "--rtt 50ms --loss 1% --set run.repeat=3 --seed " in command
    again, _ = read(*command.split()[3:])
    assert (again.points, again.trials) == (plan.points, plan.trials)


LINKS = '[[network.link]]\nends = ["h1", "s1"]\n[[network.link]]\nends = ["h2", "s1"]\n'
UNEQUAL = '[network]\ntopology = "linear,3"\n[place]\nserver = "h1"\nload = ["h2", "h3"]\n'
REFUSALS = {
    "no unit": ("", ("--rtt", "50"), "[network] rtt: '50' is not a duration: write a number and one of us, ms, s"),
    "nothing": ("", ("--rtt", "0ms"), "[network] rtt: it has to be above zero"),
    "no number": ("", ("--loss", "some"), "[network] path_loss: 'some' is not a number with a unit"),
    "everything": ("", ("--loss", "100%"), "[network] path_loss: no packet would arrive"),
    "less than nothing": ("", ("--rtt=-5ms",), "[network] rtt: '-5ms' is not a number with a unit"),
    "links of their own": (LINKS, ("--rtt", "50ms"), "[network] rtt: of a topology whose links are alike"),
    "paths that differ": (UNEQUAL, ("--rtt", "9ms"), "h2 to h1 crosses 3, h3 to h1 crosses 4"),
    "an axis": ('[matrix]\n"network.delay" = ["1ms", "2ms"]\n', ("--rtt", "50ms"), "--only network.delay=VALUE"),
    "both in the file": ('[network]\nrtt = "9ms"\ndelay = "1ms"\n', (), "delay is each link's and says the same"),
    "a bare number in the file": ("[network]\nrtt = 9\n", (), "[network] rtt: 9 is not a text with a unit"),
    "nobody talks": ('[place]\nserver = "h1"\nload = "h1"\n', ("--rtt", "9ms"), "no two parts talk over the network"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_path_that_cannot_be_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    text, words, said = REFUSALS[name]
    with pytest.raises(SuiteError) as refusal:
        asked(tmp_path, text, *words)
    assert said in str(refusal.value)
    assert str(refusal.value).startswith(str(tmp_path / "it.toml"))
    assert "\n" not in str(refusal.value)
