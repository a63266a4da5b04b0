"""What is cut out of a window, and what is known without it, in figures."""

from __future__ import annotations

import math

import pytest

from plimsoll_lab.stats.cut import LEAD_S, Bounded, Cut, Span, cut_out, cut_spans, without_slowest


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
        "p50": 1, "p75": 0.5, "p90": 0.5, "p99": 0.5, "p99_9": 0.5, "max": 0.5,
        "mean": pytest.approx((9 / 7) / 1.9),
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
