"""The answer of `plimsoll lab capacity` in the terminal."""

from __future__ import annotations

from plimsoll_lab.report.searches import render_searches
from plimsoll_lab.report.warning_lines import warning_lines
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary


def render_capacity(run: RunRecord, summary: RunSummary) -> str:
    """The answer in words: one sentence, one table, and where the page is."""
    warnings = warning_lines(summary.warnings)
    lines = [*summary.answer, *render_searches(summary, run), *(["", *warnings] if warnings else [])]
    return "\n".join([*lines, "", f"report   {summary.report}", f"again    {summary.command}"])
