"""The nodes of a Ray cluster, and which of them gets which name of a suite's hosts."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """A machine, or a container, that Ray runs on."""

    number: str
    """Ray's own identifier."""
    address: str
    """Where it is reached."""
    names: frozenset[str]
    """What it can be called by: its host name, the name Ray was started with, its address."""
    labels: Mapping[str, str]
    """`ray start --labels`."""
    set_apart: bool
    """Whether the cluster's head or the lab itself runs there: it is a host only where it is asked
    for by name."""


def choose(names: Iterable[str], nodes: Sequence[Node], taken: Iterable[str]) -> dict[str, Node]:
    """A node for each name, as far as there are any: those that are called so first, then those
    with a label, `KEY=VALUE` or `KEY=VALUE N`; for hN the Nth by address, or else any that is free.
    Nodes that are set apart are chosen by name alone.
    """
    names = sorted(names, key=lambda name: (len(name), name))
    ordered = [node for node in sorted(nodes, key=_by_address) if not node.set_apart]
    ranks = {node.number: f"h{rank}" for rank, node in enumerate(ordered, start=1)}
    free = [node for node in sorted(nodes, key=_by_address) if node.number not in set(taken)]
    found: dict[str, Node] = {}
    tests: tuple[Callable[[str, Node], bool], ...] = (
        lambda name, node: name in node.names,
        lambda name, node: not node.set_apart and _has_label(name, node),
        lambda name, node: ranks.get(node.number) == name,
        lambda name, node: not node.set_apart and re.fullmatch(r"h\d+", name) is not None,
    )
    for fits in tests:
        for name in names:
            node = next((each for each in free if fits(name, each)), None) if name not in found else None
            if node is not None:
                found[name] = node
                free.remove(node)
    return found


def _has_label(name: str, node: Node) -> bool:
    key, equals, value = name.partition(" ")[0].partition("=")
    return bool(equals) and node.labels.get(key) == value


def _by_address(node: Node) -> tuple[int, int, str]:
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(node.address)
        return (address.version, int(address), "")
    return (0, 0, node.address)
