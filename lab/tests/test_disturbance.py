"""When the emulator's own lateness spoils a trial, and when it only raises a doubt."""

from __future__ import annotations

import pytest

from plimsoll_lab.problem import LabError
from plimsoll_lab.store.program_output import LinkWindow
from plimsoll_lab.store.run_record import AskedRecord, CalibrationRecord, MeasuredRecord, OffRecord, PathRecord
from plimsoll_lab.suite.topology import Link, join
from plimsoll_lab.trial.calibration import asked_goodput_bits_per_s, refuse_untrue
from plimsoll_lab.trial.disturbance import network_doubts, too_disturbed


def network(*, late: int = 0, lost: int = 0, unread: int = 0, moments: int = 0) -> LinkWindow:
    inner = {"from": "h1-eth0", "to": "s1", "delivered": 10_000, "released_late": 0, "dropped_by_fault": unread}
    last = {"from": "s1", "to": "h2-eth0", "delivered": 10_000, "released_late": late, "dropped_by_fault": lost}
    each = {"from_unix_s": 1.0, "to_unix_s": 1.1, "late_frames": late, "lost_frames": lost, "worst_us": 2500}
    return LinkWindow.model_validate({"links": [inner, last], "disturbances": [each] * moments})


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (None, None),
        (network(), None),
        (network(late=20, moments=1), None),
        (network(late=21, moments=1), "late for 21 of 10000 packets"),
        (network(lost=1), "lost 1 packets by its own fault"),
        (network(unread=2), "lost 2 packets by its own fault"),
        (LinkWindow(silent=True), "said nothing"),
        (LinkWindow(backlog_drops=3), "lost 3 packets by its own fault"),
    ],
)
def test_a_trial_is_made_again_when_too_many_packets_were_late(seen: LinkWindow | None, said: str | None) -> None:
    found = too_disturbed(seen)
    assert (found is None) if said is None else (found is not None and said in found)


def test_moments_are_a_doubt_with_the_worst_of_them() -> None:
    assert network_doubts(network()) == []
    (doubt,) = network_doubts(network(late=5, moments=2))
    assert doubt.code == "link_disturbed"
    assert "late 2 times" in doubt.message
    assert "2.5 ms at worst" in doubt.message


def test_what_a_path_carries_is_what_its_links_leave_of_a_tenth_too_much() -> None:
    narrow = [Link(ends=("h1", "s1"), shape={"rate": "100Mbit"}), Link(ends=("h2", "s1"), shape={"rate": "10Mbit"})]
    asked = asked_goodput_bits_per_s(join(narrow), "h1", "h2", whole=False)
    assert asked == pytest.approx(10e6 * 1472 / 1514)
    lossy = [Link(ends=("h1", "h2"), shape={"rate": "10Mbit", "loss": "10%"})]
    assert asked_goodput_bits_per_s(join(lossy), "h1", "h2", whole=True) == pytest.approx(9e6 * 1448 / 1514)
    assert asked_goodput_bits_per_s(join([Link(ends=("h1", "h2"), shape={})]), "h1", "h2", whole=False) is None


def test_a_path_that_is_not_what_was_asked_for_stops_the_run_with_its_figures() -> None:
    path = PathRecord(
        start="h2",
        end="h1",
        asked=AskedRecord(one_way_us=2000.0, round_trip_delay_us=4000.0, round_trip_us=4000.0, goodput_bits_per_s=1e8),
        measured=MeasuredRecord(round_trip_us={"p50": 4500.0}, goodput_bits_per_s=9.9e7),
        off=OffRecord(round_trip=0.125, goodput=-0.01),
        within=False,
        attempts=3,
    )
    assert path.in_words() == (
        "a round trip of 4.500 ms for 4.000 ms asked, a goodput of 99.00 Mbit/s for 100.00 Mbit/s asked"
    )
    with pytest.raises(LabError, match=r"from h2 to h1 is not what was asked for.*4\.500 ms") as refusal:
        refuse_untrue([calibration(path)], [])
    assert refusal.value.exit_code == 5
    refuse_untrue([calibration(path.model_copy(update={"within": True}))], [])


def calibration(path: PathRecord) -> CalibrationRecord:
    return CalibrationRecord(unix_s=0.0, points=[0], backend="tap", large_segments=None, priority=None, paths=[path])
