"""The picture of a gate: every loss with its bounds, beside what is tolerated."""

from __future__ import annotations

import math

from plimsoll_lab.analysis import formatting
from plimsoll_lab.report.encoding import MatrixLayout, colour_and_shape
from plimsoll_lab.report.forest import ForestRow, forest
from plimsoll_lab.report.gate import percent, table_of_losses
from plimsoll_lab.report.headline import Headline
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import GateRecord

MOST_ROWS = 24
"""Comparisons in the picture."""
WIDTH = 560
"""Pixels of the picture's plot."""


def picture(gate: GateRecord, run: RunRecord, layout: MatrixLayout) -> Headline | None:
    """The losses with their bounds beside what is tolerated; None where nothing was compared."""
    losses = sorted(gate.losses, key=lambda each: math.inf if each.at_most is None else each.at_most, reverse=True)
    shown = [each for each in gate.losses if each in losses[:MOST_ROWS]]
    if not shown:
        return None
    several = len({each.contender for each in shown}) > 1
    rows = [
        ForestRow(
            words=f"{f'{each.contender}, ' if several else ''}{run.figure(each.figure).label}"
            f"{f', {formatting.setting(each.at)}' if each.at else ''}: {each.outcome}",
            middle=_drawn(each.loss),
            low=_drawn(each.at_least),
            high=_drawn(each.at_most),
            group=each.contender,
        )
        for each in shown
    ]
    title = f"loss against {gate.baseline}, %"
    spec = forest(rows, colour_and_shape(layout), title=title, lines=(0.0, gate.tolerance * 100), width=WIDTH)
    told = "the losses" if len(shown) == len(losses) else f"of {len(losses)} losses those that may be greatest"
    caption = (
        f"How much worse than {gate.baseline}: {told}, each with its bounds. Dashed: no loss, and the "
        f"{percent(gate.tolerance)} that is tolerated."
    )
    return Headline(spec=spec, caption=caption, data=table_of_losses(gate, run))


def _drawn(part: float | None) -> float | None:
    return None if part is None else float(f"{part * 100:.5g}")
