"""What a run amounts to: whether it is whole and valid, who stopped, and its answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import MEDIAN, RATE, searched, stored
from made_pages import page_of
from made_records import calibration_record, changed, stored_run

from plimsoll_lab.analysis.summary import points_of, summarise_run
from plimsoll_lab.cli.outcome import exit_code
from plimsoll_lab.cli.verb import INVALID
from plimsoll_lab.report.terminal import render
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Attempt, Outcome
from plimsoll_lab.store.run_record import ImportedFile, ImportRecord
from plimsoll_lab.store.summary_record import StopRecord
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.spec import PlannedTrial

BOTH = {RATE: 1000.0, MEDIAN: 200.0}
MODELS = ("epoll", "poll", "select")


def ended(path: Path, outcomes: Sequence[Outcome]) -> RunFolder:
    """A run of one trial of each model, which ended so."""
    folder = stored(path, BOTH, models=MODELS[: len(outcomes)])
    for trial, outcome in zip(folder.read_trials(), outcomes, strict=True):
        folder.write_trial(replace(trial, outcome=outcome, reason=None if outcome == "ok" else f"it {outcome}"))
    return folder


@pytest.mark.parametrize(
    ("outcomes", "valid"),
    [
        (("ok", "ok"), True),
        (("ok", "hard_limit"), True),
        (("ok", "failed", "hard_limit"), True),
        (("failed", "hard_limit"), False),
        (("ok", "invalid"), False),
        (("ok", "generator_limited"), False),
    ],
)
def test_a_run_is_valid_where_each_point_has_a_result_of_its_own_and_one_is_a_figure(
    tmp_path: Path, outcomes: Sequence[Outcome], *, valid: bool
) -> None:
    summary = summarise_run(ended(tmp_path / "0001", outcomes))
    assert (summary.status, summary.valid) == ("complete", valid)
    assert [each.outcome for each in summary.points] == list(outcomes)
    assert (summary.trials.planned, summary.trials.measured, summary.trials.valid) == (
        len(outcomes), len(outcomes), outcomes.count("ok")
    )  # fmt: skip


def test_a_run_that_lacks_a_trial_or_has_doubtful_figures_or_was_imported_is_not_valid(tmp_path: Path) -> None:
    whole = stored(tmp_path / "0001", BOTH)
    assert summarise_run(whole).valid
    planned = tuple(PlannedTrial(number=number, block=number, point=0) for number in (1, 2))
    part = summarise_run(changed(stored(tmp_path / "0002", BOTH), trials=planned))
    assert (part.status, part.valid, part.trials.planned, part.trials.measured) == ("interrupted", False, 2, 1)
    doubtful = summarise_run(changed(stored(tmp_path / "0003", BOTH), calibrations=(calibration_record([0]),)))
    assert (doubtful.status, doubtful.valid) == ("complete", False)
    file = ImportedFile(trial=1, name="a.json", tool="wrk2", target="", sha256="0", started_unix_s=None)
    imported = summarise_run(changed(stored(tmp_path / "0004", BOTH), imported=ImportRecord(unix_s=0.0, files=[file])))
    assert (imported.status, imported.valid) == ("complete", False)
    assert imported.answer[0] == (
        "1 result of wrk2, imported: nobody checked whether the generator or the machine was the limit."
    )


def test_a_summary_says_where_it_comes_from_and_how_long_its_trials_took(tmp_path: Path) -> None:
    folder = changed(stored(tmp_path / "0001", BOTH), seed=7, command="plimsoll lab run it.toml --seed 7")
    [trial] = folder.read_trials()
    attempts = [Attempt(outcome="ok", reason="others", started_unix_s=0.0, elapsed_s=each) for each in (2.0, 4.0)]
    folder.write_trial(replace(trial, elapsed_s=8.0, attempts=attempts))
    summary = summarise_run(folder)
    assert (summary.run, summary.report) == (str(folder.path), str(folder.report))
    assert (summary.suite, summary.question) == ("it", "Well?")
    assert (summary.seed, summary.command, summary.elapsed_s) == (7, "plimsoll lab run it.toml --seed 7", 14.0)
    assert [each.trial for each in summary.left_out] == [1]
    assert [(each.code, each.trials) for each in summary.warnings] == [("too_few_trials", None), ("repeated", None)]


def test_limits_are_listed_by_whether_they_are_missed_or_undecided(tmp_path: Path) -> None:
    limits = [
        read_limit(name, condition, source="it.toml")
        for name, condition in (("completed_rate", "< 1"), ("completed_rate", "> 1"), ("requests.failed", "== 0"))
    ]
    summary = summarise_run(changed(stored(tmp_path / "0001", BOTH), limits=limits))
    assert [each.figure for each in summary.limits_missed] == ["completed_rate"]
    assert [each.figure for each in summary.limits_undecided] == ["requests.failed"]
    assert [each.met for each in summary.points[0].limits] == [False, True, None]


def test_who_stopped_is_listed_with_the_most_connections_that_a_server_at_its_limit_held(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", MODELS, repeat=3)
    held: dict[int, list[Any]] = {1: [{"peak_connections": 7}, None, {"peak_connections": 9}], 2: [None] * 3}
    for trial in folder.read_trials():
        if trial.point in held:
            outcome: Outcome = "hard_limit" if trial.point == 1 else "failed"
            server: Any = {"summary": held[trial.point][trial.block - 1]}
            folder.write_trial(replace(trial, outcome=outcome, reason=f"reason {trial.point}", server=server))
    assert summarise_run(folder).stops == [
        StopRecord(contender="poll", at={}, outcome="hard_limit", reason="reason 1", held=9),
        StopRecord(contender="select", at={}, outcome="failed", reason="reason 2", held=None),
    ]
    alone = ended(tmp_path / "0002", ["failed"])
    assert summarise_run(alone).stops == [
        StopRecord(contender="", at={"server.model": "epoll"}, outcome="failed", reason="it failed", held=None)
    ]


def test_a_server_that_fails_in_some_trials_is_told_and_makes_no_run_valid(tmp_path: Path) -> None:
    """One that died in half of its trials was best, with exit code 0 and not a word of it."""
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=12)
    for trial in folder.read_trials():
        if trial.point == 0 and trial.block % 2:
            folder.write_trial(replace(trial, outcome="failed", reason="the server died: signal 11"))
    summary = summarise_run(folder)
    assert summary.points[0].outcome == "ok"
    assert summary.stops == [
        StopRecord(
            contender="epoll", at={}, outcome="failed", reason="the server died: signal 11", held=None, trials=(6, 12)
        )
    ]
    assert summary.answer[-1] == "epoll fails in 6 of 12 trials: the server died: signal 11."
    assert (summary.valid, exit_code(summary)) == (False, INVALID)
    assert [(each.code, each.severity) for each in summary.warnings if "failed or reached a limit" in each.message] == [
        ("stopped", "widens")
    ]
    page = page_of(folder)
    assert "failed in 6 of 12 trials" in page
    assert "some trials of 1 of 2 points failed." in page
    assert "No server hit a limit" not in page
    assert "failed in 6 of 12 trials" in render(summary, folder.read_run(), colour=False)


@pytest.mark.parametrize(("outcome", "valid", "code"), [("failed", False, 1), ("hard_limit", True, 0)])
def test_a_server_that_stops_in_most_trials_is_told_as_one_that_does_in_half_of_them(
    tmp_path: Path, outcome: Outcome, code: int, *, valid: bool
) -> None:
    """It was told as one that always stops, without a warning, and the run was valid."""
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=10)
    for trial in folder.read_trials():
        if trial.point == 0 and trial.block <= 6:
            folder.write_trial(replace(trial, outcome=outcome, reason="it stopped"))
    summary = summarise_run(folder)
    assert summary.points[0].outcome == outcome
    assert [(each.contender, each.outcome, each.trials) for each in summary.stops] == [("epoll", outcome, (6, 10))]
    assert summary.answer[-1].endswith(" in 6 of 10 trials: it stopped.")
    [message] = [each.message for each in summary.warnings if each.code == "stopped"]
    assert message.startswith("6 of 20 trials failed or reached a limit, and others of their points did not: 6 ")
    assert (summary.valid, exit_code(summary)) == (valid, code)


def test_figures_over_a_path_that_is_not_what_was_asked_for_end_in_4(tmp_path: Path) -> None:
    """They were marked as doubtful, and the run ended in 0."""
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=6)
    assert exit_code(summarise_run(folder)) == 0
    run = folder.read_run()
    run.calibrations = [calibration_record([0])]
    folder.write_run(run)
    summary = summarise_run(folder)
    assert [each.doubtful for each in summary.points] == [True, False]
    assert (summary.valid, exit_code(summary)) == (False, INVALID)
    assert "from h1 to h2, a round trip of" in next(each.message for each in summary.warnings)
    # Nor is a limit missed over such a network.
    limits = {"limits": [read_limit("completed_rate", "> 1M", source="it.toml")]}
    run.limits = limits["limits"]
    folder.write_run(run)
    assert exit_code(summarise_run(folder)) == 3, "the other point misses it too"
    run.calibrations = [calibration_record([0, 1])]
    folder.write_run(run)
    assert exit_code(summarise_run(folder)) == INVALID


def test_a_path_that_is_off_is_a_doubt_of_points_without_a_result_too(tmp_path: Path) -> None:
    """Of three trials two reached a limit, over another network than was asked for."""
    folder = stored_run(tmp_path / "0001", ("epoll",), repeat=3)
    for trial in folder.read_trials()[1:]:
        folder.write_trial(replace(trial, outcome="hard_limit", reason="it reached a limit"))
    run = folder.read_run()
    run.calibrations = [calibration_record([0])]
    folder.write_run(run)
    summary = summarise_run(folder)
    assert (summary.points[0].outcome, summary.valid, exit_code(summary)) == ("hard_limit", False, INVALID)


def test_a_server_that_fails_beside_its_limit_or_as_its_own_control_makes_no_run_valid(tmp_path: Path) -> None:
    """Both runs were valid and ended in 0; of the control's deaths not a word was said."""
    limited = stored_run(tmp_path / "0001", ("epoll", "select"), repeat=6)
    for trial in limited.read_trials():
        if trial.point == 1:
            outcome: Outcome = "failed" if trial.block in {2, 4} else "hard_limit"
            limited.write_trial(replace(trial, outcome=outcome, reason=f"it {outcome}"))
    controlled = stored_run(tmp_path / "0002", ("epoll", "poll", "epoll"), repeat=6)
    run = controlled.read_run()
    run.points = [*run.points[:2], run.points[2].model_copy(update={"setting": run.points[0].setting, "control": True})]
    controlled.write_run(run)
    for trial in controlled.read_trials():
        if trial.point == 2 and trial.block in {2, 4}:
            controlled.write_trial(replace(trial, outcome="failed", reason="it failed"))
    for folder, stops in (
        (limited, [("select", "hard_limit", None), ("select", "failed", (2, 6))]),
        (controlled, [("epoll", "failed", (2, 12))]),
    ):
        summary = summarise_run(folder)
        assert [(each.contender, each.outcome, each.trials) for each in summary.stops] == stops
        assert (summary.valid, exit_code(summary)) == (False, INVALID)
        [message] = [each.message for each in summary.warnings if each.code == "stopped"]
        assert message.startswith(f"2 of {summary.trials.measured} trials failed or reached a limit, and others of")
        assert "2 failed; figures and verdicts are of the others" in message
        assert "some trials of 1 of 2 points failed." in page_of(folder)


def test_a_control_that_fails_tells_as_much_of_its_server_as_the_point_that_it_measures_again(tmp_path: Path) -> None:
    """One that failed wholly made a run invalid without a word; beside trials without a result it
    ended in exit code 0.
    """

    def judged(name: str, outcomes: dict[int, Sequence[Outcome]]) -> tuple[bool, list[Any], list[str]]:
        folder = stored_run(tmp_path / name, ("epoll", "poll", "epoll"), repeat=6)
        run = folder.read_run()
        again = run.points[2].model_copy(update={"setting": run.points[0].setting, "control": True})
        run.points = [*run.points[:2], again]
        folder.write_run(run)
        for trial in folder.read_trials():
            if trial.point in outcomes:
                outcome = outcomes[trial.point][trial.block - 1]
                folder.write_trial(replace(trial, outcome=outcome, reason=None if outcome == "ok" else f"it {outcome}"))
        summary = summarise_run(folder)
        assert exit_code(summary) != 0
        stops = [(each.contender, each.outcome, each.trials) for each in summary.stops]
        return summary.valid, stops, [each.message for each in summary.warnings if each.code == "stopped"]

    failed: Sequence[Outcome] = ["failed"] * 6
    once: Sequence[Outcome] = ["failed", "invalid", "invalid", "invalid", "invalid", "invalid"]
    whole, part = judged("whole", {2: failed}), judged("part", {2: once})
    assert whole[:2] == (False, [("epoll", "failed", (6, 12))])
    assert [message.partition(" failed or")[0] for message in whole[2]] == ["6 of 18 trials"]
    assert part[:2] == (False, [("epoll", "failed", (1, 12))])
    assert [message.partition(" failed or")[0] for message in part[2]] == ["1 of 18 trials"]
    # Both say the same of the server: it stopped there as a whole.
    assert judged("both", {0: failed, 2: failed}) == (True, [("epoll", "failed", None)], [])
    assert judged("one", {0: failed})[:2] == (False, [("epoll", "failed", (6, 12))])
    # A control that is yet to be measured says nothing against it.
    for path in (tmp_path / "one" / "trials").iterdir():
        if json.loads(path.read_text())["point"] == 2:
            path.unlink()
    early = summarise_run(RunFolder(path=tmp_path / "one"))
    assert [(each.outcome, each.trials) for each in early.stops] == [("failed", None)]
    assert "stopped" not in {each.code for each in early.warnings}


REASONS = ("signal 11", *["it did not listen"] * 5)


def test_who_stopped_is_told_with_the_reason_of_most_trials(tmp_path: Path) -> None:
    """It was that of the first, and five of six gave another."""
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=12)
    for trial in folder.read_trials():
        if trial.point == 0 and trial.block <= len(REASONS):
            folder.write_trial(replace(trial, outcome="failed", reason=REASONS[trial.block - 1]))
    summary = summarise_run(folder)
    assert summary.answer[-1] == "epoll fails in 6 of 12 trials: it did not listen (mostly)."


def test_trials_that_failed_at_a_load_that_is_carried_are_told_with_the_reason_of_most(tmp_path: Path) -> None:
    folder = searched(tmp_path / "0001", {})
    [trial] = folder.read_trials()
    setting: dict[str, str | int] = {"server.model": "epoll", "load.rate": 50}
    for number, reason in enumerate(REASONS, start=1):
        made = replace(trial, number=number, block=number, outcome="failed", reason=reason, setting=setting)
        folder.write_trial(made)
    [told] = [each.message for each in summarise_run(folder).warnings if each.code == "stopped"]
    assert told == "6 trials failed at loads that are said to be carried: it did not listen (mostly)"


@pytest.mark.parametrize(("rate", "said"), [(50, True), (100, True), (105, False)])
def test_trials_that_failed_at_a_load_that_is_carried_are_told(tmp_path: Path, rate: int, *, said: bool) -> None:
    """A server that died at the load of its capacity stood in "met 9/10" alone."""
    folder = searched(tmp_path / "0001", {})
    [trial] = folder.read_trials()
    setting: dict[str, str | int] = {"server.model": "epoll", "load.rate": rate}
    folder.write_trial(replace(trial, outcome="failed", reason="the server died", setting=setting))
    summary = summarise_run(folder)
    told = [each.message for each in summary.warnings if each.code == "stopped"]
    assert told == (["1 trial failed at loads that are said to be carried: the server died"] if said else [])
    assert (summary.valid, exit_code(summary)) == ((False, INVALID) if said else (True, 0))


def test_points_from_other_trials_leave_the_controls_out(tmp_path: Path) -> None:
    folder = stored(tmp_path / "0001", BOTH, models=("epoll", "poll"))
    run = folder.read_run()
    run.points = [run.points[0], run.points[1].model_copy(update={"control": True})]
    first, second = folder.read_trials()
    [point] = points_of(run, [replace(first, figures={RATE: 5.0}), second])
    assert (point.number, point.figures[RATE].median) == (0, 5.0)


@pytest.mark.parametrize(
    ("search", "status", "valid"),
    [
        ({}, "complete", True),
        ({"limited_by": None, "upper": None}, "complete", True),
        ({"limited_by": "generator"}, "complete", False),
        ({"limited_by": "environment"}, "complete", False),
        ({"state": "out of patience"}, "complete", False),
        ({"state": "interrupted"}, "interrupted", False),
        ({"state": "planned", "lower": None, "upper": None, "limited_by": None}, "interrupted", False),
    ],
)
def test_a_search_is_valid_where_every_one_found_what_the_server_carries(
    tmp_path: Path, search: dict[str, object], status: str, *, valid: bool
) -> None:
    summary = summarise_run(searched(tmp_path / "0001", {}, search))
    assert (summary.status, summary.valid) == (status, valid)
    assert (summary.stops, summary.left_out, summary.limits_missed) == ([], [], [])


def test_an_answer_has_three_sentences_at_most_and_counts_the_capacities_that_it_leaves_out(tmp_path: Path) -> None:
    three = summarise_run(searched(tmp_path / "0001", {}, {}, {}))
    assert three.answer == [each.text for each in three.capacities]
    assert [each.partition(" carries")[0] for each in three.answer] == ["model epoll", "model poll", "model select"]
    five = summarise_run(searched(tmp_path / "0002", {}, {}, {}, {}, {}))
    assert five.answer == [
        *(each.text for each in five.capacities[:2]),
        "3 more settings are in the table of capacities.",
    ]


def test_the_cells_of_the_best_are_those_of_the_verdict_within_the_controls_noise(tmp_path: Path) -> None:
    """Poll is a tenth faster, and one that was measured twice differs by a half from itself: the
    answer had both as the best, and the matrix one.
    """
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=8)
    run = folder.read_run()
    twice = run.points[0].model_copy(update={"number": 2, "control": True})
    again = [
        replace(each, number=16 + each.block, point=2, figures={name: 1.5 * was for name, was in each.figures.items()})
        for each in folder.read_trials()
        if each.point == 0
    ]
    for trial in again:
        folder.write_trial(trial)
    planned = [PlannedTrial(number=each.number, block=each.block, point=2) for each in again]
    changed(folder, points=[*run.points, twice], trials=[*run.trials, *planned])
    summary = summarise_run(folder)
    rate = next(each for each in summary.verdicts if each.figure == "completed_rate")
    assert (set(rate.best), list(rate.others)) == ({"epoll", "poll"}, [])
    cells = {each.contender: each.best for each in summary.scores if each.figure == "completed_rate"}
    assert cells == {"epoll": True, "poll": True}


@pytest.mark.parametrize(("factor", "sentences_of_the_gate"), [(1.0, 2), (1.5, 3)])
def test_the_answer_of_a_gate_has_three_sentences(tmp_path: Path, factor: float, sentences_of_the_gate: int) -> None:
    """It had up to seven: five of the gate, and two of who is best."""
    folder = stored_run(tmp_path / "0001", ("new", "old"), repeat=8)
    run = folder.read_run()
    changed(folder, family=run.family.model_copy(update={"baseline": "old", "tolerance": 0.05}))
    for trial in folder.read_trials():
        if trial.point == 0:
            slower = {MEDIAN: factor * trial.figures[MEDIAN]}
            folder.write_trial(replace(trial, figures={**trial.figures, **slower}))
    summary = summarise_run(folder)
    assert summary.gate is not None
    assert (len(summary.gate.sentences), summary.gate.outcome) == (sentences_of_the_gate, "worse")
    assert (len(summary.answer), summary.answer[:sentences_of_the_gate]) == (3, summary.gate.sentences)
    assert not [each for each in summary.answer if ". " in each], "one each"
