"""Where a run changed what a claim is about: each difference in its words."""

from __future__ import annotations

import pytest
from made_claims import made
from made_records import point_summary, run_record
from small_suites import CLAIM, MATRIX

from plimsoll_lab.analysis.claims import judge_claims
from plimsoll_lab.store.run_record import PointRecord, RequestRecord, RunRecord
from plimsoll_lab.store.summary_record import ClaimRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Settings

WATCH = """
[[role]]
name = "watch"
kind = "command"
command = ["sleep", "1"]
"""
MORE = """
[[role]]
name = "more"
kind = "load"
each = 1
measured = false
"""
CHANGED = "this run changed the suite there: "


def run_with(text: str, changes: Settings) -> RunRecord:
    """A run of a suite's text with these changes, as `begin` would write it."""
    suite = read_text(text, source="it.toml", directory="/here", changes=changes)
    run = run_record()
    run.suite = run.suite.model_copy(update={"source": "it.toml", "directory": "/here", "text": text})
    run.request = RequestRecord(suite="it.toml", changes=changes, only={})
    run.points = [
        PointRecord(number=point.number, setting=point.setting, server=point.server, load=point.load)
        for point in expand(suite, seed=1).points
    ]
    run.claims, run.settings = suite.claims, suite.run
    return run


def judged_as(run: RunRecord) -> ClaimRecord:
    """The one claim of a run, each of whose points has twice the figure of half the connections."""
    here = [point_summary(point.setting, point.number, response_time_us__mean=1.0) for point in run.points]
    values = {point.number: [float(str(point.setting["load.connections"]))] * 9 for point in run.points}
    return judge_claims(run, here, made(values))[0]


@pytest.mark.parametrize(
    ("role", "changes", "said"),
    [
        ("", {"load.each": 3, "load.size": "1KiB"}, "load.each is 3 and not 2, load.size is 1KiB and not unset"),
        (WATCH, {"role.watch.command": ("sleep", "2")}, "role.watch.command is sleep 2 and not sleep 1"),
        (WATCH, {"role.watch.active": False}, "role watch is not there"),
        (f"{WATCH}active = false\n", {"role.watch.active": True}, "role watch is added"),
        (MORE, {"role.more.measured": True}, "role more is another"),
        (MORE, {"role.more.each": 5}, "role.more.each is 5 and not 1"),
        ("", {"server.workers": 1}, "server.workers is 1 and not unset"),
        ("", {"capture": True}, "capture is true and not false"),
        ("", {"run.warm_up": "1s"}, "run.warm_up is 1s and not unset"),
        ("", {"network.rtt": "50ms"}, "the network is another"),
        (
            MORE + WATCH,
            {"load.each": 3, "role.more.active": False, "role.watch.command": ("sleep", "2")},
            "load.each is 3 and not 2, role more is not there, role.watch.command is sleep 2 and not sleep 1",
        ),
    ],
)
def test_each_change_of_a_point_is_said_in_its_words(role: str, changes: Settings, said: str) -> None:
    told = judged_as(run_with(MATRIX + role + CLAIM, changes))
    assert (told.outcome, told.reason) == ("not reachable here", f"{CHANGED}{said}")


def test_changes_of_what_no_point_is_made_of_leave_a_claim_as_it_is() -> None:
    changes: Settings = {"run.ready_timeout": "20s", "run.trial_timeout": "60s", "run.seed": 5, "run.repeat": 9}
    assert judged_as(run_with(MATRIX + CLAIM, changes)).outcome == "confirmed"


def test_a_point_that_the_suite_has_only_as_it_was_changed_is_none_of_its_own() -> None:
    claim = CLAIM.replace("= 20", "= 30").replace("1.5 to 3", "1us to 1s")
    claim = claim.replace('over = { "load.connections" = 10, "load.think" = "1s" }\n', "")
    told = judged_as(run_with(MATRIX + claim, {"load.connections": 30}))
    assert (told.outcome, told.reason) == (
        "not reachable here",
        "no point of the suite agrees with it as it is written",
    )


def test_of_a_suite_that_cannot_be_read_again_no_claim_is_judged() -> None:
    run = run_with(MATRIX + CLAIM, {"load.each": 2})
    run.suite = run.suite.model_copy(update={"text": "name = "})
    told = judged_as(run)
    assert (told.outcome, told.value) == ("not reachable here", None)
    why = "the suite cannot be read again, and so nobody knows what this run changed: it.toml: not valid TOML: "
    assert told.reason.startswith(why)


def test_a_run_on_a_cluster_is_held_against_its_suite_on_a_cluster() -> None:
    """Hosts that are counted alone are there on a cluster only."""
    run = run_with(MATRIX + CLAIM, {"load.each": 3})
    run.suite = run.suite.model_copy(update={"text": f'{MATRIX}{CLAIM}[place]\nload = "2 hosts"\n'})
    assert judged_as(run).reason.startswith("the suite cannot be read again, ")
    run.request = run.request.model_copy(update={"hosts": "ray:head:6379"})
    assert judged_as(run).reason == f"{CHANGED}load.each is 3 and not 2"
