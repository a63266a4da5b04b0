"""Response times by the connections up, of few connections and of one server."""

from __future__ import annotations

from pathlib import Path

from made_records import stored_run

from plimsoll_lab.analysis.by_connections import climbs
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.timelines import write_timelines

HEAD = "time,connection,request,bytes,response_time_us,phase,outcome\n"


def stored(path: Path, *models: str, connections: int) -> RunFolder:
    """Each connection begins a second after the one before, and waits as long as it has
    predecessors; its last request is not answered.
    """
    folder = stored_run(path, models)
    for trial in folder.read_trials():
        records = folder.records(trial.number)
        first = [f"{10 + n + n / 100},{n},1,64,{n * 1e4},window,ok\n" for n in range(1, connections + 1)]
        last = [f"{99 + n / 100},{n},2,64,10.0,window,timeout\n" for n in range(1, connections + 1)]
        (records / "load.request_log.csv").write_text(HEAD + "".join(first + last))
        write_timelines(folder.path, records, trial)
    return folder


def test_two_numbers_of_connections_are_a_curve(tmp_path: Path) -> None:
    folder = stored(tmp_path / "0001", "epoll", connections=2)
    [(level, [climb])] = climbs(folder.read_run(), folder.path, folder.read_trials()).items()
    assert (level, climb.contender) == ("model epoll", "all")
    assert [(step.connections, step.response_time_us, step.requests) for step in climb.steps] == [
        (1.0, 10_000.0, 1),
        (2.0, 20_000.0, 1),
    ]


def test_contenders_of_one_setting_are_together(tmp_path: Path) -> None:
    folder = stored(tmp_path / "0001", "epoll", "threads", connections=3)
    found = climbs(folder.read_run(), folder.path, folder.read_trials())
    assert {level: [each.contender for each in here] for level, here in found.items()} == {
        "every setting": ["epoll", "threads"]
    }
