"""The answer of imported results: where they come from, and the figures of each contender."""

from __future__ import annotations

from collections.abc import Sequence

from made_records import point_summary, run_record

from plimsoll_lab.analysis.answer import Evidence
from plimsoll_lab.analysis.imported import answer_imported
from plimsoll_lab.store.run_record import FamilyRecord, ImportedFile, ImportRecord, RunRecord
from plimsoll_lab.store.summary_record import PointSummary
from plimsoll_lab.suite.figures import FIGURES
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import PlannedTrial

NOBODY = "imported: nobody checked whether the generator or the machine was the limit."


def run_of(*tools: str, compare: str | None = "contender") -> RunRecord:
    run = run_record()
    files = [
        ImportedFile(trial=number, name=f"{number}.json", tool=tool, target="", sha256=str(number), started_unix_s=None)
        for number, tool in enumerate(tools, 1)
    ]
    run.imported = ImportRecord(unix_s=0.0, files=files)
    run.trials = [PlannedTrial(number=number, block=number, point=0) for number in range(1, len(tools) + 1)]
    run.family = FamilyRecord(compare=compare, figures=(), margin=0.05)
    return run


def answered(run: RunRecord, points: Sequence[PointSummary]) -> list[str]:
    figures = {each.name: each for each in FIGURES}
    return answer_imported(run, Evidence(verdicts=(), scores=(), points=points, figures=figures, stops=(), margin=0.05))


def test_results_are_counted_and_their_tools_named_once() -> None:
    point = point_summary({}, completed_rate=1000.0)
    alone = "The server completes 1,000/s."
    assert answered(run_of("wrk2", compare=None), [point]) == [f"1 result of wrk2, {NOBODY}", alone]
    several = run_of("wrk2", "k6", "wrk2", compare=None)
    assert answered(several, [point])[0] == f"3 results of wrk2 and k6, {NOBODY}"


def test_each_contender_has_its_figures_at_its_last_load_with_a_result() -> None:
    def at(contender: str, connections: int) -> Settings:
        return {"contender": contender, "load.connections": connections}

    points = [
        point_summary(at("old", 10), 0, completed_rate=1.0),
        point_summary(at("old", 20), 1, completed_rate=2000.0),
        point_summary(at("old", 30), 2, "failed", completed_rate=3.0),
        point_summary(at("new", 10), 3, completed_rate=4000.0, response_time_us__p99=900.0),
    ]
    first = f"2 results of wrk2, {NOBODY}"
    run = run_of("wrk2", "wrk2")
    assert answered(run, points) == [
        first,
        "old, at 20 connections, completes 2,000/s.",
        "new, at 10 connections, completes 4,000/s and answers 99 % of requests within 900 us.",
    ]
    assert answered(run, [point_summary({"contender": "old"}, 0, completed_rate=5.0)]) == [
        first,
        "old completes 5.00/s.",
    ]
    third = point_summary({"contender": "third"}, 4, completed_rate=5.0)
    assert answered(run, [*points, third]) == [first, "The table has the medians of 3 contenders."]
    nothing = point_summary({"contender": "old"}, 0, "failed", "it fell over")
    assert answered(run, [nothing]) == [first, "There is no valid result: it fell over."]
