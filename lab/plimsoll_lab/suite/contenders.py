"""Contenders by name, points one by one, and cells of the matrix to leave out: the tables beside
[matrix], typed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from plimsoll_lab.suite import keys
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import suggest
from plimsoll_lab.suite.settings import Settings, Value
from plimsoll_lab.suite.spec import Axis
from plimsoll_lab.suite.tables import as_setting, as_table, as_tables, not_a_table

CONTENDER = "contender"
"""The path of a contender's name in a point's setting."""
POINT = "point"
"""The path of a point's name in its setting."""
STARTS = {"command", "address"}
"""A contender with one of these is a server of its own: nothing else that [server] says applies."""
KEPT = {"ready", "protocol"}
"""But for these."""
VARIED = ("server", "load", "network", "role")
"""Tables whose settings may vary."""
PLACE_LOAD = "place.load"
"""Of another table the one setting that may: the hosts of the generators."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def read_contenders(raw: object, *, source: str) -> Mapping[str, Settings]:
    """[contender.NAME]: each table is laid over [server]."""
    refusal = f"{source}: contender: not a table; write [contender.NAME] and what differs from [server] below"
    found: dict[str, Settings] = {}
    for name, raw_table in as_table(raw, refusal=refusal).items():
        if not _NAME.fullmatch(name):
            raise SuiteError(f"{source}: [contender.{name}]: not a plain name; use letters, digits, dots and dashes")
        refusal = f"{source}: {not_a_table(f'contender.{name}')}"
        table = as_table(raw_table, refusal=refusal)
        found[name] = {key: as_setting(value, f"{source}: [contender.{name}] {key}") for key, value in table.items()}
    return found


def check_path(path: str, *, where: str, source: str) -> None:
    """Refuse a path that cannot vary."""
    head, _, key = path.partition(".")
    # A role's path has its name in the middle.
    if path != PLACE_LOAD and (head not in VARIED or not key or key.count(".") != (head == "role")):
        raise SuiteError(
            f'{source}: {where}: not a path that can vary; write "server.KEY", "load.KEY", "network.KEY", '
            f'"role.NAME.KEY" or "{PLACE_LOAD}", quoted'
        )


def read_points(raw: object, *, source: str, changed: Collection[str] = ()) -> tuple[Settings, ...]:
    """[[point]]: the settings of one point each, by dotted path; a name, where it has one, under
    `point`. Those that a change has made alike are one point.
    """
    refusal = f"{source}: point: not a list of tables; write [[point]] above the settings of each"
    points: list[Settings] = []
    for number, table in enumerate(as_tables(raw, refusal=refusal), start=1):
        where = f"[[point]] {number}"
        settings: dict[str, Value] = {}
        for path, value in table.items():
            if path in keys.POINT:
                if not isinstance(value, str) or not value.strip():
                    raise SuiteError(f"{source}: {where} name: {value!r} is not a text")
                settings[POINT] = value
                continue
            if isinstance(value, dict):
                raise SuiteError(f'{source}: {where} {path}: a path has to be quoted, such as "{path}.KEY" = ...')
            check_path(path, where=f"{where} {path}", source=source)
            settings[path] = as_setting(value, f"{source}: {where} {path}")
        if settings.keys() <= {POINT}:
            raise SuiteError(f'{source}: {where}: it sets nothing; write such as "load.connections" = 3000')
        if settings in points and not settings.keys() & set(changed):
            raise SuiteError(f"{source}: {where}: the same point is listed twice; repetitions belong to [run] repeat")
        points.append(settings)
    return tuple(points)


def read_exclusions(raw: object, axes: Sequence[Axis], *, source: str) -> tuple[Settings, ...]:
    """`exclude` in [matrix]: cells that agree with all settings of one of these tables are left
    out.
    """
    where = "[matrix] exclude"
    refusal = f'{source}: {where}: not a list of tables; write [{{ "server.model" = "select" }}]'
    values = {axis.path: axis.values for axis in axes}
    excluded = []
    for table in as_tables(raw, refusal=refusal):
        if not table:
            raise SuiteError(refusal)
        settings = {path: as_setting(value, f"{source}: {where} {path}") for path, value in table.items()}
        for path, value in settings.items():
            if path not in values:
                raise SuiteError(f"{source}: {where}: '{path}' is not an axis of the matrix{suggest(path, values)}")
            if value not in values[path]:
                known = ", ".join(map(str, values[path]))
                raise SuiteError(f"{source}: {where}: '{path}' never is {value!r}; its values are {known}")
        excluded.append(settings)
    return tuple(excluded)
