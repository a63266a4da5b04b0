"""Where a server's curve bends: what was measured, a bound that needs no fit, and a fit that may be
refused.

N connections in a closed loop with think time Z complete X requests a second at response time R,
and N = X (R + Z) (Little's law). With R0 the response time of an idle server and Xmax the most it
completes, the two asymptotes of the curve, N / (R0 + Z) and Xmax, meet at N* = Xmax (R0 + Z): below
N* a server has capacity to spare, above it queues (Lazowska et al., Quantitative System
Performance, 1984, chapter 5).

The Universal Scalability Law, X(N) = a N / (1 + s (N - 1) + k N (N - 1)), describes contention s
and coherence k (Gunther, Guerrilla Capacity Planning, 2007). It is fitted only where there are
loads enough, and kept only where it fits.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from plimsoll_lab.stats.compare import ends_of
from plimsoll_lab.stats.reasons import percent
from plimsoll_lab.stats.results import Bound, Fit, Knee
from plimsoll_lab.stats.summary import CONFIDENCE, Interval, Summary, summarise

Array = NDArray[np.float64]

LEAST_LOADS = 6
"""Three parameters and as many loads again, or a curve through every point would prove nothing."""
WORST_MISFIT = 0.1
"""A curve that misses the median at any load by more than a tenth does not describe it."""
BEYOND = 1.2
"""Without a queue N = X (R0 + Z) at any load, up to noise: only a load well above N* shows a
highest rate."""
LEVEL = 2.0
"""Standard errors of a difference, within which two loads complete the same: with fewer a plateau
of several loads loses some of them, and the estimate precision."""
RESAMPLES = 200
"""Refits behind an interval; each takes about a millisecond."""
CURVE_POINTS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What was measured at one load: a value a trial, in the same order."""

    load: float
    """Connections."""
    rates: Sequence[float]
    """Requests completed a second."""
    responses_s: Sequence[float]
    """Response time, the mean over requests, in seconds."""


def find_knee(loads: Sequence[Load], *, think_s: float, rng: np.random.Generator) -> Knee:
    """Describe one curve."""
    ordered = sorted((each for each in loads if each.rates and each.responses_s), key=lambda each: each.load)
    if len(ordered) < 2:  # noqa: PLR2004 - one point bends nowhere
        return Knee(bound=None, fit=None, refused="fewer than two loads have a result")
    fit, refused = _fit(ordered, rng)
    return Knee(bound=_bound(ordered, think_s), fit=fit, refused=refused)


def _bound(loads: Sequence[Load], think_s: float) -> Bound:
    most = summarise(highest_rates(loads))
    idle = summarise(loads[0].responses_s)
    knee = most.mean * (idle.mean + think_s)
    interval = None
    if most.mean_ci95 is not None and idle.mean_ci95 is not None and knee > 0:
        # The relative errors of two independent factors.
        off = knee * math.hypot(_half(most) / most.mean, _half(idle) / (idle.mean + think_s))
        interval = (max(0.0, knee - off), knee + off)
    return Bound(
        most_rate=most.mean,
        idle_response_s=idle.mean,
        think_s=think_s,
        at=knee,
        at_ci95=interval,
        reached=loads[-1].load >= BEYOND * knee,
        lowest=loads[0].load,
        # One connection queues behind nobody.
        saturated=loads[0].load > 1 and knee <= BEYOND * loads[0].load,
    )


def highest_rates(loads: Sequence[Load]) -> list[float]:
    """The highest rate of a curve, as each trial in turn tells it: the mean of its own rates at
    those loads that the other trials cannot tell from the fastest.

    The highest of several medians lies above the truth: the luckiest load is chosen, and its luck
    counted. Here no rate has a part in the choice of its own load. With one trial a load there is
    nothing to choose by but the rates themselves.
    """
    folds = min(len(each.rates) for each in loads)
    if folds == 1:
        return [max(statistics.fmean(each.rates) for each in loads)]
    found = []
    for fold in range(folds):
        others = [[rate for place, rate in enumerate(each.rates) if place % folds != fold] for each in loads]
        means = [statistics.fmean(each) for each in others]
        errors = [statistics.variance(each) / len(each) if len(each) > 1 else 0.0 for each in others]
        best = means.index(max(means))
        level = [
            statistics.fmean(each.rates[fold::folds])
            for each, mean, error in zip(loads, means, errors, strict=True)
            if means[best] - mean <= LEVEL * math.sqrt(errors[best] + error)
        ]
        found.append(statistics.fmean(level))
    return found


def _half(found: Summary) -> float:
    low, high = found.mean_ci95 or (math.nan, math.nan)
    return (high - low) / 2


def _fit(loads: Sequence[Load], rng: np.random.Generator) -> tuple[Fit | None, str | None]:
    if len(loads) < LEAST_LOADS:
        return None, f"{len(loads)} loads are too few for a curve of three parameters; at least {LEAST_LOADS}"
    n = np.array([each.load for each in loads])
    medians = np.array([np.median(each.rates) for each in loads])
    if (medians <= 0).any():
        return None, "nothing was completed at some load"
    found = fit_usl(n, medians)
    misfit = float(np.max(np.abs(usl(n, found) / medians - 1)))
    if misfit > WORST_MISFIT:
        most = percent(WORST_MISFIT, 0)
        return None, f"the law misses a median by {percent(misfit, 0)}; above {most} it does not describe the curve"
    at = np.geomspace(n[0], n[-1], CURVE_POINTS)
    fit = Fit(
        alone=float(found[0]),
        contention=float(found[1]),
        coherence=float(found[2]),
        peak_at=_peak(found),
        peak_at_ci95=None,
        contention_ci95=None,
        coherence_ci95=None,
        misfit=misfit,
        curve=[(x, y, None, None) for x, y in np.column_stack([at, usl(at, found)]).tolist()],
    )
    return _with_intervals(fit, loads, rng), None


def _with_intervals(fit: Fit, loads: Sequence[Load], rng: np.random.Generator) -> Fit:
    """A fit and what resamples of the trials make of it; as it is where a load has one trial, which
    shows no noise.
    """
    if any(len(each.rates) == 1 for each in loads):
        return fit
    n = np.array([each.load for each in loads])
    drawn = [[np.median(rng.choice(each.rates, size=len(each.rates))) for each in loads] for _ in range(RESAMPLES)]
    again = np.array([fit_usl(n, np.array(each)) for each in drawn])
    at = np.array([x for x, *_ in fit.curve])
    low, high = ends_of(np.array([usl(at, each) for each in again]))
    peaks = [peak for each in again if (peak := _peak(each)) is not None]
    return replace(
        fit,
        # A peak that most resamples do not have is none.
        peak_at_ci95=_interval(np.array(peaks)) if len(peaks) >= CONFIDENCE * RESAMPLES else None,
        contention_ci95=_interval(again[:, 1]),
        coherence_ci95=_interval(again[:, 2]),
        curve=[(x, y, float(least), float(most)) for (x, y, *_), least, most in zip(fit.curve, low, high, strict=True)],
    )


def usl(n: Array, parameters: Array) -> Array:
    """The rate at each load."""
    a, s, k = parameters
    return np.asarray(a * n / (1 + s * (n - 1) + k * n * (n - 1)))


def fit_usl(n: Array, rates: Array) -> Array:
    """Parameters that come nearest, each point's distance taken relative to itself; none is below
    zero.

    N / X is linear in the parameters: N / X = 1/a + s/a (N - 1) + k/a N (N - 1), so no iteration
    and no start is needed; weighting each equation by X / N makes its error relative.
    """
    from scipy.optimize import nnls  # noqa: PLC0415 - half a second that only a fit has to spend

    design = np.column_stack([np.ones_like(n), n - 1, n * (n - 1)]) * (rates / n)[:, None]
    # Columns of like size, or the solver's tolerance would swallow the small one.
    sizes = np.linalg.norm(design, axis=0)
    found, _ = nnls(design / sizes, np.ones_like(n))
    one, s, k = found / sizes
    if one <= 0:
        # The best curve has one connection infinitely fast: keep it finite, and as near.
        one = 1e-12
    return np.array([1 / one, s / one, k / one])


def _peak(parameters: Array) -> float | None:
    _, s, k = parameters
    return math.sqrt((1 - s) / k) if k > 0 and s < 1 else None


def _interval(resamples: Array) -> Interval:
    low, high = ends_of(resamples)
    return (float(low), float(high))
