"""[expect]: expressions over the settings of a point, and the figures that they are about."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_suites import GOOD, SEARCH, plan, suite

from plimsoll_lab.hosts.samplers.usage import Usage
from plimsoll_lab.store.records import Outcome
from plimsoll_lab.suite.checks import setting_at
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expect import missed, read_expectation
from plimsoll_lab.suite.figures import named_figures
from plimsoll_lab.trial.lifecycle import held_to_expectations
from plimsoll_lab.trial.parts import PartialRecord
from plimsoll_lab.trial.validity import Judgement
from plimsoll_lab.trial.window import Window


@pytest.mark.parametrize(
    ("condition", "seen", "told"),
    [
        ("== load.connections + 1", 101, None),
        ("== load.connections + 1", 100, "expected x == load.connections + 1: it is 100, and the expression is 101"),
        ("<= 2 * load.connections - 50", 150, None),
        (">= 1 + 2 * load.connections * 3", 600, "it is 600, and the expression is 601"),
        ("< 5ms", 0.004, None),
        ("!= 4KiB", 4096, "and the expression is 4096"),
        ("== load.nothing", 1, "load.nothing has no value here"),
        ("== 1", None, "the trial has no such figure"),
    ],
)
def test_an_expectation_is_an_expression_over_the_settings(
    condition: str, seen: float | None, told: str | None
) -> None:
    expectation = read_expectation("x", condition, source="it.toml")
    said = missed(expectation, {"x": seen}.get, {"load.connections": 100.0}.get)
    assert (said is None) == (told is None)
    assert told is None or told in str(said)


@pytest.mark.parametrize("name", ["statuses.404", "load.statuses.404"])
def test_an_expected_status_is_a_figure_by_either_of_its_names(name: str) -> None:
    """By the longer one, a server without such an answer failed every trial."""
    pages = GOOD.replace('"echo"', '"http"').replace("[load]", '[load]\nprotocol = "http"')
    assert named_figures(suite(pages + f'[expect]\n"{name}" = "== 0"\n'))[0] == "statuses.404"


def test_an_expectation_names_a_figure_as_a_limit_does_too() -> None:
    """Every trial failed, as it had no such figure."""
    for name in ("response_time.p99", "response_time_us.p99"):
        (found,) = suite(GOOD + f'[expect]\n"{name}" = "< 5ms"\n').expectations
        assert (found.figure, found.terms) == ("response_time_us.p99", (("+", 5000.0),))
    with pytest.raises(SuiteError, match=r"\[expect\] response_time.p99: 5 is not a condition"):
        suite(GOOD + '[expect]\n"response_time.p99" = 5\n')


def test_an_expectation_may_name_what_a_search_varies_and_what_a_role_has() -> None:
    expected = '[expect]\n"connections.established" = "== load.connections"\n'
    assert plan(SEARCH.replace("[search]", expected + "[search]")).points
    role = '[[role]]\nname = "second"\nkind = "load"\nconnections = 4\nduration = "1s"\ntarget = "role:server"\n'
    (point,) = plan(GOOD + role + expected.replace('"\n', ' + role.second.connections"\n')).points
    assert setting_at(point, "role.second.connections") == 4
    assert setting_at(point, "load.connections") == 64


@pytest.mark.parametrize(
    ("figure", "condition", "seen", "met"),
    [
        ("response_time_us.p99", "< 5ms", 4999, True),
        ("response_time_us.p99", "> 5ms", 4999, False),
        ("response_time_us.p99", "< 5000", 4999, True),
        ("server.cpu_us_per_request", "<= 1us + 2 * 4us", 9, True),
        ("server.cpu_us_per_request", "<= 1us + 2 * 4us", 9.1, False),
        ("response_time_us.mean", "< load.think", 250_001, False),
        ("response_time_us.mean", "< load.think", 249_999, True),
        ("elapsed_s", ">= load.think * 4", 1.0, True),
        ("elapsed_s", "< load.think * 4", 1.0, False),
    ],
)
def test_a_duration_in_an_expectation_is_in_the_figures_own_unit(
    figure: str, condition: str, seen: float, *, met: bool
) -> None:
    expectation = read_expectation(figure, condition, source="it.toml")
    assert (missed(expectation, {figure: seen}.get, {"load.think": "250ms"}.get) is None) is met


@pytest.mark.parametrize(
    ("figure", "read", "outcome"),
    [
        ("server.cpu_us_per_request", True, "failed"),
        ("server.cpu_us_per_request", False, "ok"),
        ("tcp.listen_overflows", False, "ok"),
        ("role.second.cpu_cores", False, "ok"),
        ("requests.due", False, "failed"),
    ],
)
def test_what_was_not_read_of_a_count_fails_no_expectation(
    tmp_path: Path, figure: str, outcome: Outcome, *, read: bool
) -> None:
    """A count that was over before the lab came to read the server is a result without its cost."""
    role = '[[role]]\nname = "second"\nkind = "load"\nduration = "1s"\n'
    (point,) = (asked := plan(GOOD + role + f'[expect]\n"{figure}" = "> 0"\n')).points
    used = Usage(cpu_s=1.0, memory_bytes=None)
    partial = PartialRecord(records=tmp_path, window=Window(first=used, last=used, length_s=1.0 if read else 0.0))
    partial.load, partial.server = {"summary": {}}, {"summary": {}}
    good = Judgement(outcome="ok", reason=None, warnings=())
    found = held_to_expectations(asked.suite, point, good, {"completed_rate": 1.0}, partial)
    assert found.outcome == outcome
    told = [each.code for each in found.warnings]
    assert told == (["expectation_not_judged"] if outcome == "ok" else [])
