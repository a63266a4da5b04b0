"""What ends a search before its bounds are found: a server that cannot be used, and hosts that are
lost again and again.
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll_lab.experiment.run import ATTEMPTS
from plimsoll_lab.problem import ENVIRONMENT, LabError
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.suite.spec import Suite


class ServerUnusable(Exception):  # noqa: N818 - an outcome, not an error
    """The server does not start, listen or answer, even under the lowest load. Its message is the
    server's own word.
    """


class Untold(ServerUnusable):
    """A figure with a limit cannot be had of the server: nothing is known of any load."""


class HostsKeepGoing(LabError):  # noqa: N818 - what happened, named as it is
    """Each attempt at a trial lost a host: it says nothing of the server, so that a search cannot
    go on without it.
    """

    def __init__(self, trial: TrialRecord) -> None:
        super().__init__(
            f"{1 + ATTEMPTS} attempts at a trial in a row lost a host; the last: {trial.reason}; mend the hosts or the "
            "network to them, and 'plimsoll lab resume' goes on",
            exit_code=ENVIRONMENT,
        )


def unusable(trials: Sequence[TrialRecord]) -> bool:
    """Whether all of them failed, as where a server does not start."""
    return all(trial.outcome == "failed" for trial in trials)


def awaited_in_vain(trial: TrialRecord, suite: Suite) -> bool:
    """Whether nothing could be connected to for all of the time that the server had: it was tried
    again and again, and another trial would wait as long.
    """
    return trial.outcome == "failed" and "ready" not in trial.server and trial.elapsed_s >= suite.run.ready_timeout
