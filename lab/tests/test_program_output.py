"""What the laboratory reads of programs' output."""

from __future__ import annotations

import pytest

from plimsoll_lab.problem import LabError
from plimsoll_lab.store.program_output import LinkTotals, LoadSummary, pick, read_output
from plimsoll_lab.trial.events import events


def test_what_a_program_prints_beyond_what_is_read_is_passed_over() -> None:
    told = {"requests": {"completed": 7, "failed": 2, "timed_out": 1, "later": 3}, "new": {"a": 1}}
    read = read_output(LoadSummary, told, "the generator")
    assert (read.requests.completed, read.requests.lost, read.connections.established) == (7, 3, None)


def test_output_of_another_form_is_refused_with_its_place_and_a_remedy() -> None:
    with pytest.raises(LabError, match=r"what the generator printed: requests\.completed: .*; use plimsoll and"):
        read_output(LoadSummary, {"requests": {"completed": "many"}}, "the generator")


def test_an_emulators_counts_keep_their_names_without_the_ends_of_the_link() -> None:
    told = {"links": [{"from": "h1", "to": "s1", "offered": 5, "dropped": 2}]}
    (way,) = read_output(LinkTotals, told, "the emulator").links
    assert (way.start, way.end, way.counts) == ("h1", "s1", {"offered": 5, "dropped": 2})


def test_whatever_else_a_program_prints_is_passed_over() -> None:
    printed = ["[" * 100_000, "null", "[1]", '"x"', "{", '{"event": 1e999}', '{"event": "ready"}']
    assert events(printed)[-1] == {"event": "ready"}
    assert len(events(printed)) == 2


def test_times_without_a_sample_are_no_times_of_0() -> None:
    """A probe that nobody answered met every limit."""
    silent = {"response_time_us": {"count": 0, "p99": 0.0}, "service_time_us": {"count": 1, "p99": 0.0}, "count": 0}
    assert pick(silent, ("response_time_us.p99", "service_time_us.p99", "count")) == {
        "service_time_us.p99": 0,
        "count": 0,
    }
