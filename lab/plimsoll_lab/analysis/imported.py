"""What imported results amount to: their figures, and no verdict."""

from __future__ import annotations

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.answer import Evidence, answer, sentence
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import PointSummary

SENTENCES = 2
"""Contenders that have a sentence each; the table has more."""


def answer_imported(run: RunRecord, evidence: Evidence) -> list[str]:
    """Where the results come from, and the figures of each contender at the heaviest load."""
    count = len(run.trials)
    results = "1 result" if count == 1 else f"{count} results"
    tools = formatting.listed(run.imported.tools if run.imported is not None else [])
    first = f"{results} of {tools}, imported: nobody checked whether the generator or the machine was the limit."
    compare = run.family.compare
    latest: dict[str, PointSummary] = {}
    for point in (each for each in evidence.points if compare is not None and each.outcome == "ok"):
        latest[formatting.contender(point.point, str(compare))] = point
    if not latest:
        return [first, *answer(evidence)]
    if len(latest) > SENTENCES:
        return [first, f"The table has the medians of {len(latest)} contenders."]
    return [first, *(sentence(_subject(name, point, compare), point, evidence) for name, point in latest.items())]


def _subject(name: str, point: PointSummary, compare: str | None) -> str:
    at = {path: value for path, value in point.point.items() if path != compare}
    return f"{name}, at {formatting.setting(at)}," if at else name
