"""The hosts of a run on a cluster, side by side."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.hosts import clock_row, host_rows, start_spreads_s
from plimsoll_lab.report.view import Cell, Part, Section, Table, Text
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord


def section(run: RunRecord, trials: Sequence[TrialRecord]) -> Section:
    """A column for each host; empty for a run on one machine."""
    if not run.hosts:
        return Section(name="hosts", title="Hosts")
    rows = tuple(
        (
            Cell(text=row.name.replace("_", " "), heading=True, badge="differs" if row.differs else "", tone="invalid"),
            *(Cell(text=text) for text in row.values),
        )
        for row in (*host_rows(run), clock_row(run, trials))
    )
    head = ("", *(host.name for host in run.hosts))
    table = Table(caption="What each host of the cluster is, and what is installed there", head=head, rows=rows)
    spreads_s = start_spreads_s(trials)
    parts: list[Part] = [table]
    if spreads_s:
        middle, most = (formatting.number(each, "s") for each in (statistics.median(spreads_s), max(spreads_s)))
        text = f"Generators of one trial opened their windows within {middle} of each other in the median, and "
        parts.append(Text(text=f"{text}{most} at most."))
    return Section(name="hosts", title="Hosts", parts=parts)
