"""What stops the lab, in one line."""

from __future__ import annotations

import errno

USAGE = 2
"""The exit code where the arguments or the suite are wrong."""
ENVIRONMENT = 5
"""The exit code where the environment cannot run this."""
FULL = {errno.ENOSPC, errno.EDQUOT}
"""Errors of a disk, or a quota, without room."""
GOES_ON = "'plimsoll lab resume' goes on with what is stored"
"""What a run that the disk ended can do next."""
BEGIN_AGAIN = "begin the run again; 'plimsoll lab prune' removes the folder that is left"
"""What to do where the disk refused a run's own record."""


class LabError(Exception):
    """Something a person has to put right. Its message is one line: what is wrong, why, and how to
    fix it.
    """

    def __init__(self, message: str, *, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StartError(LabError):
    """A program is missing or may not be run: of a contender, that is its outcome, and the others
    go on.
    """


class HostLost(LabError):  # noqa: N818 - what happened, named as it is
    """A host ended, or cannot be reached any more: the trial there is over, and others may go
    on.
    """

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"the host {host} was lost: {reason}", exit_code=ENVIRONMENT)
        self.host, self.reason = host, reason


class NoHost(LabError):  # noqa: N818 - the same
    """No host can be had for a part of a trial now."""


class Interrupted(Exception):  # noqa: N818 - a person's wish, not an error
    """SIGINT or SIGTERM arrived: the trial in flight is discarded and the run stays as it is on
    disk.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number
