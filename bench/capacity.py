"""How many requests a second nginx, our seven models and Python's own server complete within a
limit, three times each.

Every server has CPU 0 and the generator CPU 1, so that the server may reach its limit before the
generator does; whether it did is for the laboratory to say. The searches are made in blocks, every
server once a block, and kept in runs/ like any run.

    python bench/capacity.py the whole of it, about twelve minutes
    python bench/capacity.py serve NAME PORT one of the servers, as the laboratory starts it
"""

from __future__ import annotations

import os
import shutil
import sys
from typing import NoReturn

from harness import BUILD, PLIMSOLL, ROOT, BenchError

MODELS = ("threads", "fork", "select", "poll", "epoll", "epoll-et", "uring")
SERVERS = ("nginx", *MODELS, "python")
WWW = BUILD / "www"
SMALL = 64
"""Bytes of the file that is asked for: what a request costs, not what its bytes do."""
SERVER_CPU, GENERATOR_CPU = 0, 1

SUITE = """
name     = "capacities"
question = "How many requests a second does each HTTP server carry on one CPU, 99 of 100 answered within 20 ms?"

[server]
ready = "tcp:{{port}}"

[load]
protocol = "http"
path = "/small"
connections = 64
duration = "400ms"
cpus = "{cpu}"

[matrix]
"server.command" = [
{commands}
]

[run]
repeat = {repeat}
warm_up = "100ms"
seed = 8

[limits]
"response_time.p99" = "<20ms"

[search]
over = "load.rate"
range = [500, 300000]
width = "10%"
trials = 3
"""
NGINX = """
worker_processes 1;
daemon off;
error_log stderr error;
pid {home}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    server {{ listen 127.0.0.1:{port} backlog=4096; root {root}; }}
}}
"""


def main(arguments: list[str]) -> NoReturn:
    """Run the suite, or be one of its servers."""
    if arguments[:1] == ["serve"]:
        serve(arguments[1], int(arguments[2]))
    repeat = int(arguments[0]) if arguments else 3
    suite = BUILD / "capacities.toml"
    WWW.mkdir(parents=True, exist_ok=True)
    (WWW / "small").write_bytes(b"x" * SMALL)
    found = [name for name in SERVERS if name != "nginx" or shutil.which("nginx")]
    if "nginx" not in found:
        print("nginx is not installed and is left out: apt-get install nginx-light", file=sys.stderr)
    commands = ",\n".join(f'  ["python3", "bench/capacity.py", "serve", "{name}", "{{port}}"]' for name in found)
    suite.write_text(SUITE.format(cpu=GENERATOR_CPU, commands=commands, repeat=repeat))
    os.chdir(ROOT)
    os.environ |= {"PLIMSOLL_BIN": PLIMSOLL, "PYTHONPATH": str(ROOT / "lab")}
    lab = [sys.executable, "-m", "plimsoll_lab", "run", str(suite.relative_to(ROOT))]
    os.execv(sys.executable, lab)  # noqa: S606 - so that Ctrl-C is the laboratory's to handle


def serve(name: str, port: int) -> None:
    """Become the server: the process stays the one that the laboratory started."""
    os.sched_setaffinity(0, {SERVER_CPU})
    if name == "nginx":
        home = BUILD / "nginx"
        home.mkdir(parents=True, exist_ok=True)
        configuration = home / "nginx.conf"
        configuration.write_text(NGINX.format(home=home, port=port, root=WWW))
        program = shutil.which("nginx") or "nginx"
        _become(program, "-p", str(home), "-c", str(configuration))
    if name == "python":
        script = str(ROOT / "bench" / "bare" / "python_server.py")
        _become(sys.executable, script, str(port), str(WWW))
    if name not in MODELS:
        raise BenchError(f"no server is called {name}; there are {', '.join(SERVERS)}")
    workers = [] if name in {"threads", "fork"} else ["--workers", "1"]
    listen = f"127.0.0.1:{port}"
    _become(PLIMSOLL, "serve", "http", "--model", name, "--root", str(WWW), "--listen", listen, *workers)


def _become(program: str, *arguments: str) -> NoReturn:
    os.execv(program, [program, *arguments])  # noqa: S606 - a signal for the process is one for the server


if __name__ == "__main__":
    main(sys.argv[1:])
