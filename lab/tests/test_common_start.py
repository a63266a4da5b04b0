"""Generators that wait for one another: who is given the start, when, and by which clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from plimsoll_lab.hosts.host import Host, HostProcess
from plimsoll_lab.trial.generators import BEGIN_S, START_EACH_S, Generator, give_start

NOW = 1_763_800_000.0


class Listener:
    """A process that keeps what it is told."""

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
        host=cast("Host", SimpleNamespace(clock_offset_s=clock_offset_s)),
        command=[],
        measured=awaits_start,
        barrier=awaits_start,
        process=cast("HostProcess", Listener()),
        awaits_start=awaits_start,
    )


def told(*generators: Generator) -> list[list[str]]:
    """What each was told."""
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
