"""What is not done in time: nothing is given up that was done, and the reason has what was seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from plimsoll_lab.hosts import netns
from plimsoll_lab.hosts.host import Host, HostProcess, Process
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.messages import Await, Connection, ReadThreads, Report
from plimsoll_lab.hosts.samplers.threads import RunQueue, ThreadReading
from plimsoll_lab.problem import HostLost, LabError
from plimsoll_lab.store.records import Json
from plimsoll_lab.trial import parts
from plimsoll_lab.trial.generators import TrialFailure
from plimsoll_lab.trial.patience import OVERSLEPT_S, Patience
from plimsoll_lab.trial.stuck import in_groups, last_said, states_of


class Clock:
    """The monotonic clock, which a wait moves on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def sleeping(self, takes_s: Sequence[float]) -> Callable[[float], None]:
        """A wait that takes so long each time, whatever it is asked for."""
        left = iter(takes_s)

        def wait(_: float) -> None:
            self.now += next(left)

        return wait


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """In the place of the machine's."""
    made = Clock()
    monkeypatch.setattr("time.monotonic", made)
    return made


def test_time_in_which_the_laboratory_did_not_run_does_not_count(clock: Clock) -> None:
    patience = Patience(10.0)
    wait = clock.sleeping([3.0, 300.0, 1.0 + OVERSLEPT_S])
    patience.wait(wait, 3.0)
    assert patience.left_s() == pytest.approx(7.0)
    patience.wait(wait, 2.0)
    assert patience.left_s() == pytest.approx(5.0), "a machine that was suspended for 298 s"
    patience.wait(wait, 1.0)
    assert patience.left_s() == pytest.approx(4.0 - OVERSLEPT_S), "a busy machine"
    patience.shorten_to(1.0)
    patience.shorten_to(3.0)
    assert patience.left_s() == pytest.approx(1.0)


THREADS = tuple(
    ThreadReading(process=7, thread=number, name=name, state="S", run_queue=None, sleeps_in=sleeps_in)
    for number, (name, sleeps_in) in enumerate(
        [
            ("plimsoll", "futex_wait, system call 202"),
            ("worker 0.0", "ep_poll, system call 232"),
            ("worker 1.0", "ep_poll, system call 232"),
        ]
    )
)
STATES = "2 worker S (ep_poll, system call 232), 1 plimsoll S (futex_wait, system call 202)"


class Agent:
    """Answers for one process: what it prints, from the n-th question on, and its threads."""

    def __init__(self, reports: Sequence[Report], threads: tuple[ThreadReading, ...] | LabError = THREADS) -> None:
        self.reports, self.threads = list(reports), threads

    def ask(self, message: object) -> object:
        """Answer a message."""
        if isinstance(message, ReadThreads):
            if isinstance(self.threads, LabError):
                raise self.threads
            return self.threads
        assert isinstance(message, Await)
        return (self.reports.pop(0) if self.reports else report(),)


def report(*lines: str, code: int | None = None) -> Report:
    """Of process 7."""
    return Report(process=7, lines=lines, stderr_tail="", exit_code=code)


def a_process(agent: Agent) -> HostProcess:
    """Which the agent answers for."""
    return HostProcess(cast("Connection", agent), 7, None)


def await_ready(process: Process, wait: Callable[[float], None]) -> str:
    """Wait a second for a role."""
    host = cast("Host", SimpleNamespace(addresses=("10.0.0.3",), wait=lambda _, most_s: wait(most_s)))
    record: Json = {}
    return parts._await_ready(host, process, None, 1.0, record, "the role forwarder")


def test_a_role_that_was_ready_while_the_laboratory_slept_past_the_end_is_ready(clock: Clock) -> None:
    """It was not looked at again, and the trial failed: it said nothing."""
    ready = json.dumps({"event": "ready", "addresses": ["*:7000"]})
    # Its lines and whether it has ended are asked for in turn.
    agent = Agent([report(), report(), report(ready)])
    assert await_ready(a_process(agent), clock.sleeping([1.5])) == "10.0.0.3:7000"


def test_a_network_that_was_ready_while_the_laboratory_slept_past_the_end_is_ready(clock: Clock) -> None:
    wait = clock.sleeping([netns.READY_S + 1.0])
    local = cast("LocalHost", SimpleNamespace(wait=lambda _, most_s: wait(most_s)))
    process = a_process(Agent([report(), report(), report("kept")]))
    assert netns._await(local, process, "the host h1", "kept") == "kept"


def test_a_role_that_is_never_ready_is_told_with_what_it_printed_and_does(clock: Clock) -> None:
    agent = Agent([report(), report(), report("warming up")])
    late = "the role forwarder was not ready within 1 s"
    with pytest.raises(TrialFailure) as caught:
        await_ready(a_process(agent), clock.sleeping([0.5, 0.6]))
    assert str(caught.value) == f"{late}; it said: warming up; its state: {STATES}"
    with pytest.raises(TrialFailure) as caught:
        await_ready(a_process(Agent([])), clock.sleeping([1.1]))
    assert str(caught.value) == f"{late}; it said: nothing; its state: {STATES}"


def test_states_are_told_of_each_process_in_few_words() -> None:
    ended = a_process(Agent([report(code=3)]))
    unknown = a_process(Agent([], LabError("it cannot be read")))
    stranger = cast("Process", SimpleNamespace())
    killed = a_process(Agent([report(code=-9)]))
    parts = {"load": a_process(Agent([])), "relay": ended, "idle": killed, "far": unknown, "server": stranger}
    assert states_of(parts) == (
        f"load: {STATES}; relay: ended with exit code 3; idle: ended: killed by SIGKILL; "
        "far: not known (it cannot be read); server: not started by the laboratory"
    )
    assert in_groups(()) == ""


@pytest.mark.parametrize(
    ("waited_s", "told"), [(0.9, ""), (12.34, ", one of them ready without a CPU for 12.3 s in all")]
)
def test_a_process_that_had_no_cpu_for_long_is_told_so(waited_s: float, told: str) -> None:
    first, *others = THREADS
    starved = replace(first, run_queue=RunQueue(ran_s=0.1, waited_s=waited_s, turns=3))
    assert states_of({"load": a_process(Agent([], (starved, *others)))}) == f"load: {STATES}{told}"


def test_a_host_that_is_lost_as_it_is_asked_is_the_reason() -> None:
    with pytest.raises(HostLost):
        states_of({"load": a_process(Agent([], HostLost("h1", "it ended")))})


def test_what_a_generator_said_last_is_told_with_when() -> None:
    assert last_said("load", None, 80.0) == "load said nothing"
    assert last_said("load-2", "all_up", 78.4) == "load-2 said all_up 78 s before and nothing since"
