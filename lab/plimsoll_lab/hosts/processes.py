"""Processes of this machine: each in a session and, where possible, in a control group of its own.

They are an agent's alone: pids, pipes and descriptors never leave it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import IO, Self

from plimsoll_lab.hosts import guard
from plimsoll_lab.hosts.cgroup import Group, Groups, open_groups
from plimsoll_lab.hosts.printed import plain
from plimsoll_lab.hosts.samplers.out_of_memory import read_oom_kills
from plimsoll_lab.hosts.samplers.threads import ThreadReading, read_threads
from plimsoll_lab.hosts.samplers.usage import Meter, ProcessUsage, ProcMeter, Usage, read_processes, session_members
from plimsoll_lab.problem import ENVIRONMENT, LabError, StartError

NO_ROOM = {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE}
"""What fork(2) and pipe(2) end with where the machine, and no program, is at fault."""
STDERR_KEPT = 4096
"""Bytes of a process's stderr that are kept, from its end: enough for a reason, too little for a
flood to hurt. Where more came before, the whole lines among them are shown."""
LONG_LINE = f"(the end of a line of more than {STDERR_KEPT} bytes is left out)"
"""Shown where there is no whole line among them."""
STDOUT_KEPT = 64 * 2**20
"""Bytes of a process's stdout that are kept until they are taken, from its end: a hundred times a
summary with its histograms."""
READ_MOST = 4 * 2**20
"""Bytes of a pipe that are read at once: four times what a pipe holds at most (pipe(7)). So all
output of an ended process is read, and a process that prints without end delays no other."""
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when the thread that forked it ends."""
MARKS = 1 << 20
"""How many an agent has, one for each process that it starts: a long search starts thousands."""

INTERRUPTING = {signal.SIGINT, signal.SIGTERM}
"""The signals that end the lab."""

_LIBC = ctypes.CDLL(None, use_errno=True)


class LocalProcess:
    """A process on this machine, its pipes read without blocking."""

    def __init__(self, popen: subprocess.Popen[bytes], group: Group | None, mark: int, *, metered: bool) -> None:
        self.pid = popen.pid
        self._mark = mark
        self._popen = popen
        self._group = group
        self._oom_kills = read_oom_kills()
        self._was_killed = False
        self._lacked_memory: bool | None = None
        self._meter: Meter | None = None
        if metered:
            self._meter = group.meter() if group is not None else ProcMeter(session=popen.pid)
        self.meter_source = self._meter.source if self._meter else None
        self._pidfd = os.pidfd_open(popen.pid)
        self._kept: dict[int, bytearray] = {}
        self._cut: set[int] = set()
        """The pipes of which only the end is kept."""
        self._open: dict[int, IO[bytes]] = {}
        for pipe in (popen.stdout, popen.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
                self._open[pipe.fileno()] = pipe
                self._kept[pipe.fileno()] = bytearray()
        self._stdout, self._stderr = self._kept

    def tell(self, line: str) -> None:
        """Write a line to its standard input; nothing where it has ended. It must have been started
        to take lines.
        """
        if self._popen.stdin is None:
            raise AssertionError("a line for a process that takes none")
        with contextlib.suppress(BrokenPipeError):
            os.write(self._popen.stdin.fileno(), line.encode() + b"\n")

    def watched(self) -> list[int]:
        """The descriptors that become readable when it prints or ends."""
        return [*self._open, self._pidfd]

    def take_lines(self) -> list[str]:
        """The whole lines it has printed to stdout since the last call."""
        self._read(self._stdout, self._stderr)
        kept = self._kept[self._stdout]
        whole = kept.rfind(b"\n") + 1
        lines = kept[:whole].split(b"\n")[:-1]
        del kept[:whole]
        return [line.decode(errors="replace") for line in lines]

    def exit_code(self) -> int | None:
        """None while it runs; a negative number is the signal that ended it."""
        return self._popen.poll()

    def lacked_memory(self) -> bool:
        """Whether the kernel ended it for want of memory, or of its control group any process."""
        if self._lacked_memory is None and (code := self.exit_code()) is not None:
            # Asked as its end is seen: the machine's count goes on.
            self._lacked_memory = not self._was_killed and self._was_ended_for_memory(code)
        return bool(self._lacked_memory)

    def _was_ended_for_memory(self, code: int) -> bool:
        own = None if self._group is None else self._group.oom_kills()
        if own is not None:
            return own > 0
        before, now = self._oom_kills, read_oom_kills()
        return code == -signal.SIGKILL and before is not None and now is not None and now > before

    def stderr_tail(self) -> str:
        """The end of what it has printed to stderr, as plain text. It begins with a whole line, as
        half a line may begin with half a secret, which would not be recognised.
        """
        self._read(self._stderr)
        said = self._kept[self._stderr].decode(errors="replace")
        if self._stderr not in self._cut:
            return plain(said)
        # A carriage return ends a line too, as in plain().
        return plain(said.replace("\r", "\n").partition("\n")[2]) or LONG_LINE

    def stop(self, *, grace_s: float) -> int:
        """SIGTERM, then SIGKILL for whatever is left of the tree; its exit code."""
        deadline = time.monotonic() + grace_s
        if self._popen.poll() is None:
            self._popen.terminate()
        while self._popen.poll() is None and (left_s := deadline - time.monotonic()) > 0:
            # Its pipes are read meanwhile: a process that blocks on a full pipe never ends.
            wait_for([self], left_s)
            self._read(self._stdout, self._stderr)
        self.kill()
        return self._popen.wait()

    def kill(self) -> None:
        """End the whole tree at once."""
        self._was_killed = self._was_killed or self.exit_code() is None
        if self._group is not None:
            self._group.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if self._group is None:
            # What became a daemon has left the process group; a control group would have held it.
            guard.kill_marked(range(self._mark, self._mark + 1))

    def close(self) -> None:
        """Close every descriptor that was opened for it, and remove its control group."""
        self._popen.wait()
        for pipe in self._open.values():
            pipe.close()
        self._open.clear()
        if self._popen.stdin is not None:
            self._popen.stdin.close()
        os.close(self._pidfd)
        if self._group is not None:
            self._group.remove()

    def usage(self, *, thorough: bool) -> Usage:
        """What its whole tree has used."""
        if self._meter is None:
            raise AssertionError("usage of a process that is not metered")
        return self._meter.read(thorough=thorough)

    def members(self) -> list[int]:
        """The processes of its control group, itself first; itself alone where it has none."""
        return [self.pid, *(pid for pid in (self._group.pids() if self._group else ()) if pid != self.pid)]

    def tree(self) -> tuple[ProcessUsage, ...]:
        """Every process of its tree."""
        return read_processes(self._tree())

    def threads(self, *, sleeps: bool) -> tuple[ThreadReading, ...]:
        """What the threads of its tree are doing."""
        return read_threads(self._tree(), sleeps=sleeps)

    def _tree(self) -> Sequence[int]:
        return self._group.pids() if self._group is not None else session_members(self.pid)

    def _read(self, *numbers: int) -> None:
        """Empty pipes; standard output only to hand its lines on: nobody is woken for what has been
        read, so a line that was kept would be found once the process prints again.
        """
        for number in numbers:
            pipe = self._open.get(number)
            if pipe is None:
                continue
            kept, most = self._kept[number], STDERR_KEPT if number == self._stderr else STDOUT_KEPT
            left = READ_MOST
            while left > 0:
                try:
                    chunk = os.read(number, 65536)
                except BlockingIOError:
                    break
                if not chunk:
                    del self._open[number]
                    pipe.close()
                    break
                kept += chunk
                left -= len(chunk)
                if len(kept) > most:
                    del kept[:-most]
                    self._cut.add(number)


class Launcher:
    """Starts processes on this machine. A context: leaving it removes every trace."""

    def __init__(self) -> None:
        self._groups: Groups | None = None
        first = guard.FIRST_MARK + secrets.randbits(40) * MARKS
        self._marks = range(first, first + MARKS)
        self._guard: subprocess.Popen[bytes] | None = None
        self._started = 0

    def __enter__(self) -> Self:
        self._groups = open_groups()
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", guard.__file__],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._tell_guard(f"marks {self._marks.start} {self._marks.stop}")
        if self._groups is not None:
            for root in self._groups.roots:
                self._tell_guard(f"folder {root}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._groups is not None:
            self._groups.remove()
        if self._guard is not None and self._guard.stdin is not None:
            self._guard.stdin.close()
            self._guard.wait()

    @property
    def metering(self) -> str:
        """Where the cost of a process tree is read from."""
        if self._groups is None:
            return "proc"
        return "cgroup v2" if len(self._groups.roots) == 1 else "cgroup v1"

    def remove_after(self, folder: str) -> None:
        """Have a folder removed with everything else once this process has ended, in whatever
        way.
        """
        self._tell_guard(f"files {folder}")

    @contextlib.contextmanager
    def start(
        self,
        argv: Sequence[str],
        *,
        role: str,
        metered: bool,
        takes_lines: bool = False,
        cpus: tuple[int, ...] = (),
        directory: str | None = None,
    ) -> Iterator[LocalProcess]:
        """Start a process, on the given CPUs or on all, in a directory or in the lab's own; leaving
        the context ends its whole tree, however the context is left.
        """
        self._started += 1
        # The signals are blocked over the fork: Python loses an exception that a signal handler
        # raises there, and a process that has started must be recorded before a signal can end the
        # lab.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTING)
        group = popen = None
        try:
            with _where_there_is_room(role, argv[0]):
                group = self._groups.make(f"{self._started}-{role}") if metered and self._groups is not None else None
                mark = self._marks[self._started]
                with _keeping_to(cpus, role):
                    popen = self._spawn(argv, role, group, before, mark, takes_lines=takes_lines, directory=directory)
                self._tell_guard(f"group {popen.pid}")
                process = LocalProcess(popen, group, mark, metered=metered)
        except BaseException:
            if popen is not None:  # no descriptor is left to wait for it by
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(popen.pid, signal.SIGKILL)
                popen.wait()
                for pipe in (popen.stdin, popen.stdout, popen.stderr):
                    if pipe is not None:
                        pipe.close()
                self._tell_guard(f"forget {popen.pid}")
            if group is not None:
                group.remove()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            raise
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            yield process
        finally:
            process.kill()
            process.close()
            self._tell_guard(f"forget {popen.pid}")

    def _spawn(
        self,
        argv: Sequence[str],
        role: str,
        group: Group | None,
        mask: set[signal.Signals] | set[int],
        mark: int,
        *,
        takes_lines: bool,
        directory: str | None,
    ) -> subprocess.Popen[bytes]:
        parent = os.getpid()
        _, hardest = resource.getrlimit(resource.RLIMIT_RTTIME)
        files: list[int] = []

        def enter() -> None:
            # Between fork and exec: system calls only. The agent has one thread, so no other thread
            # holds a lock.
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            # Where the machine itself has a lower limit, the process has no mark.
            with contextlib.suppress(ValueError):
                resource.setrlimit(resource.RLIMIT_RTTIME, (mark, hardest))
            _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            for file in files:
                os.write(file, b"0")

        with contextlib.ExitStack() as stack:
            for folder in group.folders if group else ():
                files.append(os.open(folder / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
                stack.callback(os.close, files[-1])
            try:
                return subprocess.Popen(
                    list(argv),
                    cwd=directory,
                    stdin=subprocess.PIPE if takes_lines else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    preexec_fn=enter,  # noqa: PLW1509 - see enter()
                )
            except OSError as error:
                if error.errno in NO_ROOM:
                    raise
                why = f"{error.strerror}; install it, or make it executable (chmod +x)"
                raise StartError(f"cannot start the {role} '{argv[0]}': {why}") from None
            except subprocess.SubprocessError as error:
                raise StartError(f"cannot start the {role} '{argv[0]}': {error}") from None

    def _tell_guard(self, line: str) -> None:
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._guard.stdin.write(line.encode() + b"\n")
                self._guard.stdin.flush()


@contextlib.contextmanager
def _where_there_is_room(role: str, program: str) -> Iterator[None]:
    """Raise LabError where the machine lacks what another process needs."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise LabError(
            f"cannot start the {role} '{program}': this machine has no room for another process ({error.strerror}); "
            "end what else runs, or raise its limit (ulimit -u, ulimit -n, pids.max)",
            exit_code=ENVIRONMENT,
        ) from None


@contextlib.contextmanager
def _keeping_to(cpus: tuple[int, ...], role: str) -> Iterator[None]:
    """Have this thread, and so what it starts, keep to some CPUs for a moment (a child inherits
    them); none for all. Raises StartError where this machine does not give all of them.
    """
    if not cpus:
        yield
        return
    has = available_cpus(cpus)
    if has != set(cpus):
        raise StartError(
            f"cannot start the {role} on the CPUs {listed(cpus)}: of these this machine gives "
            f"{listed(has) or 'none'}; correct [place] cpus"
        )
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def available_cpus(cpus: Iterable[int]) -> set[int]:
    """Which of these CPUs this machine has: sched_setaffinity(2) leaves out missing ones without an
    error.
    """
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cpus)
        return os.sched_getaffinity(0)
    except OSError:
        return set()
    finally:
        os.sched_setaffinity(0, before)


def listed(cpus: Iterable[int]) -> str:
    """CPUs as a person lists them."""
    return ", ".join(str(each) for each in sorted(cpus))


def wait_for(processes: Sequence[LocalProcess], timeout_s: float) -> None:
    """Sleep until one of them prints or ends, or the time is over."""
    with selectors.DefaultSelector() as selector:
        for process in processes:
            for number in process.watched():
                selector.register(number, selectors.EVENT_READ)
        selector.select(max(0.0, timeout_s))
