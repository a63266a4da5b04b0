"""How far a run has come, from its events: one line that is rewritten on a terminal, a line a block
elsewhere.
"""

from __future__ import annotations

import json
import sys
import time

from pydantic import BaseModel

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite.expand import as_text
from plimsoll_lab.suite.prediction import predicted_s
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import Plan, SearchSettings

TOLD = ("event", "number", "of", "point", "outcome", "reason")
"""What a trial's line of JSON has."""
LOAD = "load"
"""The name of the only generator."""


class TrialEvent(BaseModel):
    """An event `trial`, as far as it is shown; `missed` and `left_s` are a search's."""

    number: int
    block: int
    point: Settings
    outcome: str
    missed: str | None = None
    left_s: float | None = None


class SecondEvent(BaseModel):
    """An event `second`."""

    part: str
    at_s: int
    completed: int
    failed: int
    p99_us: float | None


def tell_of_paths(*, quiet: bool) -> None:
    """Say why no trial begins yet: each path takes seconds, and up to three attempts."""
    if not quiet:
        print("measuring the paths of the network first", file=sys.stderr)


class Progress:
    """Takes every event; writes to stderr, and with `--json` an event a trial to stdout."""

    def __init__(self, plan: Plan, folder: RunFolder, *, quiet: bool, json_lines: bool) -> None:
        self._plan = plan
        self._quiet = quiet
        self._json_lines = json_lines
        self._started = time.monotonic()
        self._made, self._now = folder.trial_numbers(), 0
        self._rewrite = sys.stderr.isatty()
        self._line = ""
        if not quiet:
            about = f"{len(plan.points)} points x {plan.suite.run.repeat} repetitions = {len(plan.trials)} trials"
            print(
                f"{folder.path}: {plan.suite.name}, {about}, {formatting.duration(predicted_s(plan))}", file=sys.stderr
            )

    def on_event(self, event: Json) -> None:
        """Show what an event says."""
        if event["event"] == "trial":
            self._trial(event)
        elif event["event"] == "paths":
            tell_of_paths(quiet=self._quiet)
        elif event["event"] == "second" and self._rewrite and not self._quiet:
            self._rewrite_line(f"{self._line}  {second(event)}")

    def _trial(self, trial: Json) -> None:
        made = TrialEvent.model_validate(trial)
        # One that a resumed run makes again is among those that there were.
        self._made.add(made.number)
        self._now += 1
        done, total = len(self._made), len(self._plan.trials)
        if self._json_lines:
            print(json.dumps({key: trial[key] for key in TOLD}), flush=True)
        if self._quiet:
            return
        elapsed_s = time.monotonic() - self._started
        left_s = elapsed_s / self._now * (total - done)
        line = f"{done}/{total} trials, {formatting.duration(left_s)} left"
        if self._rewrite:
            what = " ".join(as_text(value) for value in made.point.values())
            self._line = f"{line}  {what}: {formatting.outcome(made.outcome)}"
            self._rewrite_line(self._line)
        elif made.number % len(self._plan.points) == 0:
            print(f"block {made.block} of {self._plan.suite.run.repeat}: {line}", file=sys.stderr)

    def _rewrite_line(self, line: str) -> None:
        sys.stderr.write(f"\r\x1b[K{line}")
        sys.stderr.flush()

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._rewrite and not self._quiet:
            self._rewrite_line("")


class SearchProgress:
    """Takes every event of a search: a line a trial."""

    def __init__(self, search: SearchSettings, *, quiet: bool) -> None:
        self._over, self._quiet = search.over, quiet

    def on_event(self, event: Json) -> None:
        """Say that a trial is on disk, and what it missed."""
        if event["event"] == "paths":
            tell_of_paths(quiet=self._quiet)
        if self._quiet or event["event"] != "trial":
            return
        trial = TrialEvent.model_validate(event)
        setting, left_s = trial.point, trial.left_s
        others = [str(value) for path, value in setting.items() if path not in {self._over, "load.duration"}]
        missed = f"{trial.missed or 'met'}{', confirming' if 'load.duration' in setting else ''}"
        left = f"; {formatting.duration(left_s)} left" if left_s is not None else ""
        place = " ".join([*others, formatting.setting({self._over: setting[self._over]})])
        print(f"trial {trial.number}: {place}: {missed}{left}", file=sys.stderr)


def second(event: Json) -> str:
    """A second of the trial under way, in words: `second 3: 12,345 completed, p99 1.2 ms`.

    A count and no rate: the first and the last second may be a part of one.
    """
    told = SecondEvent.model_validate(event)
    who = "" if told.part == LOAD else f"{told.part}, "
    parts = [f"{who}second {told.at_s}: {told.completed:,} completed"]
    parts += [] if told.p99_us is None else [f"p99 {formatting.number(told.p99_us, 'us')}"]
    parts += [f"{told.failed:,} failed"] if told.failed else []
    return ", ".join(parts)
