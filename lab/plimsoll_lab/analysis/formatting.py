"""Numbers as people read them, to three figures, and counts as whole numbers; the same in the
terminal and on the page.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from plimsoll_lab.stats import reasons
from plimsoll_lab.stats.reasons import Toward
from plimsoll_lab.store.run_record import NOT_TOLD
from plimsoll_lab.store.summary_record import PointSummary, StopRecord, VerdictRecord

significant, OUTWARDS = reasons.significant, reasons.OUTWARDS
"""Three significant figures, and how the ends of an interval are rounded, for pages too."""
TOWARD: Mapping[str, Toward] = {"": "nearest", "at least ": "down", "at most ": "up"}
"""How a number behind such words is rounded."""
SCALES: Mapping[str, tuple[tuple[str, float], ...]] = {
    "us": (("us", 1.0), ("ms", 1e3), ("s", 1e6)),
    "s": (("us", 1e-6), ("ms", 1e-3), ("s", 1.0)),
    "bytes": (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30)),
    "bits_per_s": (("bit/s", 1.0), ("kbit/s", 1e3), ("Mbit/s", 1e6), ("Gbit/s", 1e9)),
}
"""Of each unit that has multiples, their names and sizes."""


def number(value: float | None, unit: str, toward: Toward = "nearest") -> str:
    """A figure with its unit: `39,800/s`, `1.23 ms`, `2.15 MiB`; of a count every digit, as the
    reader knows what was asked for: 65,525 connections are not 65,500. A bound is rounded down or
    up, to the side on which it still holds.
    """
    if value is None or math.isnan(value):
        return "-"
    if unit in SCALES:
        return _scaled(value, SCALES[unit], toward)
    if unit == "ratio":
        return f"{significant(value * 100, toward)} %"
    if unit == "count" and value % 0.5 == 0:  # the median of two counts may be a half
        return f"{value:,.{0 if value % 1 == 0 else 1}f}"
    return significant(value, toward) + {"per_s": "/s", "cores": " cores", "s2": " s\u00b2"}.get(unit, "")


def median(point: PointSummary, figure: str, unit: str) -> str:
    """The median of a figure at a point; with how many trials it is of where these are fewer than
    the valid ones, and `?` where it is doubtful.
    """
    found = point.figures.get(figure)
    if found is None:
        return number(None, unit)
    fewer = f" (of {found.n})" if found.n < point.valid_n else ""
    return f"{number(found.median, unit)}{'?' if point.doubtful else ''}{fewer}"


def interval(ends: tuple[float | None, float | None], unit: str) -> str:
    """An interval of which an end may not be known: `1 ms to 2 ms`, `1 ms or more`."""
    low, high = (None if end is None else number(end, unit, way) for end, way in zip(ends, OUTWARDS, strict=True))
    if low is None or high is None:
        return f"{high} or less" if high else f"{low} or more" if low else "not known"
    return f"{low} to {high}"


def percent(part: float, digits: int = 1) -> str:
    """A part of one: `7.2 %`."""
    return reasons.percent(part, digits)


def setting(values: Mapping[str, object]) -> str:
    """A place in the matrix: `2,000 connections, size 64B`."""
    return ", ".join(_one_setting(path, value) for path, value in values.items()) or "every setting"


def value(given: object) -> str:
    """A setting as a word: a command is its words."""
    return " ".join(str(each) for each in given) if isinstance(given, list | tuple) else str(given)


def contender(values: Mapping[str, object], compare: str) -> str:
    """The name of what competes at a point: its value where that is a text; of a number or a switch
    what it sets too: `queue 100`, `no saturator`.
    """
    given = values[compare]
    if isinstance(given, bool):
        return _one_setting(compare, given)
    return f"{words(compare)} {given:,}" if isinstance(given, int | float) else value(given)


def words(path: str) -> str:
    """What a setting is about: `connections`, `saturator connections`; `saturator` of whether that
    role takes part.
    """
    holder, _, last = path.rpartition(".")
    if not holder.startswith("role."):
        return "generators on" if path == "place.load" else last.replace("_", " ")
    role = holder.removeprefix("role.")
    return role if last == "active" else f"{role} {last}".replace("_", " ")


def _one_setting(path: str, given: object) -> str:
    key = words(path)
    if path in {"point", "contender"}:
        return str(given)  # names say what they are
    if isinstance(given, bool):
        return key if given else f"no {key}"
    if isinstance(given, int):
        # `2,000 connections, 5 each`; a rate is no number of things.
        counted = key.endswith(("s", "each"))
        return f"{given:,} {_one(key) if given == 1 else key}" if counted else f"{key} {given:,}"
    if key.endswith("connections") and given != NOT_TOLD:
        return f"{given} {key}"
    if key == "command":
        return value(given)
    return f"{key} {value(given)}"


def _one(key: str) -> str:
    """`connection`, `address`."""
    return key.removesuffix("es") if key.endswith("sses") else key.removesuffix("s")


def facts(given: Sequence[object]) -> tuple[str, ...]:
    """One property of several machines or runs, in words; exact where rounding hid a difference."""
    exact = tuple(_fact(each) for each in given)
    rounded = tuple(_rounded_memory(each) for each in exact)
    return rounded if len(set(rounded)) == len(set(exact)) else exact


def _fact(given: object) -> str:
    if isinstance(given, Mapping):
        return ", ".join(f"{key} {each}" for key, each in given.items())
    return "not recorded" if given is None else str(given)


def _rounded_memory(text: str) -> str:
    """`23.5 GiB`, where proc_meminfo(5) has `24684092 kB`, each of 1,024 bytes."""
    count = text.removesuffix(" kB")
    return number(int(count) * 1024, "bytes") if count != text and count.isdigit() else text


TWICE = 2.0
"""From here on a ratio is no longer said in percent, and has fewer decimals."""
A_TENTH = 0.1
"""Below this a ratio has more decimals, as three are fewer than three figures."""


def outcome(code: str | None) -> str:
    """The outcome of a trial or a point in words: `hard limit`; `not measured` of a point without
    trials.
    """
    return "not measured" if code is None else code.replace("_", " ")


def stop(each: StopRecord) -> str:
    """How a contender stopped: `hard limit`, `failed in 6 of 12 trials`."""
    return f"{outcome(each.outcome)}{how_often(each)}"


def how_often(each: StopRecord) -> str:
    """` in 6 of 12 trials`; nothing where a contender stopped as a whole."""
    return "" if each.trials is None else _in_trials(*each.trials)


def in_part(point: PointSummary) -> str:
    """` in 6 of 10 trials` of a point whose trials did not all end as it is said to have; else
    nothing.
    """
    ended = 0 if point.outcome is None else point.outcomes.get(point.outcome, 0)
    return _in_trials(ended, point.n) if 0 < ended < point.n else ""


def _in_trials(some: int, every: int) -> str:
    return f" in {some:,} of {every:,} trials"


def ratio(value: float | None, interval: tuple[float, float] | None) -> str:
    """`0.940x [0.920, 0.970]`; beyond twice as much, and below a tenth, three figures."""
    if value is None:
        return "-"
    if interval is None:
        return f"{_times(value)}x"
    return f"{_times(value)}x [{_times(interval[0])}, {_times(interval[1])}]"


def change(ratio: float) -> str:
    """A ratio as what is added: `+7.2 %`; never 0 where there is a difference."""
    percent = (ratio - 1) * 100
    digits = next((each for each in range(1, 1 + MOST_DIGITS) if round(percent, each)), 1)
    return f"{percent:+z.{digits}f} %"


def _times(value: float) -> str:
    """`0.940`, `3.41`; never 1 where it is another number: an interval that excludes 1 says so."""
    digits = next((each for each in range(3, 3 + MOST_DIGITS) if round(value - 1, each)), 3)
    return f"{value:.{digits}f}" if A_TENTH <= value < TWICE else significant(value)


def at_least(ratio: float) -> str:
    """`1.39`, `22.3`: a lower bound, rounded down so that it holds; never 1 where it is more."""
    digits = 0 if ratio >= 100 else 1 if ratio >= 10 else 2  # noqa: PLR2004 - three figures
    while 1 < ratio < 1 + 10**-digits and digits < MOST_DIGITS:
        digits += 1
    return f"{_down(ratio * 10**digits) / 10**digits:,.{digits}f}"


def share_at_most(ratio: float) -> str:
    """`71 %` of a ratio of 1.41 to 1: an upper bound of what is left, rounded up so that it holds;
    never 100 where it is less.
    """
    share, digits = 100 / ratio, 0 if ratio > 1 / 0.95 else 1
    while share < 100 <= _up(share * 10**digits) / 10**digits and digits < MOST_DIGITS:  # noqa: PLR2004 - percent
        digits += 1
    return f"{_up(share * 10**digits) / 10**digits:g} %"


MOST_DIGITS = 4
"""Of a ratio that is nearer to 1 than that, nothing more is said."""


def part_at_least(part: float) -> float:
    """A lower bound of a part, to a tenth of a percent: rounded down, so that it holds."""
    return _down(part * 1000) / 1000


def part_at_most(part: float) -> float:
    """An upper bound of a part, to a tenth of a percent: rounded up, so that it holds."""
    return _up(part * 1000) / 1000


def at_most_apart(ratio: float) -> str:
    """`24.6 %`, `3.4 times`: by how much several may differ, rounded up so that it holds."""
    if ratio < TWICE:
        return f"{_up((ratio - 1) * 1000) / 10:g} %"
    return f"{_up(ratio * 10) / 10:,g} times" if ratio < 100 else f"{_up(ratio):,} times"  # noqa: PLR2004 - three figures


def _down(value: float) -> int:
    """The whole number below, where the last bit of a float is none."""
    return math.floor(round(value, 6))


def _up(value: float) -> int:
    return math.ceil(round(value, 6))


def best(verdict: VerdictRecord) -> str:
    """Those that may be best and by how much they may differ: `epoll, uring (8 %)`."""
    names = ", ".join(verdict.best)
    if len(verdict.best) < 2 or verdict.best_within is None:  # noqa: PLR2004 - one differs from nobody
        return names
    return f"{names} ({at_most_apart(verdict.best_within)})"


def others(verdict: VerdictRecord) -> str:
    """Those that are worse and at least how many times: `threads 1.41, fork 3.32`."""
    return ", ".join(f"{each.name} {at_least(each.at_least)}" for each in verdict.others)


def unranked(verdict: VerdictRecord) -> str:
    """Those that were measured and not compared, and why: `threads, fork: 4 valid blocks`."""
    return reasons.reasons_once(verdict.unranked)


def _scaled(value: float, steps: tuple[tuple[str, float], ...], toward: Toward) -> str:
    unit, size = steps[0]
    for name, least in steps:
        if abs(value) >= least:
            unit, size = name, least
    return f"{significant(value / size, toward)} {unit}"


def listed(items: Sequence[str]) -> str:
    """`a, b and c`."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]


def duration(seconds: float) -> str:
    """`about 2 min 5 s`."""
    return f"about {elapsed(seconds)}"


def elapsed(seconds: float) -> str:
    """`2 min 5 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
