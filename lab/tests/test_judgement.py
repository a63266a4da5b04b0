"""A server at its limit, one that died and a generator at its limit are findings, and never slow
results.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.family import is_told_less, value_of
from plimsoll_lab.analysis.repeats import as_first_measured, repeats_that_decide
from plimsoll_lab.analysis.run_warnings import run_warnings
from plimsoll_lab.experiment.run import lasting_causes, with_discarded_attempt
from plimsoll_lab.hosts.samplers.throttle import read_throttled_s
from plimsoll_lab.stats.best import FigureComparison, Value
from plimsoll_lab.stats.verdict import Verdict, decide
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary, Output, ServerSummary
from plimsoll_lab.store.records import CutRecord, Json, Outcome, ResultWarning, Sample, TrialRecord
from plimsoll_lab.store.run_record import Status
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.trial.disturbance import without_late
from plimsoll_lab.trial.lifecycle import judged_figures, missed_limits
from plimsoll_lab.trial.retry import retry_reason
from plimsoll_lab.trial.validity import Observation, judge

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
        but(load_summary=GOOD_LOAD | {"requests": {"scheduled": 1500, "completed": 0, "unsent": 1196}}),
        "generator_limited",
        "never sent 1196 of the 1500",
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
    assert missed_limits(suite, {"response_time_us": {"p99": 9000.0, "p50": 20.0}}) == {"response_time_us.p99"}
    assert missed_limits(suite, {}) == frozenset()


def test_a_generator_late_at_the_tail_leaves_what_the_lag_did_not_make() -> None:
    judgement = judge(but(load_exit=4, load_summary=LATE_TAIL))
    assert (judgement.outcome, judgement.untold) == ("ok", tuple(TAIL))
    assert [warning.code for warning in judgement.warnings] == ["generator_late"]
    # Other programs explain the lateness: the trial may be made again, and is a result if not.
    assert judge(but(load_exit=4, load_summary=LATE_TAIL, foreign_cores=1.5)).outcome == "ok"
    figures = dict.fromkeys(["response_time_us.p50", "role.b.response_time_us.p50", "server.cpu_cores"], 1.0)
    spoilt = dict.fromkeys([*TAIL, "role.b.response_time_us.p99"], 1.0)
    assert without_late(figures | spoilt, judgement.untold) == figures


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


def test_a_few_failed_requests_are_a_warning() -> None:
    summary = GOOD_LOAD | {"requests": {"completed": 99_999, "failed": 1, "timed_out": 0}, "errors": {"read": 1}}
    judgement = judge(but(load_summary=summary))
    assert judgement.outcome == "ok"
    assert [warning.code for warning in judgement.warnings] == ["failed_requests"]


def test_a_window_shorter_than_the_responses_is_told_by_littles_law() -> None:
    summary = GOOD_LOAD | {"completed_rate": 200.0, "response_time_us": {"mean": 300_000.0}}
    # 100 connections at 200 a second: half a second each, of which the window of 0.4 s cannot have
    # seen any.
    short = but(load_summary=summary, window_s=0.4, think_s=0.0)
    assert [warning.code for warning in judge(short).warnings] == ["window_too_short"]
    assert judge(replace(short, window_s=4.0)).warnings == ()
    assert judge(replace(short, think_s=0.4)).warnings == ()
    assert judge(replace(short, think_s=None)).warnings == ()


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
    assert read_throttled_s(tmp_path / "own", tmp_path / "mount") == pytest.approx(seconds)
    assert read_throttled_s(tmp_path / "none", tmp_path / "mount") is None


def trial(outcome: Outcome, *codes: str, window_s: float = 1.0) -> TrialRecord:
    return TrialRecord(
        number=1, block=1, point=0, setting={}, outcome=outcome, reason="it was so", started_unix_s=0, elapsed_s=1,
        warnings=[ResultWarning(code=code, message=f"{code} was seen", remedy="less of it") for code in codes],
        figures={}, server={}, load={}, machine={"window_s": window_s},
    )  # fmt: skip


def test_what_may_be_gone_the_next_time_is_worth_another_trial() -> None:
    assert retry_reason(trial("invalid", "machine_busy")) == "it was so"
    assert retry_reason(trial("invalid")) is None
    assert retry_reason(trial("ok", "machine_busy")) == "machine_busy was seen"
    assert retry_reason(trial("ok", "link_disturbed")) == "link_disturbed was seen"
    assert retry_reason(trial("ok", "unstable_window")) is None
    assert retry_reason(trial("ok", "machine_busy", window_s=0.05)) is None
    assert retry_reason(trial("hard_limit", "steal")) is None
    assert retry_reason(trial("ok")) is None


def test_a_generator_at_its_limit_is_not_asked_again_for_that_would_choose_among_the_fastest() -> None:
    assert retry_reason(trial("generator_limited", "machine_busy")) is None


def test_a_discarded_measurement_keeps_its_outcome_and_figures() -> None:
    discarded = replace(trial("ok", "steal"), figures={"completed_rate": 7.0})
    (attempt,) = with_discarded_attempt(discarded, trial("ok")).attempts
    assert (attempt.outcome, attempt.figures, attempt.cause) == ("ok", {"completed_rate": 7.0}, "steal")
    record = with_discarded_attempt(discarded, trial("ok"))
    assert list(TrialRecord.from_json(json.loads(json.dumps(record.to_json()))).attempts) == list(record.attempts)


def test_a_first_measurement_is_judged_by_its_own_warnings_and_its_own_cut() -> None:
    """A rate that a late generator beside another program told was a lower bound; by the warnings
    of the last attempt it was none at all.
    """
    cut = CutRecord(
        moments=1, share=0.1, requests=3, touched=1, completed_rate=7.0, estimates={}, doubted=(),
        bounds={"response_time_us.p50": (1.0, 2.0)},
    )  # fmt: skip
    figures = {"completed_rate": 7.0, "response_time_us.p50": 1.5}
    spoilt = replace(trial("invalid", "machine_busy", "generator_late"), figures=figures)
    record = with_discarded_attempt(spoilt, replace(trial("ok"), figures={"completed_rate": 9.0}))
    first = as_first_measured(TrialRecord.from_json(json.loads(json.dumps(record.to_json()))))
    assert value_of(first, "completed_rate") == (7.0, math.inf)
    disturbed = replace(trial("ok", "link_disturbed"), figures=figures, cut=cut)
    again = as_first_measured(with_discarded_attempt(disturbed, replace(trial("ok"), figures=figures)))
    assert value_of(again, "response_time_us.p50") == (1.0, 2.0)


def test_a_cause_that_lasts_ends_the_repeats_of_its_point() -> None:
    once = with_discarded_attempt(trial("ok", "steal"), trial("ok", "steal"))
    twice = with_discarded_attempt(once, trial("ok", "steal"))
    assert lasting_causes([once]) == set()
    assert lasting_causes([twice]) == {(0, "steal")}
    assert lasting_causes([with_discarded_attempt(once, trial("ok"))]) == set()


@pytest.mark.parametrize(
    ("made", "status", "said"),
    [
        (2, "failed", "every point failed, so the run ended after 2 of 12 trials"),
        (1, "failed", "1 of 12 trials were measured"),
        (1, "interrupted", "1 of 12 trials were measured"),
        (2, "interrupted", "2 of 12 trials were measured"),
    ],
)
def test_a_run_that_was_ended_by_hand_is_not_said_to_have_ended_for_its_failures(
    tmp_path: Path, made: int, status: Status, said: str
) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "uring"), repeat=6, outcome="failed")
    run = folder.read_run()
    run.status = status
    found = run_warnings(run, (), folder.read_trials()[:made], 1, folder.path)
    assert [each.message for each in found if each.code == "incomplete"] == [said]


def verdict_of(trials: Sequence[TrialRecord]) -> list[Verdict]:
    values: dict[str, dict[int, Value]] = {
        name: {each.block: each.figures["x"] for each in trials if each.point == point and each.outcome == "ok"}
        for point, name in enumerate("ab")
    }
    return decide([FigureComparison(figure="x", better="higher", at={}, contenders=values)], margin=0.05, seed=1)


def test_a_verdict_that_rests_on_repeated_trials_is_shown_without_them_too() -> None:
    def made(point: int, block: int, value: float) -> TrialRecord:
        noise = 1 + 0.01 * math.sin(7 * block + point)
        return replace(trial("ok"), point=point, block=block, figures={"x": value * noise})

    trials = [made(0, block, 100) for block in range(8)] + [made(1, block, 90) for block in range(8)]
    assert repeats_that_decide(trials, verdict_of(trials), verdict_of) == []
    # One discarded measurement says nothing else; eight that were as good as the winner do.
    one = [
        *trials[:15],
        with_discarded_attempt(replace(trials[15], warnings=trial("ok", "steal").warnings), trials[15]),
    ]
    assert repeats_that_decide(one, verdict_of(one), verdict_of) == []
    stolen = trial("ok", "steal").warnings
    slowed = [with_discarded_attempt(replace(made(1, each.block, 100), warnings=stolen), each) for each in trials[8:]]
    [warning] = repeats_that_decide([*trials[:8], *slowed], verdict_of(trials), verdict_of)
    assert warning.code == "repeats_decide"
    assert "8 trials that were made again change 1 of 1 verdicts" in warning.message
    assert "better (a best) with them, equivalent (a, b best) without" in warning.message


@pytest.mark.parametrize("least", range(2, 10))
def test_one_trial_in_ten_more_that_leaves_a_time_untold_is_never_too_many(least: int) -> None:
    """By rounding, 0.8 less 0.7 is more than a tenth, and 0.9 less 0.8 is not."""
    assert not is_told_less(least / 10, (least + 1) / 10)
    assert is_told_less((least - 1) / 10, (least + 1) / 10)
