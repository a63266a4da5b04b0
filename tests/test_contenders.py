"""The forwarders that the suites of port_fwd compare ours with: each relays what it is sent."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from laboratory import HANGS_S, ROOT, wait_until

SERVERS = ROOT / "suites" / "servers"
STREAM_MODULE = Path("/usr/lib/nginx/modules/ngx_stream_module.so")


@contextmanager
def echo_server(name: bytes) -> Iterator[str]:
    """An address that answers with its name and what it reads."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def answer() -> None:
            # A forwarder may first see whether somebody listens.
            while True:
                with suppress(OSError), listener.accept()[0] as client:
                    while data := client.recv(4096):
                        client.sendall(name + data)
                if listener.fileno() < 0:
                    return

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def free_address() -> str:
    """An address on which nothing listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


def connection(address: str, process: subprocess.Popen[bytes]) -> socket.socket:
    """A connection to a forwarder that has just been started."""
    host, _, port = address.rpartition(":")
    found: list[socket.socket] = []

    def is_open() -> bool:
        assert process.poll() is None, (process.stderr.read() if process.stderr else b"").decode()
        with suppress(OSError):
            found.append(socket.create_connection((host, int(port)), timeout=HANGS_S))
        return bool(found)

    wait_until(is_open, f"nothing listens on {address}")
    return found[0]


def started_by(process: subprocess.Popen[bytes]) -> list[int]:
    """The children that a process has now."""
    return [int(each) for each in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("haproxy", marks=pytest.mark.skipif(not shutil.which("haproxy"), reason="haproxy is missing")),
        pytest.param(
            "nginx",
            marks=pytest.mark.skipif(
                not (shutil.which("nginx") and STREAM_MODULE.exists()), reason="nginx with its stream module is missing"
            ),
        ),
    ],
)
@pytest.mark.parametrize("processes", ["1", "3"])
def test_each_of_its_two_ports_leads_to_a_server_of_its_own(tmp_path: Path, program: str, processes: str) -> None:
    with echo_server(b"1 ") as server, echo_server(b"2 ") as second:
        own, other = free_address(), free_address()
        script = ["sh", str(SERVERS / f"{program}-stream.sh"), processes, *([str(tmp_path)] * (program == "nginx"))]
        with subprocess.Popen([*script, own, server, other, second], stderr=subprocess.PIPE) as process:
            try:
                wait_until(lambda: len(started_by(process)) >= int(processes), "it starts fewer processes")
                for address, answer in ((own, b"1 relayed"), (other, b"2 relayed")) * 3:
                    with connection(address, process) as client:
                        client.sendall(b"relayed")
                        assert client.recv(100) == answer
                children = started_by(process)
            finally:
                process.terminate()
                process.wait(timeout=HANGS_S)
            assert not [each for each in children if Path(f"/proc/{each}").exists()]
    assert not list(tmp_path.glob("*.pid"))
