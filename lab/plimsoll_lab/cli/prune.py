"""`plimsoll lab prune`: removes old runs, and what is left of runs without a record."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from plimsoll_lab.cli.verb import DONE, FAILED, Verb, add_out, refuse, say
from plimsoll_lab.problem import USAGE, LabError
from plimsoll_lab.store.folder import RunFolder, remains_in, runs_in
from plimsoll_lab.suite import units

JUST_MADE_S = 60.0
"""A run that begins has neither its record nor its lock for a moment."""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keep", type=int, metavar="N", help="keep the newest N runs")
    parser.add_argument("--older", metavar="D", help="remove only runs that began longer ago than this, such as 720h")
    parser.add_argument("--yes", action="store_true", help="remove them; without it they are only listed")
    add_out(parser, "where the runs are")


def _prune(options: argparse.Namespace) -> int:
    if options.keep is None and options.older is None:
        raise LabError("prune: say which runs may go, with --keep N or --older D", exit_code=USAGE)
    if options.keep is not None and options.keep < 0:
        raise LabError(f"prune: --keep {options.keep}: write a whole number of at least 0", exit_code=USAGE)
    try:
        age_s = units.duration_s(options.older) if options.older is not None else 0.0
    except ValueError as refusal:
        raise LabError(f"prune: --older: {refusal}", exit_code=USAGE) from None
    out = Path(options.out)
    runs = runs_in(out)
    old = runs[: max(0, len(runs) - options.keep)] if options.keep is not None else runs
    candidates = [(folder, _began_s, age_s) for folder in old]
    candidates += [(folder, _changed_s, max(age_s, JUST_MADE_S)) for folder in remains_in(out)]
    code, found = DONE, 0
    for folder, since_s, least_s in candidates:
        try:
            if time.time() - since_s(folder) < least_s or folder.is_locked():
                continue
            if options.yes:
                folder.remove()
        except (LabError, OSError) as error:
            # The others are removed all the same.
            code = refuse(_why(folder, error), FAILED)
            continue
        found += 1
        done = "removed" if options.yes else "would remove"
        say(json.dumps({"run": str(folder.path), "removed": options.yes}) if options.json else f"{done} {folder.path}")
    if not options.json and not found and code == DONE:
        say("no run to remove")
    elif not options.json and found and not options.yes:
        say("nothing is removed yet; add --yes to remove them")
    return code


def _began_s(folder: RunFolder) -> float:
    return folder.read_run().started_unix_s


def _changed_s(folder: RunFolder) -> float:
    return folder.path.stat().st_mtime


def _why(folder: RunFolder, error: LabError | OSError) -> str:
    """Why a folder stays, and what to do."""
    if isinstance(error, LabError):
        return str(error)
    mend = "prune as the user who made it" if isinstance(error, PermissionError) else "correct that, and prune again"
    return f"cannot remove {folder.path}: {error.strerror or error}; {mend}"


VERB = Verb(
    name="prune",
    summary="remove old runs",
    examples="""examples:
  plimsoll lab prune --keep 10               which runs would go, all but the newest ten
  plimsoll lab prune --keep 10 --yes         remove them; a run that is under way stays
  plimsoll lab prune --older 720h --yes      remove those that began more than thirty days ago
""",
    arguments=_arguments,
    perform=_prune,
)
