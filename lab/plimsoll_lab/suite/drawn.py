"""[[chart]]: which figure is drawn over what, where a suite says so itself; and settings as numbers
on an axis.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plimsoll_lab.suite import units
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import BY_NAME, figure_named, suggest
from plimsoll_lab.suite.keys import CHART
from plimsoll_lab.suite.tables import as_tables

TIMES = " * "
"""Between the two paths of a product."""
_SYNTHETIC = re.compile(r"/(?:bytes|burn/[^/]+)/(\d+)")

Quantity = tuple[float, str]
"""A number and its unit: seconds, bytes, bits a second, or none."""


def read_drawn(raw: object, *, source: str) -> tuple[tuple[str, str], ...]:
    """Type every [[chart]]: a figure and the path it is drawn over."""
    refusal = f'{source}: chart: not a list of tables; write [[chart]], figure = "..." and over = "..."'
    found = []
    for number, table in enumerate(as_tables(raw, refusal=refusal), start=1):
        where = f"{source}: [[chart]] {number}"
        if table.keys() != CHART.keys():
            raise SuiteError(f'{where}: write figure = "..." and over = "...", no more')
        figure, over = table["figure"], table["over"]
        if not isinstance(figure, str) or figure_named(figure) is None:
            raise SuiteError(f"{where} figure: '{figure}' is no figure{suggest(str(figure), BY_NAME)}")
        if not isinstance(over, str) or over.count(TIMES) > 1:
            raise SuiteError(f"{where} over: {over!r} is no path, nor two with ' * ' between them")
        found.append((figure, over))
    return tuple(found)


def check_drawn(drawn: Sequence[tuple[str, str]], settings: Sequence[Mapping[str, object]], *, source: str) -> None:
    """Refuse an axis that does not vary."""
    known = {path for setting in settings for path in setting}
    for number, (_, over) in enumerate(drawn, start=1):
        for path in over.split(TIMES):
            if path not in known:
                raise SuiteError(
                    f"{source}: [[chart]] {number} over: '{path}' does not vary in this suite{suggest(path, known)}"
                )


def quantity(path: str, value: object, root: str | None = None) -> Quantity | None:
    """A setting as a number; a path as the size of what it names, below `root` where that is a
    file; None: a word.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value), ""
    if not isinstance(value, str):
        return None
    if path.rpartition(".")[2] == "path":
        return _size_behind(value, root)
    for read, unit in _READERS:
        try:
            return read(value.removeprefix("exp:")), unit
        except ValueError:
            continue
    return None


def _size_behind(path: str, root: str | None) -> Quantity | None:
    synthetic = _SYNTHETIC.fullmatch(path)
    if synthetic:
        return float(synthetic[1]), "B"
    file = Path(root) / path.lstrip("/") if root is not None else None
    return (float(file.stat().st_size), "B") if file is not None and file.is_file() else None


_READERS: tuple[tuple[Callable[[str], float], str], ...] = (
    (units.duration_s, "s"),
    (units.bits_per_s, "bit/s"),
    (lambda text: float(units.count(text)), ""),
    (units.ratio, ""),
    (lambda text: float(units.size_bytes(text)), "B"),
)
"""In this order, each refuses what is not its own."""
