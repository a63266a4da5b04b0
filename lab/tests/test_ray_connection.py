"""A host that does not answer is lost within ten seconds: in simulated time, with a stand-in for
Ray.
"""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from plimsoll_lab.hosts import ray_connection
from plimsoll_lab.hosts.messages import Await, ReadClock, Report, Stop
from plimsoll_lab.hosts.ray_connection import RayConnection
from plimsoll_lab.problem import HostLost, Interrupted, LabError

NEVER = float("inf")


class RayError(Exception):
    """Ray's own."""


class FakeRay:
    """Calls that are answered at given moments of a clock that only waiting moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.exceptions = self
        self.RayError = RayError
        self.due: dict[int, tuple[float, Any]] = {}
        self.numbers = itertools.count(1)

    def monotonic(self) -> float:
        """The time."""
        return self.now

    def time(self) -> float:
        """The time of day, which is the same here."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    def call(self, after_s: float, answer: object) -> int:
        """A call that is answered so late; its reference."""
        number = next(self.numbers)
        self.due[number] = (self.now + after_s, answer)
        return number

    def wait(
        self, references: Sequence[int], *, num_returns: int = 1, timeout: float, fetch_local: bool = True
    ) -> tuple[list[int], list[int]]:
        """Let time pass until one is due, or the time is over."""
        del num_returns, fetch_local
        first = min(self.due[each][0] for each in references)
        self.now = max(self.now, min(first, self.now + timeout))
        ready = [each for each in references if self.due[each][0] <= self.now]
        return ready, [each for each in references if each not in ready]

    def get(self, reference: int) -> object:
        """What it is answered."""
        answer = self.due[reference][1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, _: object) -> None:
        """End an actor."""


class Method:
    """A method of an actor."""

    def __init__(self, call: Callable[..., int]) -> None:
        self.remote = call


class FakeActor:
    """An actor on a host that is cut off at a moment."""

    def __init__(self, ray: FakeRay, cut_at: float = NEVER) -> None:
        self.ray, self.cut_at = ray, cut_at
        self.takes_s: dict[type, float] = {}
        self.answers: dict[type, object] = {}
        self.open = Method(lambda: self.call(0.1, None))
        self.ping = Method(lambda: self.call(0.1, None))
        self.close = Method(lambda: self.call(0.1, None))
        self.asked: list[int] = []
        self.ask = Method(self._ask)

    def call(self, after_s: float, answer: object) -> int:
        """A call that is answered so late, or never, once the host is cut off."""
        cut = self.ray.now + after_s >= self.cut_at
        return self.ray.call(NEVER if cut else after_s, answer)

    def _ask(self, number: int, message: object) -> int:
        self.asked.append(number)
        kind = type(message)
        return self.call(self.takes_s.get(kind, 0.01), (self.answers.get(kind), None))


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    fake = FakeRay()
    monkeypatch.setattr(ray_connection, "importlib", type("Library", (), {"import_module": lambda _: fake}))
    monkeypatch.setattr(ray_connection, "time", fake)
    return fake


def connect(actor: FakeActor) -> RayConnection:
    connection = RayConnection("h2", actor)
    connection.finish_opening()
    return connection


@pytest.mark.parametrize("waits", ["asked", "stopping", "watched"])
def test_a_host_that_is_cut_off_is_lost_within_ten_seconds_whatever_it_was_asked(ray: FakeRay, waits: str) -> None:
    actor = FakeActor(ray)
    connection = connect(actor)
    ray.now += 100.0
    connection.ask(ReadClock())
    actor.cut_at = cut_at = ray.now
    connection.watch([1], lambda _: None)
    ways: dict[str, Callable[[], object]] = {
        "asked": lambda: connection.ask(ReadClock()),
        "stopping": lambda: connection.ask(Stop(process=1, grace_s=60.0)),
        "watched": lambda: connection.wait_any([connection], 600.0),
    }
    with pytest.raises(HostLost, match=r"the host h2 was lost: no answer for \d"):
        ways[waits]()
    assert 5.0 < ray.now - cut_at <= 10.0


def test_time_for_which_the_lab_itself_was_held_up_is_none_that_a_host_was_silent(ray: FakeRay) -> None:
    """A machine that was suspended for a minute had lost every host as it went on."""
    actor = FakeActor(ray)
    actor.ping = Method(lambda: actor.call(3.0, None))
    connection = connect(actor)
    connection.watch([1], lambda _: None)
    ray.due = {call: (NEVER, answer) for call, (_, answer) in ray.due.items()}
    connection.wait_any([connection], 4.0)
    ray.now += 60.0
    ray.due = {call: (at + 60.0, answer) for call, (at, answer) in ray.due.items()}
    connection.wait_any([connection], 10.0)
    assert connection.lost is None


def test_an_actor_that_starts_slowly_is_waited_for(ray: FakeRay) -> None:
    """Ray starts a Python for it, which can give no sign: on a busy machine it was lost after seven
    seconds.
    """
    actor, began = FakeActor(ray), ray.now
    actor.open = Method(lambda: actor.call(30.0, None))
    actor.ping = Method(lambda: actor.call(max(0.1, began + 30.0 - ray.now), None))
    assert connect(actor).lost is None
    assert ray.now == pytest.approx(began + 30.0)


def test_an_actor_that_never_starts_is_lost_after_a_minute(ray: FakeRay) -> None:
    began = ray.now
    connection = RayConnection("h2", FakeActor(ray, cut_at=began))
    with pytest.raises(HostLost, match="the host h2 was lost: its agent did not start within 60 s"):
        connection.finish_opening()
    assert 60.0 <= ray.now - began <= 61.0


def test_a_host_that_is_lost_is_not_asked_again(ray: FakeRay) -> None:
    connection = connect(FakeActor(ray, cut_at=ray.now + 5.0))
    ray.now += 5.0
    with pytest.raises(HostLost):
        connection.ask(ReadClock())
    at = ray.now
    with pytest.raises(HostLost):
        connection.ask(ReadClock())
    connection.close()
    assert ray.now == at


def test_a_host_that_works_long_and_gives_signs_is_not_lost(ray: FakeRay) -> None:
    actor = FakeActor(ray)
    actor.takes_s[Stop] = 50.0
    assert connect(actor).ask(Stop(process=1, grace_s=60.0)) is None


def test_an_agent_that_hangs_on_a_host_that_gives_signs_is_not_waited_for_for_ever(ray: FakeRay) -> None:
    actor = FakeActor(ray)
    actor.takes_s[ReadClock] = NEVER
    began = ray.now
    with pytest.raises(HostLost, match="its agent did not answer within"):
        connect(actor).ask(ReadClock())
    assert ray.now - began < 130.0


def test_news_is_delivered_once_and_what_comes_first_is_told_first(ray: FakeRay) -> None:
    actor = FakeActor(ray)
    news = (Report(process=1, lines=("up",), stderr_tail="", exit_code=None),)
    actor.answers[Await], actor.takes_s[Await] = news, 3.0
    connection = connect(actor)
    heard: list[object] = []
    connection.watch([1], heard.append)
    connection.wait_any([connection], 1.0)
    assert not heard
    assert connection.is_watched(1)
    connection.wait_any([connection], 600.0)
    assert heard == [news]
    assert not connection.is_watched(1)


def test_an_error_of_the_agent_is_raised_here_and_the_host_is_not_lost(ray: FakeRay) -> None:
    actor = FakeActor(ray)
    connection = connect(actor)
    actor.ask = Method(lambda _number, _message: ray.call(0.1, (None, LabError("too small"))))
    with pytest.raises(LabError, match="too small"):
        connection.ask(ReadClock())
    assert connection.lost is None


def test_an_actor_that_ray_says_has_died_is_lost_with_rays_reason(ray: FakeRay) -> None:
    actor = FakeActor(ray)
    connection = connect(actor)
    actor.ask = Method(
        lambda _number, _message: ray.call(0.1, RayError("The actor died because its node has died. Node Id: 1"))
    )
    with pytest.raises(HostLost, match="the host h2 was lost: The actor died because its node has died"):
        connection.ask(ReadClock())


def test_a_signal_as_ray_returns_interrupts_and_is_no_error_of_ours(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python hides what the handler raised behind a `SystemError`: Ctrl-C was an internal error."""

    def wait(*_: object, **__: object) -> None:
        raise SystemError("wait returned a result with an exception set") from Interrupted(signal.SIGINT)

    connection = RayConnection("h1", FakeActor(ray))
    connection.finish_opening()
    monkeypatch.setattr(ray, "wait", wait)
    with pytest.raises(Interrupted) as interrupted:
        connection.ask(ReadClock())
    assert interrupted.value.number == signal.SIGINT


def test_a_host_is_asked_nothing_more_once_a_signal_broke_off_a_message(ray: FakeRay) -> None:
    """It waited for the number of the message that never came: two minutes for each later one."""

    def broken_off(*_: object) -> int:
        raise Interrupted(signal.SIGINT)

    actor = FakeActor(ray)
    connection = connect(actor)
    ask, actor.ask = actor.ask, Method(broken_off)
    with pytest.raises(Interrupted):
        connection.ask(ReadClock())
    actor.ask = ask
    with pytest.raises(HostLost, match="h2 was lost: a message to it was broken off"):
        connection.ask(Stop(process=1, grace_s=0.0))
    assert actor.asked == []


def test_calls_are_numbered_as_ray_may_run_them_in_any_order(ray: FakeRay) -> None:
    actor = FakeActor(ray)
    actor.answers[Await] = ()
    connection = connect(actor)
    connection.ask(ReadClock())
    connection.watch((), lambda _: None)
    connection.ask(Stop(process=1, grace_s=0.0))
    assert actor.asked == [1, 2, 3]
