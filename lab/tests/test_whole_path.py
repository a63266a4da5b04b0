"""A network in one line: a round trip and a loss of a whole path become those of its links."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Literal

import pytest
from made_records import run_record, stored_run

from plimsoll_lab.analysis.points import summarise_point
from plimsoll_lab.analysis.run_warnings import doubtful_figures
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.cli.suite_arguments import add_suite_arguments, read_plan
from plimsoll_lab.experiment.plan import RunRequest, reproducing_command
from plimsoll_lab.experiment.run import point_record
from plimsoll_lab.problem import LabError
from plimsoll_lab.report.charts import charts, rows
from plimsoll_lab.report.drawing import draw
from plimsoll_lab.store.network_record import (
    CalibrationRecord,
    PathDeviationRecord,
    PathMeasurementRecord,
    PathRecord,
    PathTargetRecord,
)
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.spec import Plan
from plimsoll_lab.trial.calibration import refuse_far_off, summary_of_times

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


def asked(folder: Path, text: str, *words: str) -> tuple[Plan, RunRequest]:
    """What a command line plans of a suite with these further tables."""
    file = folder / "it.toml"
    file.write_text(HEAD + text)
    return read(str(file), *words)


def read(*words: str) -> tuple[Plan, RunRequest]:
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
        assert topology.delivered_ratio(start, end) == pytest.approx(0.99)


def test_either_is_enough_and_leaves_the_other_as_the_suite_has_it(tmp_path: Path) -> None:
    network = '[network]\ntopology = "single,2"\ndelay = "1ms"\nloss = "10%"\n'
    slow = asked(tmp_path, network, "--rtt", "8ms")[0].points[0].network
    lossy = asked(tmp_path, network, "--loss", "19%")[0].points[0].network
    assert slow is not None
    assert lossy is not None
    assert (slow.round_trip_s("h2", "h1"), slow.delivered_ratio("h2", "h1")) == pytest.approx((0.008, 0.81))
    assert (lossy.round_trip_s("h2", "h1"), lossy.delivered_ratio("h2", "h1")) == pytest.approx((0.004, 0.81))


def test_a_suite_may_vary_the_round_trip_of_its_path(tmp_path: Path) -> None:
    plan, _ = asked(tmp_path, '[matrix]\n"network.rtt" = ["10ms", "100ms"]\n')
    found = [point.network.round_trip_s("h2", "h1") for point in plan.points if point.network is not None]
    assert found == pytest.approx([0.01, 0.1])


def test_the_command_that_makes_the_run_again_says_it_in_the_same_words(tmp_path: Path) -> None:
    plan, request = asked(tmp_path, "", "--rtt", "50ms", "--loss", "1%", "--repeat", "3")
    command = reproducing_command(request, plan.seed)
    assert "--rtt 50ms --loss 1% --repeat 3 --seed " in command
    again, _ = read(*command.split()[3:])
    assert (again.points, again.trials) == (plan.points, plan.trials)


@pytest.mark.parametrize(
    "value", ["true", "5", "1.5", "250ms", '"5"', '"true"', '" a"', "[1, 2]", r'["a\"b", "c\\d"]', "2020-01-01", "[x"]
)
def test_the_command_that_makes_the_run_again_keeps_the_type_of_each_setting(tmp_path: Path, value: str) -> None:
    change = ("--set", f"role.it.key={value}")
    role = '[[role]]\nname = "it"\nkind = "command"\nactive = false\n'
    plan, request = asked(tmp_path, role, *change)
    _, again = read(*shlex.split(reproducing_command(request, plan.seed))[3:])
    before, after = (each.changes["role.it.key"] for each in (request, again))
    assert (after, type(after)) == (before, type(before))


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


def test_a_path_of_one_line_that_is_not_what_was_asked_for_does_not_stop_the_run(tmp_path: Path) -> None:
    plan, _ = asked(tmp_path, "", "--rtt", "50ms")
    refuse_far_off([PATHS_OFF], plan.points)
    with pytest.raises(LabError, match=r"55\.000 ms for 50\.000 ms asked"):
        refuse_far_off([PATHS_OFF], asked(tmp_path, '[network]\ntopology = "single,2"\ndelay = "12ms"\n')[0].points)


def test_charts_mark_a_point_whose_figures_are_doubtful(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "threads"), repeat=2)
    run, summary, trials = folder.read_run(), summarise_run(folder), folder.read_trials()
    first, second = summary.points
    doubted = summary.model_copy(update={"points": [first.model_copy(update={"doubtful": True}), second]})
    for shown, marks in ((summary, 0), (doubted, 1)):
        data = rows(run, shown, trials)
        (chart,) = (each for each in charts(run, shown) if each.name == "completed_rate-contenders")
        assert draw(chart.name, chart.spec, data).count(">?<") == marks
        (row,) = (each for each in data["points"] if each["contender"] == "epoll")
        assert row["doubtful"] == bool(marks)


PATHS_OFF = CalibrationRecord(
    unix_s=0.0,
    points=[0],
    backend="tap",
    large_segments=None,
    priority=None,
    paths=[
        PathRecord(
            start="h2",
            end="h1",
            asked=PathTargetRecord(
                one_way_us=25e3, round_trip_delay_us=50e3, round_trip_us=50e3, goodput_bits_per_s=None
            ),
            measured=PathMeasurementRecord(round_trip_us={"p50": 55e3}, goodput_bits_per_s=None),
            off=PathDeviationRecord(round_trip=0.1, goodput=None),
            within=False,
            attempts=3,
        )
    ],
)


def trial(outcome: Outcome, rate: float) -> TrialRecord:
    return TrialRecord(
        number=1,
        block=1,
        point=0,
        setting={},
        outcome=outcome,
        reason=None if outcome == "ok" else "late",
        warnings=(),
        figures={"completed_rate": rate},
        started_unix_s=0.0,
        elapsed_s=1.0,
        server={},
        load={},
        machine={},
    )


@pytest.mark.parametrize(
    ("words", "outcomes", "paths_off", "doubtful", "median"),
    [
        (("--rtt", "50ms"), ("invalid", "invalid"), False, True, 15.0),
        (("--rtt", "50ms"), ("invalid", "generator_limited"), False, True, 15.0),
        (("--rtt", "50ms"), ("failed", "failed"), False, False, None),
        (("--rtt", "50ms"), ("ok", "ok"), False, False, 15.0),
        (("--rtt", "50ms"), ("ok", "ok"), True, True, 15.0),
        ((), ("invalid", "invalid"), False, False, None),
    ],
)
def test_over_a_network_in_one_line_there_are_figures_and_doubtful_ones_are_marked(
    tmp_path: Path,
    words: tuple[str, ...],
    outcomes: tuple[Outcome, Outcome],
    paths_off: Literal[True, False],
    doubtful: Literal[True, False],
    median: float | None,
) -> None:
    plan, _ = asked(tmp_path, '[network]\ntopology = "single,2"\n', *words)
    trials = [trial(outcome, rate) for outcome, rate in zip(outcomes, (10.0, 20.0), strict=True)]
    found = summarise_point(point_record(plan.points[0]), trials, (), paths_off=paths_off)
    assert found.doubtful == doubtful
    assert (found.figures["completed_rate"].median if found.figures else None) == median
    run = run_record().model_copy(update={"calibrations": [PATHS_OFF] if paths_off else []})
    warnings = doubtful_figures(run, [found])
    assert [each.code for each in warnings] == (["doubtful_figures"] if doubtful else [])
    for each in warnings:
        assert ("55.000 ms" if paths_off else "late") in each.message


@pytest.mark.parametrize(("count", "p99"), [(1, 1.0), (2, 2.0), (99, 99.0), (100, 99.0), (101, 100.0), (200, 198.0)])
def test_the_99th_percentile_of_round_trips_is_that_of_the_nearest_rank(count: int, p99: float) -> None:
    """Of 100 round trips it was the longest."""
    found = summary_of_times([float(each) for each in range(count, 0, -1)])
    assert found["p99"] == p99 * 1e6
    assert (found["count"], found["min"]) == (count, 1e6)
