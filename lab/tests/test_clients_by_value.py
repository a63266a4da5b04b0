"""What became of each client, of one server, and of clients none of which succeeded."""

from __future__ import annotations

import json
from pathlib import Path

from made_records import stored_run

from plimsoll_lab.analysis.clients import strips
from plimsoll_lab.store.timelines import write_timelines


def told(number: int, failed: int = 0, *, success: bool = True) -> str:
    line = {"event": "connection", "connection": number, "success": success, "completed": 5}
    line |= {"failed_connects": failed, "failed_sequences": 2 * failed, "failed_requests": 4 * failed}
    line |= {"establishment_time_us": 100.0 - number, "service_time_total_us": 1000.0 - number}
    return json.dumps(line) + "\n"


def test_a_strip_has_its_trial_and_its_clients_in_order_of_length(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001", repeat=3)
    for trial in folder.read_trials():
        records = folder.records(trial.number)
        (records / "load.connections.jsonl").write_text(told(0) + told(1, 1) + told(2, 1, success=False))
        write_timelines(folder.path, records, trial)
    [(level, [strip])] = strips(folder.read_run(), folder.path, folder.read_trials()).items()
    # Of rates of 1,001, 1,002 and 1,003 the middle one is that of the second trial.
    assert (level, strip.contender, strip.trial) == ("model epoll", "all", 2)
    assert (strip.connect_us, strip.exchange_us) == ([99.0, 100.0], [999.0, 1000.0])
    assert strip.failures == {0: 1, 7: 2}


def test_of_clients_none_of_which_succeeded_the_failures_are_told(tmp_path: Path) -> None:
    folder = stored_run(tmp_path / "0001")
    [trial] = folder.read_trials()
    records = folder.records(trial.number)
    (records / "load.connections.jsonl").write_text(told(0, 1, success=False))
    write_timelines(folder.path, records, trial)
    [[strip]] = strips(folder.read_run(), folder.path, [trial]).values()
    assert (strip.connect_us, strip.exchange_us, strip.failures) == ([], [], {7: 1})
