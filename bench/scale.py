"""What a connection costs as there are more of them: from 1 to 1,000,000, in one server and one
generator command.

For each model and number of connections: every connection is up before the first request
(`--barrier`), then each sends two, or more where there are few. Told apart are the establishment
(connections a second) and the requests (CPU of the server's process a request, completed rate);
memory is the server's own, user space only, with every connection up. The slope between 100,000 and
the most is the memory of one idle connection. Not a comparison: the machine's speed shifts from row
to row.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import BUILD, PLIMSOLL, BenchError, Contender, serving

LOADS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
MANY = 100_000
"""From here on memory grows with the connections alone: what is there once no longer shows."""
ENOUGH_REQUESTS = 20_000
"""In all, so that a few connections are measured for longer than a clock tick."""
TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Point:
    """One model at one number of connections."""

    model: str
    connections: int
    requests_each: int
    established: int
    completed: int
    failed: int
    establishment_s: float
    """From the start of the generator until every connection was up."""
    requests_s: float
    """From the barrier until the last request was answered."""
    server_cpu_us_per_request: float
    server_memory_bytes: int
    """Resident, of the process, at the barrier."""

    @property
    def connect_and_echo_rate(self) -> float:
        """Connections a second that were opened and had one request answered."""
        return self.connections / (self.establishment_s + self.requests_s / self.requests_each)

    def words(self) -> str:
        """The point as a person reads it."""
        return (
            f"{self.model:<6} {self.connections:>9,} connections: "
            f"{self.connections / self.establishment_s:>7,.0f} connects/s, "
            f"{self.connect_and_echo_rate:>7,.0f} with an echo, "
            f"{self.completed / self.requests_s:>8,.0f} requests/s, {self.server_cpu_us_per_request:6.2f} us CPU each, "
            f"{self.server_memory_bytes / 1e6:6.1f} MB, {self.failed} failed"
        )


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The server, as it was at one moment."""

    at: float
    cpu_s: float
    memory_bytes: int

    @staticmethod
    def of(pid: int) -> Moment:
        """Now."""
        return Moment(at=time.monotonic(), cpu_s=cpu_seconds(pid), memory_bytes=resident_bytes(pid))


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and its reaped children (proc_pid_stat(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) * TICK_SECONDS


def resident_bytes(pid: int) -> int:
    """Resident memory of a process (proc_pid_statm(5))."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(model: str, connections: int) -> Point:
    """Brings that many connections up, and has each send its requests."""
    each = max(2, ENOUGH_REQUESTS // connections)
    command = (PLIMSOLL, "serve", "echo", "--model", model, "--listen", "127.0.0.1:{port}")
    with serving(Contender(name=model, command=command)) as server:
        shape = f"-c {connections} --barrier --each {each} --timeout 5m --json --quiet".split()
        load = [PLIMSOLL, "load", "echo", f"127.0.0.1:{server.port}", *shape]
        began = time.monotonic()
        moments = {}
        record: dict[str, Any] = {}
        with subprocess.Popen(load, stdout=subprocess.PIPE, text=True) as generator:
            for line in generator.stdout or ():
                record = json.loads(line)
                moments[record["event"]] = Moment.of(server.process.pid)
    up, done = moments.get("window_opened"), moments.get("window_closed")
    if generator.returncode not in (0, 4) or up is None or done is None:
        raise BenchError(f"{' '.join(load)} exited with {generator.returncode}")
    requests = record["requests"]
    return Point(
        model=model,
        connections=connections,
        requests_each=each,
        established=record["connections"]["established"],
        completed=requests["completed"],
        failed=requests["scheduled"] - requests["completed"],
        establishment_s=up.at - began,
        requests_s=done.at - up.at,
        server_cpu_us_per_request=(done.cpu_s - up.cpu_s) / requests["completed"] * 1e6,
        server_memory_bytes=up.memory_bytes,
    )


def slope(points: list[Point]) -> str:
    """The memory of one more connection, once there are many."""
    many = [point for point in points if point.connections >= MANY]
    if len(many) < 2:  # noqa: PLR2004 - a line needs two points
        return ""
    low, high = many[0], many[-1]
    grown = (high.server_memory_bytes - low.server_memory_bytes) / (high.connections - low.connections)
    return f"{high.model}: {grown:.0f} bytes a connection, from {low.connections:,} to {high.connections:,}"


def main() -> None:
    """Measures every point, and stops at the first that is not whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default="epoll,uring")
    parser.add_argument("--loads", default=",".join(map(str, LOADS)))
    options = parser.parse_args()
    points = []
    for model in options.models.split(","):
        of_model = []
        for connections in map(int, options.loads.split(",")):
            point = measure(model, connections)
            print(point.words(), flush=True)
            of_model.append(point)
            if point.failed or point.established != connections:
                sys.exit(
                    f"{model}: {point.established:,} of {connections:,} connections, {point.failed} failed requests"
                )
        print(slope(of_model))
        points += of_model
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / "scale.json").write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")


if __name__ == "__main__":
    main()
