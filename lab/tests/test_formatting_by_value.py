"""Numbers, settings and stops as people read them, where they turn into others."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from made_records import point_summary

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.summary import verdict_record
from plimsoll_lab.stats.best import RankedContender
from plimsoll_lab.stats.verdict import Verdict
from plimsoll_lab.store.records import Outcome
from plimsoll_lab.store.summary_record import StopRecord


def test_a_part_has_one_decimal_or_as_many_as_are_asked_for() -> None:
    assert [formatting.percent(0.0723), formatting.percent(0.0723, 0), formatting.percent(-1e-9)] == [
        "7.2 %", "7 %", "0.0 %",
    ]  # fmt: skip


def test_a_setting_is_a_word() -> None:
    assert [formatting.value(each) for each in (5, "epoll", ("a", "b"), ["a", 2], True)] == [
        "5", "epoll", "a b", "a 2", "True",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"load.each": 1}, "1 each"),
        ({"load.each": 5000}, "5,000 each"),
        ({"load.factor": 1.5}, "factor 1.5"),
        ({"load.connections": 1.5}, "1.5 connections"),
        ({"server.command": "nginx"}, "nginx"),
        ({"server.model": "epoll", "load.connections": 1, "load.tls": False}, "model epoll, 1 connection, no tls"),
        ({"role.big_relay.open_files": 1}, "1 big relay open file"),
        ({"role.big_relay.active": True}, "big_relay"),
    ],
)
def test_one_of_a_setting_is_said_of_one(values: dict[str, object], said: str) -> None:
    assert formatting.setting(values) == said


@pytest.mark.parametrize(
    ("ratio", "said"),
    [(1.000001, "1.000001x"), (0.999999, "0.999999x"), (1.0000001, "1.000x"), (1.9996, "2.000x"), (2.004, "2.00x")],
)
def test_a_ratio_near_one_has_as_many_decimals_as_tell_it_from_one(ratio: float, said: str) -> None:
    assert formatting.ratio(ratio, None) == said


@pytest.mark.parametrize(("ratio", "said"), [(1.000001, "+0.0001 %"), (1.0000001, "+0.0 %"), (0.99999, "-0.001 %")])
def test_a_change_of_less_than_a_tenth_of_a_percent_is_one(ratio: float, said: str) -> None:
    assert formatting.change(ratio) == said


def stop(**changed: object) -> StopRecord:
    base = StopRecord(contender="poll", at={}, outcome="hard_limit", reason="no descriptors", held=None)
    return base.model_copy(update=changed)


def test_how_a_contender_stopped_is_said_with_how_often() -> None:
    assert formatting.stop(stop()) == "hard limit"
    assert formatting.stop(stop(trials=(6, 12))) == "hard limit in 6 of 12 trials"
    assert formatting.stop(stop(outcome="failed", trials=(1000, 2000))) == "failed in 1,000 of 2,000 trials"
    assert formatting.how_often(stop()) == ""


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [({"failed": 6, "ok": 4}, " in 6 of 10 trials"), ({"failed": 10}, ""), ({}, "")],
)
def test_a_point_of_which_some_trials_ended_otherwise_says_how_many_did_not(
    outcomes: Mapping[Outcome, int], said: str
) -> None:
    point = point_summary({"contender": "poll"}, outcome="failed", reason="it ended")
    assert formatting.in_part(point.model_copy(update={"n": 10, "outcomes": outcomes})) == said
    assert formatting.in_part(point.model_copy(update={"outcome": None, "n": 0})) == ""


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (0.5, "count", "0.5"),
        (1000.5, "count", "1,000.5"),
        (-3.0, "count", "-3"),
        (0.0, "count", "0"),
        (0.25, "count", "0.250"),
        (0.0, "ratio", "0 %"),
        (1.0, "ratio", "100 %"),
        (0.0, "per_s", "0/s"),
        (2.0**20, "bytes", "1.00 MiB"),
        (2.0**30, "bytes", "1.00 GiB"),
        (1e9, "bits_per_s", "1.00 Gbit/s"),
        (999.9e-6, "s", "1,000 us"),
    ],
)
def test_a_figure_at_the_edge_of_its_unit(value: float, unit: str, said: str) -> None:
    assert formatting.number(value, unit) == said


@pytest.mark.parametrize(("seconds", "said"), [(0.5, "0 s"), (0.6, "1 s"), (59.5, "1 min 0 s"), (60.4, "1 min 0 s")])
def test_a_time_is_in_whole_seconds(seconds: float, said: str) -> None:
    assert formatting.elapsed(seconds) == said
    assert formatting.duration(seconds) == f"about {said}"


def test_a_place_in_a_verdict_without_an_upper_bound_has_none() -> None:
    verdict = Verdict(
        figure="x", better="lower", at={}, contenders=["a", "c", "d"], best=["a"], best_within=None,
        others=[
            RankedContender(name="c", ratio=1.5, at_least=1.418, at_most=1.6),
            RankedContender(name="d", ratio=4.0, at_least=3.329, at_most=math.inf),
        ],
        unranked={}, winner="a", runner_up="c", ratio=0.99, ratio_ci95=None, p_adjusted=1.0, noise_floor=None, blocks=9,
        call="better", level=[], reason="",
    )  # fmt: skip
    found = verdict_record(verdict).others
    assert [(each.name, each.ratio, each.at_least, each.ci) for each in found] == [
        ("c", 1.5, 1.418, (1.418, 1.6)),
        ("d", 4.0, 3.329, (3.329, None)),
    ]
    assert [each.at_most for each in found] == [1.6, None]


@pytest.mark.parametrize(
    ("value", "unit", "down", "up"),
    [
        (250_300.0, "us", "250 ms", "251 ms"),
        (999.6, "per_s", "999/s", "1,000/s"),
        (39_870.0, "per_s", "39,800/s", "39,900/s"),
        (20_040.0, "us", "20.0 ms", "20.1 ms"),
        (-0.0123, "number", "-0.0123", "-0.0123"),
        (-1.2345, "number", "-1.24", "-1.23"),
        (0.1 + 0.2, "number", "0.300", "0.300"),
        (0.0, "us", "0 us", "0 us"),
    ],
)
def test_a_bound_is_rounded_to_the_side_on_which_it_holds(value: float, unit: str, down: str, up: str) -> None:
    assert (formatting.number(value, unit, "down"), formatting.number(value, unit, "up")) == (down, up)


def test_an_interval_lies_within_what_is_told() -> None:
    """Its end was on the other side of a limit that it crosses."""
    assert formatting.interval((230_000.0, 250_300.0), "us") == "230 ms to 251 ms"
    assert formatting.interval((999.6, None), "per_s") == "999/s or more"


def test_a_bound_in_percent_is_rounded_to_the_side_on_which_it_holds() -> None:
    assert [formatting.number(0.12345, "ratio", each) for each in ("nearest", "down", "up")] == [
        "12.3 %", "12.3 %", "12.4 %",
    ]  # fmt: skip
    assert formatting.part_at_least(0.9996) == 0.999


def test_one_trial_of_ten_is_a_part_too() -> None:
    point = point_summary({}, 0, "failed", "it fell over")
    assert formatting.in_part(point.model_copy(update={"n": 10, "outcomes": {"failed": 1}})) == " in 1 of 10 trials"
