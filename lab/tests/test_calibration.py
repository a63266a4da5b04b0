"""The rate of a path, and what a run does where that is not what was asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from plimsoll_lab.analysis.points import summarise_point
from plimsoll_lab.hosts import path
from plimsoll_lab.problem import LabError
from plimsoll_lab.store.network_record import (
    CalibrationRecord,
    PathDeviationRecord,
    PathMeasurementRecord,
    PathRecord,
    PathTargetRecord,
)
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import PointRecord
from plimsoll_lab.suite.topology import Link, join
from plimsoll_lab.trial.calibration import asked_goodput_bits_per_s, refuse_far_off


def test_what_a_path_carries_is_what_its_links_leave_of_a_tenth_too_much() -> None:
    narrow = [Link(ends=("h1", "s1"), shape={"rate": "100Mbit"}), Link(ends=("h2", "s1"), shape={"rate": "10Mbit"})]
    asked = asked_goodput_bits_per_s(join(narrow), "h1", "h2", whole=False)
    assert asked == pytest.approx(10e6 * 1472 / 1514)
    lossy = [Link(ends=("h1", "h2"), shape={"rate": "10Mbit", "loss": "10%"})]
    assert asked_goodput_bits_per_s(join(lossy), "h1", "h2", whole=True) == pytest.approx(9e6 * 1448 / 1514)
    assert asked_goodput_bits_per_s(join([Link(ends=("h1", "h2"), shape={})]), "h1", "h2", whole=False) is None


def test_a_packet_that_netem_loses_has_not_used_the_rate() -> None:
    """A path by the kernel was asked for what our emulator delivers, and its figures were
    doubted.
    """
    for loss, delivered in (("5%", 10e6), ("10%", 1.1 * 9e6)):
        link = Link(ends=("h1", "h2"), shape={"rate": "10Mbit", "loss": loss})
        asked = asked_goodput_bits_per_s(join([link], backend="kernel"), "h1", "h2", whole=False)
        assert asked == pytest.approx(delivered * 1472 / 1514)


def test_a_path_that_is_not_what_was_asked_for_stops_the_run_with_its_figures() -> None:
    path = PathRecord(
        start="h2",
        end="h1",
        asked=PathTargetRecord(
            one_way_us=2000.0, round_trip_delay_us=4000.0, round_trip_us=4000.0, goodput_bits_per_s=1e8
        ),
        measured=PathMeasurementRecord(round_trip_us={"p50": 4500.0}, goodput_bits_per_s=9.9e7),
        off=PathDeviationRecord(round_trip=0.125, goodput=-0.01),
        within=False,
        attempts=3,
    )
    assert path.in_words() == (
        "a round trip of 4.500 ms for 4.000 ms asked, a goodput of 99.00 Mbit/s for 100.00 Mbit/s asked"
    )
    with pytest.raises(LabError, match=r"from h2 to h1 is not what was asked for.*4\.500 ms") as refusal:
        refuse_far_off([calibration(path)], [])
    assert refusal.value.exit_code == 5
    refuse_far_off([calibration(path.model_copy(update={"within": True}))], [])
    near = path.model_copy(update={"off": PathDeviationRecord(round_trip=0.05, goodput=-0.05)})
    refuse_far_off([calibration(near)], [])
    silent = near.model_copy(update={"measured": PathMeasurementRecord(round_trip_us={}, goodput_bits_per_s=None)})
    with pytest.raises(LabError):
        refuse_far_off([calibration(silent)], [])


def test_over_a_path_that_is_a_little_off_figures_are_marked() -> None:
    trial = TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0, elapsed_s=1,
        figures={"completed_rate": 100.0}, server={}, load={}, machine={},
    )  # fmt: skip
    point = PointRecord(number=0, setting={}, server={}, load={})
    found = [summarise_point(point, [trial], (), paths_off=paths_off) for paths_off in (False, True)]
    assert [each.doubtful for each in found] == [False, True]
    assert [each.figures["completed_rate"].median for each in found] == [100.0, 100.0]


def calibration(path: PathRecord) -> CalibrationRecord:
    return CalibrationRecord(unix_s=0.0, points=[0], backend="tap", large_segments=None, priority=None, paths=[path])


def test_a_link_that_lets_nothing_through_ends_its_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was waited for without end, at the cost of a CPU."""
    monkeypatch.setattr(path, "_arrived", lambda _: 7)
    end = cast("path.PathEnd", SimpleNamespace(name="h2"))
    with pytest.raises(LabError, match="nothing arrives at h2"):
        path._next_arrival(end, lambda: None, 0.01)
