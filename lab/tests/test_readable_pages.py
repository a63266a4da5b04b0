"""Runs at the edges give a page that can be read: one second, one trial, nothing but failures, and
five hundred trials.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_pages import MOST_BYTES, answer_of, page_of, run_over_loads
from made_records import stored_run, write_seconds
from made_standard_run import standard_run

from plimsoll_lab.analysis.percentiles import Curve
from plimsoll_lab.analysis.run_warnings import run_warnings
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report import charts, data_files
from plimsoll_lab.report.all_charts import all_charts
from plimsoll_lab.report.drawing import draw
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.gate import bounded, markdown
from plimsoll_lab.report.page import render_page
from plimsoll_lab.report.percentile_charts import percentile_charts
from plimsoll_lab.report.templating import with_code
from plimsoll_lab.report.terminal import render
from plimsoll_lab.store.records import ResultWarning
from plimsoll_lab.suite.spec import Axis, PlannedTrial


def charts_without_numbers(page: str) -> list[str]:
    """The charts without a table: in their figure, or behind the gallery they stand in."""
    waiting: list[str] = []
    without: list[str] = []
    inside = False
    for found in re.finditer(r'<section|</main>|<figure>|</figure>|<table|data-chart="([^"]+)"', page):
        if found[1] is not None:
            waiting.append(found[1])
        elif found[0] == "<table":
            del waiting[-1 if inside else 0 :]
        elif found[0] in {"<figure>", "</figure>"}:
            inside = found[0] == "<figure>"
        else:
            without += waiting
            waiting = []
    return without


def badge_of(page: str) -> str:
    """The word of the first badge, which says what the run is worth."""
    found = re.search(r'<span class="badge[^>]*>([^<]*)', page)
    assert found is not None
    return found[1]


def test_a_page_is_the_same_with_another_zlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "threads"), repeat=3)
    page, compress = page_of(folder), zlib.compress
    monkeypatch.setattr(zlib, "compress", lambda data, level=-1, wbits=15: compress(data, 1))  # noqa: ARG005 - another
    assert page_of(folder) == page
    packed = re.findall(r'<script type="application/zlib" id="data">([^<]*)</script>', page)
    assert {"rows", "charts"} == set(json.loads(zlib.decompress(base64.b64decode(packed[0]))))


@pytest.mark.parametrize("window_s", [1.0, 10.0], ids=["one second", "one trial"])
def test_one_trial_has_an_answer_and_its_figure(tmp_path: Path, window_s: float) -> None:
    page = page_of(stored_run(tmp_path / "0001", window_s=window_s))
    assert answer_of(page)
    assert "1 of 1 trials are valid results" in page
    assert "1001" in page
    assert "<summary>The trial</summary>" in page


def test_a_result_beside_other_programs_is_not_said_to_be_free_of_the_machine(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001")
    assert "neither the generator nor the machine was the limit" in page_of(folder)
    (trial,) = folder.read_trials()
    busy = ResultWarning(code="machine_busy", message="other programs used 1 core", remedy="close them")
    folder.write_trial(replace(trial, warnings=(busy,)))
    assert "neither the generator nor the machine was the limit" not in page_of(folder)
    mixed = stored_run(tmp_path / "0002", ("epoll", "threads"), repeat=9)
    for trial in mixed.read_trials():
        if trial.point == 0 and trial.block <= 4:
            mixed.write_trial(replace(trial, outcome="generator_limited", reason="it was late"))
    page = page_of(mixed)
    assert "14 of 18 trials are valid results; 4 others are no results, and the warnings say why." in page


def test_a_run_of_failures_says_why_and_draws_nothing(tmp_path: Path) -> None:
    page = page_of(stored_run(tmp_path / "0001", ("epoll", "threads"), repeat=3, outcome="failed"))
    assert "0 of 6 trials are valid results" in page
    assert "the server &lt;ended&gt; with code 1" in page
    assert "data-chart=" not in page
    assert answer_of(page)


def test_a_run_that_ended_as_nothing_worked_is_not_called_interrupted(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "threads"), repeat=1, outcome="failed")
    run = folder.read_run()
    run.status = "failed"
    run.trials = (*run.trials, *(PlannedTrial(number=2 + point, block=2, point=point) for point in (0, 1)))
    folder.write_run(run)
    page = page_of(folder)
    assert "Every point failed, so the run ended early; 0 of 2 trials are valid results of 4 planned." in page
    assert badge_of(page) == "no result"


def test_a_run_that_something_else_ended_is_not_said_to_have_failed_at_every_point(tmp_path: Path) -> None:
    """A host that was lost, a full disk: nothing is known of the points that were not tried."""
    folder = stored_run(tmp_path / "0001", ("epoll", "threads"), repeat=1, outcome="failed")
    run = folder.read_run()
    run.status = "failed"
    (tmp_path / "0001/trials/0002.json").unlink()
    folder.write_run(run)
    page = page_of(folder)
    assert "Every point failed" not in page
    assert "The run did not end; 0 of 1 trials are valid results of 2 planned." in page
    assert badge_of(page) == "failed"


def test_one_failure_of_a_run_of_one_point_is_not_what_ended_it(tmp_path: Path) -> None:
    """Three do. After one or two something else had ended the run, such as a full disk."""
    folder = stored_run(tmp_path / "0001", repeat=3, outcome="failed")
    run = folder.read_run()
    run.status = "failed"
    run.trials = (*run.trials, PlannedTrial(number=4, block=4, point=0))
    folder.write_run(run)
    assert "Every point failed, so the run ended early" in page_of(folder)
    (tmp_path / "0001/trials/0003.json").unlink()
    assert "The run did not end; 0 of 2 trials are valid results of 4 planned." in page_of(folder)


def test_five_hundred_trials_fit_the_page(tmp_path: Path) -> None:
    models = ("epoll", "threads", "poll", "select", "uring")
    page = page_of(stored_run(tmp_path / "0001", models, repeat=100))
    assert "500 of 500 trials are valid results" in page
    assert "uring" in answer_of(page)[0]
    assert page.count('<tr><th scope="row">') >= 500


@pytest.mark.parametrize(
    ("suite", "least_mib", "charts"),
    [
        ("tcpbenchmark", 1.5, {"percentiles-2", "distribution-2", "heat-2", "clients-2"}),
        ("three-servers", 1.5, {"percentiles-2", "distribution-2", "heat-2", "client.h5.cpu_cores-load"}),
        ("port-fwd-255", 1.0, {"percentiles-2", "distribution-2", "heat-2"}),
    ],
)
def test_a_whole_run_of_a_standard_suite_fits_the_page(
    tmp_path: Path, suite: str, least_mib: float, charts: set[str]
) -> None:
    """The suites whose pages are the largest: charts of every client, and thirty points."""
    folder = standard_run(tmp_path / "0001", suite)
    page = render_page(folder, summarise_run(folder))
    planned = len(folder.read_run().trials)
    assert f"{planned} of {planned} trials are valid results" in page
    assert charts < set(re.findall(r'data-chart="([^"]+)"', page))
    assert least_mib * 2**20 < len(page.encode()) <= MOST_BYTES, "as large as that of a real run, and within the limit"


def test_contenders_that_are_no_texts_are_named_by_what_they_set(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=6)
    for path, values, names in (
        ("role.saturator.active", (True, False), ("saturator", "no saturator")),
        ("network.queue", (10, 1000), ("queue 10", "queue 1,000")),
    ):
        run = folder.read_run()
        run.family = run.family.model_copy(update={"compare": path})
        run.axes = (Axis(path=path, values=values),)
        run.points = tuple(
            point.model_copy(update={"setting": {path: value}}) for point, value in zip(run.points, values, strict=True)
        )
        folder.write_run(run)
        for trial in folder.read_trials():
            folder.write_trial(replace(trial, setting=run.points[trial.point].setting))
        summary = summarise_run(folder)
        assert set(summary.verdicts[0].contenders) == set(names)
        assert answer_of(page_of(folder))[0].startswith(names[1])


def test_two_percentiles_are_no_curve(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "0001").read_run()
    curve = Curve(point=run.points[0].setting, quantiles=[(0.5, 100.0), (0.75, 150.0), (0.9, 200.0)])
    assert list(percentile_charts([curve], layout_of(run))) == ["percentiles-0"]
    assert percentile_charts([replace(curve, quantiles=curve.quantiles[:2])], layout_of(run)) == {}


def test_curves_of_settings_that_do_not_compete_are_drawn_together(tmp_path: Path) -> None:
    run = stored_run(tmp_path / "0001").read_run()
    quantiles = [(0.5, 100.0), (0.75, 150.0), (0.9, 200.0)]
    curves = [Curve(point={"load.connections": 10 * number}, quantiles=quantiles) for number in range(1, 9)]
    charts = percentile_charts(curves, layout_of(run))
    assert [len(chart.data.rows) for chart in charts.values()] == [4, 4]
    (together,) = percentile_charts(curves[:7], layout_of(run)).values()
    assert [row[0].text for row in together.data.rows] == [f"{10 * number} connections" for number in range(1, 8)]


def test_the_page_of_a_gate_has_every_loss_with_its_bounds(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("old", "new"), repeat=8)
    assert 'id="gate"' not in page_of(folder)
    run = folder.read_run()
    run.family = run.family.model_copy(update={"baseline": "old", "tolerance": 0.05})
    folder.write_run(run)
    summary = summarise_run(folder)
    assert summary.gate is not None
    section = page_of(folder).partition('<section id="gate">')[2].partition("</section>")[0]
    assert "How much worse than old each contender is; 5.0 % is tolerated" in section
    assert section.count('<th scope="row">') == len(summary.gate.losses) == 2
    first = page_of(folder).partition('data-chart="headline"')[2].partition("<section")[0]
    for loss in summary.gate.losses:
        assert bounded(loss)[2] in section
        assert f">{run.figure(loss.figure).label}: {loss.outcome}<" in first, "the picture shows what was decided"
    odd = summary.model_copy(update={"suite": "<img src=x> [a](b)|"})
    assert markdown(odd, summary.gate, run).splitlines()[0] == "## \\<img src=x\\> \\[a\\](b)\\|: pass"


def test_a_point_without_a_result_breaks_its_line(tmp_path: Path) -> None:
    folder = run_over_loads(tmp_path / "0001")
    for trial in folder.read_trials():
        if trial.setting == {"server.model": "epoll", "load.connections": 20}:
            folder.write_trial(replace(trial, outcome="invalid", reason="others took the CPU"))
    run, trials = folder.read_run(), folder.read_trials()
    drawn = all_charts(folder, run, summarise_run(folder), trials)
    still = draw("rate", drawn.specs["completed_rate-load"], drawn.rows)
    lines = re.findall(r'<path d="([^"]*)"[^>]* stroke="', still)
    assert sorted(line.count("L") for line in lines) == [0, 2], "threads alone has a line over three loads"


def test_a_figure_that_is_zero_in_a_trial_has_no_logarithmic_axis(tmp_path: Path) -> None:
    """Which has no place for it: all marks of its panel lay on one line."""
    folder = run_over_loads(tmp_path / "0001")

    def scales() -> set[str]:
        drawn = all_charts(folder, folder.read_run(), summarise_run(folder), folder.read_trials())
        charts = [spec for name, spec in drawn.specs.items() if name.startswith("completed_rate")]
        assert len(charts) == 2, "over the load, and beside each other"
        return set(re.findall(r"'type': '(log)'", str(charts)))

    for trial in folder.read_trials():
        if trial.setting["server.model"] == "epoll":
            folder.write_trial(replace(trial, figures={**trial.figures, "completed_rate": 90_000.0 + trial.number}))
    assert scales() == {"log"}
    folder.write_trial(replace(folder.read_trials()[0], figures={"completed_rate": 0.0}))
    assert scales() == set()


def test_the_only_point_of_a_suite_that_has_no_result_has_no_words(tmp_path: Path) -> None:
    """Its setting is none: the sentence ended in a colon and nothing."""
    folder = stored_run(tmp_path / "0001", ("epoll",), repeat=6)
    for trial in folder.read_trials():
        folder.write_trial(replace(trial, outcome="invalid", reason="others took the CPU"))
    points = [each.model_copy(update={"point": {}}) for each in summarise_run(folder).points]
    told = run_warnings(folder.read_run(), points, (), folder.read_trials(), 0, folder.path)
    [message] = [each.message for each in told if each.code == "no_result"]
    assert message.endswith("the limit")


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [((), "at the loads of this suite."), ((1,), "at the loads that have a result."), ((0, 1), None)],
)
def test_that_no_server_hit_a_limit_is_said_of_loads_with_a_result(
    tmp_path: Path, spoilt: Sequence[int], said: str | None
) -> None:
    """Of a run without a result it was said too."""
    folder = stored_run(tmp_path / "0001", ("epoll", "threads"), repeat=6)
    for trial in folder.read_trials():
        if trial.point in spoilt:
            folder.write_trial(replace(trial, outcome="invalid", reason="others took the CPU"))
    found = re.search(r"No server hit a limit ([^<]*)", page_of(folder))
    assert (found and found[1].strip()) == said


def test_a_point_says_in_words_why_it_has_no_result(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "threads", "poll"), repeat=6)
    for trial in folder.read_trials():
        if trial.point == 1 and trial.block < 6:
            folder.write_trial(replace(trial, outcome="generator_limited", reason="it was late"))
    run, summary = folder.read_run(), summarise_run(folder)
    points = [
        each.model_copy(update={"outcome": None, "figures": {}}) if each.number == 2 else each
        for each in summary.points
    ]
    summary = summary.model_copy(update={"points": points})
    shown = {
        "terminal": render(summary, run, colour=False),
        "Markdown": data_files.markdown(run, summary),
        "charts": json.dumps(charts.rows(run, summary, folder.read_trials())),
        # Classes, their style sheet, and tables for other programs keep the codes.
        "page": re.sub(r'(?s)href="data:[^"]*"|class="badge [^"]*"|<style>.*?</style>', "", page_of(folder)),
        "warnings": " ".join(each.message for each in summary.warnings),
    }
    assert [name for name, text in shown.items() if "generator_limited" in text] == []
    for name in ("terminal", "Markdown", "charts"):
        assert "generator limited" in shown[name], name
        assert "not measured" in shown[name], name


def test_the_numbers_of_a_chart_have_no_outcome_where_a_result_lacks_the_figure(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "threads"), repeat=6)
    for trial in (each for each in folder.read_trials() if each.point == 1):
        folder.write_trial(replace(trial, figures={"completed_rate": 1000.0}))
    page = page_of(folder)
    assert "<td>ok</td><td>-</td>" not in page
    assert "<td>-</td><td>-</td>" in page


def test_backticks_in_pairs_are_code_and_quotes_of_older_programs_are_not() -> None:
    assert with_code("`a <b>` and `c`; ls: `d' & `e'") == (
        "<code>a &lt;b&gt;</code> and <code>c</code>; ls: `d&#39; &amp; `e&#39;"
    )


def test_every_chart_has_a_name_and_its_numbers_as_a_table(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "threads", "poll"), repeat=6, window_s=4.0)
    write_seconds(folder, 4)
    page = page_of(folder)
    named = re.findall(r'data-chart="([^"]+)"', page)
    assert {"headline", "percentiles-0", "timelines-0", "heat-0"} < set(named)
    assert re.findall(r'data-chart="([^"]+)"[^>]*aria-label=""', page) == []
    assert charts_without_numbers(page) == []
