"""Reasons to mistrust a run as a whole, from its points and its trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from plimsoll_lab.analysis import formatting, network
from plimsoll_lab.analysis.failures import nothing_worked
from plimsoll_lab.analysis.family import fell_behind
from plimsoll_lab.analysis.points import STOPPED
from plimsoll_lab.analysis.stopping import Stop
from plimsoll_lab.stats.best import can_say_anything
from plimsoll_lab.stats.reasons import counted
from plimsoll_lab.stats.resampling import LEAST_BLOCKS
from plimsoll_lab.stats.results import Control
from plimsoll_lab.store.records import Outcome, ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import PointSummary


def run_warnings(
    run: RunRecord,
    points: Sequence[PointSummary],
    stops: Sequence[Stop],
    trials: Sequence[TrialRecord],
    family: int,
    folder: Path,
) -> list[ResultWarning]:
    """Of a run that ended early, of repetitions that are too few, of trials that were left out."""
    warnings = []
    planned, searching = len(run.trials), run.search is not None
    warnings += doubtful_figures(run, points, trials)
    if run.mixed:
        message = f"the run was resumed although its trials would not be alike: {'; '.join(run.mixed)}"
        warnings.append(_warning("builds_mixed", message, "begin a new run for trials that are alike"))
    if nothing_worked(run, trials):
        message = f"every point failed, so the run ended after {len(trials)} of {planned} trials"
        warnings.append(_warning("incomplete", message, "mend what the reason names, and run again"))
    elif len(trials) < planned and not searching:
        warnings.append(
            _warning(
                "incomplete",
                f"{len(trials)} of {planned} trials were measured",
                f"plimsoll lab resume {folder} measures the rest",
            )
        )
    if family and not can_say_anything(run.settings.repeat):
        warnings.append(too_few_repetitions(run.settings.repeat))
    few = [point for point in points if point.outcome == "ok" and point.valid_n < LEAST_BLOCKS]
    if few and not searching:
        least = min(point.valid_n for point in few)
        warnings.append(
            _warning(
                "too_few_trials",
                f"{len(few)} of {len(points)} points rest on fewer than {LEAST_BLOCKS} results, the least on {least}: "
                "no interval of their medians reaches 95 %",
                _more_results(run, len(trials), folder),
            )
        )
    if searching and run.status != "complete":
        warnings.append(
            _warning(
                "incomplete",
                f"the run was ended after {counted(len(trials), 'trial')}, before its searches had",
                f"plimsoll lab resume {folder} goes on with them",
            )
        )
    return warnings if searching else [*warnings, *_discarded(points, trials), *_stopped(stops, trials)]


def _more_results(run: RunRecord, measured: int, folder: Path) -> str:
    """How the points of a run come to rest on enough results."""
    if run.imported is not None:
        return f"import at least {LEAST_BLOCKS} files of each"
    if run.settings.repeat >= LEAST_BLOCKS and measured < len(run.trials):
        return f"plimsoll lab resume {folder} measures the rest"
    if run.settings.repeat >= LEAST_BLOCKS:
        return "mend what kept the other trials from a result, which the report's table of trials names for each"
    return f"use at least {LEAST_BLOCKS} repetitions (--repeat)"


def warnings_by_code(
    run: RunRecord, trials: Sequence[TrialRecord]
) -> dict[str, list[tuple[TrialRecord, ResultWarning]]]:
    """The warnings of single trials, by their code."""
    seen: dict[str, list[tuple[TrialRecord, ResultWarning]]] = {}
    # Of a trial that is a finding about the server, the finding says all there is to say.
    # A search goes where there are no results on purpose.
    silent = {"hard_limit", "failed", *(("generator_limited", "invalid") if run.search is not None else ())}
    for trial in (each for each in trials if each.outcome not in silent):
        for warning in trial.warnings:
            seen.setdefault(warning.code, []).append((trial, warning))
    return seen


def warnings_of_trials(
    seen: Mapping[str, Sequence[tuple[TrialRecord, ResultWarning]]], trials: Sequence[TrialRecord]
) -> list[ResultWarning]:
    """One warning of the run for all trials that have it."""
    warnings = []
    for code, found in seen.items():
        # The middle one of them stands for all: neither the first nor the last.
        example, warning = found[len(found) // 2]
        affected = len({each.number for each, _ in found})
        message = f"in {affected} of {len(trials)} trials; in trial {example.number}, {warning.message}"
        warnings.append(_warning(code, message, warning.remedy))
    return warnings


def doubtful_figures(
    run: RunRecord, points: Sequence[PointSummary], trials: Sequence[TrialRecord] = ()
) -> list[ResultWarning]:
    """Why figures over a network are marked as doubtful."""
    doubtful = [point for point in points if point.doubtful]
    if not doubtful:
        return []
    off = {point.number: network.path_off(run, point.number, trials) for point in doubtful}
    causes = [each for each in off.values() if each is not None][:1]
    causes += [f"{_words(point.point) or 'the trials'}: {point.reason}" for point in doubtful if point.reason][:1]
    causes += [
        f"{_words(point.point) or 'the trials'}: '{limit.text}' cannot be judged, as the emulator disturbed that figure"
        for point in doubtful
        for limit in (run.limits if run.search is None else ())
        if point.outcome == "ok" and not off[point.number] and limit.text not in {each.limit for each in point.limits}
    ][:1]
    return [
        _warning(
            "doubtful_figures",
            f"the figures of {len(doubtful)} of {len(points)} points are doubtful, and marked by ?: "
            + "; ".join(causes),
            "use a quieter machine, or ask for a longer round trip or less load",
        )
    ]


def control_warnings(controls: Sequence[Control]) -> list[ResultWarning]:
    """A control that differs from itself makes every verdict on its figure doubtful."""
    differing = [each for each in controls if each.differs and each.ratio is not None]
    if not differing:
        return []
    shown = "; ".join(
        f"{each.figure} at {formatting.setting(each.at)}: {each.ratio:.3f} times itself" for each in differing
    )
    return [
        _warning(
            "control_differs",
            f"the A/A control differs significantly: one server, measured twice in each block, gave {shown}",
            "something other than the server moves these figures: look for what differs between trials of a block",
        )
    ]


def _discarded(points: Sequence[PointSummary], trials: Sequence[TrialRecord]) -> list[ResultWarning]:
    """Trials left out of points that have results all the same."""
    valid = {point.number for point in points if point.outcome == "ok"}
    again = sum(len(trial.attempts) for trial in trials)
    warnings = []
    if again:
        was = "was" if again == 1 else "were"
        seen = Counter(each.cause for trial in trials for each in trial.attempts if each.cause is not None)
        causes = ", ".join(f"{code} {count}" for code, count in seen.most_common())
        message = f"{counted(again, 'measurement')} {was} discarded and made again for a cause of the machine"
        message += f": {causes}" if causes else ""
        warnings.append(_warning("repeated", message, "a quieter machine, or a lighter load, needs fewer"))
    spoilt = [point for point in points if point.outcome in {"generator_limited", "invalid"}]
    if spoilt:
        places = "; ".join(formatting.setting(point.point) for point in spoilt if point.point)
        message = f"{len(spoilt)} of {len(points)} points have no result: the generator or the machine was the limit"
        numbers = {point.number for point in spoilt}
        if any(fell_behind(trial) for trial in trials if trial.point in numbers):
            message += ", so verdicts take their rates as lower bounds and what the server used as it is"
        warnings.append(
            _warning(
                "no_result",
                f"{message}: {places}" if places else message,
                "a quieter or larger machine, or a lighter load",
            )
        )
    left_out = Counter(
        trial.outcome for trial in trials if trial.point in valid and trial.outcome not in {"ok", *STOPPED}
    )
    if left_out:
        message = f"{left_out.total()} of {len(trials)} trials are no results and were left out: {_causes(left_out)}"
        warnings.append(_warning("discarded", message, WHERE_AND_WHY))
    return warnings


def _stopped(stops: Sequence[Stop], trials: Sequence[TrialRecord]) -> list[ResultWarning]:
    """Trials that failed or reached a limit where others of their setting did not."""
    found: Counter[Outcome] = Counter()
    for stop in stops:
        if not stop.as_a_whole:
            found[stop.outcome] += len(stop.trials)
    if not found:
        return []
    message = f"{found.total()} of {len(trials)} trials failed or reached a limit, and others of their points did not: "
    message += f"{_causes(found)}; figures and verdicts are of the others"
    return [_warning("stopped", message, WHERE_AND_WHY)]


WHERE_AND_WHY = "the table says at which points, the trials' records say why"
"""What to do about trials that are in no figure."""


def _causes(outcomes: Counter[Outcome]) -> str:
    return ", ".join(f"{count} {formatting.outcome(outcome)}" for outcome, count in outcomes.items())


def too_few_repetitions(repeat: int) -> ResultWarning:
    """Warn that a suite can never show a difference, however clear it is."""
    return _warning(
        "too_few_repetitions",
        f"{counted(repeat, 'repetition')} cannot show any difference, however large",
        f"use at least {LEAST_BLOCKS} repetitions (--repeat)",
    )


def _warning(code: str, message: str, remedy: str) -> ResultWarning:
    return ResultWarning(code=code, message=message, remedy=remedy)


def _words(setting: Mapping[str, object]) -> str:
    return formatting.setting(setting) if setting else ""
