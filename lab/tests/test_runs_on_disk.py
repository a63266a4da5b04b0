"""What becomes of runs: a full disk, a killed lab, another build, a contender whose
program is missing.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import duckdb
import pytest
from conftest import SUITE, Lab, lab_here, run_lab, summary_of
from made_records import run_record, stored_run
from small_suites import GOOD, SEARCH

from plimsoll_lab.analysis.knees import AXIS as CONNECTIONS
from plimsoll_lab.experiment import run as experiment_run
from plimsoll_lab.experiment.plan import RunRequest, make_plan
from plimsoll_lab.experiment.run import begin
from plimsoll_lab.problem import LabError
from plimsoll_lab.store.folder import RunFolder, new_run, open_run, write_atomically
from plimsoll_lab.store.timelines import write_timelines
from plimsoll_lab.suite import shipped
from plimsoll_lab.suite.expand import as_text
from plimsoll_lab.suite.secrets import HIDDEN, redact
from plimsoll_lab.suite.spec import Plan


@pytest.mark.parametrize(
    ("number", "says"), [(errno.ENOSPC, "No space left on device; free some space"), (errno.EACCES, "correct that")]
)
def test_a_disk_that_cannot_be_written_stops_with_what_to_do_and_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    path = tmp_path / "run.json"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LabError, match=says) as stopped:
        write_atomically(path, "new")
    assert "plimsoll lab resume" in str(stopped.value)
    assert [each.name for each in tmp_path.iterdir()] == ["run.json"]
    assert path.read_text() == "old"


def test_a_run_whose_record_the_disk_refuses_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was to be resumed, and was no run."""

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    folder = new_run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(LabError, match="free some space there, then begin the run again; 'plimsoll lab prune'"):
            folder.write_run(run_record())
    assert [each.name for each in folder.path.iterdir()] == ["trials"]


def test_a_table_that_cannot_be_written_stops_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None: ...

        def execute(self, _: str) -> None:
            raise duckdb.IOException("IO Error: Could not write file: No space left on device\nmore")

    monkeypatch.setattr(duckdb, "connect", Full)
    folder = stored_run(tmp_path / "0001")
    [trial] = folder.read_trials()
    said = r"cannot write .*/0001\.parquet: IO Error: .*: No space left on device; correct that, then 'plimsoll lab"
    with pytest.raises(LabError, match=said):
        write_timelines(folder.path, folder.records(1), trial)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of two trials."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "small.toml").write_text(SUITE)
    done = run_lab(folder, "run", "small.toml", "--json", "--only", "server.model=epoll", "--repeat", "1")
    assert done.returncode in {0, 4}, done.stderr
    return folder


@pytest.fixture
def run(measured: Path, tmp_path: Path) -> Path:
    """A copy of the run, for one test."""
    shutil.copytree(measured, tmp_path, dirs_exist_ok=True)
    return tmp_path / "runs/0001"


def change(run: Path, **values: object) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | values))


def test_a_disk_that_is_full_for_a_table_is_no_fault_of_the_lab(run: Path, lab: Lab) -> None:
    (run / "trials/0002.json").unlink()
    draft = run / "timelines/0002.jsonl"
    draft.symlink_to("/dev/full")
    full = lab("resume", "runs/0001", "--quiet")
    said = "cannot write a file of the run: No space left on device; free some space there, then 'plimsoll lab resume'"
    assert (full.returncode, full.stderr) == (1, f"error: {said} goes on with what is stored\n")
    draft.unlink()
    assert lab("resume", "runs/0001").returncode in {0, 4}
    assert (run / "trials/0002.json").exists()


INCOMPLETE = {
    "load_incomplete": r"load: the record \S*/records/0002/load\.timeseries\.jsonl",
    "server_incomplete": r"server: the connection log /full/server\.csv",
}


@pytest.mark.parametrize("fake", INCOMPLETE)
def test_a_record_that_a_full_disk_cuts_off_stops_the_run_with_what_to_do(run: Path, lab: Lab, fake: str) -> None:
    """Its summary was whole, and the trial was a result made of what had room."""
    (run / "trials/0002.json").unlink()
    before = (run / "trials/0001.json").read_bytes()
    full = lab("resume", "runs/0001", "--quiet", FAKE=fake)
    said = r"is incomplete: No space left on device \(os error 28\); free some space there, then 'plimsoll lab resume'"
    assert full.returncode == 1
    assert re.fullmatch(rf"error: {INCOMPLETE[fake]} {said} goes on with what is stored\n", full.stderr), full.stderr
    assert [file.name for file in (run / "trials").iterdir()] == ["0001.json"]
    assert (run / "trials/0001.json").read_bytes() == before
    assert lab("resume", "runs/0001").returncode in {0, 4}
    assert (run / "trials/0002.json").exists()


def statuses(lab: Lab) -> list[str]:
    return [json.loads(line)["status"] for line in lab("list", "--json").stdout.splitlines()]


def test_a_killed_run_is_told_from_one_that_is_under_way(run: Path, lab: Lab) -> None:
    assert statuses(lab) == ["complete"]
    change(run, status="running")
    assert statuses(lab) == ["killed"]
    with open_run(run).lock():
        assert statuses(lab) == ["running"]
        assert "another lab is working" in lab("resume", "runs/0001").stderr


def test_resume_refuses_another_build_and_another_kernel_unless_told(run: Path, lab: Lab) -> None:
    record = json.loads((run / "run.json").read_text())
    (run / "trials/0002.json").unlink()
    change(run, versions=record["versions"] | {"plimsoll_sha256": "0" * 64})
    refused = lab("resume", "runs/0001")
    assert refused.returncode == 1
    assert "plimsoll sha256 was 000" in refused.stderr
    assert "--anyway" in refused.stderr
    change(run, versions=record["versions"] | {"lab_sha256": "0" * 64})
    assert "lab sha256 was 000" in lab("resume", "runs/0001").stderr
    change(run, versions=record["versions"], environment=record["environment"] | {"system": "Linux 1.0"})
    assert "the kernel was Linux 1.0 and is" in lab("resume", "runs/0001").stderr
    assert not (run / "trials/0002.json").exists()
    resumed = lab("resume", "runs/0001", "--anyway", "--json")
    assert resumed.returncode in {0, 4}
    assert (run / "trials/0002.json").exists()
    (mixed,) = (each for each in summary_of(resumed.stdout)["warnings"] if each["code"] == "builds_mixed")
    assert "the kernel was Linux 1.0 and is" in mixed["message"], "whoever reads the page was not there"


def test_resume_of_a_whole_run_tells_it_once_more_whatever_has_changed(run: Path, lab: Lab) -> None:
    """Of a search the paths were measured again, and one that was off spoilt its result."""
    record = json.loads((run / "run.json").read_text())
    change(run, versions=record["versions"] | {"plimsoll_sha256": "0" * 64})
    before = (run / "run.json").read_bytes()
    told = lab("resume", "runs/0001", "--json")
    assert told.returncode in {0, 4}, told.stderr
    assert summary_of(told.stdout)["points"]
    assert (run / "run.json").read_bytes() == before


def test_resume_refuses_another_build_where_a_trial_lost_its_host(run: Path, lab: Lab) -> None:
    """It is made again though the run is complete, and with another program nothing said so."""
    record = json.loads((run / "run.json").read_text())
    change(run, versions=record["versions"] | {"plimsoll_sha256": "0" * 64})
    path = run / "trials/0002.json"
    lost = {"code": "host_lost", "message": "the host h1 was lost: no answer", "remedy": "look"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"outcome": "invalid", "warnings": [lost]}))
    refused = lab("resume", "runs/0001")
    assert refused.returncode == 1
    assert "plimsoll sha256 was 000" in refused.stderr


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"cpus": 4096}, "the number of CPUs was 4096 and is"),
        ({"cpu": "an abacus"}, "the CPU was an abacus and is"),
        ({"memory": "1 kB"}, "the memory was 1 kB and is"),
        ({"transparent_hugepage": "sometimes"}, "the transparent hugepage was sometimes and is"),
    ],
)
def test_resume_refuses_another_machine_unless_told(
    run: Path, tmp_path: Path, other: dict[str, object], said: str
) -> None:
    """Its trials were mixed with those before, and nothing said so."""
    (run / "trials/0002.json").unlink()
    record = json.loads((run / "run.json").read_text())
    change(run, environment=record["environment"] | other)
    refused = lab_here(tmp_path, "resume", "runs/0001")
    assert (refused.returncode, said in refused.stderr) == (1, True), refused.stderr
    assert not (run / "trials/0002.json").exists()


def test_resume_refuses_another_build_of_a_contender_unless_told(tmp_path: Path, lab: Lab) -> None:
    """Only our own binary was looked at."""
    server = tmp_path / "server.py"
    server.write_text(
        "import socket, sys\n"
        "listener = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "while True:\n"
        "    connection, _ = listener.accept()\n"
        "    if connection.recv(64): connection.sendall(b'epoll 100\\n')\n"
        "    connection.close()\n"
    )
    (tmp_path / "own.toml").write_text(
        SUITE.partition("[server]")[0]
        + '[server]\n[load]\nduration = "20ms"\n[run]\nrepeat = 2\n[contender.mine]\nready = "tcp:{port}"\n'
        + f'command = ["{sys.executable}", "-IS", "{{dir}}/server.py", "{{port}}"]\n'
    )
    assert lab("run", "own.toml").returncode in {0, 4}
    run = tmp_path / "runs/0001"
    record = json.loads((run / "run.json").read_text())
    assert record["programs"] == {
        sys.executable: hashlib.sha256(Path(sys.executable).read_bytes()).hexdigest(),
        str(server): hashlib.sha256(server.read_bytes()).hexdigest(),
    }
    (run / "trials/0002.json").unlink()
    server.write_text(f"# faster\n{server.read_text()}")
    refused = lab("resume", "runs/0001")
    assert refused.returncode == 1
    assert f"{server} was SHA-256 {record['programs'][str(server)][:12]} and is SHA-256 " in refused.stderr
    assert not (run / "trials/0002.json").exists()
    resumed = lab("resume", "runs/0001", "--anyway", "--json")
    assert resumed.returncode in {0, 4}
    (mixed,) = (each for each in summary_of(resumed.stdout)["warnings"] if each["code"] == "builds_mixed")
    assert str(server) in mixed["message"]


def test_a_draft_that_is_a_link_leads_to_no_other_file(tmp_path: Path) -> None:
    """`report` on a run that somebody else made wrote the page to where they liked."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "report.html.tmp").symlink_to(mine)
    write_atomically(tmp_path / "report.html", "theirs")
    assert (mine.read_text(), (tmp_path / "report.html").read_text()) == ("mine", "theirs")
    assert not (tmp_path / "report.html").is_symlink()


@pytest.mark.parametrize("verb", [("list",), ("prune", "--keep", "1"), ("query", "SELECT 1")], ids=lambda verb: verb[0])
def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path, lab: Lab, verb: tuple[str, ...]) -> None:
    done = lab(*verb, "--out", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no folder nowhere" in done.stderr
    (tmp_path / "nowhere").mkdir()
    assert lab(*verb, "--out", "nowhere").returncode == 0


def test_a_missing_program_is_the_outcome_of_its_contender_alone(tmp_path: Path, lab: Lab) -> None:
    matrix = """
[[role]]
name = "helper"
kind = "command"
command = ["true"]
[matrix]
"role.helper.command" = [["/no/such/helper"], ["true"]]
[run]
repeat = 2
seed = 7
"""
    (tmp_path / "two.toml").write_text(SUITE.partition("[matrix]")[0] + matrix)
    done = lab("run", "two.toml", "--json")
    assert done.returncode == 1, done.stderr
    points = summary_of(done.stdout)["points"]
    assert [point["outcome"] for point in points] == ["failed", "ok"]
    assert "cannot start the helper '/no/such/helper'" in points[0]["reason"]


def test_a_folder_hides_what_it_is_told_to(tmp_path: Path) -> None:
    folder = RunFolder(path=tmp_path, hide=lambda record: redact(record, secrets=["--seed 1"]))
    folder.write_run(run_record())
    assert folder.read_run().command == f"plimsoll lab run it.toml {HIDDEN}"


def test_trials_are_read_in_their_order_beyond_four_digits(tmp_path: Path) -> None:
    """Trial 10,000 came before trial 1,001."""
    folder = stored_run(tmp_path / "0001")
    (trial,) = folder.read_trials()
    for number in (10_000, 1001, 1000):
        folder.write_trial(replace(trial, number=number))
    assert [each.number for each in folder.read_trials()] == [1, 1000, 1001, 10_000]


def test_a_damaged_record_is_refused_with_the_place_of_the_damage(run: Path, lab: Lab) -> None:
    trial = run / "trials/0001.json"
    trial.write_text(json.dumps(json.loads(trial.read_text()) | {"outcome": "fine"}))
    refused = lab("report", "runs/0001")
    assert refused.returncode == 1
    assert "trials/0001.json: is damaged (outcome: " in refused.stderr
    assert "resume" in refused.stderr


@pytest.mark.parametrize("verb", [("report", "runs/0001"), ("compare", "runs/0002", "runs/0001")])
@pytest.mark.parametrize(
    ("file", "path", "value", "said"),
    [
        ("run.json", ("points", 1, "load"), {"think": "10 parsecs"}, "points.1.load.think: '10 parsecs' is not a "),
        ("run.json", ("points", 0, "setting"), {CONNECTIONS: "ten"}, f"points.0.setting.{CONNECTIONS}: 'ten' is not "),
        ("trials/0002.json", ("setting",), {CONNECTIONS: "2km"}, f"setting.{CONNECTIONS}: '2km' is not a count"),
        ("trials/0001.json", (), {"setting": {}}, f"setting: {CONNECTIONS} is missing"),
        ("trials/0001.json", (), {"setting": {CONNECTIONS: 100}}, "setting: server.model is missing"),
    ],
)
def test_a_stored_setting_that_cannot_be_read_is_refused_with_its_file_key_and_value(
    run: Path, verb: tuple[str, ...], file: str, path: tuple[str | int, ...], value: dict[str, Any], said: str
) -> None:
    """It was an internal error."""
    shutil.copytree(run, run.with_name("0002"))
    record = json.loads((run / file).read_text())
    place = record
    for key in path:
        place = place[key]
    place.update(value)
    (run / file).write_text(json.dumps(record))
    refused = lab_here(run.parent.parent, *verb)
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
    assert f"runs/0001/{file}: is damaged ({said}" in refused.stderr


def test_resume_names_the_record_whose_suite_cannot_be_read(run: Path, lab: Lab) -> None:
    (run / "trials/0002.json").unlink()
    record = json.loads((run / "run.json").read_text())
    change(run, suite=record["suite"] | {"text": record["suite"]["text"].replace('"20ms"', '"20 parsecs"')})
    refused = lab("resume", "runs/0001")
    assert refused.returncode == 2
    assert "runs/0001/run.json: " in refused.stderr
    assert "small.toml: [load] duration: '20 parsecs' is not a duration" in refused.stderr


def test_a_damaged_run_hides_no_other_from_the_list(tmp_path: Path, lab: Lab) -> None:
    for number in ("0001", "0002", "0003"):
        stored_run(tmp_path / "runs" / number)
    (tmp_path / "runs/0002/run.json").write_text("{")
    done = lab("list")
    assert done.returncode == 1
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["runs/0001", "runs/0003"]
    assert "runs/0002/run.json: is damaged" in done.stderr
    assert done.stderr.count("\n") == 1


TWO = '[contender.old]\nmodel = "epoll"\n[contender.new]\nmodel = "poll"\n'
SUITES = {name: shipped.find(name).read_text() for name, _ in shipped.suites()} | {
    "a search": SEARCH,
    "a search of contenders": SEARCH + TWO,
    "a point of contenders": GOOD + TWO + '[[point]]\n"load.connections" = 9\n',
    "a compared load": GOOD
    + '[verdict]\ncompare = "load.size"\ncontrol = true\n[matrix]\n"load.size" = ["1B", "2B"]\n',
    "a gate": GOOD + TWO + '[verdict]\nbaseline = "old"\ntolerance = "5%"\n[limits]\nfailed_ratio = "< 1%"\n',
}


@pytest.mark.parametrize("name", SUITES)
def test_no_run_is_refused_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(experiment_run, "build_of", lambda _: {"plimsoll": "1"})

    def planned(only: Mapping[str, Sequence[str]]) -> tuple[Plan, RunRequest]:
        request = RunRequest(suite=name, only=only)
        return make_plan(SUITES[name], source="it.toml", directory=str(tmp_path), request=request, seed=0), request

    first = planned({})[0].points[0].setting
    for only in ({}, *({path: [as_text(value)]} for path, value in first.items())):
        plan, request = planned(only)
        folder = new_run(tmp_path / "runs")
        assert begin(folder, plan, request, "plimsoll", "proc").command == folder.read_run().command
