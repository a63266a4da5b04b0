"""Two runs held against each other: the environments first, then the figures."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Done, Lab, run_lab

from plimsoll_lab.analysis.comparison import environment_differences
from plimsoll_lab.stats.two_runs import Pair, blocks_alternate, hold_against, unpaired_p

ENVIRONMENT = {"system": "Linux 6", "cpus": 2, "memory": "8000000 kB", "cpu_governor": "performance"}

ALIKE = int(os.environ.get("PLIMSOLL_ALIKE_RUNS", "40"))
"""Families of two runs that are alike; `make soak` asks for 200."""


def pair(factor: float, *, n: int = 10, noise: float = 0.01, seed: int = 1, paired: bool = False) -> Pair:
    luck = random.Random(seed).gauss
    a = {block: 100 * luck(1, noise) for block in range(n)}
    b = {block: 100 * factor * luck(1, noise) for block in range(n)}
    return Pair(figure="completed_rate", better="higher", at={}, a=a, b=b, paired=paired)


CALLS = {
    "a tenth slower": (pair(0.9), ("better", "A")),
    "a tenth slower, in alternating blocks": (pair(0.9, paired=True), ("better", "A")),
    "a tenth faster": (pair(1.1), ("better", "B")),
    "a tenth slower, three trials": (pair(0.9, n=3), ("not shown", "A")),
    "a tenth slower, lost in the noise": (pair(0.97, noise=0.2), ("not shown", None)),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_difference_is_called_only_where_it_is_shown(case: str) -> None:
    given, (call, winner) = CALLS[case]
    (found,) = hold_against([given], margin=0.05, seed=1)
    assert found.call == call, found.reason
    assert winner is None or found.winner == winner


def test_two_alike_are_equivalent() -> None:
    (found,) = hold_against([pair(1.0, noise=0.002)], margin=0.05, seed=1)
    assert found.call == "equivalent"


def test_the_unpaired_test_counts_every_dealing_out() -> None:
    # Of the 20 ways to deal out 3 and 3, two are as extreme as the lowest three against the highest three.
    assert unpaired_p([1, 2, 3], [4, 5, 6], np.random.default_rng(1)) == pytest.approx(2 / 20)


def test_one_run_against_itself_is_rarely_called_better() -> None:
    called = sum(
        any(
            each.call == "better"
            for each in hold_against([pair(1.0, seed=s * 7 + k) for k in range(4)], margin=0, seed=s)
        )
        for s in range(ALIKE)
    )
    # The true rate has to be 5 % at most; chance alone puts more than three standard deviations on top once in 700.
    assert called <= 0.05 * ALIKE + 3 * (0.05 * 0.95 * ALIKE) ** 0.5


def test_blocks_are_paired_only_where_they_alternated() -> None:
    assert blocks_alternate({1: (0, 1), 2: (4, 5)}, {1: (2, 3), 2: (6, 7)})
    assert not blocks_alternate({1: (0, 1), 2: (2, 3)}, {1: (4, 5), 2: (6, 7)})
    assert not blocks_alternate({1: (0, 1)}, {1: (2, 3), 2: (4, 5)})


def test_environments_are_held_against_each_other() -> None:
    assert environment_differences(ENVIRONMENT, ENVIRONMENT | {"memory": "8000100 kB", "load_average": "3"}) == []
    assert environment_differences(ENVIRONMENT, ENVIRONMENT | {"cpus": 4}) == ["cpus: 2 in A, 4 in B"]
    (reason,) = environment_differences(ENVIRONMENT, {k: v for k, v in ENVIRONMENT.items() if k != "cpu_governor"})
    assert reason == "cpu governor: performance in A, not known in B"


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


def compare(base: Path, other: str) -> tuple[Done, Any]:
    done = run_lab(base, "compare", "runs/0001", other, "--json")
    return done, json.loads(done.stdout)


def test_a_slower_run_exits_with_3(base: Path) -> None:
    def slower(record: dict[str, Any]) -> None:
        record["figures"]["completed_rate"] *= 0.9

    done, summary = compare(base, altered(base, "slower", slower))
    assert done.returncode == 3
    assert (summary["event"], summary["worse"], summary["comparable"]) == ("summary", True, True)
    assert {(each["call"], each["winner"]) for each in summary["verdicts"]} == {("better", "A")}
    text = run_lab(base, "compare", "runs/0001", "runs/slower").stdout
    assert text.startswith("runs/slower is worse than runs/0001")


def test_the_same_run_is_not_worse(base: Path) -> None:
    done, summary = compare(base, altered(base, "same", lambda _: None))
    assert (done.returncode, summary["worse"], summary["valid"]) == (0, False, True)


def test_a_point_that_is_no_longer_carried_is_worse(base: Path) -> None:
    def broken(record: dict[str, Any]) -> None:
        record.update(outcome="failed", reason="it fell over")

    done, summary = compare(base, altered(base, "broken", broken))
    assert done.returncode == 3
    assert {each["reason"] for each in summary["lost"]} == {"it fell over"}


def test_another_machine_is_not_comparable(base: Path) -> None:
    def moved(record: dict[str, Any]) -> None:
        record["environment"]["cpus"] = 64

    done, summary = compare(base, altered(base, "moved", lambda _: None, moved))
    assert done.returncode == 4
    assert (summary["comparable"], summary["worse"]) == (False, False)
    assert "64 in B" in summary["not_comparable"][0]
    assert {each["call"] for each in summary["verdicts"]} == {"invalid"}


def test_what_is_no_run_is_refused(lab: Lab) -> None:
    done = lab("compare", "nothing", "nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
