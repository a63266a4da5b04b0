"""Every figure a trial yields: its name, its words, its unit, and which way is better.

A figure has one name everywhere: its path in the JSON. In a limit the value has the unit instead of
the name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from plimsoll_lab.suite import units
from plimsoll_lab.suite.conditions import CONDITION, EXACT
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.spec import Limit, Point, SearchSettings, Suite

Unit = Literal["per_s", "bits_per_s", "us", "s", "s2", "bytes", "cores", "ratio", "count", "number"]
"""A `count` is whole in each trial; a `number` has no unit and need not be whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One figure of a trial."""

    name: str
    """Its path in the records."""
    label: str
    """Its name in a sentence, a table or on an axis."""
    unit: Unit
    """What it is counted in."""
    better: Literal["higher", "lower"]
    """Which way is better for the server under test."""


def _times(stem: str, label: str) -> tuple[Figure, ...]:
    parts = {"mean": "mean", "stdev": "standard deviation", "p50": "p50", "p75": "p75", "p90": "p90", "p99": "p99"}
    parts |= {"p99_9": "p99.9", "max": "maximum"}
    return tuple(
        Figure(name=f"{stem}.{key}", label=f"{label}, {words}", unit="us", better="lower")
        for key, words in parts.items()
    )


def _counts(stem: str, better: Literal["higher", "lower"], **parts: str) -> tuple[Figure, ...]:
    return tuple(Figure(name=f"{stem}.{key}", label=label, unit="count", better=better) for key, label in parts.items())


def _sequence_times(part: str, words: str) -> tuple[Figure, ...]:
    """Tcpbenchmark's four figures of one time, and how much it varies: over the clients that
    succeeded, a sample each.
    """
    stem = f"tcpbenchmark.{part}_time_s"
    seconds = {"total": "total", "average": "average", "max": "maximum"}
    return (
        *(
            Figure(name=f"{stem}.{key}", label=f"{words}, {each}", unit="s", better="lower")
            for key, each in seconds.items()
        ),
        Figure(name=f"{stem}.sample_variance", label=f"{words}, sample variance", unit="s2", better="lower"),
        Figure(name=f"{stem}.variation", label=f"{words}, deviation over average", unit="ratio", better="lower"),
    )


LAST_OVER_LINE = "response_time_with_last_connections"
"""How many times longer responses take with the last tenth of the connections up than the straight
line through the others says; of a suite that logs its requests."""

_LOAD: tuple[Figure, ...] = (
    Figure(name="completed_rate", label="completed rate", unit="per_s", better="higher"),
    Figure(name="offered_rate", label="offered rate", unit="per_s", better="higher"),
    *_times("response_time_us", "response time"),
    Figure(
        name=LAST_OVER_LINE, label="response time with the last connections, over a line", unit="ratio", better="lower"
    ),
    *_times("service_time_us", "service time"),
    *_times("establishment_time_us", "establishment time"),
    *_times("transmission_time_us", "transmission time"),
    Figure(
        name="connection_and_transmission_us",
        label="connection and transmission time a fetch",
        unit="us",
        better="lower",
    ),
    Figure(name="backlog_growth.low", label="growth of the backlog, at least", unit="ratio", better="lower"),
    Figure(name="backlog_growth.high", label="growth of the backlog, at most", unit="ratio", better="lower"),
    Figure(name="goodput_bits_per_s", label="goodput", unit="bits_per_s", better="higher"),
    Figure(name="elapsed_s", label="elapsed time", unit="s", better="lower"),
    Figure(name="failed_ratio", label="failed requests", unit="ratio", better="lower"),
    Figure(name="available_ratio", label="time in which connections could be used", unit="ratio", better="higher"),
    Figure(name="requests.due", label="requests due", unit="count", better="higher"),
    *_counts("requests", "higher", scheduled="requests scheduled", completed="requests completed"),
    *_counts("requests", "lower", failed="requests failed", timed_out="requests timed out", unsent="requests unsent"),
    *_counts("requests", "lower", in_flight="requests under way at the end"),
    Figure(name="bytes_due", label="bytes due to be sent", unit="bytes", better="higher"),
    Figure(name="bytes_sent", label="bytes sent", unit="bytes", better="higher"),
    Figure(name="bytes_received", label="bytes received", unit="bytes", better="higher"),
    *_counts("errors", "lower", connect="connects failed", read="reads failed", write="writes failed"),
    *_counts("errors", "lower", timeout="time-outs", mismatch="answers that differ", closed="closed by the server"),
    *_counts("errors", "lower", status="answers with a status of failure"),
    *_counts("connections", "higher", established="connections established", peak="connections at once"),
    *_counts("connections", "lower", failed="connections failed", never_established="connections never established"),
    *_counts("connections", "lower", reopened="connections opened again", ended_idle="connections ended while idle"),
    *_counts("connections", "lower", unrequested="connections with bytes that answer no request"),
    Figure(name="redirects", label="answers that redirect", unit="count", better="lower"),
)
"""Figures of one generator, or of several together."""

FIGURES: tuple[Figure, ...] = (
    *_LOAD,
    *_counts("tcpbenchmark", "higher", success="clients that succeeded"),
    *_counts("tcpbenchmark", "lower", failed_connect="failed connects", failed_send_recv="failed exchanges"),
    *_counts("tcpbenchmark", "lower", failed_send_recv_loop="failed sequences"),
    *_sequence_times("connect", "connect time"),
    *_sequence_times("send_recv", "send and receive time"),
    Figure(
        name="tcpbenchmark.times_over_elapsed",
        label="sum of the clients' times over the elapsed time",
        unit="ratio",
        better="higher",
    ),
    Figure(name="server.cpu_us_per_request", label="server CPU per request", unit="us", better="lower"),
    Figure(name="server.cpu_cores", label="server CPU", unit="cores", better="lower"),
    Figure(name="server.cpu_cores_min", label="server CPU, least half second", unit="cores", better="lower"),
    Figure(name="server.memory_bytes", label="server memory", unit="bytes", better="lower"),
    *_counts("server", "higher", connections="connections accepted", peak_connections="connections held at once"),
    *_counts("server", "higher", requests="requests the server counted"),
    Figure(name="host.cpu_cores", label="CPU of the whole machine", unit="cores", better="lower"),
    Figure(name="host.memory_bytes", label="memory of the server's host", unit="bytes", better="lower"),
    Figure(name="host.load_average", label="load average", unit="number", better="lower"),
    Figure(name="generator.cpu_cores", label="generator CPU", unit="cores", better="lower"),
    Figure(name="generator.cpu_us_per_request", label="generator CPU per request", unit="us", better="lower"),
    Figure(
        name="generator.busiest_thread_cpu_cores", label="generator CPU, busiest thread", unit="cores", better="lower"
    ),
    Figure(name="packets", label="packets at the server's host", unit="count", better="lower"),
    Figure(name="packets_per_s", label="packets a second at the server's host", unit="per_s", better="higher"),
    *_counts("tcp", "lower", retransmitted_segments="segments sent again", resets_sent="resets sent"),
    *_counts("tcp", "lower", timeouts="retransmission time-outs", syn_retransmissions="SYNs sent again"),
    *_counts(
        "tcp", "lower", listen_overflows="accept queue overflows", listen_drops="connections dropped by listeners"
    ),
    Figure(name="endpoints", label="TCP endpoints captured", unit="count", better="higher"),
    *_counts("capture", "lower", packets="packets captured", retransmissions="retransmissions captured"),
    *_counts("capture", "lower", out_of_order="packets out of order", duplicate_acks="duplicate ACKs"),
    *_counts("capture", "lower", zero_windows="zero windows", resets="resets captured"),
    *_counts("capture", "lower", unanswered_syn="SYNs never answered"),
    Figure(name="capture.packets_per_s_max", label="packets in the busiest second", unit="per_s", better="higher"),
    Figure(name="capture.packets_per_s_swing", label="swing of packets a second", unit="ratio", better="lower"),
)
BY_NAME = {figure.name: figure for figure in FIGURES}

_OF_PARTS = (
    *("completed_rate", "response_time_us.mean", "response_time_us.p50", "response_time_us.p99"),
    *("establishment_time_us.mean", "transmission_time_us.mean", "goodput_bits_per_s", "elapsed_s"),
    *("requests.completed", "requests.failed", "connections.established", "connections.failed"),
)
"""Figures of one generator of several, or of a generator that is not measured."""
_COST = (
    Figure(name="cpu_cores", label="CPU", unit="cores", better="lower"),
    Figure(name="memory_bytes", label="memory", unit="bytes", better="lower"),
)
PART_FIGURES: tuple[Figure, ...] = (*(BY_NAME[name] for name in _OF_PARTS), *_COST)
"""The figures of one part: of a role `role.NAME.FIGURE`, of a generator among several
`client.HOST.FIGURE`."""
_PART = re.compile(r"(role|client)\.([A-Za-z0-9_-]+)\.(.+)")


def part_figures(kind: str, part: str) -> tuple[Figure, ...]:
    """The figures of a role, or of the generator on a host."""
    return tuple(
        replace(each, name=f"{kind}.{part}.{each.name}", label=f"{part}: {each.label}") for each in PART_FIGURES
    )


_STATUS = re.compile(r"statuses\.([1-9]\d\d)|status_codes\.([1-5]xx)")
"""Answers with one status, or with one of a class (RFC 9110, section 15)."""


def status_figure(name: str) -> Figure | None:
    """The count of answers with a status of HTTP, such as `statuses.404`; None of another name."""
    match = _STATUS.fullmatch(name)
    if match is None:
        return None
    return Figure(name=name, label=f"answers with status {match[1] or match[2]}", unit="count", better="lower")


def figure_named(name: str) -> Figure | None:
    """A figure by its path in the records; None where there is none."""
    match = _PART.fullmatch(name)
    if match is None:
        return BY_NAME.get(name) or status_figure(name)
    return next((each for each in part_figures(match[1], match[2]) if each.name == name), None)


def figures_of(suite: Suite, points: Iterable[Point] = ()) -> tuple[Figure, ...]:
    """Every figure that a trial of a suite may have: those of all trials, of its roles, of its
    generators' hosts, and whatever else it names, such as a status. A suite may only count the
    hosts; its points name them.
    """
    loads = (suite.place.load, *(point.place.load for point in points))
    clients = dict.fromkeys(host for load in loads if len(load) > 1 for host in load)
    of_roles = (each for role in suite.roles for each in part_figures("role", role.name))
    of_clients = (each for host in clients for each in part_figures("client", host))
    named = (found for name in named_figures(suite) if (found := figure_named(name)) is not None)
    return tuple(dict.fromkeys((*FIGURES, *of_roles, *of_clients, *named)))


def named_figures(suite: Suite) -> tuple[str, ...]:
    """The figures that a suite names: what it judges, expects, draws, and holds against documents.
    An expectation may name one of the generator's summary by `load.` too.
    """
    limited = (each.figure for each in suite.limits)
    expected = (each.figure.removeprefix("load.") for each in suite.expectations)
    drawn = (figure for figure, _ in suite.drawn)
    referred = (each.figure for each in suite.references)
    claimed = (each.figure for each in suite.claims)
    return tuple(dict.fromkeys((*limited, *expected, *suite.verdict.figures, *drawn, *referred, *claimed)))


CAPACITY = "capacity"
"""The figure of a search, where every other one is a trial's."""


def capacity_figure(search: SearchSettings) -> Figure:
    """The capacity that a search finds."""
    return Figure(name=CAPACITY, label="capacity", unit="per_s" if search.key == "rate" else "count", better="higher")


def is_response_time(name: str) -> bool:
    """Whether a figure is a response time, of all generators or of one: a late generator hides some
    of these, a trial at a time.
    """
    match = _PART.fullmatch(name)
    return (match[3] if match else name).startswith("response_time_us.")


_UNIT_IN_NAME = re.compile(r"_(us|bytes|bits_per_s|(?<!per_)s)(?=\.|$|_per_request$)")
_LIMIT = re.compile(CONDITION)


def limit_name(figure: Figure) -> str:
    """The figure's name in a limit, where the value has the unit: `response_time.p99`."""
    return _UNIT_IN_NAME.sub("", figure.name)


BY_LIMIT_NAME = {limit_name(figure): figure for figure in FIGURES}


def figure_of_limit(name: str) -> Figure | None:
    """A figure by its name in a limit, or by its path in the records."""
    match = _PART.fullmatch(name)
    if match is None:
        return BY_LIMIT_NAME.get(name) or BY_NAME.get(name) or status_figure(name)
    return next((each for each in part_figures(match[1], match[2]) if name in {each.name, limit_name(each)}), None)


def read_limit(name: str, condition: object, *, source: str) -> Limit:
    """Type one line of the `[limits]` table, such as `"response_time.p99" = "<250ms"`."""
    figure = figure_of_limit(name)
    if figure is None:
        suggestion = suggest(name, BY_LIMIT_NAME)
        raise SuiteError(f"{source}: [limits] {name}: no such figure{suggestion}")
    match = _LIMIT.fullmatch(condition) if isinstance(condition, str) else None
    if match is None:
        raise SuiteError(
            f"{source}: [limits] {name}: {condition!r} is not a limit; write an operator and a value, such as '<250ms'"
        )
    if match[1] in EXACT and figure.unit != "count":
        # As `plimsoll load --limit`: two measured values are never exactly equal.
        raise SuiteError(
            f"{source}: [limits] {name}: == and != compare counts; write <, <=, > or >= for a measured value"
        )
    try:
        value = read_value(match[2], figure.unit)
    except ValueError as refusal:
        raise SuiteError(f"{source}: [limits] {name}: {refusal}") from None
    return Limit(figure=figure.name, operator=match[1], value=value, text=f"{name} {match[1]} {match[2]}")


def read_value(text: str, unit: Unit) -> float:
    """A value with its unit, in the unit of the figure's name; ValueError where it is none."""
    if unit == "us":
        return units.duration_s(text) * 1e6
    if unit == "s":
        return units.duration_s(text)
    if unit == "bytes":
        return float(units.size_bytes(text))
    if unit == "ratio":
        return units.part(text)
    if unit in {"per_s", "bits_per_s", "cores", "s2", "number"}:
        return units.rate(text)
    return float(units.count(text))


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of a refusal: the known word that is near, or else all of them."""
    words = sorted(known)
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f"; did you mean '{near[0]}'?"
    ends = [each for each in words if each.endswith(f".{word}")]
    if ends:
        return f"; did you mean {' or '.join(ends)}?"
    return f"; known are {', '.join(words)}"
