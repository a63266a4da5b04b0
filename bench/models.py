"""The seven models side by side: what each costs per request and per connection, and where it
stops.

One worker on one CPU, the client on the other. What a request costs is CPU time of the server's
process tree at 64 connections in a closed loop; what a connection costs, the same for connect, one
request and close. What an idle connection weighs is the growth between two numbers of connections
of which each has had a request: of the processes' own memory (Pss), and of the kernel's memory for
processes (stacks and page tables) and for everything else (Slab, which has both ends of a
connection). The models take turns, round by round; the table has medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import socket
import statistics
import time
from contextlib import ExitStack
from pathlib import Path

from echo import LOAD_CPU, SERVER_CPU
from harness import BUILD, PLIMSOLL, ROOT, Contender, run_load, serving

MODELS = ("threads", "fork", "select", "poll", "epoll", "epoll-et", "uring")
WEIGHED = {"threads": (100, 2000), "fork": (100, 1000), "select": (100, 900)}
"""How many connections are weighed; processes cost too much for many, and select holds no more."""
WEIGHED_ELSE = (100, 10_000)


def ours(model: str) -> Contender:
    """A model with one event loop where it has any."""
    workers = () if model in ("threads", "fork") else ("--workers", "1")
    command = (PLIMSOLL, "serve", "echo", "--model", model, *workers, "--listen", "127.0.0.1:{port}")
    return Contender(name=model, command=command, cpu=SERVER_CPU)


def cpu_us(model: str, requests: int, *manner: str) -> float:
    """CPU microseconds of the server for each request."""
    with serving(ours(model)) as server:
        shape = ["-c", "64", "-n", str(requests), "-s", "64B", "-t", "1", "--verify", "length", *manner]
        summary = run_load(["echo", f"127.0.0.1:{server.port}", *shape], LOAD_CPU)
    return server.cpu_seconds / int(summary["requests"]["completed"]) * 1e6


def tree(pid: int) -> list[int]:
    """A process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *map(int, children)]


def user_bytes(pid: int) -> int:
    """Memory of a process and its children without counting shared pages twice (proc_pid_smaps(5),
    Pss).
    """
    total = 0
    for each in tree(pid):
        lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def kernel_bytes(*names: str) -> int:
    """The kernel's memory of these kinds (proc_meminfo(5))."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.split(":")[0] in names)


def weigh(model: str) -> dict[str, float]:
    """Bytes for each idle connection."""
    few, many = WEIGHED.get(model, WEIGHED_ELSE)
    many = min(many, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    with serving(ours(model)) as server, ExitStack() as open_ones:

        def figures() -> tuple[int, int, int]:
            time.sleep(1)  # what is freed late is freed by now; nothing is asserted on it
            own = user_bytes(server.process.pid)
            return own, kernel_bytes("KernelStack", "PageTables"), kernel_bytes("Slab")

        def hold(count: int) -> None:
            for _ in range(count):
                connection = open_ones.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
                connection.sendall(b"x")
                connection.recv(1)

        hold(few)
        before = figures()
        hold(many - few)
        growth = [(after - first) / (many - few) for first, after in zip(before, figures(), strict=True)]
    names = ("user_bytes", "kernel_process_bytes", "kernel_other_bytes")
    return dict(zip(names, growth, strict=True)) | {"connections": many}


def ceilings() -> dict[str, str]:
    """What bounds threads, processes and descriptors here."""
    files = {
        "kernel.threads-max": "/proc/sys/kernel/threads-max",
        "kernel.pid_max": "/proc/sys/kernel/pid_max",
        "vm.max_map_count": "/proc/sys/vm/max_map_count",
        "fs.nr_open": "/proc/sys/fs/nr_open",
        "fs.file-max": "/proc/sys/fs/file-max",
    }
    found = {name: Path(path).read_text().strip() for name, path in files.items()}
    for name, kind in (("ulimit -n", resource.RLIMIT_NOFILE), ("ulimit -u", resource.RLIMIT_NPROC)):
        soft, hard = (("unlimited" if value == resource.RLIM_INFINITY else value) for value in resource.getrlimit(kind))
        found[name] = f"{soft}, at most {hard}"
    return found


def main() -> None:
    """Measures every model, and prints the tables of docs/models.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=60_000)
    options = parser.parse_args()
    requests: dict[str, list[float]] = {model: [] for model in MODELS}
    connections: dict[str, list[float]] = {model: [] for model in MODELS}
    for number in range(options.rounds):
        for model in MODELS if number % 2 == 0 else reversed(MODELS):
            requests[model].append(cpu_us(model, options.requests))
            connections[model].append(cpu_us(model, options.requests // 10, "--reconnect"))
    weights = {model: weigh(model) for model in MODELS}
    print("| model | CPU a request | connect, request, close | own memory | stacks and page tables | other kernel |")
    print("|---|---|---|---|---|---|")
    for model in MODELS:
        cpu = [f"{statistics.median(figures[model]):.1f} us" for figures in (requests, connections)]
        own, process, other = (weights[model][name] / 1024 for name in list(weights[model])[:3])
        print(f"| `{model}` | {cpu[0]} | {cpu[1]} | {own:.2f} KiB | {process:.1f} KiB | {other:.1f} KiB |")
    print("\n| ceiling | here |\n|---|---|")
    for name, value in ceilings().items():
        print(f"| {name} | {value} |")
    record = {
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "cpu_us_per_request": requests,
        "cpu_us_per_connection": connections,
        "idle_connection": weights,
        "ceilings": ceilings(),
    }
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / "models.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written to {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
