"""Reasons to mistrust a run as a whole, each in a sentence with what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import calibration_record, point_summary, run_record

from plimsoll_lab.analysis.failures import nothing_worked
from plimsoll_lab.analysis.run_warnings import (
    control_warnings,
    doubtful_figures,
    run_warnings,
    warnings_by_code,
    warnings_of_trials,
)
from plimsoll_lab.analysis.stopping import Stop
from plimsoll_lab.stats.results import Control
from plimsoll_lab.store.records import Attempt, Outcome, ResultWarning, TrialRecord
from plimsoll_lab.store.run_record import ImportedFile, ImportRecord, PointRecord, RunRecord, Status
from plimsoll_lab.store.search_record import SearchSettingsRecord
from plimsoll_lab.store.summary_record import LimitSummary, PointSummary
from plimsoll_lab.suite.figures import read_limit
from plimsoll_lab.suite.spec import PlannedTrial, RunSettings

FOLDER = Path("runs/0007")
SEARCH = SearchSettingsRecord(over="load.rate", lowest=1, highest=10)
ATTEMPT = Attempt(outcome="ok", reason="others", started_unix_s=0.0, elapsed_s=1.0)


def trial(outcome: Outcome = "ok", *codes: str, number: int = 1, point: int = 0) -> TrialRecord:
    return TrialRecord(
        number=number, block=1, point=point, setting={}, outcome=outcome, reason=None, figures={}, started_unix_s=0,
        elapsed_s=1, server={}, load={}, machine={},
        warnings=[ResultWarning(code=code, message=f"{code} at {number}", remedy=f"no {code}") for code in codes],
    )  # fmt: skip


def run_of(planned: int = 1, points: int = 1, **changed: object) -> RunRecord:
    run = run_record()
    run.points = [PointRecord(number=number, setting={}, server={}, load={}) for number in range(points)]
    run.trials = [PlannedTrial(number=number, block=1, point=0) for number in range(1, planned + 1)]
    for name, value in changed.items():
        setattr(run, name, value)
    return run


def made(points: Sequence[tuple[Outcome, int]]) -> list[PointSummary]:
    """Points that ended so, with so many results."""
    return [
        point_summary({"server.model": "epoll", "load.connections": number}, number, outcome).model_copy(
            update={"valid_n": results}
        )
        for number, (outcome, results) in enumerate(points)
    ]


def told(
    run: RunRecord, points: Sequence[PointSummary] = (), trials: Sequence[TrialRecord] = (), family: int = 0
) -> dict[str, tuple[str, str]]:
    """By code, what is said and what to do."""
    found = run_warnings(run, points, (), trials, family, FOLDER)
    assert len({each.code for each in found}) == len(found)
    return {each.code: (each.message, each.remedy) for each in found}


RESUME = "plimsoll lab resume runs/0007 measures the rest"
MEND = "mend what the reason names, and run again"


@pytest.mark.parametrize(
    ("status", "planned", "outcomes", "said"),
    [
        ("complete", 2, ("ok", "ok"), None),
        ("interrupted", 3, ("ok", "ok"), ("2 of 3 trials were measured", RESUME)),
        ("failed", 3, ("failed", "failed"), ("every point failed, so the run ended after 2 of 3 trials", MEND)),
        ("interrupted", 3, ("failed", "failed"), ("2 of 3 trials were measured", RESUME)),
        ("failed", 3, ("failed", "invalid"), ("2 of 3 trials were measured", RESUME)),
        ("failed", 3, ("failed",), ("1 of 3 trials were measured", RESUME)),
        ("failed", 2, ("failed", "failed"), None),
    ],
)
def test_a_run_that_ended_early_says_why_and_how_to_go_on(
    status: Status, planned: int, outcomes: Sequence[Outcome], said: tuple[str, str] | None
) -> None:
    """Of a run of two points every point failed, where one trial of each did."""
    run = run_of(planned, 2, status=status)
    trials = [trial(outcome, number=place + 1, point=place) for place, outcome in enumerate(outcomes)]
    assert told(run, (), trials).get("incomplete") == said
    assert nothing_worked(run, trials) is (said is not None and said[1] == MEND)
    assert not nothing_worked(run_of(planned, 2, status=status, search=SEARCH), trials)


@pytest.mark.parametrize(("count", "ended"), [(0, "0 trials"), (1, "1 trial"), (1400, "1,400 trials")])
def test_a_search_that_ended_early_counts_its_trials_and_none_that_were_planned(count: int, ended: str) -> None:
    run = run_of(9, search=SEARCH, status="interrupted")
    trials = [trial("invalid", number=number) for number in range(count)]
    assert told(run, made([("invalid", 0), ("ok", 2)]), trials) == {
        "incomplete": (
            f"the run was ended after {ended}, before its searches had",
            "plimsoll lab resume runs/0007 goes on with them",
        )
    }
    assert told(run_of(9, search=SEARCH), (), trials) == {}


def test_a_run_whose_trials_would_not_be_alike_says_what_was_mixed() -> None:
    run = run_of(mixed=("lab was 1 and is 2", "the kernel was 5 and is 6"))
    assert told(run, (), [trial()]) == {
        "builds_mixed": (
            "the run was resumed although its trials would not be alike: lab was 1 and is 2; the kernel was 5 and is 6",
            "begin a new run for trials that are alike",
        )
    }


@pytest.mark.parametrize(
    ("repeat", "family", "said"),
    [(1, 1, "1 repetition"), (5, 3, "5 repetitions"), (5, 0, None), (6, 3, None)],
)
def test_a_suite_that_can_show_nothing_says_so(repeat: int, family: int, said: str | None) -> None:
    found = told(run_of(settings=RunSettings(repeat=repeat)), (), [trial()], family)
    message = f"{said} cannot show any difference, however large"
    assert found == ({"too_few_repetitions": (message, "use at least 6 repetitions (--repeat)")} if said else {})


def test_points_that_rest_on_few_results_are_counted_with_the_fewest() -> None:
    points = made([("ok", 5), ("ok", 6), ("ok", 3), ("hard_limit", 1)])
    message = "2 of 4 points rest on fewer than 6 results, the least on 3: no interval of their medians reaches 95 %"
    assert told(run_of(), points, [trial()]) == {"too_few_trials": (message, "use at least 6 repetitions (--repeat)")}
    assert told(run_of(), points[1:2], [trial()]) == {}
    enough = run_of(settings=RunSettings(repeat=6))
    mend = "mend what kept the other trials from a result, which the report's table of trials names for each"
    assert told(enough, points, [trial()]) == {"too_few_trials": (message, mend)}
    ended = run_of(2, settings=RunSettings(repeat=6))
    assert told(ended, points, [trial()])["too_few_trials"] == (message, RESUME)
    file = ImportedFile(trial=1, name="a", tool="wrk", target="", sha256="0", started_unix_s=None)
    imported = told(run_of(imported=ImportRecord(unix_s=0.0, files=[file])), points, [trial()])
    assert imported == {"too_few_trials": (message, "import at least 6 files of each")}


@pytest.mark.parametrize(
    ("attempts", "said"), [((1,), "1 measurement was"), ((1, 0, 2), "3 measurements were"), ((0, 0), None)]
)
def test_measurements_that_were_discarded_are_counted(attempts: Sequence[int], said: str | None) -> None:
    """They were called trials, more of them than the run has."""
    trials = [replace(trial(), attempts=(ATTEMPT,) * each) for each in attempts]
    message = f"{said} discarded and made again for a cause of the machine"
    found = told(run_of(len(trials)), made([("ok", 6)]), trials)
    assert found == ({"repeated": (message, "a quieter machine, or a lighter load, needs fewer")} if said else {})


def test_measurements_that_were_discarded_are_told_with_what_of_the_machine_was_in_the_way() -> None:
    """The generator was blamed too, and is no cause for another trial."""
    causes = ("steal", "machine_busy", "machine_busy")
    trials = [replace(trial(), attempts=[replace(ATTEMPT, cause=each) for each in causes])]
    ((message, _),) = told(run_of(), made([("ok", 6)]), trials).values()
    assert message == "3 measurements were discarded and made again for a cause of the machine: machine_busy 2, steal 1"


def test_points_without_a_result_are_named_with_what_verdicts_take_of_them() -> None:
    points = made([("ok", 6), ("invalid", 0), ("generator_limited", 0), ("failed", 0)])
    spoilt = [trial("invalid", number=2, point=1), trial("generator_limited", number=3, point=2)]
    several = "2 of 4 points have no result: the generator or the machine was the limit"
    bounds = ", so verdicts take their rates as lower bounds and what the server used as it is"
    places = ": model epoll, 1 connection; model epoll, 2 connections"
    remedy = "a quieter or larger machine, or a lighter load"
    assert told(run_of(2), points, spoilt) == {"no_result": (several + bounds + places, remedy)}
    assert told(run_of(1), points, spoilt[:1]) == {"no_result": (several + places, remedy)}
    elsewhere = [replace(spoilt[1], point=0)]
    assert told(run_of(1), points, elsewhere)["no_result"] == (several + places, remedy)
    nameless = [points[1].model_copy(update={"point": {}})]
    alone = "1 of 1 points have no result: the generator or the machine was the limit"
    assert told(run_of(1), nameless, spoilt[:1]) == {"no_result": (alone, remedy)}


def test_trials_that_were_left_out_of_a_result_are_counted_by_their_outcome() -> None:
    outcomes: Sequence[Outcome] = ("ok", "invalid", "generator_limited", "invalid")
    trials = [trial(outcome, number=number) for number, outcome in enumerate(outcomes)]
    elsewhere = trial("failed", number=9, point=1)
    points = made([("ok", 6), ("failed", 0)])
    assert told(run_of(5), points, [*trials, elsewhere]) == {
        "discarded": (
            "3 of 5 trials are no results and were left out: 2 invalid, 1 generator limited",
            "the table says at which points, the trials' records say why",
        )
    }
    assert told(run_of(2), points, [trials[0], elsewhere]) == {}


def test_a_warning_of_trials_stands_once_with_the_middle_one_of_them() -> None:
    trials = [
        trial("ok", "steal", "steal", "throttled", number=1),
        trial("ok", number=2),
        trial("invalid", "steal", number=3),
        trial("generator_limited", "steal", number=4),
        trial("hard_limit", "steal", number=5),
        trial("failed", "steal", number=6),
    ]
    seen = warnings_by_code(run_of(), trials)
    assert [(code, [each.number for each, _ in found]) for code, found in seen.items()] == [
        ("steal", [1, 1, 3, 4]),
        ("throttled", [1]),
    ]
    assert warnings_of_trials(seen, trials) == [
        ResultWarning(code="steal", message="in 3 of 6 trials; in trial 3, steal at 3", remedy="no steal"),
        ResultWarning(code="throttled", message="in 1 of 6 trials; in trial 1, throttled at 1", remedy="no throttled"),
    ]
    of_search = warnings_by_code(run_of(search=SEARCH), trials)
    assert {code: [each.number for each, _ in found] for code, found in of_search.items()} == {
        "steal": [1, 1],
        "throttled": [1],
    }


def control(figure: str, ratio: float | None, *, differs: bool) -> Control:
    return Control(
        figure=figure, at={"load.connections": 10}, blocks=6, ratio=ratio, ratio_ci95=None, p_adjusted=None,
        floor=None, differs=differs,
    )  # fmt: skip


def test_controls_that_differ_from_themselves_are_named_with_by_how_much() -> None:
    calm = [control("x", 1.1, differs=False), control("y", None, differs=True)]
    assert control_warnings(calm) == []
    differing = [control("x", 1.23456, differs=True), control("z", 0.9, differs=True)]
    assert control_warnings([*calm, *differing]) == [
        ResultWarning(
            code="control_differs",
            message="the A/A control differs significantly: one server, measured twice in each block, gave "
            "x at 10 connections: 1.235 times itself; z at 10 connections: 0.900 times itself",
            remedy="something other than the server moves these figures: look for what differs between trials of a "
            "block",
        )
    ]


def test_doubtful_figures_are_counted_with_a_cause_of_each_kind() -> None:
    limit = read_limit("response_time.p99", "< 5ms", source="it.toml")
    judged = LimitSummary(
        point={}, limit=limit.text, figure=limit.figure, median=None, median_ci95=(None, None), met=None
    )  # fmt: skip
    sure, late, cut, also_cut = made([("ok", 6), ("invalid", 0), ("ok", 6), ("ok", 6)])
    sure = sure.model_copy(update={"limits": [judged]})
    late = late.model_copy(update={"doubtful": True, "reason": "it was late"})
    cut = cut.model_copy(update={"doubtful": True})
    also_cut = also_cut.model_copy(update={"doubtful": True})
    run = run_of(limits=(limit,), calibrations=(calibration_record([late.number]),))
    (path,) = run.calibrations[0].paths
    causes = [
        f"from h1 to h2, {path.in_words()}",
        "model epoll, 1 connection: it was late",
        f"model epoll, 2 connections: '{limit.text}' cannot be judged, as the emulator disturbed that figure",
    ]
    remedy = "use a quieter machine, or ask for a longer round trip or less load"
    [warning] = doubtful_figures(run, [sure, late, cut, also_cut])
    beginning = "the figures of 3 of 4 points are doubtful, and marked by ?: "
    assert (warning.code, warning.message, warning.remedy) == (
        "doubtful_figures",
        beginning + "; ".join(causes),
        remedy,
    )
    assert doubtful_figures(run, [sure]) == []
    within = run_of(limits=(limit,), calibrations=(calibration_record([0], within=True),), search=SEARCH)
    nameless = late.model_copy(update={"point": {}, "valid_n": 3})
    [alone] = doubtful_figures(within, [nameless])
    assert alone.message == "the figures of 1 of 1 points are doubtful, and marked by ?: the trials: it was late"


def test_trials_that_stopped_beside_others_are_told_by_how_they_ended() -> None:
    points = made([("failed", 0), ("ok", 6), ("ok", 6)])
    endings: tuple[tuple[Outcome, bool], ...] = (
        ("failed", True), ("failed", False), ("hard_limit", False), ("failed", False),
    )  # fmt: skip
    trials = [trial(number=number) for number in range(1, 19)]
    stops = [
        Stop(point=points[place % 3], outcome=outcome, trials=trials[: 2 + place], of=6, as_a_whole=whole)
        for place, (outcome, whole) in enumerate(endings)
    ]
    found = run_warnings(run_of(18), points, stops, trials, 0, FOLDER)
    (stopped,) = found
    assert (stopped.code, stopped.remedy) == ("stopped", "the table says at which points, the trials' records say why")
    assert stopped.message == (
        "12 of 18 trials failed or reached a limit, and others of their points did not: 8 failed, 4 hard limit; "
        "figures and verdicts are of the others"
    )
    assert run_warnings(run_of(18), points, stops[:1], trials, 0, FOLDER) == []


def test_a_disturbed_network_is_among_a_runs_warnings() -> None:
    """Each calibration counts that a trial had: the first one was off, and the last one not."""
    (point,) = made([("ok", 6)])
    run = run_of(6)
    again = calibration_record([0], within=True).model_copy(update={"unix_s": 5.0})
    run.calibrations, run.mixed = [calibration_record([0]), again], ["the kernel was another"]
    trials = [replace(trial(number=number), started_unix_s=1.0) for number in range(1, 7)]
    found = run_warnings(run, [point.model_copy(update={"doubtful": True})], (), trials, 0, FOLDER)
    assert [each.code for each in found] == ["doubtful_figures", "builds_mixed"]
    assert "from h1 to h2, a round trip of" in found[0].message
