"""The port forwarder beside haproxy and nginx (stream): its own CPU for a request, for a byte, and for a connection.

One worker of the forwarder on one CPU; the echo server behind it and the generator on the other. A peer that is not
installed is said, and its rows are left out.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import PLIMSOLL, BenchError, Contender, Row, compare, run_load, save, serving

FORWARDER_CPU, REST_CPU = 0, 1

HAPROXY = """
global
    nbthread 1
    maxconn 4000
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
listen echo
    bind "127.0.0.1:${PORT}"
    server echo 127.0.0.1:SERVER
"""

NGINX = """
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; worker_processes 1; user root; pid FOLDER/pid; error_log FOLDER/error.log;
events { worker_connections 8000; }
stream { server { listen 127.0.0.1:PORT; tcp_nodelay on; proxy_pass 127.0.0.1:SERVER; } }
"""


def ours(server: int, name: str = "forward") -> Contender:
    """Our forwarder, with one event loop."""
    mapping = f"127.0.0.1:{{port}}=127.0.0.1:{server}"
    command = (PLIMSOLL, "forward", mapping, "--workers", "1", "--drain", "1s", "--quiet")
    return Contender(name=name, command=command, cpu=FORWARDER_CPU)


def haproxy(server: int, folder: Path) -> Contender:
    """One thread of haproxy."""
    config = folder / "haproxy.cfg"
    config.write_text(HAPROXY.replace("SERVER", str(server)))
    command = ("env", "PORT={port}", "haproxy", "-q", "-db", "-f", str(config))
    return Contender(name="haproxy", command=command, cpu=FORWARDER_CPU)


def nginx(server: int, folder: Path) -> Contender:
    """The stream module of nginx, with one worker."""
    template = folder / "nginx.template"
    template.write_text(NGINX.replace("SERVER", str(server)).replace("FOLDER", str(folder)))
    script = f"sed s/PORT/{{port}}/ {template} > {folder}/nginx.conf; exec nginx -c {folder}/nginx.conf"
    return Contender(name="nginx", command=("sh", "-c", script), cpu=FORWARDER_CPU)


def cost(shape: str, unit: Callable[[int], float]) -> Callable[[Contender], float]:
    """What the forwarder itself spends on a unit of work, `unit` making units of completed requests."""

    def measure(contender: Contender) -> float:
        with serving(contender) as forwarder:
            arguments = ["echo", f"127.0.0.1:{forwarder.port}", *shape.split(), "-t", "1", "--verify", "length"]
            summary = run_load(arguments, REST_CPU)
            if summary["requests"]["failed"] or summary["requests"]["timed_out"]:
                raise BenchError(f"requests failed through {contender.name}: {summary['errors']}")
        return forwarder.cpu_seconds / unit(int(summary["requests"]["completed"]))

    return measure


@contextmanager
def echo() -> Iterator[int]:
    """The server behind the forwarders; its port."""
    command = (PLIMSOLL, "serve", "echo", "--workers", "1", "--listen", "127.0.0.1:{port}", "--quiet")
    with serving(Contender(name="echo", command=command, cpu=REST_CPU)) as server:
        yield server.port


def main() -> None:
    """Measures every row."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=100_000)
    options = parser.parse_args()
    requests: int = options.requests
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, echo() as server:
        peers = {"haproxy": haproxy(server, Path(folder)), "nginx": nginx(server, Path(folder))}
        for name in [name for name in peers if shutil.which(name) is None]:
            print(f"left out: {name} is not installed (`apt-get install {name}`)")
            del peers[name]
        one = float
        works = [
            ("255 B", f"-c 100 -s 255B -n {requests}", one, "CPU us a request", 0.88),
            ("4000 B", f"-c 100 -s 4000B -n {requests}", one, "CPU us a request", 0.88),
            # Both ways: twice the size for each request.
            (
                "1 MiB messages",
                f"-c 4 -s 1MiB -n {requests // 50}",
                lambda n: n * 2 * 1048576 / 1e9,
                "CPU us a GB",
                0.25,
            ),
            (
                "a connection a request",
                f"-c 100 -s 255B -n {requests // 5} --reconnect",
                one,
                "CPU us a connection",
                1.0,
            ),
        ]
        again = cost(works[0][1], one)
        rows.append(
            compare(
                "forward 255 B: A/A", works[0][3], ours(server), ours(server, "again"), again, rounds=options.rounds
            )
        )
        for what, shape, unit, words, reach in works:
            for name, peer in peers.items():
                row = f"forward {what}: ours / {name}"
                wanted = reach if name == "haproxy" else None
                measure = cost(shape, unit)
                rows.append(compare(row, words, ours(server), peer, measure, rounds=options.rounds, reach=wanted))
    save("forward", rows)


if __name__ == "__main__":
    main()
