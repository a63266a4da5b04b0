"""Which points of stored runs are compared, in which figures, and which ones B has lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import DAYS, MEDIAN, RATE, ended, messages, several, stored

from plimsoll_lab.analysis.comparison import compare_runs, place_of
from plimsoll_lab.store.comparison_summary import ComparisonSummary
from plimsoll_lab.store.records import CutRecord, Outcome, ResultWarning
from plimsoll_lab.store.run_record import PointRecord
from plimsoll_lab.suite.spec import Placement, Role

BOTH = {RATE: 1000.0, MEDIAN: 200.0}


def reasons(found: ComparisonSummary) -> dict[str, tuple[str, str]]:
    """What was said of each figure, and why."""
    return {each.figure: (each.call, each.reason) for each in found.verdicts}


@pytest.mark.parametrize(
    ("a", "b", "lost"),
    [
        (("ok",) * 5, ("ok", "ok", "failed", "failed", "hard_limit"), ["failed"]),
        (("ok",) * 5, ("hard_limit", "failed", "failed", "ok", "ok"), ["hard_limit"]),
        (("ok",) * 5, ("ok", "ok", "ok", "failed", "failed"), []),
        (("ok", "ok"), ("ok", "failed"), []),
        (("ok", "failed"), ("failed", "failed"), []),
        (("ok",) * 5, ("invalid",) * 5, []),
        (("failed",) * 5, ("failed",) * 5, []),
        (("failed",) * 5, ("ok",) * 5, []),
    ],
)
def test_a_point_is_lost_that_most_runs_of_a_completed_and_most_of_b_did_not(
    tmp_path: Path, a: Sequence[Outcome], b: Sequence[Outcome], lost: Sequence[Outcome]
) -> None:
    """It is told with how the first of these runs ended."""
    found = compare_runs(ended(tmp_path, "a", a), ended(tmp_path, "b", b))
    assert [each.outcome for each in found.lost] == lost
    assert all(each.point == {"server.model": "epoll"} for each in found.lost)
    assert all(each.reason == "the server <ended> with code 1" for each in found.lost)
    assert found.worse is bool(lost)


def test_a_point_that_few_runs_lost_makes_nothing_worse(tmp_path: Path) -> None:
    four: Mapping[str, Sequence[Outcome]] = {"a": ["ok"] * 4, "b": ["failed"] * 4}
    found = compare_runs(*(ended(tmp_path, side, outcomes) for side, outcomes in four.items()))
    assert [each.outcome for each in found.lost] == ["failed"]
    assert (found.worse, found.valid, found.comparable) == (False, False, True)
    assert reasons(found) == dict.fromkeys(BOTH, ("invalid", "no valid result in B"))


@pytest.mark.parametrize(
    ("a", "b", "figure", "reason"),
    [
        (
            BOTH,
            {RATE: 1.0},
            MEDIAN,
            "100 % of A's trials tell it and 0 % of B's, and those that do not may be the slowest",
        ),
        (
            {RATE: 1.0},
            BOTH,
            MEDIAN,
            "0 % of A's trials tell it and 100 % of B's, and those that do not may be the slowest",
        ),
        ({RATE: 1.0}, {RATE: 1.0}, MEDIAN, "no valid result in A and B"),
        (BOTH, {MEDIAN: 1.0}, RATE, "no valid result in B"),
        (BOTH, {RATE: 0.0, MEDIAN: 1.0}, RATE, "a value of zero has no ratio to another"),
    ],
)
def test_a_figure_that_one_side_does_not_tell_is_not_compared(
    tmp_path: Path, a: Mapping[str, float], b: Mapping[str, float], figure: str, reason: str
) -> None:
    """Of a response time, trials that do not tell it may be the slowest."""
    found = compare_runs([stored(tmp_path / "a", a)], [stored(tmp_path / "b", b)])
    assert reasons(found)[figure] == ("invalid", reason)


def test_a_run_without_a_result_tells_nothing_of_how_many_trials_tell_a_figure(tmp_path: Path) -> None:
    few = ("not shown", "1 run a side is too few; at least 5, or `plimsoll lab gate` in one run")
    found = compare_runs(ended(tmp_path, "a", ["ok", "invalid"]), ended(tmp_path, "b", ["ok", "invalid"]))
    assert reasons(found) == dict.fromkeys(BOTH, few)


def test_runs_that_failed_are_no_runs_to_leave_out(tmp_path: Path) -> None:
    """Of B's runs those that failed were left out without a word, and the others were not shown to
    be worse.
    """
    half: Sequence[Outcome] = ("ok", "failed") * 5
    found = compare_runs(ended(tmp_path, "a", ("ok",) * 10), ended(tmp_path, "b", half))
    why = "0 % of A's trials and 50 % of B's failed or reached a limit, and figures are of the others"
    assert reasons(found) == dict.fromkeys(BOTH, ("invalid", why))
    assert not found.valid


def test_the_share_of_trials_that_failed_is_of_trials(tmp_path: Path) -> None:
    """A run most of whose trials had failed counted as one of which all had."""
    a = ended(tmp_path, "a", ("ok",) * 6)
    b = ended(tmp_path, "b", ("ok",) * 6)
    [trial] = b[0].read_trials()
    for number in range(2, 6):
        outcome: Outcome = "failed" if number < 5 else "ok"
        b[0].write_trial(replace(trial, number=number, block=number, outcome=outcome, reason="it fell over"))
    found = compare_runs(a, b)
    assert {said for said, _ in reasons(found).values()} != {"invalid"}, "three of five, in one run of six, are 10 %"
    # Which is no verdict all the same: that run has no result, and the comparison was called valid.
    assert not found.valid
    assert str(b[0].path) in messages(found)["stopped"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_rate_is_not_compared_where_the_generator_was_the_limit_of_many_trials(
    tmp_path: Path, *, whole: bool
) -> None:
    """The limited trials, or runs, were left out without a word: the slowest of the side that the
    generator could not exhaust stayed.
    """
    a = ended(tmp_path, "a", ("ok",) * 10)
    b = ended(tmp_path, "b", (*("ok",) * 8, "generator_limited", "generator_limited") if whole else ("ok",) * 10)
    for folder in () if whole else b:
        [trial] = folder.read_trials()
        folder.write_trial(replace(trial, number=2, block=2, outcome="generator_limited", reason="it was late"))
    found = compare_runs(a, b)
    share = "20 %" if whole else "50 %"
    why = f"the generator was the limit in 0 % of A's trials and {share} of B's, and the server may do more"
    assert reasons(found)[RATE] == ("invalid", why)
    assert not found.valid
    assert compare_runs(a, ended(tmp_path, "c", (*("ok",) * 9, "generator_limited"))).verdicts[0].call != "invalid"


@pytest.mark.parametrize("outcome", ["failed", "hard_limit"])
def test_one_run_of_ten_without_a_result_is_told_and_leaves_no_verdict(tmp_path: Path, outcome: Outcome) -> None:
    a = ended(tmp_path, "a", ("ok",) * 10)
    b = ended(tmp_path, "b", (*("ok",) * 9, outcome))
    found = compare_runs(a, b)
    assert messages(found) == {
        "stopped": f"trials of {b[9].path} failed or reached a limit where others did not, and figures are of the "
        "others"
    }
    assert (found.valid, found.worse) == (False, False)
    assert compare_runs(a, ended(tmp_path, "c", ("ok",) * 10)).valid


def test_trials_that_may_tell_a_figure_are_those_in_which_the_server_answered(tmp_path: Path) -> None:
    """A late generator beside another program makes a trial invalid, and its server may be slow: of
    a side with two such trials of five, three had told the median and the whole side was judged.
    """
    a, b = ended(tmp_path, "a", ("ok",) * 5), ended(tmp_path, "b", ("ok",) * 5)
    late = [ResultWarning(code=code, message=code, remedy="-") for code in ("generator_late", "machine_busy")]
    for folder in (*a, *b):
        [trial] = folder.read_trials()
        for number in range(1, 6):
            made = replace(trial, number=number, block=number)
            if folder in b and number > 3:
                made = replace(made, outcome="invalid", reason="late", warnings=late, figures={RATE: 1000.0})
            folder.write_trial(made)
    why = "100 % of A's trials tell it and 60 % of B's, and those that do not may be the slowest"
    assert reasons(compare_runs(a, b))[MEDIAN] == ("invalid", why)


def test_a_figure_that_too_few_runs_have_makes_the_comparison_no_answer(tmp_path: Path) -> None:
    """Five runs a side were enough, however few of them had a result."""
    five: Sequence[Outcome] = ("ok",) * 5
    assert compare_runs(ended(tmp_path, "a", five), ended(tmp_path, "b", five)).valid
    four: Sequence[Outcome] = ("ok", "ok", "ok", "ok", "invalid")
    found = compare_runs(ended(tmp_path, "c", five), ended(tmp_path, "d", four))
    assert {said for said, _ in reasons(found).values()} == {"not shown"}
    assert not found.valid


def test_a_few_results_of_a_point_that_has_none_are_not_compared(tmp_path: Path) -> None:
    """As on the page of the run: of three trials two failed."""
    a, b = (stored(tmp_path / side, BOTH) for side in "ab")
    [trial] = b.read_trials()
    for number in (2, 3):
        b.write_trial(replace(trial, number=number, block=number, outcome="failed", reason="it fell over"))
    found = compare_runs([a], [b])
    assert reasons(found) == dict.fromkeys(BOTH, ("invalid", "no valid result in B"))
    assert [(each.outcome, each.reason) for each in found.lost] == [("failed", "it fell over")]


@pytest.mark.parametrize(
    ("a", "b", "call"),
    [(0.0, 0.2, "not shown"), (0.0, 0.26, "invalid"), (0.4, 0.1, "invalid"), (0.4, 0.4, "not shown")],
)
def test_a_percentile_is_not_compared_where_more_of_one_side_was_cut_out(
    tmp_path: Path, a: float, b: float, call: str
) -> None:
    """By half of what lies beyond it: of the median, a quarter."""
    cuts = [
        CutRecord(
            moments=1, share=share, requests=1, touched=0, completed_rate=None, bounds={}, estimates={}, doubted=()
        )
        for share in (a, b)
    ]  # fmt: skip
    one, other = (stored(tmp_path / side, BOTH, cut=cut) for side, cut in zip("ab", cuts, strict=True))
    found = compare_runs([one], [other])
    assert {name: said for name, (said, _) in reasons(found).items()} == {RATE: "not shown", MEDIAN: call}


@pytest.mark.parametrize(
    ("figure", "factor", "winner"), [(RATE, 1.1, "B"), (RATE, 0.9, "A"), (MEDIAN, 1.1, "A"), (MEDIAN, 0.9, "B")]
)
def test_which_way_is_better_is_the_figures_own(tmp_path: Path, figure: str, factor: float, winner: str) -> None:
    changed = BOTH | {figure: BOTH[figure] * factor}
    found = compare_runs([stored(tmp_path / "a", BOTH)], [stored(tmp_path / "b", changed)])
    [verdict] = [each for each in found.verdicts if each.figure == figure]
    assert (verdict.winner, verdict.at, verdict.n) == (winner, {"server.model": "epoll"}, (1, 1))
    assert verdict.ratio == pytest.approx(factor)


def test_points_are_compared_in_the_order_of_the_first_run_of_a(tmp_path: Path) -> None:
    """The second suite lists its models the other way round."""
    a = stored(tmp_path / "a", BOTH, models=("epoll", "poll"))
    b = stored(tmp_path / "b", BOTH, models=("poll", "epoll", "select"))
    found = compare_runs([a], [b])
    assert [(each.at["server.model"], each.figure) for each in found.verdicts] == [
        (model, figure) for model in ("epoll", "poll") for figure in (RATE, MEDIAN)
    ]
    assert messages(found)["unmatched_points"].endswith(" were left out: 1")


def test_the_second_measurement_of_a_control_is_no_point_of_its_own(tmp_path: Path) -> None:
    sides = [stored(tmp_path / side, BOTH, models=("epoll", "again")) for side in "ab"]
    for folder in sides:
        run = folder.read_run()
        one, again = run.points
        run.points = [one, again.model_copy(update={"setting": one.setting, "server": one.server, "control": True})]
        folder.write_run(run)
        second = folder.read_trials()[1]
        folder.write_trial(replace(second, setting=one.setting, figures={RATE: 1.0, MEDIAN: 1.0}))
    found = compare_runs([sides[0]], [sides[1]])
    assert [(each.figure, each.ratio) for each in found.verdicts] == [(RATE, 1.0), (MEDIAN, 1.0)]
    assert messages(found) == {}
    changed = replace(sides[1].read_trials()[0], figures={RATE: 500.0, MEDIAN: 200.0})
    sides[1].write_trial(changed)
    assert compare_runs([sides[0]], [sides[1]]).verdicts[0].ratio == pytest.approx(0.5)


def test_only_points_that_every_run_has_are_compared(tmp_path: Path) -> None:
    a = [stored(tmp_path / name, BOTH, models=("epoll", "poll")) for name in ("a0", "a1")]
    b = [stored(tmp_path / "b0", BOTH, models=("epoll", "poll")), stored(tmp_path / "b1", BOTH, models=("poll",))]
    found = compare_runs(a, b)
    assert {each.at["server.model"] for each in found.verdicts} == {"poll"}
    assert messages(found)["unmatched_points"].endswith(" were left out: 1")


def test_a_verdict_is_of_every_run(tmp_path: Path) -> None:
    a, b = (several(tmp_path, side, [level * day for day in DAYS]) for side, level in (("a", 1000), ("b", 990)))
    [rate, _] = compare_runs(a, b).verdicts
    assert rate.n == (5, 5)
    assert rate.ratio == pytest.approx(0.99)


POINT = PointRecord(
    number=0,
    setting={"server.model": "epoll", "load.size": "1KiB"},
    server={"model": "epoll"},
    load={"connections": 10, "size": "1KiB"},
)
NETWORK: dict[str, Any] = {"links": [{"ends": ["h1", "s1"]}], "addresses": 1, "congestion": "cubic"}
NETWORKED = POINT.model_copy(update={"network": NETWORK, "place": Placement(server="h1", load=("h2",))})


def role(name: str, kind: str, on: str | None = None, **settings: int | str) -> Role:
    return Role(name=name, kind=kind, on=on, measured=True, settings=settings)


WITH_WEB, NETWORKED_WEB = (
    each.model_copy(update={"roles": [role("web", "load", on=host, connections=5)]})
    for each, host in ((POINT, "n1"), (NETWORKED, "h3"))
)


@pytest.mark.parametrize(
    ("base", "changed", "alike"),
    [
        (POINT, {"number": 3}, True),
        (POINT, {"server": {"model": "poll"}}, True),
        (POINT, {"setting": {"load.size": "1KiB", "server.model": "epoll"}}, True),
        (POINT, {"load": {"size": "1KiB", "connections": 10}}, True),
        (POINT, {"setting": {"server.model": "poll", "load.size": "1KiB"}}, False),
        (POINT, {"load": {"size": "1KiB", "connections": 20}}, False),
        (POINT, {"load": {"connections": 10}}, False),
        (POINT, {"roles": [role("web", "load", connections=5)]}, False),
        (POINT, {"roles": [role("relay", "forward", to="x")]}, True),
        (WITH_WEB, {"roles": [role("web", "load", on="n2", connections=5)]}, True),
        (NETWORKED_WEB, {"roles": [role("web", "load", on="h4", connections=5)]}, False),
        (POINT, {"place": Placement(server="n1")}, True),
        (POINT, {"place": Placement(load=("n1",))}, True),
        (POINT, {"place": Placement(load=("n1", "n2"))}, False),
        (POINT, {"place": Placement(cpus={"server": (0,)})}, False),
        (POINT, {"network": {"links": []}}, False),
        (NETWORKED, {"place": Placement(server="h1", load=("h3",))}, False),
        (NETWORKED, {"place": Placement(server="h3", load=("h2",))}, False),
        (NETWORKED, {"network": NETWORK | {"backend": "tap", "hosts": ["h1", "h2", "h3"]}}, True),
        (NETWORKED, {"network": NETWORK | {"backend": "bridge"}}, False),
        (NETWORKED, {"network": NETWORK | {"links": []}}, False),
        (NETWORKED, {"network": NETWORK | {"addresses": 2}}, False),
        (NETWORKED, {"network": NETWORK | {"congestion": "bbr"}}, False),
        (NETWORKED, {"network": None}, False),
    ],
)
def test_a_point_is_the_same_where_the_same_was_asked_of_the_server(
    base: PointRecord, changed: dict[str, Any], *, alike: bool
) -> None:
    """The server may have changed, and so may what stands between it and the load."""
    assert (place_of(base) == place_of(base.model_copy(update=changed))) is alike


def test_other_loads_are_the_same_in_any_order_of_their_settings() -> None:
    one, other = (
        POINT.model_copy(update={"roles": [role("web", "load", None, **settings)]})
        for settings in ({"connections": 5, "rate": 7}, {"rate": 7, "connections": 5})
    )
    assert place_of(one) == place_of(other)
    named = POINT.model_copy(update={"roles": [role("bulk", "load", connections=5, rate=7)]})
    assert place_of(one) != place_of(named)
