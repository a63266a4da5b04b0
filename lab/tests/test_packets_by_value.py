"""What one capture saw, where it says little: what it lacks is absent and not zero."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.packets import Traffic, traffic
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return stored_run(tmp_path / "0001", repeat=3)


def captured(folder: RunFolder, *captures: Json, trials: int = 3) -> list[Traffic]:
    """The captures of a point whose first trials have these."""
    made = [
        replace(trial, hosts={"captures": captures}) if trial.number <= trials else trial
        for trial in folder.read_trials()
    ]
    found = traffic(folder.read_run(), made)
    assert list(found) == (["model epoll"] if found else [])
    return found.get("model epoll", [])


def test_what_a_capture_does_not_say_is_absent(folder: RunFolder) -> None:
    """Of an interval whose length is not told a second is taken."""
    summary: Json = {"interval": [{"packets": 3, "flags": {"syn": 2}}, {"packets": 5, "flags": {"ack": 4}}]}
    [found] = captured(folder, {"host": "h1", "summary": summary})
    assert found.series == {"packets": [(0.5, 3.0), (1.5, 5.0)], "syn": [(0.5, 2.0)], "ack": [(1.5, 4.0)]}
    assert (found.ends_s, found.totals, found.drops) == (2.0, {}, None)
    assert (found.trial, found.contender, found.host) == (2, "all", "h1")


def test_every_count_of_an_interval_is_a_rate(folder: RunFolder) -> None:
    flags = {"syn": 1, "fin": 2, "rst": 3, "psh": 4, "ack": 5, "urg": 6}
    one: Json = {"packets": 7, "bytes": 100, "new_endpoints": 8, "retransmissions": 9, "flags": flags}
    [found] = captured(folder, {"host": "h1", "summary": {"interval_s": 0.25, "interval": [one]}})
    counted = {"packets": 7, "bits": 800, "new_endpoints": 8, "retransmissions": 9}
    counted |= {"syn": 1, "fin": 2, "rst": 3, "psh": 4, "ack": 5}
    assert found.series == {name: [(0.125, 4.0 * count)] for name, count in counted.items()}
    assert found.ends_s == 0.25


def test_the_totals_are_those_that_a_page_has_columns_for(folder: RunFolder) -> None:
    summary: Json = {
        "packets": 60, "bytes": 6000, "endpoints": 7, "kernel_drops": 0,
        "flags": {"syn": 6, "fin": 5, "rst": 1, "psh": 4, "ack": 60, "urg": 2},
        "tcp": {
            "retransmissions": 3, "out_of_order": 2, "duplicate_acks": 4, "zero_windows": 5, "resets": 1,
            "unanswered_syn": 0, "strange": 9,
        },
    }  # fmt: skip
    [found] = captured(folder, {"host": "h1", "summary": summary})
    assert found.totals == {
        "packets": 60, "bytes": 6000, "endpoints": 7, "retransmissions": 3, "out_of_order": 2, "duplicate_acks": 4,
        "zero_windows": 5, "resets": 1, "unanswered_syn": 0, "syn": 6, "fin": 5, "rst": 1, "psh": 4, "ack": 60,
    }  # fmt: skip
    assert (found.series, found.ends_s, found.drops) == ({}, 0.0, 0)


def test_each_capture_that_ended_with_a_summary_is_shown(folder: RunFolder) -> None:
    whole: Json = {"host": "h2", "summary": {"packets": 1}}
    found = captured(folder, {"host": "h1", "summary": None}, whole, {"host": "h3"}, {"host": "h4", "summary": {}})
    assert [(each.host, each.totals) for each in found] == [("h2", {"packets": 1}), ("h4", {})]
    assert captured(folder, {"host": "h1", "summary": None}) == []


def test_a_trial_that_was_not_captured_stands_for_no_point(folder: RunFolder) -> None:
    """Of all three the second one is in the middle."""
    [found] = captured(folder, {"host": "h1", "summary": {}}, trials=1)
    assert found.trial == 1
