"""A point over its trials: its outcome, its figures, its limits."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from plimsoll_lab.analysis.family import NEVER_ESTABLISHED, fell_behind, value_of
from plimsoll_lab.stats.best import Value, ends
from plimsoll_lab.stats.reasons import usual_reason
from plimsoll_lab.stats.summary import Interval, median_bounds, median_interval, summarise
from plimsoll_lab.store.records import Outcome, TrialRecord
from plimsoll_lab.store.run_record import PointRecord
from plimsoll_lab.store.summary_record import FigureSummary, LimitSummary, PointSummary
from plimsoll_lab.suite.conditions import EXACT, OPERATORS
from plimsoll_lab.suite.spec import Limit

SPOILT = ("invalid", "generator_limited")
"""Outcomes of a trial whose figures a network stated in one line shows all the same."""
STOPPED: tuple[Outcome, ...] = ("hard_limit", "failed")
"""Outcomes of a trial in which the server reached a limit of its own, or anything failed."""
TELLS = ("ok", "hard_limit")
"""Outcomes of a point whose limits are judged."""
OF_FAILURES = ("failed_ratio", "requests.failed", "requests.timed_out", NEVER_ESTABLISHED)
"""Figures that a trial tells although it failed."""


def summarise_point(
    point: PointRecord,
    trials: Sequence[TrialRecord],
    limits: Sequence[Limit],
    *,
    paths_off: bool,
    is_searched: bool = False,
) -> PointSummary:
    """A point over its trials; `paths_off` where a path that it uses is not what was asked for, and
    `is_searched` where it is a load that a search tried.
    """
    valid = [trial for trial in trials if trial.outcome == "ok"]
    outcome, reason = point_outcome(trials)
    shown = valid
    one_line = bool((point.network or {}).get("one_line"))
    # A search tries loads that are too high by intent, and needs no figures of those.
    spoilt = one_line and outcome in SPOILT and not is_searched
    if spoilt and not valid:
        shown = [trial for trial in trials if trial.outcome in SPOILT]
    names = dict.fromkeys(name for trial in shown for name in trial.figures)
    figures = {}
    for name in names:
        found = summarise([trial.figures[name] for trial in shown if name in trial.figures])
        cv = found.stdev / abs(found.mean) if found.stdev is not None and found.mean else None
        figures[name] = FigureSummary(**asdict(found), cv=cv)
    judged = [limit for limit in limits if not _cut_away(limit, valid)]
    return PointSummary(
        point=point.setting,
        number=point.number,
        n=len(trials),
        valid_n=len(valid),
        outcome=outcome,
        outcomes=Counter(trial.outcome for trial in trials),
        reason=reason,
        figures=figures,
        doubtful=bool(figures) and (spoilt or paths_off or len(judged) < len(limits)),
        # The few results of a point that has none decide nothing, nor does another network. A load
        # that the server refuses is one at which it keeps no limit that can be shown.
        limits=[_limit(limit, trials, point) for limit in judged] if outcome in TELLS and not paths_off else [],
    )


def point_outcome(trials: Sequence[TrialRecord]) -> tuple[Outcome | None, str | None]:
    """What most trials say; where as many have a result as have none, the results."""
    if not trials:
        return None, "not measured"
    if 2 * sum(trial.outcome == "ok" for trial in trials) >= len(trials):
        return "ok", None
    counts = Counter(trial.outcome for trial in trials if trial.outcome != "ok")
    outcome = max(counts, key=lambda each: counts[each])
    return outcome, usual_reason([trial.reason for trial in trials if trial.outcome == outcome])


def _cut_away(limit: Limit, valid: Sequence[TrialRecord]) -> bool:
    """Whether a limit cannot be judged, as its figure lies in time that the emulator disturbed."""
    known = any(limit.figure in trial.figures for trial in valid)
    return bool(valid) and not known and all(trial.cut is not None for trial in valid)


def _limit(limit: Limit, trials: Sequence[TrialRecord], point: PointRecord) -> LimitSummary:
    """What the trials of a point say of a limit: those that failed, or reached a limit of the
    server's, tell how many requests failed and nothing else, and may be those that miss it. Those
    of which the generator was the limit tell nothing, and are just that where a figure that is half
    its own lateness misses the limit.
    """
    judged = [trial for trial in trials if trial.outcome in {"ok", *STOPPED} or fell_behind(trial)]
    told = [(trial, each) for trial in judged if (each := _told(trial, limit.figure)) is not None]
    met, (low, high) = judge_limit(limit, [ends(each) for _, each in told], untold=len(judged) - len(told))
    return LimitSummary(
        point=point.setting,
        limit=limit.text,
        figure=limit.figure,
        median=statistics.median(trial.figures[limit.figure] for trial, _ in told) if told else None,
        median_ci95=(low if math.isfinite(low) else None, high if math.isfinite(high) else None),
        met=met,
    )


def _told(trial: TrialRecord, figure: str) -> Value | None:
    """What a trial says of a figure with a limit. One that failed, or reached a limit of the
    server's, tells how many requests failed and how many connections never came up; of the failures
    of a generator at its limit, nobody knows whose they are.
    """
    found = trial.figures.get(figure)
    if figure not in OF_FAILURES or found is None:
        return value_of(trial, figure)
    return (0.0, found) if fell_behind(trial) and found else found


def judge_limit(limit: Limit, values: Sequence[Interval], *, untold: int = 0) -> tuple[bool | None, Interval]:
    """Whether a limit is met, None where it cannot be told, and the interval that says so; `values`
    are what each trial's figure lies between, and `untold` is how many trials do not tell it.

    The median meets a limit where its whole interval of 95 % does, so that luck decides in at most
    2.5 % of limits either way. Too few trials for that interval decide where they all agree. Every
    trial has to meet `==` and `!=`, as a median passes over the one that does not.
    """

    def meets(value: float) -> bool:
        return OPERATORS[limit.operator](value, limit.value)

    lows, highs = [low for low, _ in values], [high for _, high in values]
    if limit.operator in EXACT:
        # Nobody knows whether a value between two bounds is the one that is named.
        every = [None if low <= limit.value <= high and low < high else meets(low) for low, high in values]
        unknown = untold or not values or None in every
        return False if False in every else None if unknown else True, (
            min(lows, default=-math.inf),
            max(highs, default=math.inf),
        )
    interval = (median_bounds(lows, untold)[0], median_bounds(highs, untold)[1])
    few = median_interval(lows) is None and not untold
    ends = {meets(each) for each in ([*lows, *highs] if few else interval)}
    return (ends.pop() if len(ends) == 1 else None), interval
