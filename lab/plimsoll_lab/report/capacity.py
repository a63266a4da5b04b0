"""The answer of `plimsoll lab capacity` in the terminal."""

from __future__ import annotations

from typing import cast

from plimsoll_lab.report.searches import render_searches
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json


def render_capacity(folder: RunFolder, summary: Json) -> str:
    """The answer in words: one sentence, one table, and where the page is."""
    answers = cast("list[str]", summary["answer"])
    doubts = [
        f"warning  {each['code']}: {each['message']}; {each['remedy']}"
        for each in cast("list[Json]", summary["warnings"])
    ]
    lines = [*answers, *render_searches(summary, folder.read_run())]
    lines += ["", *doubts] if doubts else []
    return "\n".join([*lines, "", f"report   {summary['report']}", f"again    {summary['command']}"])
