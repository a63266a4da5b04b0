"""A suite's matrix into points, and its points into trials in randomised blocks."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from plimsoll_lab.suite.checks import check_documents, check_point, compete_along
from plimsoll_lab.suite.contenders import CONTENDER, POINT
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import suggest
from plimsoll_lab.suite.lines import naming_line, origin_of
from plimsoll_lab.suite.network import refuse_emulated_links
from plimsoll_lab.suite.placement import apply_setting, assign_hosts, place_of
from plimsoll_lab.suite.settings import Settings, Value
from plimsoll_lab.suite.spec import Plan, PlannedTrial, Point, Suite

POINTS_MOST = 100_000
TRIALS_MOST = 1_000_000
"""Each point and each trial of a plan takes memory before the first one is measured. A million
trials of a second take twelve days."""


def expand(suite: Suite, *, seed: int, only: Mapping[str, Sequence[str]] | None = None, cluster: bool = False) -> Plan:
    """Expand a suite into a plan, for one machine or a cluster; `only` keeps the points whose
    setting at a path is one of the given texts.
    """
    with naming_line(suite.lines, suite.source):
        points = tuple(_points(suite, only or {}, cluster=cluster))
        whole = [each for each in _settings(suite) if each is not None]
        if not points:
            culprit = "--only" if only and whole else "[matrix] exclude"
            raise SuiteError(f"{suite.source}: {culprit} leaves no point of the matrix; loosen it")
        # Which paths vary is only seen of the whole suite.
        check_documents(suite, whole)
        points += tuple(_controls(suite, points))
        _refuse_too_many_trials(suite, len(points))
    return Plan(suite=suite, seed=seed, points=points, trials=_blocks(points, suite.run.repeat, seed))


def _refuse_too_many_points(suite: Suite) -> None:
    cells = math.prod(len(axis.values) for axis in suite.axes)
    # The number itself may be too long to be printed.
    if cells > POINTS_MOST:
        raise SuiteError(
            f"{suite.source}: [matrix]: its axes have more than {POINTS_MOST:,} combinations, the most that a plan can "
            "hold; leave values out, or state the points that matter as [[point]]"
        )


def _refuse_too_many_trials(suite: Suite, points: int) -> None:
    if points * suite.run.repeat > TRIALS_MOST:
        raise SuiteError(
            f"{suite.source}: [run] repeat: {suite.run.repeat:,} repetitions of {points:,} points are more trials than "
            f"a plan can hold; the most is {TRIALS_MOST:,}: repeat less, or leave points out"
        )


def _controls(suite: Suite, points: Sequence[Point]) -> list[Point]:
    """The first contender of each setting once more: what two that are alike differ by is the noise
    floor.
    """
    compare = compete_along(suite)
    if not suite.verdict.control or compare is None or suite.search is not None:
        return []
    first: dict[str, Point] = {}
    for point in points:
        first.setdefault(repr({path: value for path, value in point.setting.items() if path != compare}), point)
    after = 1 + max(point.number for point in points)
    return [replace(point, number=after + place, control=True) for place, point in enumerate(first.values())]


def contender_path(plan: Plan) -> str | None:
    """The path whose values compete; None where nothing does."""
    return compete_along(plan.suite)


def _points(suite: Suite, only: Mapping[str, Sequence[str]], *, cluster: bool) -> list[Point]:
    settings = _settings(suite)
    _check_only(suite, only, [each for each in settings if each is not None])
    points = []
    for number, setting in enumerate(settings):
        if setting is None or any(as_text(setting.get(path, "")) not in wanted for path, wanted in only.items()):
            continue
        with naming_line(suite.lines, suite.source, origin_of(setting, suite.single_points)):
            points.append(_point(suite, number, setting, cluster=cluster))
    return points


def _point(suite: Suite, number: int, setting: Settings, *, cluster: bool) -> Point:
    server, load, network, roles = apply_setting(suite, setting)
    place, roles = assign_hosts(network, place_of(suite, setting), roles, source=suite.source, cluster=cluster)
    point = Point(number=number, setting=setting, server=server, load=load, network=network, place=place, roles=roles)
    if cluster and network is not None:
        refuse_emulated_links(network, source=suite.source)
        point = replace(point, network=None, addresses=network.addresses)
    check_point(suite, point)
    return point


def _settings(suite: Suite) -> list[Settings | None]:
    """The setting of every cell of the matrix, None where it is excluded, and of every single
    point. Each has its paths in the same order, whatever order a point has them in.
    """
    _refuse_too_many_points(suite)
    found: list[Settings | None] = []
    if suite.matrix or not suite.single_points:
        for cell in itertools.product(*(axis.values for axis in suite.axes)):
            setting: dict[str, Value] = {axis.path: value for axis, value in zip(suite.axes, cell, strict=True)}
            excluded = any(all(setting[path] == value for path, value in each.items()) for each in suite.excluded)
            found.append(None if excluded else setting)
    named: list[Settings] = [{CONTENDER: name} for name in suite.contenders] or [{}]
    single = [{**contender, **point} for contender in named for point in suite.single_points]
    cells = [_in_words(each) for each in found if each is not None]
    for place, each in enumerate(single):
        if _in_words(each) not in cells:
            cells.append(_in_words(each))
            found.append(each)
        elif not each.keys() & set(suite.lines.changed):
            words = ", ".join(f"{path}={value}" for path, value in _in_words(each).items())
            number = 1 + place % len(suite.single_points)
            why = f"{words} is a cell of the matrix too; repetitions belong to [run] repeat"
            raise SuiteError(f"{suite.source}: [[point]] {number}: {why}")
    paths = dict.fromkeys((CONTENDER, POINT, *(path for each in found if each is not None for path in each)))
    return [each and {path: each[path] for path in paths if path in each} for each in found]


def _in_words(setting: Settings) -> dict[str, str]:
    return {path: as_text(value) for path, value in setting.items()}


def _check_only(suite: Suite, only: Mapping[str, Sequence[str]], settings: Sequence[Settings]) -> None:
    for path, wanted in only.items() if settings else ():
        paths = {each for setting in settings for each in setting}
        if path not in paths:
            raise SuiteError(f"{suite.source}: --only {path}: not an axis of the matrix{suggest(path, paths)}")
        known = dict.fromkeys(as_text(setting[path]) for setting in settings if path in setting)
        for each in wanted:
            if each not in known:
                raise SuiteError(f"{suite.source}: --only {path}={each}: no such value{suggest(each, known)}")


def as_text(value: Value) -> str:
    """A setting as a person would type it."""
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _blocks(points: Sequence[Point], repeat: int, seed: int) -> tuple[PlannedTrial, ...]:
    # random.random() of a given seed is the one sequence Python promises to keep the same from
    # version to version.
    draw = random.Random(seed)  # noqa: S311 - an order, not a secret
    trials: list[PlannedTrial] = []
    for block in range(1, repeat + 1):
        for point in sorted(points, key=lambda _: draw.random()):
            trials.append(PlannedTrial(number=len(trials) + 1, block=block, point=point.number))
    return tuple(trials)
