"""Where each curve bends: the measured points, the closed loop's bound, and the fit or why there is
none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.points import point_outcome
from plimsoll_lab.stats.knee import Load, find_knee
from plimsoll_lab.stats.results import Knee
from plimsoll_lab.store.folder import RunFolder, damaged
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import KneeRecord
from plimsoll_lab.suite import units
from plimsoll_lab.suite.prediction import think_s
from plimsoll_lab.suite.settings import Settings

AXIS = "load.connections"
"""A closed loop's load; over a rate nothing waits for anything, and none of this holds."""


def check_settings(folder: RunFolder, run: RunRecord, trials: Sequence[TrialRecord]) -> None:
    """Raise `LabError` for a stored setting that cannot be read as the number that it is. A suite's
    reader has refused any other value before the run, so the record is damaged.
    """
    if run.imported is None:
        _check_loads(folder, run, trials)
    compare = run.family.compare
    for trial in trials:
        if compare is not None and compare not in trial.setting:
            raise damaged(folder.trial_file(trial.number), f"setting: {compare} is missing")


def _check_loads(folder: RunFolder, run: RunRecord, trials: Sequence[TrialRecord]) -> None:
    varied = {point.number for point in run.points if AXIS in point.setting}
    record = folder.path / "run.json"
    for place, point in enumerate(run.points):
        _check(record, f"points.{place}.load.think", think_s, point.load)
        _check(record, f"points.{place}.setting.{AXIS}", _connections, point.setting)
    for trial in trials:
        file = folder.trial_file(trial.number)
        if trial.point in varied and AXIS not in trial.setting:
            raise damaged(file, f"setting: {AXIS} is missing")
        _check(file, f"setting.{AXIS}", _connections, trial.setting)


def _check(file: Path, key: str, read: Callable[[Settings], float], settings: Settings) -> None:
    try:
        read(settings)
    except ValueError as refusal:
        raise damaged(file, f"{key}: {refusal}") from None


def find_knees(run: RunRecord, trials: Sequence[TrialRecord]) -> list[KneeRecord]:
    """One entry for each setting besides the connections, of a run that varies them in a closed
    loop. Whether the loop of an imported run was closed is unknown.
    """
    if run.imported is not None:
        return []
    loads = next((axis.values for axis in run.axes if axis.path == AXIS), ())
    if len(loads) < 2:  # noqa: PLR2004 - one load bends nowhere
        return []
    # A point beside the matrix may not set the connections.
    points = {point.number: point for point in run.points if not point.control and AXIS in point.setting}
    # In the order of the suite, which is that of every table and legend.
    curves: dict[str, list[TrialRecord]] = {repr(without_axis(point.setting)): [] for point in points.values()}
    made = {number: [trial for trial in trials if trial.point == number] for number in points}
    # The few results of a point that has none bend nothing.
    for trial in (each for own in made.values() if point_outcome(own)[0] == "ok" for each in own):
        if trial.outcome == "ok" and "rate" not in points[trial.point].load:
            curves[repr(without_axis(points[trial.point].setting))].append(trial)
    found = []
    for place, curve in enumerate(each for each in curves.values() if each):
        rng = np.random.default_rng([run.seed, place, 2])
        knee = find_knee(_loads(curve), think_s=think_s(points[curve[0].point].load), rng=rng)
        beyond = _most_at_least(curve, trials, points)
        # By more than what counts as no difference: of single trials the highest is above the mean.
        is_beyond = knee.bound is not None and beyond > (1 + run.family.margin) * knee.bound.most_rate
        if knee.bound is not None and is_beyond:
            knee = replace(knee, bound=replace(knee.bound, reached=False))
        found.append(
            KneeRecord(
                point=without_axis(curve[0].setting),
                bound=knee.bound,
                fit=knee.fit,
                refused=knee.refused,
                text=_sentence(knee, beyond if is_beyond else 0.0),
            )
        )
    return found


def _most_at_least(curve: Sequence[TrialRecord], trials: Sequence[TrialRecord], points: Collection[int]) -> float:
    """The highest rate of a curve's setting that a trial had whose generator was the limit: the
    server carries as much at least. 0 where there is none.
    """
    setting = without_axis(curve[0].setting)
    limited = (each for each in trials if each.outcome == "generator_limited" and each.point in points)
    here = (each for each in limited if without_axis(each.setting) == setting)
    return max((each.figures.get("completed_rate", 0.0) for each in here), default=0.0)


def without_axis(setting: Settings) -> Settings:
    """A point's setting besides its connections."""
    return {path: value for path, value in setting.items() if path != AXIS}


def connections_of(trial: TrialRecord) -> float:
    """How many connections a trial had."""
    return _connections(trial.setting)


def _connections(setting: Settings) -> float:
    """The connections of a setting; 0 where it does not say."""
    return float(units.count(str(setting.get(AXIS, 0))))


def _loads(trials: Sequence[TrialRecord]) -> list[Load]:
    at: dict[float, list[TrialRecord]] = {}
    for trial in trials:
        whole = {"completed_rate", "response_time_us.mean"} <= trial.figures.keys()
        # A window too short for its responses has seen only the quick ones of them.
        if whole and not any(warning.code == "window_too_short" for warning in trial.warnings):
            at.setdefault(connections_of(trial), []).append(trial)
    return [
        Load(
            load=load,
            rates=[trial.figures["completed_rate"] for trial in made],
            responses_s=[trial.figures["response_time_us.mean"] / 1e6 for trial in made],
        )
        for load, made in at.items()
    ]


def _sentence(knee: Knee, beyond: float) -> str:
    """The knee in words; `beyond` is the rate that a generator at its limit had, where that shows
    that the server carries more.
    """
    if knee.bound is None:
        return f"no knee: {knee.refused}"
    bound = knee.bound
    most = formatting.number(bound.most_rate, "per_s")
    if not bound.reached:
        why = "no load well beyond that was tried"
        if beyond:
            more = formatting.number(beyond, "per_s")
            why = f"the generator was the limit at {more}, more than the {most} that it did not limit"
        return f"not reached: N* is {bound.at:,.0f} connections or more, for {why}"
    if bound.saturated:
        return f"not shown: {bound.lowest:,.0f} connections, the fewest tried, may saturate the server: {most} at most"
    interval = f" [{bound.at_ci95[0]:,.0f}, {bound.at_ci95[1]:,.0f}]" if bound.at_ci95 else ""
    plural = "" if (bound.at_ci95 or (0, bound.at))[1] == 1 else "s"
    text = (
        f"{bound.at:,.0f}{interval} connection{plural}: {most} at most, and "
        f"{formatting.number(bound.idle_response_s * 1e6, 'us')} when idle"
    )
    return text + (f" with {bound.think_s:g} s of think time" if bound.think_s else "")
