"""What was seen of a trial, and the warnings that follow from it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_lab.stats.reasons import counted
from plimsoll_lab.store.program_output import LinkWindow, LoadSummary, ServerSummary
from plimsoll_lab.store.records import ResultWarning, Sample

FOREIGN_CORES_TOLERATED = 0.25
"""CPU used by others during the window that is still called quiet: /proc/stat counts in steps of 10
ms a CPU, so in a window of 0.3 s on two CPUs less is indistinguishable from nothing."""
SAMPLE_LAG_TOLERATED = 0.05
"""How late the server's usage may be read, as a part of the window."""
WITHHELD_TOLERATED = 0.01
"""A quota or a hypervisor that withholds a hundredth of the window's time has already moved a 99th
percentile."""
UNSTABLE = 1.3
"""The server's CPU in the one half of a window over that in the other, beyond which there was no
steady state."""
LEAST_SAMPLES = 6
"""Below this many, a half is one or two samples, and each is a tenth of a second."""
LEAST_CORES = 0.1
"""A server that idles has no steady state to miss."""
TRUNCATED = 1.5
"""Little's law and the mean that was seen differ by less than this, noise and the window's edges
included."""


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
    window_missed: bool = False
    """Whether the window was over before its opening was seen."""
    withheld_s: float = 0.0
    """CPU seconds that the hypervisor withheld, of moments in which it withheld much."""
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
    server_lacked_memory: bool = False
    """Whether the kernel ended the server for want of memory."""
    load_lacked_memory: bool = False
    """Whether it ended the generator so."""
    samples: Sequence[Sample] = ()
    """The server's tree over the window."""
    think_s: float | None = None
    """Closed loop over a stated time: the pause before each request; None of any other load."""
    network: LinkWindow | None = None
    """What the emulated links did over the window; None without a network."""
    closed: bool = False
    """Whether the load is a closed loop."""
    counted: bool = False
    """Whether the load ends with a number of requests."""
    limited: frozenset[str] = frozenset()
    """Figures that the suite judges the trial by, as it has limits on them: each has to be
    known."""
    missed: frozenset[str] = frozenset()
    """Figures whose limit is missed, by the generator's output."""
    at_most: bool = False
    """Whether the trial is one of a search, and asks for times or failures of its load that are at
    most so large: these are upper bounds, however late the generator is."""
    unmerged: str | None = None
    """Why the summaries of several generators are not one; None where they are."""
    warnings: tuple[ResultWarning, ...] = ()
    """Warnings of other parts of the trial."""


LEAST_ERROR = 400
"""From here on a status says that the request failed (RFC 9110, sections 15.5 and 15.6)."""


def causes(summary: LoadSummary) -> str:
    """Why requests failed, with how many did; of error statuses, which ones were answered."""
    answered = [f"{count} of {status}" for status, count in _error_statuses(summary).items()]
    which = {"status": f" ({', '.join(answered)})"} if answered else {}
    found = [f"{count} {code}{which.get(code, '')}" for code, count in summary.errors.items() if count]
    return ", ".join(found) or "no cause given"


def causes_alone(summary: LoadSummary) -> str:
    """Why requests failed, without how many did: the same words for all trials that fail alike."""
    which = {"status": " ".join(["status", *_error_statuses(summary)])}
    return ", ".join(which.get(code, code) for code, count in summary.errors.items() if count) or "no cause given"


def _error_statuses(summary: LoadSummary) -> dict[str, int]:
    """The statuses that count as failed, with how many had each."""
    return {status: count for status, count in sorted(summary.statuses.items()) if count and int(status) >= LEAST_ERROR}


def load_warnings(seen: Observation) -> list[ResultWarning]:
    """Of the load: the generator's own, and what its figures show."""
    summary = seen.load_summary or LoadSummary()
    warnings = [ResultWarning(code=each.code, message=each.message, remedy=each.remedy) for each in summary.warnings]
    warnings += _truncated(seen)
    failed = summary.requests.lost
    if failed:
        warnings.append(
            ResultWarning(
                code="failed_requests",
                message=f"{counted(failed, 'request')} failed: {causes(summary)}",
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


def machine_warnings(seen: Observation) -> list[ResultWarning]:
    """Of the machine that the server ran on."""
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
    elif seen.window_s and seen.withheld_s > WITHHELD_TOLERATED * seen.window_s:
        warnings.append(
            ResultWarning(
                code="steal",
                message=f"the hypervisor withheld {seen.withheld_s:.2f} s of CPU in a few moments of a window of "
                f"{seen.window_s:.2f} s",
                remedy="use a machine, or an hour, with less contention",
            )
        )
    if seen.window_s and seen.throttled_s and seen.throttled_s > WITHHELD_TOLERATED * seen.window_s:
        warnings.append(
            ResultWarning(
                code="throttled",
                message=f"a CPU quota held threads back for {seen.throttled_s:.2f} s in a window of "
                f"{seen.window_s:.2f} s",
                remedy="raise the quota of this container (cpu.max, cpu.cfs_quota_us), or use a smaller load",
            )
        )
    warnings += _unstable(seen)
    if seen.window_missed:
        warnings.append(
            ResultWarning(
                code="window_missed",
                message=f"the window was over before the laboratory read the server, {seen.lag_s * 1e3:.0f} ms late: "
                "what the server used in it is not known",
                remedy="use a longer window, more requests or a quieter machine",
            )
        )
    if seen.window_s and seen.lag_s > SAMPLE_LAG_TOLERATED * seen.window_s:
        warnings.append(
            ResultWarning(
                code="late_sample",
                message=f"the server was read {seen.lag_s * 1e3:.0f} ms late in a window of {seen.window_s:.2f} s",
                remedy="use a longer window, or a quieter machine",
            )
        )
    return warnings
