"""The matrix of contenders and figures: each cell with its interval and how far it is from the best; no composite.

A description, not a test: who may be called better is the verdicts' to say.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from plimsoll_lab.stats.compare import ratio_interval, ratio_of_medians
from plimsoll_lab.stats.summary import Interval, median_interval
from plimsoll_lab.stats.verdict import LEAST_BLOCKS, Question


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """One cell."""

    at: Mapping[str, object]
    """The setting of the other axes."""
    contender: str
    """The row."""
    figure: str
    """The column."""
    n: int
    """Trials that are results."""
    median: float | None
    """None where the contender has no result here."""
    median_ci95: Interval | None
    """Order-statistic interval; None below six trials."""
    best: bool
    """Whether no other contender has a better median."""
    margin: float | None
    """Its median over the best one's; 1 for the best. None where there is no ratio."""
    margin_ci95: Interval | None
    """Block-paired bootstrap interval of that ratio; None of the best, and below six shared blocks."""
    level: bool
    """Whether that interval lies within the suite's margin: as good as the best, for all that is asked."""


def score(family: Sequence[Question], *, margin: float, seed: int) -> list[Score]:
    """Every cell of every question, in the order of the family."""
    return [
        cell
        for place, question in enumerate(family)
        for cell in _row(question, margin, np.random.default_rng([seed, place, 1]))
    ]


def _row(question: Question, margin: float, rng: np.random.Generator) -> list[Score]:
    sign = -1 if question.better == "higher" else 1
    medians = {name: statistics.median(values.values()) for name, values in question.contenders.items() if values}
    best = min(medians, key=lambda name: sign * medians[name], default=None)
    return [
        _cell(question, name, best, margin, rng) for name in dict.fromkeys((*question.contenders, *question.absent))
    ]


def _cell(question: Question, name: str, best: str | None, margin: float, rng: np.random.Generator) -> Score:
    values = question.contenders.get(name) or {}
    ratio, interval = None, None
    if best is not None and values:
        top = question.contenders[best]
        shared = sorted(values.keys() & top.keys())
        first, second = [values[block] for block in shared], [top[block] for block in shared]
        if shared and min(*first, *second) > 0:
            ratio = 1.0 if name == best else ratio_of_medians(first, second)
            if name != best and len(shared) >= LEAST_BLOCKS:
                interval = ratio_interval(first, second, rng)
    ordered = list(values.values())
    return Score(
        at=question.at,
        contender=name,
        figure=question.figure,
        n=len(ordered),
        median=statistics.median(ordered) if ordered else None,
        median_ci95=median_interval(ordered) if ordered else None,
        best=name == best,
        margin=ratio,
        margin_ci95=interval,
        level=interval is not None and 1 / (1 + margin) <= interval[0] and interval[1] <= 1 + margin,
    )
