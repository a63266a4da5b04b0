"""Windows with injected stalls: their bounds hold what would have been measured without them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated import tell
from simulated_loops import WINDOW, WINDOWS, Array, closed_loop, in_window, open_loop

from plimsoll_lab.stats.cut import LEAD_S, QUANTILES, Cut, Span, cut_out, without_slowest


def stalls_of(luck: np.random.Generator) -> list[Span]:
    """One to four stalls of 5 to 50 ms."""
    starts = np.sort(luck.uniform(WINDOW[0], WINDOW[1] - 0.1, luck.integers(1, 5)))
    return [(float(start), float(start + luck.uniform(0.005, 0.05))) for start in starts]


def bounds_hold(cut: Cut, truth: Array, name: str) -> bool:
    true = float(np.sort(truth)[math.ceil(QUANTILES[name] * len(truth)) - 1])
    return cut.percentiles[name].low <= true <= cut.percentiles[name].high


@pytest.mark.parametrize(("load", "often"), [(300, 0.3), (600, 0.1), (800, 0.02)])
def test_the_bounds_of_an_open_loop_hold_the_undisturbed_percentiles(load: int, often: float) -> None:
    """The longer a backlog lasts, the seldomer has a p99 an upper bound."""
    held = dict.fromkeys(("p50", "p99"), 0)
    bounded = 0
    for seed in range(WINDOWS):
        luck = np.random.default_rng([seed, load])
        stalls = stalls_of(luck)
        starts, stalled, undisturbed = open_loop(luck, load, stalls)
        kept = starts >= WINDOW[0]
        cut = cut_out(starts[kept].tolist(), stalled[kept].tolist(), stalls, WINDOW, closed=False)
        truth = in_window(starts, undisturbed)
        for name in held:
            held[name] += bounds_hold(cut, truth, name)
        bounded += math.isfinite(cut.percentiles["p99"].high)
        assert cut.rate == pytest.approx(len(truth) / (WINDOW[1] - WINDOW[0]), rel=0.02)
    p50, p99 = held["p50"], held["p99"]
    tell("cuts", f"open loop at {load / 1000:.0%}", WINDOWS, p50_held=p50, p99_held=p99, p99_bounded=bounded)
    assert min(held.values()) >= 0.95 * WINDOWS, held
    assert bounded >= often * WINDOWS, "bounds that are always infinite would hold anything"


def test_the_bounds_of_a_closed_loop_hold_the_undisturbed_percentiles() -> None:
    held = dict.fromkeys(("p50", "p99"), 0)
    for seed in range(WINDOWS):
        stalls = stalls_of(np.random.default_rng([seed, 1]))
        stalled, undisturbed = closed_loop(seed, 20, stalls), closed_loop(seed, 20, [])
        cut = cut_out(stalled[0].tolist(), stalled[1].tolist(), stalls, WINDOW, closed=True)
        truth = undisturbed[1]
        for name in held:
            held[name] += bounds_hold(cut, truth, name)
        assert cut.rate == pytest.approx(len(truth) / (WINDOW[1] - WINDOW[0]), rel=0.02)
    tell("cuts", "closed loop", WINDOWS, p50_held=held["p50"], p99_held=held["p99"])
    assert min(held.values()) >= 0.95 * WINDOWS, held


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_a_window_without_moments_is_whole(seed: int) -> None:
    starts, times, _ = open_loop(np.random.default_rng(seed), 200, [])
    cut = cut_out(starts.tolist(), times.tolist(), [], WINDOW, closed=False)
    assert (cut.share, cut.requests, cut.touched, cut.spans) == (0, 0, 0, [])
    for each in cut.percentiles.values():
        assert each.low == each.estimate == each.high


def evenly(*, every_s: float = 0.01, takes_s: float = 0.002) -> tuple[Array, Array]:
    starts = np.arange(WINDOW[0], WINDOW[1], every_s)
    return starts, np.full(len(starts), takes_s)


def test_time_is_cut_from_the_lead_before_a_moment_until_the_backlog_is_back() -> None:
    starts, times = evenly()
    # The moment holds up all ten that are due in it; the last is answered at 5.11.
    moment = (5.0005, 5.1005)
    delayed = (starts > moment[0]) & (starts < moment[1])
    times[delayed] = 5.11 - starts[delayed]
    cut = cut_out(starts.tolist(), times.tolist(), [moment], WINDOW, closed=False)
    [(first, last)] = cut.spans
    assert first == pytest.approx(moment[0] - LEAD_S)
    assert last == pytest.approx(5.11)
    # The one at 5.00 is cut by its start, though it was answered in time.
    assert cut.requests == 11
    assert cut.rate == pytest.approx(100, rel=0.01)


def test_a_request_is_cut_by_its_start_and_a_slow_one_from_before_is_kept_as_unsure() -> None:
    starts, times = evenly()
    slow = int(np.argmin(np.abs(starts - 4.9)))
    times[slow] = 0.2
    cut = cut_out(starts.tolist(), times.tolist(), [(5.0, 5.0005)], WINDOW, closed=False)
    assert cut.touched == 1
    assert cut.percentiles["p99_9"].estimate == 0.2
    assert cut.percentiles["p99_9"].low == 0.002, "it may have been as fast as the others"


def test_a_tail_whose_requests_may_all_be_cut_has_no_bound() -> None:
    starts, times = evenly()
    cut = cut_out(starts.tolist(), times.tolist(), [(5.0, 5.5)], WINDOW, closed=False)
    assert cut.requests > 0.01 * len(starts)
    assert math.isinf(cut.percentiles["p99"].high)
    assert cut.percentiles["p50"].high == 0.002


def test_a_closed_loop_counts_what_the_moment_suppressed() -> None:
    starts, times = evenly()
    silent = (starts < 5.0) | (starts > 6.0)
    found = cut_out(starts[silent].tolist(), times[silent].tolist(), [(5.0, 6.0)], WINDOW, closed=True)
    assert found.requests >= 100
    assert found.rate == pytest.approx(100, rel=0.01)


def test_a_window_that_is_cut_whole_says_nothing() -> None:
    starts, times = evenly()
    cut = cut_out(starts.tolist(), times.tolist(), [(0.0, 20.0)], WINDOW, closed=True)
    assert (cut.share, cut.rate, cut.percentiles) == (1.0, None, {})


def test_leaving_out_the_slowest_moves_the_tail_and_not_the_rest() -> None:
    times = sorted(np.random.default_rng(1).exponential(100, 5000).tolist())
    shift = without_slowest([(each, 1) for each in times], 20)
    assert shift is not None
    kept = times[:-20]
    for name, quantile in QUANTILES.items():
        rank = math.ceil(quantile * 5000)
        assert shift.factors[name] == times[rank - 21] / times[rank - 1]
    assert shift.factors["mean"] == pytest.approx((sum(kept) / 4980) / (sum(times) / 5000))
    assert shift.factors["p50"] > 0.98
    assert shift.factors["p99_9"] < 0.95
    assert (shift.left, shift.slow) == pytest.approx((sum(kept), sum(times[-20:])))
    assert without_slowest([(1.0, 20)], 20) is None
    few = without_slowest([(1.0, 2), (3.0, 2)], 2)
    assert few is not None
    assert (few.factors["mean"], few.factors["p50"]) == (0.5, 0.0), "of a median nothing is known without its half"
