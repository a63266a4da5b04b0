"""Response times by the connections up, from a request log to the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.by_connections import climbs
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.experiment.run import with_growth
from plimsoll_lab.report.by_connections import climb_charts
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.page import render_page
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import CutRecord, MeasuredLoadRecord
from plimsoll_lab.store.timelines import write_timelines
from plimsoll_lab.suite.figures import LAST_OVER_LINE

HEAD = "time,connection,request,bytes,response_time_us,phase,outcome\n"


def stored(path: Path, connections: int, *models: str) -> RunFolder:
    """Each connection begins a second after the one before, and waits as long as it has
    predecessors; its last request is not answered.
    """
    folder = stored_run(path, models or ("epoll", "threads"))
    for trial in folder.read_trials():
        records = folder.records(trial.number)
        first = [f"{10 + n + n / 100},{n},1,64,{n * 1e4},window,ok\n" for n in range(1, connections + 1)]
        last = [f"{99 + n / 100},{n},2,64,10.0,window,timeout\n" for n in range(1, connections + 1)]
        (records / "load.request_log.csv").write_text(HEAD + "".join(first + last))
        write_timelines(folder.path, records, trial)
    return folder


def test_the_page_draws_response_times_by_the_connections_up(tmp_path: Path) -> None:
    folder = stored(tmp_path / "runs" / "0001", 40)
    run = folder.read_run()
    found = climbs(run, folder.path, folder.read_trials())
    (here,) = found.values()
    assert [climb.contender for climb in here] == ["epoll", "threads"]
    assert [step.requests for step in here[0].steps] == [2] * 20, "those without an answer have no response time"
    (chart,) = climb_charts(found, layout_of(run)).values()
    # As plain data, whose types a test need not know.
    drawn = json.loads(json.dumps(chart.spec))["data"]["values"]
    assert len(drawn) == 40
    assert (drawn[0]["connections"], drawn[0]["ms"]) == (1.5, 15.0)
    assert [cell.text for cell in chart.data.rows[0]] == ["epoll", "15.0 ms", "115 ms", "215 ms", "295 ms", "395 ms"]
    page = render_page(folder, summarise_run(folder))
    assert 'data-chart="by-connections-0"' in page
    assert "Response time by connections" in page


def test_the_last_connections_over_a_line_are_a_figure_of_undisturbed_trials_alone(tmp_path: Path) -> None:
    folder = stored(tmp_path / "runs" / "0001", 40)
    trial = folder.read_trials()[0]
    assert with_growth(folder, trial).figures[LAST_OVER_LINE] == pytest.approx(1.0, rel=0.01)
    moments = CutRecord(
        moments=1,
        share=0.01,
        requests=10,
        touched=0,
        completed_rate=1.0,
        bounds={},
        estimates={},
        doubted=[],
    )
    late: MeasuredLoadRecord = {"summary": {"doubted": ["response_time_us.mean"]}}
    for spoilt in (replace(trial, cut=moments), replace(trial, load=late)):
        assert LAST_OVER_LINE not in with_growth(folder, spoilt).figures


def test_where_all_requests_began_with_one_number_of_connections_nothing_is_drawn(tmp_path: Path) -> None:
    folder = stored(tmp_path / "runs" / "0001", 1)
    assert climbs(folder.read_run(), folder.path, folder.read_trials()) == {}
    assert "Response time by connections" not in render_page(folder, summarise_run(folder))


def test_two_numbers_of_connections_are_a_curve(tmp_path: Path) -> None:
    folder = stored(tmp_path / "0001", 2, "epoll")
    [(level, [climb])] = climbs(folder.read_run(), folder.path, folder.read_trials()).items()
    assert (level, climb.contender) == ("model epoll", "all")
    assert [(step.connections, step.response_time_us, step.requests) for step in climb.steps] == [
        (1.0, 10_000.0, 1),
        (2.0, 20_000.0, 1),
    ]


def test_contenders_of_one_setting_are_together(tmp_path: Path) -> None:
    folder = stored(tmp_path / "0001", 3, "epoll", "threads")
    found = climbs(folder.read_run(), folder.path, folder.read_trials())
    assert {level: [each.contender for each in here] for level, here in found.items()} == {
        "every setting": ["epoll", "threads"]
    }
