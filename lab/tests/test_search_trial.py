"""What broke first: named by what the server was short of, and by nothing where nothing tells."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from made_records import ENVIRONMENT

from plimsoll_lab.analysis.search_trial import broken_by, loss_ratio, reading_of, what_broke
from plimsoll_lab.store.records import CutRecord, Json, ResultWarning, TrialRecord
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.read import read_file, read_text
from plimsoll_lab.suite.spec import Suite

SUITE = read_text(
    """
name = "it"
question = "Well?"
[server]
[load]
duration = "1s"
[limits]
"response_time.p99" = "<50ms"
[search]
over = "load.rate"
range = [1, 1000]
""",
    source="it.toml",
    directory="/here",
)
GOOD = TrialRecord(
    number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0, elapsed_s=1,
    figures={
        "completed_rate": 1000.0, "response_time_us.mean": 10_000.0, "response_time_us.p99": 40_000.0,
        "server.cpu_cores": 0.97,
    },
    server={"summary": {"errors": {}}},
    load={"summary": {"requests": {"scheduled": 1000, "failed": 0, "timed_out": 0, "unsent": 0}, "errors": {}}},
    machine={"busy_cores": 0.9},
)  # fmt: skip
BAD = replace(GOOD, figures={**GOOD.figures, "response_time_us.p99": 80_000.0})
MACHINE = ENVIRONMENT.model_copy(update={"memory": "1000000 kB"})


def codes(bad: TrialRecord, every: tuple[TrialRecord, ...] = ()) -> list[str]:
    return [each.code for each in what_broke(SUITE, [bad, bad, GOOD], (GOOD, bad, *every), MACHINE).causes]


def figures(**changed: float) -> Mapping[str, float]:
    return {**BAD.figures, **{name.replace("__", "."): value for name, value in changed.items()}}


def test_a_limit_that_is_missed_is_a_loss_and_one_that_is_met_is_none() -> None:
    assert loss_ratio(GOOD, SUITE) == 0
    assert 0.3 < loss_ratio(BAD, SUITE) < 0.5
    assert broken_by(BAD, SUITE) == "response time, p99 at 80.0 ms"


def test_a_limit_whose_figure_was_cut_away_is_neither_met_nor_missed() -> None:
    cut = CutRecord(
        moments=1, share=0.1, requests=9, touched=0, completed_rate=90.0, bounds={}, estimates={}, doubted=()
    )
    unknown = replace(GOOD, cut=cut, figures={"server.cpu_cores": 0.97})
    assert reading_of(unknown, SUITE).met is None
    assert reading_of(replace(unknown, cut=None), SUITE).met is False, "a trial without a reason for it"
    assert reading_of(replace(BAD, cut=cut), SUITE).met is False


def test_exact_limits_are_met_or_missed_and_guide_no_search() -> None:
    def asked(condition: str) -> Suite:
        return replace(SUITE, limits=(read_limit("statuses.503", condition, source="it.toml"),))

    def answered(count: float) -> TrialRecord:
        return replace(GOOD, figures={**GOOD.figures, "statuses.503": count})

    for condition, count, met in (("== 0", 0, True), ("== 0", 2, False), ("== 2", 2, True), ("!= 2", 2, False)):
        assert (loss_ratio(answered(count), asked(condition)) == 0) is met, (condition, count)
        assert reading_of(answered(count), asked(condition)).excess is None
    assert broken_by(answered(2), asked("== 0")).startswith("answers with status 503 at 2")
    assert loss_ratio(GOOD, asked("== 0")) > 0, "a trial that has no such figure met nothing"


@pytest.mark.parametrize(
    ("figure", "value", "told"),
    [
        ("connections.never_established", 3, "connections never established at "),
        ("requests.timed_out", 1, "requests timed out at "),
        ("response_time_us.p99", 1.5e6, "response time, p99 at "),
    ],
)
def test_the_most_connections_end_at_a_refusal_a_silence_or_a_stated_time(figure: str, value: float, told: str) -> None:
    suite = read_file(shipped.find("most-connections"))
    met = {"connections.never_established": 0, "requests.timed_out": 0, "response_time_us.p99": 4e4}
    assert loss_ratio(replace(GOOD, figures=met), suite) == 0
    beyond = replace(GOOD, figures=met | {figure: value})
    assert loss_ratio(beyond, suite) > 0
    assert broken_by(beyond, suite).startswith(told)


def test_requests_that_were_due_and_not_answered_are_lost() -> None:
    summary: Json = {"requests": {"scheduled": 1000, "failed": 5, "timed_out": 5, "unsent": 10}}
    assert loss_ratio(replace(GOOD, load={"summary": summary}), SUITE) == 0.02


def test_a_window_that_saw_only_the_quick_requests_is_a_loss() -> None:
    short = replace(GOOD, warnings=(ResultWarning(code="window_too_short", message="too short", remedy="longer"),))
    assert loss_ratio(short, SUITE) == 0.5
    assert broken_by(short, SUITE) == "too short"


def test_over_a_rate_a_trial_confirms_only_what_shows_that_its_backlog_does_not_grow() -> None:
    summary = GOOD.load["summary"]
    telling = replace(GOOD, load={"summary": summary, "command": ["plimsoll", "load", "--timeseries", "x.jsonl"]})
    assert reading_of(telling, SUITE).met is None, "too short for a bound"
    for low, high, met in ((-0.001, 0.004, True), (-0.001, 0.006, None), (0.006, 0.01, False)):
        grown = {**GOOD.figures, "backlog_growth.low": low, "backlog_growth.high": high}
        assert reading_of(replace(telling, figures=grown), SUITE).met is met
    assert broken_by(replace(telling, figures=grown), SUITE) == "the backlog grew by 0.6% of the offered rate"
    assert reading_of(GOOD, SUITE).met is True, "a generator that forks tells of no second"
    assert reading_of(GOOD, SUITE).excess == pytest.approx(math.log(0.8))
    assert reading_of(BAD, SUITE).excess == pytest.approx(math.log(1.6))
    assert reading_of(replace(GOOD, outcome="failed"), SUITE).excess is None


def test_a_trial_whose_mean_was_cut_away_shows_no_growth_of_its_backlog() -> None:
    # A hundred milliseconds of a thousand requests a second: a hundred are always in flight.
    summary: Json = {"requests": {"scheduled": 10_000, "in_flight": 100}}
    command = ["plimsoll", "load", "--timeseries", "x.jsonl"]
    steady = {**GOOD.figures, "response_time_us.mean": 100_000.0}
    bounds = {"backlog_growth.low": -0.001, "backlog_growth.high": 0.004}
    whole = replace(GOOD, load={"summary": summary, "command": command}, figures=steady | bounds)
    assert reading_of(whole, SUITE).met is True
    cut = {name: value for name, value in steady.items() if name != "response_time_us.mean"}
    for forks in (False, True):
        unknown = replace(whole, figures=cut, load={"summary": summary, "command": command[: 2 if forks else 4]})
        assert loss_ratio(unknown, SUITE) == 0
        assert reading_of(unknown, SUITE).met is None, "neither shown to grow nor not to"
    growing = replace(whole, load={"summary": {"requests": {"scheduled": 10_000, "in_flight": 400}}}, figures=steady)
    assert reading_of(growing, SUITE).met is False


def test_what_the_server_was_short_of_is_named() -> None:
    more = replace(BAD, figures=figures(server__cpu_cores=1.5))
    assert codes(BAD, (more,)) == [], "it uses more CPU at a higher load, so the CPU was not its limit"
    assert codes(BAD) == ["cpu"]
    waiting = replace(BAD, figures=figures(server__cpu_cores=0.21))
    assert codes(waiting, (waiting,)) == [], "a server that stays at a fifth of a core waits for something else"
    assert codes(replace(BAD, machine={"busy_cores": 1.99}), (more,)) == ["cpu"]
    assert codes(replace(BAD, machine={"listen_overflows": 7}), (more,)) == ["listen_overflow"]
    assert codes(replace(BAD, server={"summary": {"errors": {"emfile": 3}}}), (more,)) == ["descriptors"]
    assert codes(replace(BAD, load={"summary": {"errors": {"timeout": 3, "read": 0}}}), (more,)) == ["errors"]
    assert codes(replace(BAD, figures=figures(server__memory_bytes=1e9)), (more,)) == ["memory"]


def test_a_load_whose_trials_do_not_show_that_it_lasts_breaks_by_that() -> None:
    """Every trial there met the limits, as far as it told: the search ended in an error instead of
    its answer.
    """
    telling = replace(GOOD, load={**GOOD.load, "command": ["plimsoll", "load", "--timeseries", "x.jsonl"]})
    assert reading_of(telling, SUITE).met is None
    assert what_broke(SUITE, [telling, telling], [telling], MACHINE).missed == (
        "no trial, however long, showed that the backlog does not grow"
    )
    cut = CutRecord(
        moments=1, share=0.01, requests=1, touched=1, completed_rate=None, bounds={}, estimates={}, doubted=[]
    )
    figures_kept = {name: value for name, value in GOOD.figures.items() if not name.endswith("p99")}
    disturbed = replace(GOOD, figures=figures_kept, cut=cut)
    assert what_broke(SUITE, [disturbed], [disturbed], MACHINE).missed == (
        "the emulator disturbed each trial, and 'response_time.p99 < 50ms' is not known without that"
    )
