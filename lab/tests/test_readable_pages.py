"""Runs at the edges give a page that can be read: one second, one trial, nothing but failures, and
five hundred trials.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import stored_run, write_seconds
from made_standard_run import standard_run

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.comparison import compare_runs
from plimsoll_lab.analysis.percentiles import Curve
from plimsoll_lab.analysis.run_warnings import run_warnings
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report import charts, data_files
from plimsoll_lab.report.all_charts import all_charts
from plimsoll_lab.report.compare_page import render_compare_page
from plimsoll_lab.report.comparison import render_comparison
from plimsoll_lab.report.drawing import draw
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.gate import bounded, markdown
from plimsoll_lab.report.headline import headline
from plimsoll_lab.report.page import render_page
from plimsoll_lab.report.percentile_charts import percentile_charts
from plimsoll_lab.report.scores import COUNTED
from plimsoll_lab.report.templating import with_code
from plimsoll_lab.report.terminal import render
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import ResultWarning
from plimsoll_lab.suite.spec import Axis, PlannedTrial

MOST_BYTES = int(2.5 * 2**20)


def page_of(folder: RunFolder) -> str:
    page = render_page(folder, summarise_run(folder))
    assert len(page.encode()) <= MOST_BYTES
    for place in re.findall(r'data-chart="[^"]+"[^>]*>(.{0,5})', page):
        assert place.startswith("<svg"), "a chart has its still picture"
    return page


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


def run_over_loads(path: Path) -> RunFolder:
    """Two models at three loads, in six blocks."""
    folder = stored_run(path, ("epoll", "threads"), repeat=18)
    run, loads = folder.read_run(), (10, 20, 30)
    run.points = tuple(
        point.model_copy(
            update={
                "number": 2 * place + point.number,
                "setting": {**point.setting, "load.connections": load},
                "load": {"connections": load},
            }
        )
        for place, load in enumerate(loads)
        for point in run.points
    )
    run.axes = (*run.axes, Axis(path="load.connections", values=loads))
    run.family = run.family.model_copy(update={"figures": ("completed_rate",)})
    planned = []
    for trial in folder.read_trials():
        place = (trial.block - 1) % 3
        number, block = 2 * place + trial.point, 1 + (trial.block - 1) // 3
        setting = {**trial.setting, "load.connections": loads[place]}
        folder.write_trial(replace(trial, point=number, block=block, setting=setting))
        planned.append(PlannedTrial(number=trial.number, block=block, point=number))
    run.trials = tuple(planned)
    folder.write_run(run)
    return folder


def answer_of(page: str) -> list[str]:
    return re.findall(r'<p class="answer">(.+?)</p>', page)


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


def test_the_response_times_are_the_picture_of_a_run_in_which_nothing_competes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curve = Curve(point={}, quantiles=[(0.5, 100.0), (0.9, 200.0), (0.99, 400.0)])
    monkeypatch.setattr("plimsoll_lab.report.all_charts.curves", lambda *_: [curve])
    page = page_of(stored_run(tmp_path / "0001"))
    assert page.index('data-chart="percentiles-0"') < page.index('id="warnings"')
    assert page.count('data-chart="percentiles-0"') == 1


def test_a_result_beside_other_programs_is_not_said_to_be_free_of_the_machine(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001")
    assert "neither the generator nor the machine was the limit" in page_of(folder)
    (trial,) = folder.read_trials()
    busy = ResultWarning(code="machine_busy", message="other programs used 1 core", remedy="close them")
    folder.write_trial(replace(trial, warnings=(busy,)))
    assert "neither the generator nor the machine was the limit" not in page_of(folder)


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


def test_the_first_picture_has_the_cpu_of_a_server_that_outran_its_generator(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "threads", "poll"), repeat=6)
    cost = "server.cpu_us_per_request"
    run = folder.read_run()
    run.family = run.family.model_copy(update={"figures": (cost,)})
    folder.write_run(run)
    for trial in folder.read_trials():
        told = replace(trial, figures={cost: 10.0 + trial.number % 3})
        late = trial.setting["server.model"] == "epoll" and trial.block <= 4
        folder.write_trial(replace(told, outcome="generator_limited", reason="it was late") if late else told)
    page = page_of(folder)
    assert "no valid result" not in page[page.index('data-chart="headline"') :].partition("</figure>")[0]
    assert COUNTED in page, "the median of the scores is not that of the point"
    assert COUNTED not in page_of(stored_run(tmp_path / "0002", ("epoll", "threads"), repeat=6))


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


def test_a_picture_of_equal_medians_names_nobody_the_best(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=6)
    for trial in folder.read_trials():
        folder.write_trial(replace(trial, figures={"completed_rate": 1000.0 + trial.block}))
    run = folder.read_run()
    found = headline(summarise_run(folder), run, layout_of(run))
    assert found is not None
    assert found.caption.startswith("Completed rate, every setting: the medians of all are 1,000/s.")


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


def test_a_comparison_tells_a_shared_reason_once_and_a_digest_by_its_beginning(tmp_path: Path) -> None:
    sides = [stored_run(tmp_path / name, ("epoll", "poll")) for name in ("0001", "0002")]
    for folder, digest in zip(sides, ("a" * 64, "b" * 64), strict=True):
        run = folder.read_run()
        run.versions = {**run.versions, "plimsoll_sha256": digest}
        folder.write_run(run)
    page = render_compare_page(sides[:1], sides[1:])
    assert page.count("1 run a side is too few; at least 5, or <code>plimsoll lab gate</code> in one run") == 1
    assert f"<td>{'a' * 12}…</td><td>{'b' * 12}…</td>" in page
    assert "b" * 64 in page[page.index("The digests in full") :]
    told = render_comparison(compare_runs(sides[:1], sides[1:]), colour=False)
    assert told.count("1 run a side is too few") == 1
    forest = page[page.index('data-chart="forest"') :]
    (anchor,) = set(re.findall(r"<text ([^>]*)>completed rate, model epoll", forest))
    still = forest[: forest.index("</svg>")]
    assert "stroke-dasharray" not in still, "a line through all rows would strike the words out"
    assert 'text-anchor="end"' not in anchor, "words that end at the plot are cut where a reader's letters are wider"


def test_an_answer_about_several_runs_a_side_says_how_many(tmp_path: Path) -> None:
    runs = [stored_run(tmp_path / name, ("epoll", "poll")) for name in ("0001", "0002", "0003", "0004")]
    told = render_comparison(compare_runs(runs[:2], runs[2:]), colour=False).splitlines()[0]
    names = [str(each.path) for each in (runs[2], runs[0])]
    assert told.startswith(f"No verdict on B ({names[0]} and 1 more) and A ({names[1]} and 1 more):")


@pytest.mark.parametrize(
    ("ratio", "shown"), [(1.0004, "+0.0 %"), (0.9996, "+0.0 %"), (0.96, "-4.0 %"), (1.5, "+50.0 %")]
)
def test_a_change_that_rounds_to_nothing_has_no_minus(ratio: float, shown: str) -> None:
    assert formatting.change(ratio) == shown


def test_curves_of_another_load_are_not_drawn_over_each_other(tmp_path: Path) -> None:
    sides = [stored_run(tmp_path / name, ("epoll", "poll")) for name in ("0001", "0002")]
    times = {"count": 10_000, "p50": 100.0, "p75": 150.0, "p90": 200.0, "p99": 400.0}
    for folder in sides:
        for trial in folder.read_trials():
            folder.write_trial(replace(trial, load={"summary": {"response_time_us": times}}))
    run = sides[1].read_run()
    poll = run.points[1].model_copy(update={"load": {"connections": 10, "think": "1s"}})
    run.points = (run.points[0], poll)
    sides[1].write_run(run)
    page = render_compare_page(sides[:1], sides[1:])
    drawn = re.findall(r"<figcaption>Response time by percentile, ([^;]*);", page)
    assert drawn == ["model epoll"], "of poll the second run paused for a second"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["24684092 kB"], ("23.5 GiB",)),
        (["24684092 kB", "24684088 kB"], ("24684092 kB", "24684088 kB")),
        (["24684092 kB", None], ("23.5 GiB", "not recorded")),
        ([{"soft": 1024, "hard": 20_000}, "kB"], ("soft 1024, hard 20000", "kB")),
    ],
)
def test_memory_is_shown_in_a_unit_for_people_unless_that_hides_a_difference(
    given: list[object], shown: tuple[str, ...]
) -> None:
    assert formatting.facts(given) == shown


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


def test_the_only_point_of_a_suite_that_has_no_result_has_no_words(tmp_path: Path) -> None:
    """Its setting is none: the sentence ended in a colon and nothing."""
    folder = stored_run(tmp_path / "0001", ("epoll",), repeat=6)
    for trial in folder.read_trials():
        folder.write_trial(replace(trial, outcome="invalid", reason="others took the CPU"))
    points = [each.model_copy(update={"point": {}}) for each in summarise_run(folder).points]
    told = run_warnings(folder.read_run(), points, folder.read_trials(), 0, folder.path)
    [message] = [each.message for each in told if each.code == "no_result"]
    assert message.endswith("the limit")


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
