"""Stored runs held against each other: what is compared, and what is said beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import DAYS, MEDIAN, RATE, made_again, messages, several, stored
from made_records import calibration_record, stored_run

from plimsoll_lab.analysis.comparison import compare_runs
from plimsoll_lab.report.comparison import answer_of
from plimsoll_lab.store.records import CutRecord
from plimsoll_lab.store.run_record import FamilyRecord
from plimsoll_lab.suite.spec import Placement


def test_a_part_of_a_run_and_doubtful_figures_are_said_to_be_compared(tmp_path: Path) -> None:
    a, b = (stored_run(tmp_path / name, ("epoll", "threads"), repeat=2) for name in ("0001", "0002"))
    assert {each.code for each in compare_runs([a], [b]).warnings}.isdisjoint({"incomplete", "doubtful_figures"})
    run = a.read_run()
    run.calibrations = [calibration_record([0])]
    a.write_run(run)
    (b.path / "trials/0004.json").unlink()
    found = compare_runs([a], [b])
    told = {each.code: each.message for each in found.warnings}
    assert told["incomplete"].endswith("0002 has 3 of 4 trials")
    assert "0001 are doubtful" in told["doubtful_figures"]
    assert not found.valid


def test_other_files_of_a_server_are_named(tmp_path: Path) -> None:
    a, b = (stored_run(tmp_path / name, ("epoll", "threads"), repeat=2) for name in ("0001", "0002"))

    def told(*programs: dict[str, str] | None) -> list[str]:
        for folder, own in zip((a, b), programs, strict=True):
            run = folder.read_run()
            run.programs = own
            folder.write_run(run)
        return [each.message for each in compare_runs([a], [b]).warnings if each.code == "programs_differ"]

    old = {"/bin/sh": "0" * 64, "/a/server": "a" * 64}
    assert told(old, {"/bin/sh": "0" * 64, "/a/server": "b" * 64}) == [
        "A used /a/server (aaaaaaaaaaaa); B used /a/server (bbbbbbbbbbbb)"
    ]
    assert told(old, {"/bin/sh": "0" * 64}) == ["A used /a/server (aaaaaaaaaaaa); B used none of these"]
    assert told(old, {"/bin/sh": "0" * 64, "/elsewhere/server": "a" * 64}) == []
    assert told(None, old) == [], "a run of an earlier version does not tell"


def test_points_on_other_cpus_are_not_compared(tmp_path: Path) -> None:
    """A server kept to one CPU of two would seem to have lost half its rate."""
    a, b = (stored_run(tmp_path / name, ("epoll", "threads"), repeat=6) for name in ("0001", "0002"))
    run = b.read_run()
    one, other = run.points
    run.points = (one, other.model_copy(update={"place": Placement(cpus={"server": (0,)})}))
    b.write_run(run)
    found = compare_runs([a], [b])
    assert {each.at["server.model"] for each in found.verdicts} == {"epoll"}
    assert [each.code for each in found.warnings if "CPUs" in each.message] == ["unmatched_points"]


@pytest.mark.parametrize(
    ("network", "place", "compared"),
    [
        (None, Placement(load=("n3", "n4")), False),
        (None, Placement(load=("n3",)), True),
        ({"links": []}, Placement(server="h1", load=("h3",)), False),
        ({"links": []}, Placement(server="h1", load=("h2",)), True),
    ],
)
def test_points_of_other_generators_or_another_path_are_not_compared(
    tmp_path: Path, network: dict[str, object] | None, place: Placement, *, compared: bool
) -> None:
    """Twice the generators seemed to be a server twice as fast."""
    a, b = (stored_run(tmp_path / name, ("epoll", "threads"), repeat=6) for name in ("0001", "0002"))
    for folder, own in ((a, Placement(server="h1", load=("h2",))), (b, place)):
        run = folder.read_run()
        one, other = run.points
        run.points = (one, other.model_copy(update={"network": network, "place": own}))
        folder.write_run(run)
    found = compare_runs([a], [b])
    assert {each.at["server.model"] for each in found.verdicts} == ({"epoll", "threads"} if compared else {"epoll"})
    assert any("number of generators" in each.message for each in found.warnings) is not compared


def test_runs_whose_network_was_disturbed_unlike_are_not_compared_by_a_percentile(tmp_path: Path) -> None:
    """As within one run: more of one side's slowest requests were cut out."""
    a, b = (stored_run(tmp_path / name, ("epoll", "threads"), repeat=6) for name in ("0001", "0002"))
    cut = CutRecord(
        moments=4, share=0.4, requests=1, touched=0, completed_rate=None, bounds={}, estimates={}, doubted=()
    )
    for trial in b.read_trials():
        b.write_trial(replace(trial, cut=cut if trial.point == 1 else None))
    said = {(each.figure, each.at["server.model"]): each.reason for each in compare_runs([a], [b]).verdicts}
    why = "the emulator disturbed 0.0 % of one contender's time and 40.0 % of another's"
    assert [key for key, reason in said.items() if reason.startswith(why)] == [("response_time_us.p50", "threads")]


def test_runs_that_leave_more_of_a_tail_untold_are_not_compared_by_it(tmp_path: Path) -> None:
    a, b = (stored_run(tmp_path / name, ("epoll", "threads"), repeat=6) for name in ("0001", "0002"))
    median = "response_time_us.p50"
    for trial in (each for each in b.read_trials() if each.point == 0 and each.block == 1):
        b.write_trial(replace(trial, figures={"completed_rate": 1000.0}))
    calls = {
        (each.figure, each.at["server.model"]): (each.call, each.reason) for each in compare_runs([a], [b]).verdicts
    }
    assert calls[median, "epoll"] == (
        "invalid",
        "100 % of A's trials tell it and 83 % of B's, and those that do not may be the slowest",
    )
    assert {call for key, (call, _) in calls.items() if key != (median, "epoll")} == {"not shown"}


def test_a_difference_that_rests_on_trials_made_again_is_told_with_its_setting_and_both_answers(tmp_path: Path) -> None:
    """The setting was missing: of two settings one could not tell which was meant."""
    a, b = (several(tmp_path, side, [level * day for day in DAYS]) for side, level in (("a", 1000), ("b", 900)))
    for folder, day in zip(b, DAYS, strict=True):
        made_again(folder, {RATE: 1001 * day, MEDIAN: 200.0})
    found = compare_runs(a, b)
    assert messages(found) == {
        "repeats_decide": "completed_rate at model epoll: better (A ahead) with the trials that were made again, "
        "equivalent (B ahead) without"
    }
    assert [each.remedy for each in found.warnings] == [
        "more repetitions, or a quieter machine, on which no trial has to be made again"
    ]
    assert found.worse
    reversed_sides = compare_runs(b, a)
    assert "better (B ahead) with the trials" in messages(reversed_sides)["repeats_decide"]


def test_a_difference_that_is_shown_by_the_first_measurements_alone_is_told_too(tmp_path: Path) -> None:
    a, b = (several(tmp_path, side, [1000 * day for day in DAYS]) for side in "ab")
    for folder, day in zip(b, DAYS, strict=True):
        made_again(folder, {RATE: 900 * day, MEDIAN: 200.0})
    said = messages(compare_runs(a, b))["repeats_decide"]
    assert said.endswith("equivalent (nobody ahead) with the trials that were made again, better (A ahead) without")


def test_each_difference_that_rests_on_trials_made_again_is_told(tmp_path: Path) -> None:
    a = several(tmp_path, "a", [1000 * day for day in DAYS])
    b = [stored(tmp_path / f"b{day}", {RATE: 900 * day, MEDIAN: 220 * day}) for day in DAYS]
    for folder, day in zip(b, DAYS, strict=True):
        made_again(folder, {RATE: 1000 * day, MEDIAN: 200.0})
    again = "better (A ahead) with the trials that were made again, equivalent (nobody ahead) without"
    assert messages(compare_runs(a, b)) == {
        "repeats_decide": f"{RATE} at model epoll: {again}; {MEDIAN} at model epoll: {again}"
    }


def test_trials_made_again_that_leave_every_difference_unshown_are_not_told(tmp_path: Path) -> None:
    a, b = (several(tmp_path, side, [1000 * day for day in DAYS]) for side in "ab")
    for folder, rate in zip(b, (900, 1100, 1050, 950, 1000), strict=True):
        made_again(folder, {RATE: rate, MEDIAN: 200.0})
    found = compare_runs(a, b)
    assert (messages(found), [each.call for each in found.verdicts]) == ({}, ["equivalent", "equivalent"])


def test_points_that_are_not_in_every_run_are_counted_and_leave_no_verdict_on_the_whole(tmp_path: Path) -> None:
    """Of one it said "1 points are not"."""
    a, b = (several(tmp_path, side, [1000 * day for day in DAYS]) for side in "ab")
    assert compare_runs(a, b).valid
    run = b[2].read_run()
    run.points = [*run.points, run.points[0].model_copy(update={"number": 1, "setting": {"server.model": "poll"}})]
    b[2].write_run(run)
    found = compare_runs(a, b)
    assert messages(found) == {
        "unmatched_points": "points that are not in every run, or have another load, network, limit, number of "
        "generators or CPUs, were left out: 1"
    }
    assert [each.remedy for each in found.warnings] == ["measure the same suite each time"]
    assert (found.valid, found.comparable, {each.at["server.model"] for each in found.verdicts}) == (
        False, True, {"epoll"}
    )  # fmt: skip


def test_runs_that_compare_no_figure_are_not_said_to_have_no_point_in_common(tmp_path: Path) -> None:
    none = FamilyRecord(compare=None, figures=(), margin=0.05)
    a, b = (stored(tmp_path / side, {RATE: 1000.0}, family=none) for side in "ab")
    found = compare_runs([a], [b])
    assert (found.comparable, found.not_comparable) == (False, ["the first run of B compares no figure"])
    assert (found.valid, found.worse, found.verdicts) == (False, False, [])


@pytest.mark.parametrize(
    ("level", "answer"),
    [
        (1000, "is not shown to be worse than {a}, as far as they can be compared"),
        (1100, "is better than {a}, and nowhere shown to be worse, as far as they can be compared"),
        (900, "is worse than {a}"),
    ],
)
def test_the_answer_tells_what_was_shown_although_some_could_not_be_compared(
    tmp_path: Path, level: float, answer: str
) -> None:
    """It was "No verdict: no figure has enough runs with a valid result on both sides"."""
    a, b = (several(tmp_path, side, [each * day for day in DAYS]) for side, each in (("a", 1000), ("b", level)))
    [trial] = b[0].read_trials()
    b[0].write_trial(replace(trial, figures={RATE: trial.figures[RATE]}))
    found = compare_runs(a, b)
    assert not found.valid
    names = [f"{side.upper()} ({runs[0].path} and 4 more)" for side, runs in (("a", a), ("b", b))]
    assert answer_of(found) == f"{names[1]} {answer.format(a=names[0])}"


def test_the_answer_is_no_verdict_where_no_figure_has_enough_runs(tmp_path: Path) -> None:
    a, b = (several(tmp_path, side, [1000, 1001, 1002, 1003]) for side in "ab")
    said = answer_of(compare_runs(a, b))
    assert said.endswith(": no figure has enough runs with a valid result on both sides")
    same = [several(tmp_path / "same", side, [1000 * day for day in DAYS]) for side in "ab"]
    assert answer_of(compare_runs(*same)).endswith(f"is not shown to be worse than A ({same[0][0].path} and 4 more)")
