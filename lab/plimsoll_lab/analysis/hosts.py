"""The hosts of a run on a cluster: what each is, in what they differ, and which are one machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from plimsoll_lab.store.records import Json

PASSING = {"load_average"}
"""What differs from moment to moment on one machine too."""


def hosts_of(run: Json) -> list[Json]:
    """Every host, in the order of the suite; empty for a run on one machine."""
    return cast("list[Json]", run.get("hosts") or [])


def host_rows(run: Json) -> list[Json]:
    """Each property with its value on every host, and whether the hosts differ in it."""
    hosts = hosts_of(run)
    rows: list[Json] = [{"name": "address", "values": [str(host["address"]) for host in hosts], "differs": False}]
    known = [{**cast("Json", host["versions"]), **cast("Json", host["environment"])} for host in hosts]
    for name in dict.fromkeys(name for own in known for name in own):
        values = [_text(own.get(name)) for own in known]
        rows.append({"name": name, "values": values, "differs": len(set(values)) > 1 and name not in PASSING})
    return rows


def host_warnings(run: Json) -> list[Json]:
    """Where hosts differ, or share a machine that the figures treat as several."""
    hosts = hosts_of(run)
    found: list[Json] = []
    differing = [str(row["name"]).replace("_", " ") for row in host_rows(run) if row["differs"]] if hosts else []
    if differing:
        found.append(
            {
                "code": "hosts_differ",
                "message": f"the hosts differ in {', '.join(differing)}",
                "remedy": "compare only what ran on the same hosts, or make them alike; the page lists each host",
            }
        )
    by_machine: dict[str, list[str]] = {}
    for host in hosts:
        by_machine.setdefault(str(host["machine"]), []).append(str(host["name"]))
    found.extend(
        {
            "code": "hosts_share_machine",
            "message": f"{', '.join(names)} are one machine: they take each other's CPU",
            "remedy": "give each host a machine of its own, or read CPU per request and not rates",
        }
        for names in by_machine.values()
        if len(names) > 1
    )
    return found


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {each}" for key, each in value.items())
    return "not told" if value is None else str(value)
