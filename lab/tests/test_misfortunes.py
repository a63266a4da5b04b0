"""What a run does where something goes wrong: an outcome with a reason, or one line."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import Done, Lab, lab_environment, run_lab, summary_of

MISFORTUNES = {
    "server_dies": ("failed", 1, "the server ended before it was ready: exit code 3, saying: something broke"),
    "no_summary": ("failed", 1, "the generator ended without a summary: exit code 1, saying: error: it fell over"),
    "generator_limited": ("generator_limited", 4, "its busiest thread used 1.00 cores"),
    "never_ready": ("failed", 1, "the server was not ready within 0.2 s; it said: nothing; its state: 1 "),
    "hang": (
        "failed",
        1,
        "the generator did not end within 2 s; it was killed. Until then: load said nothing; load: 1 ",
    ),
}


@pytest.mark.parametrize("fake", MISFORTUNES)
def test_a_misfortune_is_an_outcome_with_a_reason(lab: Lab, suite_file: Path, fake: str) -> None:
    outcome, code, reason = MISFORTUNES[fake]
    arguments = ("--only", "load.connections=100", "--only", "server.model=epoll", "--repeat", "1")
    timeouts = {
        "never_ready": ("--set", "run.ready_timeout=200ms"),
        "hang": ("--set", "run.trial_timeout=2s"),
    }
    done = lab("run", str(suite_file), "--json", *arguments, *timeouts.get(fake, ()), FAKE=fake)
    [point] = summary_of(done.stdout)["points"]
    if fake in {"generator_limited", "hang"} and point["outcome"] == "invalid":
        # Others kept this machine busy meanwhile, and the judgement says so.
        assert reason in point["reason"]
        assert done.returncode == 4, done.stderr
    else:
        assert (point["outcome"], done.returncode) == (outcome, code), done.stderr
        assert point["reason"].startswith(reason)


def test_a_server_that_starts_at_no_point_ends_the_run_after_a_block(lab: Lab, suite_file: Path) -> None:
    arguments = ("--only", "load.connections=100", "--only", "server.model=epoll,uring", "--repeat", "6")
    done = lab("run", str(suite_file), "--json", *arguments, FAKE="server_dies")
    told = summary_of(done.stdout)
    assert (done.returncode, told["trials"]["measured"], told["trials"]["planned"]) == (1, 2, 12)
    assert told["answer"] == [
        "There is no valid result.",
        f"epoll and uring fail at 100 connections: {MISFORTUNES['server_dies'][2]}.",
    ]
    (ended,) = (each["message"] for each in told["warnings"] if each["code"] == "incomplete")
    assert ended == "every point failed, so the run ended after 2 of 12 trials"
    resumed = lab("resume", "runs/0001", "--json")
    assert summary_of(resumed.stdout)["trials"]["measured"] == 12, "once the server starts, resume measures the rest"


def test_a_run_of_one_point_ends_after_three_failures(lab: Lab, suite_file: Path) -> None:
    arguments = ("--only", "load.connections=100", "--only", "server.model=epoll", "--repeat", "6")
    told = summary_of(lab("run", str(suite_file), "--json", *arguments, FAKE="server_dies").stdout)
    assert (told["trials"]["measured"], told["trials"]["planned"]) == (3, 6), "two in a row may pass"


def test_an_interrupted_run_keeps_what_it_has_and_resumes(suite_file: Path, tmp_path: Path, lab: Lab) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "plimsoll_lab", "run", str(suite_file), "--json"],
        cwd=tmp_path, env=lab_environment(FAKE="hangs_when_marked", MARK=str(tmp_path / "mark")),
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    for _ in range(3):
        assert json.loads(run.stdout.readline())["event"] == "trial"
    # A busy machine repeats trials, so which load is under way now depends on the machine.
    (tmp_path / "mark").touch()
    run.send_signal(signal.SIGINT)
    *told, final = run.communicate(timeout=300)[0].splitlines()
    summary = json.loads(final)
    assert run.returncode == 130
    assert summary["status"] == "interrupted"
    measured = summary["trials"]["measured"]
    assert measured == 3 + len(told)
    assert measured < 12
    assert (tmp_path / "runs/0001/report.html").exists()
    assert "interrupted" in lab("list").stdout
    resumed = lab("resume", "runs/0001", "--json")
    assert resumed.returncode == 0, resumed.stderr
    assert len(resumed.stdout.splitlines()) == 12 - measured + 1
    assert summary_of(resumed.stdout)["status"] == "complete"
    events = [json.loads(text) for text in (tmp_path / "runs/0001/events.jsonl").read_text().splitlines()]
    begun = [(each["done"], each["kept"]) for each in events if each["event"] == "run"]
    assert begun == [(0, []), (measured, list(range(1, measured + 1)))], "of a trial made again nobody counts two"


def test_nothing_outlives_a_killed_lab(suite_file: Path, tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-m", "plimsoll_lab", "run", str(suite_file), "--json"],
        cwd=tmp_path, env=lab_environment(FAKE="hang", MARK=str(tmp_path)), stdout=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 120
        while len(marked(tmp_path)) < 4:  # lab, guard, server, generator
            assert time.monotonic() < deadline, marked(tmp_path)
            time.sleep(0.02)
    finally:
        run.kill()
        run.wait()
    deadline = time.monotonic() + 120
    while marked(tmp_path):
        assert time.monotonic() < deadline, marked(tmp_path)
        time.sleep(0.02)
    left = [path for path in Path("/sys/fs/cgroup").glob(f"*/**/plimsoll-{run.pid}-*") if path.is_dir()]
    assert left == []


@pytest.mark.parametrize(("how", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_binary_that_says_nothing_about_its_settings_ends_with_the_lab(
    suite_file: Path, tmp_path: Path, how: signal.Signals, code: int
) -> None:
    """The lab waited for it without end once it was told to end, and left it behind if killed."""
    silent, told = tmp_path / "plimsoll", tmp_path / "pid"
    silent.write_text(f"#!/bin/sh\necho $$ > {told}.half\nmv {told}.half {told}\nexec sleep 600\n")
    silent.chmod(0o755)
    plan = (
        "from plimsoll_lab.cli.program import main\n"
        "from plimsoll_lab.experiment import binary_check\n"
        "binary_check.PATIENCE_S = 600.0\n"
        f"main(['plan', {str(suite_file)!r}])\n"
    )
    environment = lab_environment(PLIMSOLL_BIN=str(silent), MARK=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", plan], cwd=tmp_path, env=environment) as lab:
        try:
            while not told.exists():
                assert lab.poll() is None
                time.sleep(0.01)
            lab.send_signal(how)
            assert lab.wait(timeout=120) == code
            deadline = time.monotonic() + 120
            while marked(tmp_path):
                assert time.monotonic() < deadline, marked(tmp_path)
                time.sleep(0.02)
        finally:
            lab.kill()
            if marked(tmp_path):
                os.kill(int(told.read_text()), signal.SIGKILL)


def marked(mark: Path) -> list[str]:
    """Processes whose environment has the mark of this test."""
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                if f"MARK={mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


def test_labs_at_once_do_not_share_a_run(suite_file: Path, tmp_path: Path) -> None:
    """What a trial comes to is not the question here: three labs at once make each other slow."""
    labs = [
        subprocess.Popen(
            [sys.executable, "-m", "plimsoll_lab", "run", str(suite_file), "--json", "--repeat", "1"],
            cwd=tmp_path,
            env=lab_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    told = [each.communicate(timeout=600) for each in labs]
    summaries = [summary_of(stdout) if stdout else pytest.fail(stderr) for stdout, stderr in told]
    assert sorted(each["run"] for each in summaries) == ["runs/0001", "runs/0002", "runs/0003"]
    for stdout, _ in told:
        lines = [json.loads(line) for line in stdout.splitlines()]
        trials = [line for line in lines if line["event"] == "trial"]
        stored = sorted((tmp_path / lines[-1]["run"] / "trials").glob("*.json"))
        assert len(stored) == len(trials) >= 6, stdout


BAD_INPUT = {
    "no suite": (("run", "dmo"), 2, "dmo: no such suite; did you mean 'demo'?"),
    "control characters": (("run", "d\x1b[2Jmo\n\r"), 2, r"error: d\x1b[2Jmo\n\r: no such suite"),
    "a line break in a flag": (("run", "demo", "--re\npeats"), 2, r"unrecognized arguments: --re\npeats"),
    "a line break in a path": (("report", "runs/9\n9"), 2, r"error: runs/9\n9 is no run"),
    "a line break in a setting": (("plan", "demo", "--set", "load.size=6\n4B"), 2, r"[load] size: '6\n4B' is not"),
    "no file": (("run", "x/y.toml"), 2, "there is no such file"),
    "no run": (("report", "runs/9"), 2, "is no run"),
    "no verb": (("rn", "demo"), 2, "invalid choice"),
    "no flag": (("run", "demo", "--repeats", "3"), 2, "unrecognized arguments"),
    "bad set": (("plan", "demo", "--set", "load"), 2, "write --set PATH=VALUE"),
    "a deep setting": (("plan", "demo", "--set", f"load.size={'[' * 3000}"), 2, "' is not a number with a unit"),
    "a long setting": (("plan", "demo", "--set", f"load.size={'9' * 5000}"), 2, "' is beyond every number"),
    "unknown setting": (("plan", "demo", "--set", "load.conections=3"), 2, "did you mean 'connections'"),
    "bad model": (
        ("plan", "demo", "--set", "server.model=epol"),
        2,
        "'epol' is not one of them; did you mean 'epoll'?",
    ),
    "bad export": (("report", "runs/0001", "--export", "pdf"), 2, "no such kind"),
    "bad repeat": (("plan", "demo", "--repeat", "0"), 2, "is not a whole number of at least 1"),
}


@pytest.mark.parametrize("name", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_2(finished: tuple[Path, Done], name: str) -> None:
    arguments, code, said = BAD_INPUT[name]
    done = run_lab(finished[0], *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_a_missing_binary_is_said(lab: Lab, suite_file: Path) -> None:
    done = lab("run", str(suite_file), PLIMSOLL_BIN="/nowhere/plimsoll")
    assert done.returncode == 5
    assert "PLIMSOLL_BIN is /nowhere/plimsoll" in done.stderr


@pytest.mark.parametrize("attached", [True, False])
def test_a_server_that_does_not_listen_is_told_with_the_address_that_was_tried(
    lab: Lab, tmp_path: Path, *, attached: bool
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # without listen(2): connections are refused
        port = taken.getsockname()[1]
        quiet = f'command = ["sleep", "60"]\nready = "tcp:{port}"'
        server = f'address = "127.0.0.1:{port}"' if attached else quiet
        (tmp_path / "it.toml").write_text(
            f'name = "it"\nquestion = "?"\n[server]\n{server}\n[load]\nduration = "20ms"\n'
            '[run]\nrepeat = 1\nready_timeout = "200ms"\n'
        )
        (point,) = summary_of(lab("run", "it.toml", "--json").stdout)["points"]
    late = f"the server was not ready within 0.2 s: nothing accepts connections at 127.0.0.1:{port}; "
    mend = "start the server there, or correct its address" if attached else "it said: nothing; its state: 1 "
    assert point["outcome"] == "failed"
    assert point["reason"].startswith(late + mend)
    [trial] = tmp_path.glob("runs/*/trials/*.json")
    elsewhere = json.loads(trial.read_text(encoding="utf-8"))["server"].get("elsewhere")
    assert elsewhere is (False if attached else None), "of a server on this machine its packets are told"


@pytest.mark.parametrize("kind", ["server", "role"])
def test_who_listens_at_a_port_already_is_not_taken_for_what_is_to_be_started_there(
    lab: Lab, tmp_path: Path, kind: str
) -> None:
    """It was measured in place of the server, and both contenders of a gate were that stranger."""
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        slow = f'command = ["sleep", "60"]\nready = "tcp:{port}"\n'
        server = slow if kind == "server" else 'model = "epoll"\n[[role]]\nname = "beside"\nkind = "command"\n' + slow
        (tmp_path / "it.toml").write_text(
            f'name = "it"\nquestion = "?"\n[server]\n{server}[load]\nduration = "20ms"\n[run]\nrepeat = 1\n'
        )
        done = lab("run", "it.toml", "--json")
    (point,) = summary_of(done.stdout)["points"]
    who = "the server" if kind == "server" else "the role beside"
    assert (point["outcome"], done.returncode) == ("failed", 1)
    assert point["reason"].startswith(f"something else already listens at 127.0.0.1:{port}, before {who} is started")
