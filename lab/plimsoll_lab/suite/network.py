"""The network of a suite: a topology by name, or its links one by one."""

from __future__ import annotations

from dataclasses import replace

from plimsoll_lab.suite.errors import SuiteError, naming_source
from plimsoll_lab.suite.figures import suggest
from plimsoll_lab.suite.network_keys import LINK, NETWORK, NETWORK_LINK
from plimsoll_lab.suite.tables import Table, as_table, refuse_unknown
from plimsoll_lab.suite.topology import Link, Topology, join, read_addresses, read_congestion, read_shape, read_topology

BACKENDS = ("tap", "kernel")


def read_network(table: Table, *, source: str) -> Topology:
    """The network of one point: a word of Mininet's, or its links one by one; the table's shape is
    every link's.
    """
    with naming_source(source):
        refuse_unknown(table, (*NETWORK, "link", *LINK), "[network]")
        shape = {key: table[key] for key in LINK if key in table}
        addresses = read_addresses(table.get("addresses", 1))
        backend = table.get("backend", BACKENDS[0])
        backend = "kernel" if backend == "netem" else backend  # its older name
        if backend not in BACKENDS:
            raise SuiteError(f"[network] backend: '{backend}' is none{suggest(str(backend), BACKENDS)}")
        congestion = read_congestion(table.get("congestion"))
        topology, links = table.get("topology"), table.get("link")
        if isinstance(topology, str) and links is None:
            network = read_topology(topology, shape, addresses=addresses, backend=str(backend))
            return replace(network, congestion=congestion)
        if topology is not None or not isinstance(links, list) or not links:
            raise SuiteError(
                "[network]: give it a topology, such as 'single,3', or [[network.link]] tables, one of both"
            )
        network = join([_link(link, shape) for link in links], addresses=addresses, backend=str(backend))
        return replace(network, congestion=congestion)


def _link(raw: object, shape: Table) -> Link:
    table = as_table(raw, refusal="[[network.link]]: not a table; write [[network.link]] and its settings below")
    refuse_unknown(table, (*NETWORK_LINK, *LINK), "[[network.link]]")
    ends = table.get("ends")
    if (
        not isinstance(ends, list)
        or len(ends) != 2  # noqa: PLR2004 - a link has two
        or not all(isinstance(end, str) for end in ends)
    ):
        raise SuiteError(f'[[network.link]] ends: {ends!r} is not a pair; write ends = ["h1", "s1"]')
    where = f"[[network.link]] {ends[0]} - {ends[1]}:"
    own = read_shape({**shape, **{key: value for key, value in table.items() if key in LINK}}, where=where)
    if "reverse" not in table:
        return Link(ends=(ends[0], ends[1]), shape=own)
    back = as_table(
        table["reverse"],
        refusal=f'{where} reverse: {table["reverse"]!r} is not a table; write reverse = {{ rate = "1Mbit" }}',
    )
    return Link(ends=(ends[0], ends[1]), shape={**own, "reverse": read_shape(back, where=f"{where} reverse:")})


def refuse_emulated_links(network: Topology, *, source: str) -> None:
    """Refuse links with settings, and a congestion control: nothing emulates a cluster's network,
    and its hosts' kernels are not the lab's to set.
    """
    if network.congestion is not None:
        raise SuiteError(
            f"{source}: [network] congestion: it is set for hosts that are namespaces of one machine only; leave "
            "--hosts out, or set net.ipv4.tcp_congestion_control on the cluster's machines and leave it out here"
        )
    for link in network.links:
        if link.shape:
            raise SuiteError(
                f"{source}: [network] {', '.join(link.shape)}: links are emulated on one machine only, and a cluster's "
                "network is what it is; leave --hosts out, or remove what the links are told"
            )
