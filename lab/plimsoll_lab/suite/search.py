"""The `[search]` table: in place of a list of loads, the highest one that meets the limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from plimsoll_lab.suite import units
from plimsoll_lab.suite.contenders import STARTS
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.figures import LAST_OVER_LINE, suggest
from plimsoll_lab.suite.keys import SEARCH
from plimsoll_lab.suite.settings import Settings
from plimsoll_lab.suite.spec import SearchSettings, Suite

OVER = ("load.connections", "load.rate")
"""What a search may vary."""
CAPTURED = ("endpoints", "capture.")
"""How the names of figures begin that are of captured packets."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Table:
    """The table, whose refusals say where they come from."""

    values: Mapping[str, object]
    source: str

    def refuse(self, key: str, why: str) -> SuiteError:
        return SuiteError(f"{self.source}: [search] {key}: {why}")

    def read(self, key: str, reader: Callable[[str], T], default: T) -> T:
        if key not in self.values:
            return default
        try:
            return reader(str(self.values[key]))
        except ValueError as refusal:
            raise self.refuse(key, str(refusal)) from None


def read_search(values: Mapping[str, object], *, source: str) -> SearchSettings:
    """Type the table."""
    table = _Table(values=values, source=source)
    for key in values:
        if key not in SEARCH:
            raise SuiteError(f"{source}: [search] {key}: unknown key{suggest(key, SEARCH)}")
    over = values.get("over")
    if not isinstance(over, str) or over not in OVER:
        raise table.refuse("over", f"{over!r} is nothing that can be searched over; write one of {', '.join(OVER)}")
    lowest, highest = _range(table)
    defaults = SearchSettings(over=over, lowest=lowest, highest=highest)
    width = table.read("width", units.part, defaults.width)
    trials = table.read("trials", units.count, defaults.trials)
    patience_s = table.read("patience", units.duration_s, defaults.patience_s)
    lasting_s = table.read("hold", units.duration_s, defaults.lasting_s)
    if not 0 < width < 1:
        raise table.refuse("width", "it has to lie between 0 % and 100 %, such as '2%'")
    if trials < 1:
        raise table.refuse("trials", "a load is decided by one trial at least")
    if patience_s <= 0:
        raise table.refuse("patience", "it has to be above zero, such as '1h'")
    return replace(defaults, width=width, trials=trials, patience_s=patience_s, lasting_s=lasting_s)


def check_search(suite: Suite, search: SearchSettings) -> None:
    """Refuse a search that contradicts the rest of its suite."""
    load, limits, source = suite.load, suite.limits, suite.source
    if any(axis.path == search.over for axis in suite.matrix):
        raise SuiteError(f"{source}: [search] over: {search.over} is an axis of the matrix too; leave one of them out")
    if not limits:
        raise SuiteError(
            f"{source}: [search]: no limit; say what the server has to keep, such as "
            "[limits] 'response_time.p99' = '<50ms'"
        )
    for limit in limits:
        if limit.figure.startswith(CAPTURED):
            raise SuiteError(f"{source}: [limits] {limit.figure}: a search captures no packets; leave it out")
        if limit.figure.startswith("server.") and _runs_already(suite):
            raise SuiteError(
                f"{source}: [limits] {limit.figure}: nothing is read of a server that already runs, so that no load "
                "would keep this; let the laboratory start it ([server] command), or leave the limit out"
            )
    if suite.capture:
        raise SuiteError(f"{source}: capture: a search captures no packets; leave it out")
    if any(limit.figure == LAST_OVER_LINE for limit in limits):
        raise SuiteError(
            f"{source}: [limits] {LAST_OVER_LINE}: a search keeps no requests, which this figure is computed from; "
            "leave it out, or state loads in place of [search]"
        )
    if search.over == "load.rate" and "think" in load:
        raise SuiteError(f"{source}: [load] think: a rate has no think time; leave it out, or search over connections")


def _runs_already(suite: Suite) -> bool:
    """Whether a server of the suite is not started by the laboratory."""
    own: Iterable[Settings] = suite.contenders.values() or [{}]
    return any("address" in (each if each.keys() & STARTS else suite.server) for each in own)


def _range(table: _Table) -> tuple[int, int]:
    given = table.values.get("range")
    if not isinstance(given, list) or len(given) != 2 or any(isinstance(end, bool) for end in given):  # noqa: PLR2004 - a pair
        raise table.refuse("range", f"{given!r} is no pair of loads; write [100, 60000]")
    try:
        lowest, highest = (units.count(end if isinstance(end, int) else str(end)) for end in given)
    except ValueError as refusal:
        raise table.refuse("range", str(refusal)) from None
    if not 0 < lowest < highest:
        raise table.refuse("range", "the low end has to be at least 1 and below the high end")
    return lowest, highest
