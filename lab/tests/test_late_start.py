"""A generator that is up after the common start spoils its trial, which is made again."""

from __future__ import annotations

from dataclasses import replace

from conftest import FAKE

from plimsoll_lab.analysis.severity import graded
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.trial.lifecycle import run_trial
from plimsoll_lab.trial.retry import retry_reason
from plimsoll_lab.trial.testbed import local_testbed

SUITE = """
name = "late"
question = "Do the generators start together?"
[server]
protocol = "echo"
[load]
protocol = "echo"
connections = 2
duration = "20ms"
[[role]]
name = "second"
kind = "load"
protocol = "echo"
target = "role:server"
connections = 2
duration = "20ms"
measured = false
[run]
repeat = 1
"""


def test_a_start_that_came_too_late_has_its_code_and_is_made_again() -> None:
    plan = expand(read_text(SUITE, source="late.toml", directory="."), seed=1)
    with LocalHost() as host:
        late = replace(local_testbed(host), start_in_s=-3600.0)
        record = run_trial(late, str(FAKE), plan.suite, plan.points[0], plan.trials[0])
    assert record.outcome == "invalid", record.reason
    (warning,) = record.warnings
    assert warning.code == "late_start"
    assert "load was up only after the instant" in warning.message or "second was up" in warning.message
    assert retry_reason(record) == record.reason == warning.message
    assert [each.severity for each in graded(record.warnings)] == ["widens"]
