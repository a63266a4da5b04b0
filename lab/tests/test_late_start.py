"""Several generators: one that is up after the common start spoils its trial, which is made again;
and summaries that cannot be merged.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import FAKE

from plimsoll_lab.analysis.severity import graded
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.trial import generator_records
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


@pytest.mark.parametrize(
    ("merge", "reason"),
    [
        ("exec sleep 600", "the summaries of the generators could not be merged within 0.2 s"),
        ("echo they lie apart >&2; exit 1", "the summaries of the generators cannot be merged: they lie apart"),
    ],
)
def test_summaries_that_cannot_be_merged_are_kept_and_say_why(
    merge: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge without an answer ended the run as an internal error, and a refusal lost the rest of
    the record and was called the server's failure.
    """
    monkeypatch.setattr(generator_records, "MERGE_S", 0.2)
    binary = tmp_path / "plimsoll"
    binary.write_text(f'#!/bin/sh\nif [ "$1" = merge ]; then {merge}; fi\nexec {shlex.quote(str(FAKE))} "$@"\n')
    binary.chmod(0o755)
    both = SUITE.replace("measured = false\n", "")
    plan = expand(read_text(both, source="late.toml", directory="."), seed=1)
    with LocalHost() as host:
        record = run_trial(local_testbed(host), str(binary), plan.suite, plan.points[0], plan.trials[0])
    assert (record.outcome, record.reason) == ("invalid", reason)
    told = [each["summary"] for each in record.load["generators"]]
    assert [each is not None and each["event"] for each in told] == ["summary", "summary"]
    assert record.load["summary"] is None
    assert record.server["summary"] is not None, "the server's totals come after the merge"
    assert [each["name"] for each in record.roles] == ["second"]
