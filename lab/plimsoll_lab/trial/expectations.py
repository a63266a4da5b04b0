"""Whether a trial was what the suite expects of it ([expect]). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from plimsoll_lab.store.records import ResultWarning
from plimsoll_lab.suite.checks import setting_at
from plimsoll_lab.suite.expect import missed
from plimsoll_lab.suite.spec import Point, Suite


def first_unmet(
    suite: Suite,
    point: Point,
    figures: Mapping[str, float],
    records: Mapping[str, object],
    is_known: Callable[[str], bool],
) -> str | None:
    """The first expectation that a trial does not meet, in words. An expectation of a figure that
    the trial lacks is neither met nor missed (`unjudged`).

    A figure is looked up among the trial's figures, in the generator's summary, and then in the
    records by their names: `server.connections`, `capture.endpoints`.
    """

    def seen(path: str) -> float | None:
        # What was cut out of a trial is in the whole summary all the same, by either name.
        own = path if path in figures else path.removeprefix("load.")
        if own in figures:
            return figures[own]
        places = (records.get("load"), records, records.get("capture"))
        return next((value for place in places if (value := _at(place, path)) is not None), None)

    unmet = (missed(each, seen, partial(setting_at, point)) for each in suite.expectations if is_known(each.figure))
    return next((each for each in unmet if each is not None), None)


def unjudged(suite: Suite, is_known: Callable[[str], bool]) -> tuple[ResultWarning, ...]:
    """A warning for each expectation that is neither met nor missed."""
    return tuple(
        ResultWarning(
            code="expectation_not_judged",
            message=f"the trial lacks {each.figure}, so it is unknown whether it is {each.text} ([expect])",
            remedy="use a quieter machine or a lighter load: the generator, the emulator of the links or the "
            "laboratory was late",
        )
        for each in suite.expectations
        if not is_known(each.figure)
    )


def _at(record: object, path: str) -> float | None:
    for key in path.split("."):
        record = record.get(key) if isinstance(record, dict) else None
    return float(record) if isinstance(record, int | float) and not isinstance(record, bool) else None
