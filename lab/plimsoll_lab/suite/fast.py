"""[fast]: what a suite is with `--fast`, the same shape in a minute or two, laid over its other
tables.
"""

from __future__ import annotations

from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.tables import Table, as_table, as_tables, not_a_table, not_tables

FAST_REPEAT = 2
"""Repetitions of a suite that says nothing else: for a look, not for a verdict."""


def apply_fast(tables: Table, *, fast: bool, source: str) -> dict[str, object]:
    """The tables of a suite as they are read: [fast] is gone, and where it is asked for lies over
    the rest.

    A table of [fast] replaces the keys it names; a list, such as [[fast.point]], replaces the whole
    list. Roles keep their order: [fast.role.NAME] replaces keys of one of them.
    """
    refusal = f"{source}: fast: write [fast.TABLE] and, below it, what [TABLE] is with --fast"
    given = as_table(tables.get("fast", {}), refusal=refusal)
    if any(not isinstance(each, dict | list) for each in given.values()):
        raise SuiteError(refusal)
    rest = {key: value for key, value in tables.items() if key != "fast"}
    if not fast:
        return rest
    for name, over in {"run": {}, **given}.items():
        if name == "role":
            rest[name] = _roles(rest.get(name, []), over, source=source)
        elif isinstance(over, list):
            rest[name] = over
        else:
            least: Table = {"repeat": FAST_REPEAT} if name == "run" else {}
            rest[name] = {**_below(rest, name, source=source), **least, **as_table(over, refusal=refusal)}
    return rest


def _below(tables: Table, name: str, *, source: str) -> Table:
    """The table that [fast.NAME] changes."""
    raw = tables.get(name, {})
    if isinstance(raw, list):
        raise SuiteError(
            f"{source}: fast.{name}: '{name}' is a list of tables; write [[fast.{name}]], which replaces all of them"
        )
    return as_table(raw, refusal=f"{source}: {not_a_table(name)}")


def _roles(raw: object, over: object, *, source: str) -> list[Table]:
    """The [[role]] tables, each with what [fast.role.NAME] replaces."""
    roles = as_tables(raw, refusal=f"{source}: {not_tables('role')}")
    changes = as_table(over, refusal=f"{source}: fast.role: write [fast.role.NAME] and what it is with --fast")
    names = [str(role.get("name")) for role in roles]
    for name in changes:
        if name not in names:
            raise SuiteError(f"{source}: [fast.role.{name}]: there is no role '{name}'")
    refusals = (f"{source}: {not_a_table(f'fast.role.{name}')}" for name in names)
    return [
        {**role, **as_table(changes.get(name, {}), refusal=refusal)}
        for role, name, refusal in zip(roles, names, refusals, strict=True)
    ]
