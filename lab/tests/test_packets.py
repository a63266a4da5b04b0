"""What captures saw, in its section: over time, in all, and nothing where nothing was captured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.packets import traffic
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.packets import packet_charts
from plimsoll_lab.report.page import render_page
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json


def interval(packets: int, syn: int, rst: int = 0) -> Json:
    flags = {"fin": 0, "syn": syn, "rst": rst, "psh": packets // 2, "ack": packets}
    return {
        "packets": packets,
        "bytes": packets * 100,
        "flags": flags,
        "new_endpoints": syn,
        "retransmissions": 3 if rst else 0,
        "out_of_order": 0,
        "duplicate_acks": 0,
    }


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two models whose host was captured, in intervals of half a second."""
    made = stored_run(tmp_path / "0001", ("epoll", "<b>"), repeat=1)
    for trial in made.read_trials():
        rows = [interval(10, 4), interval(20, 0), interval(30, 2, rst=1)]
        summary = {
            "packets": 60,
            "bytes": 6000,
            "endpoints": 7,
            "kernel_drops": 5,
            "interval_s": 0.5,
            "interval": rows,
            "flags": {"syn": 6, "rst": 1},
            "tcp": {"retransmissions": 3, "resets": 1, "unanswered_syn": 0},
        }
        captures: list[Json] = [{"host": "h1", "interface": "eth0", "file": "0001.pcapng", "summary": summary}]
        made.write_trial(replace(trial, hosts={"captures": captures}))
    return made


def test_counts_of_intervals_are_rates_over_time(folder: RunFolder) -> None:
    ((level, (one, other)),) = traffic(folder.read_run(), folder.read_trials()).items()
    assert (level, one.contender, other.contender, one.host) == ("every setting", "epoll", "<b>", "h1")
    assert one.series["packets"] == [(0.25, 20.0), (0.75, 40.0), (1.25, 60.0)]
    assert one.series["syn"] == [(0.25, 8.0), (0.75, 0.0), (1.25, 4.0)]
    assert one.series["bits"][0] == (0.25, 16_000.0)
    assert one.ends_s == 1.5
    assert one.totals["endpoints"] == 7
    assert one.totals["unanswered_syn"] == 0
    assert one.drops == 5


def test_flags_that_never_came_have_no_panel(folder: RunFolder) -> None:
    run = folder.read_run()
    (chart,) = packet_charts(traffic(run, folder.read_trials()), layout_of(run)).values()
    panels = chart.spec["vconcat"]
    assert isinstance(panels, list)
    named = [panel["layer"][-1]["encoding"]["y"]["title"][0] for panel in panels]
    assert named == ["packets", "bits", "SYN", "RST", "PSH", "endpoints", "retransmitted"]
    assert "FIN" not in chart.caption


def test_the_page_has_chart_numbers_and_totals(folder: RunFolder) -> None:
    page = render_page(folder, summarise_run(folder))
    assert '<section id="packets">' in page
    assert 'data-chart="packets-0"' in page
    assert "Not drawn, as there was none: FIN." in page
    assert "missed by the capture" in page
    assert "<b>" not in page


def test_without_a_capture_there_is_no_section(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001")
    assert 'id="packets"' not in render_page(folder, summarise_run(folder))
