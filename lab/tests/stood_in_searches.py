"""Searches whose measurements are stood in for: a server that answers n connections within n
milliseconds, on hosts that fail as a test says.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_records import run_record

from plimsoll_lab.experiment import null_server, search_run
from plimsoll_lab.experiment.events import Events
from plimsoll_lab.experiment.search_run import SearchRun
from plimsoll_lab.problem import ENVIRONMENT, HostLost, Interrupted, NoHost
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import CutRecord, ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import HostRecord
from plimsoll_lab.store.search_record import SearchSettingsRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import Plan, PlannedTrial, Point
from plimsoll_lab.trial.testbed import Machines
from plimsoll_lab.trial.validity import host_lost

SUITE = """
name = "most"
question = "Which one carries most?"
[server]
[load]
duration = "1s"
[run]
repeat = 1
seed = 3
[limits]
"response_time.p99" = "<50ms"
[search]
over = "load.connections"
range = [1, 200]
width = "10%"
trials = 1
hold = "0s"
"""
"""49 connections are the most."""
EIGHT = {"": 8}
LOST = "lost"
GONE = "gone"
TAKEN = "taken"
STOPPED = "stopped"
DISTURBED = CutRecord(
    moments=1, share=0.1, requests=9, touched=0, completed_rate=90.0, bounds={}, estimates={}, doubted=()
)
"""Of a trial that is not known without a moment."""


class Cluster:
    """Stands in for hosts. A measurement goes as its number says: `lost` in the middle of it,
    `gone` as no host can be had for it, `taken` as the hypervisor took the CPU, or `stopped` by a
    person; so does one against the null server, which has numbers of its own.
    """

    def __init__(
        self,
        fates: Mapping[int, str] | None = None,
        null_fates: Mapping[int, str] | None = None,
        address: str = "",
        overflows: int = 0,
    ) -> None:
        self.fates, self.null_fates = fates or {}, null_fates or {}
        self.made = self.null_made = 0
        self.lost_server = False
        self.address = address
        """Of the server's host."""
        self.overflows = overflows
        """Of its listen queue, between two questions."""
        self.overflowed = 0

    def place(self, *_: object) -> SimpleNamespace:
        """A testbed with another server's host, if the last one is lost."""
        self.lost_server = False
        return SimpleNamespace(host=self.host)

    def host(self, name: str) -> SimpleNamespace:
        """The server's host; nobody has to ask another."""
        assert name == "h1"
        return SimpleNamespace(counters=self.counters)

    def counters(self) -> dict[str, int]:
        """Those of the server's host, which cannot be asked where it is lost."""
        if self.lost_server:
            raise HostLost("h1", "the node died")
        self.overflowed += self.overflows
        return {"listen_overflows": self.overflowed}

    def run_trial(
        self, _: object, __: str, ___: object, point: Point, planned: PlannedTrial, *outputs: object
    ) -> TrialRecord:
        """One measurement; only those against the null server have nowhere to go."""
        if outputs:
            self.made += 1
            fate = self.fates.get(self.made)
            p99_us, rate = 1e3 * cast("int", point.load["connections"]), 1000.0
        else:
            self.null_made += 1
            fate = self.null_fates.get(self.null_made)
            p99_us, rate = 1e3, 1e6
        if fate == GONE:
            raise NoHost("no host for h1", exit_code=ENVIRONMENT)
        if fate == STOPPED:
            raise Interrupted(signal.SIGINT)
        offset = {"offset_us": 0.0, "error_us": 0.0}
        record: dict[str, Any] = {
            "hosts": {"clocks": [{"host": "h1", "address": self.address, "before": offset, "after": offset}]},
            "number": planned.number, "block": planned.block, "point": planned.point, "setting": dict(point.setting),
            "outcome": "ok", "reason": None, "warnings": (), "started_unix_s": 0.0, "elapsed_s": 1.0, "server": {},
            "load": {}, "machine": {"window_s": 1.0, "busy_cores": 3.0},
            "figures": {"completed_rate": rate, "response_time_us.p99": p99_us},
        }  # fmt: skip
        if fate == LOST:
            self.lost_server = True
            judged = host_lost("h1", "the node died")
            record |= {"outcome": judged.outcome, "reason": judged.reason, "warnings": judged.warnings, "figures": {}}
        if fate == TAKEN:
            warning = ResultWarning(code="steal", message="the hypervisor took the CPU", remedy="wait")
            record |= {"outcome": "invalid", "reason": warning.message, "warnings": (warning,)}
        return TrialRecord(**record)


def plan_of(repeat: int = 1) -> Plan:
    """The suite with so many searches."""
    text = SUITE.replace("repeat = 1", f"repeat = {repeat}")
    return expand(read_text(text, source="most.toml", directory="."), seed=3, cluster=True)


def begin_searches(
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    cluster: Cluster,
    *,
    repeat: int = 1,
    cpus: Mapping[str, int] = EIGHT,
) -> SearchRun:
    """Begin the searches of a folder, or go on with them, on these hosts. Each host that has or had
    the server's name has so many CPUs, and the lab's own machine two.
    """
    for module in (search_run, null_server):
        monkeypatch.setattr(module, "run_trial", cluster.run_trial)
    monkeypatch.setattr(search_run, "place_point", cluster.place)
    monkeypatch.setattr(search_run, "calibrated_testbeds", lambda *_: contextlib.nullcontext({0: None}))
    (path / "trials").mkdir(parents=True, exist_ok=True)
    folder, plan = RunFolder(path=path), plan_of(repeat)
    assert plan.suite.search is not None
    record = folder.read_run() if (path / "run.json").exists() else run_record()
    record.search = SearchSettingsRecord(**asdict(plan.suite.search))
    environment = record.environment.to_json()
    record.hosts = [
        HostRecord(
            name="h1",
            address=each,
            called=(),
            labels={},
            machine="",
            versions={},
            environment=environment | {"cpus": count},
        )
        for each, count in cpus.items()
    ]
    return SearchRun(folder, record, plan, cast("Machines", None), "", Events(folder))
