"""A run of searches beside its trials: which are made again, what an interruption leaves, and what
the generator is held against.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from stood_in_searches import DISTURBED, STOPPED, TAKEN, Cluster, begin_searches, plan_of

from plimsoll_lab.experiment import null_server, search_run
from plimsoll_lab.experiment.null_server import TRIALS, NullServer
from plimsoll_lab.experiment.search_run import GENTLE_TRIALS, LONGER, SearchRun
from plimsoll_lab.problem import Interrupted, LabError
from plimsoll_lab.stats import confirming
from plimsoll_lab.stats.capacity import Search
from plimsoll_lab.stats.goal import Goal
from plimsoll_lab.stats.readings import Measure, Reading
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.secrets import redact
from plimsoll_lab.suite.spec import Placement, PlannedTrial, Point

Begin = Callable[..., SearchRun]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Begin:
    """Begins two searches in a folder, or goes on with them."""

    def make(fates: Mapping[int, str] | None = None, null: Mapping[int, str] | None = None) -> SearchRun:
        return begin_searches(monkeypatch, tmp_path, Cluster(fates, null), repeat=2)

    return make


def test_each_search_has_repeats_of_its_own(begin: Begin, tmp_path: Path) -> None:
    """Those of the first search were taken from the later ones, whose disturbed trials counted as
    missed limits.
    """
    undisturbed = begin()
    undisturbed.carry_out()
    first = undisturbed.searches[0].trials
    for path in (tmp_path / "trials").iterdir():
        path.unlink()
    # The first search makes four trials again; then the second search's first one is disturbed.
    begun = begin(dict.fromkeys((1, 3, 5, 7, first + 5), TAKEN))
    begun.carry_out()
    again = [trial.number for trial in begun.trials if trial.attempts]
    assert again == [1, 2, 3, 4, first + 1]
    assert [each.lower for each in begun.searches] == [49, 49]


def test_a_short_trial_is_made_again_until_what_took_the_cpu_has_passed(begin: Begin) -> None:
    """Measurements of a second each, and a hypervisor that takes the CPU for twenty: the trial was
    made again twice, and the load was said to miss its limits.
    """
    begun = begin(dict.fromkeys(range(3, 23), TAKEN))
    begun.carry_out()
    assert {trial.number: len(trial.attempts) for trial in begun.trials if trial.attempts} == {3: 20}
    assert [each.lower for each in begun.searches] == [49, 49]


def test_a_trial_that_others_came_after_is_not_made_again_as_its_run_goes_on(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another lab may have had other rules: the run was left with trials of loads that nobody would
    have gone on to.
    """
    monkeypatch.setattr(search_run, "PASSES_S", 0.0)
    begun = begin(dict.fromkeys((3, 4, 5), TAKEN))
    begun.carry_out()
    monkeypatch.undo()
    resumed = begin()
    resumed.carry_out()
    assert [trial.setting for trial in resumed.trials] == [trial.setting for trial in begun.trials]
    assert [trial.number for trial in resumed.trials if trial.attempts] == [3]


def test_nothing_is_made_again_once_the_patience_has_ended(begin: Begin) -> None:
    begun = begin(dict.fromkeys(range(16, 40), TAKEN))
    begun.settings = replace(begun.settings, patience_s=16.0)
    begun.carry_out()
    assert sum(trial.took_s for trial in begun.trials[: begun.searches[0].trials]) == 16.0


def test_what_takes_the_cpu_for_good_is_waited_for_once(begin: Begin) -> None:
    begun = begin(dict.fromkeys(range(3, 400), TAKEN))
    begun.carry_out()
    again = {trial.number: len(trial.attempts) for trial in begun.trials if trial.attempts}
    assert again == {3: 120, begun.searches[0].trials + 1: 120}


def test_trials_are_made_again_for_a_quarter_of_the_patience_and_count_in_it(begin: Begin) -> None:
    """Eight minutes took twelve: measurements that were made again were in no account."""
    begun = begin(dict.fromkeys(range(1, 400, 2), TAKEN))
    begun.settings = replace(begun.settings, patience_s=40.0)
    begun.carry_out()
    trials = begun.trials[: begun.searches[0].trials]
    assert sum(trial.repeated_s for trial in trials) == 10.0
    assert sum(trial.took_s for trial in trials) == 40.0
    assert begun.searches[0].state == "out of patience"


def test_a_trial_alone_is_made_again_for_a_quarter_of_the_patience_at_most(begin: Begin) -> None:
    begun = begin(dict.fromkeys(range(3, 23), TAKEN))
    begun.settings = replace(begun.settings, patience_s=40.0)
    begun.carry_out()
    assert [len(trial.attempts) for trial in begun.trials[:4]] == [0, 0, 10, 0]


def test_what_repeats_took_is_no_part_of_what_a_trial_takes(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search would expect as much of each later trial."""
    told: list[tuple[float, float]] = []

    def listened(goal: Goal, measure: Measure) -> Search:
        def measured(load: int, length_s: float) -> Reading:
            reading = measure(load, length_s)
            told.append((reading.took_s, reading.repeated_s))
            return reading

        return Search(goal, measured)

    monkeypatch.setattr(search_run, "Search", listened)
    begin(dict.fromkeys(range(3, 23), TAKEN)).carry_out()
    assert told[:4] == [(1, 0), (1, 0), (21, 20), (1, 0)]


def test_a_search_that_is_interrupted_once_it_has_its_answer_tells_it(begin: Begin, tmp_path: Path) -> None:
    """It was interrupted before any bound, by what it said."""
    # The generator is held against a null server once more then: three trials told its ceiling.
    begun = begin(null={TRIALS + 1: STOPPED})
    assert begun.carry_out() is not None
    stored = RunFolder(path=tmp_path).read_run().searches[0]
    assert (stored.state, stored.lower, stored.confirmed) == ("interrupted", 49, 8)
    assert stored.loads
    resumed = begin()
    resumed.carry_out()
    assert [(each.state, each.lower, each.limited_by) for each in resumed.searches] == [("complete", 49, "server")] * 2


def test_a_run_that_is_interrupted_before_its_networks_are_up_again_keeps_what_it_had(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its searches were planned ones then, and its points gone."""

    def stopped(*_: object) -> None:
        raise Interrupted(2)

    begin().carry_out()
    before = RunFolder(path=tmp_path).read_run()
    resumed = begin()
    monkeypatch.setattr(search_run, "calibrated_testbeds", stopped)
    assert resumed.carry_out() is not None
    after = RunFolder(path=tmp_path).read_run()
    assert (after.searches, after.points) == (before.searches, before.points)
    assert after.status == "interrupted"


def test_a_run_that_stops_among_its_stored_trials_keeps_what_it_had(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A lab whose searches take other loads refuses to go on. Until then it had taken the finished
    searches off the record.
    """
    begin().carry_out()
    before = RunFolder(path=tmp_path).read_run()
    monkeypatch.setattr(confirming, "CONFIRMATIONS", 9)
    with pytest.raises(LabError, match="resume with the lab that began the run"):
        begin().carry_out()
    after = RunFolder(path=tmp_path).read_run()
    assert (after.searches, after.points) == (before.searches, before.points)
    monkeypatch.undo()


def test_a_search_at_a_setting_with_a_secret_goes_on(begin: Begin) -> None:
    """Its stored trials have no secret, and the setting that was held against them had."""

    def with_secret() -> SearchRun:
        begun = begin()
        begun._folder = replace(begun._folder, hide=lambda record: redact(record, ("hunter2",)))
        [point] = begun._plan.points
        begun._plan = replace(begun._plan, points=(replace(point, setting={"load.header": ("X-Key: hunter2",)}),))
        return begun

    with_secret().carry_out()
    resumed = with_secret()
    assert resumed.carry_out() is None
    assert [each.state for each in resumed.searches] == ["complete", "complete"]


def test_a_load_is_refuted_by_the_longest_trials_that_did_not_pass(begin: Begin) -> None:
    """One short trial that the hypervisor took displaced eight long ones, of which none showed that
    the load lasts: the machine was said to be the limit.
    """
    begun = begin()
    [plan_point] = plan_of().points
    begun.points = {(0, 80, 1.0): replace(plan_point, number=0), (0, 80, 60.0): replace(plan_point, number=1)}
    load = {**plan_point.load, "connections": 80}
    measure = Cluster({1: TAKEN}).run_trial
    made = [
        measure(None, "", None, replace(plan_point, load=load), PlannedTrial(number=number, block=1, point=point), None)
        for number, point in enumerate((0, 0, 0, 1, 1, 1), start=1)
    ]
    untold = [replace(each, cut=DISTURBED, figures={}) for each in made[3:]]

    def refuting(*trials: TrialRecord) -> list[int]:
        return [each.number for each in begun._refuting(plan_point, 80, list(trials))]

    assert refuting(*made[:3]) == [1, 2, 3]
    assert refuting(*made[:3], *untold) == [4, 5, 6]
    assert refuting(*made[:3], *untold[:2], made[5]) == [4, 5]
    assert refuting(*made[:3], untold[0], *made[4:]) == [5, 6]
    assert begun._refuting(plan_point, 80, [*made[:3], *untold], longest_s=10.0) == made[:3]
    assert refuting() == []


def test_what_broke_is_of_the_trials_that_failed_where_longer_ones_tell_nothing(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, measure = begin(), Cluster().run_trial

    def untold(*asked: object) -> TrialRecord:
        made = cast("Callable[..., TrialRecord]", measure)(*asked)
        if LONGER not in made.setting or cast("int", made.setting["load.connections"]) < 50:
            return made
        return replace(made, cut=DISTURBED, figures={"completed_rate": 1000.0})

    monkeypatch.setattr(search_run, "run_trial", untold)
    begun.carry_out()
    found = begun.searches[0]
    assert any(each.cut for each in begun.trials if each.setting["load.connections"] == found.upper)
    assert found.broke is not None
    assert (found.lower, found.upper, found.broke.missed) == (49, 52, "response time, p99 at 52.0 ms")


def test_what_the_generator_gets_is_measured_on_the_hosts_that_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A ceiling over 50 ms was held against a search over 1 ms, and who was the limit followed from
    the order of the points.
    """
    plan, cluster = plan_of(), Cluster()
    here = plan.points[0]
    there = replace(here, place=Placement(load=("h3",)))
    rates = {here.place.load: 1000.0, there.place.load: 5000.0}

    def run(testbed: object, binary: str, suite: object, point: Point, planned: PlannedTrial) -> TrialRecord:
        made = cluster.run_trial(testbed, binary, suite, point, planned)
        return replace(made, figures={"completed_rate": rates[point.place.load]})

    monkeypatch.setattr(null_server, "run_trial", run)
    null = NullServer(RunFolder(path=tmp_path), plan.suite, "")
    assert [null.ceiling(cast("Any", None), each, []) for each in (here, there, here)] == [1000.0, 5000.0, 1000.0]


def test_what_the_generator_gets_is_measured_with_answers_of_the_servers_length(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of 64 bytes it got fifty times as many as of the server's, and a generator at its limit was
    far from it.
    """
    plan, cluster, asked = plan_of(), Cluster(), []

    def run(testbed: object, binary: str, suite: object, point: Point, planned: PlannedTrial) -> TrialRecord:
        asked.append(point.load.get("path"))
        return cluster.run_trial(testbed, binary, suite, point, planned)

    monkeypatch.setattr(null_server, "run_trial", run)
    null = NullServer(RunFolder(path=tmp_path), plan.suite, "")
    http = replace(plan.points[0], load={**plan.points[0].load, "protocol": "http"})
    made = cluster.run_trial(None, "", None, http, PlannedTrial(number=1, block=1, point=0))
    long = replace(made, figures={"completed_rate": 100.0, "goodput_bits_per_s": 8e8})
    null.ceiling(cast("Any", None), http, [made])
    assert null.ceiling(cast("Any", None), http, [long, long, made]) is not None
    assert asked == ["/bytes/64"] * TRIALS + ["/bytes/1000000"] * TRIALS


def test_what_the_generator_gets_over_tls_is_not_known(tmp_path: Path) -> None:
    plan = plan_of()
    null = NullServer(RunFolder(path=tmp_path), plan.suite, "")
    secure = replace(plan.points[0], load={**plan.points[0].load, "protocol": "http", "target": "https://127.0.0.1:1/"})
    assert null.ceiling(cast("Any", None), secure, []) is None
    assert null.trials(cast("Any", None), secure, secure.load, []) == []


def test_a_search_ends_where_no_trial_tells_a_figure_with_a_limit(begin: Begin) -> None:
    """Each load "missed" it, up to the end of its patience; the other searches of the run go on."""
    begun = begin()
    limit = read_limit("host.memory_bytes", "< 1GiB", source="most.toml")
    begun._plan = replace(begun._plan, suite=replace(begun._plan.suite, limits=(limit,)))
    begun.carry_out()
    first = begun.searches[0]
    assert (first.state, first.lower, len(begun.trials)) == ("failed", None, GENTLE_TRIALS)
    assert str(first.reason).startswith("'host.memory_bytes < 1GiB' is not known here: no trial tells")


class HeldUp(Cluster):
    """Hosts on which a server at its limit makes its generator late."""

    def run_trial(
        self, _: object, __: str, ___: object, point: Point, planned: PlannedTrial, *outputs: object
    ) -> TrialRecord:
        """One measurement, whose generator is late where the server is slow."""
        made = super().run_trial(_, __, ___, point, planned, *outputs)
        missed = made.figures["response_time_us.p99"] >= 50e3
        return replace(made, outcome="generator_limited", reason="its lag was 50 ms") if missed else made


def test_what_broke_never_blames_the_generator_where_the_server_was_the_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The answer was "the server", and "what breaks first: generator limited"."""
    begun = begin_searches(monkeypatch, tmp_path, HeldUp())
    begun.carry_out()
    [found] = begun.searches
    assert (found.lower, found.limited_by) == (49, "server")
    assert found.broke is not None
    assert found.broke.missed == (
        "the server holds up its generator, which is late, at 0 % of what it gets from a null server"
    )
