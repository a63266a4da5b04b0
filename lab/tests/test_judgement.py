"""A server at its limit, one that died and a generator at its limit are findings, and never slow
results.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from plimsoll_lab.hosts.samplers.throttle import Throttled
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary, Output, ServerSummary
from plimsoll_lab.store.records import Json, Sample
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Point, Role
from plimsoll_lab.trial.disturbance import late_figures, without_late
from plimsoll_lab.trial.limits import asks_at_most, judged_figures, missed_limits
from plimsoll_lab.trial.moments import is_closed, is_counted, steady_think_s
from plimsoll_lab.trial.observation import Observation
from plimsoll_lab.trial.validity import Judgement, judge, with_late_parts

GOOD_LOAD: Json = {
    "valid": True,
    "warnings": [],
    "failed_ratio": 0.0,
    "connections": {"requested": 100, "established": 100},
    "requests": {"scheduled": 500, "completed": 500, "failed": 0, "timed_out": 0},
    "errors": {},
}
GOOD_SERVER: Json = {"refused": 0, "errors": {"fd_setsize": 0}}
GOOD = Observation(
    server_exit=None,
    server_stderr="",
    server_summary=ServerSummary.model_validate(GOOD_SERVER),
    load_exit=0,
    load_stderr="",
    load_summary=LoadSummary.model_validate(GOOD_LOAD),
    foreign_cores=0.0,
    steal_cores=0.0,
    window_s=1.0,
    lag_s=0.001,
)
FORMS: dict[str, type[Output]] = {"load_summary": LoadSummary, "server_summary": ServerSummary, "network": LinkWindow}


def but(**changed: Any) -> Observation:  # noqa: ANN401 - of as many types as fields
    """What was seen, but for this; programs' output as they print it."""
    told = {
        key: FORMS[key].model_validate(value) for key, value in changed.items() if key in FORMS and value is not None
    }
    return replace(GOOD, **(changed | told))


LATE = {"code": "generator_late", "message": "it was late", "remedy": "more CPUs"}

FINDINGS = {
    "nothing wrong": (GOOD, "ok", None),
    # Of a closed loop beside one at a rate, which a slow server leaves no connection free.
    "unsent requests of an open loop": (
        but(load_summary=GOOD_LOAD | {"requests": {"scheduled": 1500, "completed": 304, "unsent": 1196}}),
        "ok",
        None,
    ),
    "a foreign server has no summary": (but(server_summary=None), "ok", None),
    "select at its limit": (
        but(server_summary={"refused": 7, "errors": {"fd_setsize": 7}}, load_exit=1),
        "hard_limit",
        "FD_SETSIZE",
    ),
    "refused without a cause": (but(server_summary={"refused": 7, "errors": {}}), "hard_limit", "refused 7"),
    "out of descriptors": (
        but(server_summary={"refused": 0, "errors": {"emfile": 2}}),
        "hard_limit",
        "ulimit",
    ),
    "killed": (
        but(server_exit=-11, server_stderr="a\nlast words", server_summary=None),
        "failed",
        "SIGSEGV, saying: last words",
    ),
    "killed for want of memory": (
        but(server_exit=-9, server_lacked_memory=True, server_summary=None),
        "failed",
        "killed by SIGKILL: the kernel ended it, or a process that it started, as no memory was left; use a smaller",
    ),
    "no summary": (but(load_summary=None, load_exit=5, load_stderr="no io_uring"), "failed", "no io_uring"),
    "too few connections": (
        but(load_summary=GOOD_LOAD | {"connections": {"requested": 100, "established": 99}}),
        "failed",
        "only 99 of 100",
    ),
    "requests failed": (
        but(
            load_summary=GOOD_LOAD
            | {"requests": {"completed": 90, "failed": 9, "timed_out": 1}, "errors": {"closed": 9, "timeout": 1}},
        ),
        "failed",
        "10 of 100 requests failed: 9 closed, 1 timeout",
    ),
    "the generator stood still": (
        but(closed=True, load_summary=GOOD_LOAD | {"requests": {"scheduled": 1500, "completed": 0, "unsent": 1196}}),
        "generator_limited",
        "never sent 1196 of the 1500",
    ),
    "nothing but error statuses": (
        but(
            load_summary=GOOD_LOAD
            | {
                "requests": {"completed": 0, "failed": 9},
                "errors": {"status": 9},
                "statuses": {"200": 1, "404": 8},
            },
        ),
        "failed",
        "not one request was completed in the window: status 404",
    ),
    "nothing completed": (
        but(load_summary=GOOD_LOAD | {"requests": {"completed": 0, "failed": 0}}),
        "failed",
        "not one request",
    ),
    "the generator was late": (
        but(load_exit=4, load_summary=GOOD_LOAD | {"valid": False, "warnings": [LATE]}),
        "generator_limited",
        "it was late",
    ),
    "the generator was late on a busy machine": (
        but(load_summary=GOOD_LOAD | {"valid": False, "warnings": [LATE]}, foreign_cores=1.5),
        "invalid",
        "other programs used 1.50 cores during the window, and it was late",
    ),
    "invalid for another reason": (
        but(load_exit=4, load_summary=GOOD_LOAD | {"valid": False, "warnings": [LATE | {"code": "clock"}]}),
        "invalid",
        "it was late",
    ),
}


@pytest.mark.parametrize("name", FINDINGS)
def test_what_was_seen_decides_the_outcome(name: str) -> None:
    seen, outcome, said = FINDINGS[name]
    judgement = judge(seen)
    assert judgement.outcome == outcome
    assert (said is None) == (judgement.reason is None)
    assert said is None or said in str(judgement.reason)


TAIL = ["response_time_us.max", "response_time_us.p99"]
MEDIAN_TOO = [*TAIL, "response_time_us.p50"]
LATE_TAIL = GOOD_LOAD | {
    "valid": False,
    "warnings": [LATE],
    "doubted": TAIL,
    "completed_rate": 500.0,
    "schedule_lag_us": {"mean": 10.0},
}


VALID_TAIL = LATE_TAIL | {"valid": True, "warnings": [], "doubted": [*TAIL, "response_time_us.mean"]}


def test_doubtful_figures_of_a_generator_that_kept_up_are_left_out_too() -> None:
    judgement = judge(but(load_summary=VALID_TAIL))
    assert (judgement.outcome, judgement.untold) == ("ok", (*TAIL, "response_time_us.mean"))


def test_a_limit_that_lateness_leaves_met_is_met_and_one_that_it_leaves_missed_is_the_generators() -> None:
    p99 = frozenset({"response_time_us.p99"})
    met = judge(but(load_summary=VALID_TAIL, limited=p99))
    assert (met.outcome, met.untold) == ("ok", ("response_time_us.max", "response_time_us.mean"))
    missed = judge(but(load_summary=VALID_TAIL, limited=p99, missed=p99))
    assert (missed.outcome, missed.untold) == ("generator_limited", ())
    assert "half or more of response_time_us.p99, which misses its limit" in str(missed.reason)
    assert judge(but(load_summary=GOOD_LOAD, limited=p99, missed=p99)).outcome == "ok", "the server's own"


def test_a_limit_is_held_against_what_the_generator_printed() -> None:
    limits = '[limits]\n"response_time_us.p99" = "< 5ms"\n"response_time_us.p50" = "< 1ms"\n'
    suite = read_text(
        'name = "it"\nquestion = "?"\n[server]\n[load]\nduration = "1s"\n' + limits, source="it.toml", directory="/here"
    )
    told = {"response_time_us.p99": 9000.0, "response_time_us.p50": 20.0}
    assert missed_limits(suite.limits, told) == {"response_time_us.p99"}
    assert missed_limits(suite.limits, {}) == frozenset()


def test_a_limit_on_the_figure_of_one_late_generator_is_held_as_that_on_all() -> None:
    """It counted as missed by the server, whether or not it was met: the figure was left out."""
    p99, p90 = "role.shop.response_time_us.p99", "role.shop.response_time_us.p90"
    good = Judgement(outcome="ok", reason=None, warnings=(), untold=("response_time_us.max",))
    met = with_late_parts(good, [p90, p99], limited={p99}, missed=())
    assert (met.outcome, met.untold) == ("ok", ("response_time_us.max", p90))
    missed = with_late_parts(good, [p90, p99], limited={p99}, missed={p99})
    assert missed.outcome == "generator_limited"
    assert missed.reason == f"the generator's own lateness is half or more of {p99}, which misses its limit"
    assert with_late_parts(good, [p90], limited={p99}, missed={p99}).outcome == "ok", "the server's own"
    failed = replace(good, outcome="failed", reason="it died")
    assert with_late_parts(failed, [p99], limited={p99}, missed={p99}).reason == "it died"


def test_a_generator_late_at_the_tail_leaves_what_the_lag_did_not_make() -> None:
    judgement = judge(but(load_exit=4, load_summary=LATE_TAIL))
    assert (judgement.outcome, judgement.untold) == ("ok", tuple(TAIL))
    assert [warning.code for warning in judgement.warnings] == ["generator_late"]
    # Other programs explain the lateness: the trial may be made again, and is a result if not.
    assert judge(but(load_exit=4, load_summary=LATE_TAIL, foreign_cores=1.5)).outcome == "ok"
    figures = dict.fromkeys(["response_time_us.p50", "role.b.response_time_us.p99", "server.cpu_cores"], 1.0)
    spoilt = dict.fromkeys(TAIL, 1.0)
    assert without_late(figures | spoilt, judgement.untold) == figures
    # The server's own are at most what was measured, but for a standard deviation.
    stdev = {"response_time_us.stdev": 1.0}
    assert late_figures(figures | spoilt | stdev, [*judgement.untold, *stdev]) == spoilt


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({"limited": frozenset({"response_time_us.p99"})}, "generator_limited"),
        ({"load_summary": LATE_TAIL | {"doubted": MEDIAN_TOO}}, "generator_limited"),
        (
            {"load_summary": LATE_TAIL | {"warnings": [LATE, LATE | {"code": "generator_saturated"}]}},
            "generator_limited",
        ),
        ({"closed": True, "load_summary": LATE_TAIL | {"schedule_lag_us": {"mean": 3000.0}}}, "generator_limited"),
        ({"foreign_cores": 1.5, "load_summary": LATE_TAIL | {"doubted": MEDIAN_TOO}}, "invalid"),
        # Of an open loop, requests that were due were not sent: the server was not asked for them.
        (
            {"load_summary": LATE_TAIL | {"warnings": [LATE, LATE | {"code": "rate_not_offered"}]}},
            "generator_limited",
        ),
    ],
)
def test_a_generator_late_beyond_the_tail_spoils_the_whole(changed: dict[str, Any], outcome: str) -> None:
    judgement = judge(but(**({"load_exit": 4, "load_summary": LATE_TAIL} | changed)))
    assert (judgement.outcome, judgement.untold) == (outcome, ())


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({}, "ok"),
        # It misses a limit, and that may be the generator's doing.
        (
            {"missed": frozenset({"response_time_us.p99"}), "load_summary": {"doubted": MEDIAN_TOO}},
            "generator_limited",
        ),
        # Even less than half of what is missed may decide.
        ({"missed": frozenset({"response_time_us.p99"})}, "generator_limited"),
        # What is to be at least so much, or is a time from the send, lateness may have made so.
        ({"at_most": False}, "generator_limited"),
        # A backlog of the server's may hide behind requests that wait for the generator.
        ({"load_summary": {"schedule_lag_us": {"mean": 3000.0}}}, "generator_limited"),
        ({"load_summary": {"warnings": [LATE, LATE | {"code": "generator_saturated"}]}}, "generator_limited"),
        ({"load_summary": {"warnings": [LATE, LATE | {"code": "rate_not_offered"}]}}, "generator_limited"),
    ],
)
def test_a_search_takes_limits_that_are_met_for_met_though_timers_are_later_than_the_server_answers(
    changed: dict[str, Any], outcome: str
) -> None:
    """At 100 requests a second nginx answers within 140 us, and timers were 82 us late: the search
    ended at once, and said that it carries less.
    """
    mean = "response_time_us.mean"
    late = LATE_TAIL | {"doubted": ["response_time_us.p50", mean], "elapsed_s": 1.0}
    judged = frozenset({"response_time_us.p99", mean})
    seen = {"load_exit": 4, "at_most": True, "limited": judged} | changed
    judgement = judge(but(**(seen | {"load_summary": late | changed.get("load_summary", {})})))
    assert judgement.outcome == outcome
    assert judgement.untold == (("response_time_us.p50",) if outcome == "ok" else ())


@pytest.mark.parametrize(
    ("limit", "bounds"),
    [
        ('"response_time.p99" = "< 5ms"', True),
        ('"failed_ratio" = "< 1%"', True),
        ('"response_time.p50" = "> 5ms"', False),
        ('"service_time.p99" = "< 5ms"', False),
        ('"completed_rate" = "> 5"', False),
    ],
)
def test_a_late_generator_bounds_times_and_failures_from_above_and_nothing_else(limit: str, *, bounds: bool) -> None:
    text = 'name = "it"\nquestion = "?"\n[server]\n[load]\nduration = "1s"\n[limits]\n' + limit
    search = text + '\n[search]\nover = "load.rate"\nrange = [100, 60000]\n'
    assert asks_at_most(read_text(search, source="it.toml", directory="/here")) == bounds
    assert not asks_at_most(read_text(text, source="it.toml", directory="/here"))


@pytest.mark.parametrize(("over", "judged"), [("rate", True), ("connections", False)])
def test_a_search_over_a_rate_judges_by_the_mean_too_as_it_tells_a_growing_backlog(over: str, *, judged: bool) -> None:
    text = (
        'name = "it"\nquestion = "?"\n[server]\n[load]\nduration = "1s"\n'
        f'[search]\nover = "load.{over}"\nrange = [100, 60000]\n[limits]\n"response_time_us.p99" = "< 5ms"\n'
    )
    figures = judged_figures(read_text(text, source="it.toml", directory="/here"))
    assert figures == {"response_time_us.p99", *(["response_time_us.mean"] if judged else [])}


def test_a_limit_of_the_server_goes_before_a_late_generator() -> None:
    seen = but(
        server_summary={"refused": 7, "errors": {"fd_setsize": 7}},
        load_summary=GOOD_LOAD | {"valid": False, "warnings": [LATE]},
    )
    assert judge(seen).outcome == "hard_limit"


def test_warnings_about_the_machine_are_data_with_a_remedy() -> None:
    warnings = judge(but(foreign_cores=0.8, steal_cores=0.5, lag_s=0.2)).warnings
    assert [warning.code for warning in warnings] == ["machine_busy", "steal", "late_sample"]
    assert all(warning.message and warning.remedy for warning in warnings)


@pytest.mark.parametrize(("withheld_s", "is_told"), [(0.7, True), (0.5, False)])
def test_moments_without_a_cpu_that_move_a_99th_percentile_are_told(withheld_s: float, *, is_told: bool) -> None:
    """A minute may lack fifteen seconds of a core and be quiet on average."""
    warnings = judge(but(steal_cores=0.02, withheld_s=withheld_s, window_s=60.0)).warnings
    assert [warning.code for warning in warnings] == (["steal"] if is_told else [])
    assert all(f"{withheld_s:.2f} s of CPU in a few moments" in warning.message for warning in warnings)


def test_a_few_failed_requests_are_a_warning() -> None:
    summary = GOOD_LOAD | {"requests": {"completed": 99_999, "failed": 1, "timed_out": 0}, "errors": {"read": 1}}
    judgement = judge(but(load_summary=summary))
    assert judgement.outcome == "ok"
    assert [(warning.code, warning.message) for warning in judgement.warnings] == [
        ("failed_requests", "1 request failed: 1 read")
    ]


def test_of_answers_with_other_statuses_those_that_failed_are_named() -> None:
    """A redirect counts as an answer, and was named as a cause of failures."""
    statuses = {"200": 9000, "302": 90_000, "404": 3, "500": 2}
    summary = GOOD_LOAD | {
        "requests": {"completed": 99_000, "failed": 5},
        "errors": {"status": 5},
        "statuses": statuses,
    }
    [warning] = judge(but(load_summary=summary)).warnings
    assert warning.message == "5 requests failed: 5 status (3 of 404, 2 of 500)"


def test_a_window_shorter_than_the_responses_is_told_by_littles_law() -> None:
    summary = GOOD_LOAD | {"completed_rate": 200.0, "response_time_us": {"mean": 300_000.0}}
    # 100 connections at 200 a second: half a second each, of which the window of 0.4 s cannot have
    # seen any.
    short = but(load_summary=summary, window_s=0.4, think_s=0.0)
    assert [warning.code for warning in judge(short).warnings] == ["window_too_short"]
    assert judge(replace(short, window_s=4.0)).warnings == ()
    assert judge(replace(short, think_s=0.4)).warnings == ()
    assert judge(replace(short, think_s=None)).warnings == ()


LOADS: dict[str, tuple[Settings, tuple[bool, bool, float | None]]] = {
    "alike": ({"duration": "1s", "think": "250ms"}, (True, False, 0.25)),
    "pauses for longer": ({"duration": "1s", "think": "1s"}, (True, False, None)),
    "at a rate": ({"duration": "1s", "rate": 100}, (False, False, None)),
    "so many requests": ({"requests": 100, "think": "250ms"}, (True, True, None)),
}


@pytest.mark.parametrize("name", LOADS)
def test_a_second_measured_load_is_part_of_what_a_trial_is_judged_by(name: str) -> None:
    """Of [load] alone a trial took the pause: beside a thousand connections that think for a second
    it said that requests take a second, and that the slow ones are missing.
    """
    settings, found = LOADS[name]
    load: Settings = {"duration": "1s", "think": "250ms"}
    second = Role(name="second", kind="load", on=None, measured=True, settings=settings)
    for measured, expected in ((True, found), (False, LOADS["alike"][1])):
        point = Point(number=0, setting={}, server={}, load=load, roles=(replace(second, measured=measured),))
        assert (is_closed(point), is_counted(point), steady_think_s(point)) == expected


def ramp(*cores: float) -> tuple[Sample, ...]:
    """Samples a tenth of a second apart, of a server that uses so many cores between them."""
    used = [0.0, *itertools.accumulate(each * 0.1 for each in cores)]
    return tuple(Sample(at_s=place * 0.1, cpu_s=cpu_s, memory_bytes=1) for place, cpu_s in enumerate(used))


STEADINESS = {
    "steady": (ramp(1, 1, 1, 1, 1, 1), []),
    "still starting": (ramp(0.1, 0.2, 0.5, 1, 1, 1), ["unstable_window"]),
    "dying away": (ramp(1, 1, 1, 0.5, 0.2, 0.1), ["unstable_window"]),
    "idle": (ramp(0.01, 0.01, 0.01, 0.05, 0.05, 0.05), []),
    "too short to tell": (ramp(0.1, 1), []),
}


@pytest.mark.parametrize("name", STEADINESS)
def test_a_window_without_a_steady_state_is_told(name: str) -> None:
    samples, codes = STEADINESS[name]
    assert [warning.code for warning in judge(but(samples=samples)).warnings] == codes


def test_a_quota_that_held_threads_back_is_told() -> None:
    assert [warning.code for warning in judge(but(throttled_s=0.2)).warnings] == ["throttled"]
    assert judge(but(throttled_s=0.001)).warnings == ()


@pytest.mark.parametrize(
    ("stat", "seconds"),
    [("nr_throttled 3\nthrottled_usec 2500000\n", 2.5), ("nr_throttled 3\nthrottled_time 2500000000\n", 2.5)],
)
def test_throttling_is_read_from_either_version_of_control_groups(tmp_path: Path, stat: str, seconds: float) -> None:
    group = tmp_path / "mount" / "a" / "b"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text("usage_usec 1\nthrottled_usec 0\n")
    (group.parent / "cpu.stat").write_text(stat)
    (tmp_path / "own").write_text("0::/a/b\n")
    throttled = Throttled(tmp_path / "own", tmp_path / "mount")
    assert throttled.read() == 0.0
    (group.parent / "cpu.stat").write_text(stat.replace("25", "75"))
    assert throttled.read() == pytest.approx(2 * seconds)
    assert Throttled(tmp_path / "none", tmp_path / "mount").read() is None


def test_throttling_at_one_level_is_seen_beside_a_longer_one_of_earlier(tmp_path: Path) -> None:
    """The longest of their whole times stayed that of the other level."""
    group = tmp_path / "mount" / "a" / "b"
    group.mkdir(parents=True)
    (group.parent / "cpu.stat").write_text("throttled_usec 1000000000\n")
    (group / "cpu.stat").write_text("throttled_usec 5000000\n")
    (tmp_path / "own").write_text("0::/a/b\n")
    throttled = Throttled(tmp_path / "own", tmp_path / "mount")
    first = throttled.read()
    (group / "cpu.stat").write_text("throttled_usec 8000000\n")
    assert (first, throttled.read()) == (0.0, 3.0)


def test_a_trial_whose_window_was_over_before_it_was_read_is_no_result() -> None:
    missed = judge(replace(GOOD, window_s=None, window_missed=True, lag_s=0.021))
    why = (
        "the window was over before the laboratory read the server, 21 ms late: what the server used in it is not known"
    )
    assert (missed.outcome, missed.reason) == ("invalid", why)
    assert [each.code for each in missed.warnings] == ["window_missed"]
    assert judge(GOOD).outcome == "ok"


def test_a_count_that_was_over_before_it_was_read_is_a_result_without_the_servers_cost() -> None:
    """A hundred requests are over in a millisecond, on any machine and every time."""
    seen = replace(GOOD, window_s=None, window_missed=True, counted=True, lag_s=0.002)
    for elapsed_s, outcome in ((0.001, "ok"), (0.19, "ok"), (0.2, "invalid")):
        short = judge(replace(seen, load_summary=LoadSummary.model_validate(GOOD_LOAD | {"elapsed_s": elapsed_s})))
        assert (short.outcome, [each.code for each in short.warnings]) == (outcome, ["window_missed"])
