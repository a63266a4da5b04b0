"""Windows with injected stalls: their bounds hold what would have been measured without them."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from simulated import tell

from plimsoll_lab.stats.cut import LEAD_S, QUANTILES, Bounded, Cut, Span, cut_out, cut_spans, without_slowest

Array = NDArray[np.float64]

WINDOWS = min(400, int(os.environ.get("PLIMSOLL_FAMILIES", "40")))
"""Simulated windows of each kind; `make soak` asks for 400."""
WINDOW: Span = (1.0, 11.0)


def open_loop(luck: np.random.Generator, load: float, stalls: list[Span]) -> tuple[Array, Array, Array]:
    """Poisson arrivals at one server of 1,000/s: starts, response times with the stalls, and
    without.
    """
    starts = np.cumsum(luck.exponential(1 / load, math.ceil(load * 13)))
    starts = starts[starts < WINDOW[1]]
    services = luck.exponential(1e-3, len(starts))
    return starts, _served(starts, services, stalls), _served(starts, services, [])


def _served(starts: Array, services: Array, stalls: list[Span]) -> Array:
    done = np.empty(len(starts))
    free = 0.0
    for number, (start, service) in enumerate(zip(starts.tolist(), services.tolist(), strict=True)):
        free = _worked(max(start, free), service, stalls)
        done[number] = free
    return np.asarray(done - starts)


def _worked(at: float, service: float, stalls: list[Span]) -> float:
    """When a service ends that may begin at this instant: a stalled server does nothing."""
    for start, end in stalls:
        if at >= end:
            continue
        if at + service <= start:
            break
        service -= max(0.0, start - at)
        at = end
    return at + service


def closed_loop(seed: int, connections: int, stalls: list[Span]) -> tuple[Array, Array]:
    """Connections that think for 50 ms, each before a worker of its own whose service takes 2 ms
    and sometimes far longer: starts and response times.

    Nobody queues, so that the same requests take the same times with stalls and without.
    """
    found = []
    for number in range(connections):
        luck = np.random.default_rng([seed, number])
        at = luck.uniform(0, 0.05)
        while at < WINDOW[1]:
            service = 0.002 * math.exp(luck.normal(0, 1))
            done = _worked(at, service, stalls)
            found.append((at, done - at))
            at = done + luck.uniform(0.04, 0.06)
    starts, times = np.array(sorted(each for each in found if each[0] >= WINDOW[0])).T
    return starts, times


def stalls_of(luck: np.random.Generator) -> list[Span]:
    """One to four stalls of 5 to 50 ms."""
    starts = np.sort(luck.uniform(WINDOW[0], WINDOW[1] - 0.1, luck.integers(1, 5)))
    return [(float(start), float(start + luck.uniform(0.005, 0.05))) for start in starts]


def in_window(starts: Array, times: Array) -> Array:
    return times[(starts >= WINDOW[0]) & (starts < WINDOW[1])]


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


def spans_of(moments: list[Span], requests: list[Span] | None = None, window: Span = (10.0, 20.0)) -> list[Span]:
    """Of requests from start to end: by default of a tenth of a second, one each half second."""
    given = requests or [(10 + each / 2, 10.1 + each / 2) for each in range(20)]
    return cut_spans([start for start, _ in given], [end for _, end in given], moments, window)


@pytest.mark.parametrize(
    ("moments", "spans"),
    [
        ([], []),
        # From the lead before it on.
        ([(12.3, 12.4)], [(12.29, 12.4)]),
        # At its end one request is in flight, which is as usual.
        ([(12.3, 12.55)], [(12.29, 12.55)]),
        # Within the window.
        ([(9.9, 10.3)], [(10.0, 10.3)]),
        ([(19.8, 25.0)], [(19.79, 20.0)]),
        ([(9.0, 10.0)], []),
        ([(9.0, 10.0), (12.3, 12.4)], [(12.29, 12.4)]),
        ([(20.01, 21.0)], []),
        ([(20.005, 21.0)], [(19.995, 20.0)]),
        # In order, and as one where they overlap, touch by the lead, or lie within another.
        ([(15.3, 15.4), (12.3, 12.4)], [(12.29, 12.4), (15.29, 15.4)]),
        ([(12.2, 12.3), (12.305, 12.4)], [(12.19, 12.4)]),
        ([(12.2, 13.3 - LEAD_S), (13.3, 13.4)], [(12.19, 13.4)]),
        ([(12.2, 12.3), (12.32, 12.4)], [(12.19, 12.3), (12.31, 12.4)]),
        ([(12.2, 12.9), (12.3, 12.4)], [(12.19, 12.9)]),
    ],
)
def test_spans_of_moments(moments: list[Span], spans: list[Span]) -> None:
    found = spans_of(moments)
    assert [each for span in found for each in span] == pytest.approx([each for span in spans for each in span])
    assert len(found) == len(spans)


USUAL = [(10 + each / 2, 10.1 + each / 2) for each in range(20) if each not in {4, 5}]
"""One request each half second, but none from 12 s to 13 s."""


@pytest.mark.parametrize(
    ("held_up", "last"),
    [
        # Two are in flight at the end of the moment, until the first is answered: one, as usual.
        ([(12.0, 12.45), (12.1, 12.7)], 12.45),
        # Of three, until the second is answered.
        ([(12.0, 12.45), (12.1, 12.7), (12.15, 12.9)], 12.7),
        # Another one that is due meanwhile makes it last.
        ([(12.0, 12.45), (12.1, 12.7), (12.4, 12.6)], 12.6),
        # An answer at the very end of the moment brings it back there.
        ([(12.0, 12.2), (12.1, 12.7)], 12.2),
    ],
)
def test_time_is_cut_until_the_backlog_is_back(held_up: list[Span], last: float) -> None:
    [(first, end)] = spans_of([(12.05, 12.2)], [*USUAL, *held_up])
    assert (first, end) == pytest.approx((12.04, last))


def test_a_backlog_that_is_not_back_before_the_window_ends_cuts_the_rest_of_it() -> None:
    requests = [*USUAL, (19.61, 30.0), (19.63, 31.0)]
    assert spans_of([(19.62, 19.7)], requests) == [pytest.approx((19.61, 20.0))]


@pytest.mark.parametrize(
    ("start", "counts"),
    [(12.03, True), (12.05 - LEAD_S, False), (12.1, False), (12.205, False), (12.2 + LEAD_S, True)],
)
def test_the_usual_backlog_is_what_requests_find_outside_of_the_moment_and_its_lead(
    start: float, *, counts: bool
) -> None:
    """Of five at once each finds five. Where they count, the two that are held up are less than
    that; else one alone is usual, so that the first of the two has to be answered.
    """
    requests = [(11.0, 11.1), *[(start, start + 0.001)] * 5, (12.1, 12.5), (12.11, 12.6)]
    [(_, last)] = spans_of([(12.05, 12.2)], requests)
    assert last == pytest.approx(12.2 if counts else 12.5)


def test_where_no_request_is_outside_of_the_moment_all_have_to_be_answered() -> None:
    assert spans_of([(12.05, 12.2)], [(12.1, 12.7), (12.1, 12.5)]) == [pytest.approx((12.04, 12.7))]
    assert cut_spans([], [], [(12.05, 12.2)], (10.0, 20.0)) == [pytest.approx((12.04, 12.2))]


def test_a_cut_in_figures() -> None:
    """In the moment from 12.48 s to 12.52 s a request is due, which is answered at 12.6 s; one from
    12.3 s is in flight until 12.65 s. One alone is usual, so that 0.13 of 10 s are cut.

    Answered in the kept time are 19 of the 20 that are due each half second, the one of 12.3 s,
    and one from before the window; not one that is due in it and answered after it.
    """
    requests = [*((10 + each / 2, 0.1) for each in range(20)), (9.95, 0.1), (19.95, 0.1), (20.0, 0.1), (12.3, 0.35)]
    cut = cut_out(
        [start for start, _ in requests], [time for _, time in requests], [(12.48, 12.52)], (10.0, 20.0), closed=False
    )
    [(first, last)] = cut.spans
    assert (first, last) == pytest.approx((12.47, 12.6))
    assert cut.share == pytest.approx(0.013)
    assert (cut.requests, cut.touched) == (1, 1)
    assert cut.rate == pytest.approx(21 / 9.87)


def test_a_moment_does_not_touch_what_ends_as_it_begins_or_begins_as_it_ends() -> None:
    """Of what is answered as the window opens, or as it closes, only the former is of it."""
    requests = [(9.5, 0.5), (14.5, 0.5), (15.5, 0.25), (19.5, 0.5)]
    cut = cut_out(
        [start for start, _ in requests], [time for _, time in requests], [(15.0, 15.5)], (10.0, 20.0), closed=False
    )
    assert list(cut.spans) == [pytest.approx((14.99, 15.5))]
    assert (cut.requests, cut.touched) == (0, 0)
    # The one that is answered at 15.0 is answered in the cut time.
    assert cut.rate == pytest.approx(2 / 9.49)


def test_a_closed_loop_counts_the_requests_that_were_due_at_the_rate_of_the_kept_time() -> None:
    """Nineteen in 9.9 s are kept, so that 0.1 s stand for 0.19 requests: one. One that is due in
    the cut time is one too, and two are two.
    """
    base = [(10.25 + each / 2, 0.1) for each in range(19)]
    for due, counted in ((0, 1), (1, 1), (2, 2)):
        requests = [*base, *[(19.85, 0.01)] * due]
        starts, times = [start for start, _ in requests], [time for _, time in requests]
        found = cut_out(starts, times, [(19.81, 19.9)], (10.0, 20.0), closed=True)
        assert found.requests == counted
        assert cut_out(starts, times, [(19.81, 19.9)], (10.0, 20.0), closed=False).requests == due


def cut_of(requests: list[Span], moment: Span, window: Span = (10.0, 20.0), *, closed: bool = False) -> Cut:
    """Of requests, each with its intended start and its response time."""
    return cut_out([start for start, _ in requests], [time for _, time in requests], [moment], window, closed=closed)


def test_a_request_is_of_the_window_from_its_beginning_to_before_its_end() -> None:
    """Of the window 4.55 s are kept and 5.45 s are cut. Two are due in the kept time, from 10.0 s
    on and before 20.0 s, so that 2.4 would have been due in the cut time: three.
    """
    requests = [(9.95, 0.01), (10.0, 0.1), (12.0, 0.1), (20.0, 0.1)]
    found = cut_of(requests, (14.55 + LEAD_S, 20.0), closed=True)
    assert found.share == pytest.approx(0.545)
    assert found.requests == 3


def test_a_request_that_is_due_as_the_cut_time_begins_is_of_it_and_one_answered_then_is_not() -> None:
    """The lead begins at 14.99 s. Answered in the 9.98 s that are kept are those of 11 s, of 14.5 s
    and of 16 s.
    """
    begins = 15.0 - LEAD_S
    requests = [(11.0, 0.1), (14.5, begins - 14.5), (begins, 0.005), (16.0, 0.1)]
    found = cut_of(requests, (15.0, 15.01))
    assert (found.spans, found.requests, found.touched) == ([(begins, 15.01)], 1, 0)
    assert found.rate == pytest.approx(3 / 9.98)


def test_less_than_a_second_of_kept_time_has_a_rate() -> None:
    """Three are due and answered in 0.39 s, so that 0.85 would have been due in the 0.11 s that are
    cut: one.
    """
    found = cut_of([(10.05, 0.01), (10.1, 0.01), (10.4, 0.01)], (10.2, 10.3), (10.0, 10.5), closed=True)
    assert found.rate == pytest.approx(3 / 0.39)
    assert found.requests == 1


def percentiles_of(times_ms: list[float], due: int, touched: tuple[float, ...] = ()) -> dict[str, Bounded]:
    """Requests before the moment, others that are due in it, and some that it touches; in ms."""
    starts = [10 + each / 1000 for each in range(len(times_ms))]
    requests = [
        *zip(starts, (each / 1000 for each in times_ms), strict=True),
        *((15.0, 0.5) for _ in range(due)),
        *((14.9, 0.2 + each / 1000) for each in touched),
    ]
    cut = cut_out(
        [start for start, _ in requests], [time for _, time in requests], [(15.0, 15.6)], (10.0, 20.0), closed=False
    )
    assert (cut.requests, cut.touched) == (due, len(touched))
    return {
        name: Bounded(low=each.low * 1000, estimate=each.estimate * 1000, high=each.high * 1000)
        for name, each in cut.percentiles.items()
    }


def assert_bounded(found: dict[str, Bounded], expected: dict[str, tuple[float, float, float]]) -> None:
    assert {name: (each.low, each.estimate, each.high) for name, each in found.items()} == {
        name: pytest.approx(each) for name, each in expected.items()
    }


def test_the_bounds_of_percentiles_in_figures() -> None:
    """Of 100 that take 1 to 100 ms and ten more of which nothing is known: rank 55 of 110 is the
    45th to the 55th of those known.
    """
    assert_bounded(
        percentiles_of([float(each) for each in range(100, 0, -1)], 10),
        {
            "p50": (45, 50, 55),
            "p75": (73, 75, 83),
            "p90": (89, 90, 99),
            "p99": (99, 99, math.inf),
            "p99_9": (100, 100, math.inf),
        },
    )


def test_requests_that_a_moment_touched_may_have_been_faster() -> None:
    """Two more, of 200 and 300 ms: rank 56 of 112 is the 44th of those surely known or the 56th of
    all; rank 101 may be the one of 200 ms.
    """
    assert_bounded(
        percentiles_of([float(each) for each in range(1, 101)], 10, (0, 100)),
        {
            "p50": (44, 51, 56),
            "p75": (72, 77, 84),
            "p90": (89, 92, 200),
            "p99": (99, 200, math.inf),
            "p99_9": (100, 300, math.inf),
        },
    )


def test_where_most_are_unknown_nothing_bounds_a_percentile_from_below() -> None:
    assert_bounded(
        percentiles_of([7.0], 1),
        {"p50": (0, 7, 7), **dict.fromkeys(("p75", "p90", "p99", "p99_9"), (7, 7, math.inf))},
    )
    assert percentiles_of([5.0, 7.0], 20)["p50"] == Bounded(low=0.0, estimate=5.0, high=math.inf)


def test_leaving_out_the_slowest_of_buckets() -> None:
    """Five of 1 s, three of 2 and two of 4: 19 s. Without three, five of 1 s and two of 2: 9 s. Of
    ten, rank 8 takes 2 s, and rank 5 takes 1.
    """
    shift = without_slowest([(1.0, 5), (2.0, 3), (4.0, 2)], 3)
    assert shift is not None
    assert shift.factors == {
        "p50": 1, "p75": 0.5, "p90": 0.5, "p99": 0.5, "p99_9": 0.5, "mean": pytest.approx((9 / 7) / 1.9)
    }  # fmt: skip
    assert (shift.left, shift.slow) == (9, 10)


def test_nothing_is_known_of_a_percentile_whose_rank_may_be_left_out() -> None:
    """Without five of ten nothing is known of rank 5; without nine, rank 10 is at least rank 1."""
    buckets = [(1.0, 5), (2.0, 3), (4.0, 2)]
    half, most = without_slowest(buckets, 5), without_slowest(buckets, 9)
    assert half is not None
    assert most is not None
    assert (half.factors["p50"], half.factors["p75"]) == (0, 0.5)
    assert half.factors["mean"] == pytest.approx(1 / 1.9)
    assert (most.factors["p90"], most.factors["p99"], most.left, most.slow) == (0, 0.25, 1, 18)
    whole = without_slowest(buckets, 0)
    assert whole is not None
    assert set(whole.factors.values()) == {1}
    assert whole.slow == 0
