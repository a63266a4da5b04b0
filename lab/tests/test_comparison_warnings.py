"""What stands beside a comparison of stored runs: whether it holds, and reasons to mistrust it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import DAYS, MEDIAN, RATE, ended, made_again, messages, several, stored
from made_records import ENVIRONMENT, calibration_record

from plimsoll_lab.analysis.comparison import compare_runs
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.problem import LabError
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Attempt, CutRecord
from plimsoll_lab.store.run_record import FamilyRecord, ImportedFile, ImportRecord
from plimsoll_lab.suite.spec import PlannedTrial

BOTH = {RATE: 1000.0, MEDIAN: 200.0}
MORE_TRIALS = tuple(PlannedTrial(number=number, block=number, point=0) for number in (1, 2, 3))


def change(folder: RunFolder, **fields: object) -> None:
    run = folder.read_run()
    for name, value in fields.items():
        setattr(run, name, value)
    folder.write_run(run)


def ten_alike(path: Path) -> tuple[list[RunFolder], list[RunFolder]]:
    """Five runs a side of one server."""
    a, b = (several(path, side, [1000 * day for day in DAYS]) for side in "ab")
    return a, b


def test_a_comparison_names_its_runs_and_has_the_points_of_the_first_of_b(tmp_path: Path) -> None:
    a, b = ten_alike(tmp_path)
    found = compare_runs(a, b)
    assert (found.baseline, found.baselines) == (str(a[0].path), [str(each.path) for each in a])
    assert (found.run, found.runs) == (str(b[0].path), [str(each.path) for each in b])
    assert found.report == str(b[0].path / "report.html")
    assert found.points == summarise_run(b[0]).points
    assert (found.comparable, found.not_comparable, found.lost, found.warnings) == (True, [], [], [])
    assert (found.valid, found.worse) == (True, False)


@pytest.mark.parametrize(
    ("rate", "median", "worse"),
    [
        (1000, 200, False),
        (900, 200, True),
        (1100, 200, False),
        (1000, 220, True),
        (1000, 180, False),
        (1100, 220, True),
    ],
)
def test_b_is_worse_where_any_figure_is_shown_to_be(tmp_path: Path, rate: float, median: float, *, worse: bool) -> None:
    a = several(tmp_path, "a", [1000 * day for day in DAYS])
    b = several(tmp_path, "b", [rate * day for day in (*DAYS, 1.001)], median)
    found = compare_runs(a, b)
    assert (found.worse, found.valid) == (worse, True)
    one_a_side = compare_runs(a[:1], b[:1])
    assert (one_a_side.worse, one_a_side.valid) == (False, False)


def test_a_run_is_compared_once(tmp_path: Path) -> None:
    one, other = (stored(tmp_path / name, BOTH) for name in "ab")
    for a, b in (([one], [one]), ([one, one], [other])):
        with pytest.raises(LabError, match="a is named 2 times; a run counts once, and on one side"):
            compare_runs(a, b)


def test_what_is_equivalent_follows_the_margin_of_b(tmp_path: Path) -> None:
    a, b = ten_alike(tmp_path)
    narrow = FamilyRecord(compare=None, figures=(RATE,), margin=0.001)
    for folder in (*a, *b[1:]):
        change(folder, family=narrow)
    assert [each.call for each in compare_runs(a, b).verdicts] == ["equivalent", "equivalent"]
    assert [each.call for each in compare_runs(b, a).verdicts] == ["not shown"]


def test_of_other_environments_every_comparison_has_the_reason_and_nothing_is_lost_or_worse(tmp_path: Path) -> None:
    a, b = several(tmp_path, "a", [1000 * day for day in DAYS]), ended(tmp_path, "b", ["failed"] * 5)
    for folder in b:
        change(folder, environment=ENVIRONMENT.model_copy(update={"cpus": 4}))
    found = compare_runs(a, b)
    assert (found.comparable, found.not_comparable) == (False, ["cpus: 2 in A, 4 in B"])
    assert (found.worse, found.valid, found.lost) == (False, False, [])
    assert {(each.call, each.reason) for each in found.verdicts} == {("invalid", "cpus: 2 in A, 4 in B")}


def test_runs_that_differ_in_their_environment_are_named_as_their_folders_are(tmp_path: Path) -> None:
    a, b = (several(tmp_path, side, [1000, 1001]) for side in "ab")
    change(a[1], environment=ENVIRONMENT.model_copy(update={"cpus": 4}))
    assert compare_runs(a, b).not_comparable == [
        "cpus: 2 in 1 of 2 runs of A (a0) and B, 4 in 1 of 2 runs of A (a1)",
    ]


def test_all_that_keeps_runs_apart_is_told(tmp_path: Path) -> None:
    a, b = stored(tmp_path / "a", BOTH), stored(tmp_path / "b", BOTH, models=("poll",))
    apart = "the runs have no point in common"
    found = compare_runs([a], [b])
    assert (found.comparable, found.not_comparable, found.verdicts) == (False, [apart], [])
    change(b, environment=ENVIRONMENT.model_copy(update={"cpus": 4}))
    assert compare_runs([a], [b]).not_comparable == ["cpus: 2 in A, 4 in B", apart]


def test_a_run_that_captured_packets_is_not_compared_with_one_that_did_not(tmp_path: Path) -> None:
    """Of the capture nothing was said, which takes CPU for each packet."""
    runs = [stored(tmp_path / name, BOTH) for name in "abcd"]
    for folder, text, asked in zip(
        runs,
        ("", "capture = true\n", "capture = true\n[fast]\ncapture = false\n", "=="),
        ({}, {}, {"capture": False}, {"capture": False}),
        strict=True,
    ):
        run = folder.read_run()
        changed = run.request.model_copy(update={"changes": asked})
        change(folder, suite=run.suite.model_copy(update={"text": text}), request=changed)
    plain, captured, off, unread = runs
    assert compare_runs([plain], [captured]).not_comparable == ["capture of packets: no in A, yes in B"]
    assert compare_runs([plain], [off]).comparable
    assert compare_runs([plain], [unread]).not_comparable == ["capture of packets: no in A, not known in B"]


@pytest.mark.parametrize("code", ["incomplete", "doubtful_figures"])
def test_a_part_of_one_run_or_its_doubtful_figures_leave_no_whole_verdict(tmp_path: Path, code: str) -> None:
    a, b = ten_alike(tmp_path)
    told: Mapping[str, Mapping[str, object]] = {
        "incomplete": {"trials": MORE_TRIALS},
        "doubtful_figures": {"calibrations": (calibration_record([0]),)},
    }
    for folder in (a[3], b[2]):
        change(folder, **told[code])
    found = compare_runs(a, b)
    [warning] = found.warnings
    names = f"{a[3].path}, {b[2].path}"
    said = {
        "incomplete": (
            f"not every run is complete: {a[3].path} has 1 of 3 trials, {b[2].path} has 1 of 3 trials",
            f"plimsoll lab resume {a[3].path} measures the rest",
        ),
        "doubtful_figures": (
            f"figures of {names} are doubtful, as the pages of these runs say",
            "measure these runs again; a difference may be that of their networks",
        ),
    }
    assert (warning.code, (warning.message, warning.remedy), warning.severity) == (code, said[code], "voids")
    assert (found.valid, found.worse, found.comparable) == (False, False, True)


def test_every_reason_to_mistrust_a_comparison_is_told_together(tmp_path: Path) -> None:
    a, b = ten_alike(tmp_path)
    for folder, day in zip(b, DAYS, strict=True):
        made_again(folder, {RATE: 900 * day, MEDIAN: 200.0})
        change(folder, versions={"plimsoll": "2"}, programs={"/server": "b" * 64})
    for folder in a:
        change(folder, programs={"/server": "a" * 64})
    change(b[1], calibrations=(calibration_record([0]),))
    run = b[0].read_run()
    change(
        b[0], points=[*run.points, run.points[0].model_copy(update={"number": 1, "setting": {"server.model": "poll"}})]
    )
    change(b[2], trials=MORE_TRIALS)
    assert set(messages(compare_runs(a, b))) == {
        "unmatched_points",
        "repeats_decide",
        "versions_differ",
        "programs_differ",
        "incomplete",
        "doubtful_figures",
    }


def test_versions_that_differ_are_told_each_once_and_a_binary_by_the_beginning_of_its_digest(tmp_path: Path) -> None:
    a, b, c = (stored(tmp_path / name, BOTH) for name in "abc")
    for folder, digest, lab in (
        (a, "0123456789abcdef", "0.1.0"),
        (b, "0123456789abcdef", "0.1.0"),
        (c, "f" * 64, "0.2.0"),
    ):
        change(folder, versions={"plimsoll": "plimsoll 0.1.0 (451d563881)", "plimsoll_sha256": digest, "lab": lab})
    assert compare_runs([a], [b]).warnings == []
    [warning] = compare_runs([a, b], [c]).warnings
    assert (warning.code, warning.severity) == ("versions_differ", "widens")
    assert warning.message == (
        "the runs were made with plimsoll 0.1.0 (451d563881), binary 0123456789ab, lab 0.1.0; "
        "plimsoll 0.1.0 (451d563881), binary ffffffffffff, lab 0.2.0"
    )
    assert warning.remedy == "if the generator changed with it, measure A again with B's generator"


def test_files_that_differ_are_told_each_once_with_their_side(tmp_path: Path) -> None:
    a, b, c = (stored(tmp_path / name, BOTH) for name in "abc")
    change(a, programs={"/bin/sh": "0" * 64, "/server": "a" * 64})
    for folder in (b, c):
        change(folder, programs={"/bin/sh": "0" * 64, "/server": "b" * 64, "/more": "c" * 64})
    [warning] = compare_runs([a], [b, c]).warnings
    assert (warning.code, warning.severity) == ("programs_differ", "note")
    assert warning.message == "A used /server (aaaaaaaaaaaa); B used /server (bbbbbbbbbbbb), /more (cccccccccccc)"
    assert warning.remedy == "none, if this difference is the question; otherwise measure A again with B's files"
    [back] = compare_runs([b, c], [a]).warnings
    assert back.message == "A used /server (bbbbbbbbbbbb), /more (cccccccccccc); B used /server (aaaaaaaaaaaa)"
    change(a, programs={"/bin/sh": "0" * 64, "/server": "b" * 64})
    [fewer] = compare_runs([a], [b, c]).warnings
    assert fewer.message == "A used none of these; B used /more (cccccccccccc)"


def test_of_imported_files_it_is_said_that_they_tell_neither_machine_nor_limit(tmp_path: Path) -> None:
    def imported(digit: str) -> ImportRecord:
        file = ImportedFile(
            trial=1, name=f"{digit}.json", tool="wrk2", target="", sha256=digit * 64, started_unix_s=None
        )  # fmt: skip
        return ImportRecord(unix_s=0.0, files=[file])

    a, b, c = (stored(tmp_path / name, BOTH) for name in "abc")
    change(b, imported=imported("b"))
    [warning] = compare_runs([a], [b]).warnings
    assert (warning.code, warning.severity) == ("imported", "widens")
    assert warning.message == (
        "imported files tell neither the machine nor whether the generator or the machine was the limit"
    )
    assert warning.remedy == "make sure that both sides ran on one machine; plimsoll lab gate checks it"
    change(c, imported=imported("b"))
    with pytest.raises(LabError, match="hold the same measurement"):
        compare_runs([b], [c])


def test_a_first_measurement_that_was_cut_out_of_is_judged_with_its_own_cut(tmp_path: Path) -> None:
    a = several(tmp_path, "a", [1000 * day for day in DAYS])
    b = [stored(tmp_path / f"b{day}", {RATE: 1000 * day, MEDIAN: 220 * day}) for day in DAYS]
    cut = CutRecord(
        moments=4, share=0.4, requests=1, touched=0, completed_rate=None, bounds={}, estimates={}, doubted=()
    )  # fmt: skip
    for folder in b:
        [trial] = folder.read_trials()
        first = Attempt(
            outcome="ok", reason="the emulator was late", started_unix_s=0.0, elapsed_s=1.0, figures=trial.figures,
            cause="link_disturbed", cut=cut,
        )  # fmt: skip
        folder.write_trial(replace(trial, attempts=(first,)))
    assert messages(compare_runs(a, b)) == {
        "repeats_decide": f"{MEDIAN} at model epoll: better (A ahead) with the trials that were made again, "
        "invalid (A ahead) without"
    }
