"""A suite's TOML, typed: whatever is unknown or out of range is refused here, with what, why and
how to fix it.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from plimsoll_lab.suite import units
from plimsoll_lab.suite.changes import apply_change
from plimsoll_lab.suite.checks import check_compare, check_roles, check_statuses
from plimsoll_lab.suite.claims import read_claims, read_references
from plimsoll_lab.suite.contenders import CONTENDER, check_path, read_contenders, read_exclusions, read_points
from plimsoll_lab.suite.drawn import read_drawn
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expect import read_expectation
from plimsoll_lab.suite.fast import apply_fast
from plimsoll_lab.suite.figures import BY_NAME, figure_named, figure_of_limit, read_limit, suggest
from plimsoll_lab.suite.keys import EXCLUDE, RUN, TOP, VERDICT
from plimsoll_lab.suite.lines import Lines, naming_line, read_lines
from plimsoll_lab.suite.placement import read_place, read_roles
from plimsoll_lab.suite.search import check_search, read_search
from plimsoll_lab.suite.settings import Settings, Value
from plimsoll_lab.suite.spec import Axis, Limit, RunSettings, Suite, VerdictSettings
from plimsoll_lab.suite.tables import Table, as_setting, as_table, not_a_table, refuse_unknown

TABLES = (
    *TOP,
    *("server", "load", "matrix", "run", "limits", "verdict", "search"),
    *("network", "place", "role", "contender", "point", "expect"),
    *("reference", "claim", "chart", "fast"),
)
GATE_FIGURES = ("completed_rate", "server.cpu_us_per_request")
"""What a gate judges where its suite does not say."""
REPEAT_MOST = 100_000
"""Each trial of a plan takes memory before the first one is made."""
MOST_SEED = 2**63 - 1
"""The greatest whole number of TOML, and of a table in SQL."""
DEPTH_MOST = 30
"""Tables and lists within each other. A suite has up to seven, and Python's stack has room for
hundreds."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_file(path: Path, *, changes: Mapping[str, Value] | None = None) -> Suite:
    """Read a suite from a file, with some changes."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SuiteError(f"{path}: cannot read the suite: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SuiteError(f"{path}: cannot read the suite: it is not UTF-8 text") from None
    return read_text(text, source=str(path), directory=str(path.resolve().parent), changes=changes)


def read_text(
    text: str, *, source: str, directory: str, changes: Mapping[str, Value] | None = None, fast: bool = False
) -> Suite:
    """Read a suite from text; `changes` are settings by dotted path that win over the file, and
    over its [fast].
    """
    tables = _parse(text, source=source)
    lines = read_lines(text, fast=fast, changed=frozenset(changes or {}))
    with naming_line(lines, source):
        _refuse_unknown_tables(tables, source=source)
        tables = apply_fast(tables, fast=fast, source=source)
        for path, value in (changes or {}).items():
            apply_change(tables, path, value, source=source)
        _refuse_unknown_tables(tables, source=source)
        return _typed(tables, text, lines, source=source, directory=directory)


def _parse(text: str, *, source: str) -> dict[str, object]:
    """The tables of a text in TOML."""
    refusal = f"{source}: cannot read the suite: more than {DEPTH_MOST} tables or lists lie within each other"
    try:
        tables: dict[str, object] = tomllib.loads(text)
    except RecursionError:
        raise SuiteError(refusal) from None
    except ValueError as error:  # of a number of thousands of digits it is no TOMLDecodeError
        raise SuiteError(f"{source}: not valid TOML: {error}") from None
    if _is_deeper(tables, DEPTH_MOST):
        raise SuiteError(refusal)
    return tables


def _is_deeper(tables: Table, most: int) -> bool:
    """Whether more than so many tables and lists lie within each other."""
    level: list[object] = [tables]
    for _ in range(most):
        within = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = list(itertools.chain.from_iterable(within))
    return any(isinstance(each, dict | list) for each in level)


def _typed(tables: dict[str, object], text: str, lines: Lines, *, source: str, directory: str) -> Suite:
    """A suite of the tables that hold in the end."""
    contenders = _read_contenders(tables, source=source)
    if contenders:
        tables.setdefault("server", {})
    matrix = _matrix(_table(tables, "matrix", source=source), source=source)
    suite = Suite(
        name=_name(tables, source=source),
        question=_text(tables, "question", source=source),
        source=source,
        directory=directory,
        text=text,
        server=_settings(tables, "server", source=source),
        load=_settings(tables, "load", source=source),
        matrix=matrix,
        run=_run(_table(tables, "run", source=source), source=source),
        limits=_limits(_table(tables, "limits", source=source), source=source),
        verdict=_verdict(_table(tables, "verdict", source=source), source=source),
        search=read_search(_table(tables, "search", source=source), source=source) if "search" in tables else None,
        network=_table(tables, "network", source=source) if "network" in tables else None,
        place=read_place(_table(tables, "place", source=source), source=source),
        roles=read_roles(tables.get("role", []), source=source),
        capture=_switch(tables, "capture", source=source),
        processes=_switch(tables, "processes", source=source),
        contenders=contenders,
        single_points=read_points(tables.get("point", []), source=source, changed=lines.changed),
        expectations=tuple(
            read_expectation(_expected(figure), condition, source=source, named=figure)
            for figure, condition in _flat(_table(tables, "expect", source=source)).items()
        ),
        references=read_references(tables.get("reference", []), source=source),
        claims=read_claims(tables.get("claim", []), source=source),
        drawn=read_drawn(tables.get("chart", []), source=source),
        lines=lines,
    )
    exclude = _table(tables, "matrix", source=source).get("exclude", [])
    suite = replace(suite, excluded=read_exclusions(exclude, suite.axes, source=source))
    if suite.search is not None:
        check_search(suite, suite.search)
    check_compare(suite)
    check_statuses(suite)
    check_roles(suite)
    return suite


def _refuse_unknown_tables(tables: Table, *, source: str) -> None:
    for key in tables:
        if key not in TABLES:
            raise SuiteError(f"{source}: '{key}': unknown key{suggest(key, TABLES)}")


def _table(tables: Table, key: str, *, source: str) -> Table:
    return as_table(tables.get(key, {}), refusal=f"{source}: {not_a_table(key)}")


def _text(table: Table, key: str, *, source: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value.strip():
        raise SuiteError(f"{source}: '{key}': missing or empty; a suite says its {key} in a text")
    return value


def _name(tables: Table, *, source: str) -> str:
    name = _text(tables, "name", source=source)
    if not _NAME.fullmatch(name):
        raise SuiteError(f"{source}: 'name': '{name}' is not a plain name; use letters, digits, dots and dashes")
    return name


def _settings(tables: Table, key: str, *, source: str) -> Settings:
    if key not in tables:
        raise SuiteError(f"{source}: [{key}]: missing; a suite needs a [server] (or contenders) and a [load]")
    table = _table(tables, key, source=source)
    return {name: as_setting(raw, f"{source}: [{key}] {name}") for name, raw in table.items()}


def _switch(tables: Table, key: str, *, source: str) -> bool:
    value = tables.get(key, False)
    if not isinstance(value, bool):
        raise SuiteError(f"{source}: {key}: {value!r} is neither true nor false")
    return value


def _read_contenders(tables: Table, *, source: str) -> Mapping[str, Settings]:
    return read_contenders(tables.get(CONTENDER, {}), source=source)


def _expected(name: str) -> str:
    """The figure of a line of [expect], by its name in a limit too; any other path in the records
    stays as it is.
    """
    figure = figure_of_limit(name)
    return name if figure is None else figure.name


def _flat(table: Table, prefix: str = "") -> dict[str, object]:
    """Unquoted dotted keys are nested tables in TOML: back to dotted paths."""
    found: dict[str, object] = {}
    for key, value in table.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return found


def _matrix(table: Table, *, source: str) -> tuple[Axis, ...]:
    axes = []
    for path, raw in table.items():
        if path in EXCLUDE:
            continue
        where = f"[matrix] {path}"
        check_path(path, where=where, source=source)
        if not isinstance(raw, list) or not raw:
            raise SuiteError(f"{source}: {where}: {raw!r} is not a list of values")
        values = tuple(as_setting(each, f"{source}: {where}") for each in raw)
        # The text of its value identifies a contender: 1 and "1" are one.
        if len({" ".join(each) if isinstance(each, tuple) else str(each) for each in values}) < len(values):
            raise SuiteError(f"{source}: {where}: a value is listed twice; repetitions belong to [run] repeat")
        axes.append(Axis(path=path, values=values))
    return tuple(axes)


def _run(table: Table, *, source: str) -> RunSettings:
    refuse_unknown(table, RUN, f"{source}: [run]")
    defaults = RunSettings()
    repeat = _whole(table.get("repeat", defaults.repeat), "repeat", least=1, source=source)
    if repeat > REPEAT_MOST:
        raise SuiteError(f"{source}: [run] repeat: {repeat} is more than a plan can hold; the most is {REPEAT_MOST:,}")
    seed = _whole(table["seed"], "seed", least=0, source=source) if "seed" in table else None
    if seed is not None and seed > MOST_SEED:
        raise SuiteError(f"{source}: [run] seed: {seed} is more than {MOST_SEED}")
    order = table.get("order", defaults.order)
    if order != "blocks":
        raise SuiteError(f"{source}: [run] order: {order!r} is not supported; write 'blocks', or nothing")
    warm_up = str(table["warm_up"]) if "warm_up" in table else None
    if warm_up is not None:
        _seconds(table["warm_up"], "warm_up", source=source)
    return RunSettings(
        repeat=repeat,
        warm_up=warm_up,
        seed=seed,
        ready_timeout=_seconds(table.get("ready_timeout", "10s"), "ready_timeout", source=source),
        trial_timeout=(
            _seconds(table["trial_timeout"], "trial_timeout", source=source) if "trial_timeout" in table else None
        ),
    )


def _whole(value: object, key: str, *, least: int, source: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise SuiteError(f"{source}: [run] {key}: {value!r} is not a whole number of at least {least}")
    return value


def _seconds(value: object, key: str, *, source: str) -> float:
    if not isinstance(value, str):
        raise SuiteError(f"{source}: [run] {key}: {value!r} has no unit; write a text such as '3s'")
    try:
        return units.duration_s(value)
    except ValueError as refusal:
        raise SuiteError(f"{source}: [run] {key}: {refusal}") from None


def _limits(table: Table, *, source: str) -> tuple[Limit, ...]:
    return tuple(read_limit(name, condition, source=source) for name, condition in table.items())


def _verdict(table: Table, *, source: str) -> VerdictSettings:
    refuse_unknown(table, VERDICT, f"{source}: [verdict]")
    defaults = VerdictSettings()
    baseline = table.get("baseline")
    if baseline is not None and not isinstance(baseline, str):
        raise SuiteError(f"{source}: [verdict] baseline: {baseline!r} is not the name of a contender")
    figures = table.get("figures", list(GATE_FIGURES if baseline is not None else defaults.figures))
    if not isinstance(figures, list):
        raise SuiteError(f"{source}: [verdict] figures: {figures!r} is not a list of figures")
    for name in figures:
        if not isinstance(name, str) or figure_named(name) is None:
            raise SuiteError(f"{source}: [verdict] figures: '{name}' is no figure{suggest(str(name), BY_NAME)}")
        if figures.count(name) > 1:
            raise SuiteError(f"{source}: [verdict] figures: '{name}' is listed twice")
    margin = _part(table, "margin", defaults.margin, source=source)
    tolerance = _part(table, "tolerance", defaults.tolerance, source=source)
    if "tolerance" in table and baseline is None:
        raise SuiteError(f"{source}: [verdict] tolerance: of a gate; name its baseline too, such as baseline = 'old'")
    compare = table.get("compare")
    if compare is not None and not isinstance(compare, str):
        raise SuiteError(f"{source}: [verdict] compare: {compare!r} is not the path of an axis")
    control = table.get("control", False)
    if not isinstance(control, bool):
        raise SuiteError(f"{source}: [verdict] control: {control!r} is neither true nor false")
    return VerdictSettings(
        compare=compare,
        figures=tuple(figures),
        margin=margin,
        control=control,
        baseline=baseline,
        tolerance=tolerance,
    )


def _part(table: Table, key: str, default: float, *, source: str) -> float:
    if key not in table:
        return default
    try:
        part = units.part(str(table[key]))
    except ValueError as refusal:
        raise SuiteError(f"{source}: [verdict] {key}: {refusal}") from None
    if part <= 0:
        raise SuiteError(f"{source}: [verdict] {key}: it has to be above 0, such as '5%'")
    return part
