"""An agent as a process of its own: it reads messages from its standard input, and answers on its
standard output.

On another machine an agent needs a process of one thread, as it forks; the actor that passes the
messages on has several. It answers in the order of the messages, except that one `Await` may stay
open meanwhile and be answered as soon as a process prints or ends. When its input ends, it ends
everything it has started. So does a process's own deadline, as the machine may be cut off.

A frame is the length of what follows in eight bytes, and pickled data: `(number, message)` in,
`(number, answer, error)` out. Both ends are the same build of the lab.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import sys
import time
from typing import Any

from plimsoll_lab.hosts.agent import Agent, ServedHost
from plimsoll_lab.hosts.messages import CHANGE_NOTHING, Await, Message
from plimsoll_lab.hosts.own_addresses import own_addresses
from plimsoll_lab.problem import LabError

LENGTH = struct.Struct("!Q")
"""Messages that change no process: an open `Await` stays open."""
LONGEST_SLEEP_S = 60.0
"""Against a clock that is set: deadlines are looked at no more seldom."""


def frame(value: object) -> bytes:
    """A value as it crosses."""
    body = pickle.dumps(value)
    return LENGTH.pack(len(body)) + body


class Frames:
    """Takes whole frames out of what was read."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def take(self, read: bytes) -> list[Any]:
        """The values that are whole with what was read."""
        self._kept += read
        found = []
        while len(self._kept) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._kept)
            if len(self._kept) < LENGTH.size + length:
                break
            found.append(pickle.loads(bytes(self._kept[LENGTH.size : LENGTH.size + length])))  # noqa: S301 - our own
            del self._kept[: LENGTH.size + length]
        return found


class Server:
    """Answers what comes in on one descriptor on another."""

    def __init__(self, agent: Agent, read: int, write: int) -> None:
        self._agent, self._read, self._write = agent, read, write
        self._open: tuple[int, Await, float] | None = None
        """The number of the open `Await`, itself, and when it is over."""

    def run(self) -> None:
        """Serve until the input ends."""
        frames = Frames()
        while True:
            ready = self._sleep()
            self._agent.end_overdue(time.monotonic())
            if self._read in ready:
                read = os.read(self._read, 1 << 16)
                if not read:
                    return
                for number, message in frames.take(read):
                    self._take(number, message)
            if self._open is not None and (ready - {self._read} or time.monotonic() >= self._open[2]):
                self._close()

    def _sleep(self) -> set[int]:
        """Wait for a message, an awaited process or a deadline; returns what is ready."""
        ends = [time.monotonic() + LONGEST_SLEEP_S]
        watched = [self._read]
        if (overdue_at := self._agent.next_deadline()) is not None:
            ends.append(overdue_at)
        if self._open is not None:
            ends.append(self._open[2])
            watched += self._agent.watched(self._open[1].processes)
        return set(select.select(watched, [], [], max(0.0, min(ends) - time.monotonic()))[0])

    def _take(self, number: int, message: Message[Any]) -> None:
        if not isinstance(message, CHANGE_NOTHING):
            self._close()
        if isinstance(message, Await) and message.timeout_s > 0:
            self._open = (number, message, time.monotonic() + message.timeout_s)
            return
        self._answer(number, message)

    def _close(self) -> None:
        """Answer the open `Await` with what there is."""
        if self._open is not None:
            number, message, _ = self._open
            self._open = None
            self._answer(number, Await(processes=message.processes, timeout_s=0.0))

    def _answer(self, number: int, message: Message[Any]) -> None:
        answer, error = None, None
        try:
            answer = self._agent.ask(message)
        except LabError as refusal:
            error = refusal
        except Exception as fault:  # noqa: BLE001 - a line for the one who asked, who has no access to this machine
            what = f"internal error of the agent: {type(fault).__name__}: {fault}"
            error = LabError(f"{what}; this is a fault of the lab")
        body = memoryview(frame((number, answer, error)))
        while body:
            body = body[os.write(self._write, body) :]


def main() -> None:
    """Serve one place, this machine, by the name and address in the arguments."""
    name, address = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Not SIG_IGN, which what it starts would inherit (execve(2)).
        signal.signal(number, lambda *_: None)
    # As the lab itself: whoever starts an agent may ignore it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # Text that is printed by mistake must not be taken for a frame.
    write = os.dup(1)
    os.dup2(2, 1)
    with Agent() as agent:
        own = own_addresses(address)
        agent.add(ServedHost(name=name, addresses=own.addresses, interface=own.interface))
        Server(agent, 0, write).run()


if __name__ == "__main__":
    main()
