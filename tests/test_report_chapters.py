"""The book's chapters about the five reports, from summaries that are kept."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from laboratory import ROOT, environment
from line_width import too_wide_markdown

NAMES = ("elapsed_s", "response_time_us.mean", "completed_rate")


def point(clients: int, pause: str, outcome: str, *figures: float) -> dict[str, Any]:
    return {
        "point": {"load.connections": clients, "load.think": pause},
        "outcome": outcome,
        "reason": None if outcome == "ok" else "too few descriptors",
        "n": 3,
        "valid_n": 3 if outcome == "ok" else 0,
        "figures": {name: {"mean": value, "stdev": value / 100} for name, value in zip(NAMES, figures, strict=False)},
    }


SUMMARY = {
    "suite": "epoll-scaling",
    "question": "How does time follow the clients?",
    "status": "complete",
    "trials": {"planned": 9, "valid": 6},
    "elapsed_s": 300.0,
    "command": "plimsoll lab run epoll-scaling --seed 1",
    "answer": ["It does, " + "and it goes on for longer than a line of the book is wide, " * 3 + "and ends."],
    "points": [
        point(2500, "1s", "ok", 61.5, 30_000.0, 2427.0),
        point(2500, "1ms", "ok", 15.1, 249_000.0, 10_000.0),
        point(20000, "1s", "failed", 99.9),
        point(5000, "1s", "ok", 71.5) | {"doubtful": True},
    ],
    "claims": [
        {
            "name": "a shorter pause ends sooner",
            "figure": "elapsed_s",
            "expect": "< 1",
            "value": 0.2455,
            "interval": [0.24, 0.251],
            "outcome": "confirmed",
            "reason": "the whole interval lies in the claimed range",
            "free": None,
        }
    ],
    "references": [
        {"figure": "elapsed_s", "at": {"load.connections": 2500, "load.think": "1s"}, "value": 68.0, "source": "there"},
        {"figure": "elapsed_s", "at": {"load.think": "1s"}, "value": 77.0, "source": "there, of which point?"},
    ],
}


def test_a_chapter_has_theirs_and_ours_the_claims_and_what_stopped(tmp_path: Path) -> None:
    kept = tmp_path / "docs" / "results" / "report-epoll-scaling.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(SUMMARY))
    script = str(ROOT / "bench" / "reports.py")
    done = subprocess.run(
        [sys.executable, script, "epoll-scaling"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    chapter = (tmp_path / "docs" / "report-epoll-scaling.md").read_text()
    assert "| 2,500 connections, think 1s | 61.5 ± 0.615 (68) |" in chapter
    assert "(77)" not in chapter, "of no one point"
    assert "| a shorter pause ends sooner | < 1 | 0.245 [0.24, 0.251] | **confirmed** |" in chapter
    assert "| 5,000 connections, think 1s | 71.5 ± 0.715? |" in chapter
    assert "99.9" not in (kept.parent / "report-epoll-scaling-elapsed_s.svg").read_text()
    assert "ours, doubtful" in (kept.parent / "report-epoll-scaling-elapsed_s.svg").read_text()
    assert "- 20,000 connections, think 1s: failed: too few descriptors" in chapter
    assert "R0 is 30 ms and X 10,000 requests a second, each the best" in chapter
    assert "With 2,500 clients a pause above 220 ms" in chapter
    # As wide as the rest of the book: tables and commands are as long as they have to be.
    assert list(too_wide_markdown(chapter)) == []
    for name in ("report-epoll-scaling-elapsed_s.svg", "report-epoll-scaling-law.svg"):
        assert (kept.parent / name).read_text().startswith("<svg")
    drawn = (kept.parent / "report-epoll-scaling-elapsed_s.svg").read_text()
    assert ">think 1ms<" in drawn, "a line for each of the other settings"
    assert ">connections<" in drawn, "along the axis with most values"


def test_a_chapter_that_there_is_not_is_refused(tmp_path: Path) -> None:
    script = str(ROOT / "bench" / "reports.py")
    done = subprocess.run(
        [sys.executable, script, "epol"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "CHAPTER is one of tcpbenchmark" in done.stderr
