"""A run that searches: at each point of the matrix, the highest load that meets the limits.

Every trial is on disk before the next one starts. A search is a function of its trials alone, so
`resume` gives it those that are on disk and goes on where they end.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from plimsoll_lab.analysis.limiter import held_up, who_limited
from plimsoll_lab.analysis.search_trial import broken_by, loss_ratio, misses_a_limit, never_told, reading_of, what_broke
from plimsoll_lab.analysis.short_of import EVIDENCE, crowded, medians, out_of_cpu, share_cpus
from plimsoll_lab.experiment.events import Events, trial_event
from plimsoll_lab.experiment.null_server import NullServer
from plimsoll_lab.experiment.run import (
    ATTEMPTS,
    REPEAT_BUDGET,
    calibrated_testbeds,
    note_hosts,
    point_record,
    with_discarded_attempt,
)
from plimsoll_lab.experiment.search_ends import HostsKeepGoing, ServerUnusable, Untold, awaited_in_vain, unusable
from plimsoll_lab.hosts.host import Host
from plimsoll_lab.problem import HostLost, Interrupted, LabError
from plimsoll_lab.stats.capacity import Bounds, OutOfPatience, Search
from plimsoll_lab.stats.goal import Goal
from plimsoll_lab.stats.readings import WARM_UP, Reading
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.run_record import EnvironmentRecord, RunRecord, Status
from plimsoll_lab.store.search_record import BreakRecord, LimitedBy, LoadRecord, SearchRecord, SearchState
from plimsoll_lab.suite import units
from plimsoll_lab.suite.prediction import trial_s
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Axis, Plan, PlannedTrial, Point, SearchSettings, Suite
from plimsoll_lab.trial.lifecycle import Outputs, run_trial
from plimsoll_lab.trial.retry import has_lost_a_host, passing_cause, retry_reason
from plimsoll_lab.trial.testbed import Machines, Testbed, network_key, place_point

SETTLING_CONNECTIONS = 8
"""Enough to reach every event loop of a server on a small machine."""
PASSES_S = 120.0
"""What takes the CPU away for a while may do so for two minutes: a short trial is made again until
it has passed."""
GENTLE_TRIALS = 2
"""Trials at the lowest load that have to fail before the server is given up: one may be a
moment's."""
LONGER = "load.duration"
"""In the setting of a trial that is longer than the search's first ones."""


def _listen_overflows(host: Host) -> int | None:
    """How many connections have found a listen queue full there; None where the host does not tell,
    or is lost, which the trial tells of itself.
    """
    with contextlib.suppress(HostLost):
        return host.counters().get("listen_overflows")
    return None


class SearchRun:
    """A run of searches, on disk."""

    def __init__(
        self, folder: RunFolder, record: RunRecord, plan: Plan, host: Machines, binary: str, events: Events
    ) -> None:
        if plan.suite.search is None:
            raise AssertionError("a plan without a search")
        self._folder, self._record, self._plan, self._host, self._binary, self._events = (
            folder, record, plan, host, binary, events
        )  # fmt: skip
        self.settings: SearchSettings = plan.suite.search
        self._stored = {trial.number: trial for trial in folder.read_trials()}
        self._null_server = NullServer(folder, plan.suite, binary)
        self._testbeds: dict[str, Testbed] = {}
        self.trials: list[TrialRecord] = []
        self.points: dict[tuple[int, int, float], Point] = {}
        settings = {point.number: point.setting for point in plan.points}
        self.searches = [
            SearchRecord(**asdict(each), state="planned", setting=settings[each.point]) for each in plan.trials
        ]

    def carry_out(self) -> Interrupted | None:
        """Make every search. The status on disk says how it ended."""
        status: Status = "failed"
        interrupted: Interrupted | None = None
        self._write("running")
        bases = {point.number: point for point in self._plan.points}
        try:
            with calibrated_testbeds(
                self._folder, self._record, self._plan, self._host, self._binary, self._events
            ) as testbeds:
                self._testbeds = {network_key(base): testbeds[base.number] for base in self._plan.points}
                for number, planned in enumerate(self._plan.trials):
                    self._search_point(number, bases[planned.point])
            status = "complete"
        except Interrupted as signal:
            status, interrupted = "interrupted", signal
        finally:
            self._write(status)
            self._events.publish({"event": "end", "status": status})
        return interrupted

    def _search_point(self, number: int, base: Point) -> None:
        """One search, from a gentle trial to who was the limit."""
        suite, settings = self._plan.suite, self.settings
        refused = next((each for each in self.searches if each.point == base.number and each.state == "failed"), None)
        if refused is not None:
            # A server that did not start in one block is not tried again in the next ones.
            self.searches[number].setting, self.searches[number].state = base.setting, "failed"
            self.searches[number].reason = refused.reason
            return
        first = len(self.trials)
        ceiling: float | None = None

        def measure(load: int, length_s: float) -> Reading:
            nonlocal ceiling
            spent_s = sum(trial.took_s for trial in self.trials[first:])
            if spent_s >= settings.patience_s:
                raise OutOfPatience
            trial = self._measure(number, base, load, length_s, len(self.trials) - first, search)
            while len(self.trials) < first + GENTLE_TRIALS and unusable(self.trials[first:]):
                # A server of the lab's own is started anew, and may be quicker the second time.
                if "address" in base.server and awaited_in_vain(trial, suite):
                    break
                trial = self._measure(number, base, load, length_s, len(self.trials) - first, search)
            self._refuse_to_go_on(base, self.trials[first:])
            if ceiling is None and len(self.trials) >= first + GENTLE_TRIALS:
                ceiling = self._ceiling(base, self.trials[first:])
            took_s = sum(each.took_s for each in self.trials[first:]) - spent_s
            return replace(reading_of(trial, suite), took_s=took_s, repeated_s=trial.repeated_s)

        search = Search(self._goal(number), measure)
        try:
            bounds = search.run()
        except ServerUnusable as refusal:
            bounds = search.bounds()
            if isinstance(refusal, Untold):
                bounds = replace(bounds, lower=None, upper=None)
            self._record_search(number, base, bounds, ceiling, self.trials[first:], "failed")
            self.searches[number].reason = str(refusal)
            return
        except BaseException:
            self._record_search(number, base, search.bounds(), ceiling, self.trials[first:], "interrupted")
            raise
        ceiling = ceiling if ceiling is not None else self._ceiling(base, self.trials[first:])
        self._record_search(
            number, base, bounds, ceiling, self.trials[first:], "complete" if bounds.finished else "out of patience"
        )

    def _refuse_to_go_on(self, base: Point, made: Sequence[TrialRecord]) -> None:
        """Raise ServerUnusable where no further trial would measure the server, or tell what is
        asked.
        """
        suite = self._plan.suite
        # Nobody starts a server anew that already runs: once it has ended, nothing is measured.
        # Twice: one that was overloaded may leave connections unanswered for long.
        last = made[-2:]
        ended = "address" in base.server and len(last) > 1 and all(awaited_in_vain(each, suite) for each in last)
        if ended or unusable(made):
            raise ServerUnusable(str(made[-1].reason))
        untold = never_told(made, suite) if len(made) >= GENTLE_TRIALS else None
        if untold is not None:
            raise Untold(
                f"'{untold.text}' is not known here: no trial tells {untold.figure}, which this server, or the machine "
                "that it runs on, keeps from the laboratory; search without this limit"
            )

    def _ceiling(self, base: Point, trials: Sequence[TrialRecord]) -> float | None:
        return self._null_server.ceiling(self._testbeds[network_key(base)], base, trials[:GENTLE_TRIALS])

    def _goal(self, number: int) -> Goal:
        settings, first_s = self.settings, self._first_s()
        return Goal(
            lowest=settings.lowest,
            highest=settings.highest,
            width=settings.width,
            trials=settings.trials,
            first_s=first_s,
            least_s=settings.least_s(first_s),
            most_s=settings.most_s(first_s),
            hold_s=settings.lasting_s,
            patience_s=settings.patience_s,
            shift=float(np.random.default_rng([self._plan.seed, number]).random()),
        )

    def _measure(self, number: int, base: Point, load: int, length_s: float, made: int, search: Search) -> TrialRecord:
        """The next trial: from the disk, where an earlier start of this run has made it, else for
        real.
        """
        point = self._point(base, load, length_s)
        planned = PlannedTrial(
            number=len(self.trials) + 1,
            block=1 + sum(trial.point == point.number for trial in self.trials),
            point=point.number,
        )
        stored = self._stored.get(planned.number)
        hide = self._folder.hide  # a stored setting has no secrets
        if stored is not None and (was := hide(dict(stored.setting))) != (now := hide(dict(point.setting))):
            raise LabError(
                f"trial {planned.number} was made at {was}, and this lab would make it at {now}; resume with the lab "
                "that began the run"
            )
        self._stored.pop(planned.number, None)
        about = {"number": planned.number, "of": None, "block": planned.block, "point": dict(point.setting)}
        lasting_s = trial_s(self._warmed_up(self._plan.suite, point), point)
        started: Json = {"event": "trial_started", **about, "predicted_s": lasting_s, "next": []}
        trial = self._trial(self._plan, point, planned, made, started, stored)
        self.trials.append(trial)
        if trial is not stored:
            missed = broken_by(trial, self._plan.suite) if loss_ratio(trial, self._plan.suite) else ""
            left_s = self._left_s(search)
            self._events.publish(trial_event(trial, None) | {"missed": missed, "left_s": left_s})
        self.searches[number].trials = made + 1
        return trial

    def _settle(self, point: Point) -> None:
        """Wait until a server that outlives its trials has done with the last one's requests, as
        far as it shows.

        A server that was asked for more than it can do goes on answering connections long closed,
        and the next trial would measure that. A request on a few new connections waits behind all
        of them.
        """
        if "address" not in point.server or not self.trials:
            return
        kept = {key: value for key, value in point.load.items() if key in {"protocol", "target", "path"}}
        load: Settings = {**kept, "connections": SETTLING_CONNECTIONS, "each": 1, "timeout": "30s"}
        suite = replace(self._plan.suite, run=replace(self._plan.suite.run, warm_up=None))
        planned = PlannedTrial(number=0, block=0, point=point.number)
        run_trial(self._testbeds[network_key(point)], self._binary, suite, replace(point, load=load), planned)

    def _measure_once(self, plan: Plan, point: Point, planned: PlannedTrial) -> TrialRecord:
        """One measurement, and how many connections found the listen queue full meanwhile."""
        self._settle(point)
        testbed = place_point(self._testbeds[network_key(point)], point)
        server_host = testbed.host(point.place.server)
        before = _listen_overflows(server_host)
        suite = self._warmed_up(plan.suite, point)
        trial = run_trial(testbed, self._binary, suite, point, planned, Outputs(notify=self._events.publish))
        note_hosts(self._folder, self._record, self._host)
        after = _listen_overflows(server_host)
        if before is None or after is None or trial.server.get("elsewhere"):
            return trial
        return replace(trial, machine={**trial.machine, "listen_overflows": after - before})

    def _trial(
        self,
        plan: Plan,
        point: Point,
        planned: PlannedTrial,
        made: int,
        started: Json,
        stored: TrialRecord | None = None,
    ) -> TrialRecord:
        """A trial, made again where a cause outside its own processes was in the way. A stored one
        goes on where it ended: the run may have been stopped before it was made again.
        """
        trial = stored
        if trial is None:
            self._events.publish(started)
            trial = self._measure_once(plan, point, planned)
            self._folder.write_trial(trial)
        here = self.trials[len(self.trials) - made :]  # of this search
        if stored is not None and self._stored:
            return stored  # made again as often as it was to be: trials came after it
        losses = 0
        while (reason := retry_reason(trial)) and (has_lost_a_host(trial) or self._may_pass(trial, here)):
            losses = losses + 1 if has_lost_a_host(trial) else 0
            if losses > ATTEMPTS:
                raise HostsKeepGoing(trial)
            # Who watches begins anew: the seconds of both measurements would add up.
            self._events.publish(started | {"again": reason})
            self._folder.keep_attempt(trial)
            trial = with_discarded_attempt(trial, self._measure_once(plan, point, planned))
            self._folder.write_trial(trial)
        return trial

    def _may_pass(self, trial: TrialRecord, before: Sequence[TrialRecord]) -> bool:
        """Whether repeating a trial may help, and all repeats of its search, of which these trials
        came before, take no more than their part of the patience. A cause that the trial before was
        kept with is not waited for again.
        """
        lasts = bool(before) and passing_cause(before[-1]) == passing_cause(trial)
        repeated_s = sum(each.repeated_s for each in (*before, trial))
        return (
            not lasts
            and (len(trial.attempts) < ATTEMPTS or trial.took_s <= PASSES_S)
            and repeated_s + trial.elapsed_s <= REPEAT_BUDGET * self.settings.patience_s
            and sum(each.took_s for each in (*before, trial)) < self.settings.patience_s
        )

    def _left_s(self, search: Search) -> float | None:
        """About how long the search still takes, if its trials need not become longer: a longer
        trial warms up for half its length.
        """
        left_s = search.left_s()
        return None if left_s is None else (1 + WARM_UP) * left_s

    def _warmed_up(self, suite: Suite, point: Point) -> Suite:
        if LONGER not in point.setting:
            return suite
        warm_up_s = WARM_UP * units.duration_s(str(point.setting[LONGER]))
        if suite.run.warm_up and units.duration_s(suite.run.warm_up) >= warm_up_s:
            return suite
        return replace(suite, run=replace(suite.run, warm_up=f"{warm_up_s:g}s"))

    def _first_s(self) -> float:
        load = self._plan.points[0].load
        return units.duration_s(str(load["duration"])) if "duration" in load else 1.0

    def _point(self, base: Point, load: int, length_s: float) -> Point:
        found = self.points.get((base.number, load, length_s))
        if found is None:
            setting = {**base.setting, self.settings.over: load}
            settings = {**base.load, self.settings.key: load}
            if length_s != self._first_s():
                longer = f"{length_s:.4f}".rstrip("0").rstrip(".") + "s"
                setting, settings = {**setting, LONGER: longer}, {**settings, "duration": longer}
            found = replace(base, number=len(self.points), setting=setting, load=settings)
            self.points[base.number, load, length_s] = found
            self._write("running")  # so that a report can be made of whatever a crash leaves behind
        return found

    def _record_search(
        self,
        number: int,
        base: Point,
        bounds: Bounds,
        ceiling: float | None,
        trials: list[TrialRecord],
        state: SearchState,
    ) -> None:
        """What a search has found, or found so far."""
        found = self.searches[number]
        # Until it is known what the limit was, which takes trials of its own.
        found.state = "interrupted"
        found.setting = base.setting
        found.lower, found.upper = bounds.lower, bounds.upper
        found.generator_ceiling_per_s = ceiling
        found.held_s, found.trial_s = bounds.held_s, bounds.trial_s
        found.precision = None if bounds.precision is None else min(1.0, bounds.precision)
        found.confirmed, found.is_held = bounds.confirmed, bounds.is_held
        found.unconfirmed = list(bounds.unconfirmed)
        found.loads = self._loads(base, trials)
        if bounds.upper is not None and state not in {"interrupted", "failed"}:
            found.limited_by, found.broke = self._limiter(base, bounds.upper, bounds, ceiling, trials)
        found.state = state

    def _limiter(
        self, base: Point, upper: int, bounds: Bounds, ceiling: float | None, trials: list[TrialRecord]
    ) -> tuple[LimitedBy, BreakRecord]:
        """Who stopped the rise, and what broke first."""
        suite = self._plan.suite
        bad = self._refuting(base, upper, trials, bounds.upper_s)
        environment = self._servers_environment(base, bad)
        rate = medians(self._at(base, bounds.lower or 0, trials), ("completed_rate",)).get("completed_rate")

        def null_misses(only_limits: bool) -> bool:  # noqa: FBT001 - as `NullMisses`
            load = {**base.load, self.settings.key: upper}
            null = self._null_server.trials(self._testbeds[network_key(base)], base, load, trials[:GENTLE_TRIALS])
            missed = [misses_a_limit(trial, suite) if only_limits else loss_ratio(trial, suite) > 0 for trial in null]
            return 2 * sum(missed) > len(missed)

        outcomes = [trial.outcome for trial in bad]
        who, near = who_limited(
            outcomes,
            rate=rate,
            ceiling=ceiling,
            null_misses=null_misses,
            crowded=share_cpus(base) and crowded(bad, trials, environment),
        )
        late = held_up(rate, ceiling) if who == "server" else None
        broke = what_broke(suite, bad, trials, environment, late)
        if who != "server" and out_of_cpu(bad, trials, environment):
            # It was out of CPU, and yet not what ended the rise.
            broke = broke.model_copy(update={"causes": [each for each in broke.causes if each.code != "cpu"]})
        return who, broke if near is None else broke.model_copy(update={"near_ceiling": near})

    def _refuting(
        self, base: Point, load: int, trials: list[TrialRecord], longest_s: float = math.inf
    ) -> list[TrialRecord]:
        """The trials that refuted a load: the longest ones that did not pass, up to this length. A
        load is not carried either where these do not show that it lasts.
        """
        lengths_s = sorted({each for number, at, each in self.points if (number, at) == (base.number, load)})
        for length_s in reversed([each for each in lengths_s if each <= longest_s]):
            number = self.points[base.number, load, length_s].number
            read = [(each, reading_of(each, self._plan.suite).met) for each in trials if each.point == number]
            missed, untold = ([each for each, met in read if met is how] for how in (False, None))
            if missed or untold:
                return max(missed, untold, key=len)
        return []

    def _servers_environment(self, base: Point, trials: Sequence[TrialRecord]) -> EnvironmentRecord:
        """Of the machine that the server ran on in the last of these trials. Another one may have
        had its name before, or later.
        """
        named = [host for host in self._record.hosts if host.name == base.place.server]
        told = {
            clock.get("address"): None
            for trial in trials
            for clock in trial.hosts.get("clocks", ())
            if clock["host"] == base.place.server
        }
        there = [host for address in told for host in named if host.address == address] or named
        return EnvironmentRecord.model_validate(there[-1].environment) if there else self._record.environment

    def _at(self, base: Point, load: int, trials: list[TrialRecord]) -> list[TrialRecord]:
        """Every trial at a load, the confirming ones too."""
        numbers = {
            point.number for (number, at, _), point in self.points.items() if (number, at) == (base.number, load)
        }
        return [trial for trial in trials if trial.point in numbers]

    def _loads(self, base: Point, trials: list[TrialRecord]) -> list[LoadRecord]:
        """A row a load: how many of its trials were good, and the medians of what counts."""
        suite = self._plan.suite
        names = tuple(dict.fromkeys((*(limit.figure for limit in suite.limits), *EVIDENCE)))
        rows = []
        for load in sorted({load for number, load, _ in self.points if number == base.number}):
            made = self._at(base, load, trials)
            if made:
                good = sum(loss_ratio(trial, suite) == 0 for trial in made)
                rows.append(LoadRecord(load=load, trials=len(made), good=good, medians=medians(made, names)))
        return rows

    def _write(self, status: Status) -> None:
        record, axes = self._record, self._plan.suite.axes
        record.status, record.finished_unix_s = status, None if status == "running" else time.time()
        if record.searches and status != "complete" and (self._stored or not self.points):
            # An earlier start of this run got further than this one has until now.
            self._folder.write_run(record)
            return
        loads = sorted({load for _, load, _ in self.points})
        record.axes = (*axes, Axis(path=self.settings.over, values=tuple(loads))) if loads else axes
        record.points = [point_record(point) for point in self.points.values()]
        record.trials = [_planned(trial) for trial in self.trials]
        record.searches = self.searches
        self._folder.write_run(record)


def _planned(trial: TrialRecord) -> PlannedTrial:
    return PlannedTrial(number=trial.number, block=trial.block, point=trial.point)
