"""The parts of the chapters that one report alone has: eight figures, tables of four hosts and a
verdict; courses within a run; and each axis beyond the document's loads, as commands.
"""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from laboratory import BINARY, ROOT, run_bench

sys.path.append(str(ROOT / "bench"))  # at the end: bench/http.py is not the library's http
import axes
import courses
import relay_costs
import report_tables
import reports
import three_servers

from plimsoll_lab.experiment.binary_check import refuse_what_the_binary_refuses
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_file
from plimsoll_lab.suite.shipped import find

Json = dict[str, Any]


def told(mean: float) -> Json:
    return {"n": 6, "mean": mean, "stdev": mean / 100, "mean_ci95": [mean * 0.99, mean * 1.01]}


def point(setting: Json, outcome: str = "ok", **figures: float) -> Json:
    """A point of a kept summary; `__` in the name of a figure stands for a dot."""
    named = {name.replace("__", "."): told(value) for name, value in figures.items()}
    reason = None if outcome == "ok" else "it refused 1966 connections"
    return {"point": setting, "outcome": outcome, "reason": reason, "n": 6, "valid_n": 6, "figures": named}


def own(model: str, clients: int, outcome: str = "ok", **figures: float) -> Json:
    setting = {"point": f"{model} at its load", "server.model": model, "load.connections": clients}
    return point(setting, outcome, **figures)


SUMMARY: Json = {
    "suite": "three-servers",
    "question": "Which?",
    "status": "complete",
    "trials": {"planned": 18, "valid": 12},
    "elapsed_s": 60.0,
    "command": "plimsoll lab run three-servers --seed 1",
    "answer": [],
    "claims": [],
    "references": [],
    "points": [
        own(
            *("threads", 6000),
            server__peak_connections=6000,
            requests__completed=18_000,
            requests__due=18_000,
            connections__established=6000,
            client__h2__connections__established=3000,
            client__h3__connections__established=3000,
            client__h2__cpu_cores=0.5,
            host__memory_bytes=200e6,
        ),
        own("select", 4000, "hard_limit"),
        own(
            *("epoll", 20_000),
            server__peak_connections=20_000,
            requests__completed=40_000,
            requests__due=40_000,
            client__h2__connections__established=5000,
            client__h3__connections__established=5000,
            host__memory_bytes=199e6,
        ),
    ],
}


def chapter(tmp_path: Path, summary: Json, **files: Json) -> str:
    """The chapter of a kept summary, and whatever else is kept."""
    results = tmp_path / "docs" / "results"
    results.mkdir(parents=True)
    (results / f"report-{summary['suite']}.json").write_text(json.dumps(summary))
    for name, content in files.items():
        (results / f"{name}.json").write_text(json.dumps(content))
    done = run_bench(tmp_path, "reports.py", summary["suite"])
    assert done.returncode == 0, done.stderr
    return (tmp_path / "docs" / f"report-{summary['suite']}.md").read_text()


def test_three_servers_has_its_eight_figures_its_hosts_and_its_verdicts(tmp_path: Path) -> None:
    said = chapter(tmp_path, SUMMARY)
    assert "![Figure 1, most clients, by client host, ours and\ntheirs]" in said
    assert "![Figure 4, most clients of a server, ours and" in said
    assert "![Figure 6" not in said, "none of ours"
    drawn = (tmp_path / "docs/results/report-three-servers-figure-1.svg").read_text()
    assert ">epoll, client 2<" in drawn
    # What was made beside what was due, and the document's theoretical requests.
    assert "| epoll | 40,000 (199,900,000) | 40,000 (321,410) | 20,000 | - (19,990) |" in said
    # A table a client host: clients, requests, time, memory, CPU.
    assert "| 1 | 3,000 (3,000) | - (6,870) | - (365) | - (1,018) | 0.5 (0.252) |" in said
    # The verdicts: theirs, ours at the same loads, and why a server is none of them.
    assert "| 1 | most clients, by client host | epoll | epoll (select without a result) | - |" in said
    assert "| 8 | memory of the server's host | select | cannot be told (select without a result) | - |" in said
    assert "| in all | | threads 2, select 1, epoll 5 | threads 0, select 0, epoll 3 | - |" in said


def test_a_figure_is_won_where_no_interval_meets_the_winners() -> None:
    (memory,) = (each for each in three_servers.FIGURES if each.number == 8)
    points = {"threads": point({}, host__memory_bytes=100), "epoll": point({}, host__memory_bytes=103)}
    assert three_servers.winner(memory, points) == "threads"
    points["select"] = point({}, host__memory_bytes=99)
    assert three_servers.winner(memory, points) == "cannot be told"
    assert three_servers.winner(memory, {"epoll": points["epoll"]}) == "-"


def test_a_chapter_says_what_of_its_suite_the_run_was_not_asked(tmp_path: Path) -> None:
    said = chapter(tmp_path, SUMMARY | {"points": SUMMARY["points"][:1]})
    assert "This run has none of 24 points of the suite, such as model threads, 800" in said
    assert (
        "| threads serve more clients than select, at their loads | > 1 | this run was not asked | **open** |" in said
    )


def test_a_run_has_the_points_whose_settings_are_lists() -> None:
    suite = read_file(find("port-fwd-4000"))
    # As they are read back from a file.
    points = json.loads(json.dumps([{"point": dict(each.setting)} for each in expand(suite, seed=0).points]))
    references = json.loads(json.dumps([{"figure": each.figure, "at": dict(each.at)} for each in suite.references]))
    whole = {"suite": suite.name, "points": points, "claims": [], "references": references}
    said = reports.todays(whole)
    assert said["open_points"] == []
    assert len(said["references"]) == len(references)
    assert len(reports.todays(whole | {"points": points[1:]})["open_points"]) == 1


LADDER = {"server.model": "fork", "role.saturator.http": "1.1", "role.saturator.connections": 15}


def test_the_table_of_processes_is_of_the_documents_own_point_with_what_was_seen() -> None:
    def trial(connections: int, *cores: float, outcome: str = "ok") -> SimpleNamespace:
        seen = [{"pid": pid, "name": "plimsoll", "cpu_cores": each} for pid, each in enumerate(cores)]
        setting = LADDER | {"role.saturator.connections": connections}
        return SimpleNamespace(
            setting=setting, outcome=outcome, server={"processes": seen}, figures={"server.cpu_cores": 0.98}
        )

    trials = [trial(30, *[0.01] * 76), trial(15, 0.5, outcome="invalid"), trial(15, 0.06, 0.0, 0.07), trial(15, 0.9)]
    run = SimpleNamespace(references=[SimpleNamespace(at=LADDER)])
    folder: Any = SimpleNamespace(read_run=lambda: run, read_trials=lambda: trials)
    found = reports.processes_of(folder)
    assert (found["seen"], found["cpu_cores"]) == (3, 0.98)
    assert [each["cpu_cores"] for each in found["listed"]] == [0.06, 0.07]
    run.references = []
    assert reports.processes_of(folder) == {}


def test_no_claim_is_judged_later_where_the_suite_measures_otherwise_today() -> None:
    text = (
        (ROOT / "suites" / "http-saturation-ladder.toml").read_text().replace("connections = 5\n", "connections = 6\n")
    )
    unread: Any = SimpleNamespace()
    assert reports.asked_later({"suite": "http-saturation-ladder", "suite_text": text}, unread) == []


def test_an_echo_time_is_the_one_that_the_suite_claims() -> None:
    claims = [{"figure": "connections.established"}, {"figure": "service_time_us.mean"}]
    assert relay_costs.echo_time({"claims": claims, "references": []}) == "service_time_us.mean"
    assert relay_costs.echo_time({"claims": claims[:1], "references": []}) is None


def test_a_table_says_of_how_many_trials_and_blocks_it_is() -> None:
    """A claim was confirmed by 2 of 20 blocks, and a mean of 5 trials stood beside 20/20."""
    reason = "the whole interval lies in the claimed range; 2 of 20 blocks tell it"
    claim = {"name": "it falls", "expect": "< 1", "value": 0.7, "interval": [0.6, 0.9], "outcome": "confirmed"}
    summary = {"claims": [claim | {"reason": reason, "free": None}]}
    (row,) = report_tables.claim_table(summary)[2:-1]
    assert row == "| it falls | < 1 | 0.7 [0.6, 0.9]; 2 of 20 blocks tell it | **confirmed** |  |"
    few = SUMMARY | {"suite": "http-saturation-ladder", "points": [point({}, server__cpu_cores=0.5) | {"valid_n": 20}]}
    assert "0.5 ± 0.005 (of 6) |" in report_tables.point_table(few)[2]


PACKETS = {"point": "case 1", "at_s": "0.5 1.5 2.5", "packets": "10 90 80", "syn": "9 0 0", "rst": "0 0 0"}
STEPS = {"point": "case 1", "connections": "10 20 30", "response_time_us": "1000 2000 9000"}


def test_the_courses_of_a_run_are_pictures_of_its_chapter(tmp_path: Path) -> None:
    summary = {"suite": "epoll-scaling", "courses": {"packets": [PACKETS], "by_connections": [STEPS]}}
    found = "\n".join(courses.lines(summary, tmp_path))
    assert "![Response time by the connections up as a request began]" in found
    assert "![Packets a second over time]" in found
    flags = (tmp_path / "report-epoll-scaling-flags.svg").read_text()
    assert ">syn<" in flags
    assert ">rst<" not in flags, "there was none"
    assert courses.lines({"suite": "epoll-scaling"}, tmp_path) == []


STEPS_OF_AXES = [
    pytest.param(command, id=f"{axis.name} {value}") for axis in axes.AXES for value, command in axis.commands()
]


@pytest.mark.parametrize("command", STEPS_OF_AXES)
def test_a_step_of_an_axis_is_what_its_command_measures(command: list[str]) -> None:
    plan = axes.plan_of(command)
    refuse_what_the_binary_refuses(plan, BINARY)
    asked = [word.partition("=")[::2] for word in command if word.startswith(("load.", "network."))]
    assert asked
    for each in plan.points:
        for path, wanted in asked:
            key = path.partition(".")[2]
            seen = each.load[key] if path.startswith("load.") else each.network and each.network.addresses
            assert str(seen) == wanted, f"{shlex.join(command)}: {path} is {seen}"
    assert axes.planned_minutes(command) < 200


def test_a_chapter_has_the_commands_of_each_axis_and_what_came_of_them(tmp_path: Path) -> None:
    held: Json = {"point": {"server.model": "select"}, "outcome": "hard_limit", "reason": "it held 2034", "figures": {}}
    good: Json = {"point": {"server.model": "select"}, "outcome": "ok", "reason": None}
    good["figures"] = {"connections.established": 2000, "response_time_us.mean": 250.0}
    kept = {
        "three-servers:clients-select 2,000": {"minutes": 1.2, "points": [good], "error": None},
        "three-servers:clients-select 4,000": {"minutes": 1.2, "points": [held], "error": None},
        "three-servers:clients-epoll 40,000": {"minutes": 0.1, "points": [], "error": "no host has the ports"},
    }
    said = chapter(tmp_path, SUMMARY, axes=kept)
    assert "--set load.connections=2000` | 1.3 | model select: 2,000, 250 us (1 min) |" in said
    assert "| model select: hard limit: it held 2034 (1 min) |" in said
    assert "| refused: no host has the ports |" in said
    assert "--set load.connections=1000` | 1.3 | not run yet |" in said
    # They were to be run yet, after steps that end their axes.
    assert len(re.findall(r"load.connections=(?:100|200|400)000 .*\| not run: the axis ends before \|", said)) == 3
