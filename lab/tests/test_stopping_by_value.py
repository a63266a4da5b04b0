"""Where servers stop, of points that were measured once and twice."""

from __future__ import annotations

from collections.abc import Sequence

from made_claims import trial
from made_records import point_summary

from plimsoll_lab.analysis.stopping import Stop, stops
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.summary_record import PointSummary


def point(load: int, number: int, outcome: Outcome | None, n: int) -> PointSummary:
    made = point_summary({"load.connections": load}, number)
    return made.model_copy(update={"outcome": outcome, "n": n})


def ended(number: int, *outcomes: Outcome) -> list[TrialRecord]:
    """The trials of a point, which ended so."""
    return [trial(10 * number + block, number, block, 0.0, outcome) for block, outcome in enumerate(outcomes)]


def told(
    points: Sequence[PointSummary], controls: Sequence[PointSummary], trials: Sequence[TrialRecord]
) -> list[tuple[int, str, list[int], int, bool]]:
    found = stops(points, controls, trials)
    return [
        (each.point.number, each.outcome, [trial.number for trial in each.trials], each.of, each.as_a_whole)
        for each in found
    ]


def test_each_way_to_stop_at_each_point_is_one_and_limits_come_first() -> None:
    points = [point(20, 1, "ok", 4), point(10, 0, "failed", 2), point(30, 2, "ok", 1)]
    trials = [
        *ended(0, "failed", "failed"), *ended(1, "failed", "ok", "hard_limit", "failed"), *ended(2, "invalid"),
    ]  # fmt: skip
    assert told(points, [], trials) == [
        (1, "hard_limit", [12], 4, False),
        (1, "failed", [10, 13], 4, False),
        (0, "failed", [0, 1], 2, True),
    ]


def test_the_trials_of_a_control_are_its_points_own() -> None:
    here, again = point(10, 0, "failed", 2), point(10, 5, "ok", 3)
    trials = [*ended(0, "failed", "failed"), *ended(5, "ok", "failed", "ok"), *ended(6, "failed")]
    # A control of another setting, and one that is yet to be measured, are none of its.
    others = [point(20, 6, "failed", 1), point(10, 7, None, 0)]
    assert told([here], [again, *others], trials) == [(0, "failed", [0, 1, 51], 5, False)]
    assert told([here], others, trials) == [(0, "failed", [0, 1], 2, True)]
    both = again.model_copy(update={"outcome": "failed"})
    assert told([here], [both], trials) == [(0, "failed", [0, 1, 51], 5, False)]


def test_a_stop_has_the_point_itself_and_its_trials() -> None:
    here, trials = point(10, 0, "hard_limit", 1), ended(0, "hard_limit")
    again = point(10, 5, "hard_limit", 1)
    assert stops([here], [again], trials) == [
        Stop(point=here, outcome="hard_limit", trials=trials, of=2, as_a_whole=True)
    ]  # fmt: skip
    assert stops([here], [], []) == []


def test_what_was_spoilt_beside_a_stop_did_not_go_on() -> None:
    here = point(10, 0, "failed", 3)
    assert told([here], [], ended(0, "failed", "invalid", "failed")) == [(0, "failed", [0, 2], 3, True)]
