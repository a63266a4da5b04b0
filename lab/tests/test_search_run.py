"""A run of searches beside its trials: which are made again, what an interruption leaves, and what
the generator is held against.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from made_records import run_record

from plimsoll_lab.experiment import null_server, search_run
from plimsoll_lab.experiment.events import Events
from plimsoll_lab.experiment.null_server import TRIALS, NullServer
from plimsoll_lab.experiment.search_run import SearchRun
from plimsoll_lab.problem import Interrupted
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import CutRecord, ResultWarning, TrialRecord
from plimsoll_lab.store.search_record import SearchSettingsRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import Placement, PlannedTrial, Point

SUITE = """
name = "most"
question = "Which one carries most?"
[server]
[load]
duration = "1s"
[run]
repeat = 2
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
TAKEN = ResultWarning(code="steal", message="the hypervisor took the CPU", remedy="wait")


class Trials:
    """Stands in for measurements; those of these numbers are taken by the hypervisor."""

    def __init__(self, taken: AbstractSet[int], *, interrupted: bool) -> None:
        self.taken, self.interrupted, self.made, self.null = taken, interrupted, 0, 0

    def run(
        self, _: object, __: str, ___: object, point: Point, planned: PlannedTrial, *outputs: object
    ) -> TrialRecord:
        """One measurement, or one against the null server."""
        self.made += bool(outputs)
        self.null += not outputs
        # The last ones show whether the generator misses the limits there too.
        if self.interrupted and self.null > TRIALS:
            raise Interrupted(2)
        p99_us, rate = (1e3 * cast("int", point.load["connections"]), 1e3) if outputs else (1e3, 1e6)
        taken = bool(outputs) and self.made in self.taken
        record: dict[str, Any] = {
            "number": planned.number, "block": planned.block, "point": planned.point, "setting": dict(point.setting),
            "outcome": "invalid" if taken else "ok", "reason": TAKEN.message if taken else None,
            "warnings": (TAKEN,) if taken else (), "started_unix_s": 0.0, "elapsed_s": 1.0, "server": {}, "load": {},
            "machine": {"window_s": 1.0}, "figures": {"completed_rate": rate, "response_time_us.p99": p99_us},
        }  # fmt: skip
        return TrialRecord(**record)


Begin = Callable[..., SearchRun]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Begin:
    """Begins the searches of a folder, or goes on with them."""

    def make(*taken: int, interrupted: bool = False, calibrated: bool = True) -> SearchRun:
        trials = Trials(set(taken), interrupted=interrupted)
        host = SimpleNamespace(counters=dict)
        for module in (search_run, null_server):
            monkeypatch.setattr(module, "run_trial", trials.run)
        monkeypatch.setattr(search_run, "place_point", lambda *_: SimpleNamespace(host=lambda _: host))
        monkeypatch.setattr(search_run, "note_hosts", lambda *_: None)

        @contextlib.contextmanager
        def calibrate(*_: object) -> Iterator[dict[int, None]]:
            if not calibrated:
                raise Interrupted(2)
            yield {0: None}

        monkeypatch.setattr(search_run, "calibrated_testbeds", calibrate)
        folder = RunFolder(path=tmp_path)
        (tmp_path / "trials").mkdir(exist_ok=True)
        plan = expand(read_text(SUITE, source="most.toml", directory="."), seed=3)
        assert plan.suite.search is not None
        record = folder.read_run() if (tmp_path / "run.json").exists() else run_record()
        record.search = SearchSettingsRecord(**asdict(plan.suite.search))
        return SearchRun(folder, record, plan, cast("Any", None), "", Events(folder))

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
    begun = begin(1, 3, 5, 7, first + 5)
    begun.carry_out()
    again = [trial.number for trial in begun.trials if trial.attempts]
    assert again == [1, 2, 3, 4, first + 1]
    assert [each.lower for each in begun.searches] == [49, 49]


def test_a_search_that_is_interrupted_once_it_has_its_answer_tells_it(begin: Begin, tmp_path: Path) -> None:
    """It was interrupted before any bound, by what it said."""
    begun = begin(interrupted=True)
    assert begun.carry_out() is not None
    stored = RunFolder(path=tmp_path).read_run().searches[0]
    assert (stored.state, stored.lower, stored.confirmed) == ("interrupted", 49, 8)
    assert stored.loads
    resumed = begin()
    resumed.carry_out()
    assert [(each.state, each.lower, each.limited_by) for each in resumed.searches] == [("complete", 49, "server")] * 2


def test_a_run_that_is_interrupted_before_its_networks_are_up_again_keeps_what_it_had(
    begin: Begin, tmp_path: Path
) -> None:
    """Its searches were planned ones then, and its points gone."""
    begin().carry_out()
    before = RunFolder(path=tmp_path).read_run()
    assert begin(calibrated=False).carry_out() is not None
    after = RunFolder(path=tmp_path).read_run()
    assert (after.searches, after.points) == (before.searches, before.points)
    assert after.status == "interrupted"


def test_a_load_is_refuted_by_the_longest_trials_that_did_not_pass(begin: Begin) -> None:
    """One short trial that the hypervisor took displaced eight long ones, of which none showed that
    the load lasts: the machine was said to be the limit.
    """
    begun = begin()
    [plan_point] = expand(read_text(SUITE, source="most.toml", directory="."), seed=3).points
    begun.points = {(0, 80, 1.0): replace(plan_point, number=0), (0, 80, 60.0): replace(plan_point, number=1)}
    load = {**plan_point.load, "connections": 80}
    measure = Trials({1}, interrupted=False).run
    made = [
        measure(None, "", None, replace(plan_point, load=load), PlannedTrial(number=number, block=1, point=point), None)
        for number, point in enumerate((0, 0, 0, 1, 1, 1), start=1)
    ]
    cut = CutRecord(
        moments=1, share=0.1, requests=9, touched=0, completed_rate=90.0, bounds={}, estimates={}, doubted=()
    )
    untold = [replace(each, cut=cut, figures={}) for each in made[3:]]

    def refuting(*trials: TrialRecord) -> list[int]:
        return [each.number for each in begun._refuting(plan_point, 80, list(trials))]

    assert refuting(*made[:3]) == [1, 2, 3]
    assert refuting(*made[:3], *untold) == [4, 5, 6]
    assert refuting(*made[:3], *untold[:2], made[5]) == [4, 5]
    assert refuting(*made[:3], untold[0], *made[4:]) == [5, 6]
    assert refuting() == []


def test_what_the_generator_gets_is_measured_on_the_hosts_that_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A ceiling over 50 ms was held against a search over 1 ms, and who was the limit followed from
    the order of the points.
    """
    plan = expand(read_text(SUITE, source="most.toml", directory="."), seed=3)
    rates: dict[tuple[str, ...], float] = {("local",): 1000.0, ("h2",): 5000.0}

    trials = Trials(set(), interrupted=False)

    def run(testbed: object, binary: str, suite: object, point: Point, planned: PlannedTrial) -> TrialRecord:
        made = trials.run(testbed, binary, suite, point, planned)
        return replace(made, figures={"completed_rate": rates[point.place.load]})

    monkeypatch.setattr(null_server, "run_trial", run)
    null = NullServer(RunFolder(path=tmp_path), plan.suite, "")
    here = plan.points[0]
    there = replace(here, place=Placement(load=("h2",)))
    assert [null.ceiling(cast("Any", None), each) for each in (here, there, here)] == [1000.0, 5000.0, 1000.0]
