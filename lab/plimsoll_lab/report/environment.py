"""What the run was measured on, as a table."""

from __future__ import annotations

from plimsoll_lab.report.view import Cell, Section, Table
from plimsoll_lab.store.run_record import RunRecord


def section(run: RunRecord) -> Section:
    """The machine, its settings and the versions of the programs."""
    known = {**run.versions, **run.environment.known()}
    rows = []
    for name, value in known.items():
        shown = ", ".join(f"{key} {each}" for key, each in value.items()) if isinstance(value, dict) else str(value)
        rows.append((Cell(text=name.replace("_", " "), heading=True), Cell(text=shown)))
    table = Table(caption="Machine, settings and versions", head=("", "value"), rows=tuple(rows))
    return Section(name="environment", title="Environment", parts=[table])
