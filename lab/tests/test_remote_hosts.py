"""What a trial has on other machines: clocks that are compared, and files that come back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from plimsoll_lab.hosts.agent import Agent, ServedHost
from plimsoll_lab.hosts.host import Host
from plimsoll_lab.hosts.messages import AnswerT, Message, ReadClock
from plimsoll_lab.problem import HostLost, LabError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.trial import remote_hosts
from plimsoll_lab.trial.generators import LateStart, TrialFailure
from plimsoll_lab.trial.remote_hosts import RemoteHosts, refuse_missing_folder


class SetClock:
    """Reaches an agent whose clock can be set."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.ahead_s = 0.0

    def ask(self, message: Message[AnswerT]) -> AnswerT:
        """Answer with the time as it was set, and all else as it is."""
        answer = self.agent.ask(message)
        return cast("AnswerT", cast("float", answer) + self.ahead_s) if isinstance(message, ReadClock) else answer


@pytest.fixture
def connection() -> Iterator[SetClock]:
    with Agent() as agent:
        yield SetClock(agent)


@pytest.fixture
def host(connection: SetClock) -> Host:
    served = ServedHost(name="h2", addresses=("127.0.0.1",), interface="lo")
    return Host(connection, connection.agent.add(served))


@pytest.mark.parametrize(("set_s", "moved_by"), [(0.0, []), (7.5, ["the clock of h2 moved by "])])
def test_a_clock_that_is_set_in_mid_trial_is_told(
    connection: SetClock, host: Host, tmp_path: Path, set_s: float, moved_by: list[str]
) -> None:
    connection.ahead_s = 3600.0
    remote = RemoteHosts({"h2": host})
    with remote.prepared(1.0, tmp_path, None):
        assert host.clock_offset_s == pytest.approx(3600.0, abs=60.0)
        connection.ahead_s += set_s
        (clock,), warnings = remote.clocks()
    assert (clock["host"], clock["address"]) == ("h2", "127.0.0.1")
    assert abs(clock["before"]["offset_us"] - 3600e6) <= clock["before"]["error_us"]
    assert abs(clock["after"]["offset_us"] - (3600 + set_s) * 1e6) <= clock["after"]["error_us"]
    assert [warning.message[: len(begins)] for warning, begins in zip(warnings, moved_by, strict=True)] == moved_by


def test_files_come_back_up_to_a_size_and_a_larger_one_is_named(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_hosts, "FILES_MOST_BYTES", 100)
    monkeypatch.setattr(remote_hosts, "PART_BYTES", 7)
    remote, capture = RemoteHosts({"h2": host}), tmp_path / "captures" / "0001.pcapng"
    with remote.prepared(1.0, tmp_path / "records", capture):
        assert host.records is not None
        there = Path(host.records)
        files = {"0001.pcapng": b"p" * 60, "load.log": b"0123456789", "vast.log": b"v" * 101}
        for name, data in files.items():
            (there / name).write_bytes(data)
        (warning,) = remote.collect(tmp_path / "records", capture)
    assert warning.code == "file_too_large"
    assert warning.message.startswith("vast.log of h2 has 101 bytes, and at most 100 a host are brought back")
    assert capture.read_bytes() == files["0001.pcapng"]
    assert {each.name: each.read_bytes() for each in (tmp_path / "records").iterdir()} == {"load.log": b"0123456789"}
    assert not there.exists()


class CutOff(SetClock):
    """Reaches an agent until it is cut off."""

    is_cut_off = False

    def ask(self, message: Message[AnswerT]) -> AnswerT:
        """Answer, unless cut off."""
        if self.is_cut_off:
            raise HostLost("h3", "no answer")
        return super().ask(message)


@pytest.mark.parametrize("failure", [TrialFailure("the server ended"), LateStart("load"), HostLost("h3", "no answer")])
def test_files_of_a_trial_that_ended_early_come_back_once_from_the_hosts_that_are_left(
    connection: SetClock, host: Host, tmp_path: Path, failure: Exception
) -> None:
    """They were removed where they were."""
    cut_off = CutOff(connection.agent)
    lost = Host(cut_off, connection.agent.add(ServedHost(name="h3", addresses=("127.0.0.1",), interface="lo")))
    remote, records = RemoteHosts({"h3": lost, "h2": host}), tmp_path / "records"
    with contextlib.ExitStack() as stack:
        stack.enter_context(remote.prepared(1.0, records, None))
        assert host.records is not None
        there = Path(host.records)
        (there / "server.log").write_bytes(b"why it ended")
        cut_off.is_cut_off = True
        trial = stack.pop_all()
    with pytest.raises(type(failure)), trial:
        raise failure
    assert (records / "server.log").read_bytes() == b"why it ended"
    assert not there.exists()


def test_a_trial_ends_by_its_own_reason_where_its_files_cannot_be_written(host: Host, tmp_path: Path) -> None:
    remote, records = RemoteHosts({"h2": host}), tmp_path / "records"
    records.write_text("no folder")
    with contextlib.ExitStack() as stack:
        stack.enter_context(remote.prepared(1.0, records, None))
        assert host.records is not None
        there = Path(host.records)
        (there / "server.log").write_bytes(b"why it ended")
        trial = stack.pop_all()
    with pytest.raises(TrialFailure, match="the server ended"), trial:
        raise TrialFailure("the server ended")
    assert not there.exists()


def test_files_that_have_come_back_are_not_brought_back_again(host: Host, tmp_path: Path) -> None:
    remote = RemoteHosts({"h2": host})
    with contextlib.ExitStack() as stack:
        stack.enter_context(remote.prepared(1.0, tmp_path, None))
        assert host.records is not None
        (Path(host.records) / "load.log").write_bytes(b"first")
        assert remote.collect(tmp_path, None) == []
        (Path(host.records) / "load.log").write_bytes(b"later")
        trial = stack.pop_all()
    with pytest.raises(TrialFailure), trial:
        raise TrialFailure("a role ended")
    assert (tmp_path / "load.log").read_bytes() == b"first"


def test_a_host_without_the_suites_folder_is_refused_where_a_part_needs_it(host: Host, tmp_path: Path) -> None:
    text = (
        'name = "c"\nquestion = "?"\n[server]\ncommand = ["{dir}/server"]\nready = "tcp:1"\n[load]\nduration = "1s"\n'
    )
    point = expand(read_text(text, source="c.toml", directory="/none"), seed=1, cluster=True).points[0]
    hosts = {"h1": host, "h2": host}
    refuse_missing_folder(hosts, point, str(tmp_path))
    with pytest.raises(LabError, match=r"h1 has no folder /none, which the suite calls {dir}; copy the suite's folder"):
        refuse_missing_folder(hosts, point, "/none")
