"""An agent in a process of its own, as it runs on another machine: what it is asked crosses in
frames.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from conftest import FAKE, lab_environment

from plimsoll_lab.hosts.agent import Agent, ServedHost
from plimsoll_lab.hosts.agent_process import Frames, frame
from plimsoll_lab.hosts.messages import (
    Await,
    Describe,
    Discard,
    Inspect,
    ListFolder,
    MakeFolder,
    Message,
    ReadClock,
    ReadFile,
    RemoveFolder,
    Start,
    Stop,
    TellProcess,
)
from plimsoll_lab.problem import LabError

HANGS_S = 300.0


class Far:
    """The other end of an agent's pipes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "plimsoll_lab.hosts.agent_process", "far", "127.0.0.1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=lab_environment(),
        )
        self.frames = Frames()
        self.answers: dict[int, tuple[Any, Any]] = {}
        self.order: list[int] = []
        self.number = 0

    def send(self, message: Message[Any]) -> int:
        """Send a message; its number."""
        assert self.process.stdin is not None
        self.number += 1
        self.process.stdin.write(frame((self.number, message)))
        self.process.stdin.flush()
        return self.number

    def answer(self, number: int) -> Any:  # noqa: ANN401 - of whichever message
        """The answer to a message, raised where it is an error."""
        assert self.process.stdout is not None
        while number not in self.answers:
            read = os.read(self.process.stdout.fileno(), 1 << 16)
            assert read, "the agent has ended"
            for told, answer, error in cast("list[tuple[int, Any, Any]]", self.frames.take(read)):
                self.answers[told] = (answer, error)
                self.order.append(told)
        answer, error = self.answers[number]
        if error is not None:
            raise error
        return answer

    def ask(self, message: Message[Any]) -> Any:  # noqa: ANN401 - of whichever message
        """Send a message and return the answer."""
        return self.answer(self.send(message))

    def start(self, script: str, deadline_s: float | None = None) -> int:
        """Start a shell; its number."""
        argv = ("sh", "-c", script)
        started = self.ask(Start(place=1, argv=argv, role="a", metered=False, deadline_s=deadline_s))
        number: int = started.process
        return number


@pytest.fixture
def far() -> Iterator[Far]:
    agent = Far()
    with agent.process:
        yield agent
        assert agent.process.stdin is not None
        agent.process.stdin.close()
        assert agent.process.wait(HANGS_S) == 0


def gone(pid: int) -> bool:
    """Whether a process has ended, at the latest after a while."""
    deadline = time.monotonic() + HANGS_S
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def pid_of(far: Far, process: int) -> int:
    """What a script that begins with `echo $$` says of itself."""
    (report,) = far.ask(Await(processes=(process,), timeout_s=HANGS_S))
    return int(report.lines[0])


def test_frames_are_whole_however_they_are_cut() -> None:
    sent = frame((1, "a")) + frame((2, b"b" * 1000))
    for cut in (1, 7, 9, 100):
        frames = Frames()
        found = [each for at in range(0, len(sent), cut) for each in frames.take(sent[at : at + cut])]
        assert found == [(1, "a"), (2, b"b" * 1000)]


def test_it_serves_the_machine_by_the_address_it_was_given(far: Far) -> None:
    described = far.ask(Describe(place=1))
    assert (described.name, described.addresses[0], described.interface) == ("far", "127.0.0.1", "lo")
    assert described.machine == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    inspected = far.ask(Inspect())
    assert (inspected.binary, inspected.versions["plimsoll"]) == (str(FAKE), "plimsoll 0.0.0-fake")


def test_one_question_is_answered_as_soon_as_there_is_news(far: Far) -> None:
    process = far.start("read line < /dev/null; sleep 0.2; echo up; exec sleep 600")
    (report,) = far.ask(Await(processes=(process,), timeout_s=HANGS_S))
    assert (report.lines, report.exit_code) == (("up",), None)


def test_what_changes_no_process_is_answered_while_news_is_awaited(far: Far) -> None:
    process = far.start("exec sleep 600")
    waits = far.send(Await(processes=(process,), timeout_s=HANGS_S))
    assert abs(far.ask(ReadClock()) - time.time()) < HANGS_S
    assert waits not in far.answers
    stopped = far.ask(Stop(process=process, grace_s=HANGS_S))
    # SIGTERM is not ignored in what an agent starts.
    assert stopped.exit_code == -15
    assert far.order[-2:] == [waits, waits + 2]
    assert far.answer(waits)[0].exit_code is None


def test_a_process_is_told_a_line_while_news_of_it_is_awaited(far: Far) -> None:
    argv = ("sh", "-c", "read line; echo read $line; exec sleep 600")
    process = far.ask(Start(place=1, argv=argv, role="a", metered=False, takes_lines=True)).process
    waits = far.send(Await(processes=(process,), timeout_s=HANGS_S))
    assert far.ask(TellProcess(process=process, line="2.5")) is None
    (report,) = far.answer(waits)
    lines = list(report.lines)
    while not lines:
        lines += far.ask(Await(processes=(process,), timeout_s=HANGS_S))[0].lines
    assert lines == ["read 2.5"]


def test_an_error_comes_back_as_one(far: Far) -> None:
    with pytest.raises(LabError, match="cannot start the server '/no/such'"):
        far.ask(Start(place=1, argv=("/no/such",), role="server", metered=False))
    with pytest.raises(LabError, match="internal error of the agent: KeyError"):
        far.ask(Stop(process=99, grace_s=0.0))


def test_the_files_of_a_trial_are_listed_read_and_removed(far: Far) -> None:
    folder = far.ask(MakeFolder())
    process = far.start(
        f"printf 12345 > {folder}/log.csv; mkdir {folder}/sub; printf 1 > {folder}/sub/b; ln -s / {folder}/x"
    )
    while far.ask(Await(processes=(process,), timeout_s=HANGS_S))[0].exit_code is None:
        pass
    assert far.ask(ListFolder(path=folder)) == {"log.csv": 5, "sub/b": 1}
    assert far.ask(ReadFile(path=f"{folder}/log.csv", offset=1, most_bytes=3)) == b"234"
    far.ask(RemoveFolder(path=folder))
    assert not Path(folder).exists()


def test_a_process_ends_at_its_deadline_without_a_word_from_anywhere(far: Far) -> None:
    process = far.start("echo $$; exec sleep 600", deadline_s=0.5)
    other = far.start("echo $$; exec sleep 600", deadline_s=HANGS_S)
    assert gone(pid_of(far, process))
    assert far.ask(Await(processes=(process, other), timeout_s=0.0))[0].exit_code == -9
    assert far.ask(Await(processes=(other,), timeout_s=0.0))[0].exit_code is None
    far.ask(Discard(process=process))


def test_deadlines_are_kept_by_the_time_that_is_given() -> None:
    with Agent() as agent:
        agent.add(ServedHost(name="here", addresses=("127.0.0.1",), interface="lo"))
        assert agent.next_deadline() is None
        message = Start(place=1, argv=("sleep", "600"), role="a", metered=False, deadline_s=1000.0)
        process = agent.ask(message).process
        due = agent.next_deadline()
        assert due is not None
        agent.end_overdue(due - 0.001)
        assert agent.ask(Await(processes=(process,), timeout_s=0.0))[0].exit_code is None
        agent.end_overdue(due)
        assert agent.ask(Await(processes=(process,), timeout_s=HANGS_S))[0].exit_code == -9
        assert agent.next_deadline() is None


@pytest.mark.parametrize("how", ["its input ends", "it is killed"])
def test_when_it_ends_so_does_everything_it_has_started_and_its_files_go(how: str) -> None:
    far = Far()
    folder = far.ask(MakeFolder())
    pid = pid_of(far, far.start("echo $$; exec sleep 600"))
    assert far.process.stdin is not None
    if how == "its input ends":
        far.process.stdin.close()
    else:
        far.process.kill()
    with far.process:
        pass
    assert gone(pid)
    deadline = time.monotonic() + HANGS_S
    while Path(folder).exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_files_that_a_machine_left_as_it_lost_its_power_go_with_the_next_trial_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    lost, other = Far(), Far()
    left, used = Path(lost.ask(MakeFolder())), Path(other.ask(MakeFolder()))
    (left / "log.csv").write_text("1")
    (guard,) = children(lost.process.pid)
    for pid in (guard, lost.process.pid):  # none is left that could clear up
        os.kill(pid, signal.SIGKILL)
    with lost.process:
        pass
    assert left.exists()
    another = Path(other.ask(MakeFolder()))
    assert sorted(tmp_path.iterdir()) == sorted([used, another])
    assert other.process.stdin is not None
    with other.process:
        other.process.stdin.close()
    assert not list(tmp_path.iterdir())


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
