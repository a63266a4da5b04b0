"""A trial that completed nothing as other programs had the CPUs is made again; a server that does
nothing has failed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll_lab.hosts.samplers.threads import RunQueue, ThreadReading, read_threads
from plimsoll_lab.store.program_output import LoadSummary
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.trial.observation import Observation
from plimsoll_lab.trial.retry import retry_reason
from plimsoll_lab.trial.validity import judge
from plimsoll_lab.trial.window import Window

NOTHING: Json = {
    "connections": {"requested": 8, "established": 8},
    "requests": {"scheduled": 8, "completed": 0, "in_flight": 8},
}
STARVED = Observation(
    server_exit=None,
    server_stderr="",
    server_summary=None,
    load_exit=0,
    load_stderr="",
    load_summary=LoadSummary.model_validate(NOTHING),
    foreign_cores=1.9,
    steal_cores=0.0,
    window_s=0.5,
    lag_s=0.001,
    busy_cores=1.95,
    server_cores=0.01,
    server_waited_s=0.48,
    generator_waited=0.1,
)
"""The server waited for a CPU during all of the window, which others had."""


WAITED = "was ready and had no CPU for {} s of the window of 0.50 s, and not one request was completed"


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (STARVED, f"other programs used 1.90 cores during the window; the server {WAITED.format('0.48')}"),
        (
            replace(STARVED, server_waited_s=0.01, generator_waited=0.9),
            f"other programs used 1.90 cores during the window; the generator {WAITED.format('0.45')}",
        ),
        (
            replace(STARVED, foreign_cores=0.0, throttled_s=0.6),
            f"a CPU quota held threads back for 0.60 s in a window of 0.50 s; the server {WAITED.format('0.48')}",
        ),
        (
            replace(STARVED, foreign_cores=0.0, steal_cores=1.6, busy_cores=0.4, server_waited_s=0.0),
            (
                "the hypervisor withheld 1.60 cores during the window, more than the 0.40 that it gave, and not one "
                "request was completed"
            ),
        ),
    ],
)
def test_a_trial_that_completes_nothing_for_want_of_a_cpu_is_invalid_and_made_again(
    seen: Observation, said: str
) -> None:
    judgement = judge(seen)
    assert (judgement.outcome, judgement.reason) == ("invalid", said)
    trial = TrialRecord(
        number=1, block=1, point=0, setting={}, outcome=judgement.outcome, reason=judgement.reason,
        warnings=judgement.warnings, figures={}, started_unix_s=0, elapsed_s=1, server={}, load={},
        machine={"window_s": seen.window_s or 0.0},
    )  # fmt: skip
    assert retry_reason(trial) == said


@pytest.mark.parametrize(
    "seen",
    [
        replace(STARVED, server_waited_s=0.2),
        replace(STARVED, server_waited_s=None, generator_waited=None),
        replace(STARVED, foreign_cores=0.2),
        replace(STARVED, foreign_cores=None),
        # Its own threads had the CPUs.
        replace(STARVED, foreign_cores=0.3, server_cores=1.6),
        replace(STARVED, steal_cores=0.3, foreign_cores=0.0, busy_cores=0.4, server_waited_s=0.0),
    ],
)
def test_a_server_that_does_nothing_has_failed(seen: Observation) -> None:
    judgement = judge(seen)
    assert (judgement.outcome, judgement.reason) == ("failed", "not one request was completed in the window")


def test_a_server_that_answers_is_judged_by_what_it_answers() -> None:
    some = LoadSummary.model_validate(NOTHING | {"requests": {"scheduled": 8, "completed": 8}})
    assert judge(replace(STARVED, load_summary=some)).outcome == "ok"


def reading(thread: int, state: str, ran_s: float, waited_s: float, turns: int) -> ThreadReading:
    """A thread of process 7."""
    queue = RunQueue(ran_s=ran_s, waited_s=waited_s, turns=turns)
    return ThreadReading(process=7, thread=thread, name="server", state=state, run_queue=queue, sleeps_in="")


SLEEPS = reading(7, "S", 1.0, 0.5, 40)


@pytest.mark.parametrize(
    ("first", "last", "waited_s"),
    [
        ([SLEEPS], [SLEEPS], 0.0),
        # A wait that lasts is in no count of the kernel's.
        ([SLEEPS], [replace(SLEEPS, state="R")], 2.0),
        ([SLEEPS], [reading(7, "R", 1.0, 1.25, 41)], 0.75),
        # It ran without a pause.
        ([replace(SLEEPS, state="R")], [reading(7, "R", 3.0, 0.5, 40)], 0.0),
        # It had begun before the window.
        ([SLEEPS], [reading(7, "S", 1.1, 9.5, 41)], 2.0),
        ([SLEEPS], [SLEEPS, reading(8, "S", 0.1, 1.5, 3)], 1.5),
        ([SLEEPS], [replace(SLEEPS, run_queue=None)], None),
        ([], [], None),
    ],
)
def test_how_long_a_server_waited_is_the_longest_wait_of_a_thread(
    first: Sequence[ThreadReading], last: Sequence[ThreadReading], waited_s: float | None
) -> None:
    window = Window(threads_first=first, threads_last=last, length_s=2.0)
    assert window.server_waited_s() == (None if waited_s is None else pytest.approx(waited_s))


def process(proc: Path, pid: int, threads: Sequence[int]) -> Path:
    """A process as proc(5) shows it, whose last thread sleeps."""
    for each in threads:
        folder = proc / str(pid) / "task" / str(each)
        folder.mkdir(parents=True)
        state = "S" if each == threads[-1] else "R"
        (folder / "stat").write_text(f"{each} (a (b) c) {state} 1 2 3\n", encoding="ascii")
        (folder / "schedstat").write_text(f"1500000000 250000000 {each}\n", encoding="ascii")
        (folder / "wchan").write_text("ep_poll" if state == "S" else "0", encoding="ascii")
        (folder / "syscall").write_text("232 0x4 0x7f\n" if state == "S" else "running\n", encoding="ascii")
    return folder


def test_threads_are_read_as_the_kernel_shows_them(tmp_path: Path) -> None:
    folder = process(tmp_path, 7, [7, 9])
    ready, sleeper = sorted(read_threads([7, 12], sleeps=True, proc=tmp_path), key=lambda each: each.thread)
    assert (ready.process, ready.thread, ready.name, ready.state, ready.sleeps_in) == (7, 7, "a (b) c", "R", "")
    assert ready.run_queue == RunQueue(ran_s=1.5, waited_s=0.25, turns=7)
    assert (sleeper.thread, sleeper.state, sleeper.sleeps_in) == (9, "S", "ep_poll, system call 232")
    assert [each.sleeps_in for each in read_threads([7], sleeps=False, proc=tmp_path)] == ["", ""]
    (folder / "wchan").write_text("0", encoding="ascii")
    (folder / "stack").write_text("[<0>] do_poll+0x1/0x2\n[<0>] do_syscall_64+0x71/0x280\n", encoding="ascii")
    (folder / "schedstat").unlink()
    found = {each.thread: each for each in read_threads([7], sleeps=True, proc=tmp_path)}
    assert (found[9].sleeps_in, found[9].run_queue) == ("do_poll, system call 232", None)


def test_of_many_threads_the_first_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process(tmp_path, 5, range(100, 160))
    process(tmp_path, 6, range(200, 260))
    listed, scandir = [], os.scandir

    def counted(path: str) -> object:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", counted)
    found = read_threads([*range(6, 9000), 5], sleeps=False, proc=tmp_path)
    assert len(listed) == 2, "of thousands of processes, each took microseconds of the window"
    assert [each.process for each in found] == [5] * 60 + [6] * 4
    assert {each.thread for each in found[:60]} == set(range(100, 160))
