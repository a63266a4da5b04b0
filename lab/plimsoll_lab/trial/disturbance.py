"""When the emulator was not the network that was asked for, and what is known of a trial without
those moments. Pure.

Such moments do not void a trial. They are cut out of its window (`stats/cut.py`), and each figure
is judged separately: rates of the kept time stay, percentiles get bounds, and a figure without
bounds is doubted.
"""

from __future__ import annotations

import bisect
import csv
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.stats.cut import LEAD_S, QUANTILES, Cut, Span, cut_out
from plimsoll_lab.stats.reasons import counted
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary
from plimsoll_lab.store.records import CutRecord, ResultWarning
from plimsoll_lab.suite.figures import LAST_OVER_LINE

TIMES = ("response_time_us", "service_time_us", "establishment_time_us", "transmission_time_us")
"""Figures that a moment may have moved; of the first the request log has each request."""
FURTHER = (
    *("connection_and_transmission_us", "backlog_growth.low", "backlog_growth.high", "server.cpu_cores_min"),
    *("tcpbenchmark.times_over_elapsed", LAST_OVER_LINE),
)
"""More of them, each one number."""
RATES = ("completed_rate", "goodput_bits_per_s", "offered_rate")
"""Figures a second: the cut time leaves their denominator."""
SEQUENCE_TIMES = re.compile(r"tcpbenchmark\.\w+_time_s\.\w+")
"""More of them, over the whole window."""
_PART = re.compile(r"(?:role|client)\.[^.]+\.(.+)")
"""A figure of a further part, or of one generator of several: it has no log of its own here."""
RATE_UNSURE = 0.05
"""Without a request log a rate is between that of the whole window and that of the kept time; where
these lie further apart it is doubted."""

RATE_CUT = 0.5
"""Where more of the window than this is cut out, the rest does not represent it: rates are
doubted."""

LATE_LEAST, LATE_TOLERATED = 3, 0.002
"""So many packets, and this part of them, may be late without a moment: they were late as the
window opened or closed."""


FEW_BYTES = 4 * 1448
"""A request or an answer of more is many packets: a loss makes its connection's window smaller, and
slows the requests that follow too."""
LOST_TOLERATED = 0.01
"""So many packets may be lost without a moment, as a part of a closed loop's requests: each was of
one connection, and held up its request alone."""


def unknown_moments(network: LinkWindow | None, requests: int = 0) -> str | None:
    """Why the trial is no result, where it is unknown when the emulator or the kernel was at fault.

    `requests` counts requests that may each lose a packet without delaying others
    (`requests_alone`).
    """
    if network is None:
        return None
    if network.silent:
        return "the emulator of the links said nothing after the window: it hung, or ended"
    if network.disturbances:
        return None
    lost = sums(network)[2]
    faults = [f"lost {lost} packets that they should have delivered"] if lost > LOST_TOLERATED * requests else []
    faults += _late_unknown(network)
    return f"the links {' and '.join(faults)} during the window, and nothing says when" if faults else None


def _late_unknown(network: LinkWindow) -> list[str]:
    """That links were late at no moment that is known, in words. Each late frame is of a moment: if
    the only ones that are known lie outside of the window, all late frames do.
    """
    delivered, late, _ = sums(network)
    known = network.disturbances or network.late_outside
    return (
        []
        if known or late <= max(LATE_LEAST, LATE_TOLERATED * delivered)
        else [f"were late for {late} of {delivered} packets"]
    )


def requests_alone(load: LoadSummary, *, closed: bool) -> int:
    """The completed requests of a load at which a lost packet holds up its own request and no
    other: of a closed loop whose requests and answers are a few packets each. 0 of any other load.
    """
    few = max(load.bytes_sent, load.bytes_received) <= FEW_BYTES * load.requests.scheduled
    return load.requests.completed if closed and few else 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LoggedRequest:
    """The requests of a window."""

    starts: Sequence[float]
    """Intended start of each, in seconds since 1970."""
    times_s: Sequence[float]
    """Response time of each."""
    connections: Sequence[int] = ()
    """Number of each one's connection, unlike those of other generators."""
    under_way: Sequence[Span] = ()
    """Requests that the window's end found under way, whatever became of them: intended start and
    end."""
    timed_out: Sequence[Span] = ()
    """Those that timed out in the window."""


def read_log(lines: Iterable[str], first: int = 0) -> LoggedRequest:
    """The requests of a generator's request log that belong to its window; its connections are
    numbered from `first`.
    """
    starts, times_s, connections = [], [], []
    under_way, timed_out = [], []
    for row in csv.DictReader(lines):
        end, took_s = float(row["time"]), float(row["response_time_us"]) / 1e6
        match row["phase"], row["outcome"]:
            case "window", "ok":
                starts.append(end - took_s)
                times_s.append(took_s)
                connections.append(first + int(row["connection"]))
            case "window", "timeout":
                timed_out.append((end - took_s, end))
            case "drain", _:
                under_way.append((end - took_s, end))
    return LoggedRequest(
        starts=starts, times_s=times_s, connections=connections, under_way=under_way, timed_out=timed_out
    )


def cut_record(
    network: LinkWindow | None,
    window: tuple[float | None, float | None],
    log: LoggedRequest | None,
    *,
    closed: bool,
    unanswered: int = 0,
) -> CutRecord | None:
    """What was cut out of a trial, and what is known without it; None where nothing was.

    `log` has every request of the window that was sent, and is None where the generator kept none.
    `unanswered` counts the requests that timed out, were under way as the window closed, or were
    never sent.
    """
    opened, ended = window
    if network is None or not network.disturbances or opened is None or ended is None or ended <= opened:
        return None
    # Seconds since 1970 leave no digits for fractions of a microsecond.
    moments = [(each.from_unix_s - opened, each.to_unix_s - opened) for each in network.disturbances]
    whole = (0.0, ended - opened)
    if log is None:
        return _without_log(moments, whole)
    starts = [start - opened for start in log.starts]
    waited = [(start - opened, end - opened) for start, end in (*log.under_way, *log.timed_out)]
    every = [*((start, start + time_s) for start, time_s in zip(starts, log.times_s, strict=True)), *waited]
    moments = _until_answered(moments, [each.lost_frames > 0 for each in network.disturbances], every)
    found = cut_out(
        starts,
        log.times_s,
        moments,
        whole,
        closed=closed,
        unanswered=[(start, min(end, whole[1])) for start, end in waited if start < whole[1]],
        unseen=max(0, unanswered - len(waited)),
    )
    rate = found.rate if found.share <= RATE_CUT else None
    return _record(found, moments, percentiles=_bounds(found), rate=rate)


def _until_answered(moments: Sequence[Span], lossy: Sequence[bool], requests: Sequence[Span]) -> list[Span]:
    """The moments, of which one at which packets were lost lasts until every request that it found
    under way is answered: until then their connections send nothing, and the others have less to
    do.
    """
    ordered = sorted(requests)
    begun = [start for start, _ in ordered]
    latest = list(itertools.accumulate((end for _, end in ordered), max))
    found = []
    for (start, end), lost in zip(moments, lossy, strict=True):
        before = bisect.bisect_left(begun, end) if lost else 0
        found.append((start, max(end, latest[before - 1]) if before else end))
    return found


def _bounds(found: Cut) -> dict[str, tuple[float, float, float]]:
    return {
        f"response_time_us.{name}": (each.low * 1e6, each.estimate * 1e6, each.high * 1e6)
        for name, each in found.percentiles.items()
        if math.isfinite(each.high) and each.low > 0
    }


def _record(
    found: Cut,
    moments: Sequence[Span],
    *,
    percentiles: Mapping[str, tuple[float, float, float]],
    rate: float | None,
) -> CutRecord:
    names = [f"response_time_us.{name}" for name in QUANTILES]
    return CutRecord(
        moments=len(moments),
        share=found.share,
        requests=found.requests,
        touched=found.touched,
        completed_rate=rate,
        bounds={name: (low, high) for name, (low, _, high) in percentiles.items()},
        estimates={name: estimate for name, (_, estimate, _) in percentiles.items()},
        doubted=[*(name for name in names if name not in percentiles), *([] if rate is not None else RATES)],
    )


def _without_log(moments: Sequence[Span], whole: Span) -> CutRecord:
    """Without a log no response time is known, and the rate only where little was cut."""
    spans = [(start, end + LEAD_S) for start, end in moments]
    found = cut_out([], [], spans, whole, closed=False)
    unsure = found.share > RATE_UNSURE
    return CutRecord(
        moments=len(moments),
        share=found.share,
        requests=None,
        touched=None,
        completed_rate=None,
        bounds={},
        estimates={},
        doubted=[*(f"response_time_us.{name}" for name in QUANTILES), *(RATES if unsure else ())],
    )


def without_cut(figures: Mapping[str, float], cut: CutRecord | None) -> dict[str, float]:
    """The figures of a trial's kept time; those that are not known without the cut are left out."""
    if cut is None:
        return dict(figures)
    known = dict(cut.estimates)
    if cut.completed_rate is not None and figures.get("completed_rate"):
        factor = cut.completed_rate / figures["completed_rate"]
        known |= {name: figures[name] * factor for name in RATES if name in figures}
    kept = {name: value for name, value in figures.items() if name not in cut.doubted and not _is_disturbed(name, cut)}
    return kept | known


def late_figures(figures: Mapping[str, float], untold: Sequence[str]) -> dict[str, float]:
    """Those of the figures that are the generator's own lateness of which the server's own are at
    most what was measured: a standard deviation without lateness may be greater.
    """
    return {name: value for name, value in figures.items() if name in untold and name.rpartition(".")[2] != "stdev"}


def without_late(figures: Mapping[str, float], untold: Sequence[str]) -> dict[str, float]:
    """The figures without those that are the generator's own lateness."""
    return {name: value for name, value in figures.items() if name not in untold}


def is_told(name: str, cut: CutRecord | None, untold: Sequence[str]) -> bool:
    """Whether a trial publishes a number of its generator's summary, which may be none of the lab's
    figures. Its path may begin at the summary, or with `load.`.
    """
    path = name.removeprefix("load.")
    return path in without_late(without_cut({path: 0.0}, cut), untold)


def _own(name: str) -> str:
    """A figure's name within its part."""
    part = _PART.fullmatch(name)
    return part[1] if part else name


def _is_disturbed(name: str, cut: CutRecord) -> bool:
    """Whether a figure over the whole window says nothing of the kept time."""
    own = _own(name)
    if own != name and (own in cut.doubted or (own in RATES and cut.share > RATE_UNSURE)):
        return True
    return own in FURTHER or own.partition(".")[0] in TIMES or SEQUENCE_TIMES.fullmatch(own) is not None


def network_warnings(network: LinkWindow | None) -> list[ResultWarning]:
    """The moments that are marked in a trial, and what the links lost without one, or may have."""
    return [] if network is None else [*_losses_and_moments(network), *_losses_unknown(network)]


def _losses_unknown(network: LinkWindow) -> list[ResultWarning]:
    if not network.drops_unknown:
        return []
    return [
        ResultWarning(
            code="losses_unknown",
            message=f"what {', '.join(network.drops_unknown)} dropped is not known, so the links may have lost packets",
            remedy="run the laboratory as root, or as the owner of the namespaces of its hosts",
        )
    ]


def _losses_and_moments(network: LinkWindow) -> list[ResultWarning]:
    moments = network.disturbances
    lost = max(sums(network)[2], sum(each.lost_frames for each in moments))
    late = [each for each in moments if each.late_frames]
    if lost and not late:
        when = f"at {counted(len(moments), 'moment')} of the window" if moments else "and nothing says when"
        return [
            ResultWarning(
                code="links_lost",
                message=f"the links lost {lost} packets that they should have delivered, {when}",
                remedy=(
                    "a lighter load, or a machine with more CPUs; where the kernel carries the links, "
                    "net.core.netdev_max_backlog bounds the packets that wait for a CPU"
                ),
            )
        ]
    if not late:
        return [
            ResultWarning(
                code="link_disturbed",
                message=f"the links {fault} during the window, and nothing says when",
                remedy="use a quieter machine, or one with more CPUs",
            )
            for fault in _late_unknown(network)
        ]
    # Not the late packets of the links: those are counted from before the window to after it.
    frames, worst_us = sum(each.late_frames for each in late), max(each.worst_us for each in late)
    dropped = f", and lost {lost:,}" if lost else ""
    return [
        ResultWarning(
            code="link_disturbed",
            message=(
                f"the emulator of the links was late {counted(len(late), 'time')} during the window, for "
                f"{counted(frames, 'frame')}, by {worst_us / 1e3:.1f} ms at worst{dropped}"
            ),
            remedy="these moments are cut out of the window; a quieter machine, or one with more CPUs, has fewer",
        )
    ]


def sums(network: LinkWindow) -> tuple[int, int, int]:
    """Packets handed to hosts, those of them that were late, and packets lost by the emulator's
    fault on any link.
    """
    # Only a packet for a host can be late: between links a frame goes on at the moment it was due.
    to_hosts = [way for way in network.links if way.end.endswith("-eth0")]
    delivered, late = sum(way.delivered for way in to_hosts), sum(way.released_late for way in to_hosts)
    lost = sum(way.dropped_by_fault for way in network.links) - network.lost_outside
    return delivered, late, max(0, lost)
