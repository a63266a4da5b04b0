"""A network in one line: the round trip and the loss of a whole path, divided evenly over its
links.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.units import duration_s, ratio

RTT, PATH_LOSS = "rtt", "path_loss"
REPLACED = {RTT: "delay", PATH_LOSS: "loss"}
"""The keys of [network] that state a whole path, each with the key of a link that follows from
it."""
TOPOLOGY = "single,2"
"""The network of a suite that states a path and no topology: a host for the server, one for the
generator."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WholePath:
    """What packets meet between two hosts that talk to each other."""

    rtt_s: float | None = None
    """Seconds there and back, by delays alone; None where nothing is stated."""
    loss: float | None = None
    """The part of the packets that is lost on the way, each way."""

    def shape_of_link(self, links: int) -> dict[str, str]:
        """What each of so many links in a row does, each way, for the path to do this."""
        shape = {}
        if self.rtt_s is not None:
            shape["delay"] = f"{_decimal(self.rtt_s * 1e6 / (2 * links))}us"
        if self.loss is not None:
            # All links have to let a packet through: (1 - link)^links = 1 - path.
            shape["loss"] = f"{_decimal(100 * (1 - (1 - self.loss) ** (1 / links)))}%"
        return shape


def read_whole_path(table: Mapping[str, object]) -> WholePath | None:
    """The path that a [network] table states, if it states one."""
    given = {key: table[key] for key in REPLACED if key in table}
    if not given:
        return None
    for key, value in given.items():
        if not isinstance(value, str):
            raise SuiteError(f"[network] {key}: {value!r} is not a text with a unit, such as '50ms' or '1%'")
        if REPLACED[key] in table:
            raise SuiteError(f"[network] {key}: {REPLACED[key]} is each link's and says the same; keep one of them")
    if "link" in table:
        raise SuiteError(
            f"[network] {' and '.join(given)}: of a topology whose links are alike; "
            "write the delay and loss of each [[network.link]] instead"
        )
    rtt_s = _number(given, RTT, duration_s)
    loss = _number(given, PATH_LOSS, ratio)
    if rtt_s == 0:
        raise SuiteError("[network] rtt: it has to be above zero, such as '50ms'")
    if loss is not None and loss >= 1:
        raise SuiteError("[network] path_loss: no packet would arrive; write less than 100%, such as '1%'")
    return WholePath(rtt_s=rtt_s, loss=loss)


def _number(given: Mapping[str, object], key: str, read: Callable[[str], float]) -> float | None:
    if key not in given:
        return None
    try:
        return read(str(given[key]))
    except ValueError as refusal:
        raise SuiteError(f"[network] {key}: {refusal}") from None


def links_of_each(lengths: Mapping[tuple[str, str], int]) -> int:
    """How many links each path has; refused where paths differ, as their links are alike."""
    if not lengths:
        raise SuiteError("[network] rtt: no two parts talk over the network; place the generators on another host")
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{start} to {end} crosses {links}" for (start, end), links in lengths.items())
        raise SuiteError(
            f"[network] rtt: the paths differ in their number of links ({told}), so no delay of a link gives all of "
            "them one round trip; state delay and loss of each link instead"
        )
    return next(iter(lengths.values()))


def check_change(path: str, matrix: Collection[str]) -> str | None:
    """The setting that a change replaces besides that of its own path; refused where it is an
    axis.
    """
    table, _, key = path.partition(".")
    if table != "network" or key not in REPLACED:
        return None
    replaced = f"network.{REPLACED[key]}"
    if replaced in matrix:
        raise SuiteError(
            f"{path}: the suite varies {replaced}, each link's; choose a value by --only {replaced}=VALUE instead"
        )
    return REPLACED[key]


def _decimal(number: float) -> str:
    """Without an exponent, which no unit is read behind."""
    return f"{number:.12f}".rstrip("0").rstrip(".")
