"""A point over its trials: what most of them say, the figures of valid ones, its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from plimsoll_lab.analysis.points import judge_limit, point_outcome, summarise_point
from plimsoll_lab.store.records import CutRecord, Outcome, TrialRecord
from plimsoll_lab.store.run_record import PointRecord
from plimsoll_lab.store.summary_record import LimitSummary
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.spec import Limit

RATE, P99 = "completed_rate", "response_time_us.p99"
POINT = PointRecord(number=7, setting={"load.connections": 10}, server={}, load={})
ONE_LINE = POINT.model_copy(update={"network": {"one_line": True}})
CUT = CutRecord(
    moments=1, share=0.1, requests=3, touched=1, completed_rate=None, bounds={}, estimates={}, doubted=()
)  # fmt: skip


def trial(outcome: Outcome, reason: str | None = None, **figures: float) -> TrialRecord:
    return TrialRecord(
        number=1, block=1, point=7, setting={"load.connections": 10}, outcome=outcome, reason=reason, warnings=(),
        figures={name.replace("__", "."): value for name, value in figures.items()}, started_unix_s=0, elapsed_s=1,
        server={}, load={}, machine={},
    )  # fmt: skip


def rated(outcomes: Sequence[Outcome]) -> list[TrialRecord]:
    """Trials that end so; the first completes 1 a second, the next 2, and so on."""
    return [trial(outcome, f"reason {place}", completed_rate=place) for place, outcome in enumerate(outcomes, 1)]


@pytest.mark.parametrize(
    ("outcomes", "found"),
    [
        ((), (None, "not measured")),
        (("ok",), ("ok", None)),
        (("ok", "failed"), ("ok", None)),
        (("failed", "ok", "failed"), ("failed", "reason 1")),
        (("hard_limit", "failed", "failed"), ("failed", "reason 2")),
        (("ok", "ok", "hard_limit", "failed", "failed"), ("failed", "reason 4")),
        (("ok", "ok", "failed", "hard_limit", "invalid"), ("failed", "reason 3")),
        (("invalid", "generator_limited"), ("invalid", "reason 1")),
    ],
)
def test_a_point_ends_as_most_of_its_trials_and_has_a_result_where_half_of_them_have(
    outcomes: Sequence[Outcome], found: tuple[Outcome | None, str | None]
) -> None:
    """Of those without a result the most frequent, and of two that are as frequent the first."""
    assert point_outcome(rated(outcomes)) == found
    summary = summarise_point(POINT, rated(outcomes), (), paths_off=False)
    assert (summary.outcome, summary.reason) == found
    assert (summary.n, summary.valid_n) == (len(outcomes), outcomes.count("ok"))
    assert (summary.point, summary.number, summary.limits) == ({"load.connections": 10}, 7, [])


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["it died", "it did not listen", "it did not listen."], "it died"),
        (["it died", "it did not listen", "it did not listen"], "it did not listen (mostly)"),
        (["it died", "it did not listen.", "it did not listen."], "it did not listen (mostly)"),
        (["it died", "it died", "it did not listen", "it did not listen"], "it died (among others)"),
        (["it died.", "it died."], "it died."),
        ([None, None, "it died"], None),
    ],
)
def test_a_point_without_a_result_has_the_reason_of_most_of_its_trials(
    reasons: Sequence[str | None], told: str | None
) -> None:
    """It was that of the first, whatever the others said."""
    assert point_outcome([trial("failed", reason) for reason in reasons]) == ("failed", told)


def test_the_figures_of_a_point_are_of_its_trials_with_a_result() -> None:
    """2, 4 and 9: a mean of 5, and deviations of -3, -1 and 4 around it."""
    trials = [
        trial("ok", completed_rate=2, only=-8),
        trial("failed", "it fell over", completed_rate=1000, lost=1),
        trial("ok", completed_rate=4, only=-12),
        trial("ok", completed_rate=9, never=0),
    ]
    found = summarise_point(POINT, trials, (), paths_off=False)
    assert list(found.figures) == [RATE, "only", "never"]
    assert (found.n, found.valid_n, found.doubtful) == (4, 3, False)
    rate = found.figures[RATE]
    assert (rate.n, rate.mean, rate.median, rate.least, rate.greatest) == (3, 5, 4, 2, 9)
    assert rate.stdev == pytest.approx(math.sqrt(26 / 2))
    assert rate.cv == pytest.approx(math.sqrt(26 / 2) / 5)
    assert found.figures["only"].cv == pytest.approx(math.sqrt(8) / 10), "a share of the size, whatever the sign"
    assert (found.figures["never"].stdev, found.figures["never"].cv) == (None, None)
    zeros = summarise_point(POINT, [trial("ok", never=0), trial("ok", never=0)], (), paths_off=False)
    assert (zeros.figures["never"].stdev, zeros.figures["never"].cv) == (0, None)


@pytest.mark.parametrize(
    ("point", "outcomes", "shown", "doubtful"),
    [
        (ONE_LINE, ("invalid", "generator_limited"), (1, 2), True),
        (ONE_LINE, ("invalid", "failed", "invalid"), (1, 3), True),
        (ONE_LINE, ("invalid", "invalid", "ok"), (3,), True),
        (ONE_LINE, ("ok", "ok", "invalid"), (1, 2), False),
        (ONE_LINE, ("failed", "failed", "invalid"), (), False),
        (POINT, ("invalid", "generator_limited"), (), False),
        (POINT, ("invalid", "invalid", "ok"), (3,), False),
        (POINT.model_copy(update={"network": {"links": []}}), ("invalid", "invalid"), (), False),
    ],
)
def test_over_a_network_in_one_line_trials_that_are_no_results_show_doubtful_figures(
    point: PointRecord, outcomes: Sequence[Outcome], shown: Sequence[float], *, doubtful: bool
) -> None:
    """Only where no trial has a result, and none of a server that failed."""
    found = summarise_point(point, rated(outcomes), (), paths_off=False)
    assert found.doubtful is doubtful
    figures = found.figures
    assert ((figures[RATE].least, figures[RATE].greatest) if figures else ()) == (shown and (shown[0], shown[-1]))


def test_a_load_that_is_too_high_for_a_search_makes_its_answer_no_doubt() -> None:
    """A search tries loads that are too high by intent; over a network in one line its answer was
    doubtful for that.
    """
    asked, searched = (
        summarise_point(ONE_LINE, rated(["generator_limited"]), (), paths_off=False, is_searched=each)
        for each in (False, True)
    )
    assert (asked.doubtful, bool(asked.figures)) == (True, True)
    assert (searched.doubtful, bool(searched.figures)) == (False, False)
    assert summarise_point(ONE_LINE, rated(["ok"]), (), paths_off=True, is_searched=True).doubtful


def test_a_limit_says_nothing_over_a_network_that_was_not_asked_for() -> None:
    limits = (limit_of("completed_rate", "> 1M"),)
    assert [each.met for each in summarise_point(POINT, rated(["ok"] * 6), limits, paths_off=False).limits] == [False]
    assert summarise_point(POINT, rated(["ok"] * 6), limits, paths_off=True).limits == []


def test_a_path_that_is_not_what_was_asked_for_makes_figures_doubtful_where_there_are_any() -> None:
    ends: Mapping[Outcome, bool] = {"ok": True, "failed": False}
    for outcome, doubtful in ends.items():
        assert summarise_point(POINT, rated([outcome]), (), paths_off=True).doubtful is doubtful
        assert summarise_point(POINT, rated([outcome]), (), paths_off=False).doubtful is False


def limit_of(name: str, condition: str) -> Limit:
    return read_limit(name, condition, source="it.toml")


def test_a_limit_is_not_met_by_the_trials_that_survived_it() -> None:
    """Half of the trials failed a fifth of their requests, and less than 1 % was said to be met."""
    limits = [limit_of("failed_ratio", "< 1%"), limit_of("response_time.p99", "< 1ms")]
    good = [trial("ok", failed_ratio=0.0, response_time_us__p99=5) for _ in range(6)]
    bad = [trial("failed", "it failed", failed_ratio=0.2, response_time_us__p99=5) for _ in range(6)]
    found = summarise_point(POINT, [*good, *bad], limits, paths_off=False)
    assert [each.met for each in found.limits] == [None, None]
    assert found.limits[0].median_ci95 == (0.0, 0.2)
    assert found.outcomes == {"ok": 6, "failed": 6}
    # A machine that was busy says nothing of the server.
    busy = [trial("invalid", "another program") for _ in range(6)]
    assert [each.met for each in summarise_point(POINT, [*good, *busy], limits, paths_off=False).limits] == [True, True]


def test_a_limit_is_not_met_by_the_trials_whose_generator_was_no_limit() -> None:
    """A figure that is half the generator's own lateness makes a trial one of the generator's limit
    where it misses its limit, and a result where it meets it: those that were left met it.
    """
    limits = [limit_of("response_time.p99", "< 1ms"), limit_of("completed_rate", "> 5")]
    good = [trial("ok", response_time_us__p99=400, completed_rate=10) for _ in range(6)]
    late = [trial("generator_limited", "late", response_time_us__p99=2000, completed_rate=9) for _ in range(6)]
    found = summarise_point(POINT, [*good, *late], limits, paths_off=False)
    assert found.outcome == "ok"
    # Of the rate it is a lower bound, which meets a limit from below.
    assert [each.met for each in found.limits] == [None, True]
    one = summarise_point(POINT, [*good, *good, late[0]], limits, paths_off=False)
    assert [each.met for each in one.limits] == [True, True]


def test_a_limit_on_connections_that_never_came_up_is_missed_where_the_server_refused_them() -> None:
    """It could not be told, as such trials told their failed requests alone."""
    limits = [limit_of("connections.never_established", "== 0")]
    good = [trial("ok", connections__never_established=0) for _ in range(5)]
    refused = trial("hard_limit", "it refused 9 connections", connections__never_established=9)
    failed = trial("failed", "it fell over", connections__never_established=9)
    for trials in ([*good, refused], [*good, failed], [refused] * 6):
        assert [each.met for each in summarise_point(POINT, trials, limits, paths_off=False).limits] == [False]
    late = trial("generator_limited", "late", connections__never_established=9)
    assert [each.met for each in summarise_point(POINT, [*good, late], limits, paths_off=False).limits] == [None]


def test_a_count_of_a_limited_generator_misses_no_limit_on_exact_counts() -> None:
    """Whose failures they were, and how many connections would have come up, nobody knows."""
    limits = [limit_of("requests.timed_out", "== 0"), limit_of("connections.established", "== 1000")]

    def told(timed_out: int, established: int) -> list[bool | None]:
        good = [trial("ok", requests__timed_out=0, connections__established=1000) for _ in range(5)]
        late = trial("generator_limited", "late", requests__timed_out=timed_out, connections__established=established)
        return [each.met for each in summarise_point(POINT, [*good, late], limits, paths_off=False).limits]

    assert told(40, 800) == [None, None]
    # More than all are more than are asked for, by anybody.
    assert told(0, 1001) == [True, False]


def test_a_limit_of_a_point_has_its_figure_its_median_and_its_interval() -> None:
    trials = [trial("ok", response_time_us__p99=each) for each in (3, 1, 2, 4, 5, 7)]
    limits = [limit_of("response_time.p99", "< 1ms"), limit_of("requests.failed", "== 0")]
    fallen = trial("failed", "it fell over", response_time_us__p99=9, requests__failed=9)
    found = summarise_point(POINT, [*trials, fallen], limits, paths_off=False)
    assert found.limits == [
        LimitSummary(
            point={"load.connections": 10},
            limit="response_time.p99 < 1ms",
            figure=P99,
            median=3.5,
            median_ci95=(None, None),
            met=None,
        ),
        LimitSummary(
            point={"load.connections": 10},
            limit="requests.failed == 0",
            figure="requests.failed",
            median=9,
            median_ci95=(9, 9),
            met=False,
        ),
    ]
    [kept, _] = summarise_point(POINT, trials, limits, paths_off=False).limits
    assert (kept.median, kept.median_ci95, kept.met) == (3.5, (1, 7), True)
    assert not found.doubtful
    failed = summarise_point(POINT, [fallen], limits, paths_off=False)
    assert (failed.limits, failed.doubtful) == ([], False)


def test_a_point_that_has_no_result_meets_no_limit_by_the_few_trials_that_have() -> None:
    """One of three was well below it, and the others failed: the limit was met."""
    trials = [trial("ok", response_time_us__p99=1), *(trial("failed", "it fell over") for _ in range(2))]
    found = summarise_point(POINT, trials, [limit_of("response_time.p99", "< 1ms")], paths_off=False)
    assert (found.outcome, found.valid_n, found.limits) == ("failed", 1, [])


def test_a_limit_whose_figure_every_trial_lost_to_the_emulator_is_left_out_and_the_point_doubtful() -> None:
    limits = [limit_of("response_time.p99", "< 5ms"), limit_of("completed_rate", "> 0.5")]
    lost = [replace(each, cut=CUT) for each in rated(["ok", "ok"])]
    known = replace(trial("ok", completed_rate=3, response_time_us__p99=20), cut=CUT)
    undisturbed = trial("ok", completed_rate=3)
    for trials, judged, doubtful in (
        (lost, [True], True),
        ([*lost, known], [None, True], False),
        ([*lost, undisturbed], [None, True], False),
        ([undisturbed], [None, True], False),
        (rated(["failed"]), [], False),
    ):
        found = summarise_point(POINT, trials, limits, paths_off=False)
        assert [each.met for each in found.limits] == judged
        assert found.doubtful is doubtful


@pytest.mark.parametrize(
    ("condition", "values", "untold", "met", "interval"),
    [
        ("== 0", (), 0, None, (-math.inf, math.inf)),
        ("== 0", (), 2, None, (-math.inf, math.inf)),
        ("== 0", (0, 0), 0, True, (0, 0)),
        ("!= 0", (1, 3), 1, None, (1, 3)),
        ("!= 0", (1, 0, 3), 1, False, (0, 3)),
        ("< 2", (), 0, None, (-math.inf, math.inf)),
        ("< 2", (1,), 0, True, (-math.inf, math.inf)),
        ("< 2", (1, 2), 0, None, (-math.inf, math.inf)),
        ("< 2", (1, 1, 1, 1, 1, 1), 0, True, (1, 1)),
        ("< 2", (1, 1, 1, 1, 1, 1), 1, None, (-math.inf, math.inf)),
    ],
)
def test_a_limit_is_judged_by_what_is_known_of_its_figure(
    condition: str, values: Sequence[float], untold: int, interval: tuple[float, float], *, met: bool | None
) -> None:
    limit = limit_of("requests.failed", condition)
    ends = [(each, each) for each in values]
    assert judge_limit(limit, ends, untold=untold) == (met, interval)
    if not untold:
        assert judge_limit(limit, ends) == (met, interval)


@pytest.mark.parametrize(
    ("condition", "ends", "untold", "met", "interval"),
    [
        # The cut requests may have taken any time: six trials whose estimates are 4 met `< 5`.
        ("< 5", [(3, 9)] * 6, 0, None, (3, 9)),
        ("< 5", [(3, 4.5)] * 6, 0, True, (3, 4.5)),
        ("< 5", [(5, 9)] * 6, 0, False, (5, 9)),
        ("> 5", [(3, 9)] * 6, 0, None, (3, 9)),
        ("< 5", [(4, 4)] * 8 + [(3, 9)], 0, True, (4, 4)),
        ("< 5", [(4, 4)] * 8 + [(3, 9)] * 2, 0, None, (3, 9)),
        ("< 5", [(4, 4)] * 8 + [(3, 9)], 1, None, (3, 9)),
        # Too few for an interval have to agree with their whole bounds.
        ("< 5", [(4, 4), (3, 9)], 0, None, (-math.inf, math.inf)),
        ("< 5", [(4, 4), (3, 4.9)], 0, True, (-math.inf, math.inf)),
    ],
)
def test_a_limit_is_judged_by_the_bounds_of_disturbed_trials(
    condition: str,
    ends: Sequence[tuple[float, float]],
    untold: int,
    interval: tuple[float, float],
    *,
    met: bool | None,
) -> None:
    assert judge_limit(limit_of("completed_rate", condition), ends, untold=untold) == (met, interval)


def test_a_limit_that_the_estimates_of_disturbed_trials_meet_and_their_bounds_may_not_is_undecided() -> None:
    """The verdicts took the bounds, and the limits did not."""
    cut = replace(CUT, bounds={P99: (3e3, 90e3)}, estimates={P99: 4e3})
    trials = [replace(trial("ok", response_time_us__p99=4e3), cut=cut) for _ in range(8)]
    limit = limit_of("response_time.p99", "< 5ms")
    [found] = summarise_point(POINT, trials, [limit], paths_off=False).limits
    assert (found.met, found.median, found.median_ci95) == (None, 4e3, (3e3, 90e3))
    [found] = summarise_point(POINT, [replace(each, cut=None) for each in trials], [limit], paths_off=False).limits
    assert (found.met, found.median_ci95) == (True, (4e3, 4e3))
