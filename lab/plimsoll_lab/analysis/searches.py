"""What a run's searches have found: a sentence for each server, the highest capacity, and what
broke first.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.best import FigureComparison, Interval
from plimsoll_lab.stats.goal import CONFIRMATIONS, FAILURES_TOLERATED
from plimsoll_lab.stats.reasons import counted, usual_reason
from plimsoll_lab.store.records import ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.search_record import BreakRecord, LimitedBy, SearchRecord
from plimsoll_lab.store.summary_record import CapacityRecord, StopRecord

UNITS = {"connections": "connections", "rate": "requests/s"}
OPEN = ("planned", "interrupted")
"""States of a search that has not ended."""
BEYOND_WIDTH = 1.25
"""The precision is an estimate; one beyond this many times the width is worth saying."""
NEEDED = CONFIRMATIONS - FAILURES_TOLERATED
"""Of the fresh trials at an answer, how many have to pass."""
LIMITERS: dict[LimitedBy | None, str] = {
    "generator": "the generator was the limit",
    "environment": "the machine was the limit",
}


def describe_searches(run: RunRecord) -> list[CapacityRecord]:
    """One entry for each point of the matrix: its capacity over the repeated searches."""
    groups: dict[int, list[SearchRecord]] = {}
    for each in run.searches:
        groups.setdefault(each.point, []).append(each)
    # In the order of the suite: that of the searches is drawn.
    return [_capacity(run, group) for _, group in sorted(groups.items())]


def searched_key(run: RunRecord) -> str:
    """What was varied: `connections` or `rate`."""
    return run.search.key if run.search is not None else ""


def limits_text(run: RunRecord) -> str:
    """The limits in one line."""
    return " and ".join(limit.text for limit in run.limits)


def _capacity(run: RunRecord, group: Sequence[SearchRecord]) -> CapacityRecord:
    ended, decided = [each for each in group if each.state not in OPEN], _decided(group)
    lowers = [each.lower for each in decided if each.lower is not None]
    uppers = [each.upper for each in decided if each.upper is not None]
    limited_by = _limited_by(decided)
    # A search without a bound counts too: no load passed, or none was too much for the server.
    carried = [each.lower or 0 for each in decided]
    told = [each.upper if limited_by in LIMITERS or each.limited_by == "server" else None for each in decided]
    too_much = [math.inf if upper is None else upper for upper in told]
    middle = statistics.median(carried) if len(carried) > 1 else 0.0
    lower = statistics.median_low(carried) if carried else 0
    at_answer = [each for each in decided if (each.lower or 0) == lower]
    # What broke is told of one search: of several it would not be one server's.
    typical = next((each for each in (*at_answer, *decided) if each.limited_by == limited_by), None)
    # Of those that confirmed it, if any did.
    held = [each for each in at_answer if is_held(each)] or at_answer
    found = CapacityRecord(
        point=group[0].setting,
        searches=len(group),
        ended=len(ended),
        failed=any(each.state == "failed" for each in group),
        finished=all(each.state == "complete" for each in group),
        # Whole bounds that were really measured: of an even number of searches the lower of the two
        # middle ones.
        lower=lower or None,
        upper=_finite(statistics.median_high(too_much)) if too_much else None,
        lowers=lowers,
        uppers=uppers,
        spread=(max(carried) - min(carried)) / middle if middle else None,
        held_s=min((each.held_s for each in held), default=0.0),
        limited_by=limited_by,
        first_break=None if typical is None else first_break(typical.broke),
        causes=[] if typical is None or typical.broke is None else [each.code for each in typical.broke.causes],
        generator_ceiling_per_s=None if typical is None else typical.generator_ceiling_per_s,
        precision=max((each.precision for each in decided if each.precision is not None), default=None),
        text="",
    )
    return found.model_copy(update={"text": capacity_sentence(run, found, group)})


def _limited_by(decided: Sequence[SearchRecord]) -> LimitedBy | None:
    """The server, where it ended more than half of the searches: then their median bound is its
    own. Else what ended most of the others.
    """
    counts = Counter(each.limited_by for each in decided)
    if 2 * counts["server"] > len(decided):
        return "server"
    # Of as many the first one here.
    others: tuple[LimitedBy | None, ...] = ("generator", "environment", None)
    return max(others, key=lambda limiter: counts[limiter]) if decided else None


def _decided(group: Sequence[SearchRecord]) -> list[SearchRecord]:
    """The searches of a point that found the server's capacity. A search that was broken off says
    nothing about what others of the same server found.
    """
    ended = [each for each in group if each.state not in OPEN]
    return [each for each in ended if each.state != "failed"] or ended


def _finite(bound: float) -> int | None:
    return None if math.isinf(bound) else int(bound)


def capacity_family(run: RunRecord, compare: str, *, with_none: bool = False) -> list[FigureComparison]:
    """The capacities at each setting of the other axes. A capacity is the interval between its
    bounds: below the floor it begins at 0, and it has no end where the server was not the limit.
    `with_none` keeps contenders all of whose capacities are below the floor.
    """
    places: dict[str, list[SearchRecord]] = {}
    for each in sorted(run.searches, key=lambda search: search.point):
        if compare in each.setting:
            at = {path: value for path, value in each.setting.items() if path != compare}
            places.setdefault(repr(at), []).append(each)
    return [_question(here, compare, with_none=with_none) for here in places.values()]


def _question(here: Sequence[SearchRecord], compare: str, *, with_none: bool) -> FigureComparison:
    names = list(dict.fromkeys(formatting.contender(each.setting, compare) for each in here))
    contenders: dict[str, dict[int, Interval]] = {}
    for each in here:
        if each.state == "complete" and (each.lower is not None or each.limited_by == "server"):
            upper = each.upper if each.limited_by == "server" else None
            bounds = (float(each.lower or 0), math.inf if upper is None else float(upper))
            contenders.setdefault(formatting.contender(each.setting, compare), {})[each.block] = bounds
    if not with_none:
        contenders = {name: found for name, found in contenders.items() if any(low for low, _ in found.values())}
    return FigureComparison(
        figure="capacity",
        better="higher",
        at={path: value for path, value in here[0].setting.items() if path != compare},
        contenders=contenders,
        absent=tuple(name for name in names if name not in contenders),
    )


def searches_without_capacity(run: RunRecord, capacities: Sequence[CapacityRecord]) -> list[StopRecord]:
    """The contenders that failed, or whose capacity is below the lowest load: these have none to
    compare.
    """
    compare, found = run.family.compare, []
    for each in capacities if compare is not None else ():
        if each.lower is not None or not each.ended:
            continue
        lost = next((one for one in run.searches if one.setting == each.point and one.state == "failed"), None)
        if lost is None and (each.upper is None or not each.finished or each.limited_by in LIMITERS):
            continue
        at = {path: value for path, value in each.point.items() if path != compare}
        less = f"it carries less than {each.upper:,} {UNITS[searched_key(run)]}" if each.upper is not None else None
        found.append(
            StopRecord(
                contender=formatting.contender(each.point, str(compare)),
                at=at,
                outcome="hard_limit" if lost is None else "failed",
                reason=less if lost is None else lost.reason,
                held=None,
            )
        )
    return found


def failed_below(
    run: RunRecord, trials: Sequence[TrialRecord], capacities: Sequence[CapacityRecord]
) -> list[ResultWarning]:
    """Trials of a search that failed at loads that are said to be carried."""
    if run.search is None:
        return []
    over = run.search.over

    def is_carried(trial: TrialRecord) -> bool:
        here = [each.lower for each in capacities if each.point.items() <= trial.setting.items()]
        load = trial.setting.get(over)
        return isinstance(load, int) and any(lower is not None and load <= lower for lower in here)

    failed = [trial for trial in trials if trial.outcome == "failed" and is_carried(trial)]
    if not failed:
        return []
    message = f"{counted(len(failed), 'trial')} failed at loads that are said to be carried"
    reason = usual_reason([trial.reason for trial in failed])
    message += f": {reason}" if reason else ""
    return [ResultWarning(code="stopped", message=message, remedy="the trials' records say why")]


def first_break(broke: BreakRecord | None) -> str | None:
    """What broke first, in words."""
    if broke is None:
        return None
    near = [broke.near_ceiling] if broke.near_ceiling else []
    return "; ".join([broke.missed, *(each.text for each in broke.causes), *near])


def capacity_sentence(run: RunRecord, found: CapacityRecord, group: Sequence[SearchRecord]) -> str:
    """The answer, in one sentence."""
    unit, limits = UNITS[searched_key(run)], limits_text(run)
    decided, failed = _decided(group), [each for each in group if each.state == "failed"]
    if not decided:
        return f"{_subject(run, found)}: {_so_far(group[0], unit)}"
    if decided == failed:
        return f"{_subject(run, found)} was not measured{_failure(failed[0], unit)}"
    carries = _carries(run, found, decided)
    spread = _spread(found, len(decided))
    carries += _held(found, decided) + _nearness(run, found)
    broke = f"; what breaks first: {found.first_break}" if found.first_break else ""
    by = LIMITERS.get(found.limited_by)
    lost = f"; {len(failed)} of {len(group)} searches failed: {failed[0].reason}" if failed else ""
    return f"{_subject(run, found)} {carries}{spread}, with {limits}{broke}{f'; {by}' if by else ''}{lost}"


def is_held(search: SearchRecord) -> bool:
    """Whether all fresh trials that are asked for at the answer have passed. Of earlier versions a
    complete search is known to have them.
    """
    known = search.state == "complete" if search.is_held is None else search.is_held
    return known and search.lower is not None


def confirmation(search: SearchRecord) -> str:
    """How the answer was confirmed, and which loads were given up; empty where nothing was tried
    anew.
    """
    told = []
    if search.confirmed and search.lower is not None:
        if search.confirmed < NEEDED:
            passed = f"{counted(search.confirmed, 'fresh trial')} had passed at {search.lower:,} when the search ended"
            told.append(f"{passed}, of the {CONFIRMATIONS} it asks for")
        else:
            # A search that ended before its last trial may have made no eighth one.
            asked = f"{CONFIRMATIONS} fresh trials"
            asked = asked if search.state == "complete" else f"the {asked} that it asks for"
            told.append(f"{search.confirmed} of {asked} passed at {search.lower:,}")
    if search.unconfirmed:
        loads = formatting.listed([f"{load:,}" for load in search.unconfirmed])
        told.append(f"given up, as fresh trials failed there: {loads}")
    return "; ".join(told)


def refused(found: CapacityRecord) -> str:
    """The load that a server does not carry, for a table; `-` where there is none, or where the
    generator or the machine stood in its way.
    """
    return "-" if found.upper is None or found.limited_by in LIMITERS else f"{found.upper:,}"


def _carries(run: RunRecord, found: CapacityRecord, decided: Sequence[SearchRecord]) -> str:
    """The capacity that the ended searches have found, in words."""
    unit = UNITS[searched_key(run)]
    lower, upper = found.lower, found.upper
    finished = all(each.state == "complete" for each in decided)
    # Loads that the generator or the machine stood in the way of say nothing of the server.
    if found.limited_by in LIMITERS and lower is None and upper is not None:
        return f"is not decided: it was not seen whether it carries {_loads(upper, unit)}"
    if lower is not None and (upper is None or found.limited_by in LIMITERS):
        most = run.search is not None and lower == run.search.highest
        more = ", the most that was tried" if most else ""
        more = more if finished else "; the search ended before it knew how much more"
        return f"carries at least {_loads(lower, unit)}{more}"
    if lower is not None:
        more = "" if finished else ", as near as the search came before it ended"
        # Between these two lies what it carries: repeated searches may agree to the last load.
        above = f" and not {upper:,}" if upper is not None and upper > lower else ""
        return f"carries {_loads(lower, unit)}{above}{more}"
    if upper is not None:
        less = "" if finished else "; the search ended before it knew how much less"
        return f"carries less than {_loads(upper, unit)}{less}"
    return f"is not decided: {_undecided(run, found, decided)}"


def _undecided(run: RunRecord, found: CapacityRecord, decided: Sequence[SearchRecord]) -> str:
    """Why ended searches bound no capacity together."""
    unit = UNITS[searched_key(run)]
    if all(each.state == "complete" for each in decided):
        return "one of its searches carried every load, and another none"
    if found.lowers or found.uppers:
        known = dict.fromkeys(_known(each, unit) or "nothing" for each in decided)
        return f"before they ended, its searches found {' and '.join(known)}"
    return f"its searches ended before {_loads(run.search.lowest if run.search is not None else 0, unit)} had been"


def _loads(count: int, unit: str) -> str:
    """`1 connection`, `1,000 requests/s`."""
    one, slash, per = unit.partition("/")
    return f"{counted(count, one.removesuffix('s'))}{slash}{per}"


def _spread(found: CapacityRecord, decided: int) -> str:
    """The number of searches, and the least and the most that any of them found; empty for a single
    search.
    """
    of = "" if decided == found.searches else f" of {found.searches}"
    if decided == 1 or not found.lowers:
        return f" ({decided}{of} searches)" if of else ""
    least = f"{min(found.lowers):,}" if len(found.lowers) == decided else "nothing"
    return f" (median of {decided}{of} searches, {least} to {max(found.lowers):,})"


def _held(found: CapacityRecord, decided: Sequence[SearchRecord]) -> str:
    """How long fresh trials held the answer; of one that is not confirmed, how many had passed."""
    if found.lower is None:
        return ""
    at_answer = [each for each in decided if each.lower == found.lower]
    if any(is_held(each) for each in at_answer):
        held_s = found.held_s
        told = formatting.elapsed(held_s) if held_s >= 1 else formatting.number(held_s, "s")
        return f", held for {told}" if held_s else ""
    passed = max((each.confirmed for each in at_answer), default=0)
    if not passed:
        return ", and not confirmed by fresh trials"
    if passed < CONFIRMATIONS:
        return f", and not confirmed: {passed} of the {CONFIRMATIONS} fresh trials that it asks for had passed"
    return ", and not confirmed: the long fresh trials that it asks for had not all passed"


def _nearness(run: RunRecord, found: CapacityRecord) -> str:
    """How near the answer is, where its trials could not be as long as the width asks for."""
    width, precision = run.search.width if run.search is not None else 1.0, found.precision
    if found.lower is None or precision is None or precision <= BEYOND_WIDTH * width:
        return ""
    if precision >= 1:
        return ", of unknown precision: the limits vary more between trials than between loads"
    known = formatting.at_most_apart(1 + precision)
    return f", known to within {known}: nearer bounds take longer trials, and more patience"


def _failure(search: SearchRecord, unit: str) -> str:
    """Why the server was not measured, or not to the end."""
    known = _known(search, unit)
    return f" to the end: {search.reason}; until then it carried {known}" if known else f": {search.reason}"


def _so_far(search: SearchRecord, unit: str) -> str:
    said = _known(search, unit)
    return f"interrupted; until then it was seen to carry {said}" if said else "interrupted before any bound"


def _known(search: SearchRecord, unit: str) -> str:
    """`at least 400 and less than 500 connections`; empty where no load is decided."""
    lower, upper = search.lower, search.upper
    if upper is None:
        return "" if lower is None else f"at least {_loads(lower, unit)}"
    least = "" if lower is None else f"at least {lower:,} and "
    return f"{least}less than {_loads(upper, unit)}"


def _subject(run: RunRecord, found: CapacityRecord) -> str:
    if found.point:
        return formatting.setting(found.point)
    return (run.search.subject if run.search is not None else None) or "the server"
