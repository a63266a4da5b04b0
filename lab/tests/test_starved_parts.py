"""A part of a trial that was not done in time as other programs had the CPUs: the trial is made
again, and nobody has failed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest
from conftest import FAKE

from plimsoll_lab.hosts import agent, processes
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.samplers.machine import MachineUsage
from plimsoll_lab.hosts.samplers.threads import RunQueue, ThreadReading
from plimsoll_lab.hosts.samplers.usage import ProcessUsage
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.trial.lifecycle import run_trial
from plimsoll_lab.trial.retry import retry_reason
from plimsoll_lab.trial.starved import Wait, outside_cause

WAIT = Wait(length_s=80.0, waited_s=60.0, own_s=20.0, foreign_s=140.0, steal_s=0.0, throttled_s=0.0)
"""Other programs had the CPUs."""
WAITED = "and a thread of the trial was ready and had no CPU for 60.0 s of 80.0 s"


@pytest.mark.parametrize(
    ("wait", "code", "message"),
    [
        (WAIT, "machine_busy", f"other programs used 1.75 cores, {WAITED}"),
        (replace(WAIT, foreign_s=10.0, steal_s=40.0), "steal", f"the hypervisor withheld 0.50 cores, {WAITED}"),
        (
            replace(WAIT, foreign_s=0.0, throttled_s=50.0),
            "throttled",
            f"a CPU quota held threads back for 50.0 s, {WAITED}",
        ),
        (replace(WAIT, waited_s=40.0), "machine_busy", f"other programs used 1.75 cores, {WAITED}".replace("60", "40")),
    ],
)
def test_who_had_the_cpus_is_why_a_part_was_not_done(wait: Wait, code: str, message: str) -> None:
    cause = outside_cause(wait)
    assert cause is not None
    assert (cause.code, cause.message) == (code, message)


@pytest.mark.parametrize(
    "wait",
    [
        None,
        replace(WAIT, waited_s=39.0),
        # Its own threads had the CPUs.
        replace(WAIT, own_s=100.0, foreign_s=60.0),
        replace(WAIT, own_s=140.0),
        # Nobody had much of them.
        replace(WAIT, own_s=0.0, foreign_s=20.0),
        replace(WAIT, own_s=0.0, foreign_s=0.0, steal_s=20.0),
        replace(WAIT, own_s=0.0, foreign_s=0.0, throttled_s=0.8),
        # As a program starts.
        replace(WAIT, length_s=0.9, waited_s=0.8, own_s=0.0, foreign_s=1.7),
    ],
)
def test_a_part_that_had_the_cpus_was_late_by_itself(wait: Wait | None) -> None:
    assert outside_cause(wait) is None


SUITE = """
name = "starved"
question = "?"
[server]
[load]
duration = "20ms"
connections = 10
[run]
repeat = 1
ready_timeout = "1500ms"
trial_timeout = "1500ms"
"""
OTHERS_CORES = 1.9
WITHHELD_CORES = 0.15


def trial_beside_others(monkeypatch: pytest.MonkeyPatch, fake: str, waited_s: float) -> TrialRecord:
    """A trial in which every thread waited so long for a CPU, on a machine that others use."""

    def threads(pids: Sequence[int], *, sleeps: bool) -> tuple[ThreadReading, ...]:
        queue = RunQueue(ran_s=0.0, waited_s=waited_s, turns=1)
        sleeps_in = "ep_poll" if sleeps else ""
        return tuple(
            ThreadReading(process=pid, thread=pid, name="worker", state="R", run_queue=queue, sleeps_in=sleeps_in)
            for pid in pids
        )

    def machine() -> MachineUsage:
        busy_s = OTHERS_CORES * time.monotonic()
        return MachineUsage(busy_s=busy_s, softirq_threads_s=0.0, throttled_s=None, steal_s=0.0)

    monkeypatch.setattr(processes, "read_threads", threads)
    monkeypatch.setattr(agent, "read_machine", machine)
    monkeypatch.setenv("FAKE", fake)
    plan = expand(read_text(SUITE, source="starved.toml", directory="."), seed=1)
    with LocalHost() as host:
        return run_trial(host, str(FAKE), plan.suite, plan.points[0], plan.trials[0])


@pytest.mark.parametrize(
    ("fake", "late"),
    [
        ("hang", "the generator did not end within 2 s; it was killed. Until then: load said nothing; load: 1 worker"),
        ("never_ready", "the server was not ready within 1.5 s; it said: nothing; its state: 1 worker"),
    ],
)
def test_a_trial_whose_part_had_no_cpu_is_made_again(monkeypatch: pytest.MonkeyPatch, fake: str, late: str) -> None:
    """The server had failed."""
    record = trial_beside_others(monkeypatch, fake, waited_s=600.0)
    assert record.outcome == "invalid"
    others = r"other programs used 1\.\d\d cores, and a thread of the trial was ready and had no CPU for [\d.]+ s of "
    assert re.match(others + r"[\d.]+ s: " + re.escape(late), record.reason or "")
    assert [each.code for each in record.warnings] == ["machine_busy"]
    assert retry_reason(record) == record.reason


def test_a_generator_that_used_the_cpus_itself_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the threads that still were, it had used nothing: other programs were blamed."""

    def busy(pids: Iterable[int]) -> tuple[ProcessUsage, ...]:
        return tuple(ProcessUsage(pid=pid, name="plimsoll", cpu_s=1000.0) for pid in pids)

    monkeypatch.setattr(processes, "read_processes", busy)
    record = trial_beside_others(monkeypatch, "hang", waited_s=600.0)
    assert (record.outcome, record.warnings) == ("failed", ())


@pytest.mark.parametrize("fake", ["hang", "never_ready"])
def test_a_trial_whose_part_had_a_cpu_has_failed_beside_others_too(monkeypatch: pytest.MonkeyPatch, fake: str) -> None:
    assert trial_beside_others(monkeypatch, fake, waited_s=0.0).outcome == "failed"


def test_a_trial_that_lacked_a_cpu_for_moments_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was called quiet: on average less than a quarter of a core was withheld."""

    def machine() -> MachineUsage:
        steal_s = WITHHELD_CORES * time.monotonic()
        return MachineUsage(busy_s=0.0, softirq_threads_s=0.0, throttled_s=None, steal_s=steal_s)

    monkeypatch.setattr(agent, "read_machine", machine)
    monkeypatch.setenv("FAKE_WINDOW_S", "0.5")
    plan = expand(read_text(SUITE, source="starved.toml", directory="."), seed=1)
    with LocalHost() as host:
        record = run_trial(host, str(FAKE), plan.suite, plan.points[0], plan.trials[0])
    assert record.outcome == "ok"
    said = retry_reason(record)
    assert said is not None
    assert re.match(r"the hypervisor withheld 0\.\d\d s of CPU in a few moments of a window of ", said)
