"""The hosts of a run on a cluster: what each is, in what they differ, and which are one machine."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis import formatting
from plimsoll_lab.store.records import ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import RunRecord

PASSING = {"load_average"}
"""What differs from moment to moment on one machine too."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRow:
    """One property of every host."""

    name: str
    """What it is."""
    values: tuple[str, ...]
    """Of each host, in the order of the suite."""
    differs: bool
    """Whether the hosts differ in it."""


def host_rows(run: RunRecord) -> list[HostRow]:
    """Each property with its value on every host, and whether the hosts differ in it."""
    rows = [HostRow(name="address", values=tuple(host.address for host in run.hosts), differs=False)]
    known = [{**host.versions, **host.environment} for host in run.hosts]
    for name in dict.fromkeys(name for own in known for name in own):
        values = tuple(_text(own.get(name)) for own in known)
        rows.append(HostRow(name=name, values=values, differs=len(set(values)) > 1 and name not in PASSING))
    return rows


def clock_row(run: RunRecord, trials: Sequence[TrialRecord]) -> HostRow:
    """How far the clock of each host was from the lab's, and how far that may be wrong."""
    values = []
    for host in run.hosts:
        here = (host.name, host.address)
        told = [
            offset
            for trial in trials
            for clock in trial.hosts.get("clocks", ())
            if (clock["host"], clock.get("address", host.address)) == here
            for offset in (clock["before"], clock["after"])
        ]
        middle = statistics.median(each["offset_us"] for each in told) if told else None
        wrong = max((each["error_us"] for each in told), default=0.0)
        text = f"{formatting.number(middle, 'us')}, known within {formatting.number(wrong, 'us')}"
        values.append(text if told else "not told")
    return HostRow(name="clock against the lab's", values=tuple(values), differs=False)


def start_spreads_s(trials: Sequence[TrialRecord]) -> list[float]:
    """Of each trial with several generators: how far apart they opened their windows."""
    return [trial.hosts["start_spread_s"] for trial in trials if "start_spread_s" in trial.hosts]


def host_warnings(run: RunRecord) -> list[ResultWarning]:
    """Where hosts differ, or share a machine that the figures treat as several."""
    found: list[ResultWarning] = []
    differing = [row.name.replace("_", " ") for row in host_rows(run) if row.differs]
    if differing:
        found.append(
            ResultWarning(
                code="hosts_differ",
                message=f"the hosts differ in {', '.join(differing)}",
                remedy="compare only what ran on the same hosts, or make them alike; the page lists each host",
            )
        )
    by_machine: dict[str, dict[str, None]] = {}
    for host in run.hosts:
        by_machine.setdefault(host.machine, {})[host.name] = None
    found.extend(
        ResultWarning(
            code="hosts_share_machine",
            message=f"{', '.join(names)} are one machine: they take each other's CPU",
            remedy="give each host a machine of its own, or read CPU per request and not rates",
        )
        for names in by_machine.values()
        if len(names) > 1
    )
    return found


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return "not told" if value is None else str(value)
