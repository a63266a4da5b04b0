"""What is read while a trial runs, from this machine's own kernel."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from plimsoll_lab.hosts.host import Host, HostProcess
from plimsoll_lab.hosts.local import LocalHost
from plimsoll_lab.hosts.messages import AnswerT, Describe, Description, HostSample, Message, TakeSample
from plimsoll_lab.hosts.samplers import usage
from plimsoll_lab.hosts.samplers.environment import read_environment
from plimsoll_lab.hosts.samplers.machine import (
    DESCRIPTORS_PROCESSES,
    read_cpu_s,
    read_descriptors,
    read_machine,
    softirq_threads,
)
from plimsoll_lab.hosts.samplers.sock_diag import NETLINK_SOCK_DIAG, TcpInfo, sample_connections
from plimsoll_lab.hosts.samplers.usage import CgroupV1Meter, CgroupV2Meter, Meter, ProcMeter, Usage
from plimsoll_lab.trial.sampling import EXPENSIVE_SHARE, Sampler, withheld_s

ADDRESSES = {"IPv4": ("127.0.0.1", "127.0.0.1"), "IPv6": ("::1", "::1"), "IPv4 to IPv6": ("::", "127.0.0.1")}


@contextlib.contextmanager
def connected(listen: str, connect: str, count: int) -> Iterator[int]:
    """Connections to a listener, both ends held open; its port."""
    with contextlib.ExitStack() as stack:
        family = socket.AF_INET6 if ":" in listen else socket.AF_INET
        try:
            listener = stack.enter_context(
                socket.create_server((listen, 0), family=family, dualstack_ipv6=listen == "::")
            )
        except (OSError, ValueError) as error:
            pytest.skip(f"this machine has no {listen}: {error}")
        port = listener.getsockname()[1]
        for _ in range(count):
            stack.enter_context(socket.create_connection((connect, port)))
            stack.enter_context(listener.accept()[0])
        yield port


def sampled(family: socket.AddressFamily, port: int) -> list[TcpInfo]:
    """What the kernel tells of connections to a port."""
    try:
        diag = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG)
    except OSError as error:
        pytest.skip(f"this kernel has no sock_diag: {error}")
    with diag:
        diag.settimeout(30)
        return sample_connections(diag, family, port)


@pytest.mark.parametrize("name", ADDRESSES)
def test_connections_are_sampled_whichever_family_they_are_of(name: str) -> None:
    listen, connect = ADDRESSES[name]
    family = socket.AF_INET6 if ":" in listen else socket.AF_INET
    with connected(listen, connect, 3) as port:
        infos = sampled(family, port)
    assert len(infos) == 3
    assert all(info.rtt_us > 0 and info.total_retransmissions == 0 for info in infos)


def test_of_many_connections_some_dozens_are_sampled() -> None:
    with connected("127.0.0.1", "127.0.0.1", 300) as port:
        assert 24 < len(sampled(socket.AF_INET, port)) < 300


def test_the_sampler_finds_connections_of_either_family() -> None:
    with LocalHost() as host, connected("::", "127.0.0.1", 2) as port:
        sampler = Sampler({"local": host}, host, f"127.0.0.1:{port}")
        sampler.begin({})
        sampler.end({})
        samples = cast("list[dict[str, int]]", sampler.record(1.0)["connections"])
        assert [each["connections"] for each in samples] == [2, 2]


def test_descriptors_of_a_process_are_counted() -> None:
    pipes = [os.pipe() for _ in range(10)]
    try:
        # Listing the folder takes one of its own.
        assert read_descriptors([os.getpid()]) == len(list(Path("/proc/self/fd").iterdir())) - 1
    finally:
        for end in (end for pipe in pipes for end in pipe):
            os.close(end)


THREADS = """
import ctypes, os, sys, threading
def say():
    print(flush=True)
    sys.stdin.readline()
def own():
    assert ctypes.CDLL(None).unshare(0x400) == 0
    pipes = [os.pipe() for _ in range(10)]
    say()
def shared():
    say()
say()
for each in (shared, own):
    threading.Thread(target=each).start()
"""


def test_of_threads_each_table_is_counted_once() -> None:
    child = [sys.executable, "-I", "-S", "-c", THREADS]
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        before = read_descriptors([other.pid])
        assert before is not None
        other.stdin.write(b"\n")
        other.stdin.flush()
        for _ in range(2):
            other.stdout.readline()
        # The table that was a copy has what the first has, and ten pipes.
        assert read_descriptors([other.pid]) == 2 * before + 20
        other.stdin.write(b"\n\n")


def test_of_many_processes_some_stand_for_all_but_the_leader_for_itself_alone() -> None:
    child = [sys.executable, "-I", "-S", "-c", "import sys; print(flush=True); sys.stdin.read()"]
    with subprocess.Popen(child, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        each = read_descriptors([other.pid])
        own = read_descriptors([os.getpid()])
        assert each is not None
        assert own is not None
        many = [os.getpid(), *[other.pid] * (10 * DESCRIPTORS_PROCESSES + 1)]
        assert read_descriptors(many) == own + each * (len(many) - 1)
    assert read_descriptors([other.pid]) is None
    assert read_descriptors([]) is None


class CountingAgent:
    """Answers for one place and one process, and counts the samples that were expensive: ten
    milliseconds each.
    """

    def __init__(self) -> None:
        self.expensive = 0

    def ask(self, message: Message[AnswerT]) -> AnswerT:
        """Answer a description or a sample."""
        if isinstance(message, Describe):
            return cast(
                "AnswerT",
                Description(name="local", addresses=("127.0.0.1",), interface="lo", machine="m", metering="proc"),
            )
        assert isinstance(message, TakeSample)
        self.expensive += message.expensive
        sample = HostSample(
            machine={},
            states={1: {}},
            costs={},
            counters={1: {}} if message.counters else {},
            descriptors={7: 12} if message.expensive else {},
            connections=None,
            connections_family=None,
            expensive_s=0.01 if message.expensive else 0.0,
        )
        return cast("AnswerT", sample)


def test_what_is_expensive_is_read_so_seldom_that_it_keeps_to_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll_lab.trial.sampling.time.monotonic", lambda: 100.0)
    agent = CountingAgent()
    host = Host(agent, 1)
    parts = {"server": HostProcess(agent, 7, "proc")}
    sampler = Sampler({"local": host}, host, "")
    sampler.begin(parts)
    apart = round(0.01 / EXPENSIVE_SHARE)
    asked = []
    for second in range(1, 2 * apart + 1):
        sampler.poll(parts, 100.0 + second)
        asked.append(agent.expensive)
    assert apart > 2
    assert asked == [1] * (apart - 1) + [2] * apart + [3]
    rows = [cast("dict[str, dict[str, int]]", row["parts"]) for row in sampler._timeline]
    read = [place for place, part in enumerate(rows) if "descriptors" in part["server"]]
    assert read == [0, apart, 2 * apart]


def test_the_kernels_threads_for_packets_are_found_and_no_program_of_their_name(tmp_path: Path) -> None:
    rest = "0 0 0 -1 69238848 0 0 0 0 150 250 0 0 20 0 1 0 2 0 0"
    for number, name, parent in ((15, "ksoftirqd/0", 2), (22, "ksoftirqd/1", 2), (90, "ksoftirqd/0", 77), (91, "x", 2)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "stat").write_text(f"{number} ({name}) S {parent} {rest}\n")
    threads = softirq_threads(tmp_path)
    assert {each.parent.name for each in threads} == {"15", "22"}
    assert sum(read_cpu_s(each) for each in threads) == pytest.approx(2 * 400 / os.sysconf("SC_CLK_TCK"))
    assert read_cpu_s(tmp_path / "99" / "stat") == 0.0


def test_the_time_of_interrupts_is_no_programs_where_the_kernel_keeps_it_apart(tmp_path: Path) -> None:
    """It counted as that of other programs: no part of a trial is charged for it there."""
    stat, tick = tmp_path / "stat", 1 / os.sysconf("SC_CLK_TCK")
    stat.write_text("cpu 1000 0 2000 5000 0 100 400 7 0 0\n")
    apart = read_machine(stat)
    assert (apart.busy_s, apart.softirq_threads_s) == pytest.approx((3500 * tick, 500 * tick))
    stat.write_text("cpu 1000 0 2000 5000 0 0 400 7 0 0\n")
    threads = sum(read_cpu_s(each) for each in softirq_threads())
    assert read_machine(stat).softirq_threads_s == pytest.approx(threads, abs=1.0)


def test_memory_that_may_not_be_read_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was 0 bytes: the best of all servers."""
    meter = ProcMeter(session=os.getsid(0))
    assert (meter.read(thorough=True).memory_bytes or 0) > 0

    def refused(*_: object) -> int:
        raise PermissionError

    monkeypatch.setattr(usage, "_keyed", refused)
    assert meter.read(thorough=True).memory_bytes is None


def test_shared_memory_of_a_group_is_its_own_and_the_page_cache_is_not(tmp_path: Path) -> None:
    (tmp_path / "cpu.stat").write_text("usage_usec 2000000\n")
    (tmp_path / "cpuacct.usage").write_text("2000000000\n")
    for charged in ("memory.current", "memory.usage_in_bytes"):
        (tmp_path / charged).write_text("1000000\n")
    (tmp_path / "memory.stat").write_text("anon 300000\nfile 600000\ncache 600000\nshmem 200000\n")
    meters: list[Meter] = [CgroupV2Meter(folder=tmp_path), CgroupV1Meter(cpuacct=tmp_path, memory=tmp_path)]
    for meter in meters:
        assert meter.read(thorough=True) == Usage(cpu_s=2.0, memory_bytes=600_000)


def test_what_a_hypervisor_withholds_counts_in_the_moments_in_which_it_is_much() -> None:
    def readings(*steps: tuple[float, float]) -> list[tuple[float, float]]:
        """When each was made and what was withheld by then, after steps of so many seconds."""
        return list(itertools.accumulate(steps, lambda sums, step: (sums[0] + step[0], sums[1] + step[1])))

    quiet = [(1.0, 0.01)] * 30
    assert withheld_s([]) == 0
    assert withheld_s(readings(*quiet, *quiet)) == 0
    assert withheld_s(readings(*quiet, (1.0, 0.5), (1.0, 0.8), *quiet)) == pytest.approx(1.3)
    # Ticks of 10 ms: in so short a window two of them may be rounding.
    assert withheld_s(readings((0.0, 7.0), (0.15, 0.02))) == 0
    assert withheld_s(readings((0.0, 7.0), (0.15, 0.03))) == pytest.approx(0.03)


def test_the_cpus_of_the_machine_are_told_beside_those_that_the_lab_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    found = read_environment("cgroup v2")
    assert (found["cpus"], found["cpus_online"]) == (2, 8)
