"""How the parts of a run's record contradict one another: no lab writes such a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from plimsoll_lab.store.run_record import PointRecord, RunRecord
from plimsoll_lab.store.search_record import SearchRecord
from plimsoll_lab.suite.conditions import OPERATORS
from plimsoll_lab.suite.documents import Claim, Reference
from plimsoll_lab.suite.figures import figure_named
from plimsoll_lab.suite.search import OVER
from plimsoll_lab.suite.spec import Limit


def faults_of(run: RunRecord) -> Iterator[str]:
    """Each contradiction, with its place."""
    if run.seed < 0:
        yield f"seed: {run.seed} is below 0"
    if run.family.margin <= 0:
        yield f"family.margin: {run.family.margin:g} is not above 0"
    for place, limit in enumerate(run.limits):
        if limit.operator not in OPERATORS:
            yield f"limits.{place}.operator: '{limit.operator}' is none of {' '.join(OPERATORS)}"
    yield from _of_search(run)
    figures = run.figures_by_name
    for where, name in _named(run):
        if name not in figures and figure_named(name) is None:
            yield f"{where}: '{name}' is no figure"
    yield from _of_paths(run)
    yield from _without_contender(run)


def _of_search(run: RunRecord) -> Iterator[str]:
    if run.searches and run.search is None:
        yield "search: is missing, and there are searches"
    if run.search is not None and run.search.over not in OVER:
        yield f"search.over: '{run.search.over}' is none of {' '.join(OVER)}"


def _of_paths(run: RunRecord) -> Iterator[str]:
    for place, calibration in enumerate(run.calibrations):
        for number, path in enumerate(calibration.paths):
            if path.measured.round_trip_us and "p50" not in path.measured.round_trip_us:
                yield f"calibrations.{place}.paths.{number}.measured.round_trip_us: p50 is missing"


def _without_contender(run: RunRecord) -> Iterator[str]:
    """The points and searches that do not say which of the contenders they have."""
    compare = run.family.compare
    tables: dict[str, Sequence[PointRecord | SearchRecord]] = {"points": run.points, "searches": run.searches}
    for table, rows in tables.items():
        for place, each in enumerate(rows):
            if compare is not None and compare not in each.setting:
                yield f"{table}.{place}.setting: {compare} is missing, along which contenders are compared"


def _named(run: RunRecord) -> list[tuple[str, str]]:
    """Each place where a run names a figure, and the figure's name."""
    judged = [(f"family.figures.{place}", name) for place, name in enumerate(run.family.figures)]
    drawn = [(f"drawn.{place}.0", name) for place, (name, _) in enumerate(run.drawn)]
    tables: dict[str, Sequence[Limit | Reference | Claim]] = {
        "limits": run.limits,
        "references": run.references,
        "claims": run.claims,
    }
    tried = [
        (f"searches.{place}.loads.{number}.medians", name)
        for place, search in enumerate(run.searches)
        for number, load in enumerate(search.loads)
        for name in load.medians
    ]
    others = [(f"{key}.{place}.figure", each.figure) for key, rows in tables.items() for place, each in enumerate(rows)]
    return [*judged, *drawn, *others, *tried]


def list_named_figures(run: RunRecord) -> None:
    """Complete the figures of a run: earlier labs named some that they did not list."""
    listed = {each.name for each in run.figures}
    missing = dict.fromkeys(name for _, name in _named(run) if name not in listed)
    if missing:
        run.figures = (*run.figures, *(found for name in missing if (found := figure_named(name)) is not None))
