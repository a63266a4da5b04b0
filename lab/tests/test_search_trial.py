"""What broke first: named by what the server was short of, and by nothing where nothing tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from made_search_trials import GOOD, MACHINE, SUITE

from plimsoll_lab.analysis.limiter import held_up
from plimsoll_lab.analysis.search_trial import broken_by, loss_ratio, misses_a_limit, never_told, reading_of, what_broke
from plimsoll_lab.analysis.short_of import crowded, medians, share_cpus
from plimsoll_lab.store.records import CutRecord, Json, MachineRecord, ResultWarning, RoleRecord, TrialRecord
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.read import read_file
from plimsoll_lab.suite.spec import Placement, Point, Suite

BAD = replace(GOOD, figures={**GOOD.figures, "response_time_us.p99": 80_000.0})


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


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        (
            {"server": {"summary": {"errors": {"emfile": 1000}}}},
            "descriptors: it ran out of them 2,000 times (ulimit -n)",
        ),
        (
            {"server": {"summary": {"errors": {"enfile": 1}}}},
            "descriptors: the machine ran out of them 2 times (fs.file-max)",
        ),
        (
            {"server": {"summary": {"errors": {"fd_setsize": 7}}}},
            "descriptors: select can watch none of 1024 or above, and refused 14 connections",
        ),
        ({"machine": {"listen_overflows": 700}}, "listen queue: it overflowed 1,400 times in 2 trials"),
        (
            {"load": {"summary": {"errors": {"read": 1, "timeout": 1000, "write": 0}}}},
            "errors: 2,000 timeout, 2 read in 2 trials",
        ),
        ({"figures": figures(server__memory_bytes=972_800_000)}, "memory: it holds 928 MiB, all that the machine has"),
        ({"machine": {"busy_cores": 1.9}}, "CPU: 1.90 of the machine's 2 CPUs were busy, 0.21 of them by the server"),
    ],
)
def test_each_shortage_has_its_words(changed: dict[str, Any], text: str) -> None:
    """95 % of a million KiB is 972,800,000 bytes, and of two CPUs 1.9."""
    idle = replace(BAD, figures=figures(server__cpu_cores=0.21))
    bad = replace(
        idle, **{**changed, "figures": {**idle.figures, **changed.get("figures", {}), "server.cpu_cores": 0.21}}
    )
    found = what_broke(SUITE, [bad, bad], [bad], MACHINE)
    assert [each.text for each in found.causes] == [text]


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"server": {"summary": {"errors": {"emfile": 1}}}}, "descriptors: it ran out of them 1 time (ulimit -n)"),
        (
            {"server": {"summary": {"errors": {"fd_setsize": 1}}}},
            "descriptors: select can watch none of 1024 or above, and refused 1 connection",
        ),
        ({"machine": {"listen_overflows": 1}}, "listen queue: it overflowed 1 time in 1 trial"),
        ({"load": {"summary": {"errors": {"read": 1}}}}, "errors: 1 read in 1 trial"),
    ],
)
def test_what_was_seen_once_is_said_of_one(changed: dict[str, Any], text: str) -> None:
    """It was "1 times in 1 trials"."""
    bad = replace(BAD, **{**changed, "figures": {**BAD.figures, "server.cpu_cores": 0.21}})
    assert [each.text for each in what_broke(SUITE, [bad], [bad], MACHINE).causes] == [text]


@pytest.mark.parametrize(
    ("used", "more", "limit"),
    [
        (0.9, 0.9, True),
        (0.89, 0.89, False),
        (1.09, 1.09, True),
        (1.11, 1.11, False),
        (1.8, 1.8, True),
        (1.79, 1.79, False),
        (0.4, 0.4, False),
        # A twentieth more at a higher load is no more.
        (1.0, 1.05, True),
        (1.0, 1.06, False),
        # Of any number above 4.5 it was said: each is within a tenth of a whole one.
        (3.76, 3.76, True),
        (3.74, 3.74, False),
        (5.4, 5.4, False),
        (7.76, 7.76, True),
        (8.3, 8.3, False),
        (31.7, 31.7, False),
        (32.2, 32.2, True),
    ],
)
def test_a_server_is_out_of_cpu_at_a_whole_number_of_cores_that_it_never_leaves(
    used: float, more: float, *, limit: bool
) -> None:
    bad, beyond = (
        replace(BAD, setting={"load.rate": rate}, figures=figures(server__cpu_cores=each))
        for rate, each in ((100, used), (200, more))
    )
    found = what_broke(SUITE, [bad], [bad, beyond], MACHINE).causes
    assert [each.text for each in found] == (
        [f"CPU: it uses {used:.2f} cores there, and no more at any higher load"] if limit else []
    )


@pytest.mark.parametrize(
    ("rate", "told", "more"),
    [(200, True, ", and no more at any higher load"), (200, False, ""), (100, True, ""), (50, True, "")],
)
def test_no_more_cpu_at_a_higher_load_is_said_only_where_such_a_load_told_it(
    rate: int, more: str, *, told: bool
) -> None:
    """It was said of the highest load that was tried, too."""
    bad = replace(BAD, setting={"load.rate": 100})
    other = replace(BAD, setting={"load.rate": rate}, figures=BAD.figures if told else {})
    [cause] = what_broke(SUITE, [bad], [bad, other], MACHINE).causes
    assert cause.text == f"CPU: it uses 0.97 cores there{more}"


@pytest.mark.parametrize(
    ("busy", "generator", "found"), [(1.8, 0.2, True), (1.79, 1.0, False), (2.0, 0.19, False), (None, 1.0, False)]
)
def test_a_machine_is_crowded_where_all_of_it_is_busy_and_a_good_part_with_the_generator(
    *, busy: float | None, generator: float, found: bool
) -> None:
    machine: MachineRecord = {} if busy is None else {"busy_cores": busy}
    bad = replace(BAD, machine=machine, figures=figures(server__cpu_cores=0.92, generator__cpu_cores=generator))
    assert crowded([bad, bad], [bad], MACHINE) is found
    # Also where the generator was late, as it would be there.
    late = replace(bad, outcome="generator_limited")
    assert crowded([late, late], [bad], MACHINE) is found
    # Not where the server refused connections, or died: that is its own doing.
    for outcome in ("hard_limit", "failed"):
        assert not crowded([replace(bad, outcome=outcome)], [bad], MACHINE)


@pytest.mark.parametrize(
    ("load", "network", "cpus", "found"),
    [
        ((), None, {}, True),
        (("h1",), None, {}, True),
        (("h2",), {"links": []}, {}, True),
        # A cluster, whatever its suite says of a network: its generators are elsewhere already.
        (("h2", "h3"), None, {}, False),
        (("h1",), None, {"server": (0,), "load": (1,)}, False),
        (("h1",), None, {"server": (0, 1), "load": (1,)}, True),
    ],
)
def test_a_generator_takes_no_cpu_of_a_server_on_another_machine(
    load: tuple[str, ...], network: dict[str, object] | None, cpus: dict[str, tuple[int, ...]], *, found: bool
) -> None:
    place = Placement(server="h1", load=load, cpus=cpus)
    assert (
        share_cpus(Point(number=0, setting={}, server={}, load={}, place=place, network=cast("Any", network))) is found
    )


def test_a_thread_that_has_a_whole_cpu_and_can_use_no_more_is_its_servers_limit_beside_a_busy_generator() -> None:
    for used, found in ((1.0, False), (0.98, False), (0.96, True)):
        bad = replace(
            BAD, machine={"busy_cores": 1.85}, figures=figures(server__cpu_cores=used, generator__cpu_cores=0.6)
        )
        assert crowded([bad], [bad], MACHINE) is found
        assert crowded([replace(bad, outcome="generator_limited")], [bad], MACHINE) is found


@pytest.mark.parametrize(
    ("busy", "server", "generator", "text", "found"),
    [
        # A server elsewhere on the machine: what it uses is not known.
        (5.8, None, 1.9, None, False),
        (7.7, None, 1.9, "CPU: 7.70 of the machine's 8 CPUs were busy", True),
        # A server and a generator that the lab has started, and others beside them.
        (3.5, 1.2, 0.75, "CPU: 1.95 of the lab's 2 CPUs were busy, 1.20 of them by the server", True),
        (6.0, 1.2, 0.5, None, False),
        # Parts on CPUs that are not the lab's.
        (3.3, 1.5, 1.8, None, False),
    ],
)
def test_a_lab_that_may_use_two_of_eight_cpus_compares_with_each_what_was_busy_there(
    *, busy: float, server: float | None, generator: float, text: str | None, found: bool
) -> None:
    """It said that 5.80 of the machine's 2 CPUs were busy, and the machine was the limit."""
    used = {"server.cpu_cores": server, "generator.cpu_cores": generator}
    known = {name: value for name, value in {**BAD.figures, **used}.items() if value is not None}
    bad = replace(BAD, machine={"busy_cores": busy}, figures=known)
    environment = MACHINE.model_copy(update={"cpus_online": 8})
    assert [each.text for each in what_broke(SUITE, [bad], [bad], environment).causes] == ([text] if text else [])
    assert crowded([bad], [bad], environment) is found
    assert crowded([replace(bad, outcome="generator_limited")], [bad], environment) is found


@pytest.mark.parametrize(("cores", "found"), [(0.9, True), (0.1, False), (None, False)])
def test_the_cpu_of_further_parts_is_part_of_what_the_lab_used(*, cores: float | None, found: bool) -> None:
    """Server and generator used 1.1 of the two CPUs that the laboratory may use, a forwarder the
    rest; or other programs, on six CPUs that are not its own.
    """
    further: RoleRecord = {"name": "forwarder", "kind": "forward", "cpu_cores": cores}
    counted: RoleRecord = {"name": "load-2", "kind": "load", "cpu_cores": 0.4, "measured": True}
    bad = replace(
        BAD,
        machine={"busy_cores": 2.0},
        roles=(further, counted),
        figures=figures(server__cpu_cores=0.7, generator__cpu_cores=0.4),
    )
    # One that died within the window had used nothing by then.
    died = replace(bad, outcome="failed", roles=({**further, "cpu_cores": 0.0}, counted))
    assert crowded([bad, died, died], [bad], MACHINE.model_copy(update={"cpus_online": 8})) is found


@pytest.mark.parametrize(("busy", "found"), [(2.0, True), (2.11, False), (1.79, False)])
def test_over_emulated_links_all_that_was_busy_is_theirs_where_it_is_no_more_than_the_labs_cpus(
    *, busy: float, found: bool
) -> None:
    """What the emulator uses is in no figure of a trial."""
    used = figures(server__cpu_cores=0.7, generator__cpu_cores=0.4)
    bad = replace(BAD, machine={"busy_cores": busy}, network={"links": []}, figures=used)
    assert crowded([bad], [bad], MACHINE.model_copy(update={"cpus_online": 8})) is found


def test_nothing_is_said_of_a_machine_that_is_not_known() -> None:
    unknown = MACHINE.model_copy(update={"cpus": None, "memory": None})
    bad = replace(BAD, machine={"busy_cores": 9.0}, figures=figures(server__memory_bytes=1e15, server__cpu_cores=0.21))
    assert what_broke(SUITE, [bad], [bad], unknown).causes == []
    full = replace(
        bad, machine={"busy_cores": 1.89}, figures=figures(server__memory_bytes=972e6, server__cpu_cores=0.2)
    )
    assert what_broke(SUITE, [full], [full], MACHINE).causes == [], "just below both"


def test_medians_are_of_trials_with_a_result_and_the_figure() -> None:
    made = [replace(GOOD, figures={"a": value}) for value in (1.0, 5.0, 2.0)]
    assert medians([*made, replace(made[1], outcome="invalid"), GOOD], ("a", "b")) == {"a": 2.0}
