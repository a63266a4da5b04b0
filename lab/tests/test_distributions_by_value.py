"""The distribution of response times: its edges, and which trials are part of it."""

from __future__ import annotations

from typing import cast

import pytest
from hdrh.histogram import HdrHistogram
from made_records import point_summary

from plimsoll_lab.analysis.distributions import STEPS, distributions, edge_ns, histogram_of, of_point
from plimsoll_lab.store.records import CutRecord, MeasuredLoadRecord, Outcome, TrialRecord

CUT = CutRecord(moments=1, share=0.1, requests=9, touched=0, completed_rate=9.0, bounds={}, estimates={}, doubted=())
DAY_NS = 86_400 * 10**9


def encoded(*values_ns: int) -> str:
    found = HdrHistogram(1, 3_600_000_000_000, 3)
    for value in values_ns:
        found.record_value(value)
    return str(found.encode().decode())


def trial(
    number: int, *doubted: str, outcome: Outcome = "ok", cut: CutRecord | None = None, histogram: str | None = None
) -> TrialRecord:
    """A trial of a point; what it doubts are response times, by the ends of their names."""
    summary: dict[str, object] = {"doubted": [f"response_time_us.{each}" for each in doubted]}
    if histogram is not None:
        summary["histograms"] = {"response_time_ns": histogram}
    return TrialRecord(
        number=number, block=number, point=0, setting={}, outcome=outcome, reason=None, warnings=(), figures={},
        started_unix_s=0.0, elapsed_s=1.0, server={}, load=cast("MeasuredLoadRecord", {"summary": summary}), machine={},
        cut=cut,
    )  # fmt: skip


def test_a_decade_has_the_twenty_preferred_numbers_and_twelve_decades_are_more_than_a_day() -> None:
    """ISO 3, R20."""
    decade = [100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900]
    assert [edge_ns(place) for place in range(20)] == decade
    assert [edge_ns(place) for place in range(220, 240)] == [each * 10**11 for each in decade]
    assert (STEPS, edge_ns(STEPS)) == (240, 10**14)
    assert edge_ns(STEPS) > DAY_NS > edge_ns(STEPS - 2)


@pytest.mark.parametrize(
    ("doubted", "is_kept"),
    [
        ("max", True),
        ("stdev", True),
        ("p99_9", True),
        ("p99_99", True),
        ("p99", False),
        ("p50", False),
        ("mean", False),
    ],
)
def test_a_generator_that_was_late_beyond_the_body_alone_leaves_its_trial(doubted: str, *, is_kept: bool) -> None:
    late = trial(1, doubted)
    expected = ([late], {}, [doubted]) if is_kept else ([], {"generator was late": 1}, [])
    assert of_point([late]) == expected


def test_each_trial_that_is_left_out_is_so_for_one_reason() -> None:
    """One that the network disturbed counts as that, however late its generator was."""
    kept, beside = trial(1, "max"), trial(2, "stdev", "max")
    trials = [
        kept, trial(3, "p90"), trial(4, "mean", cut=CUT), trial(5, cut=CUT), trial(6, outcome="invalid"), beside,
        trial(7, outcome="failed", cut=CUT),
    ]  # fmt: skip
    assert of_point(trials) == (
        [kept, beside],
        {"network was disturbed": 2, "generator was late": 1},
        ["max", "stdev"],
    )


def test_what_is_the_generators_lateness_is_said_of_the_trials_that_are_drawn() -> None:
    assert of_point([trial(1, "p90", "max"), trial(2)]) == ([trial(2)], {"generator was late": 1}, [])


def test_a_trial_may_keep_no_histogram() -> None:
    whole = trial(1, histogram=encoded(210_000))
    found = histogram_of(whole)
    assert found is not None
    assert found.get_total_count() == 1
    assert histogram_of(trial(1)) is None
    loads: list[dict[str, object]] = [
        {}, {"summary": None}, {"summary": {"histograms": ["x"]}}, {"summary": {"histograms": {"other": "x"}}},
    ]  # fmt: skip
    for load in loads:
        bare = TrialRecord(
            number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), figures={},
            started_unix_s=0.0, elapsed_s=1.0, server={}, load=cast("MeasuredLoadRecord", load), machine={},
        )  # fmt: skip
        assert histogram_of(bare) is None


def test_a_distribution_counts_its_histograms_and_its_valid_trials() -> None:
    whole = encoded(210_000, 3_010_000)
    trials = [
        trial(1, histogram=whole), trial(2, histogram=whole), trial(3), trial(4, histogram=whole, outcome="invalid"),
        trial(5, histogram=whole, cut=CUT),
    ]  # fmt: skip
    point = point_summary({"server.model": "epoll"}, 0)
    other = point_summary({"server.model": "poll"}, 1)
    found, nothing = distributions([point, other], trials)
    # 0.2 to 0.224 ms, and 2.8 to 3.15 ms: the 66th step and the 89th.
    assert found.steps == {66: 2, 89: 2}
    assert (found.point, found.requests, found.trials, found.valid) == ({"server.model": "epoll"}, 4, 2, 4)
    assert (found.left_out, found.late) == ({"network was disturbed": 1}, [])
    assert (nothing.point, nothing.requests, nothing.trials, nothing.valid) == ({"server.model": "poll"}, 0, 0, 0)


def test_the_slowest_request_that_a_histogram_holds_has_its_own_step() -> None:
    """An hour less a second lies between 3.55 and 4 x 10^12 ns."""
    made = trial(1, histogram=encoded(1, 99, 3_599_000_000_000))
    (found,) = distributions([point_summary({}, 0)], [made])
    assert found.steps == {0: 2, 211: 1}
