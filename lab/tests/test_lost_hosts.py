"""A run and a search on a cluster that lose hosts: a search finds the capacity that it would have
found, or stops; both go on later with the trials that were lost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from made_records import run_record
from stood_in_searches import EIGHT, GONE, LOST, SUITE, Cluster, begin_searches

from plimsoll_lab.experiment import run
from plimsoll_lab.experiment.events import Events
from plimsoll_lab.experiment.search_run import SearchRun
from plimsoll_lab.problem import ENVIRONMENT, LabError, NoHost
from plimsoll_lab.store.folder import new_run
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.search_record import SearchRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.trial.testbed import Machines

Begin = Callable[..., SearchRun]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Begin:
    """Begins the search of a folder, or goes on with it, on hosts that are lost so."""

    def make(
        path: Path,
        fates: Mapping[int, str] | None = None,
        null: Mapping[int, str] | None = None,
        *,
        cpus: Mapping[str, int] = EIGHT,
        address: str = "",
        overflows: int = 0,
    ) -> SearchRun:
        return begin_searches(monkeypatch, path, Cluster(fates, null, address, overflows), cpus=cpus)

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
        cluster = Cluster(fates)

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
