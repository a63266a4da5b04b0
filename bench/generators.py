"""The generators: what a completed HTTP request costs ours, beside wrk, h2load, ab, oha and fortio on the same nginx.

nginx with one worker on one CPU, the generator with one thread on the other, 64 keep-alive connections in a closed
loop, a file of 600 bytes. A peer that is not installed has no row.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness import PLIMSOLL, BenchError, Contender, Row, compare, run_to_end, save, serving

SERVER_CPU, LOAD_CPU = 0, 1
FILE_BYTES = 600

NGINX = """
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  open_file_cache max=10;
  server {{ listen 127.0.0.1:PORT; root {folder}; }}
}}
"""

COMPLETED = {
    "plimsoll": r'"completed":(\d+)',
    "plimsoll again": r'"completed":(\d+)',
    "wrk": r"(\d+) requests in",
    "h2load": r"(\d+) succeeded",
    "ab": r"Complete requests:\s+(\d+)",
    "oha": r"\[200\] (\d+) responses",
    "fortio": r"Code 200 : (\d+)",
}
"""How each says how many requests it completed."""


def generator(name: str, *command: str) -> Contender:
    """A generator; `{url}` stands for what it fetches."""
    return Contender(name=name, command=command, cpu=LOAD_CPU)


def contenders(seconds: int) -> tuple[Contender, Contender, list[tuple[Contender, float | None]]]:
    """Ours, ours again, and the peers that are here with the ratio to reach."""
    ours = (PLIMSOLL, "load", "http", "{url}", "-c", "64", "-t", "1", "-d", f"{seconds}s", "--json", "--quiet")
    peers = [
        (generator("wrk", "wrk", "-c", "64", "-t", "1", "-d", f"{seconds}s", "{url}"), 1 / 1.10),
        (generator("h2load", "h2load", "--h1", "-c", "64", "-t", "1", "-D", str(seconds), "{url}"), None),
        (generator("ab", "ab", "-q", "-k", "-c", "64", "-t", str(seconds), "-n", "100000000", "{url}"), 1.0),
        (generator("oha", "oha", "--no-tui", "-c", "64", "-z", f"{seconds}s", "{url}"), 1 / 1.30),
        (generator("fortio", "fortio", "load", "-c", "64", "-qps", "0", "-t", f"{seconds}s", "{url}"), 1 / 3),
    ]
    here = [(peer, reach) for peer, reach in peers if shutil.which(peer.command[0])]
    return generator("plimsoll", *ours), generator("plimsoll again", *ours), here


def cost(folder: Path) -> Callable[[Contender], float]:
    """What a completed request costs a generator, in CPU seconds of its own."""

    def measure(contender: Contender) -> float:
        nginx = shutil.which("nginx")
        if nginx is None:
            raise BenchError("no nginx to load: install one (`apt-get install nginx-light`)")
        script = f"sed s/PORT/{{port}}/ {folder}/template > {folder}/nginx.conf && exec {nginx} -c {folder}/nginx.conf"
        server = Contender(name="nginx", command=("sh", "-c", script), cpu=SERVER_CPU)
        with serving(server) as running:
            url = f"http://127.0.0.1:{running.port}/file"
            command = [part.replace("{url}", url) for part in contender.command]
            said, seconds = run_to_end(replace(contender, command=command))
        found = re.findall(COMPLETED[contender.name], said)
        if not found or int(found[0]) == 0:
            raise BenchError(f"{contender.name} did not say how many requests it completed: {said[-300:]!r}")
        return seconds / int(found[0])

    return measure


def main() -> None:
    """Measures a row for each peer that is here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    options = parser.parse_args()
    ours, again, peers = contenders(options.seconds)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # nginx's workers run as another user where it was started by root.
        folder.chmod(0o755)
        (folder / "file").write_bytes(b"x" * FILE_BYTES)
        (folder / "template").write_text(NGINX.format(folder=folder))
        for peer, reach in [(again, None), *peers]:
            title = f"load http: {ours.name} / {peer.name}"
            rows.append(
                compare(title, "CPU us a request", ours, peer, cost(folder), rounds=options.rounds, reach=reach)
            )
    save("generators", rows)


if __name__ == "__main__":
    main()
