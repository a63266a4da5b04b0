"""A run and a search on a cluster that lose hosts: a search finds the capacity that it would have
found, or stops; both go on later with the trials that were lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_records import run_record

from plimsoll_lab.experiment import null_server, run, search_run
from plimsoll_lab.experiment.events import Events
from plimsoll_lab.experiment.search_run import SearchRun
from plimsoll_lab.problem import ENVIRONMENT, HostLost, LabError, NoHost
from plimsoll_lab.store.folder import RunFolder, new_run
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import HostRecord
from plimsoll_lab.store.search_record import SearchRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import PlannedTrial, Point
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
"""The server answers n connections within n milliseconds: 49 of them are the most."""
EIGHT = {"": 8}
LOST = "lost"
GONE = "gone"


class Cluster:
    """Stands in for hosts. A measurement goes as its number says: `lost` in the middle of it, or
    `gone` as no host can be had for it; so does one against the null server, which has numbers of
    its own.
    """

    def __init__(
        self, fates: Mapping[int, str], null_fates: Mapping[int, str], address: str = "", overflows: int = 0
    ) -> None:
        self.fates, self.null_fates = fates, null_fates
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
        return TrialRecord(**record)


Begin = Callable[..., SearchRun]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins the search of a folder, or goes on with it, on hosts that are lost so. Each host that
    has or had the server's name has so many CPUs, and the lab's own machine two.
    """

    def make(
        path: Path,
        fates: Mapping[int, str] | None = None,
        null: Mapping[int, str] | None = None,
        *,
        cpus: Mapping[str, int] = EIGHT,
        address: str = "",
        overflows: int = 0,
    ) -> SearchRun:
        cluster = Cluster(fates or {}, null or {}, address, overflows)
        for module in (search_run, null_server):
            monkeypatch.setattr(module, "run_trial", cluster.run_trial)
        monkeypatch.setattr(search_run, "place_point", cluster.place)
        monkeypatch.setattr(search_run, "calibrated_testbeds", lambda *_: contextlib.nullcontext({0: None}))
        (path / "trials").mkdir(parents=True, exist_ok=True)
        folder = RunFolder(path=path)
        plan = expand(read_text(SUITE, source="most.toml", directory="."), seed=3, cluster=True)
        record = run_record()
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

    return make


@pytest.fixture
def undisturbed(begin: Begin, tmp_path: Path) -> SearchRecord:
    """What is found where no host is lost."""
    begun = begin(tmp_path / "undisturbed")
    begun.carry_out()
    (search,) = begun.searches
    assert (search.state, search.lower, search.limited_by) == ("complete", 49, "server")
    return search


def test_a_server_is_short_of_the_cpus_of_its_own_machine(undisturbed: SearchRecord) -> None:
    """Three cores were busy there: more than the lab's own machine has."""
    assert undisturbed.broke is not None
    assert [each.code for each in undisturbed.broke.causes] == []


@pytest.mark.parametrize(
    ("cpus", "address", "short_of"),
    [
        ({"192.0.2.1": 8, "192.0.2.2": 2}, "192.0.2.1", []),
        ({"192.0.2.1": 8, "192.0.2.2": 2}, "192.0.2.2", ["cpu"]),
        ({"192.0.2.1": 2, "192.0.2.2": 8}, "192.0.2.1", ["cpu"]),
    ],
)
def test_a_server_is_short_of_the_cpus_of_the_host_that_it_ran_on(
    begin: Begin, tmp_path: Path, cpus: Mapping[str, int], address: str, short_of: list[str]
) -> None:
    """Of several hosts that had its name, the one that was noted last was taken."""
    begun = begin(tmp_path / "lost", cpus=cpus, address=address)
    begun.carry_out()
    broke = begun.searches[0].broke
    assert broke is not None
    assert [each.code for each in broke.causes] == short_of


def test_overflows_of_the_listen_queue_are_asked_of_the_servers_host(begin: Begin, tmp_path: Path) -> None:
    begun = begin(tmp_path / "overflows", overflows=7)
    begun.carry_out()
    assert {trial.machine.get("listen_overflows") for trial in begun.trials} == {7}
    broke = begun.searches[0].broke
    assert broke is not None
    assert [each.code for each in broke.causes] == ["listen_overflow"]


def of(search: SearchRecord) -> tuple[str, int | None, int | None, str | None]:
    return search.state, search.lower, search.upper, search.limited_by


@pytest.mark.parametrize(
    ("lost", "lost_null"),
    [([3], []), (range(1, 200, 2), []), ([], [4, 6, 8])],
    ids=["once", "at every other measurement", "against the null server"],
)
def test_a_host_that_is_lost_is_no_load_that_was_not_carried(
    begin: Begin, undisturbed: SearchRecord, tmp_path: Path, lost: Iterable[int], lost_null: Iterable[int]
) -> None:
    """The counters of the server's host were asked for once more, which ended the run. Once a
    search had no repeats left, a lost host counted as a missed limit; the null server's, as a limit
    of the generator.
    """
    begun = begin(tmp_path / "lost", dict.fromkeys(lost, LOST), dict.fromkeys(lost_null, LOST))
    begun.carry_out()
    assert of(begun.searches[0]) == of(undisturbed)


def test_hosts_that_keep_going_stop_the_search_and_it_goes_on_later(
    begin: Begin, undisturbed: SearchRecord, tmp_path: Path
) -> None:
    begun = begin(tmp_path / "lost", dict.fromkeys(range(5, 8), LOST))
    with pytest.raises(LabError, match="3 attempts at a trial in a row lost a host; the last: the host h1 was") as said:
        begun.carry_out()
    assert said.value.exit_code == ENVIRONMENT
    assert begun.searches[0].state == "interrupted"
    resumed = begin(tmp_path / "lost", {1: LOST})
    resumed.carry_out()
    assert of(resumed.searches[0]) == of(undisturbed)


def test_a_lost_trial_that_no_host_was_left_to_repeat_is_made_again_later(
    begin: Begin, undisturbed: SearchRecord, tmp_path: Path
) -> None:
    """It was taken from the disk as a load that the server had not carried."""
    with pytest.raises(NoHost):
        begin(tmp_path / "lost", {4: LOST, 5: GONE}).carry_out()
    resumed = begin(tmp_path / "lost")
    resumed.carry_out()
    assert of(resumed.searches[0]) == of(undisturbed)


def test_a_run_makes_a_lost_trial_again_once_there_is_a_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept as invalid for good, where no host was left to make it again on."""
    text = (
        SUITE.partition("[limits]")[0].replace("repeat = 1", "repeat = 4").replace("[load]", "[load]\nconnections = 1")
    )
    plan = expand(read_text(text, source="most.toml", directory="."), seed=3, cluster=True)
    folder = new_run(tmp_path)
    monkeypatch.setattr(run, "calibrated_testbeds", lambda *_: contextlib.nullcontext({0: None}))

    def carry_out(fates: Mapping[int, str]) -> list[TrialRecord]:
        cluster = Cluster(fates, {})

        def measure(*given: Any) -> TrialRecord:  # noqa: ANN401 - as `run._measure`
            trial = cluster.run_trial(None, "", None, *given[4:6], "outputs")
            folder.write_trial(trial)
            return trial

        monkeypatch.setattr(run, "_measure", measure)
        run.carry_out(folder, run_record(), plan, cast("Machines", None), "", Events(folder))
        return folder.read_trials()

    with pytest.raises(NoHost, match="trials 2, 3 could not be made: no host for h1") as said:
        carry_out({2: LOST, 3: GONE, 4: GONE})
    assert said.value.exit_code == ENVIRONMENT
    assert [(each.number, each.outcome) for each in folder.read_trials()] == [(1, "ok"), (2, "invalid"), (4, "ok")]
    trials = carry_out({})
    assert [(each.number, each.outcome) for each in trials] == [(1, "ok"), (2, "ok"), (3, "ok"), (4, "ok")]
    assert [[attempt.cause for attempt in each.attempts] for each in trials] == [[], ["host_lost"], [], []]
