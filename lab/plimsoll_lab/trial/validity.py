"""Whether a trial is a result at all. Pure: what was seen in, an outcome out.

A server at its limit, a server that died and a generator at its limit are three different findings,
and none of them is a slow result.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from plimsoll_lab.store.program_output import LoadSummary, ServerSummary
from plimsoll_lab.store.records import GENERATOR_WARNINGS, MACHINE_WARNINGS, Outcome, ResultWarning
from plimsoll_lab.trial.disturbance import network_warnings, requests_alone, unknown_moments
from plimsoll_lab.trial.observation import (
    FOREIGN_CORES_TOLERATED,
    Observation,
    causes,
    causes_alone,
    load_warnings,
    machine_warnings,
)
from plimsoll_lab.trial.retry import SHORTEST_S

FAILED_RATIO_TOLERATED = 0.001
"""Above one failed request in a thousand the server did not do the work it is timed for."""
UNSENT_TOLERATED = 0.1
"""Some requests fall due in the last moments of a window; above a tenth the generator was
stopped."""

STARVED = 0.5
"""The part of the window for which a server, or a generator, was ready and had no CPU, from which
on that it completed nothing is not its own doing."""
LATE = "generator_late"
MEDIAN = "response_time_us.p50"
"""Where even half of the requests were sent late, the load was not what was asked for."""
NOT_OFFERED = "rate_not_offered"
"""Where requests of an open loop were never sent, it is unknown how a late generator would have
measured them."""
SLOWED = 0.01
"""A closed loop whose connections waited for the generator during more of their time was slower by
that."""

HIDES = 0.0005
"""The mean time of a search's requests may be the generator's own up to this part of the window: it
hides a growth of the backlog of twice as much, a fifth of what a search tolerates."""

TAKEN_BY_OTHERS = ("machine_busy", "steal", "throttled")
"""Codes of the warnings that say who had the CPUs in place of the trial's own processes."""
NO_MEMORY = (
    "the kernel ended it, or a process that it started, as no memory was left; use a smaller load, or a machine or a "
    "container with more memory"
)
SERVER_LIMITS = {
    "fd_setsize": "it refused {n} connections: select cannot watch a descriptor of 1024 or above (FD_SETSIZE)",
    "emfile": "it ran out of file descriptors {n} times (ulimit -n)",
    "enfile": "the machine ran out of file descriptors {n} times (fs.file-max)",
    "spawn": "it could not start {n} threads or processes (pids limit, ulimit -u, memory)",
}
"""Causes in a server's summary that are limits of its model or of its machine, in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What a trial is worth."""

    outcome: Outcome
    """`ok`, or why it is no result."""
    reason: str | None
    """In words, where it is not `ok`."""
    warnings: tuple[ResultWarning, ...]
    """Warnings that remain."""
    untold: tuple[str, ...] = ()
    """Figures that a result leaves out, as they are the generator's own lateness."""


def host_lost(host: str, reason: str) -> Judgement:
    """Of a trial that ended because a host was lost."""
    message = f"the host {host} was lost during the trial: {reason}"
    remedy = "look at that host and the network to it; another host that joins the cluster takes its place"
    return Judgement(
        outcome="invalid", reason=message, warnings=(ResultWarning(code="host_lost", message=message, remedy=remedy),)
    )


def late_start(generator: str) -> Judgement:
    """Of a trial that ended because a generator could not start with the others."""
    message = f"{generator} was up only after the instant at which all generators were to start"
    remedy = "close what else runs on its machine; a trial like this one is made again"
    return Judgement(
        outcome="invalid", reason=message, warnings=(ResultWarning(code="late_start", message=message, remedy=remedy),)
    )


def judge(seen: Observation) -> Judgement:
    """Judge a trial, the gravest finding first."""
    warnings = (*machine_warnings(seen), *load_warnings(seen), *network_warnings(seen.network), *seen.warnings)
    outcome, reason = _outcome(seen, warnings)
    return Judgement(outcome=outcome, reason=reason, warnings=warnings, untold=_late_figures(seen, warnings) or ())


def with_late_parts(
    judgement: Judgement, late: Collection[str], *, limited: Collection[str], missed: Collection[str]
) -> Judgement:
    """A judgement with the figures of single generators that are each one's own lateness, as with
    those of all together: one with a limit that it meets is kept, and one that misses its limit is
    the generator's doing. `missed` are the figures whose limit is missed as they were measured.
    """
    untold = (*judgement.untold, *(each for each in late if each not in limited))
    reason = _spoilt(frozenset(late) & frozenset(missed)) if judgement.outcome == "ok" else None
    if reason is None:
        return replace(judgement, untold=untold)
    return replace(judgement, untold=untold, outcome="generator_limited", reason=reason)


def _spoilt(figures: Collection[str]) -> str | None:
    """Why a trial that misses limits on these figures is no result."""
    if not figures:
        return None
    return f"the generator's own lateness is half or more of {', '.join(sorted(figures))}, which misses its limit"


def _outcome(seen: Observation, warnings: tuple[ResultWarning, ...]) -> tuple[Outcome, str | None]:
    summary = seen.load_summary or LoadSummary()
    findings: tuple[tuple[Outcome, str | None], ...] = (
        ("failed", _death(seen)),
        ("hard_limit", _server_limit(seen.server_summary)),
        ("invalid", seen.unmerged),
        ("failed", _missing_summary(seen)),
        ("invalid", unknown_moments(seen.network, requests_alone(summary, closed=seen.closed))),
        ("invalid", _starved(seen, warnings)),
        ("invalid", _missed(seen, warnings)),
        *_invalid(seen, warnings),
        ("generator_limited", _unsent(summary) if seen.closed else None),
        ("failed", _shortfall(summary)),
    )
    return next(((outcome, reason) for outcome, reason in findings if reason is not None), ("ok", None))


def _death(seen: Observation) -> str | None:
    if seen.server_exit is None:
        return None
    how = ending(seen.server_exit, seen.server_stderr, lacked_memory=seen.server_lacked_memory)
    # The first process of a server that becomes a daemon ends at once, with code 0.
    remedy = "; a server has to stay in the foreground" if seen.server_exit == 0 else ""
    return f"the server died during the trial: {how}{remedy}"


def _missing_summary(seen: Observation) -> str | None:
    if seen.load_summary is not None:
        return None
    how = ending(seen.load_exit, seen.load_stderr, lacked_memory=seen.load_lacked_memory)
    return f"the generator ended without a summary: {how}"


def _starved(seen: Observation, warnings: Sequence[ResultWarning]) -> str | None:
    """Why nothing was completed, where others had the CPUs: by what the kernel counts, the server
    or the generator was ready, had none during most of the window, and others used more than the
    server did.
    """
    cause = next((each.message for each in warnings if each.code in TAKEN_BY_OTHERS), None)
    if cause is None or not seen.window_s or seen.load_summary is None or seen.load_summary.requests.completed:
        return None
    steal, own = seen.steal_cores or 0.0, seen.server_cores or 0.0
    taken = (seen.foreign_cores or 0.0) + steal + (seen.throttled_s or 0.0) / seen.window_s
    waited = {
        "the server": (seen.server_waited_s or 0.0) / seen.window_s,
        "the generator": seen.generator_waited or 0.0,
    }
    who, part = max(waited.items(), key=lambda each: each[1])
    if part >= STARVED and taken > own:
        length = f"{part * seen.window_s:.2f} s of the window of {seen.window_s:.2f} s"
        return f"{cause}; {who} was ready and had no CPU for {length}, and not one request was completed"
    # What the hypervisor withholds is no wait to the kernel of this machine.
    if seen.busy_cores is not None and steal > max(FOREIGN_CORES_TOLERATED, seen.busy_cores):
        return f"{cause}, more than the {seen.busy_cores:.2f} that it gave, and not one request was completed"
    return None


def _missed(seen: Observation, warnings: Sequence[ResultWarning]) -> str | None:
    """Why nothing is known of the machine in a window. A short count may well be over before it is
    read, on any machine: it lacks what the server used, and is a result.
    """
    if seen.counted and seen.load_summary is not None and seen.load_summary.elapsed_s < SHORTEST_S:
        return None
    return next((each.message for each in warnings if each.code == "window_missed"), None)


def _invalid(seen: Observation, warnings: tuple[ResultWarning, ...]) -> list[tuple[Outcome, str | None]]:
    """Whether the generator calls its measurement invalid, and whether it or the machine was the
    cause.
    """
    if seen.load_summary is None:
        return []
    if seen.load_summary.valid:
        reason = _spoilt(seen.missed & frozenset(seen.load_summary.doubted))
        return [] if reason is None else [("generator_limited", reason)]
    if _late_figures(seen, warnings) is not None:
        return []
    own = [warning.message for warning in warnings if warning.code.startswith(GENERATOR_WARNINGS)]
    others = [warning.message for warning in warnings if warning.code in MACHINE_WARNINGS]
    if own and others:
        return [("invalid", f"{others[0]}, and {own[0]}")]
    if own:
        return [("generator_limited", own[0])]
    return [
        (
            "invalid",
            warnings[0].message if warnings else "the generator calls its measurement invalid, without a reason",
        )
    ]


def _late_figures(seen: Observation, warnings: tuple[ResultWarning, ...]) -> tuple[str, ...] | None:
    """The figures of an otherwise good trial that the generator's lateness spoilt: the tail alone,
    and nothing that has a limit. None where it spoilt all.

    A valid summary may have some too: few requests were late, or there were few of them. A figure
    with a limit is kept all the same: it is an upper bound of the server's, so a limit that it
    meets is met. A trial of a search is asked nothing else, so that there the median may be late as
    well where every limit is met: timers of an idle virtual machine are later than a quick server
    answers.
    """
    summary = seen.load_summary or LoadSummary()
    doubted = frozenset(summary.doubted)
    kept = tuple(each for each in summary.doubted if each not in seen.limited)
    if summary.valid:
        return () if doubted & seen.missed else kept
    codes = {warning.code for warning in warnings}
    own = {code for code in codes if code.startswith(GENERATOR_WARNINGS)}
    if not doubted or own != {LATE} or NOT_OFFERED in codes or (seen.closed and _waited(summary) > SLOWED):
        return None
    if seen.at_most and not seen.missed:
        return None if _holds_up(summary) else kept
    return None if MEDIAN in doubted or doubted & seen.limited else kept


def _waited(summary: LoadSummary) -> float:
    """The part of all connections' time that waited for the generator to send, by Little's law."""
    lag_us, rate, count = summary.schedule_lag_us.mean, summary.completed_rate, summary.connections.established
    if lag_us is None or rate is None or not count:
        return 1.0
    return lag_us / 1e6 * rate / count


def _holds_up(summary: LoadSummary) -> bool:
    """Whether requests waited so long for the generator that a backlog of the server's may hide in
    it.
    """
    lag_us, length_s = summary.schedule_lag_us.mean, summary.elapsed_s
    return lag_us is None or not length_s or lag_us / 1e6 > HIDES * length_s


def _unsent(summary: LoadSummary) -> str | None:
    """Closed loop: a request that was due on a free connection and was not sent is the generator's
    doing alone.
    """
    unsent, scheduled = summary.requests.unsent, summary.requests.scheduled
    if unsent <= UNSENT_TOLERATED * scheduled:
        return None
    return f"the generator never sent {unsent} of the {scheduled} requests that were due"


def _shortfall(summary: LoadSummary) -> str | None:
    """What was asked for and not done, by a server that neither died nor named a limit."""
    requested, established = summary.connections.requested, summary.connections.established or 0
    if established < requested:
        return (
            f"only {established} of {requested} connections were established, and the server names no limit of its own"
        )
    completed, failed = summary.requests.completed, summary.requests.lost
    if not completed:
        return "not one request was completed in the window" + (f": {causes_alone(summary)}" if failed else "")
    if failed > FAILED_RATIO_TOLERATED * (completed + failed):
        return f"{failed} of {completed + failed} requests failed: {causes(summary)}"
    return None


def ending(code: int, stderr: str, *, lacked_memory: bool) -> str:
    """How a process ended, with its last words; what to do where the kernel ended it."""
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    last = stderr.splitlines()[-1].strip() if stderr else ""
    how = f"{how}, saying: {last}" if last else how
    return f"{how}: {NO_MEMORY}" if lacked_memory else how


def _server_limit(summary: ServerSummary | None) -> str | None:
    if summary is None:
        return None
    reasons = [words.format(n=count) for code, words in SERVER_LIMITS.items() if (count := summary.errors.get(code))]
    if not reasons and summary.refused:
        reasons = [f"it refused {summary.refused} connections"]
    if not reasons:
        return None
    peak = summary.peak_connections
    held = f"the server held {peak} connections at most: " if peak is not None else ""
    return held + "; ".join(reasons)
