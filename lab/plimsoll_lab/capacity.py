"""`plimsoll lab capacity`: one question, as a suite with a search; the answer is one object or some lines."""

from __future__ import annotations

from typing import cast

from plimsoll_lab.report.searches import limits_text, over, render_searches
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


def render_capacity(folder: RunFolder, summary: Json) -> str:
    """The answer in words: one sentence, one table, and where the page is."""
    answers = [str(each["text"]) for each in cast("list[Json]", summary["answers"])]
    doubts = [
        f"warning  {each['code']}: {each['message']}; {each['remedy']}"
        for each in cast("list[Json]", summary["warnings"])
    ]
    lines = [*answers, *render_searches(summary, folder.read_run())]
    lines += ["", *doubts] if doubts else []
    return "\n".join([*lines, "", f"report   {summary['report']}", f"again    {summary['command']}"])
