"""What a trial of a search says, at the edges of what it is judged by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from made_search_trials import GOOD, MACHINE, SUITE

from plimsoll_lab.analysis.search_trial import broken_by, loss_ratio, never_told, over_a_rate, reading_of, what_broke
from plimsoll_lab.analysis.short_of import crowded, out_of_cpu, share_cpus
from plimsoll_lab.store.records import MachineRecord, ResultWarning, ServerRecord, TrialRecord
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.spec import Limit, Placement, Point, Suite

P99_US, RATE_PER_S = "response_time_us.p99", "completed_rate"
SHORT = ResultWarning(code="window_too_short", message="too short", remedy="longer")
P99, RATE = ("response_time.p99", "< 50ms"), (RATE_PER_S, "> 1k")


def changed(trial: TrialRecord = GOOD, /, **figures: float | None) -> TrialRecord:
    """The trial with other figures, and without those that are None."""
    named = {name.replace("__", "."): value for name, value in figures.items()}
    return replace(
        trial, figures={name: value for name, value in {**trial.figures, **named}.items() if value is not None}
    )


def asked(*limits: tuple[str, str], over: str = "load.connections") -> Suite:
    assert SUITE.search is not None
    read = tuple(read_limit(figure, condition, source="it.toml") for figure, condition in limits)
    return replace(SUITE, limits=read, search=replace(SUITE.search, over=over))


BAD = changed(response_time_us__p99=80_000.0)
LATE = replace(GOOD, outcome="generator_limited", reason="it was late")


def test_only_a_search_over_a_rate_is_one() -> None:
    assert over_a_rate(SUITE)
    assert not over_a_rate(asked(P99))
    assert not over_a_rate(replace(SUITE, search=None))


@pytest.mark.parametrize(
    ("low", "high", "lost", "met"),
    [
        (0.005, 0.006, 0.0, None),
        (0.0051, 0.006, 0.01, False),
        (0.0, 0.005, 0.0, None),
        (0.0, 0.0049, 0.0, True),
        (0.3, 0.4, 0.3, False),
        (0.95, 0.99, 0.9, False),
    ],
)
def test_a_backlog_may_grow_by_half_a_percent_of_the_rate(
    low: float, high: float, lost: float, *, met: bool | None
) -> None:
    telling = replace(GOOD, load={**GOOD.load, "command": ["plimsoll", "load", "--timeseries", "x.jsonl"]})
    grown = changed(telling, backlog_growth__low=low, backlog_growth__high=high)
    assert loss_ratio(grown, SUITE) == pytest.approx(lost)
    assert reading_of(grown, SUITE).met is met
    assert loss_ratio(grown, asked(P99)) == 0


def test_a_window_that_was_too_short_is_off_by_half_or_by_what_it_misses() -> None:
    short = replace(GOOD, warnings=(SHORT,))
    reading = reading_of(short, asked(P99))
    assert (reading.met, reading.excess) == (False, None)
    assert loss_ratio(changed(short, response_time_us__p99=1e9), asked(P99)) == 0.9
    other = replace(SHORT, code="steal")
    assert loss_ratio(replace(GOOD, warnings=(other,)), asked(P99)) == 0
    assert loss_ratio(replace(GOOD, warnings=(other, SHORT)), asked(P99)) == 0.5


@pytest.mark.parametrize(
    ("limits", "figures", "excess"),
    [
        # Neither a limit of zero nor a figure of zero has a logarithm.
        ([(RATE_PER_S, "> 0")], {}, None),
        ([RATE], {"completed_rate": 0.0}, None),
        ([RATE], {"completed_rate": None}, None),
        ([P99, (RATE_PER_S, "> 0")], {}, math.log(0.8)),
        ([P99, ("requests.failed", "== 1")], {"requests__failed": 1.0}, math.log(0.8)),
        ([(RATE_PER_S, "<= 500")], {}, math.log(2)),
    ],
)
def test_the_excess_is_of_limits_that_have_one(
    limits: Sequence[tuple[str, str]], figures: Mapping[str, float | None], excess: float | None
) -> None:
    found = reading_of(changed(**figures), asked(*limits)).excess
    assert found == (None if excess is None else pytest.approx(excess))


@pytest.mark.parametrize(
    ("limits", "figures", "told"),
    [
        ([P99, RATE], {"response_time_us__p99": 80_000.0, "completed_rate": 500.0}, "response time, p99 at 80.0 ms"),
        ([RATE, P99], {"response_time_us__p99": 80_000.0, "completed_rate": 500.0}, "completed rate at 500/s"),
        ([P99, RATE], {"completed_rate": 500.0}, "completed rate at 500/s"),
        ([P99], {"response_time_us__p99": None}, "response time, p99 at -"),
    ],
)
def test_of_several_limits_the_first_that_was_missed_is_named(
    limits: Sequence[tuple[str, str]], figures: Mapping[str, float | None], told: str
) -> None:
    assert broken_by(changed(**figures), asked(*limits)) == told


def test_a_figure_without_a_label_is_called_by_its_name() -> None:
    suite = replace(asked(), limits=(Limit(figure="odd", operator="<", value=1.0, text="odd < 1"),))
    assert broken_by(changed(odd=2.0), suite) == "odd at 2"


def test_what_a_trial_without_a_result_was_goes_before_what_it_missed() -> None:
    stopped = replace(BAD, outcome="hard_limit", reason="no descriptors", warnings=(SHORT,))
    assert broken_by(stopped, SUITE) == "hard limit: no descriptors"
    assert broken_by(replace(BAD, warnings=(SHORT,)), SUITE) == "too short"


def test_of_as_many_that_missed_one_thing_as_another_the_first_is_named() -> None:
    p99, late = "response time, p99 at 80.0 ms", "generator limited: it was late"
    for bad, missed in (([LATE, BAD], late), ([BAD, LATE], p99), ([LATE, BAD, BAD], p99)):
        assert what_broke(SUITE, bad, bad, MACHINE).missed == missed
    slow = [changed(response_time_us__p99=each * 1000.0) for each in (60, 70)]
    assert what_broke(SUITE, slow, slow, MACHINE).missed == "response time, p99 at 70.0 ms"


def test_all_that_a_server_was_short_of_is_told_in_one_order() -> None:
    short = replace(
        changed(BAD, server__memory_bytes=1e9),
        server={"summary": {"errors": {"fd_setsize": 1, "enfile": 1, "emfile": 1, "accept": 5}}},
        load={"summary": {"errors": {"read": 1}}},
        machine={"busy_cores": 0.9, "listen_overflows": 1},
    )
    found = what_broke(SUITE, [short], [short], MACHINE)
    assert [each.code for each in found.causes] == [
        "descriptors", "descriptors", "descriptors", "listen_overflow", "errors", "cpu", "memory",
    ]  # fmt: skip
    assert [each.text.partition(" ")[2].partition(" ")[0] for each in found.causes[:3]] == ["it", "the", "select"]
    assert found.near_ceiling is None


def test_a_server_whose_cpu_is_not_known_may_have_filled_its_machine() -> None:
    full = replace(changed(BAD, server__cpu_cores=None), machine={"busy_cores": 1.9})
    assert [each.text for each in what_broke(SUITE, [full], [full], MACHINE).causes] == [
        "CPU: 1.90 of the machine's 2 CPUs were busy"
    ]
    assert not out_of_cpu([changed(BAD, server__cpu_cores=None)], [BAD], MACHINE)


def test_trials_in_which_a_server_stopped_tell_nothing_of_the_cpu_and_lack_none_at_a_higher_load() -> None:
    for outcome in ("failed", "hard_limit", "invalid"):
        stopped = replace(GOOD, outcome=outcome, reason="it stopped")
        assert what_broke(SUITE, [stopped], [stopped], MACHINE).causes == []
    assert out_of_cpu([BAD], [BAD, changed(BAD, server__cpu_cores=None)], MACHINE)
    # A machine whose CPUs nobody counted is never full.
    unknown = MACHINE.model_copy(update={"cpus": None})
    assert out_of_cpu([replace(BAD, machine={"busy_cores": 64.0})], [BAD], unknown)


@pytest.mark.parametrize(("used", "found"), [(0.971, False), (0.969, True), (1.029, False), (1.031, True)])
def test_a_thread_is_alone_with_a_cpu_where_it_uses_nearly_all_of_it(used: float, *, found: bool) -> None:
    bad = replace(changed(BAD, server__cpu_cores=used, generator__cpu_cores=0.6), machine={"busy_cores": 1.85})
    assert crowded([bad], [bad], MACHINE) is found


def test_nobody_crowds_a_machine_that_is_not_known_or_has_no_generator() -> None:
    busy = replace(changed(BAD, server__cpu_cores=0.92, generator__cpu_cores=1.0), machine={"busy_cores": 1.95})
    assert crowded([busy], [busy], MACHINE)
    assert not crowded([busy], [busy], MACHINE.model_copy(update={"cpus": None}))
    assert not crowded([changed(busy, generator__cpu_cores=None)], [busy], MACHINE)


@pytest.mark.parametrize("memory", [None, "8 GB", "1000001 kB"])
def test_memory_is_all_taken_where_the_machines_is_known(memory: str | None) -> None:
    """95 % of 1,000,001 KiB are 972,800,972.8 bytes."""
    bad = changed(BAD, server__cpu_cores=0.2, server__memory_bytes=972_800_972.0)
    assert what_broke(SUITE, [bad], [bad], MACHINE.model_copy(update={"memory": memory})).causes == []
    held = changed(bad, server__memory_bytes=972_800_973.0)
    full = MACHINE.model_copy(update={"memory": "1000001 kB"})
    assert [each.code for each in what_broke(SUITE, [held], [held], full).causes] == ["memory"]


@pytest.mark.parametrize(
    ("load", "cpus", "found"),
    [
        (("h1",), {"server": (0,)}, True),
        (("h1",), {"load": (1,)}, True),
        (("h1",), {"server": (0,), "load": (0,)}, True),
        (("h1", "h2"), {}, False),
        ((), {"server": (0,), "load": (1,)}, False),
    ],
)
def test_parts_share_cpus_unless_both_keep_to_cpus_of_their_own(
    load: tuple[str, ...], cpus: dict[str, tuple[int, ...]], *, found: bool
) -> None:
    place = Placement(server="h1", load=load, cpus=cpus)
    assert share_cpus(Point(number=0, setting={}, server={}, load={}, place=place)) is found


@pytest.mark.parametrize(
    ("summary", "lost"),
    [
        ({"requests": {"scheduled": 1000, "failed": 20}}, 0.02),
        ({"requests": {"scheduled": 1000, "timed_out": 20}}, 0.02),
        ({"requests": {"scheduled": 1000, "unsent": 20}}, 0.02),
        ({"requests": {"scheduled": 1000, "failed": 950}}, 0.9),
        ({"requests": ["none"]}, 0.0),
        (None, 0.0),
    ],
)
def test_each_way_to_lose_a_request_counts(summary: dict[str, Any] | None, lost: float) -> None:
    steady = changed(response_time_us__mean=1.0)
    assert loss_ratio(replace(steady, load={"summary": summary}), SUITE) == pytest.approx(lost)


@pytest.mark.parametrize("telling", [True, False])
def test_a_trial_that_tells_too_little_still_says_how_near_its_limit_it_was(*, telling: bool) -> None:
    """Of its backlog, and of a figure that is not known."""
    near = pytest.approx(math.log(0.8))
    if telling:
        unsure = changed(GOOD, backlog_growth__low=0.0, backlog_growth__high=0.006)
        unsure = replace(unsure, load={**GOOD.load, "command": ["plimsoll", "load", "--timeseries", "x.jsonl"]})
        found = reading_of(unsure, SUITE)
    else:
        found = reading_of(GOOD, asked(P99, ("server.memory_bytes", "< 1MiB")))
    assert found.met is None
    assert found.excess == near


def test_values_below_one_are_beyond_a_limit_by_their_ratio() -> None:
    half = asked(("failed_ratio", "< 0.5"))
    assert reading_of(changed(failed_ratio=0.25), half).excess == pytest.approx(math.log(0.5))
    assert loss_ratio(changed(failed_ratio=0.8), half) == pytest.approx(0.375)


def test_the_backlog_grew_where_no_more_than_a_hundredth_of_the_requests_was_lost() -> None:
    lost: dict[str, Any] = {"requests": {"scheduled": 1000, "failed": 10}}
    grown = changed(replace(GOOD, load={"summary": lost}), backlog_growth__low=0.02, backlog_growth__high=0.03)
    assert broken_by(grown, SUITE) == "the backlog grew by 2.0 % of the offered rate"
    lost["requests"]["failed"] = 11
    assert broken_by(grown, SUITE) == "1.1 % of the requests due were failed, too late or never sent"


def test_trials_that_missed_unlike_things_are_not_counted_together() -> None:
    """One that lost requests and one whose backlog tells nothing are two things; so are trials with
    a result that missed one limit and another, and those without a result are one thing whatever
    their figures are.
    """
    unmet = replace(
        changed(response_time_us__mean=1.0), load={"summary": {"requests": {"scheduled": 1000, "failed": 20}}}
    )
    late = "generator limited: it was late"
    assert what_broke(SUITE, [unmet, LATE, LATE, GOOD], [GOOD], MACHINE).missed == late
    slow, few = changed(response_time_us__p99=80_000.0), changed(completed_rate=500.0)
    assert what_broke(asked(P99, RATE), [few, LATE, LATE, slow], [GOOD], MACHINE).missed == late
    over = replace(LATE, figures=slow.figures)
    assert what_broke(asked(P99), [slow, over, LATE], [GOOD], MACHINE).missed == late


def test_the_middle_one_is_named_of_trials_that_are_as_far_off_as_counts() -> None:
    """All are off by nine tenths or more."""
    far = [changed(response_time_us__p99=each * 1000.0) for each in (600, 900, 700)]
    assert what_broke(SUITE, far, far, MACHINE).missed == "response time, p99 at 700 ms"


def test_a_limit_that_nobody_tells_is_found_in_long_windows_and_where_the_server_is_elsewhere() -> None:
    suite = asked(("server.memory_bytes", "< 1MiB"))

    def told(server: ServerRecord, machine: MachineRecord) -> bool:
        return never_told([replace(GOOD, server=server, machine=machine)], suite) is not None

    assert told({}, {"window_s": 1.0})
    assert not told({}, {"window_s": 0.9})
    assert not told({}, {})
    assert told({"elsewhere": True}, {"window_s": 0.5})


def test_a_server_without_a_figure_of_its_cpu_at_other_loads_is_out_of_it_all_the_same() -> None:
    """0.93 is a whole core; a trial without the figure is none that used more."""
    slow = changed(BAD, server__cpu_cores=0.93)
    assert out_of_cpu([slow], [slow, changed(BAD, server__cpu_cores=None)], MACHINE)
    assert not out_of_cpu([slow], [slow, changed(BAD, server__cpu_cores=1.2)], MACHINE)


def test_of_hosts_of_a_cluster_all_that_was_busy_is_theirs() -> None:
    """The lab may use two of four CPUs; nobody knows which host used what."""
    few = MACHINE.model_copy(update={"cpus": 2, "cpus_online": 4})
    here = replace(changed(BAD, server__cpu_cores=0.5, generator__cpu_cores=0.5), machine={"busy_cores": 1.95})
    assert what_broke(SUITE, [here], [here], few).causes == []
    there = replace(here, hosts={"clocks": []})
    assert [each.text for each in what_broke(SUITE, [there], [there], few).causes] == [
        "CPU: 1.95 of the lab's 2 CPUs were busy, 0.50 of them by the server"
    ]
