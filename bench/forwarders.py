"""The forwarders that are measured: ours, the peers that are installed, and the least that io_uring
and splice can do.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from harness import BUILD, PLIMSOLL, ROOT, BenchError, Contender, compiled

FORWARDER_CPU = 0

HAPROXY = """
global
    nbthread 1
    maxconn 6000
defaults
    mode tcp
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    option splice-auto
listen echo
    bind "127.0.0.1:${PORT}"
    server echo 127.0.0.1:SERVER
"""

NGINX = """
load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; worker_processes 1; user root; pid FOLDER/pid; error_log FOLDER/error.log;
events { worker_connections 19000; }
stream { server { listen 127.0.0.1:PORT; tcp_nodelay on; proxy_pass 127.0.0.1:SERVER; } }
"""

NGINX_STREAM = Path("/usr/lib/nginx/modules/ngx_stream_module.so")


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


def socat(server: int, _: Path) -> Contender:
    """A process for each connection."""
    listen = "TCP-LISTEN:{port},bind=127.0.0.1,fork,reuseaddr,nodelay,backlog=4096"
    command = ("socat", listen, f"TCP:127.0.0.1:{server},nodelay")
    return Contender(name="socat", command=command, cpu=FORWARDER_CPU)


def rinetd(server: int, folder: Path) -> Contender:
    """One event loop over libuv."""
    config = folder / "rinetd.conf"
    script = f"echo 127.0.0.1 {{port}} 127.0.0.1 {server} > {config}; exec rinetd -f -c {config}"
    return Contender(name="rinetd", command=("sh", "-c", script), cpu=FORWARDER_CPU)


def build_realm() -> str:
    """Builds bench/realm, which needs a package registry the first time: not in a namespace."""
    target = BUILD / "realm"
    manifest, folder = str(ROOT / "bench/realm/Cargo.toml"), str(target)
    build = ("cargo", "build", "--release", "--locked", "--quiet", "--manifest-path", manifest, "--target-dir", folder)
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"bench/realm cannot be built: {done.stderr.strip()[-300:]}")
    return str(target / "release" / "realm-forward")


def realm(server: int, _: Path) -> Contender:
    """The relay crate of realm on one thread of tokio: bench/realm."""
    return Contender(
        name="realm", command=(build_realm(), "127.0.0.1:{port}", f"127.0.0.1:{server}"), cpu=FORWARDER_CPU
    )


def bare_uring(server: int) -> Contender:
    """No forwarder, but the least that one by io_uring would cost."""
    return Contender(
        name="bare io_uring", command=(compiled("uring_relay.c"), "{port}", str(server)), cpu=FORWARDER_CPU
    )


def bare_splice(server: int) -> Contender:
    """No forwarder, but the least that one by splice would cost that rests as long as ours does
    between two rounds.
    """
    return Contender(
        name="bare splice", command=(compiled("splice_relay.c"), "{port}", str(server), "300"), cpu=FORWARDER_CPU
    )


def peers(server: int, folder: Path) -> list[Contender]:
    """The peers that are installed; of the others it is said why they are left out."""
    found = []
    for name, contender in (("haproxy", haproxy), ("nginx", nginx), ("rinetd", rinetd), ("socat", socat)):
        if shutil.which(name) is None:
            print(f"left out: {name} is not installed (`make peers` or `apt-get install {name}`)")
        elif name == "nginx" and not NGINX_STREAM.exists():
            print("left out: nginx has no stream module (`apt-get install libnginx-mod-stream`)")
        else:
            found.append(contender(server, folder))
    try:
        found.append(realm(server, folder))
    except BenchError as error:
        print(f"left out: {error}")
    return found
