"""What `lab prune` removes, and what it leaves to whom."""

from __future__ import annotations

import errno
import itertools
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Lab, lab_here
from made_records import stored_run

from plimsoll_lab.store.folder import RunFolder, open_run


def test_prune_removes_the_oldest_runs_and_none_under_way(tmp_path: Path, lab: Lab) -> None:
    run = stored_run(tmp_path / "runs/0001").path
    record = json.loads((run / "run.json").read_text()) | {"started_unix_s": time.time()}
    (run / "run.json").write_text(json.dumps(record))
    names = ["0002", "0003", "0004"]
    for name in names:
        run.with_name(name).mkdir()
        (run.with_name(name) / "run.json").write_bytes((run / "run.json").read_bytes())
    assert "say which runs may go" in lab("prune").stderr
    listed = lab("prune", "--keep", "1").stdout
    assert listed.count("would remove") == 3
    assert listed.endswith("nothing is removed yet; add --yes to remove them\n")
    assert lab("prune", "--keep", "9", "--yes").stdout == "no run to remove\n"
    assert sorted(path.name for path in run.parent.iterdir()) == ["0001", *names]
    (run.with_name("0004") / "run.json").write_text(json.dumps(record | {"started_unix_s": time.time() - 100_000}))
    with open_run(run.with_name("0002")).lock():
        assert lab("prune", "--keep", "1", "--yes").stdout.split() == ["removed", "runs/0001", "removed", "runs/0003"]
    assert sorted(path.name for path in run.parent.iterdir()) == ["0002", "0004"]
    assert lab("prune", "--older", "24h", "--yes").stdout == "removed runs/0004\n"


def names(runs: Path) -> list[str]:
    return sorted(path.name for path in runs.iterdir())


def test_prune_removes_of_a_link_to_a_run_the_link_alone(tmp_path: Path) -> None:
    """It emptied the folder that the link led to, and the link stayed for ever."""
    kept = stored_run(tmp_path / "archive/0001").path
    before = sorted(each.name for each in kept.rglob("*"))
    for number in (2, 3):
        stored_run(tmp_path / f"runs/000{number}")
    (tmp_path / "runs/0001").symlink_to(kept)
    done = lab_here(tmp_path, "prune", "--keep", "2", "--yes")
    assert (done.returncode, done.stdout) == (0, "removed runs/0001\n")
    assert sorted(each.name for each in (tmp_path / "runs").iterdir()) == ["0002", "0003"]
    assert sorted(each.name for each in kept.rglob("*")) == before


def test_a_damaged_run_hides_no_other_from_prune(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number in ("0001", "0002", "0003"):
        stored_run(runs / number)
    (runs / "0001/run.json").write_text("{")
    done = lab_here(tmp_path, "prune", "--keep", "1", "--yes")
    assert (done.returncode, done.stdout) == (1, "removed runs/0002\n")
    assert "runs/0001/run.json: is damaged" in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(runs) == ["0001", "0003"]


FAR_OFF = 2**33
"""The year 2242, in seconds since 1970."""
NOT_OURS = ("2023/charts", "2024/holidays")
"""What a person's own folders may hold."""


def test_prune_removes_what_is_left_of_runs_without_a_record(tmp_path: Path) -> None:
    """Of a disk that was full as a run began, or of a lab that was killed as it removed one."""
    runs = tmp_path / "runs"
    stored_run(runs / "0001")
    changed_s = {"0002/trials": 0, "0003": 0, "0004/trials": FAR_OFF, "0005/trials": 0} | dict.fromkeys(NOT_OURS, 0)
    for name, at_s in changed_s.items():
        (runs / name).mkdir(parents=True)
        os.utime(runs / name[:4], (at_s, at_s))
    with RunFolder(path=runs / "0005").lock():
        done = lab_here(tmp_path, "prune", "--keep", "9")
        assert done.stdout.splitlines()[:-1] == ["would remove runs/0002", "would remove runs/0003"]
        done = lab_here(tmp_path, "prune", "--keep", "9", "--yes")
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "removed runs/0002\nremoved runs/0003\n")
    assert names(runs) == ["0001", "0004", "0005", "2023", "2024"], "a run, one that begins, one at work, none of ours"


def test_prune_removes_nothing_without_a_record_that_is_younger_than_is_asked_for(tmp_path: Path) -> None:
    rest = tmp_path / "runs/0001"
    (rest / "trials").mkdir(parents=True)
    os.utime(rest, (time.time() - 100_000,) * 2)
    prune = ("prune", "--keep", "9", "--yes", "--older")
    assert lab_here(tmp_path, *prune, "48h").stdout == "no run to remove\n"
    assert lab_here(tmp_path, *prune, "24h").stdout == "removed runs/0001\n"


@pytest.mark.parametrize("removed", [0, 1])
def test_what_a_killed_prune_leaves_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    folder = stored_run(tmp_path / "runs/0001")
    (folder.captures() / "0001.pcapng").touch()
    (folder.path / "points.csv").touch()

    remove, calls = shutil.rmtree, itertools.count()

    def killed(path: Path) -> None:
        if next(calls) == removed:
            raise KeyboardInterrupt
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            folder.remove()
    os.utime(folder.path, (0, 0))
    assert lab_here(tmp_path, "prune", "--keep", "9", "--yes").stdout == "removed runs/0001\n"
    assert names(tmp_path / "runs") == []


def forbidding(called: Callable[..., object]) -> Callable[..., object]:
    """The same, but of the run 0001: that is another user's, and the kernel refuses it."""

    def refused(path: Path, *arguments: object, **more: object) -> object:
        if "0001" in path.parts:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return called(path, *arguments, **more)

    return refused


def test_a_run_of_another_user_stays_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was an internal error."""
    for number in ("0001", "0002"):
        stored_run(tmp_path / "runs" / number)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", forbidding(Path.unlink))
        done = lab_here(tmp_path, "prune", "--keep", "0", "--yes")
    said = "error: cannot remove runs/0001: Permission denied; prune as the user who made it\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "removed runs/0002\n", said)
    for name in ("is_file", "read_text"):
        monkeypatch.setattr(Path, name, forbidding(getattr(Path, name)))
    done = lab_here(tmp_path, "list")
    assert (done.returncode, done.stderr) == (1, "error: runs/0001/run.json: cannot be read: Permission denied\n")
