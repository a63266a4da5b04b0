"""The knee: found where it is known, and refused where nothing can be said."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from simulated import tell

from plimsoll_lab.report.knees import _drawn, fit_text
from plimsoll_lab.stats.knee import CURVE_POINTS, Load, find_knee, fit_usl, highest_rates, usl
from plimsoll_lab.stats.results import Bound, Fit
from plimsoll_lab.store.summary_record import KneeRecord

LOADS = (1, 2, 4, 8, 16, 32, 64, 128)
CURVES = int(os.environ.get("PLIMSOLL_FAMILIES", "60"))
"""Simulated curves of each shape; `make soak` asks for many more."""


def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def closed_loop(servers: int, service_s: float, think_s: float, loads: tuple[int, ...], noise: float) -> list[Load]:
    """The asymptotes themselves: as many requests at once as there are servers, and not one
    more.
    """
    draw = rng()
    found = []
    for n in loads:
        rate = min(n / (service_s + think_s), servers / service_s)
        rates = [rate * draw.normal(1, noise) for _ in range(5)]
        found.append(Load(load=n, rates=rates, responses_s=[n / each - think_s for each in rates]))
    return found


def scalable(a: float, s: float, k: float, noise: float, loads: tuple[int, ...] = LOADS) -> list[Load]:
    draw = rng()
    n = np.array(loads, dtype=float)
    rates = usl(n, np.array([a, s, k]))
    return [
        Load(load=at, rates=[x * draw.normal(1, noise) for _ in range(5)], responses_s=[at / x])
        for at, x in zip(loads, rates, strict=True)
    ]


def test_the_asymptotes_meet_at_xmax_times_r0_plus_z() -> None:
    # Two servers of 10 ms and 90 ms of think time: 200 a second at most, and 200 x 0.1 s = 20
    # connections.
    knee = find_knee(closed_loop(2, 0.010, 0.090, LOADS, 0.01), think_s=0.090, rng=rng())
    assert knee.bound is not None
    assert knee.bound.at == pytest.approx(20, rel=0.05)
    assert knee.bound.reached
    low, high = knee.bound.at_ci95 or (0, 0)
    assert low <= knee.bound.at <= high


PLATEAU = [11, 22, 44, 88, 160, 200, 200, 200, 200, 200]
SHORT_PLATEAU = PLATEAU[:7]
PEAK = [float(each) for each in usl(np.array(LOADS, dtype=float), np.array([100.0, 0.05, 0.0005]))]


@pytest.mark.parametrize(
    ("truth", "above"),
    [(PLATEAU, 0.02), (SHORT_PLATEAU, 0.005), (PEAK, 0.005)],
    ids=["a long plateau", "a short one", "a peak"],
)
def test_the_highest_rate_is_not_that_of_the_luckiest_load(truth: list[float], above: float) -> None:
    """Xmax was the highest median: `above` is by how much that lies above the truth at least."""
    draw, most = np.random.default_rng(len(truth)), max(truth)
    medians, estimates, held = [], [], 0
    for _ in range(CURVES):
        rates = [rate * draw.normal(1, 0.05, 5) for rate in truth]
        loads = [Load(load=n, rates=each.tolist(), responses_s=[1.0] * 5) for n, each in enumerate(rates, start=1)]
        bound = find_knee(loads[-5:], think_s=0, rng=draw).bound
        assert bound is not None
        assert bound.at_ci95 is not None
        medians.append(max(float(np.median(each)) for each in rates) / most - 1)
        estimates.append(bound.most_rate / most - 1)
        held += bound.at_ci95[0] <= most <= bound.at_ci95[1]
    bias = f"highest median {np.mean(medians):+.1%}, estimate {np.mean(estimates):+.1%}"
    tell("knee", f"{len(truth)} loads, {truth.count(most)} of them at the top: {bias}", CURVES, interval_held=held)
    assert np.mean(medians) > above
    assert abs(np.mean(estimates)) < 0.008 + 3 * np.std(estimates) / CURVES**0.5
    assert held >= 0.9 * CURVES - 3 * (0.9 * 0.1 * CURVES) ** 0.5


def test_one_trial_a_load_tells_the_highest_rate_and_no_interval() -> None:
    loads = [Load(load=n, rates=[rate], responses_s=[0.1]) for n, rate in ((1, 10.0), (4, 30.0), (8, 20.0))]
    bound = find_knee(loads, think_s=0, rng=rng()).bound
    assert bound is not None
    assert (bound.most_rate, bound.at_ci95, bound.reached) == (30.0, None, True)


def test_a_knee_beyond_every_load_is_said_not_to_be_reached() -> None:
    knee = find_knee(closed_loop(2, 0.010, 0.990, (1, 10, 50), 0), think_s=0.99, rng=rng())
    assert knee.bound is not None
    assert not knee.bound.reached


def test_the_law_finds_its_own_parameters() -> None:
    found = fit_usl(np.array(LOADS, dtype=float), usl(np.array(LOADS, dtype=float), np.array([100.0, 0.05, 0.0005])))
    assert found == pytest.approx([100.0, 0.05, 0.0005], rel=1e-6)


@pytest.mark.parametrize("unit", [1e-3, 1, 1e3])
def test_a_curve_that_is_the_law_itself(unit: float) -> None:
    """At six loads, the fewest that may be fitted, and with rates far below one a second too."""
    alone, contention, coherence = 100 * unit, 0.5, 0.001
    fit = find_knee(scalable(alone, contention, coherence, 0, LOADS[:6]), think_s=0, rng=rng()).fit
    assert fit is not None
    assert (fit.alone, fit.contention, fit.coherence) == pytest.approx((alone, contention, coherence), rel=1e-6)
    # X is highest at sqrt((1 - s) / k).
    assert fit.peak_at == pytest.approx(math.sqrt(500), rel=1e-6)
    assert fit.misfit == pytest.approx(0, abs=1e-9)
    # Trials that do not differ leave no room.
    assert fit.peak_at_ci95 == pytest.approx((math.sqrt(500),) * 2, rel=1e-6)
    assert fit.contention_ci95 == pytest.approx((contention,) * 2, rel=1e-6)
    assert fit.coherence_ci95 == pytest.approx((coherence,) * 2, rel=1e-6)
    assert len(fit.curve) == CURVE_POINTS
    assert fit.curve[0] == pytest.approx((1, *[alone] * 3), rel=1e-6)
    # 100 x 32 / (1 + 0.5 x 31 + 0.001 x 32 x 31) = 3200 / 17.492
    assert fit.curve[-1] == pytest.approx((32, *[3200 / 17.492 * unit] * 3), rel=1e-6)


def test_the_misfit_is_the_largest_relative_distance_from_a_median() -> None:
    """Ten times as many connections complete ten times as much, but for one load: 8 % less."""
    loads = [Load(load=n, rates=[10.0 * n * (0.92 if n == 8 else 1)], responses_s=[0.1]) for n in LOADS]
    fit = find_knee(loads, think_s=0, rng=rng()).fit
    assert fit is not None
    curve = usl(np.array(LOADS, dtype=float), np.array([fit.alone, fit.contention, fit.coherence]))
    off = [abs(at / each.rates[0] - 1) for at, each in zip(curve, loads, strict=True)]
    assert fit.misfit == pytest.approx(max(off))
    assert fit.misfit == pytest.approx(off[LOADS.index(8)])


def test_a_load_with_one_trial_leaves_the_law_without_intervals() -> None:
    """Every resample of it is the trial itself: the intervals had no width."""
    whole = scalable(100, 0.05, 0.0005, 0.02)
    for loads in (
        [replace(each, rates=each.rates[:1]) for each in whole],
        [*whole[:-1], replace(whole[-1], rates=whole[-1].rates[:1])],
    ):
        fit = find_knee(loads, think_s=0, rng=rng()).fit
        assert fit is not None
        assert fit.contention == pytest.approx(0.05, rel=0.5)
        assert (fit.contention_ci95, fit.coherence_ci95, fit.peak_at_ci95) == (None, None, None)
        assert {(low, high) for _, _, low, high in fit.curve} == {(None, None)}
        said = fit_text(KneeRecord(point={}, bound=None, fit=fit, refused=None, text=""))
        assert said.endswith("; no interval, as a load has one trial")
        assert "[" not in said
        assert "resamples" not in said
        knee = KneeRecord(point={}, bound=None, fit=fit, refused=None, text="")
        assert _drawn(knee, "rate") == "Every dot is a trial; the curve: the law."
    wide = KneeRecord(point={}, bound=None, fit=find_knee(whole, think_s=0, rng=rng()).fit, refused=None, text="")
    assert _drawn(wide, "rate") == "Every dot is a trial; the curve: the law with its 95 % band."


def test_a_load_at_which_nothing_is_completed_refuses_the_fit() -> None:
    loads = [Load(load=n, rates=[0.0 if n == 16 else 10.0], responses_s=[0.1]) for n in LOADS]
    knee = find_knee(loads, think_s=0, rng=rng())
    assert (knee.fit, knee.refused) == (None, "nothing was completed at some load")


@pytest.mark.parametrize(("contention", "coherence"), [(0.0, 0.0), (1.5, 0.01)], ids=["a line", "one that only falls"])
def test_a_curve_without_a_peak(contention: float, coherence: float) -> None:
    fit = find_knee(scalable(10, contention, coherence, 0), think_s=0, rng=rng()).fit
    assert fit is not None
    assert (fit.contention, fit.coherence) == pytest.approx((contention, coherence), rel=1e-6)
    assert (fit.peak_at, fit.peak_at_ci95) == (None, None)


def test_a_peak_that_most_resamples_do_not_have_has_no_interval() -> None:
    """Trials lie evenly about a curve that turns nowhere: about half of the resamples turn."""

    def spread(coherence: float) -> Fit:
        loads = [
            Load(load=each.load, rates=[each.rates[0] * off for off in (0.96, 0.98, 1, 1.02, 1.04)], responses_s=[0.1])
            for each in scalable(100, 0.05, coherence, 0)
        ]
        fit = find_knee(loads, think_s=0, rng=rng()).fit
        assert fit is not None
        return fit

    assert spread(0).peak_at_ci95 is None
    assert (spread(0).coherence_ci95 or (1, 1))[0] == 0
    low, high = spread(0.0005).peak_at_ci95 or (0, 0)
    assert low < math.sqrt(0.95 / 0.0005) < high


def test_one_trial_of_nine_that_lies_far_off_moves_no_interval() -> None:
    """The median of nine that are drawn from nine is the odd one in one sample of 750."""
    exact = scalable(100, 0.05, 0.0005, 0)
    loads = [Load(load=each.load, rates=[*each.rates, *each.rates[:3], 1e6], responses_s=[0.1]) for each in exact]
    fit = find_knee(loads, think_s=0, rng=rng()).fit
    assert fit is not None
    assert fit.contention_ci95 == pytest.approx((0.05, 0.05), rel=1e-6)
    assert fit.coherence_ci95 == pytest.approx((0.0005, 0.0005), rel=1e-6)


def test_a_curve_that_comes_from_infinity_is_kept_finite_and_near() -> None:
    """N / X = N - 1.5 would need 1/a below 0. Without it the other two are those of least squares,
    and of one connection the rate would be infinite.
    """
    n = np.array([2.0, 4, 8, 16, 32, 64])
    rates = n / (n - 1.5)
    found = fit_usl(n, rates)
    assert np.isfinite(found).all()
    weighted = np.column_stack([n - 1, n * (n - 1)]) * (rates / n)[:, None]
    s, k = np.linalg.lstsq(weighted, np.ones_like(n))[0]
    assert usl(n, found) == pytest.approx(n / (s * (n - 1) + k * n * (n - 1)), rel=1e-6)


def test_the_law_is_found_over_six_decades_of_loads() -> None:
    n = np.geomspace(1, 1e6, 13)
    truth = [100.0, 1e-3, 1e-9]
    assert fit_usl(n, usl(n, np.array(truth))) == pytest.approx(truth, rel=1e-6)


def test_noise_widens_the_intervals_and_keeps_the_truth_within() -> None:
    fit = find_knee(scalable(100, 0.05, 0.0005, 0.02), think_s=0, rng=rng()).fit
    assert fit is not None
    assert fit.contention_ci95 is not None
    assert fit.coherence_ci95 is not None
    assert fit.contention_ci95[0] <= 0.05 <= fit.contention_ci95[1]
    assert fit.coherence_ci95[0] <= 0.0005 <= fit.coherence_ci95[1]
    assert fit.peak_at == pytest.approx((0.95 / 0.0005) ** 0.5, rel=0.1)
    assert all(low is not None and high is not None and low <= high for _, _, low, high in fit.curve)


def test_fewer_than_six_loads_are_refused() -> None:
    knee = find_knee(scalable(100, 0.05, 0.0005, 0.01, (1, 2, 4, 8, 16)), think_s=0, rng=rng())
    assert knee.fit is None
    assert knee.refused is not None
    assert "5 loads are too few" in knee.refused
    assert knee.bound is not None


def test_a_curve_with_a_corner_is_refused() -> None:
    loads = (1, 4, 8, 16, 20, 24, 64, 256)
    knee = find_knee(closed_loop(2, 0.010, 0.090, loads, 0.001), think_s=0.09, rng=rng())
    assert knee.fit is None
    assert knee.refused is not None
    assert re.fullmatch(
        r"the law misses a median by (\d\d) %; above 10 % it does not describe the curve", knee.refused
    ), knee.refused


def test_one_load_bends_nowhere() -> None:
    knee = find_knee([Load(load=1, rates=[1.0], responses_s=[1.0])], think_s=0, rng=rng())
    assert (knee.bound, knee.fit, knee.refused) == (None, None, "fewer than two loads have a result")


T_OF_THREE = 4.302653
"""Student's t at 97.5 % with two degrees of freedom."""


def bound_of(*loads: Load, think_s: float = 0.0) -> Bound:
    found = find_knee(loads, think_s=think_s, rng=rng()).bound
    assert found is not None
    return found


@pytest.mark.parametrize(("most", "reached"), [(30, True), (29, False)])
def test_a_bound_in_figures(most: int, *, reached: bool) -> None:
    """Xmax = 50/s, R0 = 0.125 s and Z = 0.375 s: N* = 50 x 0.5 = 25, of which 30 is 1.2 times.

    The half widths of both factors are t s / sqrt(3), with s = 10 and 0.0625: 0.2 and 0.125 of
    them, times t / sqrt(3).
    """
    idle, busy = [0.0625, 0.125, 0.1875], [0.5, 0.5, 0.5]
    loads = [
        Load(load=most, rates=[40.0, 50.0, 60.0], responses_s=busy),
        Load(load=1, rates=[10.0, 10.0, 10.0], responses_s=idle),
    ]
    found = bound_of(*loads, think_s=0.375)
    assert replace(found, at_ci95=None) == Bound(
        most_rate=50.0,
        idle_response_s=0.125,
        think_s=0.375,
        at=25.0,
        at_ci95=None,
        reached=reached,
        lowest=1,
        saturated=False,
    )
    off = 25 * T_OF_THREE / math.sqrt(3) * math.hypot(0.2, 0.125)
    assert found.at_ci95 == pytest.approx((25 - off, 25 + off), rel=1e-6)


def test_one_connection_saturates_a_server_that_takes_no_second_one_in() -> None:
    """It queues behind nobody, so that N* is no artefact of the lowest load."""
    loads = [Load(load=load, rates=[500.0, 500.0], responses_s=[load * 2e-3] * 2) for load in (1, 2, 4)]
    found = bound_of(*loads, think_s=0.0)
    assert (found.saturated, found.is_shown) == (False, True)
    assert found.at == pytest.approx(1.0)
    assert bound_of(*loads[1:], think_s=0.0).saturated


def test_the_interval_of_a_bound_ends_at_no_connection() -> None:
    """With two trials t is 12.7: the half width is 12.7 x 14.1 / sqrt(2) = 127 of a rate of 50."""
    loads = [Load(load=n, rates=[40.0, 60.0], responses_s=[0.01, 0.01]) for n in (1, 2)]
    assert bound_of(*loads).at == pytest.approx(0.5)
    assert bound_of(*loads).at_ci95 == pytest.approx((0, 0.5 * (1 + 12.7062 * 10 / 50)))


def test_a_bound_without_an_interval() -> None:
    """Where one of its factors has none, and where nothing was completed."""
    for idle, rates in (([0.1], [40.0, 60.0]), ([0.1, 0.1], [40.0])):
        loads = [Load(load=n, rates=rates, responses_s=idle) for n in (1, 9)]
        assert bound_of(*loads).at_ci95 is None
    nothing = bound_of(*(Load(load=n, rates=[0.0, 0.0], responses_s=[0.1, 0.1]) for n in (1, 9)))
    assert (nothing.most_rate, nothing.at, nothing.at_ci95) == (0, 0, None)


def test_a_load_without_a_rate_or_without_a_response_time_is_left_out() -> None:
    whole = [Load(load=n, rates=[10.0 * n], responses_s=[0.1 * n]) for n in (2, 3)]
    spoilt = [Load(load=1, rates=[99.0], responses_s=[]), Load(load=4, rates=[], responses_s=[0.1])]
    assert find_knee([*spoilt, *whole], think_s=0, rng=rng()) == find_knee(whole, think_s=0, rng=rng())


def rated(*curve: list[float]) -> list[float]:
    return highest_rates([Load(load=n, rates=rates, responses_s=[1.0]) for n, rates in enumerate(curve, start=1)])


def test_a_rate_has_no_part_in_the_choice_of_its_own_load() -> None:
    """Of two trials the first is judged by the second, and the other way round. By the second the
    first load is the fastest, by the first the second load: 1.0 and 1.2 are their own rates.
    """
    assert rated([1.0, 2.0], [1.8, 1.2]) == [1.0, 1.2]


def test_loads_within_two_standard_errors_of_the_fastest_are_level_with_it() -> None:
    """Without the first trial the means are 102 and 106, each with a variance of 8, of 2 trials: an
    error of sqrt(8 / 2 + 8 / 2) = 2.83, twice which is more than their difference of 4. Without
    the second, 4 is less than 2 sqrt(16 + 16), and without the third again less than 5.66. A load
    that completes a tenth is never level.
    """
    assert rated([96, 100, 104], [100, 104, 108], [10, 11, 12]) == [98, 102, 106]


def test_loads_beyond_two_standard_errors_are_not_level() -> None:
    """Now the means differ by 6 and the first and third error leave 5.66; the second, 11.3."""
    assert rated([94, 98, 102], [100, 104, 108]) == [100, 101, 108]


def test_a_load_with_trials_to_spare_tells_each_of_its_rates_once() -> None:
    """The third trial of the second load belongs to the first half: (10 + 12) / 2, then 20."""
    assert rated([1, 1], [10, 20, 12]) == [11, 20]
