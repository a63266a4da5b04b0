"""Settings that win over a suite: each `--set` is applied to its tables before they are typed."""

from __future__ import annotations

from plimsoll_lab.suite.contenders import CONTENDER, KEPT, POINT, STARTS
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import suggest
from plimsoll_lab.suite.settings import Value
from plimsoll_lab.suite.tables import as_table, as_tables, as_toml, not_a_table, not_tables
from plimsoll_lab.suite.whole_path import check_change


def apply_change(tables: dict[str, object], path: str, value: Value, *, source: str) -> None:
    """Apply one `--set`: an axis of the matrix is replaced by the one value, and so is what a
    [[point]] says, or what holds for a point that does not say it.
    """
    table, _, key = path.partition(".")
    if not key and path != "capture":
        raise SuiteError(f"--set {path}: write a dotted path, such as load.connections=2500")
    matrix = tables.get("matrix")
    matrix = matrix if isinstance(matrix, dict) else {}
    try:
        replaced = check_change(path, matrix)
    except SuiteError as refusal:
        raise SuiteError(f"{source}: {refusal}") from None
    varies = _change_variations(tables, matrix, path, value, source=source)
    _refuse_unheard(tables, path, varies=varies, source=source)
    if table == CONTENDER:
        _change_contender(tables, path, value, source=source)
        return
    if table == "role":
        change_role(tables, path, value, source=source)
        return
    if not key:
        tables[path] = value
        return
    home = as_table(tables.setdefault(table, {}), refusal=f"{source}: {not_a_table(table)}")
    home[key] = as_toml(value)
    if replaced is not None:
        home.pop(replaced, None)


def _change_variations(
    tables: dict[str, object], matrix: dict[str, object], path: str, value: Value, *, source: str
) -> bool:
    """Change what an axis of the matrix and each [[point]] say of a path; whether any of them
    does.
    """
    points = as_tables(tables.get(POINT, []), refusal=f"{source}: {not_tables(POINT)}")
    own = [point for point in points if path in point]
    for point in own:
        point[path] = as_toml(value)
    if path in matrix:
        matrix[path] = [value]
        _drop_exclusions(matrix, path, value)
    return path in matrix or bool(own)


def _refuse_unheard(tables: dict[str, object], path: str, *, varies: bool, source: str) -> None:
    """Refuse a change that would change nothing: of [fast], which has been laid over the suite, and
    of a setting of [server] that no contender takes from it.
    """
    table, _, key = path.partition(".")
    if table == "fast":
        raise SuiteError(f"{source}: --set {path}: a change wins over [fast]; write {key}")
    if table != "server" or varies:
        return
    refusal = f"{source}: {not_a_table(CONTENDER)}"
    contenders = {
        name: as_table(own, refusal=f"{source}: {not_a_table(f'{CONTENDER}.{name}')}")
        for name, own in as_table(tables.get(CONTENDER, {}), refusal=refusal).items()
    }
    if contenders and all(key in own or (own.keys() & STARTS and key not in KEPT) for own in contenders.values()):
        raise SuiteError(
            f"{source}: --set {path}: each contender says this itself, or is a server of its own; write "
            f"{CONTENDER}.NAME.{key}"
        )


def _drop_exclusions(matrix: dict[str, object], path: str, value: Value) -> None:
    """Without those of cells that are no more, as an axis has one value now."""
    excluded, kept = matrix.get("exclude"), as_toml(value)
    if isinstance(excluded, list):
        matrix["exclude"] = [each for each in excluded if not isinstance(each, dict) or each.get(path, kept) == kept]


def _change_contender(tables: dict[str, object], path: str, value: Value, *, source: str) -> None:
    _, _, rest = path.partition(".")
    name, _, key = rest.partition(".")
    if not key:
        raise SuiteError(f"--set {path}: write contender.NAME.KEY, such as contender.new.command")
    contenders = as_table(tables.setdefault(CONTENDER, {}), refusal=f"{source}: {not_a_table(CONTENDER)}")
    contender = as_table(contenders.setdefault(name, {}), refusal=f"{source}: {not_a_table(f'{CONTENDER}.{name}')}")
    contender[key] = as_toml(value)


def change_role(tables: dict[str, object], path: str, value: Value, *, source: str) -> None:
    """Apply one setting by path, `role.NAME.KEY`, to the tables of a suite."""
    name, _, key = path.removeprefix("role.").partition(".")
    roles = as_tables(tables.get("role", []), refusal=f"{source}: {not_tables('role')}")
    role = next((each for each in roles if each.get("name") == name), None)
    if role is None or not key:
        known = [str(each.get("name")) for each in roles]
        raise SuiteError(f"{source}: {path}: there is no role '{name}'{suggest(name, known) if known else ''}")
    role[key] = as_toml(value)
