"""A run for other programs: each kind of file, read back by another reader."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import statistics
from dataclasses import replace
from pathlib import Path
from typing import cast

import duckdb
import jsonschema
import pytest
from conftest import Done, lab_here
from hdrh.histogram import HdrHistogram
from made_records import stored_run

from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.data_files import hgrm_files, markdown, markdown_code, openmetrics
from plimsoll_lab.report.export import export, points_csv
from plimsoll_lab.store.folder import RunFolder, open_run
from plimsoll_lab.store.query import ask
from plimsoll_lab.store.records import CutRecord, Json, TrialRecord

KINDS = "parquet,json,md,openmetrics"


@pytest.fixture(scope="module")
def exported(finished: tuple[Path, Done], tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    folder = tmp_path_factory.mktemp("exports")
    shutil.copytree(finished[0] / "runs", folder / "runs")
    done = lab_here(folder, "report", "runs/0001", "--export", KINDS, "--json")
    assert done.returncode == 0, done.stderr
    for line in done.stderr.splitlines():
        assert (folder / line).is_file()
    return open_run(folder / "runs/0001")


def summary_of(folder: RunFolder) -> Json:
    found: Json = json.loads((folder.path / "summary.json").read_text())
    return found


def test_the_summary_keeps_to_the_schema_beside_it(exported: RunFolder) -> None:
    jsonschema.validate(summary_of(exported), json.loads((exported.path / "summary.schema.json").read_text()))


def test_the_tables_are_parquet_with_every_trial_and_figure(exported: RunFolder) -> None:
    with duckdb.connect() as database:
        rows = database.execute(
            "SELECT trial, figure, value FROM read_parquet(?) ORDER BY trial, figure",
            [str(exported.path / "trials.parquet")],
        ).fetchall()
    ours = [(each.number, name, value) for each in exported.read_trials() for name, value in each.figures.items()]
    assert rows == sorted(ours)


def test_the_trials_of_a_control_are_no_trials_of_the_point_that_it_repeats(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", ("epoll", "poll"), repeat=2)
    run = folder.read_run()
    run.points = (run.points[0], run.points[1].model_copy(update={"control": True, "setting": run.points[0].setting}))
    folder.write_run(run)
    for trial in folder.read_trials():
        folder.write_trial(replace(trial, setting=run.points[0].setting))
    export(folder, ["csv"])
    rows = (folder.path / "trials.csv").read_text().splitlines()
    assert len(rows) == 1 + 2, "as in the page's own file"
    assert ask(tmp_path, "SELECT DISTINCT point, control FROM points ORDER BY ALL").rows == [(0, False), (1, True)]


def test_every_sample_of_openmetrics_is_a_figure_of_the_summary(exported: RunFolder) -> None:
    text = (exported.path / "metrics.txt").read_text()
    assert text.endswith("# EOF\n")
    found = {}
    for line in text.splitlines():
        sample = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line)
        assert line.startswith("# ") or sample, line
        if sample and 'statistic="median"' in line:
            found[sample[1], sample[2]] = float(sample[3])
    key = 'suite="small",run="0001",server_model="epoll",load_connections="2000",statistic="median"'
    points = summary_of(exported)["points"]
    assert isinstance(points, list)
    point = next(each for each in points if each["point"] == {"server.model": "epoll", "load.connections": 2000})
    assert found["plimsoll_lab_completed_rate", key] == point["figures"]["completed_rate"]["median"]
    assert not any('"select"' in labels and '"2000"' in labels for _, labels in found), "a point without a result"


def test_a_doubtful_figure_is_marked_in_each_kind(exported: RunFolder) -> None:
    run, summary = exported.read_run(), summarise_run(exported)
    points = [point.model_copy(update={"doubtful": point.outcome == "ok"}) for point in summary.points]
    doubtful = summary.model_copy(update={"points": points})
    assert 'doubtful="true"' not in openmetrics(run, summary)
    samples = [line for line in openmetrics(run, doubtful).splitlines() if not line.startswith("#")]
    assert samples
    assert all('doubtful="true"' in line for line in samples)
    rows = list(csv.DictReader(io.StringIO(points_csv(run, doubtful))))
    assert {(row["outcome"], row["doubtful"]) for row in rows} == {("ok", "True"), ("hard_limit", "False")}


def test_labels_and_cells_cannot_be_broken_out_of(exported: RunFolder) -> None:
    run, summary = exported.read_run(), summarise_run(exported)
    odd = summary.model_copy(update={"suite": 'a"} 1\n# x \\', "question": "<img src=x> | [a](b)\n## no"})
    line = openmetrics(run, odd).splitlines()[2]
    assert line.startswith('plimsoll_lab_completed_rate{suite="a\\"} 1\\n# x \\\\",run=')
    head = markdown(run, odd).splitlines()[0]
    assert head == r"## \<img src=x\> \| \[a\](b) ## no"
    assert markdown_code("a b") == "`a b`"
    assert markdown_code("--base 'sh -c `x`'") == "`` --base 'sh -c `x`' ``"


def test_response_times_of_several_trials_are_one_distribution(exported: RunFolder) -> None:
    trials = [each for each in exported.read_trials() if each.point == 0]
    made, every = [], []
    for place, trial in enumerate(trials):
        histogram = HdrHistogram(1, 3_600_000_000_000, 3)
        for step in range(1, 101):
            histogram.record_value(1_000_000 * step * (place + 1))
            every.append(1_000_000 * step * (place + 1))
        summary = {"histograms": {"response_time_ns": histogram.encode().decode()}}
        made.append(replace(trial, load={"summary": cast("Json", summary)}))
    files = hgrm_files(exported, exported.read_run(), made)
    assert [file.name for file in files] == ["point-0000.hgrm"]
    text = files[0].read_text()
    rows = [line.split() for line in io.StringIO(text) if re.match(r"\s*[\d.]+\s+[\d.]+\s+\d", line)]
    assert int(rows[-1][2]) == len(every) == 200
    for value, _, up_to, *_ in rows:
        assert int(up_to) == sum(each / 1000 <= float(value) for each in every), "in microseconds"
    mean, stdev = re.search(r"Mean +=([\d. ]+), StdDeviation +=([\d. ]+)\]", text).groups()  # type: ignore[union-attr]
    assert float(mean) == pytest.approx(statistics.fmean(every) / 1000, rel=0.002), "in microseconds as well"
    assert float(stdev) == pytest.approx(statistics.pstdev(every) / 1000, rel=0.002)
    cut = CutRecord(
        moments=1, share=0.1, requests=9, touched=0, completed_rate=90.0, bounds={}, estimates={}, doubted=()
    )
    (file,) = hgrm_files(exported, exported.read_run(), [replace(made[0], cut=cut), made[1]])
    assert "1 of 2 trials left out as their network was disturbed; response time in us]" in file.read_text()
    rows = [line.split() for line in file.read_text().splitlines() if re.match(r"\s*[\d.]+\s+[\d.]+\s+\d", line)]
    assert int(rows[-1][2]) == 100, "of the other trial alone"


def late_in(trial: TrialRecord, *names: str) -> TrialRecord:
    """A trial whose generator was late by half of these figures, which it does not tell."""
    histogram = HdrHistogram(1, 3_600_000_000_000, 3)
    histogram.record_value(1_000_000)
    summary = {"histograms": {"response_time_ns": histogram.encode().decode()}, "doubted": list(names)}
    figures = {name: value for name, value in trial.figures.items() if name not in names}
    return replace(trial, load={"summary": cast("Json", summary)}, figures=figures)


def test_a_distribution_leaves_out_trials_of_a_late_generator_and_says_what_it_spoilt_in_others(
    exported: RunFolder,
) -> None:
    first, second = (each for each in exported.read_trials() if each.point == 0)
    trials = [late_in(first, "response_time_us.p99", "response_time_us.max"), late_in(second, "response_time_us.max")]
    (file,) = hgrm_files(exported, exported.read_run(), trials)
    text = file.read_text()
    assert "1 of 2 trials left out as their generator was late; the generator's own lateness is half" in text
    assert "half or more of max; response time in us]" in text
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*[\d.]+\s+[\d.]+\s+\d", line)]
    assert int(rows[-1][2]) == 1, "of the other trial alone"


def test_without_a_histogram_that_export_is_refused(exported: RunFolder) -> None:
    done = lab_here(exported.path.parent.parent, "report", "runs/0001", "--export", "hgrm", "--json")
    assert done.returncode == 1
    assert "no valid trial of this run has a histogram" in done.stderr


def test_an_unknown_kind_names_the_nearest(exported: RunFolder) -> None:
    done = lab_here(exported.path.parent.parent, "report", "runs/0001", "--export", "parket")
    assert done.returncode == 2
    assert "parquet" in done.stderr
