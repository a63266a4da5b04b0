"""Whether a part of a trial was not done in time for want of a CPU, which others had.

Only what the kernel counts decides: the part cannot tell, as it did not run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from plimsoll_lab.hosts.host import Host, HostProcess, Process, UsageSnapshot, read_usage
from plimsoll_lab.hosts.samplers.threads import RunQueue
from plimsoll_lab.problem import HostLost, LabError
from plimsoll_lab.store.records import ResultWarning
from plimsoll_lab.suite.placement import SERVER
from plimsoll_lab.trial.observation import FOREIGN_CORES_TOLERATED, WITHHELD_TOLERATED
from plimsoll_lab.trial.validity import STARVED, Judgement

LEAST_S = 1.0
"""Of a shorter wait the start of a program is most, which any busy machine holds up."""


class Starved(Exception):  # noqa: N818 - an outcome, not an error
    """A part of the trial was not done in time, and others had the CPUs."""

    def __init__(self, reason: str, warning: ResultWarning) -> None:
        super().__init__(reason)
        self._warning = warning

    def judgement(self) -> Judgement:
        """What the trial is worth."""
        return Judgement(outcome="invalid", reason=f"{self._warning.message}: {self}", warnings=(self._warning,))


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """The time for which a trial waited for a part: what its machine did, or the server's."""

    length_s: float
    """How long it was."""
    waited_s: float
    """For how long a thread of the trial was ready and had no CPU: of the one that waited
    longest."""
    own_s: float
    """CPU seconds that the trial itself used."""
    foreign_s: float
    """CPU seconds that other programs used."""
    steal_s: float
    """CPU seconds that the hypervisor withheld."""
    throttled_s: float
    """Seconds for which a CPU quota held threads back."""


def begin_wait(host: Host, process: Process, others: Mapping[str, Process]) -> UsageSnapshot | None:
    """What a part and the others have used as the wait for it begins; None where the part was not
    started by the laboratory, of which nothing is read.
    """
    if not isinstance(process, HostProcess):
        return None
    return read_usage(host, process, _on(host, others), thorough=False)


def end_wait(
    begun: UsageSnapshot | None,
    host: Host,
    process: Process,
    others: Mapping[str, Process],
    generators: Mapping[str, Process],
) -> Wait | None:
    """The wait that began so; `generators` are not metered, and were started in it. None where it
    is not known.
    """
    if begun is None:
        return None
    started = _on(host, generators)
    try:
        now = read_usage(host, process, _on(host, others), thorough=False)
        queues = _run_queues([*_on(host, {SERVER: process, **others}).values(), *started.values()])
        # By processes: of their threads some have ended, and of many not all are read.
        ran_s = sum(each.cpu_s for one in started.values() for each in one.tree())
    except HostLost:
        # That is the outcome then.
        raise
    except LabError:
        return None
    own_s = ran_s + now.server.cpu_s - begun.server.cpu_s
    own_s += sum(now.others[name].cpu_s - before.cpu_s for name, before in begun.others.items())
    first, last = begun.machine, now.machine
    busy_s = last.busy_s - first.busy_s - (last.softirq_threads_s - first.softirq_threads_s)
    return Wait(
        length_s=now.at_s - begun.at_s,
        # A server may have waited before, too.
        waited_s=min(now.at_s - begun.at_s, max((each.waited_s for each in queues), default=0.0)),
        own_s=own_s,
        foreign_s=max(0.0, busy_s - own_s),
        steal_s=last.steal_s - first.steal_s,
        throttled_s=(last.throttled_s or 0.0) - (first.throttled_s or 0.0),
    )


def _on(host: Host, processes: Mapping[str, Process]) -> dict[str, HostProcess]:
    """Those that the agent of a host has started."""
    ours = {name: each for name, each in processes.items() if isinstance(each, HostProcess)}
    return {name: each for name, each in ours.items() if each.connection is host.connection}


def _run_queues(processes: Iterable[HostProcess]) -> list[RunQueue]:
    """What the scheduler has counted of each thread of these processes."""
    running = [each for each in processes if each.exit_code() is None]
    read = [thread for each in running for thread in each.threads(sleeps=False)]
    return [thread.run_queue for thread in read if thread.run_queue is not None]


def outside_cause(wait: Wait | None) -> ResultWarning | None:
    """Who had the CPUs, where a part was not done for want of them; None where that is its own
    doing. Pure.
    """
    if wait is None or wait.length_s < LEAST_S or wait.waited_s < STARVED * wait.length_s:
        return None
    taken_s = wait.foreign_s + wait.steal_s + wait.throttled_s
    if taken_s <= wait.own_s:
        return None
    foreign, steal = wait.foreign_s / wait.length_s, wait.steal_s / wait.length_s
    causes = (
        ("machine_busy", foreign > FOREIGN_CORES_TOLERATED, f"other programs used {foreign:.2f} cores"),
        ("steal", steal > FOREIGN_CORES_TOLERATED, f"the hypervisor withheld {steal:.2f} cores"),
        (
            "throttled",
            wait.throttled_s > WITHHELD_TOLERATED * wait.length_s,
            f"a CPU quota held threads back for {wait.throttled_s:.1f} s",
        ),
    )
    for code, is_so, said in causes:
        if is_so:
            message = f"{said}, and a thread of the trial was ready and had no CPU for {wait.waited_s:.1f} s"
            remedy = "close what else runs on this machine; a trial like this one is made again"
            return ResultWarning(code=code, message=f"{message} of {wait.length_s:.1f} s", remedy=remedy)
    return None
