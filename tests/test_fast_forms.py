"""The small forms of the suites of the five reports, from file to report: those that need no
network; all with PLIMSOLL_FAST_FORMS=all, as `make soak` sets it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from laboratory import needs_networks, run_bench, run_lab
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import untold_figures

LOCAL = ("tcpbenchmark", "port-fwd-accept")
NETWORKED = (
    *("three-servers", "epoll-scaling", "port-fwd-255", "port-fwd-4000", "port-fwd-closed"),
    *("http-saturation-size", "http-saturation-bandwidth", "http-saturation-versions", "http-saturation-ladder"),
)
ALL = os.environ.get("PLIMSOLL_FAST_FORMS") == "all"
FORMS = LOCAL if not ALL else [*LOCAL, *(pytest.param(name, marks=needs_networks) for name in NETWORKED)]


@pytest.mark.parametrize("name", FORMS)
def test_the_small_form_of_a_suite_runs_to_its_end(tmp_path: Path, name: str) -> None:
    done = run_lab(tmp_path, "run", name, "--fast", "--json", *(() if ALL else ("--repeat", "1")))
    # 1: a contender that is not installed; 3: a limit was missed; 4: the machine was the limit.
    assert done.returncode in {0, 1, 3, 4}, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["status"] == "complete"
    assert summary["trials"]["measured"] == summary["trials"]["planned"] > 0
    assert {each["name"] for each in summary["claims"]}
    run = tmp_path / "runs" / "0001"
    assert (run / "report.html").stat().st_size
    failed = [each for each in summary["points"] if each["outcome"] == "failed"]
    others = [each for each in failed if not any(name in str(each["point"]) for name in ("role:nginx", "role:haproxy"))]
    assert not others
    # A busy machine leaves no result of a trial, and every figure even so.
    trials = RunFolder(path=run).read_trials()
    told = [{*trial.figures, *untold_figures(trial)} for trial in trials if trial.outcome != "failed"]
    for figure in {each["figure"] for each in (*summary["claims"], *summary["references"])}:
        assert any(figure in each for each in told), figure
    for trial in trials:
        assert trial.outcome in {"failed", "invalid"} or trial.figures["requests.completed"] > 0, trial.number
    chapter = next(each for each in ("port-fwd", "http-saturation", name) if name.startswith(each))
    kept = run_bench(tmp_path, "reports.py", chapter, str(run))
    assert kept.returncode == 0, kept.stderr
    page = tmp_path / "docs" / f"report-{chapter}.md"
    assert f"## {name}\n" in page.read_text()
    # A claim that the suite has today, and had not as it ran, is judged from the same trials.
    record = json.loads((run / "run.json").read_text())
    later = record["claims"].pop(0)
    (run / "run.json").write_text(json.dumps(record))
    assert run_bench(tmp_path, "reports.py", chapter, str(run)).returncode == 0
    rows = [row for row in page.read_text().splitlines() if "asked after the run |" in row]
    assert [row.split(" | ")[0] for row in rows] == [f"| {later['name']}"]
