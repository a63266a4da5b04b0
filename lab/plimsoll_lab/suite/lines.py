"""The line of a suite's file that a refusal is about.

`tomllib` tells no lines, so the text is searched for the table and the key that the refusal names.
A value of the matrix, of a point or of a contender is refused by the table that it ends up in; the
line is the one that it was written in. What no line of the file says, such as a `--set`, has none.
"""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from plimsoll_lab.suite.errors import SuiteError, printable
from plimsoll_lab.suite.settings import Settings

_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|'''
    r"""'''.*?'''|'[^'\n]*'|#[^\n]*|[\[\]{}\n]|[^\[\]{}\n"'#]+""",
    re.DOTALL,
)
"""A string, a comment, a bracket, the end of a line, or what lies between them, of valid TOML."""
_NAMES = re.compile(r'"([^"]*)"|' + r"'([^']*)'" + r"|([A-Za-z0-9_-]+)")
_PLACE = re.compile(
    r"\[\[(?P<list>[\w.-]+)\]\](?: (?P<item>[\w.-]+))?|\[(?P<table>[^\[\]]+)\]|"
    r"'(?P<quoted>[^']+)'|(?P<bare>[\w.-]+):"
)
"""What a refusal begins with: a table of a list by its number or its name, a table, or a key."""
_KEY = re.compile(r"[:\s]*([^\s:,]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Where the settings of one point were written."""

    setting: Settings
    """The point's setting."""
    number: int = 0
    """The number of its [[point]]; 0 for a cell of the matrix."""


EVERYWHERE = Origin(setting={})


@dataclass(frozen=True, kw_only=True, slots=True)
class Lines:
    """The line of every table and key."""

    tables: dict[str, list[int]] = field(default_factory=dict)
    """By name; of a list of tables, one line each."""
    keys: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """By the table's name, its number in a list or 0, and the key."""
    named: dict[tuple[str, str], int] = field(default_factory=dict)
    """By the name of a list and the `name` of one of its tables, the number of that table."""
    fast: bool = False
    """Whether the tables of [fast] lie over the others."""
    changed: Collection[str] = ()
    """Settings that were changed after the file was read."""

    def find(self, said: str, origin: Origin = EVERYWHERE) -> int | None:
        """The line of what a refusal names; None where no line says it."""
        place = _PLACE.match(said)
        if place is None:
            return None
        match = _KEY.match(said, place.end())
        key = match[1] if match else ""
        if place["list"]:
            return self._of_list(place["list"], place["item"] or "", key)
        if place["table"]:
            return self._of_table(place["table"], key, origin)
        return self._of_top(place["quoted"] or place["bare"])

    def _of_list(self, name: str, item: str, key: str) -> int | None:
        number = int(item) if item.isdecimal() else self.named.get((name, item), 0)
        if f"{name}.{item}.{key}" in self.changed:
            return None
        over = self._key(f"fast.{name}.{item}", 0, key) if self.fast else None
        own = f"fast.{name}" if self.fast and f"fast.{name}" in self.tables else name
        headers = self.tables.get(own, [])
        if not 0 < number <= len(headers):
            return self._of_top(name)
        return over or self._key(own, number, key) or headers[number - 1]

    def _of_table(self, name: str, key: str, origin: Origin) -> int | None:
        kind, _, role = name.partition(" ")
        path = f"role.{role}.{key}" if role else f"{name}.{key}"
        if (key if name == "matrix" else path) in self.changed:
            return None
        if path in origin.setting:
            table = "point" if origin.number else "matrix"
            return self._of_list("point", str(origin.number), path) if origin.number else self._below(table, path)
        if role:
            return self._of_list(kind, role, key)
        contender = f"contender.{origin.setting.get('contender')}"
        return (self._key(contender, 0, key) if name == "server" else None) or self._below(name, key)

    def _below(self, name: str, key: str) -> int | None:
        over = self._key(f"fast.{name}", 0, key) if self.fast else None
        return over or self._key(name, 0, key) or self._of_top(name)

    def _of_top(self, name: str) -> int | None:
        """A table, or a key of the one above it."""
        if name in self.tables:
            return self.tables[name][0]
        above, _, last = name.rpartition(".")
        return self._key(above, 0, last)

    def _key(self, table: str, number: int, key: str) -> int | None:
        """A key, or the first of those that it is the beginning of."""
        found = self.keys.get((table, number, key))
        if found is not None or not key:
            return found
        longer = (line for (*own, each), line in self.keys.items() if own == [table, number] and _is_below(each, key))
        return next(longer, None)


def read_lines(text: str, *, fast: bool, changed: Collection[str]) -> Lines:
    """Search a text of valid TOML for its tables and keys."""
    lines = Lines(fast=fast, changed=changed)
    table, number = "", 0
    for line, statement in _statements(text):
        name = _dotted(statement.lstrip("["))
        if not statement.startswith("["):
            lines.keys.setdefault((table, number, name), line)
            if name == "name" and number:
                lines.named[table, str(tomllib.loads(statement)["name"])] = number
            continue
        table, number = name, 0
        lines.tables.setdefault(table, []).append(line)
        if statement.startswith("[["):
            number = len(lines.tables[table])
    return lines


@contextlib.contextmanager
def naming_line(lines: Lines, source: str, origin: Origin = EVERYWHERE) -> Iterator[None]:
    """Every refusal ends with the line that it is about."""
    try:
        yield
    except SuiteError as refusal:
        said = str(refusal)
        line = lines.find(said.removeprefix(f"{printable(source)}: "), origin)
        if refusal.line is not None or line is None:
            raise
        raise SuiteError(f"{said} (line {line})", line=line) from None


def origin_of(setting: Settings, single_points: Sequence[Settings]) -> Origin:
    """Where the settings of a point of an expanded suite were written."""
    own = {path: value for path, value in setting.items() if path != "contender"}
    numbers = (number for number, each in enumerate(single_points, start=1) if each == own)
    return Origin(setting=setting, number=next(numbers, 0))


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Each header and each key with its value, without comments, and the line that it begins in."""
    line = begins = 1
    depth, parts = 0, list[str]()
    for match in _TOKEN.finditer(text + "\n"):
        piece = match[0]
        if piece == "\n" and depth == 0:
            if parts:
                yield begins, "".join(parts).strip()
            parts = []
        elif not piece.startswith("#") and (parts or not piece.isspace()):
            begins = begins if parts else line
            depth += (piece in {"[", "{"}) - (piece in {"]", "}"})
            parts.append(piece)
        line += piece.count("\n")


def _dotted(statement: str) -> str:
    """The name that a header or a key begins with: `load.connections`, quoted or not."""
    names, at = [], 0
    while match := _NAMES.match(statement, at):
        names.append(match[1] or match[2] or match[3])
        dot = re.compile(r"\s*\.\s*").match(statement, match.end())
        if dot is None:
            break
        at = dot.end()
    return ".".join(names)


def _is_below(path: str, key: str) -> bool:
    return path.startswith(f"{key}.")
