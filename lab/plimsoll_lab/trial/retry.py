"""Whether a trial should be measured again: a cause outside its own processes was in the way that
may pass. Pure.

A generator at its own limit is no such cause, nor an emulator that was late, nor a capture that
lost packets, unless another program or guest had the CPU. These strike the fastest contender most,
so that repeating its trials would choose among them. What a generator at its limit says is a lower
bound of the rate, and an emulator's moments are cut out.
"""

from __future__ import annotations

from plimsoll_lab.store.records import TrialRecord

HOST_LOST = "host_lost"
PASSING = {
    "machine_busy",
    "steal",
    "throttled",
    HOST_LOST,
    "window_missed",
}
"""Causes of the machine, which pass: another program, another guest, a quota used up, a host that
another one replaces, or a laboratory that the machine kept from reading."""
PASSING_WHERE_INVALID = {"late_start", "link_disturbed", "links_lost"}
"""And those of a trial that they left without a result, so that another one chooses among none: a
generator that the machine was too busy to start, and links that were at fault nobody knows when."""
SHORTEST_S = 0.2
"""The kernel counts CPU in steps of 10 ms: of a shorter window, nothing it says of other programs
is sure."""


def retry_reason(trial: TrialRecord) -> str | None:
    """Why this trial is worth making again; None where it is not."""
    cause = passing_cause(trial)
    if cause is None:
        return None
    if trial.outcome == "invalid":
        return trial.reason or cause
    return next(warning.message for warning in trial.warnings if warning.code == cause)


def passing_cause(trial: TrialRecord) -> str | None:
    """The code of the machine's doing, of a trial that is a result or spoilt by it."""
    window_s = trial.machine.get("window_s")
    if trial.outcome not in {"ok", "invalid"}:
        return None
    if trial.outcome == "ok" and (not isinstance(window_s, float) or window_s < SHORTEST_S):
        return None
    passing = PASSING | PASSING_WHERE_INVALID if trial.outcome == "invalid" else PASSING
    return next((warning.code for warning in trial.warnings if warning.code in passing), None)


def has_lost_a_host(trial: TrialRecord) -> bool:
    """Whether the trial ended because a host went: it says nothing of the server then."""
    return passing_cause(trial) == HOST_LOST
