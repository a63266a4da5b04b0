"""What the captures of a run saw: packets, TCP flags and retransmissions over time, and their
totals.

A point is shown by one trial, as in its timeline: of its valid trials with a capture the one with
the median completed rate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis.over_time import Dots, typical_trials
from plimsoll_lab.store.program_output import CaptureInterval, CaptureSummary, read_output
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord

FLAGS = ("syn", "fin", "rst", "psh", "ack")
"""TCP flags over time."""
TOTALS = ("retransmissions", "out_of_order", "duplicate_acks", "zero_windows", "resets", "unanswered_syn")
"""Counts of a whole capture, under `tcp`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What one capture of a trial saw."""

    trial: int
    """The trial's number."""
    contender: str
    """Whose it is; `all` where nothing competes."""
    host: str
    """Where packets were captured."""
    series: Mapping[str, Dots]
    """By quantity: seconds since the first packet, and a number per second."""
    ends_s: float
    """The end of the last interval."""
    totals: Mapping[str, int]
    """Packets, bytes, endpoints and what went wrong, as far as the capture shows it."""
    drops: int | None
    """Packets that the capture missed; None where it does not say."""


def traffic(run: RunRecord, trials: Sequence[TrialRecord]) -> dict[str, list[Traffic]]:
    """By the setting of the other axes, the captures of each contender; empty where nothing was
    captured.
    """
    found: dict[str, list[Traffic]] = {}
    for level, contender, trial in typical_trials(run, [each for each in trials if _summaries(each)]):
        for host, summary in _summaries(trial):
            found.setdefault(level, []).append(_traffic(trial.number, contender, host, summary))
    return found


def _summaries(trial: TrialRecord) -> list[tuple[str, CaptureSummary]]:
    """Each capture that ended with a summary."""
    captures = trial.hosts.get("captures") or ()
    return [
        (str(each.get("host")), read_output(CaptureSummary, each["summary"], "the capture"))
        for each in captures
        if isinstance(each.get("summary"), dict)
    ]


def _traffic(trial: int, contender: str, host: str, summary: CaptureSummary) -> Traffic:
    length_s = summary.interval_s or 1.0
    series: dict[str, Dots] = {}
    for number, each in enumerate(summary.interval):
        for name, count in _counts(each).items():
            series.setdefault(name, []).append(((number + 0.5) * length_s, count / length_s))
    totals = {"packets": summary.packets, "bytes": summary.bytes, "endpoints": summary.endpoints}
    totals |= {name: summary.tcp[name] for name in TOTALS if name in summary.tcp}
    totals |= {name: summary.flags[name] for name in FLAGS if name in summary.flags}
    return Traffic(
        trial=trial,
        contender=contender,
        host=host,
        series=series,
        ends_s=len(summary.interval) * length_s,
        totals={name: count for name, count in totals.items() if count is not None},
        drops=summary.kernel_drops,
    )


def _counts(interval: CaptureInterval) -> dict[str, float]:
    known = {"packets": interval.packets, "new_endpoints": interval.new_endpoints}
    known |= {
        "bits": None if interval.bytes is None else interval.bytes * 8,
        "retransmissions": interval.retransmissions,
    }
    known |= {name: interval.flags.get(name) for name in FLAGS}
    return {name: count for name, count in known.items() if count is not None}
