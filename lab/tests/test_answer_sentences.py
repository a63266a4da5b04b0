"""The sentences of an answer word by word, from verdicts that are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from made_records import figure_summary, point_summary

from plimsoll_lab.analysis.answer import Evidence, answer, main_verdict
from plimsoll_lab.stats.results import Score
from plimsoll_lab.store.records import Outcome
from plimsoll_lab.store.summary_record import OtherRecord, PointSummary, StopRecord, VerdictRecord
from plimsoll_lab.suite.figures import FIGURES, capacity_figure
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import SearchSettings

CPU, RATE, P99 = "server.cpu_us_per_request", "completed_rate", "response_time_us.p99"
AT: Settings = {"load.connections": 3000}
LIGHT: Settings = {"load.connections": 100}
LIGHTER: Settings = {"load.connections": 10}
FIGURE = {each.name: each for each in FIGURES}


def verdict(
    best: Sequence[str],
    others: Mapping[str, tuple[float, float | None]] | None = None,
    *,
    figure: str = CPU,
    at: Settings = AT,
    within: float | None = 1.0,
    contenders: Sequence[str] | None = None,
    unranked: Mapping[str, str] | None = None,
) -> VerdictRecord:
    """Who is best, and of each other one at least and at most how many times worse it is."""
    told = others or {}
    return VerdictRecord(
        figure=figure, better=FIGURE[figure].better, at=at, winner=None, runner_up=None, ratio=None, ratio_ci95=None,
        contenders=[*best, *told] if contenders is None else contenders, p_adjusted=None, noise_floor=None, blocks=9,
        call="not shown", level=(), reason="", best=best, best_within=within, unranked=unranked or {},
        others=[OtherRecord(name=name, ratio=low, at_least=low, ci=(low, high)) for name, (low, high) in told.items()],
    )  # fmt: skip


def cells(
    medians: Mapping[str, float | None],
    figure: str = CPU,
    at: Settings = AT,
    *,
    censored: Sequence[str] = (),
    most: Sequence[str] = (),
) -> list[Score]:
    return [
        Score(
            at=at, contender=name, figure=figure, n=0 if median is None else 9, median=median, median_ci95=None,
            best=False, margin=None, margin_ci95=None, censored=name in censored, at_most=name in most, level=False,
        )
        for name, median in medians.items()
    ]  # fmt: skip


def told(
    verdicts: Sequence[VerdictRecord],
    scores: Sequence[Score] = (),
    stops: Sequence[StopRecord] = (),
    points: Sequence[PointSummary] = (),
) -> list[str]:
    return answer(Evidence(verdicts=verdicts, scores=scores, points=points, figures=FIGURE, stops=stops, margin=0.05))


CPU_OF = "us of CPU per request"
C_WORSE = "; c at least 1.01 times as much"


@pytest.mark.parametrize(
    ("given", "medians", "said"),
    [
        (
            verdict(["a"], {"d": (3.0, None), "b": (1.386, 2.0), "c": (2.0, None)}),
            {"a": 13.0, "b": 19.0},
            f"a uses 13.0 {CPU_OF}; b at least 1.38 times as much, c 2.00 times and d 3.00 times.",
        ),
        (
            verdict(["a"], {"b": (2.0, 3.0)}, unranked={"c": "4 valid blocks", "d": "no valid result"}),
            {"a": 13.0, "b": 26.0, "c": 1.0},
            f"a uses 13.0 {CPU_OF}; b at least 2.00 times as much; c and d could not be compared.",
        ),
        (
            verdict(["a"], {"b": (1.386, 2.0), "c": (4.0, 5.0)}, figure=RATE),
            {"a": 2000.0, "b": 1000.0, "c": 500.0},
            "a completes 2,000/s; b at most 73 % of that and c 25 %.",
        ),
        (
            verdict(["a"], {"b": (2.0, 3.0)}, figure=P99),
            {"a": 900.0},
            "a answers 99 % of requests within 900 us; b at least 2.00 times as long.",
        ),
        (
            verdict(["a", "b"], within=1.04),
            {"a": 13.0, "b": 14.0},
            f"a and b use 13.0 to 14.0 {CPU_OF} and are equivalent (they differ by at most 4 %).",
        ),
        (
            verdict(["a"], {"c": (1.01, 1.06), "b": (1.001, 1.05)}),
            {"a": 13.0, "b": 14.0, "c": 15.0},
            f"a and b use 13.0 to 14.0 {CPU_OF} and are equivalent (they differ by at most 5 %){C_WORSE}.",
        ),
        (
            verdict(["a", "b"], within=1.06),
            {"a": 13.0, "b": 13.0},
            f"a and b use 13.0 {CPU_OF} and cannot be distinguished: they differ by at most 6 %.",
        ),
        (
            verdict(["a", "b"], {"c": (3.0, 4.0)}, within=1.06),
            {"a": 13.0, "b": 13.0, "c": 70.0},
            f"a and b use 13.0 {CPU_OF} (they differ by at most 6 %); c at least 3.00 times as much.",
        ),
        (
            verdict(["a", "b"], within=2.0),
            {"a": 13.0, "b": 26.0},
            f"a and b use 13.0 to 26.0 {CPU_OF} and cannot be distinguished: one may be up to 2 times another.",
        ),
        (
            verdict(["a", "b"], within=None),
            {"a": 13.0, "b": 26.0},
            f"a and b use 13.0 to 26.0 {CPU_OF} and cannot be distinguished.",
        ),
        (
            verdict(["a"], {"b": (2.0, 3.0)}, figure="connections.never_established"),
            {"a": 4.0},
            "a has the lowest connections never established, 4; b at least 2.00 times as much.",
        ),
        (
            verdict(["a"], {"b": (2.0, 3.0)}, figure="connections.established"),
            {"a": 4.0},
            "a has the highest connections established, 4; b at most 50 % of that.",
        ),
        (
            verdict(["a"], {"b": (2.0, 3.0)}, figure="response_time_us.p99_9"),
            {"a": 900.0},
            "a answers 99.9 % of requests within 900 us; b at least 2.00 times as long.",
        ),
    ],
)
def test_who_is_best_and_by_how_much_the_others_are_worse(
    given: VerdictRecord, medians: Mapping[str, float], said: str
) -> None:
    assert told([given], cells(medians, given.figure)) == [f"At 3,000 connections {said}"]
    nowhere = given.model_copy(update={"at": {}})
    assert told([nowhere], cells(medians, given.figure, {})) == [said]


@pytest.mark.parametrize(
    ("key", "medians", "said"),
    [
        ("connections", {"a": 1013.0, "b": 50.0}, "a carries 1,013 connections; b at most 50 % of that."),
        ("rate", {"a": 50.0}, "a carries 50 requests/s; b at most 50 % of that."),
    ],
)
def test_a_capacity_is_a_whole_number_of_what_was_searched_for(
    key: str, medians: Mapping[str, float], said: str
) -> None:
    """It was 1,010, and 50.0, of nothing."""
    figure = capacity_figure(SearchSettings(over=f"load.{key}", lowest=1, highest=10_000))
    given = verdict(["a"], {"b": (2.0, 3.0)}, figure=RATE, at={}).model_copy(update={"figure": figure.name})
    evidence = Evidence(
        verdicts=[given], scores=cells(medians, figure.name, {}), points=(), figures={figure.name: figure}, stops=(),
        margin=0.05,
    )  # fmt: skip
    assert answer(evidence) == [said]
    both = verdict(["a", "b"], figure=RATE, at={}, within=1.2).model_copy(update={"figure": figure.name})
    [alike] = answer(replace(evidence, verdicts=[both], scores=cells({"a": 1013.0, "b": 1013.4}, figure.name, {})))
    assert alike.startswith(f"a and b carry 1,013 {key if key == 'connections' else 'requests/s'} and cannot be")


def test_a_value_is_of_the_best_alone_at_its_own_setting_and_figure() -> None:
    given = verdict(["a", "b"], {"c": (2.0, 3.0)}, figure=RATE, within=1.01)
    scores = [
        *cells({"a": 1.0, "b": 9000.0}, RATE, LIGHT),
        *cells({"a": 2.0, "b": 9000.0}, P99),
        *cells({"a": 1000.0, "b": 1010.0, "c": 1.0}, RATE, censored=["a"]),
    ]
    [said] = told([given], scores)
    assert said.startswith("At 3,000 connections a and b complete at least 1,000 to 1,010/s and are equivalent (")
    [sure] = told([given], cells({"a": 1000.0, "b": 1010.0, "c": 1.0}, RATE, censored=["c"]))
    assert sure.startswith("At 3,000 connections a and b complete 1,000 to 1,010/s and are")
    late = verdict(["a"], {"b": (2.0, 3.0)}, figure=P99)
    [most] = told([late], cells({"a": 95.0, "b": 900.0}, P99, most=["a"]))
    assert most.startswith("At 3,000 connections a answers 99 % of requests within at most 95.0 us; b at least 2.00")


def test_the_first_figure_that_tells_half_of_the_contenders_apart_is_the_main_one() -> None:
    quarter = verdict(["a", "b", "c"], {"d": (2.0, 3.0)}, figure=RATE)
    half = verdict(["a", "b"], {"c": (2.0, 3.0)}, figure=P99)
    assert main_verdict([quarter, half]) is half
    assert main_verdict([half, quarter]) is half
    none = verdict(["a", "b", "c"], figure=CPU)
    assert main_verdict([none, quarter]) is quarter, "else the one that tells the most apart"
    assert main_verdict([none]) is none
    alone = verdict(["a"], figure=RATE)
    assert main_verdict([alone, none]) is none, "one alone is compared with nobody"
    assert main_verdict([alone]) is None
    assert main_verdict([]) is None


MAIN = verdict(["a"], {"b": (2.0, 3.0)})
MAIN_SAID = "At 3,000 connections a uses 13.0 us of CPU per request; b at least 2.00 times as much."
SCORES = [
    each
    for at in (AT, LIGHT, LIGHTER)
    for figure in (CPU, RATE, P99)
    for each in cells({"a": 13.0, "b": 26.0}, figure, at)
]
ELSEWHERE = verdict(["b"], {"a": (2.0, 3.0)}, at=LIGHT)
FURTHER = verdict(["b"], {"a": (2.0, 3.0)}, at=LIGHTER)
BESIDE = verdict(["a"], {"b": (2.0, 3.0)}, figure=P99)
CONTRARY = verdict(["b"], {"a": (2.0, 3.0)}, figure=P99)
SAME = verdict(["a"], {"b": (2.0, 3.0)}, at=LIGHT)
TIED = verdict(["a", "b"], figure=P99)


@pytest.mark.parametrize(
    ("verdicts", "second"),
    [
        ([MAIN], []),
        ([ELSEWHERE, MAIN], ["At 100 connections b uses 26.0 us of CPU per request; a at least 2.00 times as much."]),
        (
            [FURTHER, ELSEWHERE, MAIN, CONTRARY],
            ["At 100 connections b uses 26.0 us of CPU per request; a at least 2.00 times as much."],
        ),
        ([SAME, MAIN], []),
        ([SAME, MAIN, BESIDE], ["a answers 99 % of requests within 13.0 us; b at least 2.00 times as long."]),
        (
            [MAIN, verdict(["a"], {"b": (2.0, 3.0)}, figure=RATE), CONTRARY],
            ["b answers 99 % of requests within 26.0 us; a at least 2.00 times as long."],
        ),
        ([MAIN, TIED], []),
        ([verdict(["b", "c"], at=LIGHT), MAIN], []),
        ([MAIN, verdict(["a", "c", "d"], {"b": (2.0, 3.0)}, figure=P99)], []),
    ],
)
def test_what_would_mislead_if_it_were_left_out_is_told_second(
    verdicts: Sequence[VerdictRecord], second: Sequence[str]
) -> None:
    """Another setting with another one at the top, another figure with another one, another figure
    that tells contenders apart.
    """
    assert told(verdicts, SCORES) == [MAIN_SAID, *second]


def test_figures_that_show_no_difference_either_are_named() -> None:
    tied = verdict(["a", "b"], within=None)
    said = "At 3,000 connections a and b use 13.0 to 26.0 us of CPU per request and cannot be distinguished."
    assert told([tied], SCORES) == [said]
    assert told([tied, TIED], SCORES) == [said, "No difference is shown in response time, p99 either."]
    several = [tied, TIED, verdict(["a", "b"], figure=RATE)]
    assert told(several, SCORES) == [
        said,
        "No difference is shown in response time, p99 and completed rate either.",
    ]


def test_of_contenders_that_could_not_be_compared_the_values_and_the_reasons_are_told() -> None:
    few = {"a": "4 valid blocks", "b": "4 valid blocks", "c": "no shared block"}
    given = verdict([], contenders=["a", "b"], unranked=few)
    assert told([given], cells({"a": 13.0, "b": 14.0, "c": None})) == [
        "At 3,000 connections a and b use 13.0 to 14.0 us of CPU per request in the median.",
        "They could not be compared: 4 valid blocks; no shared block.",
    ]
    nowhere = verdict([], contenders=["a"], unranked={"b": "1 valid block", "c": "no result"}, at={})
    assert told([nowhere], cells({"a": 13.0}, at={})) == [
        "a alone has a valid result: it uses 13.0 us of CPU per request (b: 1 valid block; c: no result)."
    ]
    fewer = verdict([], contenders=["a"], figure=RATE)
    assert told([fewer, given], [*cells({"a": 1.0}, RATE), *cells({"a": 13.0, "b": 14.0})])[0].startswith(
        "At 3,000 connections a and b use"
    )


def test_without_a_result_its_cause_is_told_once() -> None:
    failed = point_summary(AT, outcome="failed", reason="the server ended.")
    unknown = point_summary(AT, outcome="invalid")
    empty = verdict([], contenders=[])
    assert told([empty], points=[unknown]) == ["There is no valid result: nothing was measured."]
    assert told([empty], points=[unknown, failed]) == ["There is no valid result: the server ended."]
    ended = stop("a", "failed", reason="the server ended.")
    assert told([empty], points=[failed], stops=[ended]) == [
        "There is no valid result.",
        "a fails at 3,000 connections: the server ended.",
    ]
    assert told([], points=[unknown, failed]) == ["There is no valid result: the server ended."]


def stop(
    contender: str,
    outcome: Outcome,
    *,
    at: Settings = AT,
    held: int | None = None,
    reason: str | None = "it broke",
    trials: tuple[int, int] | None = None,
) -> StopRecord:
    return StopRecord(contender=contender, at=at, outcome=outcome, reason=reason, held=held, trials=trials)


@pytest.mark.parametrize(
    ("stops", "said"),
    [
        ([stop("a", "hard_limit", held=2031)], "a accepts at most 2,031 connections."),
        ([stop(each, "hard_limit", held=2031) for each in "ab"], "a and b accept at most 2,031 connections."),
        ([stop("a", "hard_limit")], "a reaches a limit at 3,000 connections: it broke."),
        ([stop("a", "hard_limit", held=0, at={})], "a reaches a limit: it broke."),
        ([stop(each, "hard_limit") for each in "ab"], "a and b reach a limit at 3,000 connections: it broke."),
        ([stop("a", "failed", held=7, reason="it fell over.")], "a fails at 3,000 connections: it fell over."),
        ([stop(each, "failed") for each in "abc"], "a, b and c fail at 3,000 connections: it broke."),
        (
            [stop("a", "failed", at=LIGHT), stop("b", "failed"), stop("a", "failed")],
            "a fails at 100 connections: it broke; b fails at 3,000 connections: it broke.",
        ),
        (
            [stop("a", "failed"), stop("b", "hard_limit")],
            "a fails at 3,000 connections: it broke; b reaches a limit at 3,000 connections: it broke.",
        ),
        # A server with one worker carried no more; with four it carried 4,000.
        (
            [stop("a", "hard_limit", held=1017, at={"server.workers": 1, "load.connections": 2000})],
            "a accepts at most 1,017 connections at 1 worker.",
        ),
        ([stop("a", "failed", trials=(6, 12))], "a fails in 6 of 12 trials at 3,000 connections: it broke."),
        ([stop("a", "hard_limit", held=9, trials=(1, 6))], "a accepts at most 9 connections in 1 of 6 trials."),
        (
            [stop("a", "failed", at=LIGHT, trials=(1, 6)), stop("a", "hard_limit", held=2031)],
            "a accepts at most 2,031 connections.",
        ),
        ([stop("", "failed", at={})], "The server fails: it broke."),
        ([stop("", "hard_limit", held=9)], "The server accepts at most 9 connections."),
    ],
)
def test_who_stopped_is_told_with_the_first_setting_at_which_each_did(stops: Sequence[StopRecord], said: str) -> None:
    assert told([MAIN], SCORES, stops) == [MAIN_SAID, said]


def test_a_server_that_nothing_is_compared_with_has_its_figures_at_the_last_point_with_a_result() -> None:
    figures = {name: figure_summary(value) for name, value in ((P99, 900.0), (RATE, 24_000.0), ("elapsed_s", 1.0))}
    points = [
        point_summary(LIGHT).model_copy(update={"figures": {RATE: figure_summary(1.0)}}),
        point_summary(AT).model_copy(update={"figures": figures}),
        point_summary({"load.connections": 9000}, outcome="invalid", reason="late"),
    ]
    said = "At 3,000 connections the server completes 24,000/s and answers 99 % of requests within 900 us."
    assert told([], points=points) == [said]
    nameless = points[1].model_copy(update={"point": {}})
    assert told([], points=[nameless]) == ["The server completes 24,000/s and answers 99 % of requests within 900 us."]
    without = points[1].model_copy(update={"figures": {"elapsed_s": figure_summary(1.0)}})
    assert told([], points=[without]) == ["At 3,000 connections the server has no figure of the suite."]
