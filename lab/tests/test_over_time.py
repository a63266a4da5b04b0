"""The course of a trial on one time axis, and the section of the page that shows it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from made_records import stored_run
from markupsafe import Markup

from plimsoll_lab.analysis.over_time import BANDS, Course, courses
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.encoding import layout_of
from plimsoll_lab.report.page import render_page
from plimsoll_lab.report.series import chosen, head_of, parts_of, series_table
from plimsoll_lab.report.timelines import PANELS, section, timeline_charts
from plimsoll_lab.report.view import Described, Table, Text
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import MeasuredLoadRecord, Sample
from plimsoll_lab.store.timelines import write_timelines
from plimsoll_lab.suite.spec import Placement

TIMES = {"count": 100, "min": 50.0, "p50": 100.0, "p75": 150.0, "p90": 200.0, "p99": 400.0, "max": 900.0}
MODELS = ("epoll", "threads")


EMPTY = Table(caption="", head=(), rows=())


def second(number: int, completed: int, phase: str = "window", failed: int = 0) -> str:
    line = {"second": number, "unix_s": 1000.0 + number, "phase": phase, "completed": completed, "failed": failed}
    return json.dumps(line | {"response_time_us": TIMES}) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """Two models, windows of 2 s that open half a second after the generator began."""
    made = stored_run(tmp_path / "0001", MODELS, repeat=3, window_s=2.0)
    for trial in made.read_trials():
        records = made.records(trial.number)
        lines = [second(0, 50, "warm_up"), second(0, 60), second(1, 100), second(2, 45, failed=5)]
        (records / "load.timeseries.jsonl").write_text("".join(lines))
        samples = tuple(Sample(at_s=at / 2, cpu_s=at * 0.25, memory_bytes=2**20) for at in range(5))
        # As the window closes, the generator closes its connections.
        states = [{"at_s": float(at), "hosts": {"local": {"established": 20 if at < 2 else 3}}} for at in range(3)]
        load: MeasuredLoadRecord = {"summary": {"intended_rate": 110.0, "window": {"opened_unix_s": 1000.5}}}
        timed = replace(trial, samples=samples, load=load, hosts={"timeline": states})
        made.write_trial(timed)
        write_timelines(made.path, records, timed)
    return made


def of(folder: RunFolder) -> dict[str, list[Course]]:
    return courses(folder.read_run(), folder.path, folder.read_trials())


def test_the_last_connects_before_a_window_are_no_warm_up(folder: RunFolder) -> None:
    for trial in folder.read_trials():
        load: MeasuredLoadRecord = {"summary": {"intended_rate": 110.0, "window": {"opened_unix_s": 1000.0014}}}
        opened = replace(trial, load=load)
        folder.write_trial(opened)
        records = folder.records(trial.number)
        (records / "load.timeseries.jsonl").write_text(second(0, 0, "warm_up") + second(0, 60) + second(1, 100))
        write_timelines(folder.path, records, opened)
    (here,) = of(folder).values()
    assert {each.starts_s for each in here} == {0.0}


def test_a_rate_counts_only_the_part_of_a_second_that_lies_in_its_phase(folder: RunFolder) -> None:
    (here,) = of(folder).values()
    epoll = here[0]
    assert (epoll.contender, epoll.trial, epoll.starts_s, epoll.ends_s) == ("epoll", 3, -0.5, 2.0)
    # 50 in the half second before the window, 60 in its first half second, 45 in its last.
    assert epoll.series["completed"] == [(-0.25, 100.0), (0.25, 120.0), (1.0, 100.0), (1.75, 90.0)]
    assert epoll.series["failed"] == [(-0.25, 0.0), (0.25, 0.0), (1.0, 0.0), (1.75, 10.0)]
    assert epoll.series["cpu"] == [(0.25, 0.5), (0.75, 0.5), (1.25, 0.5), (1.75, 0.5)]
    assert epoll.series["connections"] == [(0.0, 20.0), (1.0, 20.0)]
    assert "retransmissions" not in epoll.series


def test_seconds_of_generators_that_did_not_begin_together_are_added_by_their_time(folder: RunFolder) -> None:
    """Each counts seconds from its own start: where those begin apart, a count belongs to two of
    the other's seconds.
    """
    for trial in folder.read_trials():
        records = folder.records(trial.number)
        for name, unix_s in (("load", 1000.0), ("load-2", 999.6)):
            lines = [json.loads(second(number, 100)) | {"unix_s": unix_s + number} for number in range(3)]
            lines[0]["completed"] = round(100 * (unix_s + 1 - 1000.5))
            lines[2]["completed"] = round(100 * min(1.0, 1002.6 - unix_s - 2))
            (records / f"{name}.timeseries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        window = {"window": {"opened_unix_s": 1000.5}}
        ended = {"host": "local", "command": (), "exit_code": 0, "stderr_tail": "", "summary": window}
        generators = [{"name": name, **ended} for name in ("load", "load-2")]
        load = cast("MeasuredLoadRecord", {"summary": window, "generators": generators})
        timed = replace(trial, load=load, machine={"window_s": 2.1})
        folder.write_trial(timed)
        write_timelines(folder.path, records, timed)
    (here,) = of(folder).values()
    told = section(
        folder.read_run(), of(folder), {"": Described(spec={}, caption="", data=EMPTY)}, {"": Markup()}
    ).parts
    assert told[-1] == Text(
        text="Response time over time is not drawn: the percentiles of several generators cannot be put together."
    )
    # Both complete 100 a second, the second one until 2.1 s.
    assert [(at_s, round(rate, 6)) for at_s, rate in here[0].series["completed"]] == [
        (0.25, 200.0), (1.0, 200.0), (1.8, 200.0)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("starts", "ends"),
    [
        # Both have three seconds of warm-up, and the one that is named first begins last.
        ((-2.1, -2.9), (3.9, 3.4)),
        # Both have three seconds in the window, and the one that is named first ends first.
        ((-0.9, -1.0), (2.1, 3.0)),
    ],
)
def test_all_time_that_one_of_several_generators_counts_is_drawn(
    starts: tuple[float, float], ends: tuple[float, float], folder: RunFolder
) -> None:
    """Books made by hand: the area under the line of each phase is what was counted in it."""
    opened_unix_s, counted = 1000.0, {"warm_up": 0, "window": 0}
    summary = {"window": {"opened_unix_s": opened_unix_s}}
    ended = {"host": "local", "command": (), "exit_code": 0, "stderr_tail": "", "summary": summary}
    generators = [{"name": name, **ended} for name in ("load", "load-2")]
    trial = folder.read_trials()[0]
    records = folder.records(trial.number)
    for generator, start, end in zip(generators, starts, ends, strict=True):
        lines = []
        for number in range(math.ceil(end - start)):
            since, to = start + number, min(start + number + 1, end)
            for phase, low, high in (("warm_up", since, min(to, 0.0)), ("window", max(since, 0.0), to)):
                if low < high:
                    count = round(100 * (high - low))
                    counted[phase] += count
                    lines.append(
                        {"second": number, "unix_s": opened_unix_s + since, "phase": phase, "completed": count}
                    )
        written = "".join(json.dumps(line) + "\n" for line in lines)
        (records / f"{generator['name']}.timeseries.jsonl").write_text(written)
    load = cast("MeasuredLoadRecord", {"summary": summary, "generators": generators})
    timed = replace(trial, load=load, machine={"window_s": max(ends)})
    write_timelines(folder.path, records, timed)
    (here,) = courses(folder.read_run(), folder.path, [timed]).values()
    for phase, low, high in (("warm_up", min(starts), 0.0), ("window", 0.0, max(ends))):
        area, reached = 0.0, low
        for middle, rate in (dot for dot in here[0].series["completed"] if low < dot[0] < high):
            area += rate * 2 * (middle - reached)
            reached = 2 * middle - reached
        assert area == pytest.approx(counted[phase]), phase
        assert reached == pytest.approx(high, abs=1e-6), phase


def test_a_picture_of_response_times_says_which_are_the_generators_own_lateness(folder: RunFolder) -> None:
    for trial in folder.read_trials():
        if trial.setting["server.model"] == "threads":
            doubted = {"doubted": ["response_time_us.p99", "response_time_us.max", "response_time_us.p99_9"]}
            summary = (trial.load.get("summary") or {}) | doubted
            folder.write_trial(replace(trial, load=cast("MeasuredLoadRecord", {"summary": summary})))
    heat = timeline_charts(of(folder), layout_of(folder.read_run()))["heat-0"]
    assert heat.caption.endswith("The generator's own lateness is half or more of p99 and max of threads.")


def test_of_several_hosts_the_connections_are_those_of_the_server_s(folder: RunFolder) -> None:
    run = folder.read_run()
    run.points = tuple(point.model_copy(update={"place": Placement(server="h2", load=("h1",))}) for point in run.points)
    folder.write_run(run)
    for trial in folder.read_trials():
        states = [{"at_s": at / 2, "hosts": {"h1": {"established": 7}, "h2": {"established": 20}}} for at in range(3)]
        timed = replace(trial, hosts={"timeline": states})
        records = folder.records(trial.number)
        (records / "load.timeseries.jsonl").write_text(second(0, 60))
        write_timelines(folder.path, records, timed)
    (here,) = of(folder).values()
    assert here[0].series["connections"] == [(0.0, 20.0), (0.5, 20.0), (1.0, 20.0)]


def test_seconds_in_which_nothing_was_answered_are_a_gap_however_long_the_trial(folder: RunFolder) -> None:
    """Of more than a minute several seconds are one band, which went on over half a minute
    without an answer.
    """
    (course, *_) = next(iter(of(folder).values()))
    one = course.bands[: len(BANDS) - 1]
    answered = [*range(103), *range(134, 600)]
    bands = [replace(band, at_s=float(at), to_s=at + 1.0) for at in answered for band in one]
    long = replace(course, bands=bands, starts_s=0.0, ends_s=600.0)
    found = timeline_charts({"here": [long]}, layout_of(folder.read_run()))
    drawn = cast("list[dict[str, dict[str, list[dict[str, float]]]]]", found["heat-0"].spec["vconcat"])
    spans = {(each["t"], each["to"]) for each in drawn[0]["data"]["values"]}
    assert len(spans) == 58
    assert [span for span in spans if span[0] < 134 and span[1] > 103] == []
    assert {103.0, 600.0} <= {end for _, end in spans}


def test_each_second_has_its_requests_from_the_fastest_to_the_slowest(folder: RunFolder) -> None:
    (here,) = of(folder).values()
    first = [each for each in here[0].bands if each.at_s == 0]
    assert [(each.low_us, each.high_us, each.share) for each in first] == [
        (50, 100, 50), (100, 150, 25), (150, 200, 15), (200, 400, 9), (400, 900, 1),
    ]  # fmt: skip
    assert {(each.at_s, each.to_s) for each in here[0].bands} == {(0.0, 0.5), (0.5, 1.5), (1.5, 2.0)}


def test_the_panels_share_one_axis_and_what_is_absent_has_a_reason(folder: RunFolder) -> None:
    run = folder.read_run()
    found = of(folder)
    made = timeline_charts(found, layout_of(run))
    assert list(made) == ["timelines-0", "heat-0"]
    panels = made["timelines-0"].spec["vconcat"]
    assert isinstance(panels, list)
    assert len(panels) == 5
    assert {json.dumps(panel["layer"][-1]["encoding"]["x"]["scale"]) for panel in panels} == {
        json.dumps({"domain": [-0.5, 2.0], "nice": False})
    }
    page = render_page(folder, summarise_run(folder))
    assert "Not drawn: retransmissions (the window is too short for two samples" in page
    assert 'data-chart="heat-0"' in page


def test_a_window_of_one_second_has_no_response_time_over_time(folder: RunFolder) -> None:
    run = folder.read_run()
    (level, here), *_ = of(folder).items()
    short = {level: [replace(each, bands=[band for band in each.bands if band.at_s == 0]) for each in here]}
    drawn = timeline_charts(short, layout_of(run))
    assert list(drawn) == ["timelines-0"], "one column is no course"
    told = section(run, short, drawn, {"timelines-0": Markup()}).parts[-1]
    assert told == Text(text="Response time over time is not drawn: the window ended within a second.")


def test_errors_are_drawn_by_cause_where_the_generator_tells_causes(folder: RunFolder) -> None:
    for trial in folder.read_trials():
        records = folder.records(trial.number)
        lines = [json.loads(second(number, 100, failed=number)) for number in range(3)]
        told = [line | {"errors": {"closed": line["failed"], "read": 0}} for line in lines]
        (records / "load.timeseries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
        write_timelines(folder.path, records, trial)
    (here,) = of(folder).values()
    assert here[0].series["errors.closed"] == [(0.25, 0.0), (1.0, 1.0), (1.75, 4.0)]
    assert "failed" not in here[0].series
    page = render_page(folder, summarise_run(folder))
    assert "errors: closed" in page
    assert "errors: read" not in page
    assert "no recorded second has a request that failed" not in page


def test_the_numbers_of_a_chart_over_time_are_means_of_its_parts(folder: RunFolder) -> None:
    (here,) = of(folder).values()
    rate = [panel for panel in PANELS if panel.name == "rate"]
    table = series_table("It.", here[:1], rate)
    assert table.head == ("", "-0.5 to 0.125 s", "0.125 to 0.75 s", "0.75 to 1.38 s", "1.38 to 2 s")
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["epoll, completed", "100", "120", "100", "90.0"],
        ["epoll, intended", "110", "110", "110", "110"],
    ]


def test_a_column_that_begins_or_ends_at_the_opening_of_a_window_but_for_a_little_has_a_0() -> None:
    """It was headed -0.00142 to 0.668 s; so is one that misses the opening by rounding alone."""
    assert head_of(parts_of(-0.00142, 5.344, 8))[1] == "0 to 0.667 s"
    around = head_of(parts_of(-0.7 * 3 + 0.006, 2.1, 6))
    assert around[3:5] == ("-0.696 to 0 s", "0 to 0.702 s")
    assert parts_of(-0.3, 0.3, 6)[2:4] == [(pytest.approx(-0.1), 0.0), (0.0, pytest.approx(0.1))]
    assert head_of(parts_of(-0.01, 1.0, 2)) == ("", "-0.01 to 0.495 s", "0.495 to 1 s"), "a fiftieth of a part"


def test_a_run_without_timelines_says_so_instead_of_an_empty_chart(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001")
    assert of(folder) == {}
    (part,) = section(folder.read_run(), {}, {}, {}).parts
    assert part.kind == "text"
    assert 'data-chart="timelines' not in render_page(folder, summarise_run(folder))


def test_of_many_settings_the_first_the_middle_and_the_last_are_shown() -> None:
    assert chosen([str(number) for number in range(9)]) == ["0", "4", "8"]
    assert chosen(["a", "b"]) == ["a", "b"]


def test_a_trial_without_a_rate_stands_for_no_point_that_has_trials_with_one(folder: RunFolder) -> None:
    trials = folder.read_trials()
    (drawn, *_), *_ = courses(folder.read_run(), folder.path, trials).values()
    unknown = [replace(trials[0], number=number, figures={}) for number in (90, 91, 92)]
    (again, *_), *_ = courses(folder.read_run(), folder.path, [*trials, *unknown]).values()
    assert (drawn.contender, again.trial) == ("epoll", drawn.trial)
