"""The hosts of a run on a cluster, side by side."""

from __future__ import annotations

from typing import cast

from plimsoll_lab.analysis.hosts import host_rows, hosts_of
from plimsoll_lab.report.view import Cell, Section, Table
from plimsoll_lab.store.records import Json


def section(run: Json) -> Section:
    """A column for each host; empty for a run on one machine."""
    hosts = hosts_of(run)
    if not hosts:
        return Section(name="hosts", title="Hosts")
    rows = tuple(
        (
            Cell(
                text=str(row["name"]).replace("_", " "),
                heading=True,
                badge="differs" if row["differs"] else "",
                tone="invalid",
            ),
            *(Cell(text=text) for text in cast("list[str]", row["values"])),
        )
        for row in host_rows(run)
    )
    head = ("", *(str(host["name"]) for host in hosts))
    table = Table(caption="What each host of the cluster is, and what is installed there", head=head, rows=rows)
    return Section(name="hosts", title="Hosts", parts=[table])
