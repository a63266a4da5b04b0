"""The first picture of a page: it shows what the answer tells."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_pages import answer_of, page_of, run_over_loads
from made_records import stored_run

from plimsoll_lab.analysis.percentiles import Curve
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.headline import headline
from plimsoll_lab.report.scores import COUNTED
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Outcome, ResultWarning


def test_the_response_times_are_the_picture_of_a_run_in_which_nothing_competes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = Curve(point={}, quantiles=[(0.5, 100.0), (0.9, 200.0), (0.99, 400.0)])
    monkeypatch.setattr("plimsoll_lab.report.all_charts.curves", lambda *_: [curve])
    page = page_of(stored_run(tmp_path / "0001"))
    assert page.index('data-chart="percentiles-0"') < page.index('id="warnings"')
    assert page.count('data-chart="percentiles-0"') == 1


COST = "server.cpu_us_per_request"


def comparing_cost(path: Path) -> RunFolder:
    """Three servers that compete by their CPU for a request."""
    folder = stored_run(path, ("epoll", "threads", "poll"), repeat=6)
    run = folder.read_run()
    run.family = run.family.model_copy(update={"figures": (COST,)})
    folder.write_run(run)
    return folder


def test_the_first_picture_has_the_cpu_of_a_server_that_outran_its_generator(tmp_path: Path) -> None:
    folder = comparing_cost(tmp_path / "0001")
    for trial in folder.read_trials():
        told = replace(trial, figures={COST: 10.0 + trial.number % 3})
        late = trial.setting["server.model"] == "epoll" and trial.block <= 4
        folder.write_trial(replace(told, outcome="generator_limited", reason="it was late") if late else told)
    page = page_of(folder)
    assert "no valid result" not in page[page.index('data-chart="headline"') :].partition("</figure>")[0]
    assert COUNTED in page, "the median of the scores is not that of the point"
    assert COUNTED not in page_of(stored_run(tmp_path / "0002", ("epoll", "threads"), repeat=6))


@pytest.mark.parametrize("machine", [(), ("machine_busy",)])
def test_the_first_picture_has_a_server_that_outran_its_generator_in_every_trial(
    tmp_path: Path, machine: Sequence[str]
) -> None:
    """The answer had it, and the picture said that it has no valid result, and another one the
    best.
    """
    folder = comparing_cost(tmp_path / "0001")
    for trial in folder.read_trials():
        name = str(trial.setting["server.model"])
        told = replace(trial, figures={COST: {"epoll": 5.0, "threads": 12.0, "poll": 10.0}[name] + trial.block / 100})
        if name == "epoll":
            codes = ("generator_late", *machine)
            warnings = tuple(ResultWarning(code=code, message="it was late", remedy="look") for code in codes)
            outcome: Outcome = "invalid" if machine else "generator_limited"
            told = replace(told, outcome=outcome, reason="it was late", warnings=warnings)
        folder.write_trial(told)
    picture = page_of(folder).partition('data-chart="headline"')[2].partition("</figure>")[0]
    assert "no valid result" not in picture
    assert "epoll has the best median" in picture


def test_a_picture_of_equal_medians_names_nobody_the_best(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=6)
    for trial in folder.read_trials():
        folder.write_trial(replace(trial, figures={"completed_rate": 1000.0 + trial.block}))
    run = folder.read_run()
    found = headline(summarise_run(folder), run, layout_of(run))
    assert found is not None
    assert found.caption.startswith("Completed rate, every setting: the medians of all are 1,000/s.")


def test_a_suite_that_compares_no_figure_has_no_first_picture(tmp_path: Path) -> None:
    """`[verdict] figures = []` was an internal error once all trials were made."""
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=6)
    run = folder.read_run()
    run.family = run.family.model_copy(update={"figures": ()})
    folder.write_run(run)
    assert headline(summarise_run(folder), run, layout_of(run)) is None
    page = page_of(folder)
    assert 'data-chart="headline"' not in page
    assert "No verdict: this suite compares no figure." in page, "it was said to have one contender"


def test_the_first_picture_says_who_was_not_compared(tmp_path: Path) -> None:
    """Its best is the answer's: a contender of few valid trials may have the better median."""
    folder = stored_run(tmp_path / "0001", ("epoll", "threads", "poll"), repeat=8)
    for trial in folder.read_trials():
        if trial.point == 2 and trial.block > 5:
            folder.write_trial(replace(trial, outcome="invalid", reason="others took the CPU"))
    run, summary = folder.read_run(), summarise_run(folder)
    assert summary.verdicts[0].unranked.keys() == {"poll"}
    found = headline(summary, run, layout_of(run))
    assert found is not None
    assert "threads has the best median" in found.caption
    assert " Not compared: poll: " in found.caption
    assert "1,200/s, not compared" in json.dumps(found.spec)


def test_the_first_picture_of_seconds_has_its_unit_on_the_axis(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=6)
    run = folder.read_run()
    run.family = run.family.model_copy(update={"figures": ("elapsed_s",)})
    folder.write_run(run)
    for trial in folder.read_trials():
        folder.write_trial(replace(trial, figures={"elapsed_s": 0.001 * trial.number}))
    found = headline(summarise_run(folder), run, layout_of(run))
    assert found is not None
    assert '"title": "ms, lower is better"' in json.dumps(found.spec)


def test_the_first_picture_shows_what_the_answer_tells(tmp_path: Path) -> None:
    """Of the last load too few have a result to be compared, so the answer is about the one before
    it, and so is the picture.
    """
    folder = run_over_loads(tmp_path / "0001")
    for trial in folder.read_trials():
        if trial.setting["load.connections"] == 30 and trial.block > 3:
            folder.write_trial(replace(trial, outcome="invalid", reason="others took the CPU"))
    page = page_of(folder)
    assert answer_of(page)[0].startswith("At 20 connections")
    assert "completed rate, 20 connections:" in page[page.index('data-chart="headline"') :].lower()


def test_the_first_picture_has_the_rate_of_a_generator_that_was_the_limit_as_a_lower_bound(tmp_path: Path) -> None:
    """The slowest trials alone had their median there, under an answer that said "at least"."""
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=9)
    for trial in folder.read_trials():
        rate = 1000.0 * trial.block + (500 if trial.point == 0 else 0)
        made = replace(trial, figures={"completed_rate": rate})
        late = trial.point == 0 and trial.block > 5
        folder.write_trial(replace(made, outcome="generator_limited", reason="it was late") if late else made)
    run, summary = folder.read_run(), summarise_run(folder)
    found = headline(summary, run, layout_of(run))
    assert found is not None
    assert "epoll has the best median, at least 5,500/s; poll has 5,000/s" in found.caption


def test_the_first_picture_says_of_a_bound_that_it_is_one(tmp_path: Path) -> None:
    """A late generator only lengthens a response time: the scores and the answer said "at most"."""
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=6)
    run, summary = folder.read_run(), summarise_run(folder)
    scores = [replace(each, at_most=each.contender == "epoll") for each in summary.scores]
    found = headline(summary.model_copy(update={"scores": scores}), run, layout_of(run))
    assert found is not None
    texts = {row[0].text: row[1].text for row in found.data.rows}
    assert texts["epoll"].startswith("at most ")
    assert not texts["poll"].startswith("at most ")
    assert f"epoll has {texts['epoll']}" in found.caption or f"median, {texts['epoll']}" in found.caption
    assert f'"text": "{texts["epoll"]}"' in json.dumps(found.spec)
