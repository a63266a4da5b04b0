"""The picture of a run that searches, and its tables."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from conftest import lab_here
from made_pages import page_of
from made_records import stored_run

from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.capacity_picture import picture
from plimsoll_lab.report.data_files import openmetrics
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.headline import Headline
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.search_record import LimitedBy, LoadRecord, SearchRecord, SearchSettingsRecord
from plimsoll_lab.suite.figures import FIGURES, capacity_figure, read_limit
from plimsoll_lab.suite.spec import SearchSettings

P99 = "response_time_us.p99"


def searched(path: Path, *limits: tuple[str, str], by: LimitedBy = "server") -> RunFolder:
    """A search that met its limits at 1,000 connections and missed them at 1,100."""
    folder = stored_run(path, ("epoll", "poll"))
    run = folder.read_run()
    settings = SearchSettings(over="load.connections", lowest=100, highest=9000)
    run.search = SearchSettingsRecord(**asdict(settings))
    run.limits = tuple(read_limit(name, condition, source="it.toml") for name, condition in limits)
    run.figures = (capacity_figure(settings), *FIGURES)
    loads = [
        LoadRecord(load=load, trials=2, good=good, medians={P99: 9.0 * load, "failed_ratio": ratio})
        for load, good, ratio in ((100, 2, 0.0), (1000, 2, 0.0), (1100, 0, 0.2))
    ]
    run.searches = [
        SearchRecord(
            number=number, block=1, point=number, state="complete", setting=dict(point.setting), lower=1000, upper=1100,
            limited_by=by, loads=loads,
        )
        for number, point in enumerate(run.points)
    ]  # fmt: skip
    folder.write_run(run)
    return folder


def drawn(folder: RunFolder) -> Headline:
    run = folder.read_run()
    found = picture(summarise_run(folder), run, layout_of(run))
    assert found is not None
    return found


@pytest.mark.parametrize(("by", "missed"), [("server", "1,100"), ("generator", "-"), ("environment", "-")])
def test_a_load_that_the_generator_or_the_machine_refused_is_none_that_the_server_missed(
    tmp_path: Path, by: LimitedBy, missed: str
) -> None:
    """The answer said that it carries 1,000 at least, and the table that 1,100 were too many."""
    folder = searched(tmp_path / "0001", ("response_time.p99", "< 9.5ms"), by=by)
    found = drawn(folder)
    assert {row[2].text for row in found.data.rows} == {missed}
    page = page_of(folder)
    overview = page[page.index("Capacity of each server") :].partition("</table>")[0]
    assert ("1,100" in overview) == (by == "server")
    metrics = openmetrics(folder.read_run(), summarise_run(folder))
    assert 'statistic="lower"' in metrics
    assert ('statistic="upper"' in metrics) == (by == "server")


def test_nobody_says_how_many_trials_a_search_has_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had 14 of 11, as each new load adds some."""
    folder = searched(tmp_path / "runs/0001", ("response_time.p99", "< 9.5ms"))
    run = folder.read_run()
    run.status, run.trials, run.searches[1].state = "interrupted", (), "planned"
    folder.write_run(run)
    validity = page_of(folder).partition('class="validity"')[2].partition("</p>")[0]
    assert "The run did not end; 2 of 2 trials are valid results." in validity
    assert "planned" not in validity
    monkeypatch.chdir(tmp_path)
    done = lab_here(tmp_path, "list")
    assert done.stdout.endswith(" 2 trials\n")
    assert json.loads(lab_here(tmp_path, "list", "--json").stdout)["planned"] is None


def test_a_load_without_a_failure_is_drawn_where_the_scale_has_a_zero(tmp_path: Path) -> None:
    """The loads that pass were left out, and those that fail alone had a mark."""
    failures = drawn(searched(tmp_path / "0001", ("failed_ratio", "< 1%")))
    assert '"load": 100' in json.dumps(failures.spec)
    assert failures.data.caption == "Connections within failed_ratio < 1%"
    both = drawn(searched(tmp_path / "0002", ("failed_ratio", "< 1%"), ("response_time.p99", "< 9.5ms")))
    assert both.data.caption == "Connections within all limits"
    times = searched(tmp_path / "0003", ("response_time.p99", "< 9.5ms"))
    run = times.read_run()
    [first, *others] = run.searches
    zero = first.loads[0].model_copy(update={"load": 50, "medians": {P99: 0.0}})
    run.searches = [first.model_copy(update={"loads": [zero, *first.loads]}), *others]
    times.write_run(run)
    assert '"load": 50' not in json.dumps(drawn(times).spec)


def test_loads_that_lie_far_apart_are_drawn_on_a_logarithmic_scale(tmp_path: Path) -> None:
    """Up to 200,000 on a linear one, all that was measured lay at its left end."""

    def scale(least: int) -> str:
        folder = searched(tmp_path / f"{least}", ("response_time.p99", "< 9.5ms"))
        run = folder.read_run()
        run.searches = [
            each.model_copy(update={"loads": [load for load in each.loads if load.load >= least]})
            for each in run.searches
        ]
        folder.write_run(run)
        return "log" if '"type": "log", "nice"' in json.dumps(drawn(folder).spec) else "linear"

    assert (scale(100), scale(1000)) == ("log", "linear")
