"""A gate: whether a contender is worse than a baseline by more than a tolerance, or surely not.

Of each comparison L is a lower and U an upper bound of the loss. All L hold together with 95 %, so
that one of them beyond the tolerance shows a loss. Each U holds alone with 95 %: the gate passes
only where every U is below the tolerance, and a loss beyond it in any one comparison passes in at
most 5 % (an intersection-union test, Berger 1982).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special

from plimsoll_lab.stats.best import Value, ends, middle_of
from plimsoll_lab.stats.resampling import (
    EXACT_UP_TO,
    LARGEST_LOG,
    LEAST_BLOCKS,
    RESAMPLES,
    RESOLUTION,
    SAME,
    SIGNIFICANCE,
    standard_error,
)
from plimsoll_lab.stats.signs import drawn_signs, sign_patterns

Array = NDArray[np.float64]
Outcome = Literal["pass", "worse", "undecided"]
POWER = 0.9
"""How often no loss passes, and a loss of twice the tolerance is found, by the number of blocks
chosen."""
MOST_BLOCKS = 200
"""Beyond this many blocks a gate takes too long: the noise has to come down instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineComparison:
    """One figure at one setting, of the baseline and of a contender."""

    figure: str
    """The figure compared."""
    better: Literal["higher", "lower"]
    """Which way is better."""
    at: Mapping[str, object]
    """The setting of the other axes."""
    contender: str
    """The contender that is compared with the baseline."""
    baseline: Mapping[int, Value]
    """The baseline's figure by block, or what it lies between; above zero, but for a lower end."""
    values: Mapping[int, Value]
    """The contender's figure by block, or what it lies between; above zero, but for a lower end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """How much worse a contender is: a part of the baseline's figure, below 0 where it is
    better.
    """

    comparison: BaselineComparison
    """What was compared."""
    blocks: int
    """Blocks in which both were measured."""
    estimate: float | None
    """None where no block has both, or a block leaves an end of either open."""
    at_least: float | None
    """L; None where too few blocks have both, or nothing bounds the loss below in one."""
    at_most: float | None
    """U; None where too few blocks have both, or nothing bounds it above in one."""


def losses(comparisons: Sequence[BaselineComparison], rng: np.random.Generator) -> list[Loss]:
    """The bounds of every comparison."""
    logs = [_worse(each) for each in comparisons]
    long = [each[0] for each in logs if len(each[0]) >= LEAST_BLOCKS]
    critical_p = _critical_p(long, rng) if long else 0.0
    return [_loss(each, series, critical_p) for each, series in zip(comparisons, logs, strict=True)]


def decide_gate(found: Sequence[Loss], tolerance: float) -> Outcome:
    """What the bounds say together."""
    if any(each.at_least is not None and each.at_least > tolerance for each in found):
        return "worse"
    if found and all(each.at_most is not None and each.at_most < tolerance for each in found):
        return "pass"
    return "undecided"


def blocks_for(*, noise: float, tolerance: float, comparisons: int) -> int | None:
    """The fewest blocks with which nine of ten gates decide: no loss passes, twice the tolerance is
    found.

    `noise` is the relative standard deviation of one contender's figure between blocks. None above
    MOST_BLOCKS.
    """
    spread = math.sqrt(2) * math.log1p(noise)
    room = min(math.log1p(tolerance), math.log1p(2 * tolerance) - math.log1p(tolerance))
    for blocks in range(LEAST_BLOCKS, MOST_BLOCKS + 1):
        degrees, standard_error = blocks - 1, spread / math.sqrt(blocks)
        upper = float(special.stdtrit(degrees, 1 - SIGNIFICANCE))
        lower = float(special.stdtrit(degrees, 1 - SIGNIFICANCE / comparisons))
        # All comparisons have to pass at once; a loss is found where one of them shows it.
        passes = 1 - comparisons * float(special.nctdtr(degrees, room / standard_error, upper))
        finds = 1 - float(special.nctdtr(degrees, room / standard_error, lower))
        if min(passes, finds) >= POWER:
            return blocks
    return None


def _worse(comparison: BaselineComparison) -> tuple[Array, Array, Array]:
    """The log ratio by which the contender is worse in each shared block: an estimate, the least
    and the most that it may be. Where one end is none, the other is the estimate.
    """
    blocks = sorted(comparison.baseline.keys() & comparison.values.keys())
    with np.errstate(divide="ignore"):  # the logarithm of a lower end of 0 is no bound
        old, new = (
            np.log([(*ends(values[block]), middle_of(values[block])) for block in blocks]).reshape(-1, 3).T
            for values in (comparison.baseline, comparison.values)
        )
    least, most, middle = new[0] - old[1], new[1] - old[0], new[2] - old[2]
    return (-middle, -most, -least) if comparison.better == "higher" else (middle, least, most)


def _critical_p(series: Sequence[Array], rng: np.random.Generator) -> float:
    """The one-sided p that the smallest of all comparisons falls below in 5 % of resamples, were
    there no loss.

    One random sign a block, shared by all comparisons, as in the comparison with the best.
    """
    blocks = max(map(len, series))
    signs = sign_patterns(2**blocks, blocks) if blocks <= EXACT_UP_TO else drawn_signs(RESAMPLES, blocks, rng)
    centred = np.array([np.resize(each, blocks) for each in series])
    centred -= centred.mean(axis=1, keepdims=True)
    squares = (centred**2).sum(axis=1)
    centred, squares = centred[squares > SAME**2], squares[squares > SAME**2]
    if not len(centred):
        return 0.5
    means = signs @ centred.T / blocks
    variances = np.maximum((squares - blocks * means**2) / (blocks - 1), RESOLUTION**2)
    smallest = np.sort(special.stdtr(blocks - 1, -(means * math.sqrt(blocks) / np.sqrt(variances)).max(axis=1)))
    return float(smallest[math.floor(SIGNIFICANCE * len(smallest)) - 1])


def _loss(comparison: BaselineComparison, logs: tuple[Array, Array, Array], critical_p: float) -> Loss:
    middle, least, most = logs
    blocks = len(middle)
    exact = bool(blocks) and bool(np.isfinite(least).all() and np.isfinite(most).all())
    enough = blocks >= LEAST_BLOCKS
    return Loss(
        comparison=comparison,
        blocks=blocks,
        estimate=_part(float(middle.mean()), comparison) if exact else None,
        at_least=_bound(comparison, least, critical_p) if enough else None,
        at_most=_bound(comparison, most, 1 - SIGNIFICANCE) if enough else None,
    )


def _bound(comparison: BaselineComparison, logs: Array, p: float) -> float | None:
    """The quantile p of the mean loss; None where a block bounds it on no side, or where it lies
    beyond all numbers.
    """
    if not np.isfinite(logs).all():
        return None
    quantile = float(logs.mean()) + standard_error(logs) * float(special.stdtrit(len(logs) - 1, p))
    return _part(quantile, comparison) if abs(quantile) < LARGEST_LOG else None


def _part(log: float, comparison: BaselineComparison) -> float:
    """A log ratio as a part of the baseline's figure: the loss of a rate, the increase of a
    cost.
    """
    return -math.expm1(-log) if comparison.better == "higher" else math.expm1(log)
