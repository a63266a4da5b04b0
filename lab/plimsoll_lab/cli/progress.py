"""How far a run has come: one line that is rewritten on a terminal, a line a block elsewhere."""

from __future__ import annotations

import json
import sys
import time

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.suite.expand import as_text, predicted_s
from plimsoll_lab.suite.spec import Plan, SearchSettings


class Progress:
    """Told of every trial; writes to stderr, and with `--json` an event a trial to stdout."""

    def __init__(self, plan: Plan, folder: RunFolder, *, quiet: bool, json_lines: bool) -> None:
        self._plan = plan
        self._quiet = quiet
        self._json_lines = json_lines
        self._started = time.monotonic()
        self._before = self._done = folder.count_trials()
        self._rewrite = sys.stderr.isatty()
        if not quiet:
            about = f"{len(plan.points)} points x {plan.suite.run.repeat} repetitions = {len(plan.trials)} trials"
            print(
                f"{folder.path}: {plan.suite.name}, {about}, {formatting.duration(predicted_s(plan))}", file=sys.stderr
            )

    def trial_done(self, trial: TrialRecord) -> None:
        """Say that a trial is on disk."""
        self._done += 1
        total = len(self._plan.trials)
        if self._json_lines:
            event = {"event": "trial", "number": trial.number, "of": total, "point": dict(trial.setting)}
            print(json.dumps(event | {"outcome": trial.outcome, "reason": trial.reason}), flush=True)
        if self._quiet:
            return
        elapsed_s = time.monotonic() - self._started
        left_s = elapsed_s / (self._done - self._before) * (total - self._done)
        line = f"{self._done}/{total} trials, {formatting.duration(left_s)} left"
        if self._rewrite:
            what = " ".join(as_text(value) for value in trial.setting.values())  # type: ignore[arg-type]
            sys.stderr.write(f"\r\x1b[K{line}  {what}: {trial.outcome}")
            sys.stderr.flush()
        elif trial.number % len(self._plan.points) == 0:
            print(f"block {trial.block} of {self._plan.suite.run.repeat}: {line}", file=sys.stderr)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._rewrite and not self._quiet:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class SearchProgress:
    """Told of every trial of a search: a line each."""

    def __init__(self, search: SearchSettings, *, quiet: bool) -> None:
        self._key, self._over, self._quiet = search.key, search.over, quiet

    def trial_done(self, trial: TrialRecord, missed: str, left_s: float | None) -> None:
        """Say that a trial is on disk, and what it missed."""
        if self._quiet:
            return
        others = [str(value) for path, value in trial.setting.items() if path not in {self._over, "load.duration"}]
        missed = f"{missed or 'met'}{', confirming' if 'load.duration' in trial.setting else ''}"
        left = f"; {formatting.duration(left_s)} left" if left_s is not None else ""
        place = " ".join([*others, f"{trial.setting[self._over]:,} {self._key}"])
        print(f"trial {trial.number}: {place}: {missed}{left}", file=sys.stderr)
