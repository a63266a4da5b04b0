"""What is known of a trial although moments of it were disturbed: by its links, or by others that
had the CPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from plimsoll_lab.stats.reasons import OUTWARDS, significant
from plimsoll_lab.store.form import record_of
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary, read_output
from plimsoll_lab.store.records import CutRecord, HostsRecord, TakenRecord
from plimsoll_lab.suite.prediction import think_s
from plimsoll_lab.suite.spec import Point, Suite
from plimsoll_lab.trial.disturbance import cut_record, requests_alone
from plimsoll_lab.trial.events import take_log
from plimsoll_lab.trial.figures import measured_loads
from plimsoll_lab.trial.losses import loss_record
from plimsoll_lab.trial.parts import PartialRecord
from plimsoll_lab.trial.taken import Loops, Others, taken_moments, taken_record
from plimsoll_lab.trial.validity import TAKEN_BY_OTHERS, Judgement

TAIL = "response_time_us.p99"
"""What such moments move most."""


def is_closed(point: Point) -> bool:
    """Whether the next request of each connection waits for its answer."""
    return all("rate" not in load for load in measured_loads(point))


def is_counted(point: Point) -> bool:
    """Whether a load ends with a number of requests, however little time they take."""
    return any({"each", "requests"} & load.keys() for load in measured_loads(point))


def steady_think_s(point: Point) -> float | None:
    """The pause of every connection, of closed loops over a stated time; any other load has no
    steady number of connections, or no one pause, to reason about.
    """
    loads = measured_loads(point)
    pauses = {think_s(load) for load in loads}
    steady = is_closed(point) and all("duration" in load for load in loads)
    return pauses.pop() if steady and len(pauses) == 1 else None


def cut_of(
    partial: PartialRecord, point: Point, links: LinkWindow | None, generators: Sequence[str]
) -> CutRecord | None:
    """What is known of a trial whose links were at fault; None where they were not, or there are
    none.
    """
    if links is None:
        return None
    roles = {role.name: role.settings for role in point.roles}
    asked = {name for name in generators if roles.get(name, point.load).get("request_log")}
    log = take_log(partial.records, generators, keep=asked)
    window = (partial.window.opened_unix_s, partial.window.closed_unix_s)
    summary = read_output(LoadSummary, partial.load.get("summary") or {}, "the generator")
    alone = requests_alone(summary, closed=is_closed(point))
    lost = loss_record(links, summary, alone, log, counted=is_counted(point))
    requests = summary.requests
    unanswered = requests.in_flight + requests.timed_out + requests.unsent
    return lost or cut_record(links, window, log, closed=_suppresses(point), unanswered=unanswered)


def taken_of(
    partial: PartialRecord,
    suite: Suite,
    point: Point,
    judgement: Judgement,
    beside: Sequence[LoadSummary],
    elsewhere: Collection[str],
) -> TakenRecord | None:
    """What is known of a trial although others had the CPUs at some moments; None where they had
    not, or moments of its links are cut out.
    """
    opened_unix_s, cut = partial.window.opened_unix_s, partial.cut
    codes = {each.code for each in judgement.warnings}
    # A search makes such a trial again, and decides by what it measured.
    if suite.search is not None or opened_unix_s is None or codes.isdisjoint(TAKEN_BY_OTHERS):
        return None
    # Of a server elsewhere, this machine is the generators'.
    if (cut is not None and cut.moments) or (partial.server.get("elsewhere") and not beside):
        return None
    grows = any(":" in str(load.get("rate", "")) for load in measured_loads(point))
    cores = None if grows else partial.window.generator_cores(beside)
    others = Others(elsewhere=elsewhere, generator_cores=cores, were_busy="machine_busy" in codes)
    read_late_s = max(0.0, partial.window.read_unix_s - opened_unix_s)
    moments = taken_moments(record_of(HostsRecord, partial.hosts).get("timeline", ()), others)
    return taken_record(
        [(start + read_late_s, end + read_late_s) for start, end in moments],
        partial.seconds,
        read_output(LoadSummary, partial.load.get("summary") or {}, "the generator"),
        opened_unix_s=opened_unix_s,
        loops=Loops(closed=is_closed(point), suppress=_suppresses(point), counted=is_counted(point)),
        lost=(cut.touched or 0) if cut is not None else 0,
    )


def with_bounds(judgement: Judgement, taken: TakenRecord | None) -> Judgement:
    """A judgement that says what is known of the 99th percentile beside who had the CPUs."""
    bounds = taken.bounds.get(TAIL) if taken is not None else None
    if bounds is None or judgement.outcome != "ok" or TAIL in judgement.untold:
        return judgement
    low, high = (significant(each / 1e3, way) for each, way in zip(bounds, OUTWARDS, strict=True))
    more = f"; without such moments its 99th percentile is between {low} and {high} ms"
    warnings = (
        replace(each, message=each.message + more) if each.code in TAKEN_BY_OTHERS else each
        for each in judgement.warnings
    )
    return replace(judgement, warnings=tuple(warnings))


def _suppresses(point: Point) -> bool:
    """Whether a moment keeps requests from being made: those of each closed loop among the
    loads.
    """
    return any("rate" not in load for load in measured_loads(point))
