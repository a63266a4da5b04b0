"""Stored runs of B against stored runs of A: the environments first, then every figure at every
point all measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.environments import differences_between
from plimsoll_lab.analysis.family import LOWER_BOUND, ROUNDING, cut_share, is_told_less, may_tell, unlike_shares
from plimsoll_lab.analysis.points import STOPPED
from plimsoll_lab.analysis.repeats import REMEDY, as_first_measured
from plimsoll_lab.analysis.severity import graded
from plimsoll_lab.analysis.summary import points_of, summarise_run
from plimsoll_lab.stats.best import Value
from plimsoll_lab.stats.reasons import percent
from plimsoll_lab.stats.results import Difference
from plimsoll_lab.stats.two_runs import LEAST_RUNS, Pair, compare_sides
from plimsoll_lab.store.comparison_summary import ComparisonSummary, LostPoint
from plimsoll_lab.store.folder import RunFolder, refuse_twice
from plimsoll_lab.store.records import Outcome, ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import PointRecord, RunRecord
from plimsoll_lab.store.summary_record import CapacityRecord, PointSummary, RunSummary
from plimsoll_lab.suite.figures import CAPACITY, is_response_time
from plimsoll_lab.suite.placement import LOCAL
from plimsoll_lab.suite.settings import Settings

DIGEST = 12
"""Digits of a binary's digest that tell two builds apart."""
DIGESTS = {"plimsoll_sha256": "binary", "lab_sha256": "its files"}
"""What each digest of a run's versions is of."""
CARRIED: frozenset[Outcome | None] = frozenset({"ok"})
LOST: frozenset[Outcome | None] = frozenset(STOPPED)
STOPPED_MORE = 0.1
"""A side of which more trials failed or reached a limit than of the other, by this part of them, is
not judged by the rest of them."""


def compare_runs(a: Sequence[RunFolder], b: Sequence[RunFolder]) -> ComparisonSummary:
    """Everything there is to say about the runs of B beside those of A.

    Raises `LabError` where a run is named twice: it would be taken for two.
    """
    refuse_twice([*a, *b])
    sides = [
        [_Run(folder.read_run(), summarise_run(folder), _answers(folder.read_trials())) for folder in side]
        for side in (a, b)
    ]
    every = [each for side in sides for each in side]
    folders = [*zip(sides, (a, b), strict=True)]
    reasons = differences_between(
        [[(folder.path.name, run.record) for run, folder in zip(side, own, strict=True)] for side, own in folders]
    )
    obstacle = reasons[0] if reasons else None
    pairs, lost, warnings = _pairs(sides, obstacle)
    family = sides[1][0].record.family
    if not pairs and not lost:
        none = "the runs have no point in common" if family.figures else "the first run of B compares no figure"
        reasons = [*reasons, none]
    verdicts = compare_sides(pairs, margin=family.margin)
    firsts = [[_first_measured(*each) for each in zip(side, own, strict=True)] for side, own in folders]
    if firsts != sides:
        warnings += _resting_on_repeats(verdicts, compare_sides(_pairs(firsts, obstacle)[0], margin=family.margin))
    versions = dict.fromkeys(_versions(each.record) for each in every)
    if len(versions) > 1:
        message = f"the runs were made with {'; '.join(versions)}"
        remedy = "if the generator changed with it, measure A again with B's generator"
        warnings.append(ResultWarning(code="versions_differ", message=message, remedy=remedy))
    warnings += _other_programs(sides)
    if any(each.record.imported is not None for each in every):
        warnings.append(_IMPORTED)
    warnings += _unsound(sides)
    worse = [each for each in verdicts if each.call == "better" and each.winner == "A"]
    enough = min(len(a), len(b)) >= LEAST_RUNS
    return ComparisonSummary(
        baseline=str(a[0].path),
        baselines=[str(each.path) for each in a],
        run=str(b[0].path),
        runs=[str(each.path) for each in b],
        report=str(b[0].report),
        comparable=not reasons,
        not_comparable=reasons,
        valid=not reasons
        and enough
        and bool(verdicts)
        and not any(each.call == "invalid" or min(each.n) < LEAST_RUNS for each in verdicts)
        and not any(
            each.code in {"unmatched_points", "incomplete", "doubtful_figures", "stopped"} for each in warnings
        ),
        worse=not reasons and enough and bool(worse or lost),
        lost=[] if reasons else lost,
        points=sides[1][0].summary.points,
        verdicts=verdicts,
        warnings=graded(warnings),
    )


_IMPORTED = ResultWarning(
    code="imported",
    message="imported files tell neither the machine nor whether the generator or the machine was the limit",
    remedy="make sure that both sides ran on one machine; plimsoll lab gate checks it",
)


@dataclass(frozen=True, slots=True)
class _Answers:
    """What the trials of a point have beside figures."""

    count: int
    """Trials in which the server answered."""
    share: float | None
    """The part of the valid ones' time that was cut out; None without any."""


@dataclass(frozen=True, slots=True)
class _Run:
    """A run's record and its summary."""

    record: RunRecord
    summary: RunSummary
    answers: Mapping[int, _Answers]
    """By the number of a point."""


def _other_programs(sides: Sequence[Sequence[_Run]]) -> list[ResultWarning]:
    """Which files of servers and other commands are not the same in every run; a run of an earlier
    version does not tell.
    """
    known = [each.record.programs for side in sides for each in side if each.record.programs is not None]
    if not known:
        return []
    shared = set.intersection(*(set(each.values()) for each in known))

    def told(side: Sequence[_Run]) -> str:
        files = [item for each in side for item in (each.record.programs or {}).items() if item[1] not in shared]
        return ", ".join(dict.fromkeys(f"{path} ({digest[:DIGEST]})" for path, digest in files)) or "none of these"

    a, b = map(told, sides)
    if a == b == "none of these":
        return []
    remedy = "none, if this difference is the question; otherwise measure A again with B's files"
    return [ResultWarning(code="programs_differ", message=f"A used {a}; B used {b}", remedy=remedy)]


def _answers(trials: Sequence[TrialRecord]) -> dict[int, _Answers]:
    by_point: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        by_point.setdefault(trial.point, []).append(trial)
    return {number: _Answers(len(may_tell(made)), cut_share(made)) for number, made in by_point.items()}


def _unsound(sides: Sequence[Sequence[_Run]]) -> list[ResultWarning]:
    """Runs that are no more than a part, and figures that their own run calls doubtful."""
    every = [each for side in sides for each in side]
    warnings = []
    parts = [each.summary for each in every if each.summary.status != "complete"]
    if parts:
        told = ", ".join(f"{each.run} has {_how_far(each)}" for each in parts)
        remedy = f"plimsoll lab resume {parts[0].run} measures the rest"
        warnings.append(ResultWarning(code="incomplete", message=f"not every run is complete: {told}", remedy=remedy))
    failing = [each.summary.run for side in sides for each in side if _fails_beside_others(each, side)]
    if failing:
        told = ", ".join(failing)
        message = f"trials of {told} failed or reached a limit where others did not, and figures are of the others"
        remedy = "the pages of these runs say which; a server that fails now and then is no better for its other trials"
        warnings.append(ResultWarning(code="stopped", message=message, remedy=remedy))
    doubtful = [each.summary.run for each in every if any(point.doubtful for point in each.summary.points)]
    if doubtful:
        message = f"figures of {', '.join(doubtful)} are doubtful, as the pages of these runs say"
        remedy = "measure these runs again; a difference may be that of their networks"
        warnings.append(ResultWarning(code="doubtful_figures", message=message, remedy=remedy))
    return warnings


def _fails_beside_others(run: _Run, side: Sequence[_Run]) -> bool:
    """Whether trials failed where others of this run did not; of a search, at loads that it calls
    carried. And whether it has no result where other runs of its side have one.
    """
    summary = run.summary
    below = bool(summary.capacities) and any(each.code == "stopped" for each in summary.warnings)
    if below or any(stop.outcome == "failed" and stop.trials is not None for stop in summary.stops):
        return True
    carried = {place for each in side for place, found in _by_place(each).items() if found.outcome in CARRIED}
    return any(found.outcome in LOST and place in carried for place, found in _by_place(run).items())


def _how_far(run: RunSummary) -> str:
    """How much of a run there is; nobody knows beforehand how many trials a search takes."""
    if run.capacities:
        ended, searches = sum(each.ended for each in run.capacities), sum(each.searches for each in run.capacities)
        return f"{ended} of {searches} searches"
    return f"{run.trials.measured} of {run.trials.planned} trials"


def _first_measured(run: _Run, folder: RunFolder) -> _Run:
    """A run as it would be, had no trial been made again."""
    trials = folder.read_trials()
    if not any(trial.attempts for trial in trials):
        return run
    first = [as_first_measured(trial) for trial in trials]
    points = points_of(run.record, first)
    return _Run(run.record, run.summary.model_copy(update={"points": points}), _answers(first))


def _resting_on_repeats(verdicts: Sequence[Difference], without: Sequence[Difference]) -> list[ResultWarning]:
    """What the first measurements alone would say, where that is something else."""

    def said(verdict: Difference) -> str:
        return f"{verdict.call} ({verdict.winner or 'nobody'} ahead)"

    differing = [
        f"{one.figure} at {formatting.setting(one.at)}: {said(one)} with the trials that were made again, "
        f"{said(other)} without"
        for one, other in zip(verdicts, without, strict=True)
        if said(one) != said(other) and "better" in {one.call, other.call}
    ]
    if not differing:
        return []
    return [ResultWarning(code="repeats_decide", message="; ".join(differing), remedy=REMEDY)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PointResult:
    """What one run has at a point: figures of trials, or a capacity."""

    point: Settings
    outcome: Outcome | None
    reason: str | None
    medians: Mapping[str, Value]
    told: Mapping[str, float] = field(default_factory=dict)
    """The part of the point's trials that tells each figure, of those that may."""
    share: float | None = None
    """The part of their time that was cut out."""
    stopped: float = 0.0
    """The part of its trials that failed or reached a limit."""
    limited: float = 0.0
    """The part of its trials of which the generator was the limit."""
    is_bound: bool = False
    """Whether it is a capacity that is at least so much, as its search never saw too much."""


def _versions(run: RunRecord) -> str:
    """`plimsoll 0.1.0 (451d563881), lab 0.1.0`; of a digest the beginning."""
    told = (
        f"{DIGESTS[name]} {version[:DIGEST]}"
        if name in DIGESTS
        else version
        if name in version
        else f"{name} {version}"
        for name, version in run.versions.items()
    )
    return ", ".join(told)


def _pairs(
    sides: Sequence[Sequence[_Run]], obstacle: str | None
) -> tuple[list[Pair], list[LostPoint], list[ResultWarning]]:
    """Every figure of the family at every point that all runs have; points that B lost; and
    warnings.
    """
    places = [[_by_place(run) for run in side] for side in sides]
    every = [each for side in places for each in side]
    shared = [place for place in every[0] if all(place in each for each in every)]
    record = sides[1][0].record
    pairs, lost = [], []
    for place in shared:
        seen = [[each[place] for each in side] for side in places]
        at = seen[1][0].point
        if _mostly(seen[0], CARRIED) and _mostly(seen[1], LOST):
            gone = next(each for each in seen[1] if each.outcome in LOST)
            lost.append(LostPoint(point=at, outcome=gone.outcome, reason=gone.reason))
        for figure in record.family.figures:
            a, b = ([each.medians[figure] for each in side if figure in each.medians] for side in seen)
            better = record.figure(figure).better
            why = (
                obstacle
                or _unlike_stops(seen)
                or _unlike_told(figure, seen)
                or _unlike_cut(figure, seen)
                or _are_bounds(figure, seen)
                or _without_end(seen)
            )
            pairs.append(Pair(figure=figure, better=better, at={**at}, a=a, b=b, obstacle=why))
    alone = {place for each in every for place in each} - set(shared)
    warnings = []
    if alone:
        message = (
            "points that are not in every run, or have another load, network, limit, number of generators or CPUs, "
            f"were left out: {len(alone)}"
        )
        warnings.append(
            ResultWarning(code="unmatched_points", message=message, remedy="measure the same suite each time")
        )
    return pairs, lost, warnings


def _unlike_stops(seen: Sequence[Sequence[_PointResult]]) -> str | None:
    """Why no figure may be compared: more trials of one side failed or reached a limit."""
    if not all(any(each.outcome in CARRIED for each in side) for side in seen):
        return None
    parts = [[each.stopped for each in side] for side in seen]
    a, b = (statistics.fmean(each) for each in parts)
    if abs(a - b) <= STOPPED_MORE + ROUNDING:
        return None
    return (
        f"{percent(a, 0)} of A's trials and {percent(b, 0)} of B's failed or reached a limit, and figures are of the "
        "others"
    )


def _unlike_told(figure: str, seen: Sequence[Sequence[_PointResult]]) -> str | None:
    """Why a response time may not be compared: more trials of one side leave it untold than of the
    other, and may be its slowest.
    """
    if not is_response_time(figure):
        return None
    parts = [[each.told.get(figure, 0.0) for each in side if each.outcome in CARRIED] for side in seen]
    if not all(parts):
        return None
    a, b = (statistics.fmean(each) for each in parts)
    if not is_told_less(min(a, b), max(a, b)):
        return None
    told, less = percent(a, 0), percent(b, 0)
    return f"{told} of A's trials tell it and {less} of B's, and those that do not may be the slowest"


def _are_bounds(figure: str, seen: Sequence[Sequence[_PointResult]]) -> str | None:
    """Why a rate may not be compared: of many trials the generator was the limit, and the server
    may do more; figures are of the others, which are the slowest.
    """
    if figure not in LOWER_BOUND:
        return None
    a, b = (statistics.fmean(each.limited for each in side) for side in seen)
    if max(a, b) <= STOPPED_MORE + ROUNDING:
        return None
    return (
        f"the generator was the limit in {percent(a, 0)} of A's trials and {percent(b, 0)} of B's, and the server may "
        "do more"
    )


def _unlike_cut(figure: str, seen: Sequence[Sequence[_PointResult]]) -> str | None:
    """Why a percentile may not be compared: the emulator disturbed more of one side's time."""
    shares = [[each.share for each in side if each.share is not None] for side in seen]
    return unlike_shares(figure, [statistics.fmean(each) for each in shares if each])


def _without_end(seen: Sequence[Sequence[_PointResult]]) -> str | None:
    """Why capacities may not be compared: nobody knows what lies beyond the range."""
    bounds = sum(each.is_bound for side in seen for each in side)
    if not bounds:
        return None
    return f"{bounds} of the runs carried the most that was tried, and may carry more; search over a greater range"


def _mostly(seen: Sequence[_PointResult], outcomes: frozenset[Outcome | None]) -> bool:
    """Whether more than half of the runs ended so at a point: one transient limit decides
    nothing.
    """
    return 2 * sum(each.outcome in outcomes for each in seen) > len(seen)


def _by_place(run: _Run) -> dict[str, _PointResult]:
    """Points by what was asked of the server: setting, every load, the links, and of a search its
    limits. The server itself may have changed.
    """
    search = run.record.search
    if search is not None:
        # What a search varies is no part of what was asked, nor is the address of the server.
        limits = sorted(each.text for each in run.record.limits)
        varied = (search.key, "duration", "target")
        return {
            repr((_asked(run.record, each.point, varied), limits)): _searched(each) for each in run.summary.capacities
        }
    seen = {point.number: point for point in run.summary.points}
    return {
        place_of(point): _measured(seen[point.number], run.answers.get(point.number, _Answers(0, None)))
        for point in run.record.points
        if point.number in seen
    }


def place_of(point: PointRecord) -> str:
    """What was asked of the server at a point: the same in two runs that can be compared there."""
    return repr((sorted(point.setting.items()), asked_at(point)))


def _asked(record: RunRecord, setting: Settings, varied: Sequence[str]) -> tuple[object, ...]:
    """What was asked at the loads that a search tried at a setting, without what it varied."""
    tried = (each for each in record.points if all(each.setting.get(path) == at for path, at in setting.items()))
    first = next(tried, None)
    return (sorted(setting.items()), None if first is None else asked_at(first, varied))


def asked_at(point: PointRecord, varied: Sequence[str] = ()) -> tuple[object, ...]:
    """Every load, the number of its generators, the links, their congestion control and the CPUs of
    a point, without the keys of the load that are `varied`.
    """
    load = sorted((key, value) for key, value in point.load.items() if key not in varied)
    network = point.network or {}
    cpus = sorted(point.place.cpus.items())
    # Between other hosts of an emulated network lies another path; a cluster's names say nothing.
    hosts = (point.place.server, *point.place.load) if network else len(point.place.load or (LOCAL,))
    others = sorted(
        (role.name, role.on if network else None, sorted(role.settings.items()))
        for role in point.roles
        if role.kind == "load"
    )
    links = [network.get(key) for key in ("links", "addresses", "congestion")]
    return (load, others, hosts, cpus, *links, network.get("backend", "tap"))


def _measured(point: PointSummary, answers: _Answers) -> _PointResult:
    known = point.figures if point.outcome in CARRIED else {}
    return _PointResult(
        point=point.point,
        outcome=point.outcome,
        reason=point.reason,
        medians={name: each.median for name, each in known.items()},
        told={name: each.n / answers.count for name, each in known.items()},
        stopped=sum(point.outcomes.get(each, 0) for each in STOPPED) / max(1, point.n),
        limited=point.outcomes.get("generator_limited", 0) / max(1, point.n),
        share=answers.share,
    )


def _searched(capacity: CapacityRecord) -> _PointResult:
    decided = capacity.lower is not None and capacity.finished and capacity.limited_by in {None, "server"}
    # Not even the lowest load met every limit.
    below = capacity.lower is None and capacity.finished and capacity.limited_by == "server"
    outcome: Outcome = "ok" if decided else "failed" if capacity.failed else "hard_limit" if below else "invalid"
    return _PointResult(
        point=capacity.point,
        outcome=outcome,
        reason=capacity.text,
        medians={CAPACITY: _between(capacity.lower, capacity.upper)} if decided and capacity.lower is not None else {},
        stopped=float(outcome in LOST),
        is_bound=decided and capacity.upper is None,
    )


def _between(lower: float, upper: float | None) -> Value:
    """What a capacity lies between: the last load that was carried, and the first that was not."""
    return lower if upper is None else (lower, upper)
