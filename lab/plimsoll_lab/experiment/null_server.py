"""The generator against a server that does nothing else, our own epoll: how much it is capable of
itself, with this load, with answers of the same length, and on these hosts. Ours speaks no TLS:
of a load over https that is not known, and what the generator says of itself counts alone.

Its trials are on disk, with numbers of their own, so that `resume` takes those that are there.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from plimsoll_lab.experiment.run import ATTEMPTS
from plimsoll_lab.experiment.search_ends import HostsKeepGoing
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import PlannedTrial, Point, Suite
from plimsoll_lab.trial.lifecycle import run_trial
from plimsoll_lab.trial.retry import has_lost_a_host
from plimsoll_lab.trial.testbed import Testbed, network_key

CEILING_CONNECTIONS = 64
"""Enough to keep two cores busy, too few to cost anything by their number."""
USUAL_ANSWER = 64
"""Bytes of an answer where no trial has had one."""
TRIALS = 3
"""Of these the best tells the generator's ceiling, and the middle one whether it meets the limits:
one may dip."""


def _is_secure(base: Point) -> bool:
    target = base.load.get("target")
    return any(each.startswith("https://") for each in (target if isinstance(target, tuple) else (str(target),)))


def _had(stored: TrialRecord, base: Point, path: str) -> bool:
    """Whether a stored trial had such answers: an earlier lab's were all of one length."""
    if base.load.get("protocol") != "http":
        return True
    return any(str(word).endswith(path) for word in stored.load.get("command", ()))


def _answer_bytes(trials: Sequence[TrialRecord]) -> int:
    """How long the server's answers are, without their heads."""
    told = [trial.figures for trial in trials if trial.figures.get("completed_rate")]
    each = [
        found["goodput_bits_per_s"] / 8 / found["completed_rate"] for found in told if "goodput_bits_per_s" in found
    ]
    return round(statistics.median(each)) if each else USUAL_ANSWER


class NullServer:
    """The trials of a run against it."""

    def __init__(self, folder: RunFolder, suite: Suite, binary: str) -> None:
        self._folder, self._suite, self._binary = folder, suite, binary
        self._stored = {trial.number: trial for trial in folder.read_null_trials()}
        self._made = 0
        self._ceilings: dict[str, float | None] = {}

    def trials(
        self, testbed: Testbed, base: Point, load: Settings, answered: Sequence[TrialRecord]
    ) -> list[TrialRecord]:
        """So many trials with a load, in place of a point's server; none over https. `answered` are
        trials of that server, whose answers it stands for.
        """
        if _is_secure(base):
            return []
        path = f"/bytes/{_answer_bytes(answered)}"
        return [self._trial(testbed, base, load, path) for _ in range(TRIALS)]

    def ceiling(self, testbed: Testbed, base: Point, answered: Sequence[TrialRecord]) -> float | None:
        """The highest rate the generator gets from anything on these hosts, over this network, with
        this load and such answers; None over https.
        """
        closed = {key: value for key, value in base.load.items() if key not in {"think", "rate"}}
        closed = {"connections": CEILING_CONNECTIONS, **closed}
        key = repr((closed, network_key(base), base.place, _answer_bytes(answered)))
        if key not in self._ceilings:
            made = [trial.figures for trial in self.trials(testbed, base, closed, answered)]
            rates = [figures["completed_rate"] for figures in made if "completed_rate" in figures]
            self._ceilings[key] = max(rates, default=None)
        return self._ceilings[key]

    def _trial(self, testbed: Testbed, base: Point, load: Settings, path: str) -> TrialRecord:
        self._made += 1
        stored = self._stored.get(self._made)
        if stored is not None and _had(stored, base, path):
            return stored
        protocol = str(base.load.get("protocol", "echo"))
        server: Settings = {"protocol": protocol}
        load = {key: value for key, value in load.items() if key not in {"target", "path"}}
        if protocol == "http":
            server, load = {**server, "synthetic": True}, {**load, "path": path}
        point = replace(base, server=server, load=load, roles=())
        planned = PlannedTrial(number=self._made, block=1, point=base.number)
        for _ in range(1 + ATTEMPTS):
            trial = run_trial(testbed, self._binary, self._suite, point, planned)
            if not has_lost_a_host(trial):
                self._folder.write_null_trial(trial)
                return trial
        raise HostsKeepGoing(trial)
