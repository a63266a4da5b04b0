"""A suite's TOML, typed: whatever is unknown or out of range is refused here, with what, why and
how to fix it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from plimsoll_lab.suite import units
from plimsoll_lab.suite.claims import check_paths, read_claims, read_references, settings_of
from plimsoll_lab.suite.contenders import CONTENDER, check_path, read_contenders, read_exclusions, read_points
from plimsoll_lab.suite.drawn import check_drawn, read_drawn
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expect import read_expectation
from plimsoll_lab.suite.fast import lay_fast
from plimsoll_lab.suite.figures import BY_NAME, figure_named, read_limit, status_figure, suggest
from plimsoll_lab.suite.flags import DESTINATIONS, FORWARD_FLAGS, LOAD_FLAGS, SERVER_FLAGS, check_setting
from plimsoll_lab.suite.keys import ATTACHED, COMMAND, EXCLUDE, RUN, TOP, VERDICT
from plimsoll_lab.suite.placement import change_role, check_references, read_place, read_roles, start_order
from plimsoll_lab.suite.search import check_search, read_search
from plimsoll_lab.suite.settings import Settings, Value, quantity
from plimsoll_lab.suite.spec import Axis, Limit, Point, RunSettings, Suite, VerdictSettings
from plimsoll_lab.suite.tables import Table, as_setting, as_table, as_toml, not_a_table, refuse_unknown
from plimsoll_lab.suite.whole_path import check_change

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
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_READY = re.compile(r"tcp:(\d+|\{port\})")


def read_file(path: Path) -> Suite:
    """Read a suite from a file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SuiteError(f"{path}: cannot read the suite: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SuiteError(f"{path}: cannot read the suite: it is not UTF-8 text") from None
    return read_text(text, source=str(path), directory=str(path.resolve().parent))


def read_text(
    text: str, *, source: str, directory: str, changes: Mapping[str, Value] | None = None, fast: bool = False
) -> Suite:
    """Read a suite from text; `changes` are settings by dotted path that win over the file, and
    over its [fast].
    """
    try:
        tables: dict[str, object] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SuiteError(f"{source}: not valid TOML: {error}") from None
    _refuse_unknown_tables(tables, source=source)
    tables = lay_fast(tables, fast=fast, source=source)
    for path, value in (changes or {}).items():
        apply_change(tables, path, value, source=source)
    _refuse_unknown_tables(tables, source=source)
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
        contenders=contenders,
        single_points=read_points(tables.get("point", []), source=source),
        expectations=tuple(
            read_expectation(figure, condition, source=source)
            for figure, condition in _flat(_table(tables, "expect", source=source)).items()
        ),
        references=read_references(tables.get("reference", []), source=source),
        claims=read_claims(tables.get("claim", []), source=source),
        drawn=read_drawn(tables.get("chart", []), source=source),
    )
    exclude = _table(tables, "matrix", source=source).get("exclude", [])
    suite = replace(suite, excluded=read_exclusions(exclude, suite.axes, source=source))
    if suite.search is not None:
        check_search(suite.search, suite.matrix, suite.load, suite.limits, source=source)
    check_compare(suite)
    check_limits(suite)
    return suite


def check_compare(suite: Suite) -> None:
    """What competes has to be an axis, and stated by every point beside the matrix."""
    source, compare = suite.source, suite.verdict.compare
    axes = [axis.path for axis in suite.axes]
    if compare is not None and compare not in axes:
        raise SuiteError(
            f"{source}: [verdict] compare: '{compare}' is not an axis of the matrix{suggest(compare, axes)}"
        )
    path = compete_along(suite)
    baseline = suite.verdict.baseline
    names = {str(value) for axis in suite.axes if axis.path == path for value in axis.values}
    if baseline is not None and baseline not in names:
        known = suggest(baseline, names) if names else "; give the contenders names with [contender.NAME]"
        raise SuiteError(f"{source}: [verdict] baseline: '{baseline}' is no contender{known}")
    if path in {None, CONTENDER}:
        return
    for number, settings in enumerate(suite.single_points, start=1):
        if path not in settings:
            raise SuiteError(f'{source}: [[point]] {number}: the contenders differ in {path}; add "{path}" = ...')


def compete_along(suite: Suite) -> str | None:
    """The path whose values compete: as stated, else the contenders, else the first axis if it
    varies the server.
    """
    if suite.verdict.compare is not None:
        return suite.verdict.compare
    first = suite.axes[0].path if suite.axes else ""
    return first if first == CONTENDER or first.startswith("server.") else None


def check_documents(suite: Suite, settings: Sequence[Settings]) -> None:
    """Refuse a reference, a claim or a chart over what does not vary."""
    paths = {path for setting in settings for path in setting}
    for number, reference in enumerate(suite.references, start=1):
        check_paths([reference.at], paths, f"{suite.source}: [[reference]] {number} at")
    for number, claim in enumerate(suite.claims, start=1):
        check_paths(settings_of(claim), paths, f"{suite.source}: [[claim]] {number}")
    check_drawn(suite.drawn, settings, source=suite.source)


def check_point(suite: Suite, point: Point) -> None:
    """Refuse a point that could not be started: its tables as a whole, after the matrix has been
    applied.
    """
    _check_server(suite.source, "server", point.server)
    _check_load(suite.source, "load", point.load)
    _check_shares(suite.source, point)
    for role in point.roles:
        where = f"role {role.name}"
        if role.kind == "load":
            _check_load(suite.source, where, role.settings, endless=not role.measured)
        elif role.kind == "server":
            _check_server(suite.source, where, role.settings)
        elif role.kind == "command":
            _check_command(suite.source, where, role.settings, must_listen=False)
        else:
            _check_forward(suite.source, where, role.settings)
    check_references(point.server, point.load, point.roles, source=suite.source)
    start_order(point.server, point.roles, source=suite.source)


def _check_server(source: str, table: str, server: Settings) -> None:
    if "address" in server:
        _check_attached(source, table, server)
    elif "command" in server:
        _check_command(source, table, server)
    else:
        for key in server:
            near = suggest(key, ("command", "ready", "address"))
            if near.startswith("; did you mean"):
                raise SuiteError(f"{source}: [{table}] {key}: unknown key{near}")
        _check_flags(source, table, SERVER_FLAGS, server)


def _check_load(source: str, table: str, load: Settings, *, endless: bool = False) -> None:
    _check_flags(source, table, LOAD_FLAGS, load)
    windows = [key for key in ("duration", "requests", "each") if key in load]
    if len(windows) > 1:
        raise SuiteError(f"{source}: [{table}] {' and '.join(windows)}: a window has one length; keep one of them")
    if not windows and not endless:
        raise SuiteError(f'{source}: [{table}]: no length of the window; give it one, such as duration = "1s"')


def _check_shares(source: str, point: Point) -> None:
    """Each of several generators needs a part of what they share."""
    count = len(point.place.load)
    for key in ("connections", "requests"):
        shared = quantity(point.load, key, count if key == "requests" else 64)
        if count > 1 and units.count(shared) < count:
            raise SuiteError(f"{source}: [load] {key}: {point.load[key]} are too few for {count} generators to share")


def _check_forward(source: str, table: str, settings: Settings) -> None:
    for key, value in settings.items():
        check_setting(table, FORWARD_FLAGS, key, value, source=source)
    if ("target" in settings) == ("mappings" in settings):
        raise SuiteError(
            f'{source}: [{table}]: say where it forwards to; write target = "role:server", '
            'or mappings = ["8080=role:server"], one of both'
        )


def _check_flags(source: str, table: str, known: Mapping[str, Mapping[str, object]], settings: Settings) -> None:
    protocol = settings.get("protocol", "echo")
    if not isinstance(protocol, str) or protocol not in known:
        raise SuiteError(f"{source}: [{table}] protocol: '{protocol}' is not supported{suggest(str(protocol), known)}")
    flags = LOAD_FLAGS[protocol] | DESTINATIONS[protocol] if known is LOAD_FLAGS else SERVER_FLAGS[protocol]
    for key, value in settings.items():
        if key != "protocol":
            check_setting(table, flags, key, value, source=source)


def _check_attached(source: str, table: str, server: Settings) -> None:
    """A server that somebody else runs: there is nothing to start."""
    refuse_unknown(server, ATTACHED, f"{source}: [{table}]")
    if not isinstance(server["address"], str) or ":" not in server["address"]:
        raise SuiteError(f"{source}: [{table}] address: {server['address']!r} is none; write HOST:PORT")


def _check_command(source: str, table: str, server: Settings, *, must_listen: bool = True) -> None:
    refuse_unknown(server, COMMAND, f"{source}: [{table}]")
    command, ready = server.get("command"), server.get("ready")
    if not isinstance(command, tuple) or not command:
        raise SuiteError(
            f'{source}: [{table}] command: {command!r} is not a list of texts; write ["program", "argument"], no shell'
        )
    if ready is None and not must_listen:
        return
    if not isinstance(ready, str) or not _READY.fullmatch(ready):
        raise SuiteError(
            f"{source}: [{table}] ready: a command needs to say when it can be connected to; "
            'write ready = "tcp:8080", or "tcp:{port}" with {port} in the command for a port that is free'
        )


def apply_change(tables: dict[str, object], path: str, value: Value, *, source: str) -> None:
    """Apply one `--set`: an axis of the matrix is replaced by the one value."""
    table, _, key = path.partition(".")
    if not key and path != "capture":
        raise SuiteError(f"--set {path}: write a dotted path, such as load.connections=2500")
    matrix = tables.get("matrix")
    matrix = matrix if isinstance(matrix, dict) else {}
    try:
        replaced = check_change(path, matrix)
    except SuiteError as refusal:
        raise SuiteError(f"{source}: {refusal}") from None
    if path in matrix:
        matrix[path] = [value]
        return
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


def _change_contender(tables: dict[str, object], path: str, value: Value, *, source: str) -> None:
    _, _, rest = path.partition(".")
    name, _, key = rest.partition(".")
    if not key:
        raise SuiteError(f"--set {path}: write contender.NAME.KEY, such as contender.new.command")
    contenders = as_table(tables.setdefault(CONTENDER, {}), refusal=f"{source}: {not_a_table(CONTENDER)}")
    contender = as_table(contenders.setdefault(name, {}), refusal=f"{source}: {not_a_table(f'{CONTENDER}.{name}')}")
    contender[key] = as_toml(value)


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
        if len(set(map(repr, values))) < len(values):
            raise SuiteError(f"{source}: {where}: a value stands there twice; repetitions belong to [run] repeat")
        axes.append(Axis(path=path, values=values))
    return tuple(axes)


def _run(table: Table, *, source: str) -> RunSettings:
    refuse_unknown(table, RUN, f"{source}: [run]")
    defaults = RunSettings()
    repeat = _whole(table.get("repeat", defaults.repeat), "repeat", least=1, source=source)
    if repeat > REPEAT_MOST:
        raise SuiteError(f"{source}: [run] repeat: {repeat} is more than a plan can hold; the most is {REPEAT_MOST:,}")
    seed = _whole(table["seed"], "seed", least=0, source=source) if "seed" in table else None
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


def check_limits(suite: Suite) -> None:
    """Only HTTP has statuses: of an echo such a limit could neither be met nor missed."""
    varies = "load.protocol" in {axis.path for axis in suite.axes}
    if suite.load.get("protocol", "echo") == "http" or varies:
        return
    for limit in suite.limits:
        if status_figure(limit.figure) is not None:
            raise SuiteError(f"{suite.source}: [limits] {limit.text}: only HTTP has statuses; set [load] protocol")


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
        part = units.ratio(str(table[key]))
    except ValueError as refusal:
        raise SuiteError(f"{source}: [verdict] {key}: {refusal}") from None
    if part <= 0:
        raise SuiteError(f"{source}: [verdict] {key}: it has to be above 0, such as '5%'")
    return part
