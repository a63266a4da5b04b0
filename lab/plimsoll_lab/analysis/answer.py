"""The answer: one to three sentences, made from the data by rules.

1. The heaviest setting at which contenders could be compared, and the first figure of the suite
that separates at least
   half of them from the best; else the figure that separates most.
2. What would mislead if it were left out: another setting where that figure has other contenders at
the top, else a
   figure with another order at the top, else the next figure that separates contenders.
3. Who stopped, and where.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis import formatting
from plimsoll_lab.stats.reasons import Toward
from plimsoll_lab.stats.results import Score
from plimsoll_lab.store.summary_record import OtherRecord, PointSummary, StopRecord, VerdictRecord
from plimsoll_lab.suite import units
from plimsoll_lab.suite.figures import CAPACITY, Figure
from plimsoll_lab.suite.settings import Settings

ALONE = ("completed_rate", "response_time_us.p99", "server.cpu_us_per_request", "capacity")
"""Figures of a server that nothing is compared with."""
PHRASES = {
    "completed_rate": ("completes", "complete", "{}", "of that"),
    "server.cpu_us_per_request": ("uses", "use", "{} of CPU per request", "as much"),
    "server.cpu_cores": ("uses", "use", "{} of CPU", "as much"),
    "server.memory_bytes": ("uses", "use", "{} of memory", "as much"),
    "goodput_bits_per_s": ("transfers", "transfer", "{}", "of that"),
    "response_time_us.mean": ("answers", "answer", "in {} on average", "as long"),
    "response_time_us.max": ("answers", "answer", "the slowest request of a trial in {}", "as long"),
    "capacity": ("carries", "carry", "{}", "of that"),
}
"""Verb for one contender, verb for several, what follows with the value, and what a multiple is
of."""
LOADS = {"count": "connections", "per_s": "requests/s"}
"""What a capacity counts, by its unit."""
CONNECTIONS, RATE = "load.connections", "load.rate"
"""The axes of how many connections are asked for, and how many requests a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What an answer is made from."""

    verdicts: Sequence[VerdictRecord]
    """As the summary has them, in the order of the family."""
    scores: Sequence[Score]
    """The medians of each contender."""
    points: Sequence[PointSummary]
    """Every point, for a suite in which nothing competes."""
    figures: Mapping[str, Figure]
    """Label, unit and direction of each figure."""
    stops: Sequence[StopRecord]
    """Who stopped where."""
    margin: float
    """What the suite calls equivalent."""


def answer(evidence: Evidence) -> list[str]:
    """One to three sentences."""
    if not evidence.verdicts:
        return [*_alone(evidence), *_stopped(evidence)]
    compared = _compared(evidence.verdicts)
    main = main_verdict(evidence.verdicts)
    if main is None:
        return [*_incomparable(evidence), *_stopped(evidence)]
    second = _second(main, compared, evidence)
    return [_claim(main, evidence), *second, *_stopped(evidence)]


def _compared(verdicts: Sequence[VerdictRecord]) -> list[VerdictRecord]:
    return [each for each in verdicts if len(each.best) + len(each.others) > 1]


def main_verdict(verdicts: Sequence[VerdictRecord]) -> VerdictRecord | None:
    """The verdict of the first sentence and the first picture; None where nothing could be
    compared.
    """
    compared = _compared(verdicts)
    if not compared:
        return None
    here = _heaviest(compared, verdicts)
    return next((each for each in here if _separates(each)), max(here, key=lambda each: len(each.others)))


def _heaviest(some: Sequence[VerdictRecord], verdicts: Sequence[VerdictRecord]) -> list[VerdictRecord]:
    """The verdicts among `some` about the heaviest setting: of the most connections or requests,
    else the last one. Not every figure can be compared at each setting.
    """
    places = list(dict.fromkeys(repr(each.at) for each in verdicts))
    heaviest = max(some, key=lambda each: (asked_load(each.at), places.index(repr(each.at))))
    return [each for each in some if each.at == heaviest.at]


def asked_load(setting: Settings) -> tuple[float, float]:
    """How many connections and requests a second a setting asks for; 0 where it does not say."""
    return _count(setting.get(CONNECTIONS)), _count(setting.get(RATE))


def _count(value: object) -> float:
    with contextlib.suppress(ValueError):
        return float(units.count(str(value)))
    return 0.0


def _separates(verdict: VerdictRecord) -> bool:
    """Whether at least half of those that are not best are shown to be worse."""
    rivals = len(verdict.best) + len(verdict.others) - 1
    return 2 * len(verdict.others) >= max(rivals, 1)


def _second(main: VerdictRecord, compared: Sequence[VerdictRecord], evidence: Evidence) -> list[str]:
    """What would mislead if it were left out."""
    best = set(main.best)
    elsewhere = [each for each in compared if each.figure == main.figure and each.at != main.at]
    beside = [each for each in compared if each.figure != main.figure and each.at == main.at]
    shown = [each for each in (*reversed(elsewhere), *beside) if each.others]
    contrary = next((each for each in shown if not best & set(each.best)), None)
    further = next((each for each in beside if each.others and _separates(each)), None)
    found = contrary or further
    if found is not None:
        return [_claim(found, evidence, told=main.at)]
    if not main.others and beside:
        labels = formatting.listed([evidence.figures[each.figure].label for each in beside])
        return [f"No difference is shown in {labels} either."]
    return []


def _claim(verdict: VerdictRecord, evidence: Evidence, told: Settings | None = None) -> str:
    """Who is best in a figure, with its values, and at least how much worse the others are."""
    best, others = _top(verdict, evidence)
    one, several, _, multiple = _phrase(verdict.figure, evidence)
    value = _value(verdict.figure, best, verdict, evidence)
    text = f"{formatting.listed(best)} {one if len(best) == 1 else several} {value}"
    if len(best) > 1:
        text += _alike(verdict, best, evidence, alone=not others)
    if others:
        higher = verdict.better == "higher"
        steps = [_at_most(each) if higher else _at_least(each) for each in others]
        bound = "at most" if higher else "at least"
        first = f"{others[0].name} {bound} {steps[0]} {'of that' if higher else multiple}"
        rest = [f"{each.name} {step}" for each, step in zip(others[1:], steps[1:], strict=True)]
        text += f"; {formatting.listed([first, *rest])}"
    if verdict.unranked:
        # One of them may have the best median.
        text += f"; {formatting.listed(list(verdict.unranked))} could not be compared"
    where = "" if not verdict.at or verdict.at == told else f"At {formatting.setting(verdict.at)} "
    return f"{where}{text}."


def _top(verdict: VerdictRecord, evidence: Evidence) -> tuple[list[str], list[OtherRecord]]:
    """The best, with those that are worse but equivalent; and the rest, the nearest first."""
    others = sorted(verdict.others, key=lambda each: each.at_least)
    alike = verdict.best_within is not None and verdict.best_within <= 1 + evidence.margin
    near = [each for each in others if alike and (each.at_most or math.inf) <= 1 + evidence.margin]
    return [*verdict.best, *(each.name for each in near)], [each for each in others if each not in near]


def _alike(verdict: VerdictRecord, names: Sequence[str], evidence: Evidence, *, alone: bool) -> str:
    reaches = [each.at_most for each in verdict.others if each.name in names]
    if verdict.best_within is None:
        return " and cannot be distinguished"
    within = max([verdict.best_within, *(each for each in reaches if each is not None)])
    apart = formatting.at_most_apart(within)
    apart = f"they differ by at most {apart}" if within < formatting.TWICE else f"one may be up to {apart} another"
    if within <= 1 + evidence.margin:
        return f" and are equivalent ({apart})"
    return f" and cannot be distinguished: {apart}" if alone else f" ({apart})"


def _at_least(other: OtherRecord) -> str:
    """`1.39 times`, as in the table."""
    return f"{formatting.at_least(other.at_least)} times"


def _at_most(other: OtherRecord) -> str:
    """`71 %`, rounded up so that it holds."""
    return formatting.share_at_most(other.at_least)


def _phrase(figure: str, evidence: Evidence) -> tuple[str, str, str, str]:
    if figure in PHRASES:
        return PHRASES[figure]
    if figure.startswith("response_time_us.p"):
        share = figure.rpartition(".p")[2].replace("_", ".")
        return ("answers", "answer", f"{share} % of requests within {{}}", "as long")
    told = evidence.figures[figure]
    extreme = "highest" if told.better == "higher" else "lowest"
    return ("has", "have", f"the {extreme} {told.label}, {{}}", "as much")


def _value(figure: str, names: Sequence[str], verdict: VerdictRecord, evidence: Evidence) -> str:
    """The medians of some contenders at a verdict's setting, from the least to the greatest."""
    cells = [
        cell for cell in evidence.scores if cell.figure == figure and cell.at == verdict.at and cell.contender in names
    ]
    medians, unit = [cell.median for cell in cells if cell.median is not None], evidence.figures[figure].unit
    known = [cell for cell in cells if cell.median is not None]
    bound = "at least " if any(cell.censored for cell in known) else ""
    bound = "at most " if any(cell.at_most for cell in known) else bound
    told = _loads(medians, unit) if figure == CAPACITY else span(medians, unit, formatting.TOWARD[bound])
    return _phrase(figure, evidence)[2].format(f"{bound}{told}")


def _loads(values: Sequence[float], unit: str) -> str:
    """`1,013 to 1,450 connections`: loads that were tried, whole as in every table of them."""
    low, high = (f"{each:,.0f}" for each in (min(values), max(values)))
    return f"{low if low == high else f'{low} to {high}'} {LOADS[unit]}"


def span(values: Sequence[float], unit: str, toward: Toward = "nearest") -> str:
    """`13.1 to 14.2 us`: the least and the greatest, the unit once where it is the same."""
    low, high = (formatting.number(each, unit, toward) for each in (min(values), max(values)))
    if low == high:
        return low
    tail = next((each for each in (low.partition(" ")[2], "/s") if each and low.endswith(each)), "")
    shared = bool(tail) and high.endswith(tail) and low.partition(" ")[2] == high.partition(" ")[2]
    return f"{low.removesuffix(tail).rstrip()} to {high}" if shared else f"{low} to {high}"


def _alone(evidence: Evidence) -> list[str]:
    """The figures of a server that nothing is compared with, under the heaviest load that has a
    result.
    """
    point = next((each for each in reversed(evidence.points) if each.outcome == "ok"), None)
    if point is None:
        return [_no_result(evidence)]
    subject = f"At {formatting.setting(point.point)} the server" if point.point else "The server"
    return [sentence(subject, point, evidence)]


def sentence(subject: str, point: PointSummary, evidence: Evidence) -> str:
    """What a server does at a point, in one sentence."""
    told = []
    for figure in (each for each in ALONE if each in point.figures):
        found = point.figures[figure]
        verb, _, rest, _ = _phrase(figure, evidence)
        fewer = f" in {found.n} of {point.valid_n} trials" if found.n < point.valid_n else ""
        told.append(f"{verb} {rest.format(formatting.number(found.median, evidence.figures[figure].unit))}{fewer}")
    return f"{subject} {formatting.listed(told)}." if told else f"{subject} has no figure of the suite."


def _incomparable(evidence: Evidence) -> list[str]:
    """Nothing could be compared: what was measured, and why no more is said."""
    measured = [each for each in evidence.verdicts if each.contenders]
    if not measured:
        return [_no_result(evidence)]
    shown = max(_heaviest(measured, evidence.verdicts), key=lambda each: len(_results(each)))
    told = {each.contender for each in evidence.scores if (each.figure, each.at) == (shown.figure, shown.at) and each.n}
    names = [name for name in _results(shown) if name in told]
    where = f"At {formatting.setting(shown.at)} " if shown.at else ""
    verb, verbs, rest, _ = _phrase(shown.figure, evidence)
    value = _value(shown.figure, names, shown, evidence)
    if rest.startswith("the "):
        # Nothing is the lowest of what could not be compared.
        value = f"{evidence.figures[shown.figure].label} of {value.removeprefix(rest.removesuffix('{}'))}"
    if len(names) == 1:
        why = "; ".join(f"{name}: {reason}" for name, reason in shown.unranked.items() if name not in names)
        return [f"{where}{names[0]} alone has a valid result: it {verb} {value}{f' ({why})' if why else ''}."]
    reasons = list(dict.fromkeys(shown.unranked.values()))
    return [
        f"{where}{formatting.listed(names)} {verbs} {value} in the median.",
        f"They could not be compared: {'; '.join(reasons)}.",
    ]


def _results(verdict: VerdictRecord) -> list[str]:
    """Every contender with a result, whether it could be compared or not."""
    return list(dict.fromkeys((*verdict.contenders, *verdict.unranked)))


def _no_result(evidence: Evidence) -> str:
    reason = next((each.reason for each in evidence.points if each.reason), "nothing was measured")
    if any(each.reason == reason for each in evidence.stops):
        return "There is no valid result."  # who stopped comes next, with the cause
    return f"There is no valid result: {reason.rstrip('.')}."


def _stopped(evidence: Evidence) -> list[str]:
    """The contenders that stopped, in one sentence; of several settings, the first at which each
    did as a whole, else in some trials. Contenders that stopped alike are named together.
    """
    first: dict[str, StopRecord] = {}
    for each in sorted(evidence.stops, key=lambda stop: stop.trials is not None):
        first.setdefault(each.contender, each)
    alike: dict[tuple[bool, str], list[str]] = {}
    for name, each in first.items():
        alike.setdefault((each.outcome == "hard_limit", _how(each)), []).append(name or "the server")
    told = [_stop(names, how, limit=limit) for (limit, how), names in alike.items()]
    if not told:
        return []
    text = "; ".join(told)
    return [f"{text[0].upper()}{text[1:]}." if next(iter(first)) == "" else f"{text}."]


def _how(stop: StopRecord) -> str:
    """What follows the verb."""
    often = formatting.how_often(stop)
    if stop.outcome == "hard_limit" and stop.held:
        # How many were asked for is the load; the rest is where this holds.
        at = {path: value for path, value in stop.at.items() if path != CONNECTIONS}
        return f"at most {stop.held:,} connections{often}{_at(at)}"
    return f"{often}{_at(stop.at)}: {str(stop.reason).rstrip('.')}"


def _at(setting: Settings) -> str:
    return f" at {formatting.setting(setting)}" if setting else ""


def _stop(names: Sequence[str], how: str, *, limit: bool) -> str:
    one = len(names) == 1
    if how.startswith("at most"):
        verb = "accepts " if one else "accept "
    elif limit:
        verb = "reaches a limit" if one else "reach a limit"
    else:
        verb = "fails" if one else "fail"
    return f"{formatting.listed(names)} {verb}{how}"
