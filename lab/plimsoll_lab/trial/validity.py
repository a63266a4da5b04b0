"""Whether a trial is a result at all. Pure: what was seen in, an outcome out.

A server at its limit, a server that died and a generator at its limit are three different findings,
and none of them is a slow result.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_lab.store.program_output import LinkWindow, LoadSummary, ServerSummary
from plimsoll_lab.store.records import GENERATOR_WARNINGS, MACHINE_WARNINGS, Outcome, ResultWarning, Sample
from plimsoll_lab.trial.disturbance import network_warnings, requests_alone, unknown_moments

FAILED_RATIO_TOLERATED = 0.001
"""Above one failed request in a thousand the server did not do the work it is timed for."""
UNSENT_TOLERATED = 0.1
"""Some requests fall due in the last moments of a window; above a tenth the generator was
stopped."""
FOREIGN_CORES_TOLERATED = 0.25
"""CPU used by others during the window that is still called quiet: /proc/stat counts in steps of 10
ms a CPU, so in a window of 0.3 s on two CPUs less is indistinguishable from nothing."""
SAMPLE_LAG_TOLERATED = 0.05
"""How late the server's usage may be read, as a part of the window."""

STARVED = 0.5
"""The part of the window for which a server, or a generator, was ready and had no CPU, from which
on that it completed nothing is not its own doing."""
THROTTLED_TOLERATED = 0.01
"""A quota that withholds a hundredth of the window's time has already moved a 99th percentile."""
UNSTABLE = 1.3
"""The server's CPU in the one half of a window over that in the other, beyond which there was no
steady state."""
LEAST_SAMPLES = 6
"""Below this many, a half is one or two samples, and each is a tenth of a second."""
LEAST_CORES = 0.1
"""A server that idles has no steady state to miss."""
LATE = "generator_late"
MEDIAN = "response_time_us.p50"
"""Where even half of the requests were sent late, the load was not what was asked for."""
NOT_OFFERED = "rate_not_offered"
"""Where requests of an open loop were never sent, it is unknown how a late generator would have
measured them."""
SLOWED = 0.01
"""A closed loop whose connections waited for the generator during more of their time was slower by
that."""
TRUNCATED = 1.5
"""Little's law and the mean that was seen differ by less than this, noise and the window's edges
included."""

TAKEN_BY_OTHERS = ("machine_busy", "steal", "throttled")
"""Codes of the warnings that say who had the CPUs in place of the trial's own processes."""
SERVER_LIMITS = {
    "fd_setsize": "it refused {n} connections: select cannot watch a descriptor of 1024 or above (FD_SETSIZE)",
    "emfile": "it ran out of file descriptors {n} times (ulimit -n)",
    "enfile": "the machine ran out of file descriptors {n} times (fs.file-max)",
    "spawn": "it could not start {n} threads or processes (pids limit, ulimit -u, memory)",
}
"""Causes in a server's summary that are limits of its model or of its machine, in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """What was seen of a trial."""

    server_exit: int | None
    """The server's exit code if it ended before it was asked to."""
    server_stderr: str
    """The end of what the server said."""
    server_summary: ServerSummary | None
    """The server's totals; a foreign server has none."""
    load_exit: int
    """The generator's exit code."""
    load_stderr: str
    """The end of what the generator said."""
    load_summary: LoadSummary | None
    """The generator's summary."""
    foreign_cores: float | None
    """CPU that neither the server nor the generator used, in cores."""
    steal_cores: float | None
    """CPU the hypervisor withheld, in cores."""
    window_s: float | None
    """Length of the window."""
    lag_s: float
    """How late the ends of the window were seen, together."""
    throttled_s: float | None = None
    """CPU time that a quota withheld over the window, in seconds; None where it cannot be read."""
    busy_cores: float | None = None
    """CPU that the machine used for anything, in cores."""
    server_cores: float | None = None
    """CPU that the server used, in cores."""
    server_waited_s: float | None = None
    """For how much of the window a thread of the server was ready and had no CPU; None where that
    is not known."""
    generator_waited: float | None = None
    """For which part of the window an event loop of a generator on the server's machine was ready
    and had no CPU; None where that is not known."""
    samples: Sequence[Sample] = ()
    """The server's tree over the window."""
    think_s: float | None = None
    """Closed loop over a stated time: the pause before each request; None of any other load."""
    network: LinkWindow | None = None
    """What the emulated links did over the window; None without a network."""
    closed: bool = False
    """Whether the load is a closed loop."""
    limited: frozenset[str] = frozenset()
    """Figures that the suite judges the trial by, as it has limits on them: each has to be
    known."""
    missed: frozenset[str] = frozenset()
    """Figures whose limit is missed, by the generator's output."""
    unmerged: str | None = None
    """Why the summaries of several generators are not one; None where they are."""
    warnings: tuple[ResultWarning, ...] = ()
    """Warnings of other parts of the trial."""


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
    warnings = (*_machine_warnings(seen), *_load_warnings(seen), *network_warnings(seen.network), *seen.warnings)
    outcome, reason = _outcome(seen, warnings)
    return Judgement(outcome=outcome, reason=reason, warnings=warnings, untold=_late_figures(seen, warnings))


def _outcome(seen: Observation, warnings: tuple[ResultWarning, ...]) -> tuple[Outcome, str | None]:
    summary = seen.load_summary or LoadSummary()
    findings: tuple[tuple[Outcome, str | None], ...] = (
        ("failed", _death(seen)),
        ("hard_limit", _server_limit(seen.server_summary)),
        ("invalid", seen.unmerged),
        ("failed", _missing_summary(seen)),
        ("invalid", unknown_moments(seen.network, requests_alone(summary, closed=seen.closed))),
        ("invalid", _starved(seen, warnings)),
        *_invalid(seen, warnings),
        ("generator_limited", _unsent(summary)),
        ("failed", _shortfall(summary)),
    )
    return next(((outcome, reason) for outcome, reason in findings if reason is not None), ("ok", None))


def _death(seen: Observation) -> str | None:
    if seen.server_exit is None:
        return None
    how = ending(seen.server_exit, seen.server_stderr)
    # The first process of a server that becomes a daemon ends at once, with code 0.
    remedy = "; a server has to stay in the foreground" if seen.server_exit == 0 else ""
    return f"the server died during the trial: {how}{remedy}"


def _missing_summary(seen: Observation) -> str | None:
    if seen.load_summary is not None:
        return None
    return f"the generator ended without a summary: {ending(seen.load_exit, seen.load_stderr)}"


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


def _invalid(seen: Observation, warnings: tuple[ResultWarning, ...]) -> list[tuple[Outcome, str | None]]:
    """Whether the generator calls its measurement invalid, and whether it or the machine was the
    cause.
    """
    if seen.load_summary is None or _late_figures(seen, warnings):
        return []
    if seen.load_summary.valid:
        spoilt = sorted(seen.missed & frozenset(seen.load_summary.doubted))
        reason = f"the generator's own lateness is half or more of {', '.join(spoilt)}, which misses its limit"
        return [("generator_limited", reason)] if spoilt else []
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


def _late_figures(seen: Observation, warnings: tuple[ResultWarning, ...]) -> tuple[str, ...]:
    """The figures of an otherwise good trial that the generator's lateness spoilt: the tail alone,
    and nothing that has a limit. Empty where lateness spoilt none, or all.

    A valid summary may have some too: few requests were late, or there were few of them. A figure
    with a limit is kept all the same: it is an upper bound of the server's, so a limit that it
    meets is met.
    """
    summary = seen.load_summary or LoadSummary()
    doubted = frozenset(summary.doubted)
    if summary.valid:
        told = seen.limited if not doubted & seen.missed else doubted
        return tuple(each for each in summary.doubted if each not in told)
    codes = {warning.code for warning in warnings}
    own = {code for code in codes if code.startswith(GENERATOR_WARNINGS)}
    whole = MEDIAN in doubted or doubted & seen.limited or own != {LATE} or NOT_OFFERED in codes
    return () if whole or (seen.closed and _waited(summary) > SLOWED) else tuple(summary.doubted)


def _waited(summary: LoadSummary) -> float:
    """The part of all connections' time that waited for the generator to send, by Little's law."""
    lag_us, rate, count = summary.schedule_lag_us.mean, summary.completed_rate, summary.connections.established
    if lag_us is None or rate is None or not count:
        return 1.0
    return lag_us / 1e6 * rate / count


def _unsent(summary: LoadSummary) -> str | None:
    """Closed loop: a request that was due on a free connection and was not sent is the generator's
    doing alone.
    """
    unsent, scheduled = summary.requests.unsent, summary.requests.scheduled
    if summary.intended_rate is not None or unsent <= UNSENT_TOLERATED * scheduled:
        return None
    return f"the generator never sent {unsent} of the {scheduled} requests that were due"


def _shortfall(summary: LoadSummary) -> str | None:
    """What was asked for and not done, by a server that neither died nor named a limit."""
    requested, established = summary.connections.requested, summary.connections.established or 0
    if established < requested:
        return (
            f"only {established} of {requested} connections were established, and the server names no limit of its own"
        )
    completed = summary.requests.completed
    if not completed:
        return "not one request was completed in the window"
    failed = summary.requests.lost
    if failed > FAILED_RATIO_TOLERATED * (completed + failed):
        return f"{failed} of {completed + failed} requests failed: {_causes(summary)}"
    return None


def ending(code: int, stderr: str) -> str:
    """How a process ended, with its last words."""
    how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    last = stderr.splitlines()[-1].strip() if stderr else ""
    return f"{how}, saying: {last}" if last else how


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


def _causes(summary: LoadSummary) -> str:
    return ", ".join(f"{count} {code}" for code, count in summary.errors.items() if count) or "no cause given"


def _load_warnings(seen: Observation) -> list[ResultWarning]:
    summary = seen.load_summary or LoadSummary()
    warnings = [ResultWarning(code=each.code, message=each.message, remedy=each.remedy) for each in summary.warnings]
    warnings += _truncated(seen)
    failed = summary.requests.lost
    if failed:
        warnings.append(
            ResultWarning(
                code="failed_requests",
                message=f"{failed} requests failed: {_causes(summary)}",
                remedy="look at the server's errors in the trial's record",
            )
        )
    return warnings


def _truncated(seen: Observation) -> list[ResultWarning]:
    """Requests that outlast the window are in no histogram; N = X (R + Z), Little's law, shows them
    all the same.
    """
    summary = seen.load_summary or LoadSummary()
    rate, mean_us = summary.completed_rate or 0.0, summary.response_time_us.mean
    established = summary.connections.established or 0
    if seen.think_s is None or not seen.window_s or not rate or not mean_us:
        return []
    implied_s = established / rate - seen.think_s
    if implied_s < seen.window_s / 2 or implied_s < TRUNCATED * mean_us / 1e6:
        return []
    return [
        ResultWarning(
            code="window_too_short",
            message=f"a request takes {implied_s:.2f} s on average (Little's law: {established} connections complete "
            f"{rate:.0f} requests a second), but those answered in the window of {seen.window_s:.2f} s took "
            f"{mean_us / 1e6:.2f} s: the slow ones are missing from the response times",
            remedy="use a window several times as long as the response time",
        )
    ]


def _unstable(seen: Observation) -> list[ResultWarning]:
    """Whether the server worked as hard in the first half of the window as in the second."""
    samples = seen.samples
    if len(samples) < LEAST_SAMPLES:
        return []
    middle = len(samples) // 2
    halves = [
        (last.cpu_s - first.cpu_s) / (last.at_s - first.at_s)
        for first, last in ((samples[0], samples[middle]), (samples[middle], samples[-1]))
        if last.at_s > first.at_s
    ]
    if len(halves) < 2 or max(halves) < LEAST_CORES or max(halves) < UNSTABLE * min(halves):  # noqa: PLR2004 - a pair
        return []
    return [
        ResultWarning(
            code="unstable_window",
            message=f"the server used {halves[0]:.2f} cores in the first half of the window and {halves[1]:.2f} in "
            "the second",
            remedy="use a longer [run] warm_up, so that the window opens on a steady state, or a longer window",
        )
    ]


def _machine_warnings(seen: Observation) -> list[ResultWarning]:
    warnings = []
    if seen.foreign_cores is not None and seen.foreign_cores > FOREIGN_CORES_TOLERATED:
        warnings.append(
            ResultWarning(
                code="machine_busy",
                message=f"other programs used {seen.foreign_cores:.2f} cores during the window",
                remedy="close what else runs on this machine, and run again",
            )
        )
    if seen.steal_cores is not None and seen.steal_cores > FOREIGN_CORES_TOLERATED:
        warnings.append(
            ResultWarning(
                code="steal",
                message=f"the hypervisor withheld {seen.steal_cores:.2f} cores during the window",
                remedy="use a machine, or an hour, with less contention",
            )
        )
    if seen.window_s and seen.throttled_s and seen.throttled_s > THROTTLED_TOLERATED * seen.window_s:
        warnings.append(
            ResultWarning(
                code="throttled",
                message=f"a CPU quota held threads back for {seen.throttled_s:.2f} s in a window of "
                f"{seen.window_s:.2f} s",
                remedy="raise the quota of this container (cpu.max, cpu.cfs_quota_us), or use a smaller load",
            )
        )
    warnings += _unstable(seen)
    if seen.window_s and seen.lag_s > SAMPLE_LAG_TOLERATED * seen.window_s:
        warnings.append(
            ResultWarning(
                code="late_sample",
                message=f"the server was read {seen.lag_s * 1e3:.0f} ms late in a window of {seen.window_s:.2f} s",
                remedy="use a longer window, or a quieter machine",
            )
        )
    return warnings
