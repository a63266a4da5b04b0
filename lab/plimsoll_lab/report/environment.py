"""What the run was measured on, as a table."""

from __future__ import annotations

import time

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.view import Cell, Part, Section, Table, Text
from plimsoll_lab.store.run_record import RunRecord

DIGEST = 16
"""Digits of a digest that are shown; run.json has all."""


def section(run: RunRecord) -> Section:
    """The machine, its settings and the versions of the programs."""
    known = {**run.versions, **run.environment.known()}
    rows = tuple(
        (Cell(text=name.replace("_", " "), heading=True), *(Cell(text=each) for each in formatting.facts([value])))
        for name, value in known.items()
    )
    table = Table(caption="Machine, settings and versions", head=("", "value"), rows=rows)
    return Section(name="environment", title="Environment", parts=[table, *_imported(run)])


def _imported(run: RunRecord) -> list[Part]:
    """The files that the trials come from."""
    if run.imported is None:
        return []
    files = tuple(
        (
            Cell(text=str(each.trial), heading=True),
            Cell(text=each.name),
            Cell(text=each.tool),
            Cell(text=each.target or "-"),
            Cell(text="-" if each.started_unix_s is None else _when(each.started_unix_s)),
            Cell(text=each.sha256[:DIGEST]),
        )
        for each in run.imported.files
    )
    head = ("trial", "file", "tool", "target", "began", "SHA-256")
    return [
        Text(text="The files tell nothing of the machine."),
        Table(caption="Imported files", head=head, rows=files),
    ]


def _when(unix_s: float) -> str:
    return time.strftime("%-d %B %Y, %H:%M UTC", time.gmtime(unix_s))
