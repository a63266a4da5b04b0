"""The answer of `plimsoll lab capacity`: the summary of a run with one search, as one object."""

from __future__ import annotations

from typing import cast

from plimsoll_lab.analysis.searches import limits_text, over
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json


def capacity_summary(folder: RunFolder, summary: Json) -> Json:
    """The run's summary in the form of `capacity`: the one thing that was asked for at its top."""
    run = folder.read_run()
    found = cast("list[Json]", summary["capacities"])[0]
    search = cast("list[Json]", run["searches"])
    return {
        "event": "summary",
        "schema_version": summary["schema_version"],
        "run": summary["run"],
        "report": summary["report"],
        "status": summary["status"],
        "over": over(run),
        "lower": found["lower"],
        "upper": found["upper"],
        "held_s": found["held_s"],
        "precision": found["precision"],
        "finished": found["finished"],
        "limit": limits_text(run),
        "limited_by": found["limited_by"],
        "first_break": found["first_break"],
        "causes": found["causes"],
        "answer": found["text"],
        "generator_ceiling_per_s": found["generator_ceiling_per_s"],
        "valid": summary["valid"],
        "trials": cast("dict[str, int]", summary["trials"])["measured"],
        "searches": [
            {key: each.get(key) for key in ("block", "state", "lower", "upper", "limited_by", "loads")}
            for each in search
        ],
        "lowers": found["lowers"],
        "spread": found["spread"],
        "command": summary["command"],
        "warnings": summary["warnings"],
    }
