"""The distribution of response times: its counts are those of the trials' histograms, and what is
not drawn has a reason.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from hdrh.histogram import HdrHistogram
from made_records import point_summary, stored_run

from plimsoll_lab.analysis.distributions import STEPS, distributions, edge_ns
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.problem import LabError
from plimsoll_lab.report.all_charts import AllCharts, all_charts
from plimsoll_lab.report.data_files import hgrm_files
from plimsoll_lab.report.distribution_charts import distribution_charts, shown
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.page import render_page
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import CutRecord, MeasuredLoadRecord, TrialRecord

MODELS = ("epoll", "threads")
EDGES_NS = [edge_ns(place) for place in range(STEPS)]
CUT = CutRecord(
    moments=1, share=0.1, requests=9, touched=0, completed_rate=90.0, bounds={}, estimates={}, doubted=()
)  # fmt: skip


def histogram(values_ns: Mapping[int, int]) -> HdrHistogram:
    found = HdrHistogram(1, 3_600_000_000_000, 3)
    for value, count in values_ns.items():
        found.record_value(value, count)
    return found


def with_histogram(trial: TrialRecord, found: HdrHistogram, *doubted: str) -> TrialRecord:
    summary = {"histograms": {"response_time_ns": found.encode().decode()}, "doubted": list(doubted)}
    return replace(trial, load=cast("MeasuredLoadRecord", {"summary": summary}))


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two models with three trials each, in which the requests of epoll take 0.2 ms or 3 ms and
    those of threads anything.
    """
    made = stored_run(tmp_path / "0001", MODELS, repeat=3)
    chance = random.Random(1)
    for trial in made.read_trials():
        drawn = Counter(int(chance.lognormvariate(13.5, 0.8)) for _ in range(200))
        values = drawn if trial.point else {210_000: 900, 3_010_000: 100}
        made.write_trial(with_histogram(trial, histogram(values)))
    return made


def charts_of(folder: RunFolder) -> AllCharts:
    return all_charts(folder, folder.read_run(), summarise_run(folder), folder.read_trials())


def panels(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(spec["vconcat"])


def test_the_steps_are_those_of_the_preferred_numbers() -> None:
    assert [EDGES_NS[place] for place in (0, 6, 14, 20, 60)] == [100, 200, 500, 1000, 100_000]
    assert all(1.11 < high / low < 1.15 for low, high in pairwise(EDGES_NS)), "about 12 %"


def test_every_request_of_the_histograms_is_in_one_step(folder: RunFolder) -> None:
    """The library's own walk over the buckets finds the same counts."""
    for found in charts_of(folder).spread:
        expected: Counter[int] = Counter()
        for trial in (each for each in folder.read_trials() if each.setting == found.point):
            encoded = (trial.load.get("summary") or {})["histograms"]["response_time_ns"]  # type: ignore[index]
            for item in HdrHistogram.decode(encoded).get_recorded_iterator():
                place = bisect_right(EDGES_NS, item.value_iterated_to) - 1
                expected[place] += item.count_at_value_iterated_to
        assert found.steps == expected
        assert found.requests == expected.total() == (600 if found.point["server.model"] == "threads" else 3000)


def test_what_lies_beyond_the_steps_is_counted_at_their_ends(folder: RunFolder) -> None:
    made = with_histogram(folder.read_trials()[0], histogram({1: 3, 99: 4, 3_599_000_000_000: 5}))
    (found,) = distributions([point_summary(made.setting, number=made.point)], [made])
    assert (found.requests, found.steps[0]) == (12, 7)


def test_the_picture_and_its_table_have_the_counts_of_the_histograms(folder: RunFolder) -> None:
    charts = charts_of(folder)
    (described,) = charts.distributions.values()
    epoll, threads = panels(described.spec)
    assert [each["title"]["text"] for each in (epoll, threads)] == list(MODELS)
    assert [(dot["x"], dot["y"]) for dot in epoll["data"]["values"]] == [
        (0.2, 0.0), (0.2, 90.0), (0.224, 0.0), (2.8, 10.0), (3.15, 0.0),
    ]  # fmt: skip
    assert epoll["encoding"]["x"]["scale"] == threads["encoding"]["x"]["scale"], "one axis"
    for panel, found in zip((epoll, threads), charts.spread, strict=True):
        counted, share, dots = {}, 0.0, {dot["x"]: dot["y"] for dot in panel["data"]["values"]}
        for place in range(STEPS):
            share = dots.get(float(f"{EDGES_NS[place] / 1e6:.5g}"), share)
            if share:
                counted[place] = round(share / 100 * found.requests)
        assert counted == found.steps
    row = [cell.text for cell in described.data.rows[0]]
    assert row[:2] == ["epoll", "3,000"]
    ranges = dict(zip(described.data.head[2:], row[2:], strict=True))
    assert (ranges["0.2 to 0.5 ms"], ranges["2 to 5 ms"]) == ("90.0 %", "10.0 %")
    assert {share for name, share in ranges.items() if name not in {"0.2 to 0.5 ms", "2 to 5 ms"}} == {"0 %"}
    page = render_page(folder, summarise_run(folder))
    section = page.partition('<section id="response">')[2].partition("</section>")[0]
    assert 'data-chart="distribution-0"' in section


def test_a_wide_distribution_has_a_table_of_decades(folder: RunFolder) -> None:
    for trial in folder.read_trials():
        folder.write_trial(with_histogram(trial, histogram({15_000: 500, 700_000_000: 500})))
    (described,) = charts_of(folder).distributions.values()
    assert described.data.head == (
        "", "requests", "0.01 to 0.1 ms", "0.1 to 1 ms", "1 to 10 ms", "10 to 100 ms", "100 to 1,000 ms",
    )  # fmt: skip


def test_trials_that_nothing_can_be_taken_out_of_are_left_out_and_named(folder: RunFolder) -> None:
    first, second, third, *_ = [each for each in folder.read_trials() if each.point == 0]
    plain = histogram({210_000: 1000})
    folder.write_trial(replace(with_histogram(first, plain), cut=CUT))
    folder.write_trial(with_histogram(second, plain, "response_time_us.p90"))
    folder.write_trial(with_histogram(third, plain, "response_time_us.max"))
    epoll = charts_of(folder).spread[0]
    assert (epoll.requests, epoll.trials, epoll.valid) == (1000, 1, 3)
    page = render_page(folder, summarise_run(folder))
    assert (
        "Of model epoll 1 of 3 trials is left out, as the network was disturbed and 1 of 3 trials is left out, as the "
        "generator was late." in page
    )
    assert "The generator&#39;s own lateness is half or more of max of epoll." in page


@pytest.mark.parametrize("spoil", [lambda text: text[:40], lambda text: text[:0] + "!", lambda text: "QUJD" + text])
def test_a_damaged_histogram_is_named_with_its_trial(folder: RunFolder, spoil: Callable[[str], str]) -> None:
    """The page and the export ended as a fault of the lab."""
    trial = folder.read_trials()[1]
    whole = histogram({1000: 1}).encode().decode()
    summary = {"histograms": {"response_time_ns": spoil(whole)}}
    folder.write_trial(replace(trial, load=cast("MeasuredLoadRecord", {"summary": summary})))
    run, trials = folder.read_run(), folder.read_trials()
    for make in (lambda: render_page(folder, summarise_run(folder)), lambda: hgrm_files(folder, run, trials)):
        with pytest.raises(LabError, match="the histogram of trial 2 is damaged"):
            make()


def test_without_histograms_the_page_says_why_there_is_no_distribution(tmp_path: Path, folder: RunFolder) -> None:
    bare = stored_run(tmp_path / "bare", MODELS, repeat=3)
    page = render_page(bare, summarise_run(bare))
    assert "The distribution of response times is not drawn: no valid trial keeps a histogram of them." in page
    assert 'data-chart="distribution' not in page
    for trial in (each for each in folder.read_trials() if each.point == 1):
        folder.write_trial(with_histogram(trial, histogram({210_000: 3})))
    page = render_page(folder, summarise_run(folder))
    assert "Not in the distribution: model threads (fewer than 100 requests are in its histograms)." in page
    assert 'data-chart="distribution-0"' in page


def test_of_many_settings_some_are_drawn_and_the_page_says_so(folder: RunFolder) -> None:
    run, summary = folder.read_run(), summarise_run(folder)
    point = summary.points[0]
    many = [point.model_copy(update={"number": each, "point": {"load.connections": each}}) for each in range(1, 30)]
    run.family = run.family.model_copy(update={"compare": None})
    layout = layout_of(run)
    chosen = [each.number for each in shown(many, layout)]
    assert (len(chosen), chosen[0], chosen[-1]) == (7, 1, 29)
    found = replace(charts_of(folder).spread[0], point={"load.connections": 1})
    (described,) = distribution_charts([found, replace(found, point={"load.connections": 2})], layout).values()
    assert [each["title"]["text"] for each in panels(described.spec)] == ["1 connection", "2 connections"]
