"""How the response times of a point are distributed: the histograms of its trials together.

Left out are trials with disturbed moments, which nothing takes out of a histogram, and those whose
generator was late by half of a figure that more than a few requests decide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plimsoll_lab.store.histograms import decode_kept
from plimsoll_lab.store.records import TrialRecord, untold_figures
from plimsoll_lab.store.summary_record import PointSummary
from plimsoll_lab.suite.settings import Settings

if TYPE_CHECKING:
    from hdrh.histogram import HdrHistogram

HISTOGRAM = "response_time_ns"
STEM = "response_time_us."
OUTERMOST = frozenset(f"{STEM}{part}" for part in ("max", "stdev", "p99_9", "p99_99"))
"""Figures that a few late requests of a thousand spoil."""
DISTURBED, LATE = "network was disturbed", "generator was late"
"""Why a trial is left out."""
R20 = (100, 112, 125, 140, 160, 180, 200, 224, 250, 280, 315, 355, 400, 450, 500, 560, 630, 710, 800, 900)
"""Twenty steps of a factor of about 1.12 to a decade, with 1, 2 and 5 among them (ISO 3, R20)."""
STEPS = 12 * len(R20)
"""From 100 ns to a day. The first and the last one also have what lies beyond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """The response times of one point."""

    point: Settings
    """Its setting."""
    steps: Mapping[int, int]
    """How many requests took from one edge up to the next, by the place of the first; without the
    empty steps."""
    trials: int
    """Trials whose histograms these are."""
    valid: int
    """Valid trials."""
    left_out: Mapping[str, int]
    """How many of these are left out, by why; the others have no histogram."""
    late: Sequence[str]
    """Figures beyond the body of the distribution that are the generator's own lateness by half or
    more, such as `max`."""

    @property
    def requests(self) -> int:
        """How many requests are counted."""
        return sum(self.steps.values())


def edge_ns(place: int) -> int:
    """Where a step begins, and the one before it ends."""
    decade, step = divmod(place, len(R20))
    return R20[step] * int(10**decade)


def distributions(points: Sequence[PointSummary], trials: Sequence[TrialRecord]) -> list[Distribution]:
    """The distribution of each of these points, whether or not something is known of it."""
    return [_distribution(point.point, [each for each in trials if each.point == point.number]) for point in points]


def of_point(trials: Sequence[TrialRecord]) -> tuple[list[TrialRecord], dict[str, int], list[str]]:
    """Of the trials of a point those whose histograms may be added, why the other valid ones may
    not, and what of the histograms is the generator's lateness.
    """
    valid = [each for each in trials if each.outcome == "ok"]
    steady = [each for each in valid if each.cut is None]
    clean = [each for each in steady if not untold_figures(each) - OUTERMOST]
    causes = {DISTURBED: len(valid) - len(steady), LATE: len(steady) - len(clean)}
    late = sorted({name.removeprefix(STEM) for each in clean for name in untold_figures(each)})
    return clean, {cause: count for cause, count in causes.items() if count}, late


def histogram_of(trial: TrialRecord) -> HdrHistogram | None:
    """The response times of a trial; None where it keeps none. Raises `LabError` where they are
    damaged.
    """
    histograms = (trial.load.get("summary") or {}).get("histograms")
    found = histograms.get(HISTOGRAM) if isinstance(histograms, Mapping) else None
    return None if found is None else decode_kept(str(found), trial.number)


def _distribution(point: Settings, trials: Sequence[TrialRecord]) -> Distribution:
    clean, left_out, late = of_point(trials)
    steps: Counter[int] = Counter()
    found = [each for each in map(histogram_of, clean) if each is not None]
    for each in found:
        steps.update(dict(_steps(each)))
    return Distribution(
        point=point,
        steps=dict(sorted(steps.items())),
        trials=len(found),
        valid=sum(each.outcome == "ok" for each in trials),
        left_out=left_out,
        late=late,
    )


def _steps(histogram: HdrHistogram) -> Iterator[tuple[int, int]]:
    """The requests in each step that has some. The bucket of the histogram in which a step begins,
    a thousandth wide, is the step's.
    """
    import numpy as np  # noqa: PLC0415 - only a report needs it

    # The library's own iterator takes 50 ms for a trial, as it makes an object of every bucket.
    counts = np.ctypeslib.as_array(histogram.counts)
    starts = [min(histogram.get_counts_array_index(edge), len(counts)) for edge in map(edge_ns, range(1, STEPS))]
    below = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))[[0, *starts, len(counts)]]
    for place, count in enumerate(np.diff(below).tolist()):
        if count:
            yield place, count
