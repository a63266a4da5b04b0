"""What a plan would measure, before anything runs: points, time, and whether it could show a winner
at all.
"""

from __future__ import annotations

import math

import numpy as np

from plimsoll_lab.analysis.run_warnings import too_few_repetitions
from plimsoll_lab.analysis.severity import graded
from plimsoll_lab.experiment.programs import PROGRAM_REMEDY, missing_programs
from plimsoll_lab.hosts.samplers.environment import descriptors
from plimsoll_lab.stats.best import can_say_anything, detectable_ratio
from plimsoll_lab.stats.gate import blocks_for
from plimsoll_lab.stats.reasons import counted, percent
from plimsoll_lab.stats.resampling import LEAST_BLOCKS
from plimsoll_lab.store.plan_record import Detectable, PlannedFamily, PlannedPoint, PlanSummary
from plimsoll_lab.store.records import ResultWarning
from plimsoll_lab.suite.expand import as_text, contender_path
from plimsoll_lab.suite.figures import CAPACITY
from plimsoll_lab.suite.prediction import most_connections, predicted_s
from plimsoll_lab.suite.sample_size import windows_too_short
from plimsoll_lab.suite.spec import Plan

SUPPOSED_NOISE = 0.03
"""The relative standard deviation between blocks that this project sees of rates and CPU times on a
quiet machine."""


def _detectable(repeat: int, comparisons: int) -> Detectable:
    """Which difference the plan shows in four of five runs, at a supposed noise; null where it can
    show none.
    """
    found = detectable_ratio(blocks=repeat, comparisons=comparisons, noise=SUPPOSED_NOISE, rng=np.random.default_rng(1))
    return Detectable(noise=SUPPOSED_NOISE, difference=found - 1 if math.isfinite(found) else None)


def _too_few_for_a_gate(repeat: int, tolerance: float, comparisons: int) -> list[ResultWarning]:
    """That a gate of so many repetitions often decides nothing."""
    needed = blocks_for(noise=SUPPOSED_NOISE, tolerance=tolerance, comparisons=max(1, comparisons))
    if needed is not None and repeat >= needed:
        return []
    more = f"{needed} repetitions (--repeat), or" if needed is not None else "a quieter machine than that, or"
    return [
        ResultWarning(
            code="gate_often_undecided",
            message=f"with {counted(repeat, 'repetition')} and a noise of {percent(SUPPOSED_NOISE)}, fewer than nine "
            f"of ten gates with a tolerance of {percent(tolerance)} decide anything",
            remedy=f"{more} a greater tolerance",
        )
    ]


def describe_plan(plan: Plan, *, on_a_cluster: bool = False) -> PlanSummary:
    """A plan, as data. Which programs the hosts of a cluster have is not known here."""
    compare = contender_path(plan)
    settings = {
        repr({path: value for path, value in point.setting.items() if path != compare}) for point in plan.points
    }
    contenders = {as_text(point.setting[compare]) for point in plan.points} if compare else set()
    # Searches compete in what they find, whatever the figures of their trials.
    figures = plan.suite.verdict.figures if plan.suite.search is None else (CAPACITY,)
    family = len(settings) * len(figures) if len(contenders) > 1 else 0
    repeat = plan.suite.run.repeat
    warnings = [too_few_repetitions(repeat)] if family and not can_say_anything(repeat) else []
    if plan.suite.verdict.baseline is not None and not warnings:
        warnings += _too_few_for_a_gate(repeat, plan.suite.verdict.tolerance, family * (len(contenders) - 1))
    warnings += [
        ResultWarning(
            code="window_too_short_for_limit",
            message=f"'{limit.text}' needs {needed:,} requests in each window to be judged, "
            f"and the smallest load here brings about {fewest:,.0f}",
            remedy="a longer [load] duration, more connections or a higher rate, or a limit less strict",
        )
        for limit, needed, fewest in windows_too_short(plan)
    ]
    needed = descriptors(*most_connections(plan.points))
    if needed.remedy:
        warnings.append(ResultWarning(code="machine_lacks", message=needed.said, remedy=needed.remedy))
    warnings += [
        ResultWarning(
            code="machine_lacks",
            message=f"this machine has no program '{each}', which the suite starts",
            remedy=PROGRAM_REMEDY,
        )
        for each in ([] if on_a_cluster else missing_programs(plan))
    ]
    return PlanSummary(
        suite=plan.suite.name,
        question=plan.suite.question,
        seed=plan.seed,
        search=plan.suite.search,
        repeat=repeat,
        predicted_s=predicted_s(plan),
        points=[PlannedPoint(number=point.number, point=point.setting) for point in plan.points],
        trials=plan.trials,
        family=PlannedFamily(
            compare=compare,
            figures=figures,
            comparisons=family,
            repetitions_needed=LEAST_BLOCKS if family else None,
            detectable=_detectable(repeat, family * math.comb(len(contenders), 2)) if family else None,
        ),
        warnings=graded(warnings),
    )
