"""The hosts of a run on a cluster: what each is, in what they differ, and which are one machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from plimsoll_lab.store.records import ResultWarning
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
    by_machine: dict[str, list[str]] = {}
    for host in run.hosts:
        by_machine.setdefault(host.machine, []).append(host.name)
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
