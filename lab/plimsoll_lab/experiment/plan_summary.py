"""What a plan would bring, before anything runs: points, time, and whether it could tell a winner
at all.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import cast

import numpy as np

from plimsoll_lab.analysis.summary import too_few_repetitions
from plimsoll_lab.hosts.samplers.environment import lacks, read_environment
from plimsoll_lab.stats.best import LEAST_BLOCKS, can_say_anything, detectable_ratio
from plimsoll_lab.store.records import Json
from plimsoll_lab.suite import units
from plimsoll_lab.suite.expand import as_text, contender_path, predicted_s
from plimsoll_lab.suite.figures import CAPACITY
from plimsoll_lab.suite.foresight import too_short
from plimsoll_lab.suite.spec import Plan

SUPPOSED_NOISE = 0.03
"""The relative standard deviation between blocks that this project sees of rates and CPU times on a
quiet machine."""


def _detectable(repeat: int, comparisons: int) -> Json:
    """Which difference the plan shows in four of five runs, at a supposed noise; null where it can
    show none.
    """
    found = detectable_ratio(blocks=repeat, comparisons=comparisons, noise=SUPPOSED_NOISE, rng=np.random.default_rng(1))
    return {"noise": SUPPOSED_NOISE, "difference": found - 1 if math.isfinite(found) else None}


def describe_plan(plan: Plan) -> Json:
    """A plan, as data."""
    compare = contender_path(plan)
    settings = {
        repr({path: value for path, value in point.setting.items() if path != compare}) for point in plan.points
    }
    contenders = {as_text(point.setting[compare]) for point in plan.points} if compare else set()
    # Searches compete in what they find, whatever the figures of their trials.
    figures = plan.suite.verdict.figures if plan.suite.search is None else (CAPACITY,)
    family = len(settings) * len(figures) if len(contenders) > 1 else 0
    repeat = plan.suite.run.repeat
    warnings: list[Json] = []
    if family and not can_say_anything(repeat):
        warnings.append(too_few_repetitions(repeat))
    warnings += [
        {
            "code": "window_too_short_for_limit",
            "message": f"'{limit.text}' needs {needed:,} requests in each window to be told from luck, "
            f"and the smallest load here brings about {fewest:,.0f}",
            "remedy": "a longer [load] duration, more connections or a higher rate, or a limit less strict",
        }
        for limit, needed, fewest in too_short(plan)
    ]
    most = max(units.count(cast("str", point.load.get("connections", 64))) for point in plan.points)
    warnings += [
        {"code": "machine_lacks", "message": what.partition("; ")[0], "remedy": what.partition("; ")[2]}
        for what in lacks(most, read_environment(""))
    ]
    return {
        "event": "plan",
        "suite": plan.suite.name,
        "question": plan.suite.question,
        "seed": plan.seed,
        "search": None if plan.suite.search is None else asdict(plan.suite.search),
        "repeat": repeat,
        "predicted_s": predicted_s(plan),
        "points": [{"number": point.number, "point": dict(point.setting)} for point in plan.points],
        "trials": [{"number": each.number, "block": each.block, "point": each.point} for each in plan.trials],
        "family": {
            "compare": compare,
            "figures": list(figures),
            "comparisons": family,
            "repetitions_needed": LEAST_BLOCKS if family else None,
            "detectable": _detectable(repeat, family * math.comb(len(contenders), 2)) if family else None,
        },
        "warnings": warnings,
    }
