"""The HTTP servers: CPU per request of ours beside nginx with one worker, for small and large
files.

One worker on one CPU, the generator on the other, 64 connections in a closed loop (8 for the
largest file), in a network namespace of its own with cubic where that is allowed. nginx is as
Debian sets it (`sendfile` and `tcp_nopush` on), without its access log; a second row gives it
`open_file_cache`, with which it opens a file once and answers with what it was, while ours sees
each change at the next request.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import PLIMSOLL, BenchError, Contender, Row, compare, enter_namespace, nginx, run_load, save, serving

SERVER_CPU, LOAD_CPU = 0, 1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What is asked for in one row."""

    name: str
    bytes: int
    connections: int
    requests: int
    """By keep-alive."""
    apart: int
    """Where each has a connection of its own."""
    reach: float | None = None
    """The ratio to reach by keep-alive; None where none is asked for."""


SHAPES = (
    Shape(name="600 B", bytes=600, connections=64, requests=200_000, apart=20_000, reach=0.50),
    Shape(name="64 KiB", bytes=64 << 10, connections=64, requests=40_000, apart=15_000),
    Shape(name="8 MiB", bytes=8 << 20, connections=8, requests=600, apart=600),
)
REACH_APART = 1.0
"""The ratio to reach for each file where a request has a connection of its own."""


def ours(folder: Path, model: str) -> Contender:
    """One of our models, with one event loop where it has any."""
    workers = () if model in ("threads", "fork") else ("--workers", "1")
    listen = ("--listen", "127.0.0.1:{port}", "--root", str(folder))
    return Contender(
        name=model, command=(PLIMSOLL, "serve", "http", "--model", model, *workers, *listen), cpu=SERVER_CPU
    )


def cost(shape: Shape, manner: Sequence[str]) -> Callable[[Contender], float]:
    """What a request for this costs a contender."""
    requests = shape.apart if manner else shape.requests

    def measure(contender: Contender) -> float:
        with serving(contender) as server:
            url = f"http://127.0.0.1:{server.port}/{shape.bytes}"
            arguments = ["-c", str(shape.connections), "-n", str(requests), "-t", "1", *manner]
            summary = run_load(["http", url, *arguments], LOAD_CPU)
        completed = summary["requests"]["completed"]
        if summary["status_codes"] != {"2xx": completed} or summary["bytes_received"] < completed * shape.bytes:
            raise BenchError(f"{contender.name} did not send {completed} files: {summary['status_codes']}")
        return server.cpu_seconds / int(completed)

    return measure


def main() -> None:
    """Measures every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", default="epoll,uring", help="comma-separated")
    parser.add_argument("--shapes", default=",".join(shape.name for shape in SHAPES), help="comma-separated")
    options = parser.parse_args()
    enter_namespace()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # nginx's workers run as another user where it was started by root.
        folder.chmod(0o755)
        for shape in SHAPES:
            (folder / str(shape.bytes)).write_bytes(b"x" * shape.bytes)
        plain = nginx(folder, "nginx", "", cpu=SERVER_CPU)
        caching = nginx(folder, "nginx caching", "open_file_cache max=10;", cpu=SERVER_CPU)
        for shape in [shape for shape in SHAPES if shape.name in options.shapes.split(",")]:
            goals = (((), "kept alive", shape.reach), (("--reconnect",), "a connection each", REACH_APART))
            for manner, words, reach in goals:
                for model in options.models.split(","):
                    peers = [(plain, reach)]
                    # nginx with its files open has a row without a goal.
                    if (shape.name, words, model) == ("600 B", "kept alive", "epoll"):
                        peers.append((caching, None))
                    for peer, goal in peers:
                        title = f"http {shape.name}, {words}: {model} / {peer.name}"
                        measure = cost(shape, manner)
                        contender = ours(folder, model)
                        row = compare(
                            title, "CPU us a request", contender, peer, measure, rounds=options.rounds, reach=goal
                        )
                        rows.append(row)
    save("http", rows)


if __name__ == "__main__":
    main()
