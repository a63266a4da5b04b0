"""Records that a program of a trial could not write to their end, as where a disk is full.

No result is made of a part of a record: the run stops, and what is stored stays.
"""

from __future__ import annotations

import os

from plimsoll_lab.hosts.host import Host
from plimsoll_lab.problem import FULL, GOES_ON, LabError
from plimsoll_lab.store.program_output import pick
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite.placement import LOCAL

UNWRITTEN = "errors.connection_log"
"""In the summary of `plimsoll serve`: how often it could not write its connection log."""
PROGRAM = "plimsoll: "
"""What our programs' words begin with on standard error."""
SAID = " is incomplete: "
"""On standard error both programs say which file is incomplete, and why."""


def says_incomplete(stderr: str) -> bool:
    """Whether a program says that a record of its own is incomplete; it ends in 1 then."""
    return any(line.startswith(f"{PROGRAM}the record ") and SAID in line for line in stderr.splitlines())


def lacks_rows(summary: Json | None) -> bool:
    """Whether the connection log of a server is incomplete, by its summary."""
    return any(pick(summary or {}, (UNWRITTEN,)).values())


def incomplete_record(who: str, host: Host, stderr: str) -> LabError:
    """What stops the run: which record of a program is incomplete, why, and what to do."""
    said = next((line for line in reversed(stderr.splitlines()) if SAID in line), f"a record{SAID}no reason is given")
    why = said.removeprefix(PROGRAM).split("; ")[0]
    mend = "free some space there" if any(os.strerror(number) in why for number in FULL) else "correct that"
    where = "" if host.name == LOCAL else f" on {host.name}"
    return LabError(f"{who}{where}: {why}; {mend}, then {GOES_ON}")
