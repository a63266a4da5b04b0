"""What the first and the last instants of a window cost: its figures have no more and no less,
however late its ends are heard of.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from plimsoll_lab.hosts.external_server import ExternalServer
from plimsoll_lab.hosts.host import Host, HostProcess, UsageSnapshot
from plimsoll_lab.hosts.samplers.machine import MachineUsage
from plimsoll_lab.hosts.samplers.usage import Usage
from plimsoll_lab.store.program_output import LoadSummary
from plimsoll_lab.store.records import Json, Sample
from plimsoll_lab.suite.settings import Value
from plimsoll_lab.suite.spec import RunSettings, Suite
from plimsoll_lab.trial import window as trial_window
from plimsoll_lab.trial.generator_plan import Generator, idle_until, stays_up
from plimsoll_lab.trial.generators import Monitors, process_events
from plimsoll_lab.trial.live import LiveEvents
from plimsoll_lab.trial.window import Window

HOST = cast("Host", None)
SERVER = cast("HostProcess", SimpleNamespace(meter_source="cgroup v2", take_lines=list, exit_code=lambda: None))


def usage(cpu_s: float) -> Usage:
    """What a tree has used."""
    return Usage(cpu_s=cpu_s, memory_bytes=4096)


def snapshot(at_s: float, *, server_s: float, relay_s: float, busy_s: float) -> UsageSnapshot:
    """A reading so many seconds after the server's machine started, which was at 1,000."""
    return UsageSnapshot(
        at_unix_s=1000.0 + at_s,
        at_s=at_s,
        server=usage(server_s),
        others={"relay": usage(relay_s)},
        machine=MachineUsage(busy_s=busy_s, softirq_threads_s=0.0, steal_s=0.0, throttled_s=None),
    )


BEFORE = snapshot(9.5, server_s=1.0, relay_s=2.0, busy_s=50.0)
OPENING = snapshot(10.2, server_s=1.3, relay_s=2.1, busy_s=51.0)
"""Read 0.2 s after the window opened: the server had worked for 0.3 s by then."""
CLOSING = snapshot(12.0, server_s=2.0, relay_s=2.5, busy_s=52.8)


def stand_in(monkeypatch: pytest.MonkeyPatch, *readings: UsageSnapshot) -> None:
    """The next readings of a server's machine, at a standing clock of the lab's own."""
    left = iter(readings)
    monkeypatch.setattr(trial_window, "read_usage", lambda *_, **__: next(left))
    monkeypatch.setattr("time.monotonic", lambda: 700.0)


def window(monkeypatch: pytest.MonkeyPatch, *, foreseen: bool, earlier_s: float = 0.0) -> Window:
    """A window from the second 10 to 12, which another machine says was open a little earlier."""
    stand_in(monkeypatch, *((BEFORE,) if foreseen else ()), OPENING, CLOSING)
    made = Window()
    if foreseen:
        made.foresee(HOST, SERVER, {})
    made.begin(HOST, SERVER, {}, 1010.0)
    made.opened_by(1010.0 - earlier_s)
    made.end(HOST, SERVER, {}, 1012.0, rests_until=None)
    return made


def cost(made: Window) -> tuple[float, float]:
    """CPU seconds of the server, and the window's length."""
    assert made.first is not None
    assert made.last is not None
    return made.last.cpu_s - made.first.cpu_s, made.length_s


def test_a_window_that_opens_from_rest_has_all_that_it_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server's work until the opening was heard of was in no figure."""
    made = window(monkeypatch, foreseen=True)
    assert cost(made) == pytest.approx((1.0, 2.0))
    assert made.cpu_cores("relay") == pytest.approx(0.25)
    assert made.lag_s == 0.0
    assert [each.at_s for each in made.samples] == pytest.approx([0.0, 2.0])


def test_its_machine_was_at_work_before_and_is_counted_from_its_own_reading_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = window(monkeypatch, foreseen=True, earlier_s=0.1).machine()
    assert machine["busy_cores"] == pytest.approx(1.8 / 1.8)
    assert machine["window_s"] == pytest.approx(2.1)


def test_an_opening_that_another_machine_tells_of_later_moves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = window(monkeypatch, foreseen=True, earlier_s=0.1)
    assert cost(made) == pytest.approx((1.0, 2.1))
    assert made.lag_s == 0.0


def test_a_window_amid_work_is_as_late_as_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made = window(monkeypatch, foreseen=False, earlier_s=0.1)
    assert cost(made) == pytest.approx((0.7, 1.8))
    assert made.lag_s == pytest.approx(0.3)


def test_a_window_that_ends_at_rest_is_read_late_and_is_none_the_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the connections was a cost of the requests: most of it where another machine was read
    30 ms later.
    """
    stand_in(monkeypatch, BEFORE, OPENING, CLOSING)
    made = Window()
    made.foresee(HOST, SERVER, {})
    made.begin(HOST, SERVER, {}, 1010.0)
    made.samples.append(Sample(at_s=1.95, cpu_s=2.0, memory_bytes=4096))
    made.end(HOST, SERVER, {}, 1011.9, rests_until=1015.0)
    assert cost(made) == pytest.approx((1.0, 1.9))
    assert made.lag_s == 0.0
    assert [each.at_s for each in made.samples] == pytest.approx([0.0, 1.9])


@pytest.mark.parametrize("rests_until", [1016.0, 1010.15, None])
def test_a_window_that_was_over_before_it_was_read_has_no_length_and_no_cost(
    monkeypatch: pytest.MonkeyPatch, rests_until: float | None
) -> None:
    """20 ms beside busy programs: less than nothing, or all of 1.8 s, and a result."""
    readings = iter((OPENING, CLOSING))
    monkeypatch.setattr(trial_window, "read_usage", lambda *_, **__: next(readings))
    made = Window()
    made.begin(HOST, SERVER, {}, 1010.0)
    made.end(HOST, SERVER, {}, 1010.1, rests_until=rests_until)
    assert made.was_missed
    assert (made.machine(), made.server_cores(), made.foreign_cores([], ()), made.processes()) == ({}, None, None, [])


def at_rest(monkeypatch: pytest.MonkeyPatch, closed_s: float, rests_until: float) -> Window:
    """A window from the second 10, of which the machine was read from 10.2 to 12.0."""
    readings = iter((BEFORE, OPENING, CLOSING))
    monkeypatch.setattr(trial_window, "read_usage", lambda *_, **__: next(readings))
    made = Window()
    made.foresee(HOST, SERVER, {})
    made.begin(HOST, SERVER, {}, 1010.0)
    made.end(HOST, SERVER, {}, 1000.0 + closed_s, rests_until=rests_until)
    return made


def test_a_machine_at_rest_after_the_window_was_none_the_less_busy_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host had less CPU than its server: it was divided by the rest as well."""
    made = at_rest(monkeypatch, 11.0, 1016.0)
    # Of 1.8 s that it was read for, a second was after the window. The server used a core in it,
    # the relay half a core; the rest is of other programs, which worked on.
    others = (1.8 - 0.8 * 1.5) / 1.8
    assert made.foreign_cores([], ()) == pytest.approx(others)
    assert made.machine()["busy_cores"] == pytest.approx(1.5 + others)


def test_a_sample_is_of_the_moment_at_which_the_host_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told as of the moment at which the lab began to ask, 40 ms before: a server that works
    evenly had a half second of 8 % less.
    """
    stand_in(monkeypatch, OPENING, replace(OPENING, at_s=10.85, server=usage(1.95)), replace(CLOSING, at_s=11.35))
    made = Window()
    made.begin(HOST, SERVER, {}, 1010.2)
    made.sample(HOST, SERVER, 700.61)
    assert [each.at_s for each in made.samples] == pytest.approx([0.0, 0.65])
    made.end(HOST, SERVER, {}, 1012.0, rests_until=None)
    assert [each.at_s for each in made.samples] == pytest.approx([0.0, 0.65, 1.15])


def test_of_a_server_that_already_ran_nothing_is_sampled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It was shown with 0 cores on the live page, and stored with them."""
    nothing = Usage(cpu_s=0.0, memory_bytes=None)
    readings = iter(replace(each, server=nothing) for each in (OPENING, CLOSING))
    monkeypatch.setattr(trial_window, "read_usage", lambda *_, **__: next(readings))
    told: list[Json] = []
    made, server, live = Window(), ExternalServer(), LiveEvents(tmp_path, told.append)
    made.begin(HOST, server, {}, 1010.2)
    assert made.sample(HOST, server, 1e9) == math.inf
    made.end(HOST, server, {}, 1012.0, rests_until=None)
    live.end(made)
    assert (made.samples, told) == ([], [])
    assert made.machine()["window_s"] == pytest.approx(1.8)


def test_a_window_that_is_read_once_connections_may_have_closed_is_late(monkeypatch: pytest.MonkeyPatch) -> None:
    made = at_rest(monkeypatch, 11.0, 1011.9)
    assert cost(made) == pytest.approx((1.0, 2.0))
    assert (made.lag_s, made.rest_s) == pytest.approx((1.0, 0.0))


@pytest.mark.parametrize(
    ("in_flight", "completed", "lag_s"),
    [(0, 1000, 0.0), (10, 1000, 0.019), (900, 1000, 0.1), (3, 0, 0.1), (0, 0, 0.1)],
)
def test_what_is_answered_after_a_window_is_told_as_lateness(
    monkeypatch: pytest.MonkeyPatch, in_flight: int, completed: int, lag_s: float
) -> None:
    """At most as much as the time until its end was read."""
    made = at_rest(monkeypatch, 11.9, 1015.0)
    made.answered_after(in_flight, completed)
    assert made.lag_s == pytest.approx(lag_s)


SUITE = cast("Suite", SimpleNamespace(run=RunSettings()))


@pytest.mark.parametrize(
    ("load", "until"),
    [
        ({"each": 3}, "start"),
        ({"requests": 3, "reconnect": True}, "start"),
        ({"each": 3, "barrier": True}, "begin"),
        # Connections are accepted before its window opens: what that costs is not of the window.
        ({"requests": 3, "rate": 10}, "never"),
        ({"each": 3, "rate": 10, "barrier": False}, "never"),
        ({"duration": "2s"}, "begin"),
        # Its window opens after its connections are up, and it does not wait for others.
        ({"duration": "2s", "barrier": False}, "never"),
    ],
)
def test_until_when_a_generator_asks_nothing(load: dict[str, Value], until: str) -> None:
    assert idle_until(load, SUITE) == until
    warmed_up = cast("Suite", SimpleNamespace(run=replace(RunSettings(), warm_up="1s")))
    assert idle_until(load, warmed_up) == "never"


@pytest.mark.parametrize(
    ("first", "second", "foreseen"),
    [("begin", "begin", True), ("begin", "never", False), ("start", "begin", False)],
)
def test_it_is_read_once_nobody_asks_until_it_opens(first: str, second: str, *, foreseen: bool) -> None:
    done: list[str] = []

    def process() -> HostProcess:
        tell = SimpleNamespace(tell=lambda _: done.append("told"), take_lines=list, exit_code=lambda: None)
        return cast("HostProcess", tell)

    generators = [
        Generator(
            name=f"load-{number}",
            role=None,
            host=cast("Host", SimpleNamespace(clock_offset_s=0.0)),
            command=[],
            measured=True,
            may_wait=True,
            idle_until=until,  # type: ignore[arg-type]
            process=process(),
            awaits_start=True,
            is_up=number == 0,
        )
        for number, until in enumerate((first, second))
    ]
    seen = cast("Window", SimpleNamespace(foresee=lambda *_: done.append("server"), first=None, open=False))
    sampler = SimpleNamespace(foresee=lambda: done.append("hosts"))
    monitors = cast("Monitors", SimpleNamespace(server_host=None, sampler=sampler))
    process_events(generators, SERVER, {}, seen, monitors)
    assert done == []
    generators[1].is_up = True
    process_events(generators, SERVER, {}, seen, monitors)
    process_events(generators, SERVER, {}, seen, monitors)
    assert done == (["server", "hosts"] if foreseen else []) + ["told", "told"]


@pytest.mark.parametrize(
    ("load", "stays"),
    [
        ({"duration": "2s"}, True),
        ({"duration": "2s", "barrier": False, "rate": 10}, True),
        ({"duration": "2s", "reconnect": True}, False),
        ({"duration": "2s", "engine": "fork"}, False),
        ({"each": 3, "barrier": True}, False),
    ],
)
def test_whose_connections_may_stay_up(load: dict[str, Value], *, stays: bool) -> None:
    assert stays_up(load) is stays


@pytest.mark.parametrize(
    ("stay", "holds_s", "dies", "rests_until"),
    [
        ((True, True), (5.0, 7.0), False, 1016.5),
        ((True, True), (5.0, 3), False, 1015.0),
        ((True, True), (5.0, None), False, None),
        ((True, False), (5.0, None), False, None),
        ((True, True), (5.0, 7.0), True, None),
    ],
)
def test_connections_close_once_the_end_has_been_read(
    stay: tuple[bool, bool], holds_s: tuple[float, float | None], rests_until: float | None, *, dies: bool
) -> None:
    """Each generator says for how long they stay up. Those of one that has ended have closed,
    whatever it was to do.
    """
    done: list[object] = []

    def generator(number: int, *, stays_up: bool, said: list[str], dies: bool = False) -> Generator:
        process = SimpleNamespace(
            tell=lambda line: done.append((number, line)),
            take_lines=lambda: [said.pop(0)] if said else [],
            exit_code=lambda: 1 if dies and not said else None,
            stderr_tail=lambda: "",
            lacked_memory=lambda: False,
        )
        return Generator(
            name=f"load-{number}",
            role=None,
            host=cast("Host", SimpleNamespace(own_time=lambda at: at)),
            command=[],
            measured=True,
            may_wait=False,
            stays_up=stays_up,
            process=cast("HostProcess", process),
        )

    ends = zip((1011.5, 1012.0), holds_s, strict=True)
    first, last = (json.dumps({"event": "window_closed", "unix_s": at, "holds_s": held}) for at, held in ends)
    opened = '{"event":"window_opened","unix_s":1010.0}'
    generators = [
        generator(0, stays_up=stay[0], said=[opened, first]),
        generator(1, stays_up=stay[1], said=[opened, "", *(() if dies else (last,))], dies=dies),
    ]
    seen = SimpleNamespace(
        first=True, open=True, opened_by=lambda _: None, end=lambda *_, rests_until: done.append(rests_until)
    )
    sampler = SimpleNamespace(end=lambda _: done.append("hosts"))
    monitors = cast("Monitors", SimpleNamespace(server_host=None, sampler=sampler))
    for _ in range(2):
        process_events(generators, SERVER, {}, cast("Window", seen), monitors)
        assert done == []
    process_events(generators, SERVER, {}, cast("Window", seen), monitors)
    seen.open = False
    process_events(generators, SERVER, {}, cast("Window", seen), monitors)
    told = [number for number in (0, 1) if stay[number] and not (dies and number == 1)]
    assert done == [rests_until, "hosts", *((number, "") for number in told)]


def test_a_command_that_works_all_the_time_is_read_as_the_window_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it had used before counted in the window, and as much of other programs did not."""
    stand_in(monkeypatch, BEFORE, OPENING, CLOSING)
    made = Window(unasked={"relay"})
    made.foresee(HOST, SERVER, {})
    made.begin(HOST, SERVER, {}, 1010.0)
    made.end(HOST, SERVER, {}, 1012.0, rests_until=None)
    assert cost(made) == pytest.approx((1.0, 2.0)), "the server is read beforehand all the same"
    assert made.cpu_cores("relay") == pytest.approx(0.4 / 1.8)


def test_the_cpu_of_a_part_that_has_ended_is_not_known_and_no_other_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc tells nothing of it: its CPU was below zero, and that of others as much above."""
    made = window(monkeypatch, foreseen=False)
    own = [LoadSummary.model_validate({"elapsed_s": 2.0, "generator": {"cpu_cores": 0.1}})]
    assert made.foreign_cores(own, ()) is not None
    made.others_last = {"relay": usage(0.0)}
    assert made.cpu_cores("relay") is None
    assert made.foreign_cores(own, ()) is None
    assert made.foreign_cores(own, {"relay"}) is not None


def test_a_window_that_was_over_as_its_opening_was_heard_of_says_nothing_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tick of /proc/stat over a millisecond was ten cores."""
    opening = replace(CLOSING, at_unix_s=CLOSING.at_unix_s - 0.001, at_s=CLOSING.at_s - 0.001)
    stand_in(monkeypatch, BEFORE, opening, CLOSING)
    made = Window()
    made.foresee(HOST, SERVER, {})
    made.begin(HOST, SERVER, {}, 1011.9)
    made.end(HOST, SERVER, {}, 1012.0, rests_until=None)
    assert made.length_s == pytest.approx(0.1)
    assert made.server_cores() == pytest.approx(10.0)
    assert made.machine() == {}


def test_a_command_that_goes_on_after_the_window_is_no_other_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its CPU is in what the machine was read for then, where that of all others had ended."""
    stand_in(monkeypatch, OPENING, replace(CLOSING, at_unix_s=1012.5, at_s=12.5))
    made = Window(unasked={"relay"})
    made.begin(HOST, SERVER, {}, 1010.2)
    made.end(HOST, SERVER, {}, 1012.0, rests_until=1013.0)
    own = [LoadSummary.model_validate({"elapsed_s": 1.8, "generator": {"cpu_cores": 0.1}})]
    server = 0.7 / 1.8
    expected = (1.8 + (server + 0.1) * 0.5) / 2.3 - server - 0.1 - 0.4 / 2.3
    assert made.foreign_cores(own, ()) == pytest.approx(expected)
