"""Whether a trial should be measured again: something was in the way that may be gone the next time. Pure."""

from __future__ import annotations

from plimsoll_lab.store.records import TrialRecord

SUSPECT = {"generator_limited", "invalid"}
"""Outcomes that say something of the machine, not of the server."""
PASSING = {"machine_busy", "steal", "throttled", "capture_drops", "link_disturbed"}
"""Doubts about a result whose cause passes: another program, another guest, a quota used up, an emulator held up."""
SHORTEST_S = 0.2
"""The kernel counts CPU in steps of 10 ms: of a shorter window, nothing it says of other programs is sure."""


def suspicion(trial: TrialRecord) -> str | None:
    """Why this trial is worth making again; None where it is not."""
    if trial.outcome in SUSPECT:
        return trial.reason or trial.outcome
    window_s = trial.machine.get("window_s")
    if trial.outcome != "ok" or not isinstance(window_s, float) or window_s < SHORTEST_S:
        return None
    return next((doubt.message for doubt in trial.warnings if doubt.code in PASSING), None)
