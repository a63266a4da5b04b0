"""The measured window of a trial: what every part had used as it opened, as it closed, and in
between.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll_lab.hosts.external_server import ExternalServer
from plimsoll_lab.hosts.host import Host, HostProcess, Process, UsageSnapshot, read_usage
from plimsoll_lab.hosts.samplers.machine import MachineUsage
from plimsoll_lab.hosts.samplers.threads import READY, ThreadReading
from plimsoll_lab.hosts.samplers.usage import ProcessUsage, Usage
from plimsoll_lab.store.program_output import LoadSummary
from plimsoll_lab.store.records import MachineRecord, ProcessRecord, Sample

SAMPLE_EVERY_S = 0.1
"""Often enough to catch the peak of a window of a second; a sample costs half a millisecond of one
core."""
LEAST_READ = 0.5
"""The part of a window that the readings of its machine have to be of."""
LISTING_SHARE = 0.005
"""Of a core, what listing the server's processes may take within a window: about 15 us a
process."""


@dataclass(kw_only=True, slots=True)
class Window:
    """The readings of one measured window."""

    opened_unix_s: float | None = None
    """When the generator opened it, by its own clock reading."""
    closed_unix_s: float | None = None
    """When the generator closed it."""
    read_unix_s: float = 0.0
    """When the server's usage was read for its opening, by the lab's clock."""
    opened_at: float = 0.0
    """When the lab had read the server's usage for it, on its own monotonic clock, which samples
    are due by."""
    first_at_s: float = 0.0
    """When what the server had used is what `first` says, on the monotonic clock of its machine."""
    machine_lag_s: float = 0.0
    """By how much less than the window its machine was read for; below zero, by how much more."""
    before: UsageSnapshot | None = None
    """What every part had used before it opened, where none had anything to do in between: however
    late the opening is heard of, nothing is missed then."""
    lag_s: float = 0.0
    """How late both ends were read amid work, together."""
    rest_s: float = 0.0
    """How late its end was read, where connections stayed up and nothing new was asked."""
    first: Usage | None = None
    """The server's usage as it opened."""
    last: Usage | None = None
    """The server's usage as it closed."""
    others_first: Mapping[str, Usage] = field(default_factory=dict)
    """The usage of every other metered part as it opened."""
    others_last: Mapping[str, Usage] = field(default_factory=dict)
    """The same as it closed."""
    length_s: float = 0.0
    """Between these two."""
    own_cores: float | None = None
    """What those parts of the trial used of the server's machine that have worked because something
    was asked of them, once its generators have told that."""
    machine_first: MachineUsage | None = None
    """The machine as it opened."""
    machine_last: MachineUsage | None = None
    """The machine as it closed."""
    lists_processes: bool = False
    """Whether the processes of the server are listed at both ends."""
    processes_first: Sequence[ProcessUsage] = ()
    """Each process of the server as it opened."""
    unasked: Collection[str] = ()
    """Parts that work whether or not anything is asked of them: commands of a suite. What they had
    used is read as the window opens, also where the others' was foreseen."""
    processes_seen: dict[int, ProcessUsage] = field(default_factory=dict)
    """By its id, each process of the server that was seen until it closed, as it was seen last: one
    that a server forks for a connection may be gone by then."""
    listing_due_at: float = math.inf
    """When they are listed again, on the lab's own monotonic clock."""
    threads_first: Sequence[ThreadReading] = ()
    """The server's threads as it opened."""
    threads_last: Sequence[ThreadReading] = ()
    """The same as it closed."""
    samples: list[Sample] = field(default_factory=list)
    """The server's tree over it; none of a server that already ran."""

    @property
    def open(self) -> bool:
        """Whether it has opened and not yet closed."""
        return self.first is not None and self.last is None

    def foresee(self, host: Host, server: Process, others: Mapping[str, Process]) -> None:
        """It will open, and no part has anything to do until then."""
        self.before = read_usage(host, server, others, thorough=True)
        self.processes_first, self.threads_first = self._list(server), _threads(server)

    def begin(self, host: Host, server: Process, others: Mapping[str, Process], unix_s: float) -> None:
        """It opened at this moment."""
        reading = read_usage(host, server, others, thorough=True)
        late_s = max(0.0, reading.at_unix_s - unix_s)
        self.opened_at, self.first_at_s, self.machine_first = time.monotonic(), reading.at_s, reading.machine
        self.read_unix_s = reading.at_unix_s
        self.first, self.others_first = reading.server, reading.others
        if self.before is None:
            self.lag_s += late_s
            self.processes_first, self.threads_first = self._list(server), _threads(server)
        else:
            self.first = self.before.server
            self.others_first = {
                name: used if name in self.unasked else self.before.others.get(name, used)
                for name, used in reading.others.items()
            }
            self._opened_earlier(late_s)
        self.opened_unix_s = unix_s
        self._keep(server, 0.0, self.first)

    def opened_by(self, unix_s: float) -> None:
        """It had opened by this moment: what another machine says comes later."""
        if self.opened_unix_s is None or unix_s >= self.opened_unix_s:
            return
        earlier_s = self.opened_unix_s - unix_s
        self.opened_unix_s = unix_s
        if self.before is None:
            self.lag_s += earlier_s
        else:
            self._opened_earlier(earlier_s)

    def _opened_earlier(self, by_s: float) -> None:
        self.opened_at -= by_s
        self.first_at_s -= by_s
        self.machine_lag_s += by_s

    def end(
        self,
        host: Host,
        server: Process,
        others: Mapping[str, Process],
        unix_s: float,
        *,
        rests_until: float | None,
    ) -> None:
        """It closed at this moment. Since then, and until `rests_until`, no part has had more to do
        than to answer what was under way; None where it may have had.
        """
        reading = read_usage(host, server, others, thorough=True)
        late_s = max(0.0, reading.at_unix_s - unix_s)
        self.last, self.length_s = reading.server, reading.at_s - self.first_at_s
        if rests_until is not None and reading.at_unix_s <= rests_until:
            self.length_s -= late_s
            self.machine_lag_s -= late_s
            self.rest_s = late_s
        else:
            self.lag_s += late_s
        if self.before is None and self.read_unix_s >= unix_s:
            self.length_s = 0.0
        self.machine_last, self.others_last = reading.machine, reading.others
        self.threads_last = _threads(server)
        self._list(server)
        self.closed_unix_s = unix_s
        self.samples = [each for each in self.samples if each.at_s < self.length_s]
        self._keep(server, self.length_s, self.last)

    @property
    def was_missed(self) -> bool:
        """Whether it was over before the lab came to read its opening: then nothing that was read
        is of it.
        """
        return self.last is not None and self.length_s <= 0

    def answered_after(self, in_flight: int, completed: int) -> None:
        """So many requests were under way as it closed, beside those that it completed: answering
        them may be in what was read after it, as if it had lasted longer.
        """
        longer_s = self.length_s * in_flight / completed if completed else math.inf
        self.lag_s += min(self.rest_s, longer_s)

    def sample(self, host: Host, server: Process, now: float) -> float:
        """Take a sample where one is due; seconds until the next, which may never come."""
        if not self.samples:
            return math.inf
        due_s = self.samples[-1].at_s + SAMPLE_EVERY_S - (now - self.opened_at)
        if due_s > 0:
            return due_s
        if now >= self.listing_due_at:
            self._list(server)
        if server.meter_source == "proc":
            # A walk over the processes in the middle of a window would disturb it: only its ends
            # are read.
            return SAMPLE_EVERY_S
        # The message may have waited: its sample is of the moment at which the host was read.
        reading = read_usage(host, server, {}, thorough=False)
        self._keep(server, reading.at_s - self.first_at_s, reading.server)
        return SAMPLE_EVERY_S

    def _keep(self, server: Process, at_s: float, usage: Usage) -> None:
        """Keep a sample; of a server that already ran nothing was read."""
        if not isinstance(server, ExternalServer):
            self.samples.append(Sample(at_s=at_s, cpu_s=usage.cpu_s, memory_bytes=usage.memory_bytes))

    def cpu_cores(self, name: str) -> float | None:
        """What another part used over the window, in cores."""
        first, last = self.others_first.get(name), self.others_last.get(name)
        return self._cores(first, last, self._between_s if name in self.unasked else self.length_s)

    @property
    def _between_s(self) -> float:
        """How long after what was read at its opening its end was read."""
        return self.length_s - self.machine_lag_s

    def _cores(self, first: Usage | None, last: Usage | None, length_s: float) -> float | None:
        """None also of a tree that has ended, of which /proc tells nothing any more."""
        if first is None or last is None or self.length_s <= 0 or length_s <= 0 or last.cpu_s < first.cpu_s:
            return None
        return (last.cpu_s - first.cpu_s) / length_s

    def _list(self, server: Process) -> Sequence[ProcessUsage]:
        """See the server's processes, where they are asked for; the longer that takes, the later it
        is due again.
        """
        if not self.lists_processes or not isinstance(server, HostProcess):
            return ()
        began = time.monotonic()
        found = server.tree()
        self.listing_due_at = time.monotonic() + (time.monotonic() - began) / LISTING_SHARE
        self.processes_seen |= {each.pid: each for each in found}
        return found

    def processes(self) -> list[ProcessRecord]:
        """What each process used over the window that was seen in it, the busiest first."""
        if self.length_s <= 0:
            return []
        before = {each.pid: each.cpu_s for each in self.processes_first}
        used = {pid: max(0.0, each.cpu_s - before.get(pid, 0.0)) for pid, each in self.processes_seen.items()}
        found = [
            ProcessRecord(pid=pid, name=each.name, cpu_cores=used[pid] / self.length_s)
            for pid, each in self.processes_seen.items()
        ]
        return sorted(found, key=lambda each: (-each["cpu_cores"], each["pid"]))

    def server_cores(self) -> float | None:
        """What the server used over the window, in cores."""
        return self._cores(self.first, self.last, self.length_s)

    def server_waited_s(self) -> float | None:
        """For how much of the window a thread of the server was ready and had no CPU: of the one
        that waited longest. None where the kernel does not count that.
        """
        before = {(each.process, each.thread): each.run_queue for each in self.threads_first}
        waits = []
        for each in self.threads_last:
            now, then = each.run_queue, before.get((each.process, each.thread))
            if now is None:
                continue
            # A wait that lasts is not counted yet. Who is ready now, and had no turn, had none at
            # all.
            is_waiting = each.state == READY and then == now
            waited_s = self.length_s if is_waiting else now.waited_s - (then.waited_s if then else 0.0)
            waits.append(min(waited_s, self.length_s))
        return max(waits, default=None)

    def machine(self) -> MachineRecord:
        """What the whole machine did over the window."""
        first, last = self.machine_first, self.machine_last
        read_s = self._between_s
        # Of a window that was over as its opening was heard of, both are of its last moment.
        if first is None or last is None or read_s < LEAST_READ * self.length_s or self.was_missed:
            return {}
        # It was read for a while after the window, too, in which other programs alone worked on.
        not_worked_s = (self.own_cores or 0.0) * self.rest_s
        record = MachineRecord(
            window_s=self.length_s,
            sample_lag_s=self.lag_s,
            busy_cores=(last.busy_s - first.busy_s + not_worked_s) / read_s,
            softirq_cores=(last.softirq_threads_s - first.softirq_threads_s) / read_s,
            steal_cores=(last.steal_s - first.steal_s) / read_s,
        )
        if last.throttled_s is not None and first.throttled_s is not None:
            record["throttled_s"] = last.throttled_s - first.throttled_s
        return record

    def generator_cores(self, generators: Sequence[LoadSummary]) -> float | None:
        """What these generators used over the window, in cores, by their summaries; None where one
        does not tell.
        """
        used = [(each.generator.cpu_cores, each.elapsed_s) for each in generators]
        known = [(cores, own_s) for cores, own_s in used if cores is not None]
        if len(known) < len(used) or self.length_s <= 0:
            return None
        # A generator's CPU is of its own window, which may have ended before the last.
        return sum(cores * (min(1.0, own_s / self.length_s) if len(used) > 1 else 1.0) for cores, own_s in known)

    def foreign_cores(self, generators: Sequence[LoadSummary], elsewhere: Collection[str]) -> float | None:
        """CPU of the server's machine that programs used which are no part of the trial; of the
        generators there, by their summaries. Parts that run elsewhere do not count, nor do the
        kernel's threads for packets.
        """
        here = [name for name in self.others_last if name not in elsewhere]
        asked = [self.cpu_cores(name) for name in here if name not in self.unasked]
        unasked = [self.cpu_cores(name) for name in here if name in self.unasked]
        used = [self.generator_cores(generators), self.server_cores(), *asked]
        if not self.machine() or None in used or None in unasked:
            return None
        self.own_cores = sum(each for each in used if each is not None)
        machine = self.machine()
        ours = self.own_cores + sum(each for each in unasked if each is not None)
        return max(0.0, machine["busy_cores"] - machine["softirq_cores"] - ours)


def _threads(server: Process) -> Sequence[ThreadReading]:
    """The threads of a server that the lab has started."""
    return server.threads(sleeps=False) if isinstance(server, HostProcess) else ()
