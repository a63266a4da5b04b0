"""Whether a point meets its limits: the median for an order, every trial for an exact value."""

from __future__ import annotations

import pytest

from plimsoll_lab.analysis.points import summarise_point
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import PointRecord
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.figures import figures_of, read_limit
from plimsoll_lab.suite.read import read_text

POINT = PointRecord(number=0, setting={}, server={}, load={})


def trial(value: float | None) -> TrialRecord:
    return TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0, elapsed_s=1,
        figures={} if value is None else {"statuses.404": value}, server={}, load={}, machine={},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("condition", "values", "met"),
    [
        ("== 0", (0, 0, 0), True),
        ("== 0", (0, 0, 5), False),
        ("!= 0", (1, 2, 3), True),
        ("!= 0", (1, 0, 3), False),
        ("< 2", (0, 1, 9), True),
        ("< 1", (0, 1, 9), False),
        ("== 0", (None, None), False),
        ("!= 0", (None, None), False),
    ],
)
def test_the_median_meets_an_order_and_every_trial_an_exact_value(
    condition: str, values: tuple[float | None, ...], *, met: bool
) -> None:
    limit = read_limit("statuses.404", condition, source="it.toml")
    [found] = summarise_point(POINT, [trial(each) for each in values], [limit], paths_off=False).limits
    assert found.met is met


@pytest.mark.parametrize("table", ["limits", "expect"])
def test_a_status_that_a_limit_or_an_expectation_names_is_a_figure_of_the_run(table: str) -> None:
    suite = read_text(
        'name = "it"\nquestion = "Well?"\n[server]\nprotocol = "http"\n[load]\nprotocol = "http"\nduration = "1s"\n'
        f'[{table}]\n"statuses.404" = "== 0"\n',
        source="it.toml",
        directory="/here",
    )
    [found] = [each for each in figures_of(suite, expand(suite, seed=1).points) if each.name == "statuses.404"]
    assert found.label == "answers with status 404"


ECHO_LOAD = 'name = "it"\nquestion = "Well?"\n[server]\n[load]\nduration = "1s"\n[limits]\n"statuses.404" = "== 0"\n'
WEB_ROLE = (
    '[[role]]\nname = "web"\nkind = "load"\nprotocol = "http"\ntarget = "role:pages"\nduration = "1s"\n'
    '[[role]]\nname = "pages"\nkind = "server"\nprotocol = "http"\n'
)


@pytest.mark.parametrize(
    ("more", "refused"),
    [
        ("", True),
        (WEB_ROLE, False),
        (WEB_ROLE.replace("duration", "measured = false\nduration"), True),
        (WEB_ROLE.replace('load"\nprotocol = "http"', 'load"') + '[matrix]\n"role.web.protocol" = ["http"]\n', False),
        ('[matrix]\n"load.protocol" = ["echo", "http"]\n', False),
    ],
)
def test_a_status_is_a_figure_of_any_measured_load_that_speaks_http(more: str, *, refused: bool) -> None:
    """The second load of a suite was overlooked, and its statuses could have no limit."""
    if refused:
        with pytest.raises(SuiteError, match="only HTTP has statuses"):
            read_text(ECHO_LOAD + more, source="it.toml", directory="/here")
    else:
        read_text(ECHO_LOAD + more, source="it.toml", directory="/here")


@pytest.mark.parametrize("operator", ["==", "!="])
def test_only_counts_are_compared_exactly_as_the_binary_has_it(operator: str) -> None:
    for name, value in (("response_time.p99", "5ms"), ("failed_ratio", "0%"), ("completed_rate", "10k")):
        with pytest.raises(SuiteError, match="compare counts; write <"):
            read_limit(name, f"{operator} {value}", source="it.toml")
    assert read_limit("requests.failed", f"{operator} 0", source="it.toml").operator == operator
