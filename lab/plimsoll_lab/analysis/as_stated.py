"""Where a run is not its suite as it is written: `--set`, `--rtt`, `--loss`, `--only` and `--fast`
change what a point of a document means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.settings import Settings, Value
from plimsoll_lab.suite.spec import Plan, Point

HARMLESS = ("run.repeat", "run.seed", "run.ready_timeout", "run.trial_timeout")
"""Changes that leave every point what it was."""
CLUSTER = "ray:"
"""How the record names a cluster."""


def changes_at(run: RunRecord) -> Callable[[Settings], str | None]:
    """What answers, of a point of a document, how this run changed it; None where it did not."""
    asked = run.request
    changes = {path: value for path, value in asked.changes.items() if path not in HARMLESS}
    told = bool(run.claims or run.references)
    if not told or not (changes or asked.only or asked.fast):
        return lambda _: None
    try:
        own, made = _plan(run, {}, fast=False), _plan(run, changes, fast=asked.fast)
    except SuiteError as refusal:
        why = f"the suite cannot be read again, and so nobody knows what this run changed: {refusal}"
        return lambda _: why
    measured = [point.setting for point in run.points]
    here = [point for point in made.points if point.setting in measured]
    whole = _differences("", _of_all(made), _of_all(own))

    def answer(place: Settings) -> str | None:
        mine, theirs = _matching(here, place), _matching(own.points, place)
        if len(mine) != 1:
            return None
        if len(theirs) != 1:
            those = f"{len(theirs)} points of the suite agree" if theirs else "no point of the suite agrees"
            return f"{those} with it as it is written"
        changed = [*_changed(mine[0], theirs[0]), *whole]
        return f"this run changed the suite there: {', '.join(changed)}" if changed else None

    return answer


def _plan(run: RunRecord, changes: Mapping[str, Value], *, fast: bool) -> Plan:
    suite = read_text(
        run.suite.text,
        source=run.suite.source,
        directory=run.suite.directory,
        changes={**changes, "run.repeat": 1},
        fast=fast,
    )
    return expand(suite, seed=run.seed, cluster=(run.request.hosts or "").startswith(CLUSTER))


def _matching(points: Sequence[Point], place: Settings) -> list[Point]:
    return [
        point
        for point in points
        if not point.control and all(point.setting.get(path) == value for path, value in place.items())
    ]


def _changed(mine: Point, theirs: Point) -> list[str]:
    changed = [*_differences("server.", mine.server, theirs.server), *_differences("load.", mine.load, theirs.load)]
    roles, others = ({role.name: role for role in point.roles} for point in (mine, theirs))
    for name in sorted({*roles, *others}):
        one, other = roles.get(name), others.get(name)
        if one is None or other is None:
            changed.append(f"role {name} is {'not there' if one is None else 'added'}")
            continue
        changed += _differences(f"role.{name}.", one.settings, other.settings)
        if (one.kind, one.on, one.measured) != (other.kind, other.on, other.measured):
            changed.append(f"role {name} is another")
    if (mine.network, mine.place, mine.addresses) != (theirs.network, theirs.place, theirs.addresses):
        changed.append("the network is another")
    return changed


def _of_all(plan: Plan) -> dict[str, object]:
    """What holds at every point."""
    return {"capture": plan.suite.capture, "run.warm_up": plan.suite.run.warm_up}


def _differences(prefix: str, mine: Mapping[str, object], theirs: Mapping[str, object]) -> list[str]:
    return [
        f"{prefix}{key} is {_word(mine.get(key))} and not {_word(theirs.get(key))}"
        for key in dict.fromkeys((*theirs, *mine))
        if mine.get(key) != theirs.get(key)
    ]


def _word(value: object) -> str:
    if value is None:
        return "unset"
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
