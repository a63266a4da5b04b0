"""What documents say, beside what was found: claims with their outcomes, and figures of theirs
beside ours.
"""

from __future__ import annotations

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.view import Cell, Section, Table
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import ClaimRecord, ReferenceRecord, RunSummary

NOTE = (
    "A claim is confirmed where the whole 95 % interval lies in the claimed range, contradicted where it lies wholly "
    "outside. A figure itself belongs to its hardware: it stands beside ours, and is never confirmed."
)
"""How the outcomes are read."""
TONES = {"confirmed": "met", "contradicted": "missed"}


def section(summary: RunSummary, run: RunRecord) -> Section:
    """The section of the page; without parts where the suite holds nothing from documents."""
    parts = []
    if summary.claims:
        rows = tuple(
            (
                Cell(text=each.name, detail=each.source, heading=True),
                Cell(text=f"{each.figure} {each.expect}", detail=each.free),
                Cell(text="-" if each.value is None else measured(each, run)),  # the outcome has the reason
                Cell(text="", badge=each.outcome, tone=TONES.get(each.outcome, ""), detail=each.reason),
            )
            for each in summary.claims
        )
        head = ("claim", "figure and range", "found, 95 %", "outcome")
        parts.append(Table(caption="Claims of documents, put to the test", head=head, rows=rows))
    if summary.references:
        beside = tuple(_reference(each, run) for each in summary.references)
        names = ("figure", "at", "theirs", "ours", "ours / theirs")
        parts.append(Table(caption="Figures of documents beside ours", head=names, rows=beside, style="numbers"))
    return Section(name="documents", title="What documents say", note=NOTE, parts=parts)


def lines(summary: RunSummary, run: RunRecord) -> list[str]:
    """The same for a terminal: a line a claim."""
    if not summary.claims:
        return []
    width = max(len(each.outcome) for each in summary.claims)
    told = [
        f"  {each.outcome:<{width}}  {each.name}: {measured(each, run)}, claimed {each.expect}"
        for each in summary.claims
    ]
    return ["", "claims of documents", *told]


def measured(claim: ClaimRecord, run: RunRecord) -> str:
    """What was found for a claim: a figure or a ratio, with its interval; else why there is
    none.
    """
    if claim.value is None:
        return claim.reason
    if claim.over is not None and not claim.difference:
        return formatting.ratio(claim.value, claim.interval)
    unit = run.figure(claim.figure).unit
    ends = ", ".join(formatting.number(each, unit) for each in claim.interval or ())
    return formatting.number(claim.value, unit) + (f" [{ends}]" if ends else "")


def _reference(each: ReferenceRecord, run: RunRecord) -> tuple[Cell, ...]:
    figure = run.figure(each.figure)
    return (
        Cell(text=figure.label, detail=each.source, heading=True),
        Cell(text=formatting.setting(each.at)),
        Cell(text=formatting.number(each.value, figure.unit)),
        Cell(text=formatting.number(each.ours, figure.unit), detail=each.reason or ""),
        Cell(text="-" if each.ratio is None else f"{formatting.significant(each.ratio)}x"),
    )
