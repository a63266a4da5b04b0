"""The stream of events: what a run shows while it is under way, in its folder and elsewhere."""

from __future__ import annotations

import contextlib
import json
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from conftest import Done, run_lab
from made_records import run_record, stored_run
from small_suites import GOOD
from small_suites import plan as small_plan

from plimsoll_lab.cli.progress import Progress, SearchProgress, second
from plimsoll_lab.experiment import run
from plimsoll_lab.experiment.events import Events
from plimsoll_lab.experiment.search_run import SearchRun
from plimsoll_lab.problem import Interrupted
from plimsoll_lab.store.folder import RunFolder, new_run
from plimsoll_lab.store.records import Json, Outcome, ResultWarning, Sample, TrialRecord
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import Plan, PlannedTrial
from plimsoll_lab.trial.live import LiveEvents
from plimsoll_lab.trial.testbed import Machines
from plimsoll_lab.trial.window import Window

SEARCH = """
name = "most"
question = "Which one carries most?"
[server]
[load]
duration = "20ms"
think = "50ms"
[run]
repeat = 1
seed = 3
[limits]
completed_rate = "<1010"
[search]
over = "load.connections"
range = [1, 200]
width = "20%"
trials = 1
"""
"""The fake completes 20 requests a second on each connection."""


def line(second: int, completed: int) -> str:
    times = {"count": completed, "p50": 80.0, "p99": 900.0}
    known = {"second": second, "phase": "window", "completed": completed, "failed": 1, "timed_out": 2}
    return json.dumps(known | {"response_time_us": times}) + "\n"


def test_every_second_is_told_once_and_half_a_line_waits(tmp_path: Path) -> None:
    told: list[Json] = []
    live, file = LiveEvents(tmp_path, told.append), tmp_path / "load.timeseries.jsonl"
    one, other = line(0, 10), line(1, 0)
    file.write_text(one + other[:20])
    live.poll(Window(), now=1.0)
    live.poll(Window(), now=1.1)
    file.write_text(one + other)
    live.poll(Window(), now=1.6)
    live.end(Window())
    assert [(each["at_s"], each["completed"], each["failed"]) for each in told] == [(0, 10, 3), (1, 0, 3)]
    assert [each["p99_us"] for each in told] == [900.0, None], "a second without a reply has no response time"


def test_a_second_in_words_is_a_count_as_it_may_be_a_part_of_one() -> None:
    told: Json = {"part": "load", "at_s": 3, "completed": 12345, "failed": 0, "p99_us": 1200.0}
    assert second(told) == "second 3: 12,345 completed, p99 1.20 ms"
    told |= {"part": "load-2", "p99_us": None, "failed": 2}
    assert second(told) == "load-2, second 3: 12,345 completed, 2 failed"


def test_a_trial_that_a_resumed_run_makes_again_is_none_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 3 trials 4 were made, and the rest took less than no time."""
    folder = stored_run(tmp_path / "0001", repeat=2)
    progress = Progress(small_plan(GOOD + "[run]\nrepeat = 3\n"), folder, quiet=False, json_lines=False)
    capsys.readouterr()
    for number in (2, 3):
        progress.on_event({"event": "trial", "number": number, "block": number, "point": {}, "outcome": "ok"})
    again, last = capsys.readouterr().err.splitlines()
    assert again.startswith("block 2 of 3: 2/3 trials, about ")
    assert last == "block 3 of 3: 3/3 trials, about 0 s left"


def test_the_cost_is_what_was_used_since_the_last_time(tmp_path: Path) -> None:
    told: list[Json] = []
    live, window = LiveEvents(tmp_path, told.append), Window()
    window.samples.append(Sample(at_s=0.0, cpu_s=4.0, memory_bytes=None))
    live.end(window)
    assert told == []
    window.samples.append(Sample(at_s=1.0, cpu_s=4.5, memory_bytes=100))
    live.end(window)
    window.samples.append(Sample(at_s=3.0, cpu_s=4.5, memory_bytes=200))
    live.end(window)
    assert [each["server_cpu_cores"] for each in told] == [0.5, 0.0]
    assert told[-1]["server_memory_bytes"] == 200


def test_an_event_is_in_the_folder_and_reaches_every_listener_without_secrets(tmp_path: Path) -> None:
    """`run --json` prints its events, and in CI prints them into a log."""
    heard: list[Json] = []
    folder = new_run(tmp_path, hide=lambda event: json.loads(json.dumps(event).replace("hunter2", "[hidden]")))
    with Events(folder, [heard.append]) as events:
        events.publish({"event": "trial_started", "point": {"load.header": "hunter2"}})
        stored = folder.events.read_text()
    assert "hunter2" not in stored
    assert json.loads(stored)["point"] == {"load.header": "[hidden]"}
    assert heard == [{"event": "trial_started", "point": {"load.header": "[hidden]"}}]


def test_a_folder_that_takes_no_events_stops_no_run(tmp_path: Path) -> None:
    folder = new_run(tmp_path)
    folder.events.mkdir()
    heard: list[Json] = []
    with Events(folder, [heard.append]) as events:
        events.publish({"event": "end", "status": "complete"})
    assert heard == [{"event": "end", "status": "complete"}]


def suspect(number: int, outcome: Outcome = "invalid") -> TrialRecord:
    warning = ResultWarning(code="machine_busy", message="other programs used 1.20 cores", remedy="close them")
    return TrialRecord(
        number=number, block=1, point=0, setting={}, outcome=outcome, figures={}, started_unix_s=0.0, elapsed_s=0.1,
        reason=None if outcome == "ok" else warning.message, warnings=() if outcome == "ok" else (warning,),
        server={}, load={}, machine={},
    )  # fmt: skip


def plan_of(text: str) -> Plan:
    return expand(read_text(text, source="it.toml", directory="/here"), seed=1)


def test_a_trial_that_is_made_again_begins_anew_and_says_why_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = iter([suspect(1), *(suspect(number, "ok") for number in (1, 2, 3, 4))])
    monkeypatch.setattr(run, "_measure", lambda *_: next(made))
    monkeypatch.setattr(run, "calibrated_testbeds", lambda *_: contextlib.nullcontext({0: None}))
    text = SEARCH.partition("[limits]")[0].replace("repeat = 1", "repeat = 4")
    heard: list[Json] = []
    plan, machines = plan_of(text), cast("Machines", None)
    run.carry_out(new_run(tmp_path), run_record(), plan, machines, "", Events(new_run(tmp_path), [heard.append]))
    begun = [(each["number"], each.get("again")) for each in heard if each["event"] == "trial_started"]
    assert begun == [(1, None), (1, "other programs used 1.20 cores"), (2, None), (3, None), (4, None)]


def test_a_trial_that_is_made_again_is_kept_whole_and_on_disk_at_each_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ended between two writes, a run had a trial made again of which nothing said so."""
    first = replace(suspect(1), server={"stderr_tail": "slow today"})
    made = iter([first, *(suspect(number, "ok") for number in (1, 2, 3, 4))])
    monkeypatch.setattr(run, "run_trial", lambda *_: next(made))
    monkeypatch.setattr(run, "calibrated_testbeds", lambda *_: contextlib.nullcontext({0: None}))
    written: list[tuple[int, int]] = []
    write = RunFolder.write_trial

    def seen(folder: RunFolder, trial: TrialRecord) -> None:
        written.append((trial.number, len(trial.attempts)))
        write(folder, trial)

    monkeypatch.setattr(RunFolder, "write_trial", seen)
    plan = plan_of(SEARCH.partition("[limits]")[0].replace("repeat = 1", "repeat = 4"))
    folder, machines = new_run(tmp_path), cast("Machines", None)
    run.carry_out(folder, run_record(), plan, machines, "", Events(folder))
    assert written == [(1, 0), (1, 1), (2, 0), (3, 0), (4, 0)]
    kept = sorted((folder.path / "attempts").iterdir())
    assert [each.name for each in kept] == ["0001-1.json"]
    assert json.loads(kept[0].read_text()) == json.loads(json.dumps(first.to_json()))


def repeats_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch, repeat: int, spoilt: Callable[[int, int], bool]
) -> dict[int, int]:
    """How often each trial of a run was made again, where a measurement of a trial, the first one
    0, is spoilt or not.
    """
    made = Counter[int]()

    def measure(*arguments: object) -> TrialRecord:
        number = cast("PlannedTrial", arguments[5]).number
        made[number] += 1
        return suspect(number, "invalid" if spoilt(number, made[number] - 1) else "ok")

    monkeypatch.setattr(run, "_measure", measure)
    monkeypatch.setattr(run, "calibrated_testbeds", lambda *_: contextlib.nullcontext({0: None}))
    plan = plan_of(SEARCH.partition("[limits]")[0].replace("repeat = 1", f"repeat = {repeat}"))
    stored = new_run(folder)
    run.carry_out(stored, run_record(), plan, cast("Machines", None), "", Events(stored))
    return {each.number: len(each.attempts) for each in stored.read_trials() if each.attempts}


def test_a_quarter_of_a_run_is_made_again_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert repeats_of(tmp_path, monkeypatch, 12, lambda _, attempt: attempt == 0) == {1: 1, 2: 1, 3: 1}


def test_a_point_whose_cause_lasts_leaves_the_budget_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first trial shows it in all of its three measurements, and the third one once more."""
    assert repeats_of(tmp_path, monkeypatch, 40, lambda number, _: number in {1, 3}) == {1: 2}


def test_a_trial_that_a_search_makes_again_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page that follows a run would else add up the seconds of both measurements."""
    made = iter([suspect(1), suspect(1, "ok")])
    monkeypatch.setattr(SearchRun, "_measure_once", lambda *_: next(made))
    heard: list[Json] = []
    folder, plan = new_run(tmp_path), plan_of(SEARCH)
    search = SearchRun(folder, run_record(), plan, cast("Machines", None), "", Events(folder, [heard.append]))
    started: Json = {"event": "trial_started", "number": 1}
    search._trial(plan, plan.points[0], PlannedTrial(number=1, block=1, point=0), 0, started)
    assert heard == [started, started | {"again": "other programs used 1.20 cores"}]
    assert [each.name for each in (folder.path / "attempts").iterdir()] == ["0001-1.json"]


def test_a_run_that_was_ended_as_a_trial_was_made_again_makes_it_again_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spoilt trial stood for good, although a run without the interruption would have repeated
    it.
    """
    text = SEARCH.partition("[limits]")[0].replace("repeat = 1", "repeat = 4")
    plan, machines, folder, record = plan_of(text), cast("Machines", None), new_run(tmp_path), run_record()
    monkeypatch.setattr(run, "calibrated_testbeds", lambda *_: contextlib.nullcontext({0: None}))

    def measure(*outcomes: Outcome | None) -> list[tuple[int, Outcome, int]]:
        """Resume with these measurements, the last one interrupted where it has no outcome."""
        left = iter(outcomes)

        def one(*arguments: object) -> TrialRecord:
            outcome, planned = next(left), cast("PlannedTrial", arguments[5])
            if outcome is None:
                raise Interrupted(signal.SIGINT)
            return suspect(planned.number, outcome)

        monkeypatch.setattr(run, "_measure", one)
        run.carry_out(folder, record, plan, machines, "", Events(folder))
        return [(each.number, each.outcome, len(each.attempts)) for each in folder.read_trials()]

    assert measure("ok", "invalid", None) == [(1, "ok", 0), (2, "invalid", 0)]
    whole = measure("ok", "ok", "ok")
    assert whole == [(1, "ok", 0), (2, "ok", 1), (3, "ok", 0), (4, "ok", 0)]
    assert record.status == "complete"
    assert measure() == whole


def test_a_run_leaves_its_events_in_order(finished: tuple[Path, Done]) -> None:
    folder, _ = finished
    events = [json.loads(text) for text in (folder / "runs/0001/events.jsonl").read_text().splitlines()]
    assert events[0]["event"] == "run"
    assert [each["event"] for each in events[-2:]] == ["end", "reported"]
    assert [each["unix_s"] for each in events] == sorted(each["unix_s"] for each in events)
    kinds = Counter(each["event"] for each in events)
    # A trial that the machine spoilt is begun again.
    begun = list({each["number"]: each for each in events if each["event"] == "trial_started"}.values())
    done = [each for each in events if each["event"] == "trial"]
    assert (kinds["trial_started"], kinds["trial"]) == (12 + sum(each["repeated"] for each in done), 12)
    assert [each["number"] for each in begun] == [each["number"] for each in done] == list(range(1, 13))
    assert begun[0]["next"][0] == begun[1]["point"]
    assert begun[-1]["next"] == []


def test_a_search_tells_what_each_trial_missed_and_how_much_time_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "most.toml").write_text(SEARCH)
    done = run_lab(tmp_path, "run", "most.toml", "--json")
    assert done.returncode == 4, done.stderr
    events = [json.loads(text) for text in (tmp_path / "runs/0001/events.jsonl").read_text().splitlines()]
    assert events[0]["search"] == "load.connections"
    trials = [each for each in events if each["event"] == "trial"]
    assert {bool(each["missed"]) for each in trials} == {True, False}
    # Until a load has failed nobody knows; from the next trial on each line says how much is left.
    first = next(place for place, each in enumerate(trials) if each["missed"])
    assert [each["left_s"] is None for each in trials] == [place <= first for place in range(len(trials))]
    search = plan_of(SEARCH).suite.search
    assert search is not None
    for event in events:
        SearchProgress(search, quiet=False).on_event(event)
    lines = capsys.readouterr().err.splitlines()
    assert [line.endswith(" left") for line in lines] == [place > first for place in range(len(trials))]
    assert events[-2] | {"unix_s": 0} == {"event": "end", "status": "complete", "unix_s": 0}


def test_a_terminal_is_told_that_the_paths_are_measured_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two minutes passed without a word."""
    suite, search = plan_of(SEARCH.partition("[limits]")[0]), plan_of(SEARCH).suite.search
    assert search is not None
    for quiet, said in ((False, ["measuring the paths of the network first"] * 2), (True, [])):
        parts = Progress(suite, new_run(tmp_path), quiet=quiet, json_lines=False), SearchProgress(search, quiet=quiet)
        capsys.readouterr()
        for part in parts:
            part.on_event({"event": "paths"})
        assert capsys.readouterr().err.splitlines() == said
