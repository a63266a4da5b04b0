"""The hosts of a Ray cluster: joining it, giving its nodes the names of a suite, and replacing
those that are lost.

Ray is imported only here and where it is used: runs on one machine do not need it.
"""

from __future__ import annotations

import importlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from plimsoll_lab import __version__
from plimsoll_lab.hosts.binary import build_of
from plimsoll_lab.hosts.host import Host
from plimsoll_lab.hosts.messages import Inspect, Inspection
from plimsoll_lab.hosts.ray_actor import AgentActor
from plimsoll_lab.hosts.ray_connection import RayConnection
from plimsoll_lab.hosts.ray_nodes import Node, choose
from plimsoll_lab.problem import ENVIRONMENT, USAGE, HostLost, LabError, NoHost

SCHEME = "ray:"
JOIN_S = 20.0
"""How long hosts are waited for that are not there yet, or not any more. Starting an agent on those
that are there is not part of it: that takes a second, on a busy machine many."""
JOIN_EVERY_S = 0.5
PROBE_S = 60.0
"""Against hanging: joining takes two seconds, on a busy machine ten."""
HEAD = "node:__internal_head__"
"""A resource that Ray gives the head alone."""
ADD = "start Ray on another machine: RAY_AUTH_MODE=token ray start --address={address}"
PROBE = """
import sys
from ray._raylet import GcsClient
try:
    GcsClient(address=sys.argv[1]).get_all_node_info(timeout=10)
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(1)
"""
"""Asks a cluster for its nodes, in a process of its own: Ray reads its settings once."""


@dataclass(kw_only=True, slots=True)
class Placed:
    """A node that has a name of the suite's."""

    node: Node
    """The node."""
    host: Host
    """Its host."""
    connection: RayConnection
    """To its agent."""
    inspection: Inspection
    """What it is, and what is installed there."""


class RayCluster:
    """A Ray cluster that this machine is part of. A context: leaving it ends every agent."""

    def __init__(self, hosts: str, binary: str) -> None:
        self.address = hosts.removeprefix(SCHEME)
        """`HEAD:PORT`."""
        self._binary = binary
        self._ray: Any = None
        self._own_node = ""
        """Ray's identifier of the node that the lab runs on."""
        self._asked: dict[str, None] = {}
        """The names that a host was asked for, in that order: a slow node is placed late."""
        self._placed: dict[str, Placed] = {}
        self._gone: set[str] = set()
        """Nodes that were lost, and that Ray may still have: the others come first."""
        self.replaced: list[dict[str, object]] = []
        """Hosts that were lost: the suite's name, the node, and why."""

    def __enter__(self) -> Self:
        _refuse_without_token()
        self._ray = _import_ray()
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit():
            raise LabError(
                f"--hosts ray:{self.address}: not HEAD:PORT; write such as ray:192.0.2.10:6379", exit_code=USAGE
            )
        self._refuse_open_cluster()
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._ray.init(
                address=self.address,
                _node_ip_address=_own_address(host, int(port)),
                log_to_driver=False,
                logging_level="error",
                configure_logging=False,
            )
        except Exception as error:  # noqa: BLE001 - Ray raises many kinds
            raise LabError(
                f"cannot join the Ray cluster at {self.address}: {_first_line(error)}; run the lab on a machine of the "
                f"cluster, such as its head, or {ADD.format(address=self.address)}",
                exit_code=ENVIRONMENT,
            ) from None
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self._own_node = self._ray.get_runtime_context().get_node_id()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for placed in self._placed.values():
                placed.connection.close()
        finally:
            self._ray.shutdown()

    @property
    def metering(self) -> str:
        """Where the cost of a process tree is read from: the same on every host, or all of them."""
        kinds = sorted({placed.host.metering for placed in self._placed.values()})
        return " and ".join(kinds) if kinds else "not known yet"

    @property
    def hosts(self) -> Mapping[str, Placed]:
        """Every name that has a node, in the order in which they were asked for."""
        return {name: self._placed[name] for name in self._asked if name in self._placed}

    def place(self, names: Sequence[str]) -> dict[str, Host]:
        """A host for each name. Those that were lost are replaced; raises `NoHost` where there are
        too few.

        The cluster is looked at again for JOIN_S: a machine may be about to join. After that, nodes
        that were not tried yet are tried once.
        """
        self._asked |= dict.fromkeys(names)
        deadline = time.monotonic() + JOIN_S
        failed: dict[str, str] = {}
        while True:
            for name in [name for name in names if name in self._placed]:
                self._drop_if_lost(name)
            missing = [name for name in names if name not in self._placed]
            if not missing:
                return {name: self._placed[name].host for name in names}
            taken = {placed.node.number for placed in self._placed.values()}
            chosen = choose(missing, self._nodes(), taken | self._gone)
            if not chosen and time.monotonic() > deadline:
                raise NoHost(self._too_few(missing, failed), exit_code=ENVIRONMENT)
            if not chosen:
                # Ray may not have noticed yet that this node is lost.
                self._gone.clear()
            begun = {name: self._begin(name, node) for name, node in chosen.items()}
            for name, node in chosen.items():
                try:
                    self._placed[name] = self._open(name, node, begun[name])
                except HostLost as lost:
                    # Ray misses a node that was cut off only after a while.
                    self._gone.add(node.number)
                    failed[node.address] = lost.reason
            if len(chosen) < len(missing):
                time.sleep(JOIN_EVERY_S)

    def _drop_if_lost(self, name: str) -> None:
        lost = self._placed[name].connection.lost
        if lost is not None:
            placed = self._placed.pop(name)
            self._gone.add(placed.node.number)
            self.replaced.append({"name": name, "address": placed.node.address, "reason": lost.reason})
            placed.connection.close()

    def _too_few(self, missing: Sequence[str], failed: Mapping[str, str]) -> str:
        nodes = self._nodes()
        called = {node.address: ", ".join(sorted(node.names - {node.address})) for node in nodes}
        there = ", ".join(f"{address} ({names})" for address, names in sorted(called.items()))
        lost = "".join(
            f"; {each['name']} was {each['address']} and was lost: {each['reason']}" for each in self.replaced
        )
        lost += "".join(f"; no agent could be started on {address}: {reason}" for address, reason in failed.items())
        return (
            f"the Ray cluster at {self.address} has no host for {', '.join(missing)}: its nodes are {there or 'none'}, "
            "a node is one host, and the head and the laboratory's own node are hosts only if [place] names them"
            f"{lost}; "
            f"{ADD.format(address=self.address)}, and 'plimsoll lab resume' goes on"
        )

    def _begin(self, name: str, node: Node) -> RayConnection:
        """Have a node start an actor; it takes a second, on all of them at once."""
        strategy = importlib.import_module("ray.util.scheduling_strategies").NodeAffinitySchedulingStrategy
        actor = (
            self._ray.remote(AgentActor)
            .options(num_cpus=0, max_restarts=0, scheduling_strategy=strategy(node_id=node.number, soft=False))
            .remote(name, node.address)
        )
        return RayConnection(name, actor)

    def _open(self, name: str, node: Node, connection: RayConnection) -> Placed:
        try:
            connection.finish_opening()
            inspection = connection.ask(Inspect())
            refuse_other_build(f"{name} ({node.address})", inspection.versions, self._binary)
            host = Host(connection, 1)
        except HostLost as lost:
            connection.close()
            if "plimsoll_lab" in lost.reason:
                raise LabError(
                    f"{name} ({node.address}) has no plimsoll {__version__} for the Python that runs Ray there: "
                    f"{lost.reason}; install it with pip install 'plimsoll[cluster]=={__version__}'",
                    exit_code=ENVIRONMENT,
                ) from None
            raise
        except BaseException:
            connection.close()
            raise
        host.binary = inspection.binary
        return Placed(node=node, host=host, connection=connection, inspection=inspection)

    def _nodes(self) -> list[Node]:
        return [_node(each, self._own_node) for each in self._ray.nodes() if each["Alive"]]

    def _refuse_open_cluster(self) -> None:
        """Anyone who reaches a cluster without tokens can run programs on all of its machines."""
        refused = self._probe({name: os.environ[name] for name in TOKENS if name in os.environ})
        if refused is not None and _is_about_tokens(refused):
            raise LabError(
                f"the Ray cluster at {self.address} does not accept this token; give the one that it was "
                "started with, in RAY_AUTH_TOKEN or ~/.ray/auth_token",
                exit_code=ENVIRONMENT,
            )
        if refused is not None:
            raise LabError(
                f"the Ray cluster at {self.address} does not answer ({refused}); start its head with "
                f"RAY_AUTH_MODE=token ray start --head --port={self.address.rpartition(':')[2]}",
                exit_code=ENVIRONMENT,
            )
        refused = self._probe({"RAY_AUTH_MODE": "disabled"})
        if refused is None or not _is_about_tokens(refused):
            seen = "" if refused is None else f" ({refused})"
            raise LabError(
                f"the Ray cluster at {self.address} accepts clients without a token{seen}, so anyone who reaches it "
                "can run programs there; start every node of it with RAY_AUTH_MODE=token and the same token "
                "(ray get-auth-token --generate)",
                exit_code=ENVIRONMENT,
            )

    def _probe(self, tokens: Mapping[str, str]) -> str | None:
        """Why the cluster does not list its nodes; None where it does."""
        rest = {name: value for name, value in os.environ.items() if name not in TOKENS}
        try:
            done = subprocess.run(
                [sys.executable, "-c", PROBE, self.address],
                env={**rest, **tokens},
                capture_output=True,
                text=True,
                check=False,
                timeout=PROBE_S,
            )
        except subprocess.TimeoutExpired:
            return f"no answer within {PROBE_S:.0f} s"
        if done.returncode == 0:
            return None
        lines = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"


TOKENS = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")


def _is_about_tokens(refusal: str) -> bool:
    return "token" in refusal.lower() or "unauthenticated" in refusal.lower()


def refuse_other_build(host: str, theirs: Mapping[str, str], binary: str) -> None:
    """Raise LabError where a host has another build than this machine. Two files made of one commit
    may differ; of an unknown or changed one they may not.
    """
    ours = build_of(binary)
    told = ["plimsoll", "lab", "lab_sha256"]
    if any(word in ours["plimsoll"] for word in ("unknown", "-dirty")) or "(" not in ours["plimsoll"]:
        told.append("plimsoll_sha256")
    for what in told:
        if ours[what] != theirs.get(what):
            raise LabError(
                f"{host} has another build: its {what.replace('_', ' ')} is {theirs.get(what)}, and here it is "
                f"{ours[what]}; install the same on every host",
                exit_code=ENVIRONMENT,
            )


def _node(told: Mapping[str, Any], own: str) -> Node:
    names = {str(told[key]) for key in ("NodeManagerAddress", "NodeManagerHostname", "NodeName") if told.get(key)}
    return Node(
        number=str(told["NodeID"]),
        address=str(told["NodeManagerAddress"]),
        names=frozenset(names),
        labels={str(key): str(value) for key, value in (told.get("Labels") or {}).items()},
        set_apart=HEAD in (told.get("Resources") or {}) or told["NodeID"] == own,
    )


def _import_ray() -> Any:  # noqa: ANN401 - an optional library without types of use here
    try:
        return importlib.import_module("ray")
    except ImportError:
        raise LabError(
            "--hosts ray: Ray is not installed; install it with pip install 'plimsoll[cluster]'", exit_code=ENVIRONMENT
        ) from None


def _refuse_without_token() -> None:
    mode = os.environ.get("RAY_AUTH_MODE")
    if mode != "token":
        raise LabError(
            f"--hosts ray: RAY_AUTH_MODE is {mode or 'not set'}, and without a token anyone who reaches a cluster runs "
            "programs on it; set RAY_AUTH_MODE=token here and wherever Ray is started (docs/cluster.md)",
            exit_code=ENVIRONMENT,
        )
    path = os.environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(path) if path else Path.home() / ".ray" / "auth_token"
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    try:
        held = file.read_text(encoding="utf-8").strip()
    except OSError as error:
        why = f"{file} cannot be read: {error.strerror}"
    else:
        if held:
            return
        why = f"{file} is empty"
    raise LabError(
        f"--hosts ray: there is no token: RAY_AUTH_TOKEN is not set, and {why}; copy the cluster's token there "
        "(ray get-auth-token on its head prints it)",
        exit_code=ENVIRONMENT,
    )


def _own_address(host: str, port: int) -> str:
    """The address of this machine that the cluster sees."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, port))
        except OSError as error:
            raise LabError(f"--hosts ray:{host}:{port}: no way leads there: {error}", exit_code=ENVIRONMENT) from None
        return str(probe.getsockname()[0])


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
