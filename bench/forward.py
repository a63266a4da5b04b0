"""The port forwarder beside haproxy, nginx (stream), rinetd, socat and realm's relay crate.

What a request, a byte, a connection costs each in CPU and memory, and how long requests take
through it. One worker of the forwarder on one CPU, the echo server and the generator on the other;
or all three on one. In a network namespace of its own with cubic, where that is allowed. A peer
that is not installed is named, and its rows are left out. A bare relay by io_uring or splice is
measured too.
"""

from __future__ import annotations

import argparse
import json
import resource
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from forwarders import FORWARDER_CPU, bare_splice, bare_uring, build_realm, ours, peers
from harness import (
    BUILD,
    PLIMSOLL,
    BenchError,
    Contender,
    Row,
    Running,
    compare_all,
    enter_namespace,
    is_inside,
    pinned,
    run_load,
    serving,
)

REST_CPU = 1
SLOW = "socat"
"""A process for each connection: it gets a tenth of the connections, or a bench would take an
hour."""
IDLE_CONNECTIONS = 4000
SIZES = ("255B", "4000B")

ECHO = (PLIMSOLL, "serve", "echo", "--workers", "1", "--listen", "127.0.0.1:{port}", "--quiet")
STREAMS = str(Path(__file__).with_name("streams.py"))

RING, PIPES = "bare io_uring", "bare splice"

Costs = Callable[[Contender], Mapping[str, float]]


class UnableError(Exception):
    """A forwarder could not do a work: which, and why."""

    def __init__(self, contender: Contender, why: Exception) -> None:
        super().__init__(f"{contender.name}: {why}")
        self.contender = contender


@dataclass(frozen=True, kw_only=True)
class Work:
    """One thing that is measured of every forwarder."""

    name: str
    costs: Costs
    units: Mapping[str, str]
    reach: Mapping[tuple[str, str], float]
    bare: str = ""
    """The bare relay that can do it: "bare io_uring" where it is messages, "bare splice" where it
    is streams."""


def completed(target: Running, shape: str, cpu: int) -> int:
    """Loads a forwarder, all of whose requests must be answered; how many there were."""
    summary = load(target, shape, cpu)
    return int(summary["requests"]["completed"])


def load(target: Running, shape: str, cpu: int) -> dict:  # type: ignore[type-arg]  # the summary, as JSON has it
    """Loads a forwarder, all of whose requests must be answered."""
    arguments = ["echo", f"127.0.0.1:{target.port}", *shape.split(), "-t", "1", "--verify", "length"]
    summary = run_load(arguments, cpu)
    if summary["requests"]["failed"] or summary["requests"]["timed_out"]:
        raise BenchError(f"requests failed through port {target.port}: {summary['errors']}")
    return summary


def own_cost(shape: Callable[[Contender], str], units_in: float = 1.0) -> Costs:
    """What the forwarder itself spends, in CPU microseconds a unit of work; `units_in` a
    request.
    """

    def measure(contender: Contender) -> Mapping[str, float]:
        with serving(contender) as forwarder:
            count = completed(forwarder, shape(contender), REST_CPU)
        return {"": forwarder.cpu_seconds * 1e6 / (count * units_in)}

    return measure


def added_cost(server: Running, shape: str) -> Costs:
    """What the forwarder adds to the whole path, CPU microseconds a request, with all of it on one
    CPU.
    """

    def path(target: Running) -> float:
        """What generator and server spend on a request to the target."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN), cpu_seconds(server.process.pid)
        count = completed(target, shape, FORWARDER_CPU)
        after = resource.getrusage(resource.RUSAGE_CHILDREN), cpu_seconds(server.process.pid)
        generator = sum(after[0][:2]) - sum(before[0][:2])
        return (generator + after[1] - before[1]) / count

    def measure(contender: Contender) -> Mapping[str, float]:
        direct = path(server)
        with serving(contender) as forwarder:
            relayed = path(forwarder)
        count = int(shape.split("-n ")[1])
        return {"": (relayed + forwarder.cpu_seconds / count - direct) * 1e6}

    return measure


def cpu_seconds(pid: int) -> float:
    """CPU time of a living process, to the nanosecond (proc_pid_schedstat: the first field, by
    thread).
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def times(shape: str) -> Costs:
    """Median and 99th percentile of the response time through the forwarder, in microseconds."""

    def measure(contender: Contender) -> Mapping[str, float]:
        with serving(contender) as forwarder:
            response = load(forwarder, shape, REST_CPU)["response_time_us"]
        return {" p50": response["p50"], " p99": response["p99"]}

    return measure


def idle_memory(contender: Contender) -> Mapping[str, float]:
    """User memory of a connection that has relayed a byte and is idle: shared pages counted once,
    children too.
    """
    connections = IDLE_CONNECTIONS // 20 if contender.name == SLOW else IDLE_CONNECTIONS
    with serving(contender) as forwarder:
        held: list[socket.socket] = []
        exchange(forwarder.port, 20, held)
        before = tree_bytes(forwarder.process.pid)
        exchange(forwarder.port, connections, held)
        after = tree_bytes(forwarder.process.pid)
        for connection in held:
            connection.close()
    return {"": (after - before) / connections}


def exchange(port: int, connections: int, held: list[socket.socket]) -> None:
    """Opens connections and has a byte echoed on each."""
    for _ in range(connections):
        connection = socket.create_connection(("127.0.0.1", port), timeout=30)
        connection.sendall(b"x")
        if connection.recv(1) != b"x":
            raise BenchError(f"a connection to port {port} was not relayed")
        held.append(connection)


def tree_bytes(pid: int) -> int:
    """Memory of a process and its descendants (proc_pid_smaps(5), Pss)."""
    total, pids = 0, [pid]
    while pids:
        process = Path(f"/proc/{pids.pop()}")
        try:
            lines = (process / "smaps_rollup").read_text().splitlines()
            pids += [
                int(child) for task in (process / "task").iterdir() for child in (task / "children").read_text().split()
            ]
        except OSError:
            continue  # it has ended meanwhile
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def works(requests: int) -> list[Work]:
    """What is measured with the server on the other CPU, and what is to be reached."""
    small = {("", "haproxy"): 0.88}
    bulk = {("", "haproxy"): 0.25, ("", "realm"): 0.5}
    once = {("", "haproxy"): 1.0, ("", "nginx"): 1.0}
    memory = {("", "haproxy"): 0.25, ("", "nginx"): 0.1}
    best = {(" p99", name): 1.0 for name in ("haproxy", "nginx", "rinetd", "socat", "realm")}
    waits = {" p50": "us", " p99": "us"}

    def once_each(contender: Contender) -> str:
        return f"-c 100 -s 255B -n {requests // (50 if contender.name == SLOW else 5)} --reconnect"

    def alike(shape: str) -> Callable[[Contender], str]:
        return lambda _: shape

    return [
        *(
            Work(
                name=size,
                costs=own_cost(alike(f"-c 100 -s {size} -n {requests}")),
                units={"": "CPU us a request"},
                reach=small,
                bare=RING,
            )
            for size in SIZES
        ),
        Work(
            name="bulk",
            # Both ways: a message is relayed twice.
            costs=own_cost(alike(f"-c 4 -s 1MiB -n {requests // 50}"), 2 * 1048576 / 1e9),
            units={"": "CPU us a GB"},
            reach=bulk,
        ),
        Work(name="connect-request-close", costs=own_cost(once_each), units={"": "CPU us a connection"}, reach=once),
        Work(name="idle memory", costs=idle_memory, units={"": "bytes a connection"}, reach=memory),
        Work(name="1 connection,", costs=times(f"-c 1 -s 255B -n {requests // 5}"), units=waits, reach={}, bare=RING),
        Work(
            name="100 connections,",
            costs=times(f"-c 100 -s 255B -n {requests}"),
            units=waits,
            reach=best,
            bare=RING,
        ),
    ]


def stream_cost(direction: str, streams: int, length: int) -> Costs:
    """What the forwarder itself spends, in CPU microseconds a GB, and how long a GB takes."""
    moved = length * (2 if direction == "both" else 1) / 1e9

    def measure(contender: Contender) -> Mapping[str, float]:
        with serving(contender) as forwarder:
            arguments = ["load", str(forwarder.port), direction, str(streams), str(length)]
            command = pinned([sys.executable, STREAMS, *arguments], REST_CPU)
            begun = time.monotonic()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            seconds = time.monotonic() - begun
        if done.returncode:
            raise BenchError(f"streams through port {forwarder.port}: {done.stderr.strip()[-300:]}")
        return {"": forwarder.cpu_seconds * 1e6 / moved, " time": seconds * 1e6 / moved}

    return measure


def streams(length: int) -> list[Work]:
    """Streams up, down, and both ways at once. Their server is `bench/streams.py`."""
    reach = {("", "haproxy"): 0.25, ("", "realm"): 0.5, (" time", "haproxy"): 1.0, (" time", "realm"): 1.0}
    return [
        Work(
            name=f"streams {direction} {count}",
            costs=stream_cost(direction, count, length),
            units={"": "CPU us a GB", " time": "us a GB"},
            reach=reach,
            bare=PIPES,
        )
        for direction in ("up", "down", "both")
        for count in (1, 2, 16)
    ]


def works_on_one_cpu(requests: int, server: Running) -> list[Work]:
    """What is measured with everything on one CPU."""
    return [
        Work(
            name=f"{size} on one CPU",
            costs=added_cost(server, f"-c 100 -s {size} -n {requests}"),
            units={"": "added CPU us a request"},
            reach={("", "haproxy"): 0.65},
            bare=RING,
        )
        for size in SIZES
    ]


@contextmanager
def setting(
    folder: Path, cpu: int, names: str, command: tuple[str, ...] = ECHO
) -> Iterator[tuple[list[Contender], Running]]:
    """The forwarders of these names, ours first and twice, and the server behind them, which is
    kept on a CPU.
    """
    with serving(Contender(name="server", command=command, cpu=cpu)) as server:
        others = [ours(server.port, "itself"), *peers(server.port, folder)]
        others += [bare_uring(server.port), bare_splice(server.port)]
        if names:
            others = [other for other in others if other.name in names.split(",")]
        yield [ours(server.port), *others], server


def compare_able(work: Work, contenders: list[Contender], rounds: int) -> list[Row]:
    """Compares contenders that can do the work; a peer that cannot is named, and the others are
    measured anew.
    """

    def costs(contender: Contender) -> Mapping[str, float]:
        try:
            return work.costs(contender)
        except (OSError, BenchError) as error:
            raise UnableError(contender, error) from error

    name = f"forward {work.name}"
    while True:
        try:
            return compare_all(name, contenders, costs, units=work.units, rounds=rounds, reach=work.reach)
        except UnableError as unable:
            if unable.contender.command[0] == PLIMSOLL:
                raise
            print(f"left out of {name}: {unable}")
            contenders = [each for each in contenders if each != unable.contender]


def save(rows: list[Row]) -> None:
    """Writes the rows, each with its command, to target/bench/forward.json in place of former ones
    of the same name.

    All rows together take a quarter of an hour: they may be had in parts.
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / "forward.json"
    kept = {row["name"]: row for row in json.loads(path.read_text())} if path.exists() else {}
    command = shlex.join(["python", "bench/forward.py", *sys.argv[1:]])
    for row in rows:
        kept[row.name] = {**asdict(row), "median": row.median, "command": command}
    path.write_text(json.dumps([*kept.values()], indent=1) + "\n")


def main() -> None:
    """Measures every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=60_000)
    parser.add_argument("--stream-bytes", type=int, default=4_000_000_000)
    parser.add_argument("--only", default="", help="works whose names contain one of these, comma-separated")
    parser.add_argument("--against", default="", help="contenders by name, comma-separated; all unless given")
    options = parser.parse_args()
    if not is_inside():
        with suppress(BenchError):  # It is told where realm is to be measured.
            build_realm()
    enter_namespace()

    def measure(of: list[Work], contenders: list[Contender]) -> None:
        for work in of:
            if any(part in work.name for part in options.only.split(",") if part or not options.only):
                who = [each for each in contenders if not each.name.startswith("bare ") or each.name == work.bare]
                save(compare_able(work, who, options.rounds))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with setting(folder, REST_CPU, options.against) as (contenders, _):
            measure(works(options.requests), contenders)
        command = (sys.executable, STREAMS, "serve", "{port}")
        with setting(folder, REST_CPU, options.against, command) as (contenders, _):
            measure(streams(options.stream_bytes), contenders)
        with setting(folder, FORWARDER_CPU, options.against) as (contenders, server):
            measure(works_on_one_cpu(options.requests, server), contenders)


if __name__ == "__main__":
    main()
