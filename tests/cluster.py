"""A Ray cluster on one machine, for tests: each node in a network namespace of its own, with an
address of its own.

The namespaces and the links between them are those of the laboratory's own emulated networks, and
so is the guard that ends every process when the tests end, however they end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from laboratory import BINARY, ROOT, Done, lab_command, marked, needs_networks
from plimsoll_lab.hosts.agent import enter
from plimsoll_lab.hosts.host import HostProcess
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.netns import Network, device_of, open_network
from plimsoll_lab.suite.topology import read_topology

PORT = 6379
TOKEN = "a-token-that-only-these-tests-know"
STARTS_S = 300
"""Against hanging: a node is up within three seconds, on a busy machine ten."""
RAY_WAITS_S = 60
"""Ray gives a node up that has not joined by then. One whose helpers need more than 15 s to start
ends without a word, whatever Ray is told (github.com/ray-project/ray/issues/65983): it is started
again."""
LAB_S = 400
STORE_BYTES = 80_000_000
"""The least that Ray takes for its store of objects is 75 MB; nothing is stored there."""

needs_ray = [
    needs_networks,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra cluster)"),
]


@dataclass(kw_only=True, slots=True)
class Cluster:
    """A head and the nodes that have joined it."""

    local: LocalHost
    network: Network
    names: Sequence[str]
    """Of the namespaces; the last one is the head's."""
    folder: Path
    """Ray's files; a short path, as it holds sockets."""
    nodes: dict[str, HostProcess] = field(default_factory=dict)
    stacks: dict[str, contextlib.ExitStack] = field(default_factory=dict)
    labs: list[subprocess.Popen[str]] = field(default_factory=list)
    """Every laboratory that was started: one whose test failed is ended with the cluster."""

    @property
    def head(self) -> str:
        """The head's namespace."""
        return self.names[-1]

    @property
    def address(self) -> str:
        """Where a lab joins."""
        return f"{self.network.hosts[self.head].addresses[0]}:{PORT}"

    def pid(self, name: str) -> int:
        """A process in a namespace."""
        return self.network.pids[1 + list(self.network.hosts).index(name)]

    def start(self, *names: str, **environment: str) -> None:
        """Start Ray in namespaces one after the other, each until it is up."""
        for name in names:
            deadline = time.monotonic() + STARTS_S
            self._launch(name, environment)
            while not self._is_up(name, deadline):
                self.stop(name)
                self._launch(name, environment)

    def _launch(self, name: str, environment: Mapping[str, str]) -> None:
        own = self.network.hosts[name].addresses[0]
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", f"--node-ip-address={own}"]
        ray += ["--num-cpus=1", "--disable-usage-stats", f"--object-store-memory={STORE_BYTES}"]
        ray += [f"--temp-dir={self.folder / name}", "--include-log-monitor=false"]
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        ray += head if name == self.head else [f"--address={self.address}"]
        settings = [
            f"{key}={value}"
            for key, value in {**cluster_environment(), "MARK": str(self.folder), **environment}.items()
        ]
        stack = contextlib.ExitStack()
        self.stacks[name] = stack
        command = enter(self.pid(name), ["env", *settings, *ray])
        process = stack.enter_context(self.local.start(command, role=f"ray-{name}", metered=False))
        self.nodes[name] = process

    def _is_up(self, name: str, deadline: float) -> bool:
        """Wait until a node has joined, or has ended without."""
        process = self.nodes[name]
        said: list[str] = []
        while not any("Ray runtime started" in line for line in said):
            assert time.monotonic() < deadline, (said, process.stderr_tail(), self._logs(name))
            if process.exit_code() is not None:
                return False
            self.local.wait([process], 1.0)
            said += process.take_lines()
        return True

    def _logs(self, name: str) -> str:
        """What a node's main process complained of."""
        logs = sorted((self.folder / name).glob("session_*/logs/raylet.err"))
        return "\n".join(path.read_text()[:2000] for path in logs)

    def stop(self, name: str) -> None:
        """End Ray in a namespace at once, as a machine that loses its power."""
        del self.nodes[name]
        self.stacks.pop(name).close()

    def link(self, name: str, state: str) -> None:
        """Cut a namespace off (`down`), or join it again (`up`)."""
        command = enter(self.pid(name), ["ip", "link", "set", device_of(name), state])
        subprocess.run(command, check=True, timeout=60)

    def running(self, command: str) -> list[int]:
        """The processes `plimsoll COMMAND` that run on any host."""
        found = []
        for pid in marked(self.folder):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if words[1:2] == [command.encode()]:
                    found.append(pid)
        return found

    def lab(self, folder: Path, *arguments: str, at: str = "", **environment: str) -> subprocess.Popen[str]:
        """Start the laboratory on a host, or on the head, in a folder."""
        lab = subprocess.Popen(
            enter(self.pid(at or self.head), lab_command(*arguments)),
            cwd=folder,
            env=os.environ | cluster_environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.labs.append(lab)
        return lab

    def run(self, folder: Path, *arguments: str, at: str = "", **environment: str) -> Done:
        """Run the laboratory on a host, or on the head, to its end."""
        lab = self.lab(folder, *arguments, at=at, **environment)
        try:
            out, err = lab.communicate(timeout=LAB_S)
        except subprocess.TimeoutExpired:
            lab.kill()
            out, err = lab.communicate()
            raise AssertionError(f"it hangs: {out} {err}") from None
        return subprocess.CompletedProcess(lab.args, lab.returncode, out, err)


def cluster_environment() -> dict[str, str]:
    """What every node and the laboratory have in common."""
    return {
        "PLIMSOLL_BIN": BINARY,
        "PYTHONPATH": str(ROOT / "lab"),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_raylet_start_wait_time_s": str(RAY_WAITS_S),
    }


@contextlib.contextmanager
def open_cluster(hosts: int, addresses: int = 1, *, backend: str = "tap", **environment: str) -> Iterator[Cluster]:
    """A head, and so many hosts `h1`, `h2`, ... that have joined it over links of this backend."""
    rack = read_topology(f"single,{hosts + 1}", {}, addresses=addresses)
    own = {name: rack.addresses_of(name) for name in rack.hosts}
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plr-", ignore_cleanup_errors=True)))
        local = stack.enter_context(LocalHost())
        links = rack.link_config(seed=1)
        network = stack.enter_context(open_network(local, BINARY, links, own, backend=backend))
        cluster = Cluster(local=local, network=network, names=rack.hosts, folder=folder)
        try:
            cluster.start(cluster.head, **environment)
            cluster.start(*rack.hosts[:-1], **environment)
            yield cluster
        finally:
            for lab in cluster.labs:
                lab.kill()
                with lab:
                    pass
            for name in list(cluster.nodes):
                cluster.stop(name)
