"""Draws where each curve bends: the measured points, the closed loop's bound, and the fit or why
there is none.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from markupsafe import Markup

from plimsoll_lab.analysis import formatting
from plimsoll_lab.analysis.knees import connections_of, without_axis
from plimsoll_lab.analysis.points import point_outcome
from plimsoll_lab.report.encoding import EXACT, MatrixLayout, colour_and_shape, counts
from plimsoll_lab.report.view import Cell, Drawing, Gallery, Part, Section, Table, Text
from plimsoll_lab.store.records import Json, TrialRecord
from plimsoll_lab.store.summary_record import KneeRecord


def fit_text(knee: KneeRecord) -> str:
    """What the fit says, or why there is none."""
    fit = knee.fit
    if fit is None:
        return f"not fitted: {knee.refused}"
    peak = fit.peak_at
    if peak is None:
        most = "it does not turn down"
    elif fit.peak_at_ci95 is not None:
        low, high = fit.peak_at_ci95
        most = f"it turns down at {peak:,.0f} [{low:,.0f}, {high:,.0f}] connections"
    else:
        some = ", which some resamples do not show" if fit.contention_ci95 is not None else ""
        most = f"it turns down near {peak:,.0f} connections{some}"
    if peak is not None and peak > fit.curve[-1][0]:
        most += ", beyond every load that was measured"
    known = "" if fit.contention_ci95 is not None else "; no interval, as a load has one trial"
    return (
        f"{_parameter('contention', fit.contention, fit.contention_ci95)}, "
        f"{_parameter('coherence', fit.coherence, fit.coherence_ci95)}; {most}; "
        f"worst misfit {formatting.percent(fit.misfit, 0)}{known}"
    )


def _parameter(name: str, value: float, interval: tuple[float, float] | None) -> str:
    ends = f" [{interval[0]:.2g}, {interval[1]:.2g}]" if interval is not None else ""
    return f"{name} {value:.2g}{ends}"


def knees_section(knees: Sequence[KneeRecord], trials: Sequence[TrialRecord], stills: Mapping[str, Markup]) -> Section:
    """The section of the page; without parts where nothing bends."""
    note = (
        "The knee is the load from which response time rises faster than the completed rate. The dashed bound needs no "
        "fit: with Xmax the highest completed rate, R0 the response time at the lowest load and Z the think time, "
        "queues begin at N* = Xmax (R0 + Z) at the latest. A law is drawn only where it comes within a tenth of every "
        "median."
    )
    if not knees:
        return Section(name="knee", title="The knee")
    table = Table(
        caption="Where each curve bends",
        head=("curve", "closed-loop bound", "Universal Scalability Law"),
        rows=tuple(
            (Cell(text=_title(knee), heading=True), Cell(text=knee.text), Cell(text=fit_text(knee))) for knee in knees
        ),
    )
    drawings: list[Drawing] = []
    for place, knee in _bending(knees):
        for kind, what in (("rate", "Completed rate"), ("response", "Mean response time")):
            name = f"knee-{place}-{kind}"
            caption = f"{what} against connections: {_title(knee)}. {_drawn(knee, kind)}"
            figure = "completed_rate" if kind == "rate" else "response_time_us.mean"
            data = _measured(caption, figure, _curve(knee, trials))
            drawings.append(Drawing(name=name, svg=stills[name], caption=caption, data=data))
    parts: list[Part] = [table, *([Gallery(drawings=tuple(drawings))] if drawings else [])]
    if len(drawings) < 2 * len(knees):
        parts.append(Text(text="Not drawn: curves that bend at no load that was tried; the charts above have them."))
    return Section(name="knee", title="The knee", note=note, parts=parts)


def _drawn(knee: KneeRecord, kind: str) -> str:
    """What a chart has beside the trials."""
    if kind == "response":
        return "Every dot is a trial" + ("; dashed: N*." if knee.bound is not None and knee.bound.is_shown else ".")
    lines = ["dashed: the bound"] if knee.bound is not None else []
    if knee.fit is not None:
        lines.append("the curve: the law" + (" with its 95 % band" if knee.fit.contention_ci95 is not None else ""))
    return "; ".join(["Every dot is a trial", *lines]) + "."


def _bending(knees: Sequence[KneeRecord]) -> list[tuple[int, KneeRecord]]:
    """The curves with a knee or a law, and their places."""
    return [
        (place, knee)
        for place, knee in enumerate(knees)
        if knee.fit is not None or (knee.bound is not None and knee.bound.is_shown)
    ]


def _title(knee: KneeRecord) -> str:
    return formatting.setting(knee.point) if knee.point else "the server"


def _curve(knee: KneeRecord, trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """The trials of a curve that are results, of the loads that have one."""
    points: dict[int, list[TrialRecord]] = {}
    for trial in trials:
        if without_axis(trial.setting) == knee.point:
            points.setdefault(trial.point, []).append(trial)
    measured = (made for made in points.values() if point_outcome(made)[0] == "ok")
    return [trial for made in measured for trial in made if trial.outcome == "ok"]


def _measured(caption: str, figure: str, trials: Sequence[TrialRecord]) -> Table:
    """A row a load: how many trials, and their figure."""
    unit = "per_s" if figure == "completed_rate" else "us"
    loads: dict[float, list[float]] = {}
    for trial in trials:
        if figure in trial.figures:
            loads.setdefault(connections_of(trial), []).append(trial.figures[figure])
    rows = tuple(
        (
            Cell(text=f"{load:,.0f}", heading=True),
            Cell(text=str(len(values))),
            *(
                Cell(text=formatting.number(each, unit))
                for each in (min(values), statistics.median(values), max(values))
            ),
        )
        for load, values in sorted(loads.items())
    )
    head = ("connections", "trials", "least", "median", "greatest")
    return Table(caption=caption, head=head, rows=rows, style="numbers")


def knee_charts(knees: Sequence[KneeRecord], trials: Sequence[TrialRecord], layout: MatrixLayout) -> dict[str, Json]:
    """Two charts a curve that bends, each with its own data: Vega-Lite by name."""
    drawn: dict[str, Json] = {}
    compare = layout.compare or ""
    for place, knee in _bending(knees):
        curve = _curve(knee, trials)
        who = formatting.contender(knee.point, compare) if compare in knee.point else "all"
        identity: Json = {channel: _datum(encoding, who) for channel, encoding in colour_and_shape(layout).items()}
        drawn[f"knee-{place}-rate"] = _rate_chart(knee, curve, identity)
        drawn[f"knee-{place}-response"] = _response_chart(knee, curve, identity)
    return drawn


def _datum(encoding: object, who: str) -> Json:
    """One contender's colour or shape, the same as in every chart."""
    given = {key: value for key, value in encoding.items() if key != "field"} if isinstance(encoding, dict) else {}
    return {"datum": who, **given}


def _rate_chart(knee: KneeRecord, trials: Sequence[TrialRecord], identity: Json) -> Json:
    colour: Json = {"color": identity["color"]}
    layers = [_dots(trials, "completed_rate", 1.0, identity)]
    bound, fit = knee.bound, knee.fit
    if bound is not None and trials:
        loads = [connections_of(trial) for trial in trials]
        slope = 1 / (bound.idle_response_s + bound.think_s)
        most, corner = bound.most_rate, bound.at
        first, last = min(loads), max(*loads, corner)
        # Of a curve that only falls the corner lies at its first load, or by noise below it.
        rising = [[first, first * slope], [corner, most]] if corner > first else [[first, most]]
        line = [*rising, [last, most]]
        layers.append(_line(line, [5, 4], colour))
    if fit is not None:
        band: list[Json] = [{"x": x, "low": low, "high": high} for x, _, low, high in fit.curve if low is not None]
        encoding = {"x": _x(), "y": _y("low", "requests/s"), "y2": {"field": "high"}, **colour}
        if band:
            layers.append({"data": {"values": band}, "mark": {"type": "area", "opacity": 0.2}, "encoding": encoding})
        layers.append(_line([[x, y] for x, y, _, _ in fit.curve], [1, 0], colour))
    return {"width": 330, "height": 200, "title": "completed rate", "layer": layers}


def _response_chart(knee: KneeRecord, trials: Sequence[TrialRecord], identity: Json) -> Json:
    layers = [_dots(trials, "response_time_us.mean", 1e-3, identity)]
    if knee.bound is not None and knee.bound.is_shown:
        rule = {"type": "rule", "strokeDash": [5, 4]}
        layers.append({"data": {"values": [{"x": knee.bound.at}]}, "mark": rule, "encoding": {"x": _x()}})
    return {"width": 330, "height": 200, "title": "mean response time", "layer": layers}


def _dots(trials: Sequence[TrialRecord], figure: str, scale: float, identity: Json) -> Json:
    values = [
        {"x": connections_of(trial), "y": float(f"{trial.figures[figure] * scale:.6g}"), "trial": trial.number}
        for trial in trials
        if figure in trial.figures
    ]
    unit = "requests/s" if scale == 1.0 else "ms"
    tooltip = [{"field": "x"}, {"field": "y"}, {"field": "trial"}]
    return {
        "data": {"values": values},
        "mark": {"type": "point", "filled": True, "size": 30, "opacity": 0.6},
        "encoding": {"x": _x(), "y": _y("y", unit), **identity, "tooltip": tooltip},
    }


def _line(points: Sequence[Sequence[float]], dash: Sequence[int], colour: Json) -> Json:
    return {
        "data": {"values": [{"x": x, "y": y} for x, y in points]},
        "mark": {"type": "line", "strokeDash": list(dash), "strokeWidth": 1.5},
        "encoding": {"x": _x(), "y": _y("y", "requests/s"), **colour},
    }


def _x() -> Json:
    return {"field": "x", "type": "quantitative", "title": "connections", "scale": {"type": "log", "nice": False}}


def _y(field: str, unit: str) -> Json:
    axis: Json = {**(counts() if unit == "requests/s" else {"format": EXACT}), "tickCount": 5}
    # Rates on a logarithmic scale, as the loads are: only so is an asymptote a straight line.
    scale = {"type": "log", "nice": False, "padding": 8} if unit == "requests/s" else {"zero": True}
    return {"field": field, "type": "quantitative", "title": unit, "axis": axis, "scale": scale}
