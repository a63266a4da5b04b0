"""The axes that a chart is drawn over, as numbers in their own units."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from made_records import run_record

from plimsoll_lab.analysis.over_time import Course
from plimsoll_lab.report.chart_axis import chart_axes, panels
from plimsoll_lab.report.drawing import CATEGORY, draw
from plimsoll_lab.report.encoding import SHAPES, MatrixLayout, axis_of, shapes_of, y_axis
from plimsoll_lab.report.series import Panel, panels_spec
from plimsoll_lab.report.templating import legend_mark
from plimsoll_lab.store.run_record import PointRecord, RunRecord
from plimsoll_lab.suite.drawn import quantity
from plimsoll_lab.suite.figures import BY_NAME
from plimsoll_lab.suite.settings import Settings


def test_settings_of_every_kind_are_numbers_on_an_axis() -> None:
    assert quantity("load.think", "250ms") == (0.25, "s")
    assert quantity("load.think", "exp:2s") == (2.0, "s")
    assert quantity("network.rate", "10Mbit") == (1e7, "bit/s")
    assert quantity("load.size", "4KiB") == (4096.0, "B")
    assert quantity("load.path", "/bytes/65536") == (65536.0, "B")
    assert quantity("load.path", "/burn/1ms/75672") == (75672.0, "B")
    assert quantity("load.connections", 5) == (5.0, "")
    assert quantity("load.rate", "10k") == (10_000.0, "")
    assert quantity("server.model", "epoll") is None
    assert quantity("load.lockstep", value=True) is None


@pytest.mark.parametrize(
    ("figure", "axis"),
    [
        ("completed_rate", (1.0, "requests/s")),
        ("response_time_us.p99", (1e-3, "ms")),
        ("server.cpu_us_per_request", (1.0, "\u00b5s per request")),
        # Their axis had requests.
        ("packets_per_s", (1.0, "packets/s")),
        ("capture.packets_per_s_max", (1.0, "packets/s")),
        ("capture.packets_per_s_swing", (100.0, "%")),
    ],
)
def test_a_figure_has_its_own_unit_on_its_axis(figure: str, axis: tuple[float, str]) -> None:
    assert axis_of(BY_NAME[figure]) == axis


def run_of(settings: list[Settings], drawn: Sequence[tuple[str, str]] = ()) -> RunRecord:
    quantities: dict[str, dict[str, tuple[float, str]]] = {}
    for setting in settings:
        for path, value in setting.items():
            found = quantity(path, value)
            if found is not None:
                quantities.setdefault(path, {})[str(value)] = found
    run = run_record()
    run.points = [PointRecord(number=number, setting=each, server={}, load={}) for number, each in enumerate(settings)]
    run.quantities, run.drawn = quantities, drawn
    return run


def test_each_axis_that_varies_is_drawn_over_in_its_own_unit() -> None:
    settings: list[Settings] = [
        {"load.connections": connections, "load.think": think} for connections in (10, 20) for think in ("1ms", "1s")
    ]
    clients, think = chart_axes(run_of(settings), None)
    assert (clients.title, clients.values) == ("connections", (10.0, 20.0))
    assert (think.title, think.values) == ("think (ms)", (1.0, 1000.0))
    assert len(think.rests) == 2, "a line for each number of connections: it joins points that differ in one axis"
    assert panels(think, competes=True) == list(think.rests)
    assert panels(think, competes=False) == [None]


def test_an_axis_that_never_varies_alone_is_drawn_over_where_that_is_asked_for() -> None:
    """Points beside the matrix differ in much at once: no line joins any two of them."""
    settings: list[Settings] = [
        {"load.connections": connections, "load.think": "1s"}
        if each is None
        else {"load.connections": connections, "load.think": "1s", "load.each": each}
        for connections, each in ((10, None), (20, None), (3, 2), (5, 4))
    ]
    (clients,) = chart_axes(run_of(settings), None)
    assert clients.path == "load.connections"
    (each,) = chart_axes(run_of(settings, [("elapsed_s", "load.each")]), None)
    assert each.values == (2.0, 4.0)


def test_a_product_of_two_is_an_axis() -> None:
    settings: list[Settings] = [{"network.rate": rate, "network.delay": "1ms"} for rate in ("10Mbit", "100Mbit")]
    (over,) = chart_axes(run_of(settings, [("elapsed_s", "network.rate * network.delay")]), None)
    assert (over.title, over.values) == ("rate * delay (kbit)", (10.0, 100.0))


@pytest.mark.parametrize(
    ("figure", "ends"),
    [
        ("connections.established", (19_986, 20_000)),
        ("completed_rate", (499.92, 500.02)),
        ("completed_rate", (99_990, 100_010)),
        ("response_time_us.p99", (12.0001, 12.0005)),
    ],
)
def test_no_two_numbers_of_a_narrow_axis_are_written_alike(figure: str, ends: tuple[float, float]) -> None:
    """19,986 to 20,000 connections were five times 19,990, and then 20,000."""
    dots = [{"x": place, "it": value} for place, value in enumerate(ends)]
    y = y_axis(BY_NAME[figure], logarithmic=False, zero=False) | {"field": "it", "title": None}
    x = {"field": "x", "type": "ordinal", "axis": None}
    drawn = draw("it", {"data": {"values": dots}, "mark": "point", "encoding": {"x": x, "y": y}}, {})
    words = re.findall(r">([^<>]+)</text>", drawn)
    assert len(words) > 3
    assert len(set(words)) == len(words)


def test_no_two_of_many_contenders_look_alike() -> None:
    """From the eighth on each looked like another one, in every chart and in the legend."""
    colours = len(CATEGORY)
    assert colours == len(SHAPES)
    seen = [(place % colours, shape) for place, shape in enumerate(shapes_of(49))]
    assert len(set(seen)) == 49
    assert shapes_of(7) == list(SHAPES)
    marks = [str(legend_mark(place)) for place in range(49)]
    assert len(set(marks)) == 49
    assert [re.findall(r"glyph c(\d+).*#mark(\d+)", each) for each in marks] == [
        [(str(colour), str(SHAPES.index(shape)))] for colour, shape in seen
    ]


@pytest.mark.parametrize(
    ("most", "told", "never"),
    [(2000.0, {"0", "1k", "2k"}, ("0k", "0.5k")), (0.5, {"0", "0.2", "0.4"}, ("m", "200m"))],
)
def test_each_number_of_an_axis_is_written_by_itself(most: float, told: set[str], never: tuple[str, str]) -> None:
    """The renderer wrote all in the unit of the largest: 0k, or an error in two seconds as 500m."""
    layout = MatrixLayout(compare=None, contenders=("all",), levels=("all",))
    dots = [(0.0, 0.0), (1.0, most)]
    course = Course(trial=1, contender="all", series={"errors": dots}, bands=(), starts_s=0.0, ends_s=1.0)
    panel = Panel(name="errors", series=("errors",), unit="errors/s")
    drawn = draw("it", panels_spec([course], [panel], layout), {})
    words = set(re.findall(r">([^<>]+)</text>", drawn))
    assert told <= words
    assert not words & set(never)
