"""`plimsoll lab list`: lists the runs."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from plimsoll_lab.cli.verb import DONE, FAILED, Verb, add_out, refuse, say
from plimsoll_lab.problem import LabError
from plimsoll_lab.store.folder import runs_in


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_out(parser, "where the runs are")


def _list(options: argparse.Namespace) -> int:
    code, out = DONE, Path(options.out)
    runs = runs_in(out)
    if not runs and not options.json:
        say(f"no runs in {out}")
    for folder in runs:
        try:
            run = folder.read_run()
        except LabError as reason:
            # The other runs are listed all the same.
            code = refuse(str(reason), FAILED)
            continue
        suite, done = run.suite.name, folder.count_trials()
        # How many trials a search takes is not known before.
        planned = len(run.trials) if run.search is None else None
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_unix_s))
        if options.json:
            row = {"run": str(folder.path), "suite": suite, "status": folder.status(run)}
            say(json.dumps(row | {"trials": done, "planned": planned, "started_unix_s": run.started_unix_s}))
        else:
            of = "" if planned is None else f"/{planned}"
            say(f"{folder.path}  {began}  {suite:<16} {folder.status(run):<12} {done}{of} trials")
    return code


VERB = Verb(
    name="list",
    summary="list the runs",
    examples="""examples:
  plimsoll lab list
  plimsoll lab list --out elsewhere/
""",
    arguments=_arguments,
    perform=_list,
)
