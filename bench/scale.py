"""What a connection costs as there are more of them: from 1 to 1,000,000, in one server and one generator command.

For each model and number of connections: every connection is up before the first request (`--barrier`), then each sends two. Told apart are the
establishment (connections a second) and the requests (CPU of the server's process a request, completed rate); memory is the server's own, user space only, with every
connection up. The slope between 100,000 and the most is the memory of one idle connection. Not a comparison: the machine's speed shifts from row to row.
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

from harness import BUILD, PLIMSOLL, BenchError, Contender, serving

LOADS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)
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
        return (
            f"{self.model:<8} {self.connections:>9,} connections: {self.connections / self.establishment_s:>8,.0f} connects/s, "
            f"{self.connect_and_echo_rate:>8,.0f} with an echo, {self.completed / self.requests_s:>9,.0f} requests/s, "
            f"{self.server_cpu_us_per_request:6.2f} us of server CPU a request, {self.server_memory_bytes / 1e6:7.1f} MB, {self.failed} failed"
        )


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) * TICK_SECONDS


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(model: str, connections: int) -> Point:
    each = max(2, 20_000 // connections)
    command = (PLIMSOLL, "serve", "echo", "--model", model, "--listen", "127.0.0.1:{port}")
    with serving(Contender(name=model, command=command)) as server:
        pid = server.process.pid
        load = [PLIMSOLL, "load", "echo", f"127.0.0.1:{server.port}", "-c", str(connections), "--barrier", "--each", str(each)]
        began = time.monotonic()
        with subprocess.Popen([*load, "--timeout", "5m", "--json", "--quiet"], stdout=subprocess.PIPE, text=True) as generator:
            assert generator.stdout is not None
            up = cpu = memory = done = spent = None
            for line in generator.stdout:
                record = json.loads(line)
                if record["event"] == "window_opened":
                    up, cpu, memory = time.monotonic(), cpu_seconds(pid), resident_bytes(pid)
                elif record["event"] == "window_closed":
                    done, spent = time.monotonic(), cpu_seconds(pid)
        if generator.returncode not in (0, 4) or up is None or done is None or cpu is None or spent is None or memory is None:
            raise BenchError(f"{' '.join(load)} exited with {generator.returncode}")
    requests, reached = record["requests"], record["connections"]
    return Point(
        model=model,
        connections=connections,
        requests_each=each,
        established=reached["established"],
        completed=requests["completed"],
        failed=requests["scheduled"] - requests["completed"],
        establishment_s=up - began,
        requests_s=done - up,
        server_cpu_us_per_request=(spent - cpu) / requests["completed"] * 1e6,
        server_memory_bytes=memory,
    )


def main() -> None:
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
                sys.exit(f"{model}: {point.established:,} of {connections:,} connections, {point.failed} requests failed")
        low = [point for point in of_model if point.connections >= 100_000][:1]
        if low and of_model[-1] is not low[0]:
            grown = of_model[-1].server_memory_bytes - low[0].server_memory_bytes
            slope = grown / (of_model[-1].connections - low[0].connections)
            print(f"{model:<8} {slope:.0f} bytes of server memory a connection, from {low[0].connections:,} to {of_model[-1].connections:,}")
        points += of_model
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / "scale.json"
    path.write_text(json.dumps([asdict(point) for point in points], indent=1) + "\n")


if __name__ == "__main__":
    main()
