"""What became of each client, from the generator's lines to the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.clients import strips
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.clients import TICKS_MOST, section, strip_charts
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.page import render_page
from plimsoll_lab.report.view import Text
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.query import ask
from plimsoll_lab.store.timelines import write_timelines


def told(number: int, failed: int = 0, *, success: bool = True) -> str:
    line = {"event": "connection", "connection": number, "success": success, "completed": 5}
    line |= {"failed_connects": failed, "failed_sequences": 0, "failed_requests": 0}
    line |= {"establishment_time_us": 100.0 - number, "service_time_total_us": 1000.0 + number}
    return json.dumps(line) + "\n"


def stored(path: Path, lines: list[str]) -> RunFolder:
    """Two models, whose generator told of each connection."""
    folder = stored_run(path, ("epoll", "threads"))
    for trial in folder.read_trials():
        records = folder.records(trial.number)
        (records / "load.connections.jsonl").write_text("".join(lines))
        write_timelines(folder.path, records, trial)
        assert not records.exists(), "what has become a table is removed"
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return stored(tmp_path / "runs" / "0001", [told(0), told(1, 2), told(2, 10, success=False)])


def test_each_connection_is_a_row_for_queries(folder: RunFolder) -> None:
    sql = "SELECT run, trial, part, connection, success, failed_connects FROM connections ORDER BY ALL LIMIT 3"
    rows = [("0001", 1, "load", 0, True, 0), ("0001", 1, "load", 1, True, 2), ("0001", 1, "load", 2, False, 10)]
    assert ask(folder.path.parent, sql).rows == rows


def test_times_are_of_clients_that_succeeded_and_failures_of_all(folder: RunFolder) -> None:
    (here,) = strips(folder.read_run(), folder.path, folder.read_trials()).values()
    assert [strip.contender for strip in here] == ["epoll", "threads"]
    assert (here[0].connect_us, here[0].exchange_us) == ([99.0, 100.0], [1000.0, 1001.0])
    assert here[0].failures == {0: 1, 2: 1, 10: 1}


def test_the_page_has_a_strip_chart_of_them(folder: RunFolder) -> None:
    page = render_page(folder, summarise_run(folder))
    assert 'data-chart="clients-0"' in page
    assert "Every client of a trial" in page
    assert "evenly spaced by rank" not in page


def test_of_many_clients_the_fastest_and_the_slowest_are_drawn_and_the_rest_is_said(tmp_path: Path) -> None:
    folder = stored(tmp_path / "0001", [told(number) for number in range(90)] * 3)
    run = folder.read_run()
    found = strips(run, folder.path, folder.read_trials())
    (chart,) = strip_charts(found, layout_of(run)).values()
    # As plain data, whose types a test need not know.
    panels = json.loads(json.dumps(chart.spec))["hconcat"]
    drawn = [row["ms"] for row in panels[1]["data"]["values"] if row["contender"] == "epoll"]
    assert (len(drawn), drawn[0], drawn[-1]) == (TICKS_MOST, 1.0, 1.089)
    assert [row["clients"] for row in panels[2]["data"]["values"]] == [270, 270]
    assert [cell.text for cell in chart.data.rows[0]][:2] == ["epoll", "270"]
    (said,) = section(found, {}, {}).parts
    assert isinstance(said, Text)
    assert "Of more than 150 clients" in said.text


def test_a_run_without_them_has_no_such_section(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001")
    assert "Every client of a trial" not in render_page(folder, summarise_run(folder))
