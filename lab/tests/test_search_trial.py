"""What one trial says to a search, and what broke first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from made_search_trials import BAD, GOOD, MACHINE, SUITE, figures

from plimsoll_lab.analysis.limiter import held_up
from plimsoll_lab.analysis.search_trial import broken_by, loss_ratio, misses_a_limit, never_told, reading_of, what_broke
from plimsoll_lab.store.records import CutRecord, Json, ResultWarning, TrialRecord
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.read import read_file
from plimsoll_lab.suite.spec import Suite


def codes(bad: TrialRecord, every: tuple[TrialRecord, ...] = ()) -> list[str]:
    return [each.code for each in what_broke(SUITE, [bad, bad, GOOD], (GOOD, bad, *every), MACHINE).causes]


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
    assert broken_by(replace(telling, figures=grown), SUITE) == "the backlog grew by 0.6 % of the offered rate"
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
    late = ResultWarning(code="window_missed", message="it was over", remedy="longer")
    missed = replace(disturbed, cut=None, warnings=(late,))
    assert reading_of(missed, SUITE).met is None
    assert what_broke(SUITE, [missed], [missed], MACHINE).missed == (
        "each count was over before the laboratory read the server, and 'response_time.p99 < 50ms' is not known"
    )
    assert reading_of(replace(missed, warnings=()), SUITE).met is False


def asked(*limits: tuple[str, str], over: str = "load.connections") -> Suite:
    """A search over connections, for which no backlog counts."""
    assert SUITE.search is not None
    read = tuple(read_limit(figure, condition, source="it.toml") for figure, condition in limits)
    return replace(SUITE, limits=read, search=replace(SUITE.search, over=over))


P99, RATE = ("response_time.p99", "< 50ms"), ("completed_rate", "> 1k")


@pytest.mark.parametrize(
    ("limits", "changed", "lost"),
    [
        # 80 ms are 3 / 8 beyond 50 ms; at least a hundredth is told, and at most nine tenths.
        ([P99], {"response_time_us.p99": 80_000.0}, 0.375),
        ([P99], {"response_time_us.p99": 50_100.0}, 0.01),
        ([P99], {"response_time_us.p99": 50_000.0}, 0.01),
        ([P99], {"response_time_us.p99": 49_999.0}, 0),
        ([P99], {"response_time_us.p99": 1e9}, 0.9),
        ([P99], {"response_time_us.p99": None}, 0.9),
        ([RATE], {"completed_rate": 800.0}, 0.2),
        ([RATE], {"completed_rate": 0.0}, 0.9),
        ([("completed_rate", "> 0")], {"completed_rate": 0.0}, 0.01),
        # Of several limits the one that is furthest off.
        ([P99, RATE], {"response_time_us.p99": 80_000.0, "completed_rate": 500.0}, 0.5),
        ([], {}, 0),
    ],
)
def test_how_far_a_trial_was_off(
    limits: Sequence[tuple[str, str]], changed: Mapping[str, float | None], lost: float
) -> None:
    figures = {name: value for name, value in {**GOOD.figures, **changed}.items() if value is not None}
    assert loss_ratio(replace(GOOD, figures=figures), asked(*limits)) == pytest.approx(lost)


def test_a_trial_without_a_result_is_half_off() -> None:
    for outcome in ("failed", "generator_limited", "invalid", "hard_limit"):
        assert loss_ratio(replace(GOOD, outcome=outcome), asked(P99)) == 0.5


@pytest.mark.parametrize(
    ("requests", "lost", "told"),
    [
        ({"scheduled": 1000, "failed": 4, "timed_out": 3, "unsent": 3}, 0, None),
        (
            {"scheduled": 1000, "failed": 4, "timed_out": 3, "unsent": 4},
            0.011,
            "1.1 % of the requests due were failed, too late or never sent",
        ),
        ({"scheduled": 0, "failed": 4}, 0, None),
        ({}, 0, None),
        # By Little's law 9 are in flight, and luck explains 6 more. 25 are 10 beyond, and half of a
        # growth shows at its end: 2 % of 1,000.
        ({"scheduled": 1000, "in_flight": 25}, 0.02, "the backlog grew by 2.0 % of the offered rate"),
        ({"scheduled": 1000, "in_flight": 17}, 0, None),
    ],
)
def test_over_a_rate_requests_that_were_due_and_a_backlog_that_grew_are_losses(
    requests: dict[str, int], lost: float, told: str | None
) -> None:
    """Of ten in a thousand nothing is said, nor of a growth by half a percent."""
    steady = {**GOOD.figures, "response_time_us.mean": 9000.0}
    found = replace(GOOD, figures=steady, load={"summary": {"requests": requests}})
    assert loss_ratio(found, asked(P99, over="load.rate")) == pytest.approx(lost)
    assert loss_ratio(found, asked(P99)) == 0
    if told is not None:
        assert broken_by(found, asked(P99, over="load.rate")) == told


def test_a_backlog_is_blamed_only_where_it_counts() -> None:
    """In a search over connections at a fixed rate it was, where the limit's figure is unknown."""
    cut = CutRecord(
        moments=1, share=0.01, requests=1, touched=1, completed_rate=None, bounds={}, estimates={}, doubted=[]
    )
    known = {name: value for name, value in GOOD.figures.items() if not name.endswith("p99")}
    grown = replace(GOOD, cut=cut, figures={**known, "backlog_growth.low": 0.3, "backlog_growth.high": 0.4})
    assert broken_by(grown, asked(P99)) == (
        "the emulator disturbed each trial, and 'response_time.p99 < 50ms' is not known without that"
    )
    assert broken_by(grown, asked(P99, over="load.rate")) == "the backlog grew by 30.0 % of the offered rate"


def test_the_excess_is_of_the_limit_that_is_nearest_or_furthest_beyond() -> None:
    """40 ms of 50, and 900/s of 1,000: the logarithms of 0.8 and of 0.9."""
    both = [P99, ("completed_rate", "> 900")]
    assert reading_of(GOOD, asked(*both)).excess == pytest.approx(math.log(0.9))
    assert reading_of(GOOD, asked(both[0])).excess == pytest.approx(math.log(0.8))
    assert reading_of(GOOD, asked(("completed_rate", ">= 2k"))).excess == pytest.approx(math.log(2))
    assert reading_of(GOOD, asked(("server.memory_bytes", "< 1GiB"))).excess is None
    assert reading_of(GOOD, asked()).excess is None


def test_a_figure_that_could_not_be_read_is_no_limit_that_was_missed() -> None:
    """Memory of the host under /proc, or the host of a server elsewhere: each load "missed" it."""
    suite = asked(("host.memory_bytes", "< 1GiB"))
    assert reading_of(GOOD, suite).met is None
    short = replace(GOOD, machine={**GOOD.machine, "window_s": 0.2})
    assert never_told([short, short], suite) is None, "a longer one may"
    assert broken_by(GOOD, suite).startswith("'host.memory_bytes < 1GiB' is not known, as host.memory_bytes could not")
    whole = replace(GOOD, machine={**GOOD.machine, "window_s": 1.0})
    never = never_told([whole, whole], suite)
    assert never is not None
    assert never.figure == "host.memory_bytes"
    known = replace(whole, figures={**GOOD.figures, "host.memory_bytes": 1e9})
    assert never_told([whole, known], suite) is None
    assert never_told([replace(whole, outcome="failed")], suite) is None
    assert never_told([whole], asked(P99)) is None
    role = asked(("role.probe.response_time.p99", "< 50ms"))
    assert reading_of(GOOD, role).met is False, "a probe that nobody answers"
    assert reading_of(known, suite).met is True


def test_a_null_server_misses_a_limit_where_a_stated_one_refuses_its_figures() -> None:
    assert misses_a_limit(replace(GOOD, figures={}), asked(P99))
    assert misses_a_limit(BAD, asked(P99))
    assert not misses_a_limit(GOOD, asked(P99))
    assert not misses_a_limit(replace(GOOD, outcome="generator_limited"), asked(P99))


def test_what_was_missed_is_said_of_the_trial_in_the_middle_of_those_that_missed_the_likeliest() -> None:
    late = [replace(BAD, figures=figures(response_time_us__p99=each * 1000.0)) for each in (60, 70, 80)]
    failed = replace(GOOD, outcome="generator_limited", reason="it was late")
    assert what_broke(SUITE, [failed, *late, failed], late, MACHINE).missed == "response time, p99 at 70.0 ms"
    # It was the one in the middle of their order, whatever it missed.
    mixed = [late[2], late[0], late[1]]
    assert what_broke(SUITE, mixed, mixed, MACHINE).missed == "response time, p99 at 70.0 ms"
    assert what_broke(SUITE, [failed, late[0], failed], late, MACHINE).missed == "generator limited: it was late"
    short = replace(GOOD, warnings=(ResultWarning(code="window_too_short", message="too short", remedy="longer"),))
    assert what_broke(SUITE, [short, short, late[0]], late, MACHINE).missed == "too short"
    # Where the server was the limit although its generator was late, what it missed goes before.
    held = held_up(3_153.0, 120_000.0)
    assert what_broke(SUITE, [failed, late[0], failed], late, MACHINE, held).missed == "response time, p99 at 60.0 ms"
    spoilt = replace(GOOD, outcome="invalid", reason="the machine was busy")
    assert what_broke(SUITE, [failed, failed, spoilt], late, MACHINE, held).missed == (
        "the server holds up its generator, which is late, at 3 % of what it gets from a null server"
    )
