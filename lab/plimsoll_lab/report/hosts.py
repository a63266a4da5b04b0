"""The hosts of a run on a cluster, side by side."""

from __future__ import annotations

from plimsoll_lab.analysis.hosts import host_rows
from plimsoll_lab.report.view import Cell, Section, Table
from plimsoll_lab.store.run_record import RunRecord


def section(run: RunRecord) -> Section:
    """A column for each host; empty for a run on one machine."""
    if not run.hosts:
        return Section(name="hosts", title="Hosts")
    rows = tuple(
        (
            Cell(text=row.name.replace("_", " "), heading=True, badge="differs" if row.differs else "", tone="invalid"),
            *(Cell(text=text) for text in row.values),
        )
        for row in host_rows(run)
    )
    head = ("", *(host.name for host in run.hosts))
    table = Table(caption="What each host of the cluster is, and what is installed there", head=head, rows=rows)
    return Section(name="hosts", title="Hosts", parts=[table])
