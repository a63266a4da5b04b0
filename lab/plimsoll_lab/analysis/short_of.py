"""What a server was short of at the upper bound of a search: descriptors, its listen queue, CPU or
memory; and whether its machine was the limit. Pure.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.reasons import counted
from plimsoll_lab.store.records import TrialRecord, counts
from plimsoll_lab.store.run_record import EnvironmentRecord
from plimsoll_lab.store.search_record import CauseRecord, ShortOf
from plimsoll_lab.suite.placement import LOAD, SERVER
from plimsoll_lab.suite.spec import Point, Suite

PLATEAU = 1.05
"""A server that uses no more than this many times the CPU at any higher load has found its limit in
the CPU."""
WHOLE_CORES = 0.9
"""An event loop with work for all of its time uses nearly a whole core; the kernel takes the rest
elsewhere."""
WHOLE_AT_MOST = 0.25
"""Of several event loops together too: a number of cores further from a whole one is as near to a
half."""
FULL = 0.95
"""Above this part of the machine's CPUs, or of its memory, there was none left."""
OWN_CORES = 0.03
"""A thread with work for all of its time that nobody takes the CPU from uses so nearly a core."""
CROWDED = 0.9
"""Above this part of the machine's CPUs a server and a generator wait for each other, in turns that
take milliseconds."""
GENERATORS_PART = 0.1
"""A server gains less than this part of its machine if the generator leaves it."""
OWN_AT_MOST = 1.05
"""Parts that used more than this many times the CPUs that the lab may use run on others, too."""
EVIDENCE = (
    "completed_rate",
    "response_time_us.p50",
    "response_time_us.p99",
    "failed_ratio",
    "server.cpu_cores",
    "server.memory_bytes",
    "generator.cpu_cores",
)
"""What is shown of both bounds, so that a reader sees what changed between them."""


def causes_of(
    suite: Suite, bad: Sequence[TrialRecord], every: Sequence[TrialRecord], environment: EnvironmentRecord
) -> list[CauseRecord]:
    """All that it was short of in the trials at the upper bound; `every` is the whole search."""
    return [
        *_descriptors(bad),
        *_listen(bad),
        *_errors(bad),
        *_cpu(suite, bad, every, environment),
        *_memory(bad, environment),
    ]


def medians(trials: Sequence[TrialRecord], names: Sequence[str]) -> dict[str, float]:
    """The median of each figure over the trials that are results, where there are any."""
    valid = [trial for trial in trials if trial.outcome == "ok"]
    return {
        name: statistics.median(values)
        for name in names
        if (values := [trial.figures[name] for trial in valid if name in trial.figures])
    }


def _descriptors(bad: Sequence[TrialRecord]) -> list[CauseRecord]:
    found = Counter[str]()
    for trial in bad:
        errors = counts(trial.server.get("summary"), "errors")
        found.update({code: errors.get(code, 0) for code in ("emfile", "enfile", "fd_setsize")})
    words_of = {
        "emfile": ("descriptors: it ran out of them {n} (ulimit -n)", "time"),
        "enfile": ("descriptors: the machine ran out of them {n} (fs.file-max)", "time"),
        "fd_setsize": ("descriptors: select can watch none of 1024 or above, and refused {n}", "connection"),
    }
    causes = [(*words_of[code], n) for code, n in found.items() if n]
    return [_cause("descriptors", words.format(n=counted(n, one))) for words, one, n in causes]


def _listen(bad: Sequence[TrialRecord]) -> list[CauseRecord]:
    dropped = sum(trial.machine.get("listen_overflows", 0) for trial in bad)
    if not dropped:
        return []
    times, trials = counted(dropped, "time"), counted(len(bad), "trial")
    return [_cause("listen_overflow", f"listen queue: it overflowed {times} in {trials}")]


def _errors(bad: Sequence[TrialRecord]) -> list[CauseRecord]:
    found = Counter[str]()
    for trial in bad:
        found.update(counts(trial.load.get("summary"), "errors"))
    shown = ", ".join(f"{count:,} {code}" for code, count in found.most_common() if count)
    return [_cause("errors", f"errors: {shown} in {counted(len(bad), 'trial')}")] if shown else []


def _cpu(
    suite: Suite, bad: Sequence[TrialRecord], every: Sequence[TrialRecord], environment: EnvironmentRecord
) -> list[CauseRecord]:
    used = _server_cores(bad)
    if out_of_cpu(bad, every, environment):
        above = ", and no more at any higher load" if _is_told_above(suite, bad, every) else ""
        return [_cause("cpu", f"CPU: it uses {used:.2f} cores there{above}")]
    busy = _busy(bad, environment)
    if busy is not None and busy.is_full:
        own = "" if used is None else f", {used:.2f} of them by the server"
        return [_cause("cpu", f"CPU: {busy.cores:.2f} of the {busy.whose}'s {busy.cpus} CPUs were busy{own}")]
    return []


def out_of_cpu(bad: Sequence[TrialRecord], every: Sequence[TrialRecord], environment: EnvironmentRecord) -> bool:
    """Whether the threads of the server had no CPU left at the upper bound although the machine
    had; `every` is the whole search.

    A server that stays at a fifth of a core waits for something else; one that stays at a whole
    number is out of CPU.
    """
    used, busy = _server_cores(bad), _busy(bad, environment)
    if used is None or (busy is not None and busy.is_full):
        return False
    whole = round(used)
    most = max(trial.figures.get("server.cpu_cores", 0.0) for trial in every)
    off = min((1 - WHOLE_CORES) * whole, WHOLE_AT_MOST)
    return whole >= 1 and abs(used - whole) <= off and most <= PLATEAU * used


def _is_told_above(suite: Suite, bad: Sequence[TrialRecord], every: Sequence[TrialRecord]) -> bool:
    """Whether a trial at a higher load told the server's CPU."""
    over = suite.search.over if suite.search is not None else ""

    def load(trial: TrialRecord) -> int:
        found = trial.setting.get(over)
        return found if isinstance(found, int) else 0

    upper = max(load(trial) for trial in bad)
    return any(load(trial) > upper and "server.cpu_cores" in trial.figures for trial in every)


def crowded(bad: Sequence[TrialRecord], every: Sequence[TrialRecord], environment: EnvironmentRecord) -> bool:
    """Whether nearly all CPUs of the server's machine were busy at the upper bound, and a good part
    of them with the generator; not so where the server's threads had whole CPUs and can use no
    more.
    """
    used = _server_cores(bad)
    if used is not None and abs(used - round(used)) <= OWN_CORES and out_of_cpu(bad, every, environment):
        return False
    busy, generator = _busy(bad, environment), _cores(bad, "generator.cpu_cores")
    if busy is None or generator is None:
        return False
    return busy.cores >= CROWDED * busy.cpus and generator >= GENERATORS_PART * busy.cpus


def share_cpus(point: Point) -> bool:
    """Whether the server and all generators may run on the same CPUs; the hosts of an emulated
    network are one machine, and those of a cluster are not.
    """
    place = point.place
    together = point.network is not None or set(place.load) <= {place.server}
    server, load = (set(place.cpus.get(part, ())) for part in (SERVER, LOAD))
    return together and not (server and load and server.isdisjoint(load))


def _cores(bad: Sequence[TrialRecord], figure: str) -> float | None:
    """The median CPU of trials in which the server answered: also of those in which the generator
    was late, as the CPU that it wanted may have been taken.
    """
    found = [trial.figures[figure] for trial in _answered(bad) if figure in trial.figures]
    return statistics.median(found) if found else None


def _answered(bad: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [trial for trial in bad if trial.outcome in {"ok", "generator_limited"}]


def _server_cores(bad: Sequence[TrialRecord]) -> float | None:
    return _cores(bad, "server.cpu_cores")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Busy:
    """How much CPU was busy at the upper bound, and of how many CPUs."""

    cores: float
    cpus: int
    whose: str
    """`machine`, or `lab` of the CPUs that the lab may use."""

    @property
    def is_full(self) -> bool:
        """Whether none was left."""
        return self.cores >= FULL * self.cpus


def _busy(bad: Sequence[TrialRecord], environment: EnvironmentRecord) -> _Busy | None:
    """Of the server's machine. Where the lab may use only a part of its CPUs, as in a container, of
    these alone: what the parts of the trials used. Of emulated links, and of which host of a
    cluster used what, that is not known: all that was busy is taken for theirs where it is no more
    than these CPUs.
    """
    found = [trial.machine["busy_cores"] for trial in bad if "busy_cores" in trial.machine]
    # Earlier records do not tell how many CPUs the machine has.
    online = environment.cpus_online or environment.cpus
    if not found or online is None:
        return None
    busy, cpus = statistics.median(found), environment.cpus or online
    own = busy if any(trial.network or "clocks" in trial.hosts for trial in bad) else _own_cores(bad)
    if cpus < online and own is not None and own <= OWN_AT_MOST * cpus:
        return _Busy(cores=min(busy, own), cpus=cpus, whose="lab")
    return _Busy(cores=busy, cpus=online, whose="machine")


def _own_cores(bad: Sequence[TrialRecord]) -> float | None:
    """CPU of all parts of the trials; None of a server that already ran, whose own is not known."""
    server, generator = _server_cores(bad), _cores(bad, "generator.cpu_cores")
    if server is None or generator is None:
        return None
    # The generator's has that of each load that is measured.
    further = [
        sum(each.get("cpu_cores") or 0.0 for each in trial.roles if not each.get("measured"))
        for trial in _answered(bad)
    ]
    return server + generator + statistics.median(further)


def _memory(bad: Sequence[TrialRecord], environment: EnvironmentRecord) -> list[CauseRecord]:
    used = medians(bad, ("server.memory_bytes",)).get("server.memory_bytes")
    total = (environment.memory or "").removesuffix(" kB")
    if used is None or not total.isdigit() or used < FULL * int(total) * 1024:
        return []
    return [_cause("memory", f"memory: it holds {formatting.number(used, 'bytes')}, all that the machine has")]


def _cause(code: ShortOf, text: str) -> CauseRecord:
    return CauseRecord(code=code, text=text)
