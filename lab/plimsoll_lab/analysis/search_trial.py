"""What one trial says in a search: how much of its load was lost, what was missed, and what the
server was short of.

Pure: a record in, words and numbers out.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.backlog import GROWTH_TOLERATED, UNKNOWN, Growth, backlog_growth
from plimsoll_lab.stats.readings import Reading
from plimsoll_lab.stats.reasons import counted, percent
from plimsoll_lab.store.records import Counts, TrialRecord, counts
from plimsoll_lab.store.run_record import EnvironmentRecord
from plimsoll_lab.store.search_record import BreakRecord, CauseRecord, ShortOf
from plimsoll_lab.suite.conditions import EXACT, OPERATORS
from plimsoll_lab.suite.figures import figure_named
from plimsoll_lab.suite.placement import LOAD, SERVER
from plimsoll_lab.suite.spec import Limit, Point, Suite

LOST_TOLERATED = 0.01
"""Open loop: the part of the requests due that may be failed, late beyond their time-out, or never
sent."""
LEAST_LOST, MOST_LOST = 0.01, 0.9
"""A missed limit is at least so much off, and never all."""
NO_RESULT_LOST = 0.5
"""How far off a trial without a result was is unknown."""
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

OF_SERVER = ("server.", "host.", "packets", "tcp.", "capture.", "endpoints")
"""How figures begin that the laboratory reads of the server and its host, or the server prints."""
LONG_ENOUGH_S = 1.0
"""A window of this length has every figure that the laboratory reads: some are sampled."""
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


def loss_ratio(trial: TrialRecord, suite: Suite) -> float:
    """0 where every limit was met; else how far off it was, which only guides where the search
    looks next.
    """
    if trial.outcome != "ok":
        return NO_RESULT_LOST
    off = max((_off(trial, limit) for limit in suite.limits), default=0.0)
    if _truncated(trial):
        off = max(off, NO_RESULT_LOST)
    if over_a_rate(suite) and (unmet := _unmet(trial)) > LOST_TOLERATED:
        off = max(off, unmet)
    if over_a_rate(suite) and (growth := _grown(trial)) > GROWTH_TOLERATED:
        off = max(off, growth)
    return 0.0 if off == 0 else min(MOST_LOST, max(LEAST_LOST, off))


def reading_of(trial: TrialRecord, suite: Suite) -> Reading:
    """What a trial says to the search."""
    met = loss_ratio(trial, suite) == 0
    excess = None
    if trial.outcome == "ok" and not _truncated(trial):
        every = [each for limit in suite.limits if (each := _excess(trial, limit)) is not None]
        excess = max(every, default=None)
    # A generator that forks reports no seconds: of its backlog only the end is known.
    tells = "--timeseries" in trial.load.get("command", ())
    is_steady = _batch_growth(trial).refuted if tells else _growth(trial) is not None
    if met and over_a_rate(suite) and not is_steady:
        return Reading(met=None, excess=excess)
    if met and any(_is_unknown(trial, limit) for limit in suite.limits):
        return Reading(met=None, excess=excess)
    return Reading(met=met, excess=excess)


def _excess(trial: TrialRecord, limit: Limit) -> float | None:
    """The logarithm of the figure over its limit, above 0 where it is beyond; None where it has
    none, as that of `==` says nothing of the load.
    """
    value = trial.figures.get(limit.figure, 0.0)
    if value <= 0 or limit.value <= 0 or limit.operator in EXACT:
        return None
    ratio = math.log(value / limit.value)
    return -ratio if limit.operator.startswith(">") else ratio


def misses_a_limit(trial: TrialRecord, suite: Suite) -> bool:
    """Whether a trial against a null server has no figures, or figures that a stated limit refuses.

    A generator whose own lag is most of so short a response time meets the limit all the same.
    """
    return not trial.figures or any(_off(trial, limit) > 0 for limit in suite.limits)


def broken_by(trial: TrialRecord, suite: Suite) -> str:
    """What was missed, in words."""
    if trial.outcome != "ok":
        return f"{formatting.outcome(trial.outcome)}: {trial.reason}"
    if truncated := _truncated(trial):
        return truncated
    for limit in suite.limits:
        if _off(trial, limit):
            figure = figure_named(limit.figure)
            label, unit = (figure.label, figure.unit) if figure is not None else (limit.figure, "count")
            return f"{label} at {formatting.number(trial.figures.get(limit.figure), unit)}"
    is_served = over_a_rate(suite) and _unmet(trial) <= LOST_TOLERATED
    if is_served and (growth := _grown(trial)) > GROWTH_TOLERATED:
        return f"the backlog grew by {percent(growth)} of the offered rate"
    if loss_ratio(trial, suite) == 0:
        return _untold(trial, suite)
    return f"{percent(_unmet(trial))} of the requests due were failed, too late or never sent"


def _untold(trial: TrialRecord, suite: Suite) -> str:
    """Why a trial that met every limit, as far as it has figures, does not show that its load
    lasts.
    """
    limit = next((each for each in suite.limits if _is_unknown(trial, each)), None)
    if limit is not None and _was_missed(trial):
        return f"each count was over before the laboratory read the server, and '{limit.text}' is not known"
    if limit is not None and trial.cut is None:
        return f"'{limit.text}' is not known, as {limit.figure} could not be read"
    if limit is not None:
        return f"the emulator disturbed each trial, and '{limit.text}' is not known without that"
    return "no trial, however long, showed that the backlog does not grow"


def what_broke(
    suite: Suite, bad: Sequence[TrialRecord], every: Sequence[TrialRecord], environment: EnvironmentRecord
) -> BreakRecord:
    """What was missed at the upper bound, and what the server was short of there; `every` is the
    whole search.
    """
    kinds = Counter(_kind(trial, suite) for trial in bad)
    likeliest = kinds.most_common(1)[0][0]
    examples = [trial for trial in bad if _kind(trial, suite) == likeliest]
    # By the figure that was missed; where that is no figure, by how far off the trial was.
    examples.sort(key=lambda trial: trial.figures.get(likeliest, loss_ratio(trial, suite)))
    missed = broken_by(examples[len(examples) // 2], suite)
    causes = [
        *_descriptors(bad),
        *_listen(bad),
        *_errors(bad),
        *_cpu(suite, bad, every, environment),
        *_memory(bad, environment),
    ]
    return BreakRecord(missed=missed, causes=causes)


def medians(trials: Sequence[TrialRecord], names: Sequence[str]) -> dict[str, float]:
    """The median of each figure over the trials that are results, where there are any."""
    valid = [trial for trial in trials if trial.outcome == "ok"]
    return {
        name: statistics.median(values)
        for name in names
        if (values := [trial.figures[name] for trial in valid if name in trial.figures])
    }


def over_a_rate(suite: Suite) -> bool:
    """Whether the search varies a rate."""
    return suite.search is not None and suite.search.key == "rate"


def _kind(trial: TrialRecord, suite: Suite) -> str:
    """What two trials share that missed the same thing, whatever their numbers."""
    if trial.outcome != "ok":
        return trial.outcome
    if _truncated(trial):
        return "window_too_short"
    undecided = "untold" if loss_ratio(trial, suite) == 0 else "unmet"
    return next((limit.figure for limit in suite.limits if _off(trial, limit)), undecided)


def _truncated(trial: TrialRecord) -> str | None:
    """Why the response times of this trial are none: most requests outlasted the window."""
    return next((warning.message for warning in trial.warnings if warning.code == "window_too_short"), None)


def _off(trial: TrialRecord, limit: Limit) -> float:
    value = trial.figures.get(limit.figure)
    if value is None:
        return 0.0 if _is_unknown(trial, limit) else MOST_LOST
    if OPERATORS[limit.operator](value, limit.value):
        return 0.0
    high, low = max(value, limit.value), min(value, limit.value)
    return max(LEAST_LOST, 1 - low / high) if high > 0 else LEAST_LOST


def _is_unknown(trial: TrialRecord, limit: Limit) -> bool:
    """Whether the figure of a limit is unknown, as the emulator disturbed the trial, as a count was
    over before the lab came to read the server, or as it could not be read.
    """
    if limit.figure in trial.figures:
        return False
    return trial.cut is not None or _was_missed(trial) or limit.figure.startswith(OF_SERVER)


def never_told(trials: Sequence[TrialRecord], suite: Suite) -> Limit | None:
    """A limit on a figure of the server or its host which no trial tells, although some are results
    and long enough: none of a higher load will.
    """
    made = [
        trial
        for trial in trials
        if trial.outcome == "ok"
        and trial.cut is None
        and (trial.server.get("elsewhere") or trial.machine.get("window_s", 0.0) >= LONG_ENOUGH_S)
    ]
    return next(
        (
            limit
            for limit in suite.limits
            if made and limit.figure.startswith(OF_SERVER) and not any(limit.figure in each.figures for each in made)
        ),
        None,
    )


def _was_missed(trial: TrialRecord) -> bool:
    return any(warning.code == "window_missed" for warning in trial.warnings)


def _unmet(trial: TrialRecord) -> float:
    requests = _counts(trial, "requests")
    due = requests.get("scheduled", 0)
    return sum(requests.get(key, 0) for key in ("failed", "timed_out", "unsent")) / due if due else 0.0


def _batch_growth(trial: TrialRecord) -> Growth:
    figures = trial.figures
    if "backlog_growth.high" not in figures:
        return UNKNOWN
    return Growth(low=figures["backlog_growth.low"], high=figures["backlog_growth.high"])


def _grown(trial: TrialRecord) -> float:
    """By which part of the offered rate the backlog has grown at least."""
    return max(_batch_growth(trial).low, _growth(trial) or 0.0)


def _growth(trial: TrialRecord) -> float | None:
    """The same from the end of the window alone, for a window too short for batches; None where
    the trial lacks its rate and mean response time, as after a cut.
    """
    requests = _counts(trial, "requests")
    rate, mean_us = (trial.figures.get(name) for name in ("completed_rate", "response_time_us.mean"))
    if rate is None or mean_us is None:
        return None
    return backlog_growth(
        in_flight=requests.get("in_flight", 0),
        completed_rate=rate,
        mean_response_s=mean_us / 1e6,
        scheduled=requests.get("scheduled", 0),
    )


def _counts(trial: TrialRecord, key: str) -> Counts:
    return counts(trial.load.get("summary"), key)


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
        found.update(_counts(trial, "errors"))
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
