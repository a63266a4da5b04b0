"""The echo servers: CPU per request of our epoll against a bare C epoll loop, and of other models
against it.

One worker on one CPU, the generator on the other, 64 connections in a closed loop.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from harness import PLIMSOLL, Contender, Row, compare, compiled, run_load, save, serving

SIZES = (64, 255, 4000)
SMALL = 255
"""Up to this size io_uring is to be cheaper than epoll; above, the copies weigh more than the
calls."""
SERVER_CPU, LOAD_CPU = 0, 1


def ours(model: str, name: str | None = None) -> Contender:
    """One of our models, with one event loop."""
    command = (PLIMSOLL, "serve", "echo", "--model", model, "--workers", "1", "--listen", "127.0.0.1:{port}")
    return Contender(name=name or model, command=command, cpu=SERVER_CPU)


def cost(size: int, requests: int) -> Callable[[Contender], float]:
    """What a request of this size costs a contender."""

    def measure(contender: Contender) -> float:
        with serving(contender) as server:
            target = f"127.0.0.1:{server.port}"
            shape = f"-c 64 -n {requests} -s {size}B -t 1 --verify length".split()
            summary = run_load(["echo", target, *shape], LOAD_CPU)
        return server.cpu_seconds / int(summary["requests"]["completed"])

    return measure


def main() -> None:
    """Measures every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=200_000)
    options = parser.parse_args()
    bare = Contender(name="bare C epoll", command=(compiled("epoll_echo.c"), "{port}"), cpu=SERVER_CPU)
    rows: list[Row] = []
    for size in SIZES:
        measure = cost(size, options.requests)
        pairs = [
            (ours("epoll"), ours("epoll", "epoll again"), None),
            (ours("epoll"), bare, 1.03),
            (ours("uring"), ours("epoll"), 0.97 if size <= SMALL else 1.04),
            (ours("epoll-et"), ours("epoll"), None),
        ]
        for a, b, reach in pairs:
            name = f"echo {size} B: {a.name} / {b.name}"
            rows.append(compare(name, "CPU us a request", a, b, measure, rounds=options.rounds, reach=reach))
    save("echo", rows)


if __name__ == "__main__":
    main()
