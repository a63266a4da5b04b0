"""What is said of the searches for one capacity."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from made_searches import FLOOR, MOST, run_of

from plimsoll_lab.analysis.searches import confirmation, describe_searches, searched_key
from plimsoll_lab.store.search_record import BreakRecord, SearchRecord, SearchSettingsRecord, SearchState
from plimsoll_lab.suite.spec import Limit

State = tuple[SearchState, int | None, int | None]
"""The state of a search, and its bounds."""


def told_of(*states: State, **changed: object) -> str:
    """The sentence for one server after its number."""
    run = run_of([(lower, upper) for _, lower, upper in states])
    run.limits = [Limit(figure="response_time_us.p99", operator="<", value=1.0, text="p99 < 5ms")]
    run.searches = [
        each.model_copy(
            update={
                "state": state,
                "is_held": state == "complete" and lower is not None,
                "reason": "no such option" if state == "failed" else None,
            }
            | changed
        )
        for each, (state, lower, _) in zip(run.searches, states, strict=True)
    ]
    [capacity] = describe_searches(run)
    return capacity.text


LIMITED = ", with p99 < 5ms"
UNTIL_ITS_END = " passed at 1,000 when the search ended, of the 8 it asks for"
UNCONFIRMED = f", and not confirmed by fresh trials{LIMITED}"
FAILED = "; 1 of 2 searches failed: no such option"


@pytest.mark.parametrize(
    ("states", "text"),
    [
        ([("complete", 1000, 1100)], f" carries 1,000 connections and not 1,100{LIMITED}"),
        (
            [("complete", 1000, 1100), ("complete", 1010, 1090)],
            f" carries 1,000 connections and not 1,100 (median of 2 searches, 1,000 to 1,010){LIMITED}",
        ),
        ([("complete", 2000, None)], f" carries at least 2,000 connections{LIMITED}"),
        ([("complete", MOST, None)], f" carries at least 10,000 connections, the most that was tried{LIMITED}"),
        ([("complete", None, FLOOR)], f" carries less than 100 connections{LIMITED}"),
        (
            [("out of patience", 1000, 1100)],
            f" carries 1,000 connections and not 1,100, as near as the search came before it ended{UNCONFIRMED}",
        ),
        (
            [("out of patience", 1000, None)],
            f" carries at least 1,000 connections; the search ended before it knew how much more{UNCONFIRMED}",
        ),
        (
            [("out of patience", None, 200)],
            f" carries less than 200 connections; the search ended before it knew how much less{LIMITED}",
        ),
        (
            [("out of patience", None, None)],
            f" is not decided: its searches ended before 100 connections had been{LIMITED}",
        ),
        (
            [("out of patience", None, None), ("out of patience", 400, None)],
            (
                " is not decided: before they ended, its searches found nothing and at least 400 connections "
                f"(median of 2 searches, nothing to 400){LIMITED}"
            ),
        ),
        ([("failed", None, None)], " was not measured: no such option"),
        (
            [("failed", None, 400)],
            " was not measured to the end: no such option; until then it carried less than 400 connections",
        ),
        ([("interrupted", None, None)], ": interrupted before any bound"),
        (
            [("interrupted", 400, 500)],
            ": interrupted; until then it was seen to carry at least 400 and less than 500 connections",
        ),
        ([("interrupted", 1, None)], ": interrupted; until then it was seen to carry at least 1 connection"),
        ([("interrupted", None, 1)], ": interrupted; until then it was seen to carry less than 1 connection"),
        ([("planned", None, None)], ": interrupted before any bound"),
        (
            [("complete", 1000, 1100), ("failed", None, None)],
            f" carries 1,000 connections and not 1,100 (1 of 2 searches){LIMITED}{FAILED}",
        ),
    ],
)
def test_each_state_of_the_searches_has_its_sentence(states: Sequence[State], text: str) -> None:
    assert told_of(*states) == f"model epoll{text}"


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({"held_s": 80.0, "is_held": True}, f", held for 1 min 20 s{LIMITED}"),
        ({"held_s": 0.4, "is_held": True}, f", held for 400 ms{LIMITED}"),
        # The width is 5 %, and a quarter more is not worth a word.
        ({"precision": 0.0625}, LIMITED),
        (
            {"precision": 0.07},
            f", known to within 7 %: nearer bounds take longer trials, and more patience{LIMITED}",
        ),
        (
            {"precision": 1.0},
            f", of unknown precision: the limits vary more between trials than between loads{LIMITED}",
        ),
        (
            {"broke": BreakRecord(missed="p99 at 9 ms", causes=[], near_ceiling="85% of it")},
            f"{LIMITED}; what breaks first: p99 at 9 ms; 85% of it",
        ),
    ],
)
def test_what_is_known_besides_follows_the_capacity(changed: dict[str, object], more: str) -> None:
    assert told_of(("complete", 1000, 1100), **changed) == f"model epoll carries 1,000 connections and not 1,100{more}"


@pytest.mark.parametrize(
    ("width", "precision", "known"),
    [
        # It was rounded down: known to within 0 %, and 6 %.
        (0.003, 0.004, "0.4 %"),
        (0.05, 0.0641, "6.5 %"),
        (0.05, 0.9999, "100 %"),
    ],
)
def test_how_near_an_answer_is_known_is_rounded_up(width: float, precision: float, known: str) -> None:
    run = run_of([(1000, 1100)])
    run.search = SearchSettingsRecord(over="load.connections", lowest=FLOOR, highest=MOST, width=width)
    run.searches = [each.model_copy(update={"precision": precision}) for each in run.searches]
    [capacity] = describe_searches(run)
    assert f", known to within {known}: " in capacity.text


@pytest.mark.parametrize(
    ("is_held", "confirmed", "held_s", "more"),
    [
        (True, 8, 200.0, ", held for 3 min 20 s"),
        (True, 7, 190.0, ", held for 3 min 10 s"),
        (False, 1, 10.0, ", and not confirmed: 1 of the 8 fresh trials that it asks for had passed"),
        (False, 6, 60.0, ", and not confirmed: 6 of the 8 fresh trials that it asks for had passed"),
        (False, 8, 80.0, ", and not confirmed: the long fresh trials that it asks for had not all passed"),
        (False, 7, 70.0, ", and not confirmed: 7 of the 8 fresh trials that it asks for had passed"),
        # One of two that are twice as long: it was confirmed, as these last as long as two.
        (False, 8, 200.0, ", and not confirmed: the long fresh trials that it asks for had not all passed"),
        # Where the long trials come first, they pass before any of the short ones is made.
        (False, 0, 120.0, ", and not confirmed by fresh trials"),
    ],
)
def test_an_answer_is_held_only_where_all_fresh_trials_that_it_asks_for_have_passed(
    confirmed: int, held_s: float, more: str, *, is_held: bool
) -> None:
    """It was "held for 10 s" where one fresh trial had failed and one passed."""
    early: State = ("out of patience", 1000, 1050)
    told = told_of(early, confirmed=confirmed, held_s=held_s, is_held=is_held)
    carries = "model epoll carries 1,000 connections and not 1,050, as near as the search came before it ended"
    assert told == f"{carries}{more}{LIMITED}"


def test_a_complete_search_of_an_earlier_version_is_held() -> None:
    """Its record does not say so."""
    assert told_of(("complete", 1000, 1100), is_held=None, held_s=160.0).startswith(
        "model epoll carries 1,000 connections and not 1,100, held for 2 min 40 s"
    )
    early: State = ("out of patience", 1000, 1100)
    assert "not confirmed" in told_of(early, is_held=None, confirmed=8, held_s=160.0)


def test_an_answer_is_held_where_one_of_its_searches_has_confirmed_it() -> None:
    sure: dict[str, object] = {"confirmed": 8, "held_s": 200.0}
    early: dict[str, object] = {"state": "out of patience", "is_held": False, "confirmed": 2, "held_s": 20.0}
    for changes, more in (
        ((sure, early, sure), ", held for 3 min 20 s"),
        ((sure, sure, early), ", held for 3 min 20 s"),
        ((early, early, sure), ", and not confirmed: 2 of the 8 fresh trials that it asks for had passed"),
    ):
        run = run_of([(1000, 1100), (1000, 1100), (990, 1090)])
        run.searches = [each.model_copy(update=change) for each, change in zip(run.searches, changes, strict=True)]
        [capacity] = describe_searches(run)
        assert more in capacity.text


@pytest.mark.parametrize(("limited_by", "who"), [("generator", "generator"), ("environment", "machine")])
def test_a_load_that_the_generator_or_the_machine_was_in_the_way_of_says_nothing_of_the_server(
    limited_by: str, who: str
) -> None:
    """Of nginx it was said that it carries less than 100 requests a second: timers were late."""
    more = f"{LIMITED}; the {who} was the limit"
    told = told_of(("complete", 1000, 1100), limited_by=limited_by)
    assert told == f"model epoll carries at least 1,000 connections{more}"
    told = told_of(("complete", None, FLOOR), limited_by=limited_by)
    assert told == f"model epoll is not decided: it was not seen whether it carries 100 connections{more}"


@pytest.mark.parametrize(("subject", "called"), [("nginx", "nginx"), (None, "the server")])
def test_a_search_without_a_matrix_is_of_its_subject(subject: str | None, called: str) -> None:
    run = run_of([(1000, 1100)])
    run.search = SearchSettingsRecord(over="load.rate", lowest=FLOOR, highest=MOST, subject=subject)
    run.searches[0].setting = {}
    [capacity] = describe_searches(run)
    assert capacity.text == f"{called} carries 1,000 requests/s and not 1,100, with "
    assert searched_key(run) == "rate"


def test_how_an_answer_was_confirmed_and_which_loads_were_given_up_is_said() -> None:
    """They stood in run.json alone."""
    search = SearchRecord(number=1, block=1, point=0, state="complete", lower=1000, upper=1050)
    assert confirmation(search) == ""
    told = confirmation(search.model_copy(update={"confirmed": 8, "unconfirmed": [1100, 1050]}))
    assert told == ("8 of 8 fresh trials passed at 1,000; given up, as fresh trials failed there: 1,100 and 1,050")
    # Where its patience ended after six of six, or seven of seven, none had failed.
    for state, passed, words in (
        ("complete", 7, "7 of 8 fresh trials passed at 1,000"),
        ("out of patience", 8, "8 of the 8 fresh trials that it asks for passed at 1,000"),
        ("out of patience", 7, "7 of the 8 fresh trials that it asks for passed at 1,000"),
        ("interrupted", 6, f"6 fresh trials had{UNTIL_ITS_END}"),
        ("complete", 1, f"1 fresh trial had{UNTIL_ITS_END}"),
    ):
        assert confirmation(search.model_copy(update={"state": state, "confirmed": passed})) == words
