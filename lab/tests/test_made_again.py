"""Trials made again: for which causes, how often, and what a verdict owes to them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import point_summary, stored_run

from plimsoll_lab.analysis.family import is_told_less, value_of
from plimsoll_lab.analysis.repeats import Outcomes, as_first_measured, repeats_that_decide
from plimsoll_lab.analysis.run_warnings import run_warnings
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.experiment.run import lasting_causes, with_discarded_attempt
from plimsoll_lab.stats.best import FigureComparison, Value
from plimsoll_lab.stats.results import Call
from plimsoll_lab.stats.verdict import Verdict, decide
from plimsoll_lab.store.records import CutRecord, Outcome, ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import Status
from plimsoll_lab.store.summary_record import ClaimRecord, LimitSummary
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.trial.retry import retry_reason


def trial(outcome: Outcome, *codes: str, window_s: float = 1.0) -> TrialRecord:
    return TrialRecord(
        number=1, block=1, point=0, setting={}, outcome=outcome, reason="it was so", started_unix_s=0, elapsed_s=1,
        warnings=[ResultWarning(code=code, message=f"{code} was seen", remedy="less of it") for code in codes],
        figures={}, server={}, load={}, machine={"window_s": window_s},
    )  # fmt: skip


def test_what_may_be_gone_the_next_time_is_worth_another_trial() -> None:
    assert retry_reason(trial("invalid", "machine_busy")) == "it was so"
    assert retry_reason(trial("invalid", "window_missed")) == "it was so"
    assert retry_reason(trial("invalid")) is None
    assert retry_reason(trial("ok", "machine_busy")) == "machine_busy was seen"
    assert retry_reason(trial("ok", "link_disturbed", "steal")) == "steal was seen"
    assert retry_reason(trial("invalid", "late_start")) == "it was so"
    assert retry_reason(trial("invalid", "link_disturbed")) == "it was so"
    assert retry_reason(trial("ok", "unstable_window")) is None
    assert retry_reason(trial("ok", "machine_busy", window_s=0.05)) is None
    assert retry_reason(trial("hard_limit", "steal")) is None
    assert retry_reason(trial("ok")) is None


def test_a_generator_at_its_limit_is_not_asked_again_for_that_would_choose_among_the_fastest() -> None:
    assert retry_reason(trial("generator_limited", "machine_busy")) is None


@pytest.mark.parametrize("code", ["link_disturbed", "links_lost", "capture_drops", "late_start"])
def test_what_the_own_processes_of_a_trial_suffer_is_not_asked_again_either(code: str) -> None:
    """More packets make an emulator late, so that the fastest contender was measured again most."""
    assert retry_reason(trial("ok", code)) is None


def test_a_discarded_measurement_keeps_its_outcome_and_figures() -> None:
    late = {"response_time_us.mean": 9.0}
    discarded = replace(trial("ok", "steal"), figures={"completed_rate": 7.0}, late_figures=late)
    (attempt,) = with_discarded_attempt(discarded, trial("ok")).attempts
    assert (attempt.outcome, attempt.figures, attempt.cause) == ("ok", {"completed_rate": 7.0}, "steal")
    record = with_discarded_attempt(discarded, trial("ok"))
    assert (record.late_figures, as_first_measured(record).late_figures) == ({}, late)
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
    disturbed = replace(trial("ok", "link_disturbed", "steal"), figures=figures, cut=cut)
    again = as_first_measured(with_discarded_attempt(disturbed, replace(trial("ok"), figures=figures)))
    assert value_of(again, "response_time_us.p50") == (1.0, 2.0)


def test_the_first_of_several_measurements_is_the_trial_as_it_was_before_it_was_made_again() -> None:
    cut = CutRecord(
        moments=1, share=0.1, requests=3, touched=1, completed_rate=7.0, estimates={}, doubted=(), bounds={}
    )  # fmt: skip
    first = replace(trial("invalid", "steal"), reason="the first", figures={"completed_rate": 1.0}, cut=cut)
    second = replace(trial("ok", "machine_busy"), reason=None, figures={"completed_rate": 2.0})
    last = replace(trial("ok"), reason=None, figures={"completed_rate": 3.0}, elapsed_s=9.0)
    made = with_discarded_attempt(with_discarded_attempt(first, second), last)
    assert len(made.attempts) == 2
    assert as_first_measured(made) == replace(first, elapsed_s=9.0), "what it took in all is of the last"
    assert as_first_measured(last) is last


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
    found = run_warnings(run, (), (), folder.read_trials()[:made], 1, folder.path)
    assert [each.message for each in found if each.code == "incomplete"] == [said]


def verdict_of(trials: Sequence[TrialRecord]) -> Outcomes:
    values: dict[str, dict[int, Value]] = {
        name: {each.block: each.figures["x"] for each in trials if each.point == point and each.outcome == "ok"}
        for point, name in enumerate("ab")
    }
    family = [FigureComparison(figure="x", better="higher", at={}, contenders=values)]
    return Outcomes(verdicts=decide(family, margin=0.05, seed=1))


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


def decided(figure: str, call: Call, *best: str) -> Verdict:
    return Verdict(
        figure=figure, better="higher", at={"load.connections": 10}, contenders=("a", "b"), best=best, best_within=None,
        others=(), unranked={}, winner=None, runner_up=None, ratio=None, ratio_ci95=None, p_adjusted=None,
        noise_floor=None, blocks=8, call=call, level=(), reason="",
    )  # fmt: skip


def test_every_verdict_that_repeats_decide_is_named_with_its_setting_and_both_answers() -> None:
    """Of one it said "1 trials that were made again change"."""
    again = with_discarded_attempt(trial("ok", "steal"), trial("ok"))
    now = [decided("x", "better", "a"), decided("y", "not shown", "a", "b"), decided("z", "not shown", "a", "b")]
    before = [decided("x", "invalid"), decided("y", "not shown", "a"), decided("z", "not shown", "b", "a")]
    several = (
        "x at 10 connections: better (a best) with them, invalid (nobody best) without; "
        "y at 10 connections: not shown (a, b best) with them, not shown (a best) without"
    )
    for made, told in (
        ([again, trial("ok")], f"1 trial that was made again changes 2 of 3 verdicts: {several}"),
        ([again, trial("ok"), again], f"2 trials that were made again change 2 of 3 verdicts: {several}"),
    ):
        [warning] = repeats_that_decide(made, Outcomes(verdicts=now), lambda _: Outcomes(verdicts=before))
        assert warning.message == told
        assert warning.code == "repeats_decide"
        assert warning.remedy == "more repetitions, or a quieter machine, on which no trial has to be made again"


def test_a_gate_and_limits_that_rest_on_repeated_trials_are_shown_without_them_too(tmp_path: Path) -> None:
    """A gate passed, and a limit was met, by trials that were made again alone: nothing said so."""
    folder = stored_run(tmp_path / "0001", ("base", "new"), repeat=8)
    run = folder.read_run()
    run.family = run.family.model_copy(update={"baseline": "base", "tolerance": 0.05})
    run.limits = (read_limit("completed_rate", "> 950", source="it.toml"),)
    folder.write_run(run)
    for each in folder.read_trials():
        rate = 1000.0 + each.block
        now = replace(each, figures={"completed_rate": rate, "response_time_us.p50": 200.0 + each.block})
        if each.point == 1:
            slow = {**now.figures, "completed_rate": 0.9 * rate}
            now = with_discarded_attempt(replace(trial("ok", "steal"), figures=slow), now)
        folder.write_trial(now)
    summary = summarise_run(folder)
    assert summary.gate is not None
    assert summary.gate.outcome == "pass"
    assert [each.met for point in summary.points for each in point.limits] == [True, True]
    told = [each.message for each in summary.warnings if each.code == "repeats_decide"]
    made_again = "8 trials that were made again change"
    assert f"{made_again} the gate: pass with them, worse without" in told
    limits = "1 of 2 limits: 'completed_rate > 950' at model new: met with them, missed without"
    assert f"{made_again} {limits}" in told


def test_a_limit_of_a_point_that_repeats_alone_gave_a_result_and_a_claim_are_told_too() -> None:
    limit = LimitSummary(
        point={"load.connections": 8}, limit="completed_rate > 9", figure="completed_rate", median=10,
        median_ci95=(9, 11), met=None,
    )  # fmt: skip
    point = point_summary({"load.connections": 8})
    claim = ClaimRecord(
        name="faster", source="it", figure="x", at={}, over=None, against=None, difference=False, expect="> 1",
        free="", outcome="confirmed", value=2, interval=(1.5, 3), reason="",
    )  # fmt: skip
    untold = claim.model_copy(update={"outcome": "cannot be told"})
    now = Outcomes(points=[point.model_copy(update={"limits": [limit]})], claims=[claim, claim])
    again = with_discarded_attempt(trial("ok", "steal"), trial("ok"))
    found = repeats_that_decide([again], now, lambda _: Outcomes(points=[point], claims=[claim, untold]))
    limits, claims = (each.message.removeprefix("1 trial that was made again changes ") for each in found)
    place = "'completed_rate > 9' at 8 connections"
    assert limits == f"1 of 1 limits: {place}: cannot be told with them, not judged without"
    assert claims == "1 of 2 claims: 'faster': confirmed with them, cannot be told without"
    # And the other way round: a limit that is judged without them alone.
    without = Outcomes(points=now.points, claims=[claim, claim])
    found = repeats_that_decide([again], Outcomes(points=[point], claims=[claim, claim]), lambda _: without)
    (told,) = (each.message.removeprefix("1 trial that was made again changes ") for each in found)
    assert told == f"1 of 1 limits: {place}: not judged with them, cannot be told without"


@pytest.mark.parametrize("least", range(2, 10))
def test_one_trial_in_ten_more_that_leaves_a_time_untold_is_never_too_many(least: int) -> None:
    """By rounding, 0.8 less 0.7 is more than a tenth, and 0.9 less 0.8 is not."""
    assert not is_told_less(least / 10, (least + 1) / 10)
    assert is_told_less((least - 1) / 10, (least + 1) / 10)
