"""[fast]: what a suite is with `--fast`, the same shape in a minute or two, laid over its other
tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from plimsoll_lab.suite.errors import SuiteError

FAST_REPEAT = 2
"""Repetitions of a suite that says nothing else: for a look, not for a verdict."""


def lay_fast(tables: dict[str, object], *, fast: bool, source: str) -> dict[str, object]:
    """The tables of a suite as they are read: [fast] is gone, and where it is asked for lies over
    the rest.

    A table of [fast] replaces the keys it names; a list, such as [[fast.point]], replaces the whole
    list. Roles keep their order: [fast.role.NAME] replaces keys of one of them.
    """
    given = tables.get("fast", {})
    if not isinstance(given, dict) or any(not isinstance(each, dict | list) for each in given.values()):
        raise SuiteError(f"{source}: fast: write [fast.TABLE] and, below it, what [TABLE] is with --fast")
    rest = {key: value for key, value in tables.items() if key != "fast"}
    if not fast:
        return rest
    repeat = {"repeat": FAST_REPEAT, **cast("dict[str, object]", given.get("run", {}))}
    for name, over in {**given, "run": repeat}.items():
        if name == "role":
            rest["role"] = _roles(rest.get("role", []), cast("Mapping[str, object]", over), source=source)
        elif isinstance(over, list):
            rest[name] = over
        else:
            rest[name] = {**cast("dict[str, object]", rest.get(name, {})), **over}
    return rest


def _roles(roles: object, over: Mapping[str, object], *, source: str) -> list[dict[str, object]]:
    named = cast("list[dict[str, object]]", roles)
    for name in over:
        if name not in {each.get("name") for each in named}:
            raise SuiteError(f"{source}: [fast.role.{name}]: there is no role '{name}'")
    return [{**each, **cast("dict[str, object]", over.get(str(each.get("name")), {}))} for each in named]
