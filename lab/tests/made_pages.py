"""Pages of runs on disk, and what stands in them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from made_records import stored_run

from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.report.page import render_page
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.suite.spec import Axis, PlannedTrial

MOST_BYTES = int(2.5 * 2**20)


def page_of(folder: RunFolder) -> str:
    page = render_page(folder, summarise_run(folder))
    assert len(page.encode()) <= MOST_BYTES
    for place in re.findall(r'data-chart="[^"]+"[^>]*>(.{0,5})', page):
        assert place.startswith("<svg"), "a chart has its still picture"
    return page


def run_over_loads(path: Path) -> RunFolder:
    """Two models at three loads, in six blocks."""
    folder = stored_run(path, ("epoll", "threads"), repeat=18)
    run, loads = folder.read_run(), (10, 20, 30)
    run.points = tuple(
        point.model_copy(
            update={
                "number": 2 * place + point.number,
                "setting": {**point.setting, "load.connections": load},
                "load": {"connections": load},
            }
        )
        for place, load in enumerate(loads)
        for point in run.points
    )
    run.axes = (*run.axes, Axis(path="load.connections", values=loads))
    run.family = run.family.model_copy(update={"figures": ("completed_rate",)})
    planned = []
    for trial in folder.read_trials():
        place = (trial.block - 1) % 3
        number, block = 2 * place + trial.point, 1 + (trial.block - 1) // 3
        setting = {**trial.setting, "load.connections": loads[place]}
        folder.write_trial(replace(trial, point=number, block=block, setting=setting))
        planned.append(PlannedTrial(number=trial.number, block=block, point=number))
    run.trials = tuple(planned)
    folder.write_run(run)
    return folder


def answer_of(page: str) -> list[str]:
    return re.findall(r'<p class="answer">(.+?)</p>', page)
