"""How much a warning matters: whether it voids a result, widens it, or is good to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll_lab.store.records import ResultWarning, Severity, WarningRecord

CONSEQUENCES: dict[Severity, str] = {
    "voids": "some results cannot be used",
    "widens": "some results are less certain than their intervals say",
    "note": "no result changes",
}
"""What each severity means for a reader, the gravest first."""

VOIDS = frozenset(
    {
        *("no_result", "incomplete", "control_differs", "too_few_repetitions", "capture_failed", "unstable_window"),
        *("failed_requests", "doubtful_figures"),
    }
)
NOTES = frozenset({"repeated", "discarded", "cpu_contended", "programs_differ"})
"""Trials that were repeated or left out are in no figure; a closed loop allows for a generator that
waits for a CPU; of two servers a comparison is made on purpose."""


def severity(code: str) -> Severity:
    """The severity of a warning by its code; whatever is in neither list widens."""
    if code in VOIDS:
        return "voids"
    return "note" if code in NOTES else "widens"


def graded(warnings: Iterable[ResultWarning], trials: Mapping[str, int] | None = None) -> list[WarningRecord]:
    """The warnings of a summary, the gravest first; `trials` has, by code, how many trials showed
    it.
    """
    ranks = list(CONSEQUENCES)
    found = [
        WarningRecord(
            code=each.code,
            message=each.message,
            remedy=each.remedy,
            severity=severity(each.code),
            trials=(trials or {}).get(each.code),
        )
        for each in warnings
    ]
    return sorted(found, key=lambda each: ranks.index(each.severity))
