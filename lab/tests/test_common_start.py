"""Generators that wait for one another: who is given the start, when, and by which clock."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from plimsoll_lab.hosts.host import Host, HostProcess, UsageSnapshot
from plimsoll_lab.hosts.samplers.machine import MachineUsage
from plimsoll_lab.hosts.samplers.usage import Usage
from plimsoll_lab.store.program_output import LoadSummary
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite.settings import Value
from plimsoll_lab.trial import window as trial_window
from plimsoll_lab.trial.generator_plan import Generator, may_wait
from plimsoll_lab.trial.generator_records import apart_warnings, merge_summaries, windows_record
from plimsoll_lab.trial.generators import (
    BEGIN_S,
    START_EACH_S,
    Monitors,
    give_start,
    process_events,
)
from plimsoll_lab.trial.window import Window

NOW = 1_763_800_000.0


class Listener:
    """A process that keeps the lines that it gets."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def tell(self, line: str) -> None:
        """Keep a line."""
        self.lines.append(line)


def generator(name: str, *, clock_offset_s: float = 0.0, awaits_start: bool = True) -> Generator:
    """A generator that runs on a host of its own."""
    return Generator(
        name=name,
        role=None,
        host=cast("Host", SimpleNamespace(name=name, clock_offset_s=clock_offset_s)),
        command=[],
        measured=awaits_start,
        may_wait=awaits_start,
        process=cast("HostProcess", Listener()),
        awaits_start=awaits_start,
    )


def told(*generators: Generator) -> list[list[str]]:
    """The lines that each got."""
    return [cast("Listener", each.process).lines for each in generators]


def test_nobody_begins_before_the_connections_of_all_are_up() -> None:
    one, other = generator("load"), generator("load-2")
    give_start([one, other], NOW)
    one.is_up = True
    give_start([one, other], NOW + 2.0)
    assert told(one, other) == [[], []]


def test_all_are_given_one_instant_once_each_by_the_clock_of_its_host() -> None:
    here, far, saturator = (
        generator("load"),
        generator("load-2", clock_offset_s=5.5),
        generator("s", awaits_start=False),
    )
    here.is_up = far.is_up = True
    give_start([here, far, saturator], NOW)
    give_start([here, far, saturator], NOW + 1.0)
    begin_at = NOW + BEGIN_S + 2 * START_EACH_S
    lines = told(here, far, saturator)
    assert [len(each) for each in lines] == [1, 1, 0]
    assert [float(each[0]) for each in lines[:2]] == [pytest.approx(begin_at), pytest.approx(begin_at + 5.5)]


def test_one_that_has_ended_is_not_waited_for() -> None:
    one, ended = generator("load"), generator("load-2")
    one.is_up = ended.ended = True
    give_start([one, ended], NOW)
    assert [len(each) for each in told(one, ended)] == [1, 0]


@pytest.mark.parametrize(
    ("load", "waits"),
    [
        ({"duration": "2s"}, True),
        ({"each": 3}, False),
        ({"each": 3, "barrier": True}, True),
        ({"duration": "2s", "barrier": False}, False),
        ({"duration": "2s", "reconnect": True}, False),
        ({"duration": "2s", "engine": "fork"}, False),
        ({"duration": "2s", "protocol": "echo", "connect_rate": 50}, True),
        # A server of HTTP ends connections that ask for nothing meanwhile, unless a rate keeps all
        # of them from asking.
        ({"duration": "2s", "protocol": "http", "connect_rate": 50}, False),
        ({"duration": "2s", "protocol": "http", "connect_rate": 50, "rate": 100}, True),
        ({"duration": "2s", "protocol": "http", "connect_rate": 50, "barrier": True}, True),
        ({"duration": "2s", "protocol": "http"}, True),
    ],
)
def test_generators_of_a_window_of_stated_length_wait_for_one_another_where_they_can(
    load: dict[str, Value], *, waits: bool
) -> None:
    assert may_wait(load) is waits


@pytest.mark.parametrize("silent", [0, 1])
def test_of_several_generators_the_one_without_a_summary_says_why_there_is_none(tmp_path: Path, silent: int) -> None:
    """One whose connections failed ends with code 1, and was taken for the one that fell over."""
    both = [generator("load"), generator("load-2")]
    for number, each in enumerate(both):
        each.summary = None if number == silent else {"connections": {"requested": 9, "established": 8}}
        code, said = (-9, "killed") if number == silent else (1, "8 of 9 connections")
        each.record |= {"command": [], "exit_code": code, "stderr_tail": said, "lacked_memory": number == silent}
    record, refusal = merge_summaries("/none", both, tmp_path)
    assert (record["summary"], record["exit_code"], record["stderr_tail"], refusal) == (None, -9, "killed", None)
    assert record["lacked_memory"] is True


@pytest.mark.parametrize(("opened", "warned"), [(10.005, False), (10.1, True), (10.5, False)])
def test_windows_that_opened_a_little_apart_are_a_warning(opened: float, *, warned: bool) -> None:
    """A tenth is for the merged summary to tell; a tenth of a second of two is none of it."""
    one, other = generator("load"), generator("load-2")
    for each, at in ((one, 10.0), (other, opened)):
        each.command = ["plimsoll", "load", "--duration", "2s"]
        each.summary = {"window": {"opened_unix_s": at, "closed_unix_s": at + 2.0}}
        # A busy machine noticed one much later than it was.
        each.window = {"window_opened": at, "window_closed": at + 2.0 + 0.2 * (each is other)}
    found = apart_warnings([one, other])
    assert [each.code for each in found] == (["windows_apart"] if warned else [])
    if warned:
        assert "together for 1.900 s of 2.100 s" in found[0].message
    told = windows_record([one, other])
    assert told["start_spread_s"] == pytest.approx(opened - 10.0)
    assert [row["closed_unix_s"] for row in cast("list[Json]", told["windows"])] == [12.0, opened + 2.0]


class Talker:
    """A process that says what a test gives it, and does not end."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def take_lines(self) -> list[str]:
        """What was said since the last time."""
        said, self.lines = self.lines, []
        return said

    def exit_code(self) -> None:
        """It still runs."""


Told = tuple[Generator, str, float]
"""A generator, which end of its window it tells, and when that was."""


def follow(monkeypatch: pytest.MonkeyPatch, *batches: Sequence[Told], ended: Sequence[Generator] = ()) -> Window:
    """The window of generators that say this, a batch at a time; the server is read at the seconds
    0, 1, 2 and so on.
    """
    clock = itertools.count()
    monkeypatch.setattr(trial_window, "read_usage", lambda *_, **__: usage_at(float(next(clock))))
    generators = list({id(each): each for batch in batches for each, _, _ in batch}.values())
    for each in generators:
        each.process = cast("HostProcess", Talker())
        each.host = cast("Host", SimpleNamespace(own_time=lambda at: at))
        each.awaits_start, each.window = False, {}
    window, began = Window(), SimpleNamespace(begin=lambda *_: None, end=lambda *_: None)
    monitors = cast("Monitors", SimpleNamespace(links=began, sampler=began, server_host=None))
    for batch in batches:
        for each, what, at in batch:
            cast("Talker", each.process).lines.append(f'{{"event": "window_{what}", "unix_s": {at}}}')
        process_events(generators, cast("HostProcess", None), {}, window, monitors)
        for each in ended:
            each.ended = True
    process_events(generators, cast("HostProcess", None), {}, window, monitors)
    return window


def ends_of(window: Window) -> tuple[float | None, float | None]:
    return window.opened_unix_s, window.closed_unix_s


def test_the_server_is_metered_from_the_first_window_to_open_to_the_last_to_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The merged summary counts the requests of all of that time: a server metered until the first
    generator ended seemed to use half the CPU a request.
    """
    one, other = generator("load"), generator("load-2")
    told = ((one, "opened", 10.0), (other, "opened", 10.2), (other, "closed", 12.2))
    assert follow(monkeypatch, *((each,) for each in told)).open
    window = follow(monkeypatch, *((each,) for each in told), ((one, "closed", 14.0),))
    assert not window.open
    assert ends_of(window) == (10.0, 14.0)


def test_events_that_come_together_are_one_window_in_whatever_order_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, other = generator("load"), generator("load-2")
    opened = ((one, "opened", 10.2), (other, "opened", 10.0))
    closed = ((one, "closed", 14.0), (other, "closed", 12.2))
    assert ends_of(follow(monkeypatch, opened, closed)) == (10.0, 14.0)
    assert ends_of(follow(monkeypatch, *((each,) for each in (*opened, *closed)))) == (10.0, 14.0)


def test_a_generator_that_ends_without_a_window_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    one, fallen = generator("load"), generator("load-2")
    opened = ((one, "opened", 10.0), (fallen, "opened", 10.0))
    assert ends_of(follow(monkeypatch, opened, ((one, "closed", 12.0),), ended=[fallen])) == (10.0, 12.0)


def test_a_generator_that_ended_early_used_its_cpu_for_its_own_time_alone() -> None:
    """Its cores over half of the window were taken for cores over all of it, so that another
    program's were hidden.
    """

    def machine(busy_s: float) -> MachineUsage:
        return MachineUsage(busy_s=busy_s, softirq_threads_s=0.0, steal_s=0.0, throttled_s=None)

    window = Window(
        first=Usage(cpu_s=0.0, memory_bytes=1),
        last=Usage(cpu_s=4.0, memory_bytes=1),
        length_s=10.0,
        machine_first=machine(0.0),
        machine_last=machine(4.0 + 8.0 + 2.0 + 2.0),
    )
    told = [
        LoadSummary.model_validate({"elapsed_s": own_s, "generator": {"cpu_cores": cores}})
        for own_s, cores in ((10.0, 0.8), (5.0, 0.4))
    ]
    assert window.foreign_cores(told, ()) == pytest.approx(0.2)


def usage_at(at_s: float) -> UsageSnapshot:
    """A reading of a server that uses half a core."""
    usage = SimpleNamespace(cpu_s=at_s / 2, memory_bytes=4096)
    return cast("UsageSnapshot", SimpleNamespace(server=usage, others={}, machine=None, at_s=at_s, at_unix_s=0.0))
