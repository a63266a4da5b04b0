"""The answer of `lab capacity --json`: what the run's summary says of its one search."""

from __future__ import annotations

from pathlib import Path

from made_records import stored_run

from plimsoll_lab.analysis.capacity import capacity_summary
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.store.records import WarningRecord
from plimsoll_lab.store.search_record import LoadRecord, SearchRecord, SearchSettingsRecord
from plimsoll_lab.store.summary_record import CapacityRecord, TrialsSummary
from plimsoll_lab.suite.figures import read_limit

FOUND = CapacityRecord(
    point={}, searches=2, ended=2, failed=False, finished=True, lower=1000, upper=1050, lowers=(1000, 990),
    uppers=(1050, 1060), spread=0.01, held_s=60.0, precision=0.02, limited_by="server", first_break="p99 at 9 ms",
    causes=("cpu",), generator_ceiling_per_s=50_000.0, text="the server carries 1,000 requests/s",
)  # fmt: skip


def test_the_capacity_stands_at_the_top_with_each_of_its_searches(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001")
    run = folder.read_run()
    run.search = SearchSettingsRecord(over="load.rate", lowest=1, highest=10_000)
    run.limits = [
        read_limit("response_time.p99", "< 5ms", source="it.toml"),
        read_limit("requests.failed", "== 0", source="it.toml"),
    ]
    load = LoadRecord(load=1000, trials=3, good=2, medians={"completed_rate": 1000.0})
    run.searches = [
        SearchRecord(
            number=1, block=1, point=0, state="complete", lower=1000, upper=1050, limited_by="server", loads=[load],
            confirmed=8, unconfirmed=[1050],
        ),
        SearchRecord(number=2, block=2, point=0, state="out of patience", lower=990),
    ]  # fmt: skip
    folder.write_run(run)
    warning = WarningRecord(code="steal", message="seen", remedy="wait", severity="widens", trials=3)
    summary = summarise_run(folder).model_copy(
        update={
            "capacities": [FOUND, FOUND.model_copy(update={"lower": 7})],
            "trials": TrialsSummary(planned=2, measured=42, valid=40),
            "warnings": [warning],
            "valid": True,
            "command": "plimsoll lab capacity --seed 1",
        }
    )
    assert capacity_summary(run, summary).to_json() == {
        "event": "summary",
        "schema_version": 1,
        "run": str(folder.path),
        "report": str(folder.report),
        "status": "complete",
        "over": "rate",
        "lower": 1000,
        "upper": 1050,
        "held_s": 60.0,
        "precision": 0.02,
        "finished": True,
        "limit": "response_time.p99 < 5ms and requests.failed == 0",
        "limited_by": "server",
        "first_break": "p99 at 9 ms",
        "causes": ["cpu"],
        "answer": ["the server carries 1,000 requests/s"],
        "generator_ceiling_per_s": 50_000.0,
        "valid": True,
        "trials": 42,
        "searches": [
            {
                "block": 1,
                "state": "complete",
                "lower": 1000,
                "upper": 1050,
                "limited_by": "server",
                "confirmed": 8,
                "unconfirmed": [1050],
                "loads": [load.to_json()],
            },
            {
                "block": 2,
                "state": "out of patience",
                "lower": 990,
                "upper": None,
                "limited_by": None,
                "confirmed": 0,
                "unconfirmed": [],
                "loads": [],
            },
        ],
        "lowers": [1000, 990],
        "spread": 0.01,
        "command": "plimsoll lab capacity --seed 1",
        "warnings": [{"code": "steal", "message": "seen", "remedy": "wait", "severity": "widens", "trials": 3}],
    }
