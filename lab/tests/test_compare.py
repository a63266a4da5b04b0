"""Two runs held against each other: the environments first, then the figures."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Done, Lab, lab_here, run_lab

from plimsoll_lab.stats.two_runs import Pair, compare_sides

ALIKE = int(os.environ.get("PLIMSOLL_ALIKE_RUNS", "40"))
"""Families of two runs that are alike; `make soak` asks for 200."""


def pair(factor: float, *, n: int = 6, noise: float = 0.01, seed: int = 1) -> Pair:
    luck = random.Random(seed).gauss
    a, b = ([100 * level * luck(1, noise) for _ in range(n)] for level in (1, factor))
    return Pair(figure="completed_rate", better="higher", a=a, b=b)


CALLS = {
    "a tenth slower": (pair(0.9), ("better", "A")),
    "a tenth faster": (pair(1.1), ("better", "B")),
    "a tenth slower, four runs a side": (pair(0.9, n=4), ("not shown", "A")),
    "slower, lost in the noise": (pair(0.97, noise=0.2), ("not shown", None)),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_difference_is_called_only_where_it_is_shown(case: str) -> None:
    given, (call, winner) = CALLS[case]
    (found,) = compare_sides([given], margin=0.05)
    assert found.call == call, found.reason
    assert winner is None or found.winner == winner


def test_two_alike_are_equivalent() -> None:
    (found,) = compare_sides([pair(1.0, noise=0.002)], margin=0.05)
    assert found.call == "equivalent"


@pytest.mark.parametrize("between", [0.0, 0.01, 0.02, 0.03])
def test_runs_that_differ_by_themselves_are_rarely_called_better(between: float) -> None:
    """A/A with 2 % noise within a run and more between runs: a figure was called better in up to 73
    % of them.
    """
    draw = random.Random(int(between * 100))

    def run() -> float:
        day = math.exp(draw.gauss(0, between))
        return statistics.median(100 * day * math.exp(draw.gauss(0, 0.02)) for _ in range(8))

    def alike() -> list[Pair]:
        return [
            Pair(figure="x", better="higher", a=[run() for _ in range(5)], b=[run() for _ in range(5)])
            for _ in range(4)
        ]

    called = sum(any(each.call == "better" for each in compare_sides(alike(), margin=0)) for _ in range(ALIKE))
    # The true rate has to be 5 % at most; chance alone puts more than three standard deviations on
    # top once in 700.
    assert called <= 0.05 * ALIKE + 3 * (0.05 * 0.95 * ALIKE) ** 0.5


def test_an_equivalence_names_its_margin_exactly() -> None:
    """Of 2.5 % it said 2 %."""
    (found,) = compare_sides([pair(1.0, n=12, noise=0.001)], margin=0.025)
    assert (found.call, found.reason) == ("equivalent", "the interval lies within 2.5 %")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight repetitions at one point for each of two models."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "s.toml").write_text(
        'name = "s"\nquestion = "Which?"\n[server]\nmodel = "epoll"\n[load]\nduration = "20ms"\nconnections = 100\n'
        '[matrix]\n"server.model" = ["epoll", "uring"]\n[run]\nrepeat = 8\nseed = 7\n'
        '[verdict]\nfigures = ["completed_rate"]\n'
    )
    done = run_lab(folder, "run", "s.toml", "--json")
    assert done.returncode == 0, done.stderr
    return folder


def altered(
    base: Path,
    name: str,
    trial: Callable[[dict[str, Any]], None],
    run: Callable[[dict[str, Any]], None] = lambda _: None,
) -> str:
    """A copy of the run with something changed in its records."""
    target = base / "runs" / name
    shutil.copytree(base / "runs/0001", target)
    for path in (target / "trials").iterdir():
        record = json.loads(path.read_text())
        trial(record)
        path.write_text(json.dumps(record))
    record = json.loads((target / "run.json").read_text())
    run(record)
    (target / "run.json").write_text(json.dumps(record))
    return f"runs/{name}"


def sides(
    base: Path,
    name: str,
    trial: Callable[[dict[str, Any]], None],
    run: Callable[[dict[str, Any]], None] = lambda _: None,
) -> tuple[Done, Any]:
    """Five runs that differ by 1 % against five more of which something was changed."""
    luck = random.Random(name)

    def day(record: dict[str, Any]) -> None:
        record["figures"]["completed_rate"] *= luck.gauss(1, 0.002) * factor

    def changed(record: dict[str, Any]) -> None:
        day(record)
        trial(record)

    made: dict[str, list[str]] = {"a": [], "b": []}
    for number in range(5):
        for side, paths in made.items():
            factor = luck.gauss(1, 0.01)
            change, whole = (day, lambda _: None) if side == "a" else (changed, run)
            paths.append(altered(base, f"{name}-{side}{number}", change, whole))
    done = lab_here(base, "compare", *made["a"], "--with", *made["b"], "--json")
    return done, json.loads(done.stdout)


def test_slower_runs_exit_with_3(base: Path) -> None:
    def slower(record: dict[str, Any]) -> None:
        record["figures"]["completed_rate"] *= 0.9

    done, summary = sides(base, "slower", slower)
    assert done.returncode == 3
    assert (summary["event"], summary["worse"], summary["comparable"]) == ("summary", True, True)
    assert {(each["call"], each["winner"]) for each in summary["verdicts"]} == {("better", "A")}
    assert summary["verdicts"][0]["n"] == [5, 5]


def test_the_same_runs_are_not_worse(base: Path) -> None:
    done, summary = sides(base, "same", lambda _: None)
    assert (done.returncode, summary["worse"], summary["valid"]) == (0, False, True)


def test_a_verdict_that_rests_on_repeated_trials_says_so(base: Path) -> None:
    def slower_at_last(record: dict[str, Any]) -> None:
        attempt = {
            "outcome": "ok", "reason": "others used the CPU", "started_unix_s": 0, "elapsed_s": 1,
            "figures": dict(record["figures"]), "cause": "machine_busy",
        }  # fmt: skip
        record["figures"]["completed_rate"] *= 0.9
        record["attempts"] = [attempt]

    done, summary = sides(base, "repeated", slower_at_last)
    assert done.returncode == 3
    [warning] = [each for each in summary["warnings"] if each["code"] == "repeats_decide"]
    said = "completed_rate at model epoll: better (A ahead) with the trials that were made again, "
    assert said in warning["message"]


def test_one_run_a_side_gives_the_table_and_no_verdict(base: Path) -> None:
    def halved(record: dict[str, Any]) -> None:
        record["figures"]["completed_rate"] /= 2

    other = altered(base, "halved", halved)
    done = lab_here(base, "compare", "runs/0001", other, "--json")
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["worse"]) == (4, False)
    assert {each["call"] for each in summary["verdicts"]} == {"not shown"}
    assert summary["verdicts"][0]["ratio"] == pytest.approx(0.5, rel=0.02)
    assert "1 run a side is too few" in lab_here(base, "compare", "runs/0001", other).stdout


def test_a_point_that_is_no_longer_carried_is_worse(base: Path) -> None:
    def broken(record: dict[str, Any]) -> None:
        record.update(outcome="failed", reason="it fell over")

    done, summary = sides(base, "broken", broken)
    assert done.returncode == 3
    assert {each["reason"] for each in summary["lost"]} == {"it fell over"}


def test_one_transient_limit_makes_no_run_worse(base: Path) -> None:
    seen: list[int] = []

    def once(record: dict[str, Any]) -> None:
        if record["number"] == 3 and not seen:
            seen.append(record["number"])
            record.update(outcome="hard_limit", reason="it ran out of descriptors")

    done, summary = sides(base, "transient", once)
    assert (done.returncode, summary["lost"]) == (0, [])


def test_a_side_that_fails_in_some_trials_of_each_run_is_not_judged_by_the_others(base: Path) -> None:
    """A server that crashed in half of its trials was better, and nowhere shown to be worse."""

    def crashed(record: dict[str, Any]) -> None:
        if record["number"] == 3:
            record.update(outcome="failed", reason="the server died")

    done, summary = sides(base, "crashed", crashed)
    assert (done.returncode, summary["valid"], summary["lost"]) == (4, False, [])
    assert any("0 % of A's trials and " in each["reason"] for each in summary["verdicts"])


def test_runs_in_which_trials_failed_are_named_and_make_no_comparison_valid(base: Path) -> None:
    """A tenth of B's trials had failed, and it was "not shown to be worse" without a word."""
    seen: list[int] = []

    def crashed_once(record: dict[str, Any]) -> None:
        if record["number"] == 3 and not seen:
            seen.append(record["number"])
            record.update(outcome="failed", reason="the server died")

    done, summary = sides(base, "crashed-once", crashed_once)
    assert (done.returncode, summary["valid"]) == (4, False)
    [told] = [each["message"] for each in summary["warnings"] if each["code"] == "stopped"]
    assert "crashed-once-b0 failed or reached a limit where others did not" in told


def test_another_machine_is_not_comparable(base: Path) -> None:
    def moved(record: dict[str, Any]) -> None:
        record["environment"]["cpus"] = 64

    done, summary = sides(base, "moved", lambda _: None, moved)
    assert done.returncode == 4
    assert (summary["comparable"], summary["worse"]) == (False, False)
    assert "64 in B" in summary["not_comparable"][0]
    assert {each["call"] for each in summary["verdicts"]} == {"invalid"}


def test_runs_over_another_network_have_no_point_in_common(base: Path) -> None:
    def far(record: dict[str, Any]) -> None:
        for point in record["points"]:
            point["network"] = {"links": [{"ends": ["h1", "s1"], "shape": {"delay": "50ms"}}], "addresses": 1}

    def slow(record: dict[str, Any]) -> None:
        record["figures"]["completed_rate"] /= 10

    done, summary = sides(base, "far", slow, far)
    assert (done.returncode, summary["worse"]) == (4, False)
    assert summary["not_comparable"] == ["the runs have no point in common"]


def test_a_run_counts_once(base: Path) -> None:
    done = lab_here(base, "compare", "runs/0001", "./runs/0001")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "runs/0001 is named 2 times" in done.stderr


def test_what_is_no_run_is_refused(lab: Lab) -> None:
    done = lab("compare", "nothing", "nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_comparison_writes_its_page(base: Path) -> None:
    again = altered(base, "again", lambda _: None)
    done = lab_here(base, "compare", "runs/0001", again, "--json")
    report = json.loads(done.stdout)["report"]
    assert report == "runs/again/compare-0001.html"
    page = (base / report).read_text()
    places = [page.index(f'<section id="{name}">') for name in ("environment", "figures", "forest")]
    assert places == sorted(places), "what differs in the environment comes first"
    assert "Machine, settings and versions of both are the same." in page
    named = lab_here(base, "compare", "runs/0001", again, "--page", "two.html")
    assert "report   two.html" in named.stdout
    assert (base / "two.html").read_text() == page
    refused = lab_here(base, "compare", "runs/0001", again, "--page", "no/such/folder.html")
    assert refused.returncode == 1
    assert "name another file with --page" in refused.stderr
