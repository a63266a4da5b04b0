"""The answer's sentences, for every kind of finding."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from made_records import figure_summary, point_summary

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.answer import Evidence, answer, span
from plimsoll_lab.analysis.summary import verdict_record
from plimsoll_lab.stats.best import FigureComparison, Value
from plimsoll_lab.stats.scores import score
from plimsoll_lab.stats.verdict import rank, verdicts
from plimsoll_lab.store.records import Outcome
from plimsoll_lab.store.summary_record import PointSummary, StopRecord
from plimsoll_lab.suite.figures import FIGURES
from plimsoll_lab.suite.settings import Settings

CPU, RATE, P99 = "server.cpu_us_per_request", "completed_rate", "response_time_us.p99"
AT: Settings = {"load.connections": 3000}


def comparison(
    levels: Mapping[str, float],
    *,
    figure: str = CPU,
    at: Mapping[str, object] = AT,
    noise: float = 0.01,
    blocks: int = 9,
) -> FigureComparison:
    """Contenders with noise around a level."""
    draw = random.Random(4)
    contenders: dict[str, Mapping[int, Value]] = {
        name: {block: level * math.exp(draw.gauss(0, noise)) for block in range(blocks)}
        for name, level in levels.items()
    }
    better = next(each.better for each in FIGURES if each.name == figure)
    return FigureComparison(figure=figure, better=better, at=at, contenders=contenders)


def evidence(
    *family: FigureComparison, stops: Sequence[StopRecord] = (), points: Sequence[PointSummary] = ()
) -> Evidence:
    rankings = rank(family, seed=1)
    return Evidence(
        verdicts=[verdict_record(each) for each in verdicts(rankings, margin=0.05, seed=1)],
        scores=score(rankings, margin=0.05),
        points=points,
        figures={each.name: each for each in FIGURES},
        stops=stops,
        margin=0.05,
    )


def stop(
    contender: str, outcome: Outcome = "hard_limit", held: int | None = None, reason: str = "it broke"
) -> StopRecord:
    return StopRecord(contender=contender, at=AT, outcome=outcome, reason=reason, held=held)


def test_seven_contenders_who_is_best_who_is_worse_and_who_stopped() -> None:
    seven = {"threads": 20.0, "fork": 46.0, "poll": 36.0, "epoll": 13.0, "epoll-et": 13.1, "uring": 13.05}
    first, stopped = answer(evidence(comparison(seven, noise=0.004), stops=[stop("select", held=2031)]))
    assert re.fullmatch(
        r"At 3,000 connections (epoll|uring|epoll-et), (epoll|uring|epoll-et) and (epoll|uring|epoll-et) use 13\.\d to "
        r"13\.\d us of CPU per request and are equivalent \(they differ by at most [\d.]+ %\); threads at least 1\.5\d "
        r"times as much, poll 2\.7\d times and fork 3\.\d\d times\.",
        first,
    )
    assert stopped == "select accepts at most 2,031 connections."


def test_two_contenders_and_a_rate() -> None:
    [told] = answer(evidence(comparison({"old": 10_000.0, "new": 12_500.0}, figure=RATE)))
    assert re.fullmatch(r"At 3,000 connections new completes 12,[45]\d\d/s; old at most 8\d % of that\.", told)


def test_two_that_tie_are_said_to_differ_by_at_most() -> None:
    [noisy] = answer(evidence(comparison({"a": 100.0, "b": 101.0}, noise=0.3)))
    assert re.search(r"(a and b|b and a) use", noisy)
    assert "cannot be distinguished: they differ by at most" in noisy
    [wild] = answer(evidence(comparison({"a": 100.0, "b": 101.0}, noise=1.5)))
    assert re.search(r"cannot be distinguished: one may be up to [\d.]+ times another\.$", wild)
    [quiet] = answer(evidence(comparison({"a": 100.0, "b": 100.2}, noise=0.004)))
    assert "are equivalent (they differ by at most" in quiet


def test_the_first_figure_that_separates_is_told_and_then_one_that_contradicts_it() -> None:
    told = answer(
        evidence(
            comparison({"a": 1000.0, "b": 1001.0, "c": 999.0}, figure=RATE, noise=0.02),
            comparison({"a": 10.0, "b": 20.0, "c": 40.0}),
            comparison({"a": 900.0, "b": 300.0, "c": 301.0}, figure=P99),
        )
    )
    found = r"At 3,000 connections a uses (9.9\d|10.0) us of CPU per request; b at least 1.9\d times"
    assert re.match(found, told[0])
    assert re.match(r"(b and c|c and b) answer 99 % of requests within (29|30)\d to 30\d us", told[1])
    assert told[1].endswith("a at least 2.97 times as long.")


def test_another_order_under_another_load_is_told() -> None:
    few = comparison({"a": 20.0, "b": 10.0}, at={"load.connections": 100})
    many = comparison({"a": 10.0, "b": 20.0})
    told = answer(evidence(few, many))
    assert told[0].startswith("At 3,000 connections a uses")
    assert told[1].startswith("At 100 connections b uses")


def test_the_headline_is_of_the_heaviest_setting_that_any_figure_was_compared_at() -> None:
    """A figure that only the lighter setting tells comes last, and the headline was of that
    setting.
    """
    light: Settings = {"load.connections": 100}
    rates = [comparison({"a": 1000.0, "b": 2000.0}, figure=RATE, at=at) for at in (light, AT)]
    tail = comparison({"a": 100.0, "b": 300.0}, figure=P99, at=light)
    untold = replace(tail, at=AT, contenders={}, absent=("a", "b"))
    told = answer(evidence(*rates, tail, untold))
    assert told[0].startswith("At 3,000 connections b completes 2,000/s"), told
    short = [comparison({"a": 1000.0, "b": 2000.0}, figure=RATE, at=at, blocks=4) for at in (light, AT)]
    told = answer(evidence(*short, replace(comparison({"a": 1.0, "b": 3.0}, figure=P99, at=light, blocks=4)), untold))
    assert told[0].startswith("At 3,000 connections a and b complete"), told


def test_the_heaviest_setting_is_that_of_the_most_connections_in_whichever_order() -> None:
    light: Settings = {"load.connections": "1k"}
    told = answer(evidence(comparison({"a": 10.0, "b": 20.0}), comparison({"a": 20.0, "b": 10.0}, at=light)))
    assert told[0].startswith("At 3,000 connections a uses")


def test_no_figure_that_separates() -> None:
    alike = {"a": 10.0, "b": 10.01}
    told = answer(evidence(comparison(alike, noise=0.1), comparison(alike, noise=0.1, figure=P99)))
    assert len(told) == 2
    assert told[1] == "No difference is shown in response time, p99 either."


def test_one_contender_alone_has_figures_and_no_rivals() -> None:
    figures = {name: figure_summary(value) for name, value in ((RATE, 24_000.0), (P99, 3_100.0), (CPU, 13.0))}
    point = point_summary(AT).model_copy(update={"figures": figures})
    told = answer(evidence(points=[point]))
    assert told[0].startswith("At 3,000 connections the server completes 24,000/s, answers 99 % of requests within ")
    assert told[0].endswith("3.10 ms and uses 13.0 us of CPU per request.")
    partly = point.model_copy(update={"valid_n": 6})
    told = answer(evidence(points=[partly.model_copy(update={"figures": {RATE: figures[RATE], P99: figures[P99]}})]))
    assert told[0] == (
        "At 3,000 connections the server completes 24,000/s in 1 of 6 trials and answers 99 % of requests within "
        "3.10 ms in 1 of 6 trials."
    )
    one_left = answer(evidence(comparison({"epoll": 13.0}, noise=0), stops=[stop("select", held=1021)]))
    assert one_left[0] == "At 3,000 connections epoll alone has a valid result: it uses 13.0 us of CPU per request."
    assert one_left[1] == "select accepts at most 1,021 connections."


def test_nothing_is_the_lowest_of_contenders_that_could_not_be_compared() -> None:
    levels = {'it\'s "one"': 4.0, "two \u2014 far worse": 8.0}
    figure = "connections.never_established"
    told = answer(evidence(comparison(levels, figure=figure, noise=0, blocks=1)))
    assert told[0] == (
        'At 3,000 connections it\'s "one" and two \u2014 far worse have connections never established of 4 to 8 '
        "in the median."
    )
    assert told[1] == "They could not be compared: 1 valid block, at least 6 are needed."
    [alone] = answer(evidence(comparison({"one": 4.0}, figure=figure, noise=0)))
    assert alone == "At 3,000 connections one alone has a valid result: it has connections never established of 4."


def test_too_few_blocks_are_said_and_no_winner_is() -> None:
    told = answer(evidence(comparison({"a": 10.0, "b": 90.0}, blocks=2)))
    assert re.match(r"At 3,000 connections a and b use \S+ to \S+ us of CPU per request in the median", told[0])
    assert told[1] == "They could not be compared: 2 valid blocks, at least 6 are needed."


def test_one_that_could_be_compared_beside_one_with_too_few_blocks_is_not_called_the_only_result() -> None:
    asked = comparison({"a": 10.0, "b": 20.0})
    few = {block: value for block, value in asked.contenders["b"].items() if block < 4}
    told = answer(evidence(replace(asked, contenders={**asked.contenders, "b": few})))
    assert told[0].startswith("At 3,000 connections a and b use ")
    assert told[1] == "They could not be compared: 4 valid blocks, at least 6 are needed."


def test_no_result_says_why() -> None:
    nothing = point_summary(AT, outcome="failed", reason="the server ended")
    assert answer(evidence(points=[nothing])) == ["There is no valid result: the server ended."]
    empty = FigureComparison(figure=CPU, better="lower", at=AT, contenders={}, absent=("a", "b"))
    told = answer(evidence(empty, points=[nothing], stops=[stop("a", "failed", reason="the server ended")]))
    assert told == [
        "There is no valid result.",
        "a fails at 3,000 connections: the server ended.",
    ]
    both = [stop(name, "failed", reason="the server ended") for name in ("a", "b")]
    told = answer(evidence(empty, points=[nothing], stops=both))
    assert told[1:] == ["a and b fail at 3,000 connections: the server ended."], "a cause is told once"


def test_a_bound_is_rounded_to_the_side_on_which_it_holds() -> None:
    told = answer(evidence(comparison({"a": 100.0, "b": 106.0}, noise=0.001)))
    assert "b at least 1.05 times as much" in told[0]


@pytest.mark.parametrize(
    ("values", "unit", "text"),
    [
        ((13.1, 14.2), "us", "13.1 to 14.2 us"),
        ((900, 1100), "us", "900 us to 1.10 ms"),
        ((24_000, 24_400), "per_s", "24,000 to 24,400/s"),
        ((7.0, 7.0), "us", "7.00 us"),
        ((2**20, 2**21), "bytes", "1.00 to 2.00 MiB"),
    ],
)
def test_a_span_has_its_unit_once(values: tuple[float, float], unit: str, text: str) -> None:
    assert span(values, unit) == text


def test_a_rate_that_the_generator_limited_is_called_a_lower_bound() -> None:
    asked = comparison({"a": 1000.0, "b": 2000.0}, figure=RATE)
    limited = {block: (value, math.inf) for block, value in asked.contenders["b"].items() if isinstance(value, float)}
    [told] = answer(evidence(replace(asked, contenders={**asked.contenders, "b": limited})))
    assert re.match(
        r"At 3,000 connections b completes at least (1,99\d|2,0\d\d|2,000)/s; a at most 5\d % of that", told
    )


@pytest.mark.parametrize(
    ("ratio", "least", "apart"),
    [(1.0003, "1.0003", "0.1 %"), (1.002, "1.002", "0.2 %"),
     (1.3961, "1.39", "39.7 %"), (1.2456, "1.24", "24.6 %"), (2.0, "2.00", "2 times"),
     (22.39, "22.3", "22.4 times"), (126.706, "126", "127 times"), (1539.65, "1,539", "1,540 times")],
)  # fmt: skip
def test_tables_and_sentences_round_a_bound_alike_and_to_its_side(ratio: float, least: str, apart: str) -> None:
    assert formatting.at_least(ratio) == least
    assert formatting.at_most_apart(ratio) == apart


@pytest.mark.parametrize(
    ("ratio", "share"),
    [(1.0003, "99.98 %"), (1.01, "99.1 %"), (1.06, "95 %"), (1.41, "71 %"), (2.0, "50 %"), (1000.0, "1 %")],
)
def test_what_is_left_is_rounded_up_and_never_all(ratio: float, share: str) -> None:
    assert formatting.share_at_most(ratio) == share
