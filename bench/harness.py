"""Two contenders, measured side by side, as a ratio.

The machine's speed shifts between runs and within them, so nothing is compared that was not
measured round by round next to it: a row runs A, B, B, A, A, B, ... and its figure is the median
over the rounds of A's cost by B's cost in that round. Cost is CPU seconds of the contender's whole
process tree for a unit of work, as the kernel accounts them when the tree has ended (wait4(2),
getrusage(2)): wall time is not used. A row of a contender against itself (A/A) shows what the
machine makes of two equal things.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "target" / "bench"
PLIMSOLL = str(ROOT / "target" / "release" / "plimsoll")
READY_SECONDS = 20.0
INSIDE = "PLIMSOLL_BENCH_NAMESPACE"

NGINX = """
worker_processes 1;
daemon off;
pid {folder}/pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {more}
  server {{ listen 127.0.0.1:PORT; root {folder}; }}
}}
"""


class BenchError(Exception):
    """Something that makes a figure impossible: what, why, and how to mend it."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A server, ours or a peer's."""

    name: str
    command: Sequence[str]
    """Its argv; `{port}` stands for a free port of 127.0.0.1."""
    cpu: int | None = None
    """The CPU that it is kept on."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison."""

    name: str
    unit: str
    a: str
    b: str
    ratios: tuple[float, ...]
    """A's cost by B's, a round each."""
    costs: tuple[tuple[float, float], ...]
    """What A and B cost, in the row's unit, a round each. Not to be compared between rows or
    runs."""
    reach: float | None = None
    """The ratio to reach: at most this."""

    @property
    def median(self) -> float:
        """The figure of the row."""
        return statistics.median(self.ratios)

    def words(self) -> str:
        """The row as a person reads it."""
        line = f"{self.name:<52} {self.median:6.3f}  ({min(self.ratios):.3f} to {max(self.ratios):.3f},"
        line += f" {len(self.ratios)} rounds)"
        if self.reach is not None:
            line += f"   reach {self.reach:.2f}: {'yes' if self.median <= self.reach else 'NO'}"
        return line


def nginx(folder: Path, name: str, more: str, *, cpu: int) -> Contender:
    """One worker of nginx, as Debian sets it but without its access log, serving the files of a
    folder.
    """
    program = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        raise BenchError("no nginx to measure with: install one (`apt-get install nginx-light`)")
    template = folder / f"{name.replace(' ', '-')}.template"
    template.write_text(NGINX.format(folder=folder, more=more))
    script = f"sed s/PORT/{{port}}/ {template} > {template}.conf && exec {program} -c {template}.conf"
    return Contender(name=name, command=("sh", "-c", script), cpu=cpu)


def free_port() -> int:
    """A free port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The laboratory of this checkout."""
    return subprocess.run(
        [sys.executable, "-m", "plimsoll_lab", *arguments, "--json"],
        cwd=ROOT,
        env=os.environ | {"PLIMSOLL_BIN": PLIMSOLL, "PYTHONPATH": str(ROOT / "lab")},
        capture_output=True,
        text=True,
        check=False,
    )


def pinned(command: Sequence[str], cpu: int | None) -> list[str]:
    """The command, kept on one CPU."""
    return [*(["taskset", "-c", str(cpu)] if cpu is not None else []), *command]


def enter_namespace() -> None:
    """Starts this program again in a network namespace of its own with cubic, where that is
    allowed: bbr, a common default, paces even the loopback, and then bulk measures its timers.
    """
    unshare, ip = shutil.which("unshare"), shutil.which("ip")
    if ip and is_inside():
        subprocess.run([ip, "link", "set", "lo", "up"], check=True)
        # By the route, as the sysctl of a fresh namespace may refuse what its allowed list leaves
        # out.
        for loopback in ("127.0.0.0/8", "127.0.0.1"):
            route = ["route", "replace", "local", loopback, "dev", "lo", "table", "local", "congctl", "cubic"]
            subprocess.run([ip, *route], check=True)
    elif unshare and ip and subprocess.run([unshare, "--net", "true"], check=False).returncode == 0:
        again = [unshare, "--net", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(again, env={**os.environ, INSIDE: "1"}, check=False).returncode)
    else:
        print("in the machine's own network, with its congestion control: not root, or no unshare or ip")


def is_inside() -> bool:
    """Whether `enter_namespace` has started this program."""
    return INSIDE in os.environ


def first_on_its_cpu(command: Sequence[str]) -> list[str]:
    """The command, which runs before whatever shares its CPU as soon as it has something to do,
    where that is allowed: what it measures is then not its own waiting.
    """
    return [*(["chrt", "--fifo", "1"] if may_be_first() else []), *command]


@cache
def may_be_first() -> bool:
    """Whether programs may have a real-time policy (SCHED_FIFO, sched(7)); if not, it is said."""
    chrt = shutil.which("chrt")
    allowed = chrt and subprocess.run([chrt, "--fifo", "1", "true"], capture_output=True, check=False).returncode == 0
    if not allowed:
        print("SCHED_FIFO is left out: there is no chrt, or it is not allowed")
    return bool(allowed)


class Running:
    """A contender that serves, and what it has cost once it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.port = port
        self.cpu_seconds = 0.0


@contextmanager
def serving(contender: Contender) -> Iterator[Running]:
    """Starts a contender, waits until it can be connected to, and ends it, with its cost in
    `cpu_seconds`.
    """
    port = free_port()
    command = pinned([part.replace("{port}", str(port)) for part in contender.command], contender.cpu)
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        running = Running(process, port)
        try:
            wait_for(port, contender, process)
            yield running
        finally:
            running.cpu_seconds = end(process)
            if process.returncode not in (0, -signal.SIGTERM, 128 + signal.SIGTERM) and sys.exc_info()[0] is None:
                errors.seek(0)
                raise BenchError(f"{contender.name} ended with {process.returncode}: {errors.read()[-500:]!r}")


def wait_for(port: int, contender: Contender, process: subprocess.Popen[bytes]) -> None:
    """Waits until a contender can be connected to."""
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1) as probe:
                refuse_itself(probe)
        except OSError as error:
            if process.poll() is not None:
                raise BenchError(f"{contender.name} ended at its start with {process.returncode}") from error
            if time.monotonic() > deadline:
                raise BenchError(f"{contender.name} did not listen on port {port} in {READY_SECONDS:.0f} s") from error
            time.sleep(0.02)
        else:
            return


def refuse_itself(probe: socket.socket) -> None:
    """Refuses a socket that is connected to itself: where nobody listens at a port, the kernel may
    choose that very port as the source (simultaneous open, RFC 9293, section 3.5). Its close is a
    reset: TIME_WAIT would keep the contender from its port.
    """
    if probe.getsockname() == probe.getpeername():
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))


def end(process: subprocess.Popen[bytes]) -> float:
    """Ends a process and returns the CPU seconds of it and its reaped children."""
    if process.returncode is not None:
        return 0.0  # it ended at its start, and was waited for when that was noticed
    process.terminate()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage.ru_utime + usage.ru_stime


def run_to_end(contender: Contender) -> tuple[str, float]:
    """Runs a contender to its end; its output, and the CPU seconds of it and its reaped
    children.
    """
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            pinned(contender.command, contender.cpu), stdout=output, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        return output.read(), usage.ru_utime + usage.ru_stime


def run_load(
    arguments: Sequence[str],
    cpu: int | None = None,
    *,
    prepared: Callable[[Sequence[str]], list[str]] = list,
) -> dict[str, Any]:
    """Runs `plimsoll load ... --json`, the command as `prepared` makes it, and returns its summary;
    a failure would make a figure worthless, and is said.
    """
    command = pinned(prepared([PLIMSOLL, "load", *arguments, "--json", "--quiet"]), cpu)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    if not lines or done.returncode not in (0, 4):
        raise BenchError(f"{' '.join(command)} exited with {done.returncode}: {done.stderr.strip()[-500:]}")
    summary: dict[str, Any] = json.loads(lines[-1])
    return summary


def compare(
    name: str,
    unit: str,
    a: Contender,
    b: Contender,
    cost: Callable[[Contender], float],
    *,
    rounds: int,
    reach: float | None = None,
) -> Row:
    """Measures `cost` (CPU seconds a unit of work) of both in each round, the order turning round
    by round.
    """
    costs = []
    for number in range(rounds):
        order = (a, b) if number % 2 == 0 else (b, a)
        measured = [cost(contender) * 1e6 for contender in order]
        costs.append((measured[0], measured[1]) if number % 2 == 0 else (measured[1], measured[0]))
    ratios = tuple(first / second for first, second in costs)
    row = Row(name=name, unit=unit, a=a.name, b=b.name, ratios=ratios, costs=tuple(costs), reach=reach)
    print(row.words(), flush=True)
    return row


def compare_all(
    name: str,
    contenders: Sequence[Contender],
    costs: Callable[[Contender], Mapping[str, float]],
    *,
    units: Mapping[str, str],
    rounds: int,
    reach: Mapping[tuple[str, str], float],
) -> list[Row]:
    """Measures the first contender against each of the others, all in each round, beginning with
    another one each time.

    `costs` may yield several figures, which `units` names and gives units to; `reach` is by figure
    and contender.
    """
    measured: list[dict[str, Mapping[str, float]]] = []
    for number in range(rounds):
        turn = number % len(contenders)
        order = [*contenders[turn:], *contenders[:turn]]
        measured.append({contender.name: costs(contender) for contender in order})
    first, *others = contenders
    rows = []
    for figure, unit in units.items():
        for other in others:
            pairs = tuple((costs_of[first.name][figure], costs_of[other.name][figure]) for costs_of in measured)
            row = Row(
                name=f"{name}{figure}: {first.name} / {other.name}",
                unit=unit,
                a=first.name,
                b=other.name,
                ratios=tuple(a / b for a, b in pairs),
                costs=pairs,
                reach=reach.get((figure, other.name)),
            )
            print(row.words(), flush=True)
            rows.append(row)
    return rows


def compiled(source: str) -> str:
    """A program of `bench/bare`, compiled."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise BenchError("no C compiler: install one (`apt-get install gcc`)")
    BUILD.mkdir(parents=True, exist_ok=True)
    program = BUILD / Path(source).stem
    subprocess.run([compiler, "-O2", "-o", str(program), str(ROOT / "bench" / "bare" / source)], check=True)
    return str(program)


def save(name: str, rows: Sequence[Row]) -> None:
    """Writes the rows, with their medians, to target/bench."""
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{name}.json"
    path.write_text(json.dumps([{**asdict(row), "median": row.median} for row in rows], indent=1) + "\n")
    print(f"written to {path.relative_to(ROOT)}")
