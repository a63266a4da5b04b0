"""A connection to an agent through an actor of Ray, and the watch for hosts that have gone.

Ray reports an actor's end at once and a node's in seconds, but a cut link only after minutes unless
a cluster is configured otherwise. So a host that has been silent for two seconds is asked for an
answer, and is lost if none comes within five more: within ten seconds, whatever the cluster's
configuration. An actor that is being started cannot give any sign yet: it has a minute.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from plimsoll_lab.hosts.host import NotifyingConnection
from plimsoll_lab.hosts.messages import CHANGE_NOTHING, AnswerT, Await, Message, Report, Stop
from plimsoll_lab.problem import HostLost, Interrupted, LabError

SILENT_S = 2.0
"""Seconds without an answer after which a host is probed."""
LOST_S = 5.0
"""Seconds without an answer to a probe after which it is lost; a busy machine answers in 0.1
s."""
LOOK_S = 0.5
"""Seconds between two looks for an answer meanwhile."""
OPENS_S = 60.0
"""How long an actor and its agent may take to start: a second or two, but Ray starts a Python for
each, and on two CPUs with ten of them that took more than seven."""
WATCH_S = 600.0
"""How long one `Await` of an agent lasts at most."""
ANSWER_S = 120.0
"""Against hanging: how long an agent that still answers may take for a message without a
time-out."""


class RayConnection:
    """To the agent of one host."""

    def __init__(self, name: str, actor: Any) -> None:  # noqa: ANN401 - Ray's own type is made at run time
        self.name = name
        """The host's, for errors."""
        self._ray: Any = importlib.import_module("ray")
        self._actor = actor
        self._sent = 0
        self._lost: HostLost | None = None
        self._heard_at = time.monotonic()
        self._sign: Any = None
        self._sign_awaited_s = 0.0
        self._looked_at = 0.0
        self._open: Any = None
        self._open_for: tuple[int, ...] = ()
        self._deliver: Callable[[Sequence[Report]], None] = lambda _: None
        self._opening = actor.open.remote()

    @property
    def lost(self) -> HostLost | None:
        """Why it is lost; None while it is there."""
        return self._lost

    def finish_opening(self) -> None:
        """Wait until the agent has been started. Raises `HostLost` where Ray says that the actor
        cannot be, or after OPENS_S.
        """
        deadline = time.monotonic() + OPENS_S
        while not self._wait([self._opening], LOOK_S, fetch=True):
            if time.monotonic() > deadline:
                raise self._mark_lost(f"its agent did not start within {OPENS_S:.0f} s")
        self._result(self._opening, ANSWER_S)

    def ask(self, message: Message[AnswerT]) -> AnswerT:
        """Send a message and return the answer. Raises `HostLost` where the host has gone, or
        `LabError` where the agent cannot do what it is asked.
        """
        if self._lost is not None:
            raise self._lost
        least_s = message.timeout_s if isinstance(message, Await) else 0.0
        least_s = message.grace_s if isinstance(message, Stop) else least_s
        asked = self._send(message)
        if self._open is not None and not isinstance(message, CHANGE_NOTHING):
            # The agent answers the open `Await` first, so its reports come before this answer.
            self._collect()
        reply: tuple[AnswerT, LabError | None] = self._result(asked, least_s + ANSWER_S)
        answer, error = reply
        if error is not None:
            raise error
        return answer

    def watch(self, processes: Sequence[int], deliver: Callable[[Sequence[Report]], None]) -> None:
        """Have news of these processes delivered, once."""
        if self._lost is not None:
            raise self._lost
        if self._open is not None:
            if set(self._open_for) == set(processes):
                return
            # Another question closes the open one.
            self.ask(Await(processes=(), timeout_s=0.0))
        self._open_for, self._deliver = tuple(processes), deliver
        self._open = self._send(Await(processes=self._open_for, timeout_s=WATCH_S))

    def is_watched(self, process: int) -> bool:
        """Whether news of a process would be delivered; takes what has come meanwhile."""
        if self._open is None or process not in self._open_for:
            return False
        self._take_ready([self])
        return True

    def wait_any(self, others: Sequence[NotifyingConnection], timeout_s: float) -> None:
        """Sleep until news has been delivered of one of several connections, or the time is over.
        Raises `HostLost` where one of them has gone.
        """
        connections = [each for each in others if isinstance(each, RayConnection)]
        deadline = time.monotonic() + timeout_s
        while True:
            for each in connections:
                each._probe_liveness()  # noqa: SLF001 - of the same class
            left_s = deadline - time.monotonic()
            opened = [each._open for each in connections if each._open is not None]  # noqa: SLF001
            pause_s = max(0.0, min(left_s, LOOK_S))
            if opened:
                self._wait(opened, pause_s)
            else:
                time.sleep(pause_s)
            if self._take_ready(connections) or left_s <= LOOK_S:
                return

    def close(self) -> None:
        """End the agent and the actor; nothing where the host is lost."""
        try:
            if self._lost is None:
                self._result(self._actor.close.remote(), ANSWER_S)
        except LabError:
            pass
        finally:
            self._ray.kill(self._actor)

    def _send(self, message: Message[Any]) -> Any:  # noqa: ANN401 - as above
        """Call the actor with the message's number, as calls may overtake one another."""
        self._sent += 1
        try:
            return self._actor.ask.remote(self._sent, message)
        except BaseException:
            # It may be under way or not: where it is not, the agent would wait for its number.
            self._mark_lost("a message to it was broken off")
            raise

    def _take_ready(self, connections: Sequence[RayConnection]) -> bool:
        """Deliver the news that has come; whether there was any."""
        opened = {each._open: each for each in connections if each._open is not None}  # noqa: SLF001
        if not opened:
            return False
        ready = self._wait(list(opened), 0.0, most=len(opened))
        for reference in ready:
            opened[reference]._collect()  # noqa: SLF001
        return bool(ready)

    def _collect(self) -> None:
        """Deliver what the open question brings."""
        opened, deliver = self._open, self._deliver
        self._open = None
        reply: tuple[Sequence[Report], LabError | None] = self._result(opened, ANSWER_S)
        answer, error = reply
        if error is not None:
            raise error
        deliver(answer)

    def _result(self, reference: Any, most_s: float) -> Any:  # noqa: ANN401 - as above
        """What a call brings, while the host gives signs."""
        deadline = time.monotonic() + most_s
        while True:
            if self._wait([reference], LOOK_S, fetch=True):
                break
            self._probe_liveness()
            if time.monotonic() > deadline:
                raise self._mark_lost(f"its agent did not answer within {most_s:.0f} s")
        try:
            result: object = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise self._mark_lost(_in_a_line(error)) from None
        self._heard_at = time.monotonic()
        return result

    def _wait(self, references: list[Any], most_s: float, *, most: int = 1, fetch: bool = False) -> list[Any]:
        """The calls that have been answered: none of them only when the time is over. Raises
        `Interrupted`.
        """
        try:
            ready, _ = self._ray.wait(references, num_returns=most, timeout=most_s, fetch_local=fetch)
        except SystemError as error:
            # A signal came as Ray's own code returned: to Python that is a function with a result
            # and an exception.
            if isinstance(error.__cause__, Interrupted):
                raise error.__cause__ from None
            raise
        found: list[Any] = ready
        return found

    def _probe_liveness(self) -> None:
        if self._lost is not None:
            raise self._lost
        now = time.monotonic()
        # While the lab is held up itself (a suspended machine, SIGSTOP), no answer can reach it.
        self._sign_awaited_s += min(now - self._looked_at, 2 * LOOK_S)
        if self._sign is not None:
            if self._wait([self._sign], 0.0, fetch=True):
                sign, self._sign = self._sign, None
                self._result(sign, ANSWER_S)
            elif self._sign_awaited_s > LOST_S:
                raise self._mark_lost(f"no answer for {now - self._heard_at:.1f} s")
        elif now - self._heard_at > SILENT_S:
            self._sign, self._sign_awaited_s = self._actor.ping.remote(), 0.0
        self._looked_at = now

    def _mark_lost(self, reason: str) -> HostLost:
        self._lost = HostLost(self.name, reason)
        return self._lost


def _in_a_line(error: Exception) -> str:
    """The line of one of Ray's errors that says why."""
    cause = getattr(error, "cause", None)
    if cause is not None:
        return str(cause)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    why = next((line for line in lines if line.startswith("The actor")), lines[0] if lines else type(error).__name__)
    return why.split(". ")[0]
