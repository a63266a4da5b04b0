"""What one trial says in a search: how much of its load was lost, and what was missed. What the
server was short of is `short_of.py`'s.

Pure: a record in, words and numbers out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.short_of import causes_of
from plimsoll_lab.stats.backlog import GROWTH_TOLERATED, UNKNOWN, Growth, backlog_growth
from plimsoll_lab.stats.readings import Reading
from plimsoll_lab.stats.reasons import percent
from plimsoll_lab.store.records import Counts, TrialRecord, counts
from plimsoll_lab.store.run_record import EnvironmentRecord
from plimsoll_lab.store.search_record import BreakRecord
from plimsoll_lab.suite.conditions import EXACT, OPERATORS
from plimsoll_lab.suite.figures import figure_named
from plimsoll_lab.suite.spec import Limit, Suite

LOST_TOLERATED = 0.01
"""Open loop: the part of the requests due that may be failed, late beyond their time-out, or never
sent."""
LEAST_LOST, MOST_LOST = 0.01, 0.9
"""A missed limit is at least so much off, and never all."""
NO_RESULT_LOST = 0.5
"""How far off a trial without a result was is unknown."""
OF_SERVER = ("server.", "host.", "packets", "tcp.", "capture.", "endpoints")
"""How figures begin that the laboratory reads of the server and its host, or the server prints."""
LONG_ENOUGH_S = 1.0
"""A window of this length has every figure that the laboratory reads: some are sampled."""


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
    suite: Suite,
    bad: Sequence[TrialRecord],
    every: Sequence[TrialRecord],
    environment: EnvironmentRecord,
    held_up: str | None = None,
) -> BreakRecord:
    """What was missed at the upper bound, and what the server was short of there; `every` is the
    whole search.

    `held_up` says what a late generator means where the server was the limit all the same. What its
    other trials missed goes before it then.
    """
    spoilt = {"generator_limited", "invalid"}
    told = bad if held_up is None else [trial for trial in bad if trial.outcome not in spoilt]
    kinds = Counter(_kind(trial, suite) for trial in told)
    if held_up is not None and not kinds:
        return BreakRecord(missed=held_up, causes=causes_of(suite, bad, every, environment))
    likeliest = kinds.most_common(1)[0][0]
    examples = [trial for trial in told if _kind(trial, suite) == likeliest]
    # By the figure that was missed; where that is no figure, by how far off the trial was.
    examples.sort(key=lambda trial: trial.figures.get(likeliest, loss_ratio(trial, suite)))
    missed = broken_by(examples[len(examples) // 2], suite)
    return BreakRecord(missed=missed, causes=causes_of(suite, bad, every, environment))


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
