"""The comparisons of a run: each figure at each setting, and what every contender measured there.

A trial is judged a figure at a time: what disturbed one figure leaves the others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.searches import capacity_family
from plimsoll_lab.stats.best import FigureComparison, Interval, Value
from plimsoll_lab.stats.cut import QUANTILES
from plimsoll_lab.stats.reasons import percent
from plimsoll_lab.store.records import GENERATOR_WARNINGS, MACHINE_WARNINGS, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import PointSummary
from plimsoll_lab.suite.figures import is_response_time
from plimsoll_lab.suite.settings import Settings

WITHOUT_RESULT = {"generator_limited": "the generator was the limit", "invalid": "its trials are not valid"}
"""Why a contender is not compared, by the outcome of a point whose trials tell nothing of it."""
COMPETES = frozenset({"ok", "generator_limited", "invalid"})
"""Outcomes of points whose trials are compared, as far as they have results."""


def figure_comparisons(
    run: RunRecord, points: Sequence[PointSummary], by_point: Mapping[int, Sequence[TrialRecord]]
) -> list[FigureComparison]:
    """Each figure that is judged at each setting, with what every contender measured there."""
    compare = run.family.compare
    if compare is None or run.imported is not None:
        return []
    if run.search is not None:
        return capacity_family(run, compare)
    places: dict[str, list[PointSummary]] = {}
    for point in points:
        places.setdefault(repr(without(point.point, compare)), []).append(point)
    comparisons = []
    for figure in run.family.figures:
        for here in places.values():
            contenders: dict[str, Mapping[int, Value]] = {}
            estimates: dict[str, Mapping[int, float]] = {}
            absent, untold = [], {}
            # What stopped competes with nobody, whatever its few results are.
            competing = [point for point in here if point.outcome in COMPETES]
            told = told_parts(figure, competing, by_point)
            hidden = _hidden(figure, competing, by_point, told) if is_response_time(figure) else {}
            labels = {point.number: formatting.contender(point.point, compare) for point in here}
            # Where one of two is told less, what either hides counts, unless it is a trial in ten.
            beside = {
                (labels[number], labels[other]): values
                for number, values in hidden.items()
                for other, part in told.items()
                if values and is_told_less(told[number], 1.0)
                if is_told_less(min(told[number], part), max(told[number], part))
            }
            for point in here:
                label = labels[point.number]
                values = {
                    trial.block: value
                    for trial in by_point.get(point.number, [])
                    if (value := value_of(trial, figure)) is not None
                }
                known = bool(values) or any(one == label for one, _ in beside)
                unknown = point.number in hidden and hidden[point.number] is None
                if point.outcome in COMPETES and known and not unknown:
                    contenders[label] = values
                    estimates[label] = {
                        trial.block: trial.figures[figure]
                        for trial in by_point.get(point.number, [])
                        if trial.outcome == "ok" and figure in trial.bounds and figure in trial.figures
                    }
                else:
                    absent.append(label)
                    if point in competing and (point.outcome != "ok" or point.number in told):
                        untold[label] = _why_untold(point, told.get(point.number, 0.0))
            comparisons.append(
                FigureComparison(
                    figure=figure,
                    better=run.figure(figure).better,
                    at=without(here[0].point, compare),
                    contenders=contenders,
                    absent=tuple(absent),
                    untold=untold,
                    estimates=estimates,
                    obstacle=unlike_cuts(figure, competing, by_point),
                    beside={pair: values for pair, values in beside.items() if pair[0] in contenders},
                )
            )
    return comparisons


def _why_untold(point: PointSummary, part: float) -> str:
    """Why a contender that did not stop is not compared; it tells a figure in this part of its
    trials.
    """
    if part:
        return f"only {percent(part, 0)} of its trials tell this figure"
    return "none of its trials tells this figure" if point.outcome == "ok" else WITHOUT_RESULT[str(point.outcome)]


UNTOLD_MORE = 0.1
"""A contender that leaves a response time untold in more of its trials than another, by this part
of them, is compared with that one by what these trials were measured to take at most, and not
without them: the generator's lateness hides them, and they may be its slowest."""
ROUNDING = 1e-9
"""Of parts: 0.8 less 0.7 is more than 0.1."""


def is_told_less(part: float, most: float) -> bool:
    """Whether this part of the trials that have a response time is too small beside another."""
    return most - part > UNTOLD_MORE + ROUNDING


def _hidden(
    figure: str,
    points: Sequence[PointSummary],
    by_point: Mapping[int, Sequence[TrialRecord]],
    told: Mapping[int, float],
) -> dict[int, Mapping[int, Interval] | None]:
    """Of each point what a response time took at most in the trials that do not tell it; None where
    others tell it in more, and that is not known of too many.
    """
    most = max(told.values(), default=0.0)
    found: dict[int, Mapping[int, Interval] | None] = {}
    for number in (point.number for point in points if point.number in told):
        bounded = at_most(figure, by_point[number])
        part = told[number] + len(bounded) / len(may_tell(by_point[number]))
        found[number] = None if is_told_less(part, most) else bounded
    return found


def at_most(figure: str, trials: Sequence[TrialRecord]) -> dict[int, Interval]:
    """Of each valid trial that does not tell a figure, which is the generator's own lateness, what
    the server's own lies between: 0 and what was measured.
    """
    hidden = [trial for trial in trials if trial.outcome == "ok" and figure not in trial.figures]
    return {trial.block: (0.0, trial.late_figures[figure]) for trial in hidden if figure in trial.late_figures}


def told_parts(
    figure: str, points: Sequence[PointSummary], by_point: Mapping[int, Sequence[TrialRecord]]
) -> dict[int, float]:
    """The part of each point's trials that have a figure, of those that may: a generator at its
    limit hides the slowest or the quickest of them.
    """
    return {
        point.number: statistics.fmean(trial.outcome == "ok" and figure in trial.figures for trial in trials)
        for point in points
        if (trials := may_tell(by_point.get(point.number, [])))
    }


def may_tell(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials in which the server answered: results, and those with a generator at its limit."""
    return [trial for trial in trials if trial.outcome == "ok" or fell_behind(trial)]


def unlike_cuts(
    figure: str, points: Sequence[PointSummary], by_point: Mapping[int, Sequence[TrialRecord]]
) -> str | None:
    """Why a percentile may not be compared: more of one contender's time was cut out than of
    another's, by half of what lies beyond the percentile.

    A contender that disturbs its own network would lose its slowest requests with it.
    """
    shares = [cut_share(by_point.get(point.number, [])) for point in points]
    return unlike_shares(figure, [each for each in shares if each is not None])


def cut_share(trials: Sequence[TrialRecord]) -> float | None:
    """The mean part of the window that was cut out of valid trials; None without any."""
    cuts = [trial.cut.share if trial.cut else 0.0 for trial in trials if trial.outcome == "ok"]
    return statistics.fmean(cuts) if cuts else None


def unlike_shares(figure: str, shares: Sequence[float]) -> str | None:
    """Why a percentile may not be compared of sides of which so much was cut out each."""
    quantile = QUANTILES.get(figure.rpartition(".")[2]) if figure.startswith("response_time_us.") else None
    if quantile is None or not shares or max(shares) - min(shares) <= (1 - quantile) / 2:
        return None
    least, most = percent(min(shares)), percent(max(shares))
    return (
        f"the emulator disturbed {least} of one contender's time and {most} of another's, so that "
        "their slowest requests are not alike"
    )


def without(setting: Settings, compare: str | None) -> Settings:
    """A point's setting besides what competes."""
    return {path: value for path, value in setting.items() if path != compare}


LOWER_BOUND = ("completed_rate", "goodput_bits_per_s", "requests.completed")
"""Figures of which a generator at its own limit gives a lower bound. Not those of one of several
generators, or of a role: it gets more of the server while another one asks for less."""
SERVERS_OWN = ("server.cpu_us_per_request",)
"""Figures that a generator at its own limit does not spoil."""
NEVER_ESTABLISHED = "connections.never_established"
"""A generator at its own limit can show that there were none. If there were some, it cannot show
whose fault that was."""
OF_CONNECTIONS = (
    *("connections.established", "server.peak_connections"),
    *("server.memory_bytes", "host.memory_bytes"),
)
"""Figures that grow with the connections that are up: such a generator does not spoil them where
all that it was to open were up at once, and else gives a lower bound."""


def value_of(trial: TrialRecord, figure: str) -> Value | None:
    """What a trial says of a figure: between its bounds where moments disturbed it; of a generator
    that did not keep up a lower bound of the rate, and no response time.
    """
    found = trial.figures.get(figure)
    if found is None:
        return None
    if trial.outcome == "ok":
        return trial.bounds.get(figure, found)
    if not fell_behind(trial):
        return None
    if figure == NEVER_ESTABLISHED:
        return found if all_were_up(trial.figures) else None
    if figure in LOWER_BOUND or (figure in OF_CONNECTIONS and not all_were_up(trial.figures)):
        return (found, math.inf)
    return found if figure in {*SERVERS_OWN, *OF_CONNECTIONS} else None


def all_were_up(figures: Mapping[str, float]) -> bool:
    """Whether every connection that was asked for was established, and all were up at once."""
    established, never = figures.get("connections.established"), figures.get("connections.never_established")
    peak = figures.get("server.peak_connections", figures.get("connections.peak"))
    return established is not None and never == 0 and peak is not None and peak >= established


def fell_behind(trial: TrialRecord) -> bool:
    """Whether the generator did not keep up: it was at its own limit, or others took its CPU."""
    if trial.outcome == "generator_limited":
        return True
    codes = [warning.code for warning in trial.warnings]
    late = any(code.startswith(GENERATOR_WARNINGS) for code in codes)
    return trial.outcome == "invalid" and late and any(code in MACHINE_WARNINGS for code in codes)


def control_of(
    run: RunRecord,
    comparison: FigureComparison,
    points: Sequence[PointSummary],
    alike: Sequence[PointSummary],
    by_point: Mapping[int, Sequence[TrialRecord]],
) -> tuple[Mapping[int, float], Mapping[int, float]] | None:
    """The two series of the A/A control at the setting of a comparison."""

    def series(point: PointSummary) -> dict[int, float]:
        return {
            trial.block: trial.figures[comparison.figure]
            for trial in by_point.get(point.number, [])
            if trial.outcome == "ok" and comparison.figure in trial.figures
        }

    for again in alike:
        if without(again.point, run.family.compare) == comparison.at:
            one = next((point for point in points if point.point == again.point), None)
            return (series(one), series(again)) if one is not None else None
    return None
