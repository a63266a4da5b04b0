"""The course of one trial, line by line: what is drawn of a second, and what of a shorter part."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from made_records import stored_run

from plimsoll_lab.analysis.over_time import CAUSES, Course, courses, typical_trials
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import HostsRecord, Json, MachineRecord, MeasuredLoadRecord, Sample
from plimsoll_lab.store.timelines import write_timelines

OPENED = {"opened_unix_s": 1000.0}
TIMES = {"count": 100, "min": 50.0, "p50": 100.0, "p75": 150.0, "p90": 200.0, "p99": 400.0, "max": 900.0}


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return stored_run(tmp_path / "0001")


def second(number: int, completed: int, **more: object) -> Json:
    """A generator's line about a second, counted from the opening of the window."""
    return {"second": number, "unix_s": 1000.0 + number, "completed": completed, **more}


def course(
    folder: RunFolder,
    lines: Sequence[Json] = (),
    *,
    window_s: float | None = 2.0,
    others: Mapping[str, Sequence[Json]] | None = None,
    samples: Sequence[Sample] = (),
    hosts: HostsRecord | None = None,
) -> Course:
    """The course of the one trial, of these lines of its generator and of others that are not
    measured.
    """
    [trial] = folder.read_trials()
    records = folder.records(trial.number)
    for part, told in {"load": lines, **(others or {})}.items():
        (records / f"{part}.timeseries.jsonl").write_text("".join(json.dumps(each) + "\n" for each in told))
    load = cast("MeasuredLoadRecord", {"summary": {"window": OPENED}})
    machine: MachineRecord = {} if window_s is None else {"window_s": window_s}
    timed = replace(trial, load=load, machine=machine, samples=samples, hosts=hosts or {})
    write_timelines(folder.path, records, timed)
    [[found]] = courses(folder.read_run(), folder.path, [timed]).values()
    return found


def read(*rows: tuple[float, Mapping[str, Mapping[str, int]]]) -> HostsRecord:
    """What was read of hosts, at these seconds."""
    return {"timeline": [{"at_s": at_s, "hosts": told} for at_s, told in rows]}


@pytest.mark.parametrize(
    ("window_s", "drawn"),
    [
        (1.75, [(0.5, 100.0), (1.375, 100.0)]),
        # A part of 0.15 s is too short.
        (1.15, [(0.5, 100.0)]),
    ],
)
def test_the_rest_of_a_window_is_drawn_from_a_fifth_of_a_second_on(
    folder: RunFolder, window_s: float, drawn: Sequence[tuple[float, float]]
) -> None:
    rest = round(100 * (window_s - 1))
    lines = [second(0, 100, response_time_us=TIMES), second(1, rest, response_time_us=TIMES)]
    found = course(folder, lines, window_s=window_s)
    assert found.series["completed"] == drawn
    assert [each.at_s for each in found.bands[::5]] == [float(place) for place in range(len(drawn))]
    assert found.bands[-1].to_s == (1.75 if len(drawn) > 1 else 1.0)


def test_a_second_without_an_answer_has_no_response_times_and_a_missing_percentile_is_the_one_below(
    folder: RunFolder,
) -> None:
    some = {name: value for name, value in TIMES.items() if name not in {"p75", "p90"}}
    lines = [second(0, 100, response_time_us=some), second(1, 0, response_time_us={"count": 0, "min": 0.0})]
    found = course(folder, lines)
    assert [(each.at_s, each.low_us, each.high_us, each.share) for each in found.bands] == [
        (0.0, 50, 100, 50), (0.0, 100, 100, 25), (0.0, 100, 100, 15), (0.0, 100, 400, 9), (0.0, 400, 900, 1),
    ]  # fmt: skip


def test_a_warm_up_begins_with_the_first_of_its_seconds(folder: RunFolder) -> None:
    lines = [second(number, 50, phase="warm_up") for number in (-2, -1)] + [second(0, 100)]
    found = course(folder, lines)
    assert found.starts_s == -2.0
    assert found.series["completed"] == [(-1.5, 50.0), (-0.5, 50.0), (0.5, 100.0)]
    assert course(folder, [second(0, 100)]).starts_s == 0.0


def test_requests_that_failed_and_that_timed_out_are_two_lines(folder: RunFolder) -> None:
    found = course(folder, [second(0, 100, failed=1, timed_out=3)])
    assert (found.series["failed"], found.series["timed_out"]) == ([(0.5, 1.0)], [(0.5, 3.0)])
    assert "intended" not in found.series


@pytest.mark.parametrize("cause", ["connect", "read", "write", "timeout", "mismatch", "closed", "status"])
def test_each_cause_of_errors_has_a_line_of_its_own(folder: RunFolder, cause: str) -> None:
    assert cause in CAUSES
    found = course(folder, [second(0, 100, failed=7, errors={cause: 2})])
    assert {name: dots for name, dots in found.series.items() if name != "completed"} == {
        f"errors.{cause}": [(0.5, 2.0)]
    }


def test_what_another_part_counts_is_no_part_of_the_measured_load(folder: RunFolder) -> None:
    counted = {"errors": {"closed": 9}}
    saturator = [second(-1, 900, phase="warm_up", **counted), second(0, 900, **counted)]
    found = course(folder, [second(0, 100, failed=1)], others={"saturator": saturator})
    assert found.series == {"completed": [(0.5, 100.0)], "failed": [(0.5, 1.0)]}
    assert (found.starts_s, found.generators) == (0.0, 1)


def test_cpu_is_drawn_in_steps_of_half_a_second(folder: RunFolder) -> None:
    used = (0.0, 0.125, 0.25, 0.5, 0.75)
    samples = [Sample(at_s=place / 4, cpu_s=cpu_s, memory_bytes=None) for place, cpu_s in enumerate(used)]
    found = course(folder, samples=samples)
    assert found.series == {"cpu": [(0.25, 0.5), (0.75, 1.0)]}


@pytest.mark.parametrize(("known", "drawn"), [(1, None), (2, [(0.0, 4096.0), (0.25, 4096.0)])])
def test_memory_that_was_read_once_is_no_course(
    folder: RunFolder, known: int, drawn: Sequence[tuple[float, float]] | None
) -> None:
    samples = [
        Sample(at_s=place / 4, cpu_s=0.0, memory_bytes=4096 if place < known else None) for place in range(3)
    ]  # fmt: skip
    assert course(folder, samples=samples).series.get("memory") == drawn


def test_connections_are_counted_until_shortly_before_the_window_closes(folder: RunFolder) -> None:
    rows = [(at_s, {"local": {"established": 5}}) for at_s in (0.0, 1.9375, 1.96875)]
    assert course(folder, hosts=read(*rows)).series["connections"] == [(0.0, 5.0), (1.9375, 5.0)]


def test_segments_sent_again_are_told_a_second_in_steps_of_half_a_second(folder: RunFolder) -> None:
    counted = ((0.0, 0), (0.25, 1), (0.5, 4), (1.0, 4))
    rows = [(at_s, {"local": {"established": 5, "retransmitted_segments": sent}}) for at_s, sent in counted]
    assert course(folder, hosts=read(*rows)).series["retransmissions"] == [(0.25, 8.0), (0.75, 0.0)]


def test_of_several_hosts_none_is_taken_for_the_servers_where_nobody_says_which_it_is(folder: RunFolder) -> None:
    rows = [(at_s, {"h1": {"established": 5}, "h2": {"established": 7}}) for at_s in (0.0, 1.0)]
    found = course(folder, [second(0, 100)], hosts=read(*rows))
    assert "connections" not in found.series


def test_where_the_length_of_a_window_is_not_known_it_ends_with_the_last_reading(folder: RunFolder) -> None:
    rows = [(at_s, {"local": {"established": 5}}) for at_s in (0.0, 2.5)]
    assert course(folder, [second(0, 100)], window_s=None, hosts=read(*rows)).ends_s == 2.5


@pytest.mark.parametrize(("made", "number"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_of_an_even_number_of_trials_the_slower_of_the_two_in_the_middle_is_shown(
    tmp_path: Path, made: int, number: int
) -> None:
    """Each trial is a little faster than the one before."""
    folder = stored_run(tmp_path / "0001", repeat=made)
    run, trials = folder.read_run(), folder.read_trials()
    found = [(level, name, trial.number) for level, name, trial in typical_trials(run, trials[::-1])]
    assert found == [("model epoll", "all", number)]


def test_trials_without_a_result_and_controls_are_not_shown(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", repeat=3)
    run, trials = folder.read_run(), folder.read_trials()
    spoilt = [replace(trials[0], outcome="invalid"), *trials[1:]]
    assert [trial.number for _, _, trial in typical_trials(run, spoilt)] == [2]
    assert list(typical_trials(run, [replace(each, outcome="failed") for each in trials])) == []
    run.points = [point.model_copy(update={"control": True}) for point in run.points]
    assert list(typical_trials(run, trials)) == []
