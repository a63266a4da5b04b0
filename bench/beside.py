"""Small messages through one rule of a forwarder beside bulk through another: what people at a
keyboard feel while somebody copies files.

An open loop sends a small message a millisecond over 64 connections, as 1 and 16 streams move bulk.
The forwarder has one event loop on a CPU of its own. Everything else is on the other CPU, where the
generator and the echo server run before the streams as soon as they have something to do: so the
response times are the forwarder's. The bulk is at 127.0.0.1, and the messages are at 127.0.0.2 of
the same port.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from forward import REST_CPU, STREAMS
from forwarders import FORWARDER_CPU, HAPROXY
from harness import (
    PLIMSOLL,
    BenchError,
    Contender,
    Row,
    compare_all,
    enter_namespace,
    first_on_its_cpu,
    pinned,
    run_load,
    save,
    serving,
)

SMALL = ("-c", "64", "-R", "1000", "-s", "255B", "-t", "1", "--verify", "length")
PIECE_BYTES = 1_000_000_000
"""What a round's streams move together before each is followed by another."""
UNITS = {" p50": "us", " p99": "us", " p99.9": "us", " CPU": "us a GB", " time": "us a GB"}


def ours(bulk: int, small: int, name: str = "forward", program: str = PLIMSOLL) -> Contender:
    """Our forwarder, with a rule for each."""
    mappings = [f"127.0.0.1:{{port}}=127.0.0.1:{bulk}", f"127.0.0.2:{{port}}=127.0.0.1:{small}"]
    command = (program, "forward", *mappings, "--workers", "1", "--drain", "1s", "--quiet")
    return Contender(name=name, command=command, cpu=FORWARDER_CPU)


def haproxy(bulk: int, small: int, folder: Path) -> Contender:
    """One thread of haproxy, with a rule for each."""
    config = folder / "haproxy.cfg"
    messages = HAPROXY.partition("listen")[2].replace("127.0.0.1:${PORT}", "127.0.0.2:${PORT}")
    messages = messages.replace("echo", "messages").replace("SERVER", str(small))
    config.write_text(HAPROXY.replace("SERVER", str(bulk)) + "listen" + messages)
    command = ("env", "PORT={port}", "haproxy", "-q", "-db", "-f", str(config))
    return Contender(name="haproxy", command=command, cpu=FORWARDER_CPU)


def costs(streams: int, direction: str, seconds: float) -> Callable[[Contender], Mapping[str, float]]:
    """Response times of the messages, and what the forwarder spends for a GB of bulk, with the
    messages' part, and how long a GB takes.
    """

    def measure(contender: Contender) -> Mapping[str, float]:
        with serving(contender) as forwarder:
            # Bulk begins before the messages, and ends after them.
            arguments = ["load", str(forwarder.port), direction, str(streams), str(PIECE_BYTES), str(seconds + 2)]
            command = pinned([sys.executable, STREAMS, *arguments], REST_CPU)
            bulk = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                target = [f"127.0.0.2:{forwarder.port}", *SMALL, "--warm-up", "1s", "-d", f"{seconds:g}s"]
                summary = run_load(["echo", *target], REST_CPU, prepared=first_on_its_cpu)
                moved, said = bulk.communicate(timeout=60)
            finally:
                bulk.kill()
        requests = summary["requests"]
        if bulk.returncode or requests["failed"] or requests["timed_out"]:
            raise BenchError(f"{contender.name}: {said.strip()[-300:]} {summary['errors']}")
        gigabytes, times = int(moved) / 1e9, summary["response_time_us"]
        return {
            " p50": times["p50"],
            " p99": times["p99"],
            " p99.9": times["p99_9"],
            " CPU": forwarder.cpu_seconds * 1e6 / gigabytes,
            " time": (seconds + 2) * 1e6 / gigabytes,
        }

    return measure


def main() -> None:
    """Measures one stream and sixteen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--streams", default="1,16", help="how many at a time, comma-separated")
    parser.add_argument("--direction", choices=("up", "down", "both"), default="up")
    parser.add_argument("--former", help="another build of ours, to be compared with instead of itself")
    options = parser.parse_args()
    enter_namespace()
    if shutil.which("haproxy") is None:
        raise BenchError("no haproxy to measure with: install one (`make peers` or `apt-get install haproxy`)")
    echo = first_on_its_cpu([PLIMSOLL, "serve", "echo", "--workers", "1", "--listen", "127.0.0.1:{port}", "--quiet"])
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory() as name,
        serving(Contender(name="echo", command=echo, cpu=REST_CPU)) as messages,
        serving(Contender(name="streams", command=(sys.executable, STREAMS, "serve", "{port}"), cpu=REST_CPU)) as bulk,
    ):
        ports = (bulk.port, messages.port)
        former = ours(*ports, "former", options.former) if options.former else ours(*ports, "itself")
        contenders = [ours(*ports), former, haproxy(*ports, Path(name))]
        for streams in map(int, options.streams.split(",")):
            rows += compare_all(
                f"beside {streams} {options.direction}",
                contenders,
                costs(streams, options.direction, options.seconds),
                units=UNITS,
                rounds=options.rounds,
                reach={(" p99", "haproxy"): 1.0, (" CPU", "haproxy"): 0.25},
            )
    for row in rows:
        first, second = ([cost[place] for cost in row.costs] for place in (0, 1))
        print(f"{row.name:<44} {row.a} {min(first):.0f} to {max(first):.0f}, ", end="")
        print(f"{row.b} {min(second):.0f} to {max(second):.0f} {row.unit}")
    save("beside", rows)


if __name__ == "__main__":
    main()
