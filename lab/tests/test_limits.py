"""Whether a point meets its limits: the median's interval for an order, every trial for an exact
value.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_records import stored_run
from simulated import tell

from plimsoll_lab.analysis.points import judge_limit, summarise_point
from plimsoll_lab.analysis.summary import summarise_run
from plimsoll_lab.cli.outcome import exit_code
from plimsoll_lab.report.terminal import render
from plimsoll_lab.store.records import TrialRecord
from plimsoll_lab.store.run_record import PointRecord
from plimsoll_lab.store.summary_record import LimitSummary
from plimsoll_lab.suite.errors import SuiteError
from plimsoll_lab.suite.expand import expand
from plimsoll_lab.suite.figures import figures_of, read_limit
from plimsoll_lab.suite.read import read_text
from plimsoll_lab.suite.spec import Limit

POINTS = 10 * int(os.environ.get("PLIMSOLL_FAMILIES", "60"))
"""Simulated points; `make soak` asks for many more."""
POINT = PointRecord(number=0, setting={}, server={}, load={})


def trial(value: float | None) -> TrialRecord:
    return TrialRecord(
        number=1, block=1, point=0, setting={}, outcome="ok", reason=None, warnings=(), started_unix_s=0, elapsed_s=1,
        figures={} if value is None else {"statuses.404": value}, server={}, load={}, machine={},
    )  # fmt: skip


def limit_of(condition: str) -> Limit:
    return read_limit("statuses.404", condition, source="it.toml")


def met_by(limit: Limit, values: Sequence[float]) -> bool | None:
    return judge_limit(limit, [(each, each) for each in values])[0]


def summarised(condition: str, values: Sequence[float | None]) -> LimitSummary:
    point = summarise_point(POINT, [trial(each) for each in values], [limit_of(condition)], paths_off=False)
    [found] = point.limits
    return found


@pytest.mark.parametrize(
    ("condition", "values", "met"),
    [
        ("== 0", (0, 0, 0), True),
        ("== 0", (0, 0, 5), False),
        ("!= 0", (1, 2, 3), True),
        ("!= 0", (1, 0, 3), False),
        ("== 0", (None, None), None),
        ("== 0", (0, None), None),
        ("== 0", (5, None), False),
        ("< 2", (0, 1, 1, 1, 1, 1), True),
        ("< 2", (0, 1, 1, 1, 1, 2), None),
        ("<= 2", (0, 1, 1, 1, 1, 2), True),
        ("< 2", (2, 2, 2, 2, 3, 4), False),
        ("> 2", (2, 2, 2, 2, 1, 1), False),
        ("> 2", (3, 3, 3, 3, 9, 9), True),
        ("< 2", (0, 0, 0, 0, 0), True),
        ("< 2", (9, 9, 9, 9, 9), False),
        ("< 2", (0, 0, 0, 0, 9), None),
        ("< 2", (0, 0, 0, 0, None), None),
        ("< 2", (0,), True),
        ("< 2", (9,), False),
        ("< 2", (0, 0, 0, 0, 0, 0, 0, 0, 9), True),
        ("< 2", (0, 0, 0, 0, 0, 0, 0, None, None), None),
        ("< 2", (0, 0, 0, 0, 0, 0, 0, 0, None), True),
        ("> 2", (0, 0, 0, 0, 0, 0, 0, 0, None), False),
        ("< 2", (None,) * 9, None),
    ],
)
def test_the_whole_interval_of_the_median_meets_an_order_and_every_trial_an_exact_value(
    condition: str, values: tuple[float | None, ...], *, met: bool | None
) -> None:
    assert summarised(condition, values).met is met


def test_a_limit_has_the_interval_that_decided_it() -> None:
    assert summarised("< 2", (0, 1, 1, 1, 1, 7)).median_ci95 == (0, 7)
    assert summarised("< 2", (0, 1, 1, 1, 1, None)).median_ci95 == (None, None)
    assert summarised("< 2", (0, 1, 1, 1, 1, 1, 1, 7, None)).median_ci95 == (0, 7)


@pytest.mark.parametrize("trials", [6, 9, 12, 20])
def test_a_point_that_lies_at_its_limit_is_seldom_called_met_or_missed(trials: int) -> None:
    """Response times are skewed; their true median is the limit. The bare median called half of the
    points met, and the other half missed.
    """
    draw = np.random.default_rng(trials)
    limit = limit_of("< 100")
    ends = Counter(
        met_by(limit, (100 * np.exp(draw.exponential(0.2, trials) - 0.2 * math.log(2))).tolist()) for _ in range(POINTS)
    )
    tell("limits", f"{trials} trials, the median at the limit", POINTS, met=ends[True], missed=ends[False])
    allowed = 0.025 * POINTS + 3 * math.sqrt(0.025 * 0.975 * POINTS)
    assert ends[True] <= allowed
    assert ends[False] <= allowed


@pytest.mark.parametrize(("level", "met"), [(90, True), (110, False)])
def test_a_limit_that_is_a_tenth_away_is_told_at_ten_repetitions(level: float, *, met: bool) -> None:
    draw = np.random.default_rng(3)
    limit = limit_of("< 100")
    ends = Counter(met_by(limit, draw.normal(level, 3, 10).tolist()) for _ in range(POINTS))
    assert ends[met] >= 0.99 * POINTS


@pytest.mark.parametrize(
    ("limits", "code"), [("", 0), ("== 0", 0), ("< 2", 4), ("== 1", 3)], ids=["none", "met", "undecided", "missed"]
)
def test_a_limit_of_which_nothing_can_be_told_ends_in_4(limits: str, code: int, tmp_path: Path) -> None:
    """The bare median decided."""
    folder = stored_run(tmp_path / "0001", repeat=2)
    run = folder.read_run()
    run.limits = [read_limit("requests.failed", limits, source="it.toml")] if limits else []
    folder.write_run(run)
    for each in folder.read_trials():
        # Of two trials, one is on each side.
        failed = 9.0 * (each.block % 2) if code == 4 else 0.0
        folder.write_trial(replace(each, figures={**each.figures, "requests.failed": failed}))
    summary = summarise_run(folder)
    assert exit_code(summary) == code
    undecided, missed = len(summary.limits_undecided), len(summary.limits_missed)
    assert (undecided > 0, missed > 0) == (code == 4, code == 3)
    assert ("limits of which it cannot be told" in render(summary, folder.read_run(), colour=False)) == (code == 4)


def test_a_limit_that_is_missed_at_one_point_ends_in_3_whatever_another_point_lacks(tmp_path: Path) -> None:
    """It ended in 4, which is taken for a machine that was too busy to tell."""
    folder = stored_run(tmp_path / "0001", ("epoll", "uring"), repeat=6)
    run = folder.read_run()
    run.limits = [read_limit("completed_rate", "> 5000", source="it.toml")]
    folder.write_run(run)
    for each in folder.read_trials():
        if each.point == 1:
            folder.write_trial(replace(each, outcome="invalid", reason="others used 2.00 cores"))
    summary = summarise_run(folder)
    assert (exit_code(summary), len(summary.limits_missed)) == (3, 1)


@pytest.mark.parametrize(("limited", "code"), [(5, 4), (6, 4), (9, 4), (0, 0)])
def test_a_limit_of_a_point_at_which_the_server_reached_its_own_cannot_be_told(
    limited: int, code: int, tmp_path: Path
) -> None:
    """Of nine trials five had refused connections: no limit was judged, and the run ended in 0."""
    folder = stored_run(tmp_path / "0001", repeat=9)
    run = folder.read_run()
    run.limits = [read_limit("response_time.p50", "< 250ms", source="it.toml")]
    folder.write_run(run)
    for each in folder.read_trials():
        if each.block <= limited:
            folder.write_trial(replace(each, outcome="hard_limit", reason="it refused 9 connections", figures={}))
    summary = summarise_run(folder)
    assert (exit_code(summary), len(summary.limits_undecided)) == (code, int(code == 4))
    assert ("< 250ms; the server reached a limit of its own" in render(summary, run, colour=False)) == (code == 4)


def test_a_limit_on_a_figure_that_no_trial_has_is_said_to_be_one(tmp_path: Path) -> None:
    """More repetitions would tell no more."""
    folder = stored_run(tmp_path / "0001", repeat=2)
    run = folder.read_run()
    run.limits = [read_limit("capture.packets", "< 5", source="it.toml")]
    folder.write_run(run)
    summary = summarise_run(folder)
    assert [each.met for each in summary.limits_undecided] == [None]
    assert "capture.packets < 5; no valid trial has this figure" in render(summary, run, colour=False)


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
