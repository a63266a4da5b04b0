"""Numbers and settings as people read them: their rounding, and where one unit ends."""

from __future__ import annotations

import math

import pytest
from made_records import point_summary

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.summary import verdict_record
from plimsoll_lab.stats.best import RankedContender
from plimsoll_lab.stats.reasons import significant
from plimsoll_lab.stats.verdict import Verdict
from plimsoll_lab.store.run_record import NOT_TOLD


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "0"),
        (1, "1.00"),
        (1.234, "1.23"),
        (12.345, "12.3"),
        (123.45, "123"),
        (1234.5, "1,230"),
        (1_234_567, "1,230,000"),
        (0.0012345, "0.00123"),
        # Rounding makes one more digit before the point, so that one less is behind it.
        (9.999, "10.0"),
        (99.96, "100"),
        (999.9, "1,000"),
        (0.09999, "0.100"),
        (-9.999, "-10.0"),
        (-0.5, "-0.500"),
    ],
)
def test_a_number_has_three_figures(value: float, said: str) -> None:
    assert significant(value) == said


@pytest.mark.parametrize(
    ("value", "unit", "said"),
    [
        (None, "us", "-"),
        (math.nan, "us", "-"),
        (0.5, "us", "0.500 us"),
        (999.0, "us", "999 us"),
        (1000.0, "us", "1.00 ms"),
        (999_000.0, "us", "999 ms"),
        (1e6, "us", "1.00 s"),
        (1.23e8, "us", "123 s"),
        (-2000.0, "us", "-2.00 ms"),
        (0.0, "us", "0 us"),
        (1e-9, "s", "0.00100 us"),
        (1e-6, "s", "1.00 us"),
        (0.0005, "s", "500 us"),
        (0.001, "s", "1.00 ms"),
        (1.0, "s", "1.00 s"),
        (1023.0, "bytes", "1,020 B"),
        (1024.0, "bytes", "1.00 KiB"),
        (1536.0 * 1024, "bytes", "1.50 MiB"),
        (2.0**31, "bytes", "2.00 GiB"),
        (999.0, "bits_per_s", "999 bit/s"),
        (1e3, "bits_per_s", "1.00 kbit/s"),
        (1e6, "bits_per_s", "1.00 Mbit/s"),
        (2.5e9, "bits_per_s", "2.50 Gbit/s"),
        (0.1234, "ratio", "12.3 %"),
        (39_812.0, "per_s", "39,800/s"),
        (1.5, "cores", "1.50 cores"),
        (2.0, "s2", "2.00 s\u00b2"),
        # A count is whole; the median of two that differ, and the mean, may lie between.
        (7.0, "count", "7"),
        (99.0, "count", "99"),
        (1234.0, "count", "1,234"),
        (3.5, "count", "3.5"),
        (65_525.0, "count", "65,525"),
        (65_524.25, "count", "65,500"),
        (4.0, "number", "4.00"),
    ],
)
def test_a_figure_is_said_in_the_largest_unit_that_is_not_above_it(value: float | None, unit: str, said: str) -> None:
    assert formatting.number(value, unit) == said


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((1000.0, 2000.0), "1.00 ms to 2.00 ms"),
        ((None, 2000.0), "2.00 ms or less"),
        ((1000.0, None), "1.00 ms or more"),
        ((None, None), "not known"),
        ((0.0, None), "0 us or more"),
    ],
)
def test_an_interval_may_have_one_end(ends: tuple[float | None, float | None], said: str) -> None:
    assert formatting.interval(ends, "us") == said


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "every setting"),
        ({"load.connections": 2000, "load.size": "64B"}, "2,000 connections, size 64B"),
        ({"load.connections": 1}, "1 connection"),
        ({"load.connections": 0}, "0 connections"),
        ({"load.connections": "1k"}, "1k connections"),
        ({"load.connections": NOT_TOLD}, f"connections {NOT_TOLD}"),
        ({"server.addresses": 1}, "1 address"),
        ({"server.addresses": 3}, "3 addresses"),
        ({"server.processes": 1}, "1 process"),
        # "20,000 rate" is no English.
        ({"load.rate": 20_000}, "rate 20,000"),
        ({"load.rate": 1}, "rate 1"),
        ({"load.each": 5}, "5 each"),
        ({"load.think_time": "5ms"}, "think time 5ms"),
        ({"load.tls": True}, "tls"),
        ({"load.tls": False}, "no tls"),
        ({"place.load": ["h1", "h2"]}, "generators on h1 h2"),
        ({"point": "far away"}, "far away"),
        ({"contender": 5}, "5"),
        ({"server.command": ("nginx", "-g", "daemon off;")}, "nginx -g daemon off;"),
        ({"role.saturator.active": False}, "no saturator"),
        ({"role.saturator.active": True}, "saturator"),
        ({"role.saturator.connections": 10}, "10 saturator connections"),
        ({"role.saturator.open_files": "1k"}, "saturator open files 1k"),
    ],
)
def test_a_setting_is_said_in_words(values: dict[str, object], said: str) -> None:
    assert formatting.setting(values) == said


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        ("server.model", "epoll", "epoll"),
        ("server.command", ["nginx", "-g"], "nginx -g"),
        ("server.queue", 100, "queue 100"),
        ("server.queue", 2000, "queue 2,000"),
        ("load.factor", 1.5, "factor 1.5"),
        ("role.saturator.active", True, "saturator"),
        ("role.saturator.active", False, "no saturator"),
    ],
)
def test_a_contender_is_called_by_its_value_and_a_number_by_what_it_sets(path: str, given: object, said: str) -> None:
    assert formatting.contender({path: given, "load.size": 9}, path) == said


def test_facts_are_rounded_where_that_hides_no_difference() -> None:
    """24,684,092 KiB are 23.54 GiB."""
    assert formatting.facts(["24684092 kB", "8000000 kB"]) == ("23.5 GiB", "7.63 GiB")
    assert formatting.facts(["24684092 kB", "24684093 kB"]) == ("24684092 kB", "24684093 kB")
    assert formatting.facts(["24684092 kB", "24684092 kB"]) == ("23.5 GiB", "23.5 GiB")
    assert formatting.facts([{"soft": 1024, "hard": 2}, None, 5]) == ("soft 1024, hard 2", "not recorded", "5")
    assert formatting.facts(["many kB", "12", "-3 kB"]) == ("many kB", "12", "-3 kB")


def test_an_outcome_is_said_in_words() -> None:
    assert formatting.outcome("generator_limited") == "generator limited"
    assert formatting.outcome(None) == "not measured"


@pytest.mark.parametrize(
    ("ratio", "interval", "said"),
    [
        (None, (1.0, 2.0), "-"),
        (0.94, None, "0.940x"),
        (0.94, (0.92, 0.97), "0.940x [0.920, 0.970]"),
        (1.999, (0.5, 2.0), "1.999x [0.500, 2.00]"),
        (123.4, None, "123x"),
        (0.9989, (0.9982, 0.99964), "0.999x [0.998, 0.9996]"),
        (1.00004, (1.0, 1.000000001), "1.00004x [1.000, 1.000]"),
        # Of a server two thousand times as fast it was 0.000x.
        (0.00042, (0.000351, 0.0123), "0.000420x [0.000351, 0.0123]"),
        (0.1, (0.0, 0.09996), "0.100x [0, 0.100]"),
    ],
)
def test_a_ratio_from_two_on_or_below_a_tenth_has_three_figures(
    ratio: float | None, interval: tuple[float, float] | None, said: str
) -> None:
    assert formatting.ratio(ratio, interval) == said


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (1.072, "+7.2 %"),
        (0.9, "-10.0 %"),
        (1.0, "+0.0 %"),
        (0.9999, "-0.01 %"),
        (1 + 1e-9, "+0.0 %"),
        (3.0, "+200.0 %"),
    ],
)
def test_a_change_has_a_sign_and_no_minus_zero(ratio: float, said: str) -> None:
    assert formatting.change(ratio) == said


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (1.399, "1.39"),
        # In floating point 1.15 x 100 is 114.99999999999999.
        (1.15, "1.15"),
        (9.999, "9.99"),
        (10.0, "10.0"),
        (22.39, "22.3"),
        (99.99, "99.9"),
        (100.0, "100"),
        (1234.9, "1,234"),
        (1.0, "1.00"),
        (0.9, "0.90"),
        (1.01, "1.01"),
        (1.0099, "1.009"),
        (1.0005, "1.0005"),
        (1.00001, "1.0000"),
    ],
)
def test_a_lower_bound_is_rounded_down_and_not_to_one(ratio: float, said: str) -> None:
    assert formatting.at_least(ratio) == said


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        # 70.92, 75 and 94.34 of a hundred.
        (1.41, "71 %"),
        (4 / 3, "75 %"),
        (1.06, "95 %"),
        # Less than a twentieth is missing: 95.238, 96.154, 99.900 and 99.990.
        (1.05, "95.3 %"),
        (1.04, "96.2 %"),
        (1.001, "99.91 %"),
        (1.0001, "99.991 %"),
        (1.0000001, "100 %"),
        (1.0, "100 %"),
        (40.0, "3 %"),
    ],
)
def test_what_is_left_is_rounded_up_and_not_to_all(ratio: float, said: str) -> None:
    assert formatting.share_at_most(ratio) == said


def test_bounds_of_a_part_hold_as_they_are_shown() -> None:
    assert [formatting.part_at_least(each) for each in (0.0196, 0.05, -0.0112)] == [0.019, 0.05, -0.012]
    assert [formatting.part_at_most(each) for each in (0.0504, 0.05, -0.0112)] == [0.051, 0.05, -0.011]


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (1.246, "24.6 %"),
        (1.2461, "24.7 %"),
        (1.0, "0 %"),
        (1.9999, "100 %"),
        (2.0, "2 times"),
        (3.31, "3.4 times"),
        (99.91, "100 times"),
        (100.0, "100 times"),
        (100.2, "101 times"),
        (12_344.5, "12,345 times"),
    ],
)
def test_how_far_several_may_differ_is_rounded_up(ratio: float, said: str) -> None:
    assert formatting.at_most_apart(ratio) == said


VERDICT = Verdict(
    figure="x",
    better="lower",
    at={},
    contenders=["a", "b", "c", "d"],
    best=["a", "b"],
    best_within=1.081,
    others=[
        RankedContender(name="c", ratio=1.5, at_least=1.418, at_most=1.6),
        RankedContender(name="d", ratio=4.0, at_least=3.329, at_most=math.inf),
    ],
    unranked={"e": "4 valid blocks", "f": "no valid result", "g": "4 valid blocks"},
    winner="a",
    runner_up="b",
    ratio=0.99,
    ratio_ci95=None,
    p_adjusted=1.0,
    noise_floor=None,
    blocks=9,
    call="not shown",
    level=[],
    reason="",
)


def test_the_columns_of_a_verdict() -> None:
    record = verdict_record(VERDICT)
    assert formatting.best(record) == "a, b (8.1 %)"
    assert formatting.best(record.model_copy(update={"best_within": None})) == "a, b"
    assert formatting.best(record.model_copy(update={"best": ["a"]})) == "a"
    assert formatting.others(record) == "c 1.41, d 3.32"
    assert formatting.unranked(record) == "e, g: 4 valid blocks; f: no valid result"


def test_lists_and_times() -> None:
    assert [formatting.listed(each) for each in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
    assert [formatting.elapsed(each) for each in (0.4, 59.4, 59.6, 60, 125.4, 3725)] == [
        "0 s", "59 s", "1 min 0 s", "1 min 0 s", "2 min 5 s", "62 min 5 s",
    ]  # fmt: skip
    assert formatting.duration(125) == "about 2 min 5 s"


def test_a_median_says_how_many_trials_it_is_of_where_some_have_no_such_figure() -> None:
    point = point_summary({}, response_time_us__p99=54_700.0).model_copy(update={"n": 9, "valid_n": 8})
    assert formatting.median(point, "response_time_us.p99", "us") == "54.7 ms (of 1)"
    assert formatting.median(point, "response_time_us.p50", "us") == "-"
    assert formatting.median(point.model_copy(update={"valid_n": 1}), "response_time_us.p99", "us") == "54.7 ms"
    doubtful = point.model_copy(update={"valid_n": 0, "doubtful": True})
    assert formatting.median(doubtful, "response_time_us.p99", "us") == "54.7 ms?"
