"""A host answers in messages: plain data, which mean the same on another machine."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import select
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from conftest import FAKE, SUITE

from plimsoll_lab.hosts.agent import Agent, ServedHost
from plimsoll_lab.hosts.host import Host, wait_for_any
from plimsoll_lab.hosts.messages import AnswerT, Await, Discard, Message, ReadFile, Start
from plimsoll_lab.hosts.processes import LocalProcess, wait_for
from plimsoll_lab.problem import LabError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.trial.lifecycle import run_trial

PLAIN = (str, int, float, bool, bytes, type(None))


def only_plain(value: object) -> bool:
    """Whether a value is plain data all through: records, mappings and tuples of texts and
    numbers.
    """
    if isinstance(value, PLAIN):
        return type(value) in PLAIN
    if dataclasses.is_dataclass(value):
        return all(only_plain(getattr(value, each.name)) for each in dataclasses.fields(value))
    if isinstance(value, Mapping):
        return all(only_plain(key) and only_plain(each) for key, each in value.items())
    return isinstance(value, tuple) and all(only_plain(each) for each in value)


class FarAgent:
    """Reaches an agent as if it were on another machine: what crosses is bytes."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.kinds: set[str] = set()
        self.started: list[Start] = []

    def ask(self, message: Message[AnswerT]) -> AnswerT:
        """Send copies in both directions."""
        self.kinds.add(type(message).__name__)
        if isinstance(message, Start):
            self.started.append(message)
        assert only_plain(message), message
        answer = self.agent.ask(pickle.loads(pickle.dumps(message)))
        assert only_plain(answer), answer
        copy: AnswerT = pickle.loads(pickle.dumps(answer))
        return copy


@pytest.fixture
def far() -> Iterator[FarAgent]:
    with Agent() as agent:
        yield FarAgent(agent)


def far_host(far: FarAgent, name: str = "far") -> Host:
    return Host(far, far.agent.add(ServedHost(name=name, addresses=("127.0.0.1",), interface="lo")))


def python(source: str) -> list[str]:
    return [sys.executable, "-c", source]


def test_what_is_not_plain_is_found() -> None:
    with socket.socket() as held:
        assert not only_plain({"socket": held})
    assert only_plain({"a": (1, 2.0, None)})


def test_a_whole_trial_crosses_in_messages_that_hold_nothing_but_plain_data(far: FarAgent) -> None:
    plan = expand(read_text(SUITE, source="small.toml", directory="."), seed=1)
    record = run_trial(far_host(far), str(FAKE), plan.suite, plan.points[0], plan.trials[0])
    assert record.outcome == "ok", record.reason
    assert {"completed_rate", "server.cpu_us_per_request", "server.memory_bytes"} <= record.figures.keys()
    assert {"Describe", "Start", "Await", "Stop", "Discard", "ReadUsage", "TakeSample"} <= far.kinds


def test_each_part_keeps_to_the_cpus_of_its_name(far: FarAgent) -> None:
    own = max(os.sched_getaffinity(0))
    place = f'[place]\ncpus = {{ server = "{own}", load = "{own}" }}\n'
    role = '[[role]]\nname = "beside"\nkind = "command"\ncommand = ["sleep", "600"]\n'
    plan = expand(read_text(SUITE + place + role, source="small.toml", directory="."), seed=1)
    record = run_trial(far_host(far), str(FAKE), plan.suite, plan.points[0], plan.trials[0])
    assert record.outcome == "ok", record.reason
    assert {each.role: each.cpus for each in far.started} == {"server": (own,), "load": (own,), "beside": ()}


def test_an_error_of_the_agent_crosses_with_its_message_and_exit_code(far: FarAgent) -> None:
    host = far_host(far)
    with (
        pytest.raises(LabError, match="cannot start the server '/no/such'"),
        host.start(["/no/such"], role="server", metered=False),
    ):
        raise AssertionError("it was started")
    again = pickle.loads(pickle.dumps(LabError("too small", exit_code=5)))
    assert (str(again), again.exit_code) == ("too small", 5)


def test_processes_of_several_agents_are_awaited_together(far: FarAgent) -> None:
    with Agent() as other:
        quiet, loud = far_host(far), far_host(FarAgent(other), "other")
        sleeper = quiet.start(python("import time; time.sleep(600)"), role="a", metered=False)
        speaker = loud.start(python("print('up', flush=True); import time; time.sleep(600)"), role="b", metered=False)
        with sleeper as first, speaker as second:
            deadline = time.monotonic() + 120
            while not second.has_news:
                assert time.monotonic() < deadline
                wait_for_any([first, second], 60.0)
            assert (first.take_lines(), second.take_lines()) == ([], ["up"])


def test_a_line_is_told_that_comes_while_another_pipe_is_read(monkeypatch: pytest.MonkeyPatch, far: FarAgent) -> None:
    host = far_host(far)
    echo = python("import sys\nfor line in sys.stdin: print(line, end='', flush=True)")
    read_stderr = LocalProcess.stderr_tail

    def after_a_line(process: LocalProcess) -> str:
        # Once, and it is in the pipe before its other pipe is read.
        monkeypatch.setattr(LocalProcess, "stderr_tail", read_stderr)
        process.tell("ready")
        wait_for([process], 600.0)
        return process.stderr_tail()

    with host.start(echo, role="a", metered=False, takes_lines=True) as process:
        monkeypatch.setattr(LocalProcess, "stderr_tail", after_a_line)
        assert process.take_lines() == []
        (ready, _, _) = select.select(far.agent.watched([process.number]), [], [], 0.0)
        assert ready, "nobody is woken for the line"
        assert process.take_lines() == ["ready"]


def test_the_last_words_of_a_process_come_with_its_end(far: FarAgent) -> None:
    host = far_host(far)
    with host.start(python("import sys; print('last'); sys.exit(3)"), role="a", metered=False) as process:
        deadline = time.monotonic() + 120
        while process.exit_code() is None:
            assert time.monotonic() < deadline
            host.wait([process], 60.0)
        assert (process.exit_code(), process.take_lines()) == (3, ["last"])


def test_a_line_crosses_to_a_process_that_takes_lines(far: FarAgent) -> None:
    repeat = python("print('read', input(), flush=True); import time; time.sleep(600)")
    host = far_host(far)
    with host.start(repeat, role="a", metered=False, takes_lines=True) as process:
        process.tell("1763800000.25")
        deadline = time.monotonic() + 120
        while not process.has_news:
            assert time.monotonic() < deadline
            host.wait([process], 60.0)
        assert process.take_lines() == ["read 1763800000.25"]


def test_a_file_is_read_in_parts(far: FarAgent, tmp_path: Path) -> None:
    (tmp_path / "packets").write_bytes(b"0123456789")
    parts = [far.ask(ReadFile(path=str(tmp_path / "packets"), offset=at, most_bytes=4)) for at in (0, 4, 8, 12)]
    assert parts == [b"0123", b"4567", b"89", b""]
    with pytest.raises(LabError, match=r"cannot read .*nothing: No such file"):
        far.ask(ReadFile(path=str(tmp_path / "nothing"), offset=0, most_bytes=1))


def test_a_host_counts_the_connections_that_found_its_listen_queue_full(far: FarAgent) -> None:
    host = far_host(far)
    before = host.counters()["listen_overflows"]
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        deadline = time.monotonic() + 120
        while host.counters()["listen_overflows"] == before:
            assert time.monotonic() < deadline
            client = stack.enter_context(socket.socket())
            client.settimeout(0)
            client.connect_ex(listener.getsockname())
            time.sleep(0.01)


def test_an_address_is_a_hosts_own_where_it_leads_to_the_host_itself(far: FarAgent) -> None:
    host = far_host(far)
    own = ["127.0.0.1:80", "127.0.0.77:80", "localhost:80", "[::1]:80", "0.0.0.0:80"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
        probe.connect(("192.0.2.1", 80))
        own.append(f"{probe.getsockname()[0]}:80")
    assert [each for each in own if not host.is_own(each)] == []
    # Addresses of documents (RFC 5737, RFC 3849), and what is none.
    others = ["192.0.2.1:80", "[2001:db8::1]:80", "nonsense", "127.0.0.1:http:"]
    assert [each for each in others if host.is_own(each)] == []


def test_a_server_at_the_second_address_of_a_name_accepts(monkeypatch: pytest.MonkeyPatch, far: FarAgent) -> None:
    """`localhost` was tried over IPv4 alone, and some servers listen there over IPv6."""
    host = far_host(far)
    with socket.create_server(("127.0.0.78", 0)) as server:
        port = server.getsockname()[1]
        both = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in ("127.0.0.77", "127.0.0.78")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both)
        assert host.accepts(f"there.example:{port}")
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both[:1])
        assert not host.accepts(f"there.example:{port}")
    assert not host.accepts("there.example:http:")


def test_a_connection_to_itself_is_no_server_that_accepts(monkeypatch: pytest.MonkeyPatch, far: FarAgent) -> None:
    host = far_host(far)
    with socket.socket() as probe:
        # The kernel may choose the port that is asked for as the source of the connect.
        probe.bind(("127.0.0.77", 0))
        address, port = probe.getsockname()
        monkeypatch.setattr(ServedHost, "socket", lambda *_: probe)
        assert not host.accepts(f"{address}:{port}")
    with socket.socket() as server:
        # A connection in TIME_WAIT would keep the server from its port.
        server.bind((address, port))


def test_leaving_an_agent_ends_what_nobody_discarded() -> None:
    with Agent() as agent:
        host = far_host(FarAgent(agent))
        process = host.start(python("print('up', flush=True); import time; time.sleep(600)"), role="a", metered=False)
        number = process.__enter__().number
        agent.ask(Await(processes=(number,), timeout_s=60.0))
        pid = agent.pid(number)
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(KeyError):
        agent.ask(Await(processes=(number,), timeout_s=0.0))
    agent.ask(Discard(process=number))
