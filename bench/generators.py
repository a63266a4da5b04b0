"""The generators: what a completed request costs ours, beside its peers on the same server.

HTTP: nginx with one worker on one CPU, the generator with one thread on the other, 64 keep-alive
connections in a closed loop, a file of 600 bytes; wrk, h2load, ab, oha and fortio. Echo: `plimsoll
serve echo` with one worker in nginx's place, messages of 64 bytes, 1 to 1000 connections, also at a
rate; fortio, which speaks plain TCP too. A ratio is of costs, so that below 1 ours is the cheaper:
1/1.25 is 1.25 times as many requests for a CPU second.

A peer that is not here has no row, and that is said. `make bench` puts oha and fortio into
target/tools where it can.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

from harness import PLIMSOLL, ROOT, BenchError, Contender, Row, compare, compiled, nginx, run_to_end, save, serving

SERVER_CPU, LOAD_CPU = 0, 1
FILE_BYTES = 600
CLOSED_LOOP = 1 / 1.30
"""What is to be reached beside fortio without a rate."""

BARE = "paced_echo"
"""The least that a generator at a rate can be, from `bench/bare`."""
COMPLETED = {
    "plimsoll": r'"completed":(\d+)',
    BARE: r'"completed":(\d+)',
    "wrk": r"(\d+) requests in",
    "h2load": r"(\d+) succeeded",
    "ab": r"Complete requests:\s+(\d+)",
    "oha": r"\[200\] (\d+) responses",
    "fortio": r'"(?:200|OK)": (\d+)',
}
"""How each says how many requests it completed."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One row: ours, one of its peers, and what is to be reached."""

    title: str
    ours: tuple[str, ...]
    peer: tuple[str, ...]
    reach: float | None = None
    cpu: int | None = LOAD_CPU
    """Where both are kept."""


def comparisons(seconds: int) -> list[Comparison]:
    """The rows; `{url}` stands for what is fetched, `{address}` for the echo server."""
    ours = (PLIMSOLL, "load", "http", "{url}", "-c", "64", "-t", "1", "-d", f"{seconds}s", "--json", "--quiet")
    peers = {
        ("wrk", "-c", "64", "-t", "1", "-d", f"{seconds}s", "{url}"): 1 / 1.25,
        ("h2load", "--h1", "-c", "64", "-t", "1", "-D", str(seconds), "{url}"): None,
        ("ab", "-q", "-k", "-c", "64", "-t", str(seconds), "-n", "100000000", "{url}"): 1.0,
        ("oha", "--no-tui", "-c", "64", "-z", f"{seconds}s", "{url}"): 1 / 1.30,
        fortio("{url}", 64, seconds): CLOSED_LOOP,
    }
    rows = [Comparison(title="load http / itself", ours=ours, peer=ours)]
    rows += [
        Comparison(title=f"load http / {peer[0]}", ours=ours, peer=peer, reach=reach) for peer, reach in peers.items()
    ]
    return rows + echo_comparisons(seconds)


def echo_comparisons(seconds: int) -> list[Comparison]:
    """The rows of plain TCP, for as many connections as fortio has by default (4), fewer and
    more.
    """

    def ours(connections: int, *more: str) -> tuple[str, ...]:
        how = ("-s", "64", "-c", str(connections), "-t", "1", "-d", f"{seconds}s", "--json", "--quiet")
        return (PLIMSOLL, "load", "echo", "{address}", *how, *more)

    def theirs(connections: int, rate: int = 0) -> tuple[str, ...]:
        return fortio("tcp://{address}", connections, seconds, "-payload-size", "64", rate=rate)

    ring = ("--engine", "uring")
    rows = [Comparison(title="load echo, 64: uring / epoll", ours=ours(64, *ring), peer=ours(64))]
    for connections in (1, 4, 16, 64, 1000):
        row = Comparison(
            title=f"load echo, {connections} / fortio tcp",
            ours=ours(connections),
            peer=theirs(connections),
            reach=CLOSED_LOOP,
        )
        rows += [row, replace(row, title=f"load echo uring, {connections} / fortio tcp", ours=ours(connections, *ring))]
    # As it is usually run: with a thread for each CPU that there is.
    rows += [replace(row, title=f"{row.title}, both unpinned", cpu=None) for row in rows if ", 4 /" in row.title]
    # At a rate fortio sleeps in steps of a millisecond, and sends what has become due meanwhile.
    # The bare program sends each request at its own instant, and does nothing else.
    for connections in (4, 64):
        for rate in (1000, 8000, 10_000, 50_000):
            for lag in ((), ("--max-lag", "1ms")):
                paced = ours(connections, "-R", str(rate), "--arrivals", "fixed", *lag)
                title = f"load echo, {connections}, {rate}/s{' '.join(('', *lag))} / fortio tcp, both unpinned"
                rows.append(Comparison(title=title, ours=paced, peer=theirs(connections, rate), cpu=None, reach=1.0))
            least = replace(
                rows[-1],
                title=f"bare C, {connections}, {rate}/s / fortio tcp, both unpinned",
                ours=(BARE, "{port}", str(connections), str(rate), str(seconds)),
                reach=None,
            )
            rows.append(least)
    return rows


def fortio(target: str, connections: int, seconds: int, *more: str, rate: int = 0) -> tuple[str, ...]:
    """Run fortio over so many connections, as fast as it can or at a rate."""
    load = ("-c", str(connections), "-qps", str(rate), "-t", f"{seconds}s", *more, target)
    return ("fortio", "load", "-quiet", "-json", "-", *load)


def program(name: str) -> str | None:
    """Where a generator is: among the tools that `make bench` installs, or on the machine."""
    if name == BARE:
        return compiled(f"{BARE}.c")
    return shutil.which(name, path=f"{ROOT / 'target/tools/bin'}:{os.environ['PATH']}")


def contender(command: tuple[str, ...], cpu: int | None) -> Contender | None:
    """A generator, if it is here."""
    found = program(command[0])
    name = Path(command[0]).name
    return Contender(name=name, command=(found, *command[1:]), cpu=cpu) if found else None


def cost(folder: Path) -> Callable[[Contender], float]:
    """What a completed request costs a generator, in CPU seconds of its own."""
    listen = ("--workers", "1", "--listen", "127.0.0.1:{port}", "--quiet")
    echo = Contender(name="serve echo", command=(PLIMSOLL, "serve", "echo", *listen), cpu=SERVER_CPU)

    def measure(generator: Contender) -> float:
        http = "{url}" in generator.command
        with serving(nginx(folder, "nginx", "open_file_cache max=10;", cpu=SERVER_CPU) if http else echo) as running:
            address = f"127.0.0.1:{running.port}"
            filled = {"{url}": f"http://{address}/file", "{address}": address, "{port}": str(running.port)}
            command = [
                reduce(lambda text, place: text.replace(place, filled[place]), filled, part)
                for part in generator.command
            ]
            said, seconds = run_to_end(replace(generator, command=command))
        found = re.findall(COMPLETED[generator.name], said)
        if not found or int(found[0]) == 0:
            raise BenchError(f"{generator.name} did not say how many requests it completed: {said[-300:]!r}")
        return seconds / int(found[0])

    return measure


def main() -> None:
    """Measures a row for each peer that is here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--only", default="", help="rows whose title has this in it")
    options = parser.parse_args()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # nginx's workers run as another user where it was started by root.
        folder.chmod(0o755)
        (folder / "file").write_bytes(b"x" * FILE_BYTES)
        for row in comparisons(options.seconds):
            ours, peer = contender(row.ours, row.cpu), contender(row.peer, row.cpu)
            if options.only not in row.title or ours is None:
                continue
            if peer is None:
                print(f"{row.title:<52} no row: {row.peer[0]} is not installed")
                continue
            rows.append(
                compare(row.title, "CPU us a request", ours, peer, cost(folder), rounds=options.rounds, reach=row.reach)
            )
    save("generators", rows)


if __name__ == "__main__":
    main()
