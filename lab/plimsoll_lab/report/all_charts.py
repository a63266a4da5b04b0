"""Every chart of a run by its name: for its page, its exports and notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from plimsoll_lab.analysis.by_connections import climbs
from plimsoll_lab.analysis.clients import Strip, strips
from plimsoll_lab.analysis.distributions import Distribution, distributions
from plimsoll_lab.analysis.over_time import Course, courses
from plimsoll_lab.analysis.packets import Traffic, traffic
from plimsoll_lab.analysis.percentiles import Curve, curves
from plimsoll_lab.report import capacity_picture, gate_picture
from plimsoll_lab.report.by_connections import climb_charts
from plimsoll_lab.report.charts import charts, rows
from plimsoll_lab.report.clients import strip_charts
from plimsoll_lab.report.distribution_charts import distribution_charts, shown
from plimsoll_lab.report.drawing import CONFIGURATION
from plimsoll_lab.report.encoding import MatrixLayout, layout_of
from plimsoll_lab.report.headline import Headline, headline
from plimsoll_lab.report.knees import knee_charts
from plimsoll_lab.report.packets import packet_charts
from plimsoll_lab.report.percentile_charts import percentile_charts
from plimsoll_lab.report.timelines import timeline_charts
from plimsoll_lab.report.view import Described
from plimsoll_lab.store.folder import RunFolder
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.run_record import RunRecord
from plimsoll_lab.store.summary_record import RunSummary

HEADLINE = "headline"
"""The chart under the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AllCharts:
    """The charts of a run, and what they were made of."""

    layout: MatrixLayout
    """How the axes are laid out."""
    specs: Mapping[str, Json]
    """Vega-Lite by name; some take their data from `rows`."""
    rows: Mapping[str, Sequence[Json]]
    """The data sets `trials`, `points` and `references`."""
    headline: Headline | None
    """The picture under the answer."""
    opening: str | None
    """The percentile chart under the answer, where nothing competes and so no headline is drawn."""
    curves: Sequence[Curve]
    """Of the percentile charts."""
    percentiles: Mapping[str, Described]
    """Percentile charts."""
    spread: Sequence[Distribution]
    """Of the distribution charts."""
    distributions: Mapping[str, Described]
    """Distribution charts."""
    courses: Mapping[str, Sequence[Course]]
    """Of the timelines, by setting."""
    timelines: Mapping[str, Described]
    """Timelines, and response times over time."""
    strips: Mapping[str, Sequence[Strip]]
    """The clients of each point, by setting."""
    clients: Mapping[str, Described]
    """Charts of clients."""
    by_connections: Mapping[str, Described]
    """Charts of response times by the connections up."""
    traffic: Mapping[str, Sequence[Traffic]]
    """Of the captures, by setting."""
    packets: Mapping[str, Described]
    """Charts of packets."""

    def whole(self, name: str) -> Json:
        """One chart with its data and colours, for any reader of Vega-Lite."""
        return {**self.specs[name], "datasets": dict(self.rows), "config": CONFIGURATION | {"background": "white"}}


def _first(summary: RunSummary, run: RunRecord, layout: MatrixLayout) -> Headline | None:
    """The picture that shows the answer."""
    if summary.gate is not None:
        return gate_picture.picture(summary.gate, run, layout)
    if summary.capacities:
        return capacity_picture.picture(summary, run, layout)
    return headline(summary, run, layout)


def all_charts(folder: RunFolder, run: RunRecord, summary: RunSummary, made: Sequence[TrialRecord]) -> AllCharts:
    """The charts of a run over its trials. Those of A/A controls are no further trials of a
    point.
    """
    layout = layout_of(run)
    told = {point.number for point in summary.points}
    trials = [trial for trial in made if trial.point in told]
    first = _first(summary, run, layout)
    found = curves(summary.points, trials)
    percentiles = percentile_charts(found, layout)
    spread = [] if run.search is not None else distributions(shown(summary.points, layout), trials)
    distributed = distribution_charts(spread, layout)
    over_time = {} if run.search is not None else courses(run, folder.path, trials)
    timed = timeline_charts(over_time, layout)
    told_of = {} if run.search is not None else strips(run, folder.path, trials)
    clients = strip_charts(told_of, layout)
    by_connections = {} if run.search is not None else climb_charts(climbs(run, folder.path, trials), layout)
    captured = {} if run.search is not None else traffic(run, trials)
    packets = packet_charts(captured, layout)
    specs = {chart.name: chart.spec for chart in charts(run, summary)} | knee_charts(summary.knees, trials, layout)
    specs |= {} if first is None else {HEADLINE: first.spec}
    specs |= {
        name: each.spec
        for described in (percentiles, distributed, timed, clients, by_connections, packets)
        for name, each in described.items()
    }
    return AllCharts(
        layout=layout,
        specs=specs,
        rows=rows(run, summary, trials),
        headline=first,
        opening=next(iter(percentiles), None) if first is None and layout.compare is None else None,
        curves=found,
        percentiles=percentiles,
        spread=spread,
        distributions=distributed,
        courses=over_time,
        timelines=timed,
        strips=told_of,
        clients=clients,
        by_connections=by_connections,
        traffic=captured,
        packets=packets,
    )
