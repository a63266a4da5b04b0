"""What is said of searches: which of them each part of the answer is of, and in which words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from made_claims import trial
from made_searches import FLOOR, MOST, Bounds, run_of

from plimsoll_lab.analysis.searches import (
    capacity_family,
    confirmation,
    describe_searches,
    failed_below,
    first_break,
    limits_text,
    refused,
    searches_without_capacity,
)
from plimsoll_lab.store.records import ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import FamilyRecord, RunRecord
from plimsoll_lab.store.search_record import BreakRecord, CauseRecord, SearchRecord, SearchSettingsRecord
from plimsoll_lab.store.summary_record import CapacityRecord, StopRecord
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Limit


def told_of(bounds: Sequence[Bounds], *changes: dict[str, object]) -> CapacityRecord:
    """The capacity of searches with these bounds, of which the first ones are changed so."""
    return one_of(changed(run_of(bounds), *changes))


def changed(run: RunRecord, *changes: dict[str, object]) -> RunRecord:
    same: list[dict[str, object]] = [{}] * (len(run.searches) - len(changes))
    run.searches = [
        each.model_copy(update=change) for each, change in zip(run.searches, [*changes, *same], strict=True)
    ]
    return run


def one_of(run: RunRecord) -> CapacityRecord:
    [capacity] = describe_searches(run)
    return capacity


def broke(missed: str, *texts: str, near: str | None = None) -> BreakRecord:
    return BreakRecord(
        missed=missed, causes=[CauseRecord(code="cpu", text=text) for text in texts], near_ceiling=near
    )  # fmt: skip


def test_of_searches_that_found_the_same_the_shortest_confirmation_counts_and_the_coarsest_precision() -> None:
    found = told_of([(1000, 1100)] * 3, {"held_s": 80.0, "precision": 0.02}, {"held_s": 20.0, "precision": 0.03})
    assert (found.held_s, found.precision) == (0.0, 0.03)
    found = told_of([(1000, 1100)] * 2, {"held_s": 80.0, "precision": 0.03}, {"held_s": 20.0, "precision": 0.02})
    assert (found.held_s, found.precision) == (20.0, 0.03)
    assert "held for 20 s" in found.text


def test_of_an_even_number_of_searches_both_bounds_were_tried() -> None:
    found = told_of([(1000, 1100), (1003, 1103), (1001, 1101), (1002, 1102)])
    assert (found.lower, found.upper) == (1001, 1102)
    assert (found.lowers, found.uppers) == ([1000, 1003, 1001, 1002], [1100, 1103, 1101, 1102])
    assert (found.searches, found.ended, found.failed, found.finished) == (4, 4, False, True)


def test_what_broke_is_of_another_search_where_the_one_that_found_the_answer_was_limited_by_another() -> None:
    found = told_of(
        [(900, 1000), (1000, 1100), (1200, 1300)],
        {"broke": broke("p99 at 1 ms", "no CPU"), "generator_ceiling_per_s": 1.0, "held_s": 10.0},
        {"broke": broke("p99 at 2 ms"), "limited_by": "generator", "generator_ceiling_per_s": 2.0, "held_s": 20.0},
        {"broke": broke("p99 at 3 ms"), "generator_ceiling_per_s": 3.0, "held_s": 30.0},
    )
    assert (found.lower, found.limited_by, found.held_s) == (1000, "server", 20.0)
    assert (found.first_break, found.causes) == ("p99 at 1 ms; no CPU", ["cpu"])
    assert found.generator_ceiling_per_s == 1.0


def test_what_broke_first_is_said_with_its_causes_and_the_ceiling() -> None:
    assert first_break(None) is None
    assert first_break(broke("p99 at 9 ms")) == "p99 at 9 ms"
    assert first_break(broke("p99 at 9 ms", "no CPU", "no memory", near="85 % of it")) == (
        "p99 at 9 ms; no CPU; no memory; 85 % of it"
    )
    assert told_of([(1000, 1100)]).causes == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"held_s": 1.0}, ", held for 1 s, with "),
        ({"held_s": 0.999}, ", held for 999 ms, with "),
        ({"precision": 0.0626}, ", known to within 6.3 %: nearer bounds take longer trials, and more patience, with "),
        ({"precision": 0.99}, ", known to within 99 %: nearer bounds take longer trials, and more patience, with "),
        ({"precision": 0.0624}, ", with "),
    ],
)
def test_what_is_known_of_an_answer_follows_it(changes: dict[str, object], said: str) -> None:
    assert told_of([(1000, 1100)], changes).text == f"model epoll carries 1,000 connections and not 1,100{said}"


def test_a_precision_says_nothing_of_a_server_without_a_lower_bound() -> None:
    assert told_of([(None, FLOOR)], {"precision": 0.5, "held_s": 9.0}).text == (
        "model epoll carries less than 100 connections, with "
    )


def test_a_search_that_ended_early_and_that_the_generator_limited_says_both() -> None:
    early: dict[str, object] = {"state": "out of patience", "is_held": False, "limited_by": "generator"}
    assert told_of([(1000, 1100)], early).text == (
        "model epoll carries at least 1,000 connections; the search ended before it knew how much more, and not "
        "confirmed by fresh trials, with ; the generator was the limit"
    )
    early = {"state": "out of patience", "is_held": False, "limited_by": None}
    assert told_of([(MOST, None)], early).text == (
        "model epoll carries at least 10,000 connections; the search ended before it knew how much more, and not "
        "confirmed by fresh trials, with "
    )


def test_each_thing_that_searches_found_before_they_ended_is_said_once() -> None:
    early: dict[str, object] = {"state": "out of patience", "limited_by": None}
    found = told_of([(None, None), (None, None), (400, None)], early, early, early)
    assert "before they ended, its searches found nothing and at least 400 connections (median of 3" in found.text


def test_searches_that_failed_are_counted_beside_those_below_the_floor() -> None:
    found = told_of([(None, None), (None, FLOOR), (None, FLOOR)], {"state": "failed", "reason": "it ended"})
    assert found.text == (
        "model epoll carries less than 100 connections (2 of 3 searches), with ; 1 of 3 searches failed: it ended"
    )
    assert (found.failed, found.finished, found.ended) == (True, False, 3)


def test_a_search_that_has_not_begun_has_no_answer() -> None:
    found = told_of([(None, None)], {"state": "planned", "limited_by": None})
    assert (found.lower, found.upper, found.limited_by, found.ended, found.finished) == (None, None, None, 0, False)
    assert (found.held_s, found.spread, found.first_break) == (0.0, None, None)
    assert found.text == "model epoll: interrupted before any bound"


def test_all_limits_are_named() -> None:
    run = run_of([(1000, 1100)])
    run.limits = [
        Limit(figure="response_time_us.p99", operator="<", value=5e3, text="p99 < 5ms"),
        Limit(figure="requests.failed", operator="==", value=0.0, text="failed == 0"),
    ]
    assert limits_text(run) == "p99 < 5ms and failed == 0"
    assert one_of(run).text.endswith(" and not 1,100, with p99 < 5ms and failed == 0")


def test_a_load_that_a_server_refused_is_in_a_table_where_the_server_did() -> None:
    assert refused(told_of([(1000, 1100)])) == "1,100"
    assert refused(told_of([(1000, 1100)], {"limited_by": "environment"})) == "-"
    assert refused(told_of([(MOST, None)], {"limited_by": None})) == "-"


def test_loads_that_were_given_up_are_said_without_a_confirmation() -> None:
    search = SearchRecord(number=1, block=1, point=0, state="complete", upper=100, unconfirmed=[1100])
    assert confirmation(search) == "given up, as fresh trials failed there: 1,100"
    assert confirmation(search.model_copy(update={"confirmed": 8})) == (
        "given up, as fresh trials failed there: 1,100"
    )  # fmt: skip


def test_only_searches_that_were_completed_compete() -> None:
    run = run_of([(1000, 1100), (900, 1000), (800, 900)])
    [comparison] = capacity_family(changed(run, {"state": "out of patience"}, {"state": "failed"}), "server.model")
    assert comparison.contenders == {"epoll": {3: (800.0, 900.0)}}
    early: dict[str, object] = {"state": "out of patience"}
    [none] = capacity_family(changed(run, early, early, early), "server.model")
    assert (none.contenders, none.absent) == ({}, ("epoll",))
    floor = run_of([(None, FLOOR)])
    [comparison] = capacity_family(floor, "server.model", with_none=True)
    assert (comparison.contenders, comparison.absent) == ({"epoll": {1: (0.0, 100.0)}}, ())


def test_who_carries_less_than_the_least_is_told_in_what_was_searched_over() -> None:
    run = run_of([(None, 1500)])
    run.search = SearchSettingsRecord(over="load.rate", lowest=1500, highest=MOST)
    run.family = FamilyRecord(compare="server.model", figures=("capacity",), margin=0.05)
    assert searches_without_capacity(run, describe_searches(run)) == [
        StopRecord(
            contender="epoll", at={}, outcome="hard_limit", reason="it carries less than 1,500 requests/s", held=None
        )
    ]
    for by in ("generator", "environment"):
        assert searches_without_capacity(changed(run, {"limited_by": by}), describe_searches(run)) == []
    for state, lower in (("complete", 1500), ("out of patience", None)):
        found = changed(run, {"limited_by": "server", "state": state, "lower": lower})
        assert searches_without_capacity(found, describe_searches(found)) == []


def failed(number: int, model: str, load: int, outcome: str = "failed", reason: str | None = None) -> TrialRecord:
    setting: Settings = {"server.model": model, "load.connections": load}
    return replace(trial(number, 0, number, 0.0, outcome), setting=setting, figures={}, reason=reason)


def test_trials_that_failed_at_loads_up_to_the_answer_are_counted() -> None:
    run = run_of([(1000, 1100)])
    capacities = describe_searches(run)
    elsewhere = [failed(1, "poll", 1000), failed(2, "epoll", 1001), failed(3, "epoll", 1000, "hard_limit")]
    assert failed_below(run, elsewhere, capacities) == []
    two = [failed(4, "epoll", 1000), failed(5, "epoll", 1, reason="it died")]
    message = "2 trials failed at loads that are said to be carried"
    warning = ResultWarning(code="stopped", message=message, remedy="the trials' records say why")
    assert failed_below(run, [*elsewhere, *two], capacities) == [warning]
    assert failed_below(run, two[::-1], capacities) == [replace(warning, message=f"{message}: it died")]
    run.search = None
    assert failed_below(run, two, capacities) == []
