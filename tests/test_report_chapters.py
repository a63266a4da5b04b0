"""The book's chapters about the five reports, from summaries that are kept."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laboratory import ROOT, bench_module, run_bench
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


def write(tmp_path: Path, chapter: str, summary: dict[str, Any]) -> str:
    """A chapter of one kept summary."""
    kept = tmp_path / "docs" / "results" / f"report-{summary['suite']}.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps(summary))
    done = run_bench(tmp_path, "reports.py", chapter)
    assert done.returncode == 0, done.stderr
    return (tmp_path / "docs" / f"report-{chapter}.md").read_text()


def test_a_ladder_is_drawn_along_its_steps_with_the_servers_processes_and_the_control_beside(tmp_path: Path) -> None:
    def step(setting: dict[str, Any], load: float) -> dict[str, Any]:
        found = {"host.load_average": {"mean": load, "stdev": 0.1}}
        return {"point": setting, "outcome": "ok", "reason": None, "n": 2, "valid_n": 2, "figures": found}

    path = "role.saturator.connections"
    points = [
        *(step({path: count}, 100.0 + count) for count in (1, 3, 15)),
        step({"role.saturator.active": False}, 777),
    ]
    listed = [{"pid": 40 + n, "name": "plimsoll", "cpu_cores": 0.066} for n in (1, 2)]
    busy = {"point": "15 saturator connections", "cpu_cores": 0.14, "seen": 9, "listed": listed}
    told = {"suite": "http-saturation-ladder", "claims": [], "references": [], "points": points, "processes": busy}
    chapter = write(tmp_path, "http-saturation", SUMMARY | told)
    drawn = (tmp_path / "docs/results/report-http-saturation-ladder-host-load_average.svg").read_text()
    assert "115" in drawn
    assert "777" not in drawn, "the control is no step"
    assert "| 777 ± 0.1 |" in chapter
    used = (
        "2 of the 9 processes of the server that were seen used 13.2 % of a CPU together, and the server in all 14.0 %"
    )
    assert f"Of the first trial at 15 saturator connections: {used}." in flat(chapter)
    assert "| 42 | 6.6 | plimsoll |" in chapter


def test_a_chapter_says_what_its_suite_sets_otherwise_since_the_run(tmp_path: Path) -> None:
    text = (ROOT / "suites" / "http-saturation-ladder.toml").read_text()
    older = text.replace("connections = 5\n", "connections = 6\n").replace("processes = true", "processes = false")
    told = {"suite": "http-saturation-ladder", "claims": [], "references": []}
    chapter = write(tmp_path / "older", "http-saturation", SUMMARY | told | {"suite_text": older})
    assert "The suite has changed since this run: `[load] connections`, `processes`." in chapter
    assert "```console\n$ plimsoll lab run" in chapter
    axes = text.replace("[1, 2, 3, 5, 10, 15, 30]", "[1, 2]")
    other = write(tmp_path / "axes", "http-saturation", SUMMARY | told | {"suite_text": axes})
    assert "The suite had other points then: `lab run" in other
    assert "```console" not in other
    same = write(tmp_path / "same", "http-saturation", SUMMARY | told | {"suite_text": "# a remark\n" + text})
    assert "has changed since" not in same


def test_a_chapter_says_which_congestion_control_a_run_used(tmp_path: Path) -> None:
    told = {"suite": "http-saturation-size", "claims": [], "references": []}
    older = write(tmp_path / "older", "http-saturation", SUMMARY | told)
    assert "its hosts used bbr, the default of that machine, and not cubic. It has to be run again." in flat(older)
    newer = write(tmp_path / "newer", "http-saturation", SUMMARY | told | {"congestion": ["cubic"]})
    assert "Congestion control of TCP: cubic." in newer
    assert "bbr" not in newer
    assert "bbr" not in write(tmp_path / "other", "epoll-scaling", SUMMARY), "its suite names none"


def flat(chapter: str) -> str:
    """A chapter without the ends of its lines."""
    return " ".join(chapter.split())


def told(mean: float, **more: object) -> dict[str, Any]:
    return {"mean": mean, "stdev": mean / 10, "median": mean, "median_ci95": [mean * 0.9, mean * 1.1], **more}


def echo(target: list[str], connections: int, mean_us: float, outcome: str = "ok") -> dict[str, Any]:
    found = {"service_time_us.mean": told(mean_us)} if outcome == "ok" else {}
    setting = {"load.target": target, "load.connections": connections}
    reason = None if outcome == "ok" else "it stopped at 12,107 of 16,000 connections"
    return {"point": setting, "outcome": outcome, "reason": reason, "n": 6, "valid_n": 6, "figures": found}


DIRECT, FORWARDED = ["role:server", "role:second"], ["role:forwarder:7000", "role:forwarder:8000"]
HAPROXY = ["role:haproxy", "role:haproxy:9000"]
PORT_FWD: dict[str, Any] = {
    "suite": "port-fwd-255",
    "claims": [],
    "references": [
        {
            "figure": "service_time_us.mean",
            "at": {"load.target": FORWARDED, "load.connections": 16000},
            "value": value,
            "source": "there",
            "text": text,
        }
        for value, text in ((6674.76, ""), (30359.3, "read as legs: netstat counted 32,000"))
    ],
    "points": [
        *(echo(DIRECT, count, 50.0) for count in (1000, 16000, 60000)),
        *(echo(FORWARDED, count, mean) for count, mean in ((1000, 90.0), (16000, 100.0), (60000, 93.3))),
        echo(HAPROXY, 1000, 75.0),
        echo(HAPROXY, 16000, 0.0, "failed"),
    ],
}


def test_a_chapter_says_what_forwarding_costs_and_at_how_many_connections(tmp_path: Path) -> None:
    chapter = flat(write(tmp_path / "means", "port-fwd", SUMMARY | PORT_FWD))
    assert "Forwarding costs 43.3 us and 1.87 times the direct echo at 60,000 connections; haproxy costs " in chapter
    assert "haproxy costs 25.0 us and 1.50 times the direct echo at 1,000 connections, and has no result" in chapter
    assert "beyond (it stopped at 12,107 of 16,000 connections)." in chapter
    paired = {"relay": "forwarder", "rest": "60,000 connections", "added_us": [44, 40, 48], "times": [1.9, 1.8, 2.0]}
    chapter = flat(write(tmp_path / "paired", "port-fwd", SUMMARY | PORT_FWD | {"costs": [paired]}))
    assert "Forwarding costs 44.0 [40.0, 48.0] us and 1.90 [1.80, 2.00] times the direct echo" in chapter


def test_a_chapter_says_by_how_many_trials_it_knows_what_forwarding_costs(tmp_path: Path) -> None:
    """Its table of claims said that the rest may be the slowest, and the sentence above nothing."""
    points = [
        {**each, "figures": {name: {**told, "n": n} for name, told in each["figures"].items()}}
        for each, n in zip(PORT_FWD["points"], (6, 6, 3, 6, 6, 5, 6, 6), strict=True)
    ]
    chapter = flat(write(tmp_path, "port-fwd", SUMMARY | PORT_FWD | {"points": points}))
    by = "told by 3 of 6 direct trials and 5 of 6 forwarder trials alone"
    assert f"times the direct echo at 60,000 connections ({by}); haproxy costs 25.0 us" in chapter
    assert "times the direct echo at 1,000 connections, and has no result" in chapter


def test_a_unit_is_said_unless_it_is_a_word_of_the_figures_name() -> None:
    """An elapsed time had none, as there is an s in "elapsed"."""
    shown = bench_module("report_plots").shown
    assert shown("elapsed_s", [12.0]) == (1.0, "elapsed time (s)")
    assert shown("server.cpu_cores", [0.5])[1].endswith("(cores)")
    assert shown("packets_per_s", [9.0])[1].count("a second") == 1
    assert shown("host.load_average", [9.0])[1] == "load average"


def test_costs_are_of_trials_of_one_block() -> None:
    def trial(target: list[str], block: int, mean_us: float, outcome: str = "ok") -> Any:  # noqa: ANN401 - a record
        setting = {"load.target": target, "load.connections": 10}
        return SimpleNamespace(
            setting=setting, block=block, outcome=outcome, figures={"response_time_us.mean": mean_us}
        )

    direct = [trial(DIRECT, block, mean) for block, mean in ((1, 10.0), (2, 20.0), (3, 30.0))]
    behind = [trial(FORWARDED, 1, 20.0), trial(FORWARDED, 2, 40.0), trial(FORWARDED, 3, 999.0, "invalid")]
    (found,) = bench_module("relay_costs").paired_costs([*direct, *behind], "response_time_us.mean")
    assert (found["relay"], found["rest"]) == ("forwarder", "10 connections")
    assert found["added_us"][0] == 15.0
    assert found["times"] == pytest.approx([2.0, 2.0, 2.0])


def test_a_documents_count_is_shown_in_both_of_its_readings(tmp_path: Path) -> None:
    chapter = write(tmp_path, "port-fwd", SUMMARY | PORT_FWD)
    assert "| 0.1 ± 0.01; 0.1 [0.09, 0.11] (6.67; 30.4, read as legs) |" in chapter
    drawn = (tmp_path / "docs/results/report-port-fwd-255-service_time_us-mean.svg").read_text()
    assert "theirs, read as legs" in drawn
    assert "![service_time_us.mean, ours and theirs]" in chapter


def test_a_picture_promises_theirs_only_where_there_is_one(tmp_path: Path) -> None:
    elsewhere = [echo(DIRECT, count, 50.0) for count in (101, 1001, 16001)]
    chapter = write(tmp_path, "port-fwd", SUMMARY | PORT_FWD | {"points": elsewhere})
    assert "![service_time_us.mean](results/" in chapter
    assert "theirs" not in chapter


def test_a_figure_is_drawn_over_the_product_that_its_suite_names(tmp_path: Path) -> None:
    def place(rate: str, delay: str, mean: float) -> dict[str, Any]:
        found = {"goodput_bits_per_s": told(mean), "completed_rate": told(mean / 4e6)}
        setting = {"network.rate": rate, "network.delay": delay}
        return {"point": setting, "outcome": "ok", "reason": None, "n": 2, "valid_n": 2, "figures": found}

    points = [place("50Mbit", "1ms", 4e7), place("100Mbit", "1ms", 9e7), place("200Mbit", "1ms", 1.8e8)]
    points.append(place("100Mbit", "50ms", 1e7))
    kept = {"suite": "http-saturation-bandwidth", "claims": [], "references": [], "points": points}
    chapter = write(tmp_path, "http-saturation", SUMMARY | kept)
    drawn = (tmp_path / "docs/results/report-http-saturation-bandwidth-goodput_bits_per_s.svg").read_text()
    assert ">rate * delay (kbit)<" in drawn
    assert ">delay 50ms<" in drawn, "no point of the line of another delay"
    assert "report-http-saturation-bandwidth-completed_rate.svg" in chapter
    assert "| transmission time" not in chapter, "the run was kept before that was asked for"


def test_a_chapter_has_theirs_and_ours_the_claims_and_what_stopped(tmp_path: Path) -> None:
    chapter = write(tmp_path, "epoll-scaling", SUMMARY)
    kept = tmp_path / "docs" / "results" / "report-epoll-scaling.json"
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
    done = run_bench(tmp_path, "reports.py", "epol")
    assert done.returncode == 1
    assert "CHAPTER is one of tcpbenchmark" in done.stderr
