"""What documents claim, beside what a run found.

A claim is *confirmed* where the whole interval of what was measured lies in the claimed range,
*contradicted* where it lies wholly outside, and *cannot be told* where it does neither, or where
the network was not the one that was asked for. Where late generators hide a response time in more
trials of one point than of another, those trials count by what they took at most, if that decides.
Where one of its points has no result, or the run
changed what the point is, it is *not reachable here*, with what stopped it. A figure itself, such
as a time, belongs to its hardware: inside the range it is *other hardware*, never confirmed. Where
the server itself was the limit, what it held at once is the result. Two figures that are zero in
every block are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from plimsoll_lab.analysis import formatting, network
from plimsoll_lab.analysis.as_stated import changes_at
from plimsoll_lab.analysis.family import (
    NEVER_ESTABLISHED,
    OF_CONNECTIONS,
    SERVERS_OWN,
    at_most,
    is_told_less,
    may_tell,
    told_parts,
    value_of,
)
from plimsoll_lab.analysis.points import OF_FAILURES, STOPPED
from plimsoll_lab.stats.best import ends
from plimsoll_lab.stats.reasons import Toward, percent, significant
from plimsoll_lab.stats.summary import Interval, summarise
from plimsoll_lab.store.records import Outcome, TrialRecord, untold_figures
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import ClaimOutcome, ClaimRecord, PointSummary, ReferenceRecord
from plimsoll_lab.suite.claims import settings_of
from plimsoll_lab.suite.documents import Claim
from plimsoll_lab.suite.figures import is_response_time
from plimsoll_lab.suite.settings import Settings

CONFIRMED: ClaimOutcome = "confirmed"
CONTRADICTED: ClaimOutcome = "contradicted"
UNTOLD: ClaimOutcome = "cannot be told"
UNREACHED: ClaimOutcome = "not reachable here"
ELSEWHERE: ClaimOutcome = "other hardware"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Told:
    """What one trial tells of a figure."""

    found: float
    """The number of its record."""
    low: float
    """The least that it may be: `found`, but where moments were cut out of the trial."""
    high: float
    """The most; infinite where the generator was the limit."""


Series = Mapping[int, _Told]
"""A figure by block."""

ONCE = "one block has no interval"
HELD = "server.peak_connections"
"""The one figure that a server's own limit decides, so that it counts where the limit was met."""
NO_FIGURE = "no trial of this point has the figure"
LATE = "the generator's own lateness is half of the figure or more in each trial of this point"
CUT_AWAY = "the links disturbed each trial of this point, and the figure is not known without that"
ALL_ZERO = "every value is zero"
BY_WHAT_IT_TOOK = "where trials with a late generator count by what they took at most"
BOUNDED = "the generator was the limit in some blocks, of which only a lower bound is known"


OPEN = "where moments at which others had the CPUs leave some blocks no other bound"


def judge_claims(run: RunRecord, points: Sequence[PointSummary], trials: Sequence[TrialRecord]) -> list[ClaimRecord]:
    """Every claim of a run's suite, with its outcome."""
    changes = changes_at(run)
    return [_judge(run, claim, points, trials, changes) for claim in run.claims]


def compare_references(
    run: RunRecord, points: Sequence[PointSummary], trials: Sequence[TrialRecord]
) -> list[ReferenceRecord]:
    """Each figure of a document beside ours at that point, and ours as a multiple of theirs."""
    changes = changes_at(run)
    found = []
    for reference in run.references:
        here = _matching(points, reference.at)
        why = changes(reference.at) or _unreached(here, reference.figure)
        values = {} if why else _series(here[0], trials, reference.figure)
        if any(math.isinf(each.high) for each in values.values()):
            values, why = {}, BOUNDED
        ours = summarise([each.found for each in values.values()]).mean if values else None
        ratio = ours / reference.value if ours is not None and reference.value else None
        if values:
            reason = network.paths_off(run, here[0].number, trials) or _unlike_told(reference.figure, here, trials)
        else:
            reason = why or _without_figure(here[0], trials, reference.figure)
        found.append(ReferenceRecord(**asdict(reference), ours=ours, ratio=ratio, reason=reason))
    return found


def decide_claim(
    interval: Interval | None, least: float, most: float, *, portable: bool, signed: bool = False
) -> ClaimOutcome:
    """The outcome of a claim whose points all have results; `signed` of a difference."""
    if interval is None:
        return UNTOLD
    # Ranges begin at zero. Student's interval may reach below, and a growth may lie there.
    floor = -math.inf if signed else 0.0
    low, high = (max(floor, end) for end in interval)
    if high < least or low > most:
        return CONTRADICTED
    if low < least or high > most:
        return UNTOLD
    return CONFIRMED if portable else ELSEWHERE


def _judge(
    run: RunRecord,
    claim: Claim,
    points: Sequence[PointSummary],
    trials: Sequence[TrialRecord],
    changes: Callable[[Settings], str | None],
) -> ClaimRecord:
    series = []
    paths_off = None
    for place in settings_of(claim):
        here = _matching(points, place)
        why = changes(place) or _unreached(here, claim.figure)
        values = {} if why else _series(here[0], trials, claim.figure)
        if not values:
            return _answer(claim, UNREACHED, None, None, why or _without_figure(here[0], trials, claim.figure))
        paths_off = paths_off or network.paths_off(run, here[0].number, trials)
        series.append(values)
    here = [_matching(points, place)[0] for place in settings_of(claim)]
    unlike = _unlike_told(claim.figure, here, trials)
    least = -math.inf if claim.least is None else claim.least
    most = math.inf if claim.most is None else claim.most
    if unlike is not None and paths_off is None:
        bounds = _bounds_of_all(claim, here, series, trials)
        by_bounds = decide_claim(bounds, least, most, portable=claim.portable, signed=claim.difference)
        if bounds is not None and by_bounds != UNTOLD:
            return _answer(claim, by_bounds, None, None, f"{_in_words(claim, bounds, run)}, {BY_WHAT_IT_TOOK}")
    obstacle = paths_off or unlike
    value, interval, none = _value(series, difference=claim.difference)
    decided = decide_claim(interval, least, most, portable=claim.portable, signed=claim.difference)
    if none == ALL_ZERO and claim.against is None:
        # Neither is more than the other.
        decided = decide_claim((1.0, 1.0), least, most, portable=claim.portable)
    outcome = UNTOLD if obstacle else decided
    reasons = {
        CONFIRMED: "the whole interval lies in the claimed range",
        CONTRADICTED: "the whole interval lies outside the claimed range",
        ELSEWHERE: "it lies in the claimed range, and such a figure belongs to its hardware",
        UNTOLD: "the interval reaches beyond the claimed range",
    }
    told = len(set.intersection(*(set(each) for each in series)))
    some = (
        f"; {told} of {run.settings.repeat} blocks tell it" if value is not None and told < run.settings.repeat else ""
    )
    # An interval that is open to one side decides, and is none to be shown.
    shown = interval if interval is not None and all(map(math.isfinite, interval)) else None
    if interval is not None and shown is None and obstacle is None:
        return _answer(claim, outcome, value, None, f"{_in_words(claim, interval, run)}, {OPEN}{some}")
    return _answer(claim, outcome, value, shown, (obstacle or none or reasons[outcome]) + some)


def _unlike_told(figure: str, points: Sequence[PointSummary], trials: Sequence[TrialRecord]) -> str | None:
    """Why points, each with trials that tell the figure, may not be held against each other, or one
    against a range: more trials of one leave a response time untold, and may be its slowest.
    """
    if not is_response_time(figure):
        return None
    by_point = {point.number: [trial for trial in trials if trial.point == point.number] for point in points}
    parts = told_parts(figure, points, by_point).values()
    if len(points) == 1 and is_told_less(min(parts), 1.0):
        return f"only {percent(min(parts), 0)} of the point's trials tell it: the rest may be the slowest"
    if not is_told_less(min(parts), max(parts)):
        return None
    least, most = percent(min(parts), 0), percent(max(parts), 0)
    return f"{least} of one point's trials tell it, {most} of another's: the rest may be the slowest"


def _bounds_of_all(
    claim: Claim, points: Sequence[PointSummary], series: Sequence[Series], trials: Sequence[TrialRecord]
) -> Interval | None:
    """The interval where the trials that do not tell the figure count too, by what they took at
    most; an end that nothing bounds is infinite, or 0 of a ratio. None where some trial is not
    bounded either.
    """
    whole: list[Series] = []
    for point, told in zip(points, series, strict=True):
        own = [trial for trial in trials if trial.point == point.number]
        late = {
            block: _Told(found=high, low=low, high=high) for block, (low, high) in at_most(claim.figure, own).items()
        }
        if len(told) + len(late) < len(may_tell(own)):
            return None
        whole.append({**told, **late})
    common = sorted(set.intersection(*(set(each) for each in whole)))
    rows = [[each[block] for each in whole] for block in common]
    is_ratio = len(whole) > 1 and not claim.difference
    if not rows or any(math.isinf(each.high) or (is_ratio and each.high <= 0) for row in rows for each in row):
        return None
    blocks = [_difference([_log(each) for each in row] if is_ratio else row) for row in rows]
    low, high = (_end(ends, side) for side, ends in enumerate(list(zip(*blocks, strict=True))[1:]))
    return (math.exp(low), math.exp(high)) if is_ratio else (low, high)


def _end(values: Sequence[float], side: int) -> float:
    """One end of the interval of a mean; infinite where a block does not bound it on that side."""
    interval = summarise(list(values)).mean_ci95 if all(map(math.isfinite, values)) else None
    return interval[side] if interval is not None else (-math.inf, math.inf)[side]


def _in_words(claim: Claim, bounds: Interval, run: RunRecord) -> str:
    """`at least 2.10 times`, `at most 83.0 us`: an interval of which one end may say nothing."""
    is_ratio, unit = claim.over is not None and not claim.difference, run.figure(claim.figure).unit

    def told(end: float, toward: Toward) -> str:
        return f"{significant(end, toward)} times" if is_ratio else formatting.number(end, unit, toward)

    low, high = bounds
    if math.isinf(high):
        return f"at least {told(low, 'down')}"
    return f"between {told(low, 'down')} and {told(high, 'up')}" if low > 0 else f"at most {told(high, 'up')}"


def _value(series: Sequence[Series], *, difference: bool) -> tuple[float | None, Interval | None, str | None]:
    """The figure, or the ratio or ratio of ratios, or the same of differences, with its interval of
    95 % (Student's t; of ratios, over logarithms), and why it has no interval, where it has none.

    Blocks pair what is compared, so what disturbs a whole block cancels out. No block is left out
    for a value of zero, or for one that is known between bounds alone: the others would not stand
    for it.
    """
    common = sorted(set.intersection(*(set(each) for each in series)))
    if not common:
        return None, None, "no block has a result of every point"
    told = [[each[block] for each in series] for block in common]
    if any(math.isinf(each.high) for row in told for each in row):
        return None, None, BOUNDED
    if len(series) == 1:
        return _mean([(row[0].found, row[0].low, row[0].high) for row in told])
    if difference:
        return _mean([_difference(row) for row in told])
    if any(each.found <= 0 or each.high <= 0 for row in told for each in row):
        is_all = len(common) > 1 and all(each.high == 0 for row in told for each in row)
        return None, None, ALL_ZERO if is_all else "a value of zero has no ratio to another"
    value, interval, none = _mean([_difference([_log(each) for each in row]) for row in told])
    return math.exp(value), interval and (math.exp(interval[0]), math.exp(interval[1])), none


def _log(told: _Told) -> _Told:
    """A figure's logarithm: of these the difference is that of the ratio."""
    low = math.log(told.low) if told.low > 0 else -math.inf
    return _Told(found=math.log(told.found), low=low, high=math.log(told.high))


def _difference(row: Sequence[_Told]) -> tuple[float, float, float]:
    """The difference, or the difference of differences, of one block, with the least and the most
    that it may be.
    """
    signs = (1, -1, -1, 1)
    found = low = high = 0.0
    for sign, each in zip(signs, row, strict=False):
        found += sign * each.found
        low += sign * (each.low if sign > 0 else each.high)
        high += sign * (each.high if sign > 0 else each.low)
    return found, low, high


def _mean(blocks: Sequence[tuple[float, float, float]]) -> tuple[float, Interval | None, str | None]:
    """The mean over blocks, and an interval that holds those of the least and of the most that each
    may be.
    """
    found, lows, highs = zip(*blocks, strict=True)
    middle = summarise(list(found))
    return (middle.mean, None, ONCE) if len(blocks) == 1 else (middle.mean, (_end(lows, 0), _end(highs, 1)), None)


def _matching(points: Sequence[PointSummary], place: Settings) -> list[PointSummary]:
    return [point for point in points if all(point.point.get(path) == value for path, value in place.items())]


def _unreached(here: Sequence[PointSummary], figure: str) -> str | None:
    if not here:
        return "no such point was measured in this run"
    if len(here) > 1:
        return f"{len(here)} points of this run agree with it; the claim has to name one"
    if here[0].outcome not in _decisive(figure):
        return f"{formatting.outcome(here[0].outcome)}{formatting.in_part(here[0])}: {here[0].reason}"
    return None


def _decisive(figure: str) -> frozenset[Outcome | None]:
    """The outcomes of points that tell a figure."""
    also: set[Outcome] = {"hard_limit"} if figure == HELD else set()
    if figure in {*SERVERS_OWN, *OF_CONNECTIONS, NEVER_ESTABLISHED}:
        also.add("generator_limited")
    return frozenset({"ok", *also})


def _without_figure(point: PointSummary, trials: Sequence[TrialRecord], figure: str) -> str:
    """Why no trial of a point with a result tells a figure."""
    valid = [trial for trial in trials if trial.point == point.number and trial.outcome == "ok"]
    if valid and all(trial.cut is not None for trial in valid):
        return CUT_AWAY
    late = valid and all(figure in untold_figures(trial) for trial in valid)
    return LATE if late else NO_FIGURE


def _series(point: PointSummary, trials: Sequence[TrialRecord], figure: str) -> Series:
    """The figure by block, of the trials that tell it."""
    told = {trial.block: _told(trial, figure) for trial in trials if trial.point == point.number}
    return {block: each for block, each in told.items() if each is not None}


def _told(trial: TrialRecord, figure: str) -> _Told | None:
    # A server that failed says how many requests did.
    at_limit = trial.outcome == "hard_limit" and figure == HELD
    at_limit = at_limit or (trial.outcome in STOPPED and figure in OF_FAILURES)
    found, value = trial.figures.get(figure), value_of(trial, figure)
    value = found if at_limit else value
    if found is None or value is None:
        return None
    low, high = ends(value)
    return _Told(found=found, low=low, high=high)


def _answer(
    claim: Claim, outcome: ClaimOutcome, value: float | None, interval: Interval | None, reason: str
) -> ClaimRecord:
    return ClaimRecord(
        name=claim.name,
        source=claim.source,
        figure=claim.figure,
        at=claim.at,
        over=claim.over,
        against=claim.against,
        difference=claim.difference,
        expect=claim.expect,
        free=claim.free,
        outcome=outcome,
        value=value,
        interval=interval,
        reason=reason,
    )
