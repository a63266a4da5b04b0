"""The echo servers: CPU per request of our epoll against a bare C epoll loop, and of our uring and epoll-et against our epoll.

One worker on one CPU, the generator on the other, 64 connections in a closed loop.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from harness import PLIMSOLL, Contender, Row, compare, compiled, run_load, save, serving

SIZES = (64, 255, 4000)
SERVER_CPU, LOAD_CPU = 0, 1


def ours(model: str, name: str | None = None) -> Contender:
    command = (PLIMSOLL, "serve", "echo", "--model", model, "--workers", "1", "--listen", "127.0.0.1:{port}")
    return Contender(name=name or model, command=command, cpu=SERVER_CPU)


def cost(size: int, requests: int) -> Callable[[Contender], float]:
    def measure(contender: Contender) -> float:
        with serving(contender) as server:
            target = f"127.0.0.1:{server.port}"
            arguments = ["echo", target, "-c", "64", "-n", str(requests), "-s", f"{size}B", "-t", "1", "--verify", "length"]
            summary = run_load(arguments, LOAD_CPU)
        completed = summary["requests"]["completed"]  # type: ignore[index]
        return server.cpu_seconds / completed

    return measure


def main() -> None:
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
            (ours("uring"), ours("epoll"), 0.97 if size <= 255 else 1.04),
            (ours("epoll-et"), ours("epoll"), None),
        ]
        for a, b, reach in pairs:
            name = f"echo {size} B: {a.name} / {b.name}"
            rows.append(compare(name, "CPU us a request", a, b, measure, rounds=options.rounds, reach=reach))
    save("echo", rows)


if __name__ == "__main__":
    main()
