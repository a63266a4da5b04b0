"""What a process that is not done in time was doing, in words: for the reason of a trial that it
spoilt.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from plimsoll_lab.hosts.host import HostProcess, Process
from plimsoll_lab.hosts.samplers.threads import ThreadReading
from plimsoll_lab.problem import HostLost, LabError
from plimsoll_lab.store.program_output import LoadSummary
from plimsoll_lab.trial.validity import ending

LONG_WAIT_S = 1.0
"""On a quiet machine threads wait for a CPU for some milliseconds in a whole trial."""
_NUMBER = re.compile(r"[\s\d.:/-]+$")
"""The end of the name of one of several threads: `worker 1.0`."""


def states_of(processes: Mapping[str, Process]) -> str:
    """`load: 2 worker S (ep_poll, system call 232); server: ended with exit code 1`."""
    return "; ".join(f"{name}: {_state(process)}" for name, process in processes.items())


def _state(process: Process) -> str:
    if not isinstance(process, HostProcess):
        return "not started by the laboratory"
    code = process.exit_code()
    if code is not None and code < 0:
        return f"ended: {ending(code, '', lacked_memory=process.lacked_memory())}"
    if code is not None:
        return f"ended with exit code {code}"
    try:
        threads = process.threads(sleeps=True)
    except HostLost:
        # That is the outcome then, and no process is overdue.
        raise
    except LabError as error:
        return f"not known ({error})"
    return (in_groups(threads) or "no thread") + _without_cpu(threads)


def in_groups(threads: Sequence[ThreadReading]) -> str:
    """Threads that do the same are counted together, most first, by their names without numbers."""
    alike = Counter((_NUMBER.sub("", each.name) or "thread", each.state, each.sleeps_in) for each in threads)
    return ", ".join(
        f"{count} {name} {state}" + (f" ({sleeps_in})" if sleeps_in else "")
        for (name, state, sleeps_in), count in alike.most_common()
    )


def _without_cpu(threads: Sequence[ThreadReading]) -> str:
    """For how long in all one of them was ready and had no CPU, where that is long."""
    waited_s = max((each.run_queue.waited_s for each in threads if each.run_queue is not None), default=0.0)
    return f", one of them ready without a CPU for {waited_s:.1f} s in all" if waited_s >= LONG_WAIT_S else ""


def last_said(name: str, event: str | None, ago_s: float) -> str:
    """`load said all_up 78 s before and nothing since`."""
    return f"{name} said nothing" if event is None else f"{name} said {event} {ago_s:.0f} s before and nothing since"


def got_so_far(name: str, summary: LoadSummary) -> str:
    """What a generator that is asked to stop says of its work: `load had 99 of 100 connections and
    7 requests completed`.
    """
    connections, completed = summary.connections, summary.requests.completed
    up = connections.established or 0
    return f"{name} had {up} of {connections.requested} connections and {completed} requests completed"
