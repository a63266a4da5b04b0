"""An echo server that is a queue of known theory: its capacity follows from its construction, not
from this machine.

A request is answered when the queue says so, by a timer and without burning CPU: first come, first
served, 1,000 requests a second, each of SIZE bytes. `lab/tests/queues.py` has the same queues as
theory and as exact simulations.

    python bench/known_server.py PORT [--fixed] [--workers N] [--pauses] [--degrades] [--seed N]
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import math
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab" / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lab"))

from queues import DEGRADED, DEGRADES_AFTER_S, PAUSE_EVERY_S, PAUSE_S, RATE, Server

SIZE = 64
"""Bytes of a request."""


class Line:
    """When each request is answered; the requests are told in the order in which they come."""

    def __init__(self, kind: Server, services: Iterator[float], phase_s: float) -> None:
        self._kind = kind
        self._services = services
        """How long each request is worked on, in mean services."""
        self._phase_s = phase_s
        """Of the pauses, when the server starts."""
        self._free_s = [0.0] * kind.workers
        """When each worker is free, the first one first; by the clock that stands in pauses."""

    def answer_at(self, arrival_s: float) -> float:
        """When a request is answered that comes now; both since the server's start."""
        service_s = next(self._services) * self._kind.workers / RATE
        if self._kind.degrades and arrival_s > DEGRADES_AFTER_S:
            service_s /= DEGRADED
        done_s = max(self._worked_s(arrival_s), self._free_s[0]) + service_s
        heapq.heapreplace(self._free_s, done_s)
        return self._clock_s(done_s)

    def _worked_s(self, at_s: float) -> float:
        """For how long a worker could have worked by then: each period begins with its pause."""
        if not self._kind.pauses:
            return at_s
        periods, inside_s = divmod(at_s + self._phase_s, PAUSE_EVERY_S)
        return periods * (PAUSE_EVERY_S - PAUSE_S) + max(0.0, inside_s - PAUSE_S)

    def _clock_s(self, worked_s: float) -> float:
        """When a worker has worked for so long."""
        if not self._kind.pauses:
            return worked_s
        pauses = math.floor(worked_s / (PAUSE_EVERY_S - PAUSE_S)) + 1
        return worked_s + pauses * PAUSE_S - self._phase_s


def line_of(kind: Server, seed: int) -> Line:
    """A queue whose services and pauses are drawn."""
    luck = random.Random(seed)  # noqa: S311 - a simulation
    phase_s = luck.uniform(0, PAUSE_EVERY_S)

    def services() -> Iterator[float]:
        while True:
            yield 1.0 if kind.fixed else luck.expovariate(1)

    return Line(kind, services(), phase_s)


def serve(listener: socket.socket, line: Line) -> None:
    """Answer every request when it is due, until the process is ended.

    select(2) waits to the microsecond; epoll_wait(2) would to the millisecond.
    """
    began_s = time.monotonic()
    connections: dict[int, tuple[socket.socket, bytearray]] = {}
    due: list[tuple[float, int, socket.socket, bytes]] = []
    taken = 0
    while True:
        wait_s = max(0.0, due[0][0] - (time.monotonic() - began_s)) if due else None
        readable, _, _ = select.select([listener.fileno(), *connections], [], [], wait_s)
        now_s = time.monotonic() - began_s
        for each in readable:
            if each == listener.fileno():
                connection, _ = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connections[connection.fileno()] = (connection, bytearray())
                continue
            connection, held = connections[each]
            data = b""
            with contextlib.suppress(ConnectionError):
                data = connection.recv(1 << 16)
            if not data:
                connection.close()
                del connections[each]
                continue
            held += data
            while len(held) >= SIZE:
                heapq.heappush(due, (line.answer_at(now_s), taken, connection, bytes(held[:SIZE])))
                taken += 1
                del held[:SIZE]
        while due and due[0][0] <= time.monotonic() - began_s:
            _, _, connection, message = heapq.heappop(due)
            with contextlib.suppress(OSError):  # it has closed meanwhile
                connection.sendall(message)


def main() -> None:
    """Serve on a port of the loopback interface."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument(
        "--fixed", action="store_true", help="every request takes the same time, not an exponential one"
    )
    parser.add_argument("--workers", type=int, default=1, help="which share the rate (default: 1)")
    parser.add_argument("--pauses", action="store_true", help="stop for 200 ms every 5 s")
    parser.add_argument("--degrades", action="store_true", help="be slower by a fifth from 30 s on")
    parser.add_argument("--seed", type=int, default=None, help="of all that is drawn (default: drawn)")
    options = parser.parse_args()
    kind = Server(fixed=options.fixed, workers=options.workers, pauses=options.pauses, degrades=options.degrades)
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with socket.create_server(("127.0.0.1", options.port), backlog=4096) as listener:
        print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
        serve(listener, line_of(kind, seed))


if __name__ == "__main__":
    main()
